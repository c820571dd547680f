"""The search index: what entities are found and counted by, derived from the change log. SQLite with FTS5, beside the store.

SQLite because it is there, kept well and reads millions of rows a second; its full-text index answers "all of these words" by merging
sorted lists. A filter is a word too (a private character and a hash), so text and filters are one such merge. Nothing here is the truth:
``position`` says up to which generation the log has been taken in, catching up is all there is to writing, and an index that
does not belong to the store (another history, another format, damaged) is made anew. A log that does not reach back to ``position`` any
more is not needed for that: what is there is listed and read.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import structlog

from kg.errors import EventsGone, StoreUnavailable
from kg.iris import Iris
from kg.jsonld import NAMESPACE
from kg.rdf import Lines, Term, terms
from kg.store.protocol import GraphEntry, LogEntry, Store
from kg.words import words
from ontology.vocabulary import WORKLOAD_KINDS

FIELDS = ("type", "domain", "cluster", "namespace", "node", "phase", "quantity", "datasource", "tag", "owner")
"""What entities are filtered and counted by."""
CHUNK = 500
"""Changes taken in with one transaction."""

_FORMAT = 1
_TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
_TITLE = "<http://purl.org/dc/terms/title>"
_ENDED = "<http://www.w3.org/ns/prov#endedAtTime>"
_ACCESS = "<http://www.w3.org/ns/dcat#accessService>"
_OWN = {f"<{NAMESPACE}{name}>": name for name in ("name", "namespace", "phase", "domain", "cluster", "label", "tag", "formerType",
    "application", "version")} | {_TYPE: "type", _TITLE: "title"}  # fmt: skip
_PARTS = {f"<{NAMESPACE}image>": "image", f"<{NAMESPACE}quantity>": "quantity", _ACCESS: "datasource"}
_SCHEDULED = f"<{NAMESPACE}scheduledOn>"
_SPOKEN = ("name", "title", "application", "version", "label", "tag", "image")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entity (
  row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL, key TEXT NOT NULL, namespace TEXT, type TEXT NOT NULL,
  phase TEXT, owner TEXT NOT NULL, tombstone INTEGER NOT NULL, removed INTEGER NOT NULL, digest TEXT NOT NULL,
  generation INTEGER NOT NULL, changed TEXT NOT NULL, facets TEXT NOT NULL, words TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS by_key ON entity (key, id);
CREATE INDEX IF NOT EXISTS by_name ON entity (name, id);
CREATE INDEX IF NOT EXISTS by_changed ON entity (changed, id);
CREATE VIRTUAL TABLE IF NOT EXISTS found USING fts5(
  words, content='entity', content_rowid='row', tokenize='unicode61 remove_diacritics 0', detail=none, columnsize=0, prefix='1 2 3'
);
CREATE TABLE IF NOT EXISTS state (position INTEGER NOT NULL, mark TEXT NOT NULL);
INSERT INTO state SELECT 0, '' WHERE NOT EXISTS (SELECT 1 FROM state);
"""
_COLUMNS = (
    "id, name, key, namespace, type, phase, owner, tombstone, removed, digest, generation, changed, facets, words"
)
_INSERT = f"INSERT INTO entity ({_COLUMNS}) VALUES ({', '.join('?' * 14)})"  # noqa: S608 - constants
_UPDATE = f"UPDATE entity SET {', '.join(f'{name} = ?' for name in _COLUMNS.split(', '))} WHERE row = ?"  # noqa: S608 - constants

