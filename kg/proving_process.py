"""A process that reads and validates documents for the service (``kg.proving``): what takes most of a bulk write under Python's lock.

It says ``E`` once it is ready. A ``Q`` brings documents with the names of their graphs; of each ``PART`` of them it says in a ``D`` what
they are, or null for one where that is not certain: the service reads such a one itself, and tells what is wrong with it.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from kg import documents, inlining
from kg.forms import Forms
from kg.iris import Iris
from kg.processes import begun
from kg.rdf import digest_of, text_of
from kg.store.frames import Frames, frame
from kg.store.texts import pack
from kg.validation import validate

PART = 100
"""Documents that are answered together: what is still in the processor's cache is sent soonest."""
BYTES = 1 << 18
"""Bytes that are taken from the channel at a time."""


class Document(NamedTuple):
    """Compact JSON-LD that shall be the content of ``graph`` (an IRI)."""

    graph: str
    data: bytes


class Proven(NamedTuple):
    """The text of a valid graph (``kg.rdf.text_of``), its digest, and the text packed (``kg.store.texts``)."""

    text: str
    digest: str
    packed: bytes


def prove(asked: Sequence[Document], iris: Iris, forms: Forms) -> list[Proven | None]:
    """Read documents and validate them, each for itself."""
    return [_proven(each, iris, forms) for each in asked]


def _proven(document: Document, iris: Iris, forms: Forms) -> Proven | None:
    if len(document.data) > inlining.MAX_BYTES:
        return None
    try:
        if (known := forms.text(document.data, document.graph)) is not None:
            return Proven(known, digest_of(known), pack(known))
        lines = documents.lines(document.data)
        if lines is None:
            return None
        validate(lines, document.graph, iris)
    except Exception:  # noqa: BLE001 - whatever it is, the service meets it too when it reads the document, and tells of it
        return None
    text = text_of(lines)
    forms.learn(document.data, document.graph, lines)
    return Proven(text, digest_of(text), pack(text))


def main() -> None:
    """Serve on standard input until the other side is gone."""
    options = argparse.ArgumentParser()
    options.add_argument("base")
    given, channel = begun(options)
    iris = Iris(given.base)
    forms = Forms(iris)
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)  # there are no cycles to speak of
    asked = msgspec.msgpack.Decoder(list[Document])
    arrived = Frames()
    channel.sendall(frame(b"E"))
    while found := arrived.wait(channel, BYTES):
        sent = asked.decode(found[1])
        for start in range(0, len(sent), PART):
            proven = prove(sent[start : start + PART], iris, forms)
            channel.sendall(frame(b"D", msgspec.msgpack.encode(proven)))


if __name__ == "__main__":
    main()
