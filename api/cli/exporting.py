"""``drumlin dump`` and ``drumlin import``: the graph of a service as one document, and such a document back into a store."""

from __future__ import annotations

import gzip
import io
import logging
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import BinaryIO, cast

from drumlin.api.bootstrap import open_store
from drumlin.api.cli.logs import configure_logging
from drumlin.api.cli.options import connect
from drumlin.api.cli.output import STRUCTURED, Output, emit_value, progress, rebuilding
from drumlin.exporters.pipeline.sink import Sink, batched, write
from drumlin.exporters.remote import RemoteSink
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import InvalidDocument, InvalidInput, UnsupportedSyntax
from drumlin.kg.graphs.dump import SYNTAXES
from drumlin.kg.graphs.ingest import Statements, accept
from drumlin.kg.graphs.loader import graphs
from drumlin.kg.graphs.owners import check_owner
from drumlin.kg.model.iris import Iris
from drumlin.kg.parsers import Parsers
from drumlin.kg.rdf.syntax import JSONLD, NQUADS, Lines, Syntax, syntax_named
from drumlin.kg.store.protocol import GraphWrite
from drumlin.kg.workers.pool import WorkerPool

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

    Graphs that are there and not in the file stay; one that breaks a rule, or belongs to somebody else, is left and listed. Raises what
    reading and writing raise.
    """
    check_owner(owner)
    configure_logging(logging.ERROR)  # stdout is for the result
    iris = Iris(settings.base)
    left: list[dict[str, str]] = []
    writes = _accepted(_graphs(path, _syntax(path, format), iris.context), iris, owner, left)
    if store is not None:
        with rebuilding() as shown:
            place = open_store(settings, store, shown)
        with closing(place) as opened:
            return _written(opened, writes, output, left)
    with connect(url) as client:
        return _written(RemoteSink(client, settings.base), writes, output, left)


def _accepted(
    found: Iterator[tuple[str, Lines]], iris: Iris, owner: str, left: list[dict[str, str]]
) -> Iterator[GraphWrite]:
    """Yield the writes of graphs: an entity's is held to the rules, any other is taken as it comes."""
    for graph, lines in found:
        if not graph.startswith(iris.root):
            yield GraphWrite.of(graph, lines, owner)
            continue
        try:
            yield GraphWrite(graph, accept(Statements(lines), graph, iris), owner)
        except InvalidInput as error:
            _leave(left, f"{graph}: {error}", {"graph": graph, "reason": str(error)})


def _leave(left: list[dict[str, str]], why: str, listed: dict[str, str]) -> None:
    progress.print(f"left as it is: {why}", style="red", highlight=False, markup=False)
    left.append(listed)


def _written(sink: Sink, writes: Iterator[GraphWrite], output: Output, left: list[dict[str, str]]) -> int:
    changed = unchanged = 0
    for batch in batched(writes):
        written, refused = write(sink, batch)
        same = sum(each.outcome == "unchanged" for each in written)
        changed, unchanged = changed + len(written) - same, unchanged + same
        for error in refused:
            _leave(left, str(error), {"graph": error.detail["graph"], "owner": error.detail["owner"]})
    if output in STRUCTURED:
        emit_value({"written": changed, "unchanged": unchanged, "left": left}, output)
    progress.print(f"{changed} graphs written, {unchanged} unchanged", highlight=False)
    return PARTLY if left else 0


def _graphs(path: Path, syntax: Syntax, served: str) -> Iterator[tuple[str, Lines]]:
    """Read a file, or stdin, gzipped or not, as it comes."""
    try:
        with ExitStack() as opened:
            stdin = cast("io.BufferedReader", sys.stdin.buffer)
            stream = stdin if str(path) == "-" else opened.enter_context(path.open("rb"))
            packed = stream.peek(2)[:2] == b"\x1f\x8b"
            workers = opened.enter_context(closing(WorkerPool()))
            source = cast("BinaryIO", gzip.GzipFile(fileobj=stream)) if packed else stream
            yield from graphs(source, syntax, served, Parsers(workers))
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