Facets = tuple[tuple[str, ...], ...]
"""The values of one entity, in the order of ``FIELDS``."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Facts:
    """What the index keeps of one graph; ``facets`` in the order of ``FIELDS``."""

    name: str
    type: str
    namespace: str | None
    phase: str | None
    tombstone: bool
    facets: Facets
    words: str


class Known(NamedTuple):
    """What the feed tells of an entity: its values, and the digest of its tombstone when it is one."""

    facets: Facets
    tombstone: str | None


def token(field: str, value: str) -> str:
    """Return the word that stands for a value of a filter; no text gives such a word."""
    return f"\ue000{hashlib.blake2b(f'{field} {value}'.encode(), digest_size=6).hexdigest()}"


LIVE = token("live", "")


def facts_of(lines: Lines, graph: str, id: str, owner: str) -> Facts:
    """Read out of a graph what it is found and counted by."""
    own, told, nodes = _told(lines, f"<{graph}>")
    types = sorted(_local(each) for each in own.get("type", ()))
    tombstone = "Tombstone" in types
    if tombstone:
        types = sorted(_local(each) for each in own.get("formerType", ()))
    values: dict[str, set[str]] = {
        "type": set(types),
        "node": {_last(each) for each in nodes},
        "owner": {owner},
        "tag": {each.value for each in own.get("tag", ())},
        "namespace": {each.value for each in own.get("namespace", ())},
        "phase": {_local(each) for each in own.get("phase", ())},
        **{name: {_last(each) for each in own.get(name, ())} for name in ("domain", "cluster")},
        "quantity": {_local(each) for each in told.get("quantity", ())},
        "datasource": {_last(each) for each in told.get("datasource", ())},
    }
    facets = tuple(tuple(sorted(values[field])) for field in FIELDS)
    spoken = [each.value for name in _SPOKEN for each in (*own.get(name, ()), *told.get(name, ()))]
    found = {word for text in (unquote(id), *spoken) for word in words(text)}
    found |= {token(field, value) for field, held in zip(FIELDS, facets, strict=True) for value in held}
    found |= {token("type", wider) for kind in types if (wider := _wider(kind))}
    if not tombstone:
        found.add(LIVE)
    first = {name: min((each.value for each in own.get(name, ())), default=None) for name in ("name", "namespace")}
    phase = min(values["phase"], default=None)
    text = f" {' '.join(sorted(found))} "
    return Facts(first["name"] or "", types[0] if types else "", first["namespace"], phase, tombstone, facets, text)


def _told(lines: Lines, entity: str) -> tuple[dict[str, list[Term]], dict[str, list[Term]], list[Term]]:
    """Sort the statements that matter: about the entity itself, about its parts, and the nodes that its open runs are on."""
    own: dict[str, list[Term]] = {}
    told: dict[str, list[Term]] = {}
    scheduled: list[tuple[str, str]] = []
    ended: set[str] = set()
    for line in lines:
        subject, predicate, _ = line.split(" ", 2)
        if predicate == _ENDED:
            ended.add(subject)
        elif predicate == _SCHEDULED:
            scheduled.append((subject, line))
        elif subject == entity and (name := _OWN.get(predicate)):
            own.setdefault(name, []).append(terms(line)[2])
        elif name := _PARTS.get(predicate):
            told.setdefault(name, []).append(terms(line)[2])
    return own, told, [terms(line)[2] for subject, line in scheduled if subject not in ended]


def _wider(kind: str) -> str | None:
    if kind in WORKLOAD_KINDS:
        return "Workload"
    return "Domain" if kind == "GlaciationNode" else None


def _local(value: Term) -> str:
    return value.value.rpartition("#")[2]


def _last(value: Term) -> str:
    return value.value.rpartition("/")[2]


class Index:
    """The tables of one store's index, and in memory what is counted. ``catch_up`` brings it to the store's generation."""

    def __init__(self, store: Store, iris: Iris, path: Path | None) -> None:
        """Open the index in ``path``, made when absent; None means a temporary one that is removed on ``close``."""
        self._store = store
        self._iris = iris
        self._temporary = Path(tempfile.mkdtemp(prefix="drumlin-")) if path is None else None
        self._path = path or Path(self._temporary or "") / "search.sqlite"
        self._writing = threading.Lock()
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self.facets: dict[int, Facets] = {}
        self.counts: list[Counter[str]] = []
        self.live = 0
        self.position = 0
        try:
            self._open()
        except sqlite3.DatabaseError as error:
            log.warning("search_index_discarded", reason=str(error))
            self._discard()
            self._open()

    def _open(self) -> None:
        self._writer = self._connect()
        (version,) = self._writer.execute("PRAGMA user_version").fetchone()
        if version not in (0, _FORMAT):
            raise sqlite3.DatabaseError(f"format {version}")
        self._writer.executescript(_SCHEMA)
        self._writer.execute(f"PRAGMA user_version = {_FORMAT}")
        position, mark = self._writer.execute("SELECT position, mark FROM state").fetchone()
        if position > self._store.generation or mark != self._mark(position):
            raise sqlite3.DatabaseError("it is not of this store")
        self.position = position
        self._count_anew()

    def _count_anew(self) -> None:
        self.facets, self.counts, self.live = {}, [Counter() for _ in FIELDS], 0
        for row, facets, words_ in self._writer.execute("SELECT row, facets, words FROM entity WHERE NOT removed"):
            self._count(row, _unpacked(facets), live=LIVE in words_)

    def _discard(self) -> None:
        for each in self._connections:
            each.close()
        self._connections.clear()
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def _mark(self, position: int) -> str:
        """Return what tells this history from another one with as many generations."""
        if position < self._store.oldest:
            return ""
        entries = self._store.log(position - 1, 1)
        return _mark_of(entries[0]) if entries else ""

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=30)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        self._connections.append(connection)
        return connection

    @property
    def reader(self) -> sqlite3.Connection:
        """A connection of this thread's own, for reading."""
        found: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if found is None:
            found = self._local.connection = self._connect()
        return found

    # -- catching up --------------------------------------------------------------------------------------------------
    def catch_up(self, changes: int | None = None) -> int:
        """Take in what the log has beyond ``position``, at most about ``changes``; returns the new position.

        Raises ``StoreUnavailable`` when the disk does.
        """
        taken = 0
        while self.position < self._store.generation and (changes is None or taken < changes):
            with self._writing:
                step = self._step()
            if not step:
                break
            taken += step
        return self.position

    def _step(self) -> int:
        try:
            entries = self._store.log(self.position, CHUNK)
        except EventsGone:
            return self._list_anew()
        if entries:
            position = entries[-1].generation
            self._take_in(entries, position, next(_mark_of(each) for each in entries if each.generation == position))
        return len(entries)

    def _list_anew(self) -> int:
        """Take in what the store holds instead of what the log told; returns how many graphs. What is gone is forgotten."""
        position = self._store.generation
        mark = self._mark(position)  # of the log as it is now: what changes meanwhile is taken in after it
        with self._transaction():
            self._writer.execute("DELETE FROM entity")
            self._writer.execute("INSERT INTO found (found) VALUES ('delete-all')")
            self._writer.execute("UPDATE state SET position = 0, mark = ''")
        self._count_anew()
        taken, after = 0, ""
        while page := self._store.entries(prefix=self._iris.root, after=after, limit=CHUNK):
            self._take_in([_as_change(each) for each in page], 0, "")
            taken, after = taken + len(page), page[-1].graph
        self._take_in([], position, mark)
        log.info("search_index_listed_anew", graphs=taken, generation=position)
        return taken + 1

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            yield
            self._writer.execute("COMMIT")
        except sqlite3.Error as error:
            raise StoreUnavailable(f"the search index cannot be written: {error}") from error
        finally:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")

    def _take_in(self, entries: Sequence[LogEntry], position: int, mark: str) -> None:
        last = {each.graph: each for each in entries if each.graph.startswith(self._iris.root)}
        with self._transaction():
            counted = [self._write(entry) for entry in last.values()]
            self._writer.execute("UPDATE state SET position = ?, mark = ?", (position, mark))
        for row, facets, live in counted:
            self._uncount(row)
            self._count(row, facets, live=live)
        self.position = position

    def _write(self, entry: LogEntry) -> tuple[int, Facets, bool]:
        """Write one graph as it is now; a graph that is gone keeps its row, so that the feed still knows what it was."""
        id = self._iris.short(entry.graph)
        known = self._writer.execute("SELECT row, words FROM entity WHERE id = ?", (id,)).fetchone()
        stored = self._store.read(entry.graph)
        if known:
            self._writer.execute("INSERT INTO found (found, rowid, words) VALUES ('delete', ?, ?)", known)
        if stored is None:
            return self._forget(known, entry)
        facts = facts_of(stored.lines, entry.graph, id, stored.entry.owner)
        values = _row(id, facts, stored.entry)
        if known:
            row = int(known[0])
            self._writer.execute(_UPDATE, (*values, row))
        else:
            row = int(self._writer.execute(_INSERT, values).lastrowid or 0)
        self._writer.execute("INSERT INTO found (rowid, words) VALUES (?, ?)", (row, facts.words))
        return row, facts.facets, not facts.tombstone

    def _forget(self, known: tuple[int, str] | None, entry: LogEntry) -> tuple[int, Facets, bool]:
        if known is None:
            return 0, (), False
        self._writer.execute(
            "UPDATE entity SET removed = 1, words = '', generation = ? WHERE row = ?", (entry.generation, known[0])
        )
        self._writer.execute("INSERT INTO found (rowid, words) VALUES (?, '')", (known[0],))
        return known[0], (), False

    def _count(self, row: int, facets: Facets, *, live: bool) -> None:
        if not facets:
            return
        self.facets[row] = facets if live else (*facets, ())  # one more than FIELDS marks what is not counted
        if live:
            self.live += 1
            for counter, values in zip(self.counts, facets, strict=True):
                counter.update(values)

    def _uncount(self, row: int) -> None:
        facets = self.facets.pop(row, None)
        if facets is not None and len(facets) == len(FIELDS):
            self.live -= 1
            for counter, values in zip(self.counts, facets, strict=True):
                counter.subtract(values)

    def iri(self, id: str) -> str:
        """Return the IRI of an entity of the index."""
        return self._iris.root + id

    # -- one entity ---------------------------------------------------------------------------------------------------
    def known(self, graphs: Sequence[str]) -> Mapping[str, Known]:
        """Return what is known of entities by IRI, those that are gone among them."""
        ids = [self._iris.short(each) for each in graphs if each.startswith(self._iris.root)]
        query = "SELECT id, facets, tombstone, digest FROM entity WHERE id IN (SELECT value FROM json_each(?))"
        with closing(self.reader.execute(query, (json.dumps(ids),))) as rows:
            return {
                self._iris.root + id: Known(_unpacked(facets), digest if gone else None)
                for id, facets, gone, digest in rows
            }

    def close(self) -> None:
        """Close every connection."""
        with self._writing:
            for each in self._connections:
                each.close()
            self._connections.clear()
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)


def _mark_of(entry: LogEntry) -> str:
    return f"{entry.at.isoformat()} {entry.graph} {entry.after}"


def _as_change(entry: GraphEntry) -> LogEntry:
    return LogEntry(entry.generation, entry.graph, entry.owner, None, entry.digest, entry.changed)


def _row(id: str, facts: Facts, entry: GraphEntry) -> tuple[object, ...]:
    return (id, facts.name, facts.name.casefold(), facts.namespace, facts.type, facts.phase, entry.owner, facts.tombstone, False,
            entry.digest, entry.generation, entry.changed.isoformat(), _packed(facts.facets), facts.words)  # fmt: skip


def _packed(facets: Facets) -> str:
    return "\x1e".join("\x1f".join(values) for values in facets)


def _unpacked(text: str) -> Facets:
    return tuple(map(_interned, text.split("\x1e")))


@lru_cache(maxsize=65_536)  # the same few values again and again: kept once
def _interned(part: str) -> tuple[str, ...]:
    return tuple(part.split("\x1f")) if part else ()
