"""Proof that a change log is whole, before anything is written: what a start may rely on.

The file is opened for reading only, so that a log that is refused stays as it was found, and may be put right. Read are all pages, what is
recorded of each graph and its text: 0.5 s for 30,000 graphs of 33 statements. All changes, of which there may be millions, are read before
something is made from the log.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from drumlin.kg.errors import RESTORE, StoreDamaged
from drumlin.kg.rdf.syntax import digest_of_bytes
from drumlin.kg.store.embedded.change_log import VERSION
from drumlin.kg.store.embedded.change_log_reader import check_of
from drumlin.kg.store.embedded.wal import unavailable
from drumlin.kg.store.graph_text import unpacked

# The last row of each graph must say what its entry says; a graph without an entry was removed.
DISAGREEING = """
WITH latest AS (SELECT graph, after, max(generation) AS generation FROM log GROUP BY graph)
SELECT graph FROM graphs LEFT JOIN latest USING (graph)
WHERE latest.after IS NOT graphs.digest OR latest.generation IS NOT graphs.generation
UNION SELECT graph FROM latest WHERE after IS NOT NULL AND graph NOT IN (SELECT graph FROM graphs) ORDER BY graph
"""
"""The graphs whose last change in the log is not what is recorded about them."""
COUNTED = """
SELECT pruned.generation, count(DISTINCT log.generation), coalesce(max(log.generation), 0)
FROM pruned LEFT JOIN log ON log.generation > pruned.generation
"""
"""The last generation that was given up, how many there are after it, and the last one."""
_UNRECORDED = """
SELECT graph FROM graphs LEFT JOIN log USING (generation, graph)
WHERE log.after IS NOT graphs.digest OR log.owner IS NOT graphs.owner OR log.at IS NOT graphs.changed LIMIT 1
"""
_TEXTS = "SELECT graph, digest, packed FROM graphs LEFT JOIN texts USING (graph, digest)"


class LogInspection(NamedTuple):
    """What a change log says of the store.

    ``whole`` is False of a log of an earlier version, which has no ``id`` and is proven once it was taken over. ``statements`` are counted
    over the texts, None when some graph has no text: then it is in the engine only. ``names`` is the sum of the hashes of graphs' names.
    ``base`` is that of all names, None when it is not recorded.
    """

    id: str | None
    generation: int
    whole: bool = False
    graphs: int = 0
    statements: int | None = None
    names: int = 0
    base: str | None = None


def prove(path: Path) -> LogInspection:
    """Read a change log whole; raises ``StoreDamaged`` when it contradicts itself, ``StoreUnavailable`` when it cannot be read.

    Of a log of another version only pages and generations are looked at.
    """
    with _reading(path) as log:
        return _proven(path, log)


def _proven(path: Path, log: sqlite3.Connection) -> LogInspection:
    (verdict,) = log.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise _damaged(path, " ".join(verdict.split()))
    tables = {name for (name,) in log.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    id, base = (log.execute("SELECT id, base FROM store").fetchone() if "store" in tables else None) or (None, None)
    (version,) = log.execute("PRAGMA user_version").fetchone()
    if id is None or version != VERSION:
        last = log.execute("SELECT coalesce(max(generation), 0) FROM log").fetchone() if "log" in tables else (0,)
        return LogInspection(id, last[0])
    pruned, told, last = log.execute(COUNTED).fetchone()
    if missing := max(last, pruned) - pruned - told:
        raise _damaged(path, f"{missing:,} of the generations {pruned + 1:,} to {last:,} are missing")
    if odd := log.execute(_UNRECORDED).fetchone():
        raise _contradicting(path, odd[0])
    proven = _counted(path, log, LogInspection(id, max(last, pruned), whole=True, base=base))
    if proven.statements is None:  # an entry that is older than its graph has no text either
        _prove_history(path, log)
    return proven


def prove_history(path: Path) -> None:
    """Compare every change in a log with what is recorded, and with its check: 3 s for a million changes. Raises as ``prove`` does."""
    with _reading(path) as log:
        _prove_history(path, log)


def _prove_history(path: Path, log: sqlite3.Connection) -> None:
    if damaged := next(unchecked(log), None):
        raise _damaged(path, f"a change of {damaged} is not what was written")
    if odd := log.execute(DISAGREEING).fetchone():
        raise _contradicting(path, odd[0])


def has_names(path: Path, base: str) -> bool:
    """Return whether some graph in a log has a name below a base. Raises as ``prove`` does."""
    root = f"{base}/id/"
    with _reading(path) as log:
        first = log.execute("SELECT graph FROM graphs WHERE graph >= ? ORDER BY graph LIMIT 1", (root,)).fetchone()
    return first is not None and str(first[0]).startswith(root)


def unchecked(log: sqlite3.Connection) -> Iterator[str]:
    """Yield the graph of each change in a log that is not what was written: it does not have its check."""
    for *row, crc in log.execute(
        "SELECT generation, graph, owner, before, after, at, crc FROM log WHERE crc IS NOT NULL"
    ):
        if check_of(*row) != crc:
            yield row[1]


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as log:
            yield log
    except sqlite3.Error as error:
        raise unavailable(f"the change log {path} cannot be read", error) from error


def _counted(path: Path, log: sqlite3.Connection, proven: LogInspection) -> LogInspection:
    """Hold each text against the digest that is recorded, and count."""
    graphs = statements = names = textless = 0
    for graph, digest, packed in log.execute(_TEXTS):
        graphs += 1
        names += hash(graph)
        if packed is None:
            textless += 1
            continue
        text = unpacked(packed)
        if digest_of_bytes(text) != digest:
            raise _damaged(path, f"the text of {graph} is not what is recorded about it")
        statements += text.count(b"\n") + bool(text)
    return proven._replace(graphs=graphs, statements=None if textless else statements, names=names)


def _contradicting(path: Path, graph: str) -> StoreDamaged:
    return _damaged(path, f"the last change of {graph} is not what is recorded about it")


def _damaged(path: Path, what: str) -> StoreDamaged:
    return StoreDamaged(f"{path} is damaged, or its -wal is not its own: {what}", hint=RESTORE)
