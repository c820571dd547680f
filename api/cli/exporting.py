"""``drumlin dump`` and ``drumlin import``: the graph of a service as one document, and such a document back into a store."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import BinaryIO, cast

from api.assembly import open_store
from api.cli.output import Output, emit_json, progress
from exporters.remote import RemoteSink
from exporters.sink import Sink, batched, write
from kg import connect
from kg.errors import InvalidDocument, InvalidInput, UnsupportedSyntax
from kg.exporting import SYNTAXES
from kg.importing import graphs
from kg.rdf import JSONLD, NQUADS, Lines, Syntax, syntax_named
from kg.settings import Settings
from kg.store.protocol import GraphWrite
from kg.subgraphs import check_owner

PARTLY = 3
"""Exit code when some graphs belong to another owner: they were left as they are."""


def dump(url: str | None, format: str | None, narrowed: Mapping[str, str | None]) -> None:
    """Stream a service's export to stdout; a framed one is JSON-LD."""
    syntax = JSONLD if narrowed.get("frame") and not format else _named(format or NQUADS.name, SYNTAXES)
    with connect(url) as client:
        for chunk in client.export(syntax.name, **{name: value for name, value in narrowed.items() if value}):
            sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()


def load(
    settings: Settings,
    path: Path,
    format: str | None,
    owner: str,
    output: Output,
    *,
    store: str | None,
    url: str | None,
) -> int:
    """Write the graphs of an export into the store at a place, or through a service, and return the exit code.

    Graphs that are there and not in the file stay. Raises what reading and writing raise.
    """
    check_owner(owner)
    writes = (GraphWrite(graph, lines, owner) for graph, lines in _graphs(path, _syntax(path, format)))
    if store is not None:
        with closing(open_store(settings, store)) as opened:
            return _written(opened, writes, output)
    with connect(url) as client:
        return _written(RemoteSink(client, settings.base), writes, output)


def _written(sink: Sink, writes: Iterator[GraphWrite], output: Output) -> int:
    changed = unchanged = 0
    left: list[dict[str, str]] = []
    for batch in batched(writes):
        written, refused = write(sink, batch)
        same = sum(each.outcome == "unchanged" for each in written)
        changed, unchanged = changed + len(written) - same, unchanged + same
        for error in refused:
            progress.print(f"left as it is: {error}", style="red", highlight=False, markup=False)
            left.append({"graph": error.detail["graph"], "owner": error.detail["owner"]})
    if output in (Output.json, Output.jsonld):
        emit_json({"written": changed, "unchanged": unchanged, "left": left})
    progress.print(f"{changed} graphs written, {unchanged} unchanged", highlight=False)
    return PARTLY if left else 0


def _graphs(path: Path, syntax: Syntax) -> Iterator[tuple[str, Lines]]:
    """Read a file, or stdin, gzipped or not, as it comes."""
    try:
        with ExitStack() as opened:
            stdin = cast("io.BufferedReader", sys.stdin.buffer)
            stream = stdin if str(path) == "-" else opened.enter_context(path.open("rb"))
            packed = stream.peek(2)[:2] == b"\x1f\x8b"
            yield from graphs(cast("BinaryIO", gzip.GzipFile(fileobj=stream)) if packed else stream, syntax)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidDocument(f"{path} cannot be read: {error}") from error


def _syntax(path: Path, format: str | None) -> Syntax:
    suffixes = [each for each in path.suffixes if each != ".gz"]
    if not format and not suffixes:
        raise InvalidInput(f"the syntax of {path} is not known", hint="say --format nquads, trig or jsonld")
    return _named(format or suffixes[-1], [each for each in SYNTAXES if each.quads])


def _named(format: str, offered: Sequence[Syntax]) -> Syntax:
    """Return the one of ``offered`` that an option, or a suffix, names."""
    try:
        found = syntax_named(format)
    except UnsupportedSyntax:
        found = None
    if found is None or found not in offered:
        raise InvalidInput(
            f"{format!r} is not a format here", hint=f"--format {', '.join(each.name for each in offered)}"
        )
    return found
