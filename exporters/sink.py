"""Where graphs are written to: the part of the store that exporters need, so that an HTTP client can stand in for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from kg.errors import GraphOwned
from kg.store.protocol import GraphEntry, GraphWrite, Row, Written

T = TypeVar("T")

BATCH = 1000
"""Graphs in one write: what the store loads in bulk, and what a crash may cost."""


class Sink(Protocol):
    """The part of ``kg.store.protocol.Store`` that exporters use, with the same guarantees."""

    def apply(self, writes: Sequence[GraphWrite]) -> list[Written]:
        """Write all or none."""
        ...

    def entries(
        self, *, owner: str | None = None, prefix: str = "", after: str = "", limit: int | None = None
    ) -> list[GraphEntry]:
        """List graphs without their content."""
        ...

    def look_up(self, query: str, values: Mapping[str, str] | None = None) -> list[Row]:
        """Run one of our own bounded SELECTs."""
        ...


def batched(things: Sequence[T]) -> Iterator[list[T]]:
    """Cut a sequence into lists of at most ``BATCH``."""
    for start in range(0, len(things), BATCH):
        yield list(things[start : start + BATCH])


def write(sink: Sink, writes: Sequence[GraphWrite]) -> tuple[list[Written], list[GraphOwned]]:
    """Write graphs in batches; one that somebody else owns is left to them and reported, the others are written."""
    written: list[Written] = []
    refused: list[GraphOwned] = []
    for batch in batched(writes):
        remaining = batch
        while remaining:
            try:
                written += sink.apply(remaining)
                break
            except GraphOwned as error:
                refused.append(error)
                remaining = [each for each in remaining if each.graph != error.detail["graph"]]
    return written, refused
