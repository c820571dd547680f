"""The engine's files made anew from the change log, beside the old ones, which they then replace: a build that is killed begins again.

Graphs are bulk-loaded, but for those with blank nodes, whose labels a bulk load would change.
A million quads take about 15 s of processor time.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import structlog

from drumlin.kg.disk import sync
from drumlin.kg.errors import StoreFull, StoreUnavailable
from drumlin.kg.rdf.syntax import lines_in
from drumlin.kg.store.blank_nodes import holds_blanks
from drumlin.kg.store.content import GraphContent
from drumlin.kg.store.delta import Change, parted, update_text
from drumlin.kg.store.embedded import engine_applier
from drumlin.kg.store.embedded.change_log import ChangeLog
from drumlin.kg.store.embedded.change_log_reader import LogReader
from drumlin.kg.store.embedded.engine import EmbeddedEngine
from drumlin.kg.store.embedded.engine_folder import REBUILT, REPLACED
from drumlin.kg.store.embedded.wal import unavailable
from drumlin.kg.store.graph_text import statements_of, unpack
from drumlin.kg.store.protocol import GraphEntry

_PAGE = 1000  # graphs read from the log at once
_MOST = 250_000  # statements in one bulk load
_EVERY = 1.0  # seconds between two lines of the service's log

logger = structlog.get_logger(__name__)

Progress = Callable[[int, int], object]
"""Called with how many graphs have been built and how many there will be; the last call has equal numbers."""


def logged() -> Progress:
    """Return a progress that is written to the service's log, about once a second."""
    next_at = time.monotonic() + _EVERY

    def tell(done: int, total: int) -> None:
        nonlocal next_at
        if done == total or time.monotonic() >= next_at:
            next_at = time.monotonic() + _EVERY
            logger.info("engine_rebuilding", graphs=done, total=total, percent=100 * done // max(1, total))

    return tell


def rebuild(folder: Path, changes: ChangeLog, graphs: int, progress: Progress) -> None:
    """Make ``folder`` an engine that holds the ``graphs`` of the log, durably; each of them must have its text.

    Raises ``StoreUnavailable`` when the disk does, and leaves the folder as it was then.
    """
    built = folder.with_suffix(f".{REBUILT}")
    try:
        generation = build(built, changes, graphs, progress)
        _replace(folder, built)
    except StoreFull as error:
        raise StoreFull(
            f"{folder} cannot be built anew: {error}",
            hint=f"make room on the disk, or remove {folder}, of which nothing is needed, and start again",
        ) from error
    finally:
        shutil.rmtree(built, ignore_errors=True)
    changes.settle(generation)


def build(folder: Path, log: LogReader, graphs: int, progress: Progress) -> int:
    """Make ``folder`` an engine that holds the ``graphs`` of the log, durably, and return the generation that it holds.

    What is written meanwhile it holds in part. Raises ``StoreUnavailable`` when the disk does, or a graph has no text.
    """
    shutil.rmtree(folder, ignore_errors=True)
    generation = log.last()
    with closing(EmbeddedEngine(folder, log.store_id)) as engine:
        _fill(engine, log, graphs, progress)
        engine.hold(generation)
    return generation


def _fill(engine: EmbeddedEngine, log: LogReader, total: int, progress: Progress) -> None:
    done = 0
    progress(done, total)
    for part in _parts(log):
        new, rest = parted(part)
        engine_applier.write(engine, new, update_text(rest))
        if engine.wal_bytes >= engine_applier.FLUSH_BYTES:
            engine.flush()
        done += len(part)
        progress(done, total)
    engine.flush()
    engine.optimize()


def _parts(log: LogReader) -> Iterator[list[Change]]:
    """Yield all graphs as new ones, as many together as may be loaded at once."""
    part: list[Change] = []
    statements = 0
    for entry, packed in packed_graphs(log):
        text = unpack(packed)
        blank = "_:" in text and holds_blanks(lines_in(text))
        new = GraphContent.of_packed(packed, entry.digest, statements_of(text))
        part.append(Change(entry.graph, entry.owner, None, entry.digest, frozenset(), new, blank))
        statements += new.statements
        if len(part) >= engine_applier.CHUNK or statements >= _MOST:
            yield part
            part, statements = [], 0
    if part:
        yield part


def packed_graphs(log: LogReader) -> Iterator[tuple[GraphEntry, bytes]]:
    """Yield all graphs with their packed texts, each page as the log is then; raises ``StoreUnavailable`` for one without a text."""
    after = ""
    while page := log.packed(after, _PAGE):
        for entry, packed in page:
            if packed is None:
                raise StoreUnavailable(f"the change log, of an earlier version, does not hold {entry.graph}")
            yield entry, packed
        after = page[-1][0].graph


def _replace(folder: Path, built: Path) -> None:
    """Put what was built in the place of what was there, durably."""
    replaced = folder.with_suffix(f".{REPLACED}")
    try:
        sync(built)
        if folder.is_dir() and not folder.is_symlink():
            folder.rename(replaced)
        else:
            folder.unlink(missing_ok=True)
        built.rename(folder)
        sync(folder.parent)
    except OSError as error:
        raise unavailable(f"{folder} cannot be replaced", error) from error
    shutil.rmtree(replaced, ignore_errors=True)
