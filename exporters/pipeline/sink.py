"""Where graphs are written to: the part of the store that exporters need, so that an HTTP client can stand in for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from drumlin.kg.errors import GraphOwned
from drumlin.kg.store.preconditions import apply_allowed
from drumlin.kg.store.protocol import GraphEntry, GraphWrite, Row, StoredGraph, Written

BATCH = 4000
"""Graphs in one write: what the store loads in bulk, and what a crash may cost. A quarter of it takes half as long again."""
LINES = 100_000
"""Lines from which a write is not made larger: rendered graphs are many times larger than their manifests."""


class Sink(Protocol):
    """The part of ``kg.store.protocol.Store`` that exporters use, with the same guarantees."""

    def apply(self, writes: Sequence[GraphWrite]) -> list[Written]:
        """Write all or none; the error has the refusal of each write (``refusals``)."""
        ...

    def entries(
        self, *, owner: str | None = None, prefix: str = "", after: str = "", limit: int | None = None
    ) -> list[GraphEntry]:
        """List graphs without their content."""
        ...

    def read(self, graph: str) -> StoredGraph | None:
        """Return one graph, or None when it does not exist."""
        ...

    def look_up(self, query: str, values: Mapping[str, str] | None = None) -> list[Row]:
        """Run one of our own bounded SELECTs."""
        ...


def batched(writes: Iterable[GraphWrite], most: int = BATCH) -> Iterator[list[GraphWrite]]:
    """Cut writes, as they come, into lists of at most ``most``, fewer where they are large."""
    batch: list[GraphWrite] = []
    lines = 0
    for each in writes:
        batch.append(each)
        lines += each.content.statements if each.content else 0
        if len(batch) >= most or lines >= LINES:
            yield batch
            batch, lines = [], 0
    if batch:
        yield batch


def write(sink: Sink, writes: Sequence[GraphWrite], most: int = BATCH) -> tuple[list[Written], list[GraphOwned]]:
    """Write graphs in batches; return what was written, and the refusals of the graphs that another owner has.

    Any other refusal is raised, once the rest of its batch is written.
    """
    written: list[Written] = []
    owned: list[GraphOwned] = []
    for batch in batched(writes, most):
        done, refused = apply_allowed(sink.apply, batch)
        written += done
        for error in refused.values():
            if not isinstance(error, GraphOwned):
                raise error
            owned.append(error)
    return written, owned
