"""A process that reads and validates documents for the service (``kg.proving``): what takes most of a bulk write under Python's lock.

It says ``E`` once it is ready. A ``Q`` brings lines (``kg.bulk``); of each ``PART`` of them it says in a ``D`` what they put. It says null
of a line that puts nothing, and where it is not certain: the service reads that itself, and tells what is wrong with it.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from kg import documents, inlining
from kg.bulk import Head, read_line
from kg.forms import Forms
from kg.iris import Iris
from kg.processes import begun
from kg.rdf import digest_at_once, text_of
from kg.store.frames import Frames, frame
from kg.store.texts import PlainText, pack
from kg.validation import validate

PART = 100
"""Documents that are answered together: what is still in the processor's cache is sent soonest."""
BYTES = 1 << 18
"""Bytes that are taken from the channel at a time."""


class Proven(NamedTuple):
    """What a line puts that is valid: the graph's text packed (``kg.store.texts``), its digest and its number of statements."""

    head: Head
    digest: str
    packed: bytes
    statements: int


def prove(asked: Sequence[bytes], iris: Iris, forms: Forms) -> list[Proven | None]:
    """Read lines and validate the documents that they put, each for itself."""
    return [_proven(each, iris, forms) for each in asked]


def _proven(sent: bytes, iris: Iris, forms: Forms) -> Proven | None:
    try:
        line = read_line(sent, iris)
        text = _text(bytes(line.document), line.id, iris, forms) if line.op == "put" else None
    except Exception:  # noqa: BLE001 - whatever it is, the service meets it too when it reads the line, and tells of it
        return None
    return None if text is None else Proven(line.head(), digest_at_once(text), pack(text), PlainText(text).statements)


def _text(document: bytes, graph: str, iris: Iris, forms: Forms) -> str | None:
    if len(document) > inlining.MAX_BYTES:
        return None
    known = forms.text(document, graph)
    if known is not None or (lines := documents.lines(document)) is None:
        return known
    validate(lines, graph, iris)
    forms.learn(document, graph, lines)
    return text_of(lines)


def main() -> None:
    """Serve on standard input until the other side is gone."""
    options = argparse.ArgumentParser()
    options.add_argument("base")
    given, channel = begun(options)
    iris = Iris(given.base)
    forms = Forms(iris)
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)  # there are no cycles to speak of
    asked = msgspec.msgpack.Decoder(list[bytes])
    arrived = Frames()
    channel.sendall(frame(b"E"))
    while found := arrived.wait(channel, BYTES):
        sent = asked.decode(found[1])
        for start in range(0, len(sent), PART):
            proven = prove(sent[start : start + PART], iris, forms)
            channel.sendall(frame(b"D", msgspec.msgpack.encode(proven)))


if __name__ == "__main__":
    main()
