"""What can be proven of the graphs in a damaged change log, whatever else is lost.

Three rows describe a graph, on pages of their own: its entry, its last change, and its text. A text is whole when it has its digest, and it
is that of a graph when the entry or the last change names both. A text that is lost may be in the engine, which is believed when the graph
there has the digest that is recorded. Changes say more than that: one that follows the recorded state, digest by digest, is newer than it.
No earlier change is kept: some may be lost without a trace, and a log with gaps would mislead its followers.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from drumlin.kg.errors import StoreDamaged
from drumlin.kg.rdf.syntax import digest_of_bytes
from drumlin.kg.store.embedded.change_log_reader import check_of
from drumlin.kg.store.embedded.pages import PageRow, Value, rows
from drumlin.kg.store.graph_text import pack, unpacked
from drumlin.kg.store.protocol import GraphEntry

_DIGEST = re.compile(r"[0-9a-f]{32}")

OUTDATED = "this state is whole, and a later one is lost"
"""Said of a graph that is kept as it was before its last change."""
_UNRECORDED = "what is recorded about it is lost"

Text = Callable[[str, str], str | None]
"""Returns the text that another part of the store has of a graph, if that has the digest; else None."""


class _Change(NamedTuple):
    """A change of a graph as the log has it."""

    generation: int
    owner: str
    before: str | None
    after: str | None
    at: str


class _Entry(NamedTuple):
    """An entry of a graph as its page has it; ``current``: no newer page has replaced that."""

    digest: str
    owner: str
    generation: int
    changed: str
    current: bool


class KeptGraph(NamedTuple):
    """A graph that is proven: what is recorded about it, its packed text, and what is in doubt about it all the same."""

    entry: GraphEntry
    packed: bytes
    doubts: tuple[str, ...]


class LostGraph(msgspec.Struct, frozen=True):
    """A graph of which something is lost: ``why``, and the last generation that is known of it."""

    graph: str
    generation: int
    why: str


@dataclass
class _GraphRows:
    """The rows of one graph."""

    entries: list[_Entry] = field(default_factory=list)
    changes: set[_Change] = field(default_factory=set)
    elsewhere: list[_Entry] = field(default_factory=list)  # what other parts of the store record

    def owners(self) -> list[str]:
        """Return the owners that its rows name."""
        return [each.owner for told in (self.entries, self.changes, self.elsewhere) for each in told]

    def times(self, generation: int | None) -> list[str]:
        """Return when its rows say that a generation was written; those of all generations for None."""
        told = [
            *((each.generation, each.changed) for each in (*self.entries, *self.elsewhere)),
            *((each[0], each.at) for each in self.changes),
        ]
        of_it = [time for number, time in told if generation in (None, number)]
        return of_it or [time for _, time in told]


class Salvage:
    """The rows of the change log in a file, damaged or not. Raises ``OSError`` when it cannot be read at all."""

    def __init__(self, path: Path) -> None:
        self._graphs: defaultdict[str, _GraphRows] = defaultdict(_GraphRows)
        self._texts: dict[tuple[str, str], bytes] = {}
        self._current: defaultdict[str, set[str]] = defaultdict(set)  # digests of texts that no later one has replaced
        self.ids: Counter[str] = Counter()
        self.bases: Counter[str] = Counter()
        self._numbers: list[int] = []
        for row in rows(path):
            self._take(row)

    def _take(self, row: PageRow) -> None:
        match row.values:
            case (str(graph), str(digest), bytes(packed)) if _is_text(digest, packed):
                self._texts[graph, digest] = packed
                if row.current:
                    self._current[graph].add(digest)
            case (str(graph), str(digest), str(owner), int(generation), str(changed)) if _DIGEST.fullmatch(
                digest
            ) and _is_time(changed):
                self._graphs[graph].entries.append(_Entry(digest, owner, generation, changed, row.current))
            case (
                int(generation),
                str(graph),
                str(owner),
                (str() | None) as before,
                (str() | None) as after,
                str(at),
                *more,
            ) if _is_whole(row.values, at, *more[:1]):
                self._graphs[graph].changes.add(_Change(generation, owner, before, after, at))
            case (int(number),) if row.current:
                self._numbers.append(number)
            case (str(id), (str() | None) as base) if _DIGEST.fullmatch(id):
                self.ids[id] += row.current
                if base:
                    self.bases[base] += row.current

    def add(self, entities: Iterable[tuple[str, str, str, int, str]], base: str | None) -> None:
        """Take further records of the entities below a base: short id, owner, digest, generation and time."""
        for id, owner, digest, generation, changed in entities:
            if base and _DIGEST.fullmatch(digest) and _is_time(changed):
                entry = _Entry(digest, owner, generation, changed, current=False)
                self._graphs[f"{base}/id/{id}"].elsewhere.append(entry)

    def count_below(self, base: str) -> int:
        """Count the graphs that the log names below a base."""
        return sum(each.startswith(f"{base}/id/") for each in self._graphs)

    def missing(self, newest: int) -> list[tuple[int, int]]:
        """Return the generations up to ``newest`` that no row mentions, and that were not given up, as spans."""
        told = {each.generation for known in self._graphs.values() for each in known.changes}
        told.update(each.generation for known in self._graphs.values() for each in known.entries)
        # Two tables have one number each: the generation given up, and that which the engine holds, which is no lower.
        start = min(self._numbers) + 1 if len(self._numbers) == 2 else 1
        found: list[tuple[int, int]] = []
        for each in (*sorted(number for number in told if start <= number <= newest), newest + 1):
            if start < each:
                found.append((start, each - 1))
            start = each + 1
        return found

    def judged(self, elsewhere: Text, names: Iterable[str]) -> Iterator[KeptGraph | LostGraph]:
        """Yield each graph that the log names, or one of ``names``, unless it was removed: kept, or lost. In the order of their names."""
        owners, times = self._told()
        for graph in sorted({*self._graphs, *self._current, *names}):
            if graph not in self._graphs:
                yield LostGraph(graph, 0, _UNRECORDED)
                continue
            known = self._graphs[graph]
            digest, generation = _last(known, self._current.get(graph, frozenset()))
            packed = self._packed(graph, digest, elsewhere)
            for each in known.elsewhere:
                if each.generation > generation and (later := self._packed(graph, each.digest, elsewhere)):
                    digest, generation, packed = each.digest, each.generation, later
            if digest is None:
                if not known.entries and not known.changes:
                    yield LostGraph(graph, 0, _UNRECORDED)
                continue
            if packed is None:
                yield LostGraph(graph, generation, "its text is lost or damaged")
                continue
            owner = _most(known.owners(), owners)
            changed = _most(known.times(generation), times)
            doubts = [
                f"its rows tell more than one {name}"
                for name, each in (("owner", owner), ("time", changed))
                if each.is_disputed
            ]
            if any(each.generation > generation for each in known.elsewhere):
                doubts.append(OUTDATED)
            entry = GraphEntry(graph, digest, owner.value, generation, datetime.fromisoformat(changed.value))
            yield KeptGraph(entry, packed, tuple(doubts))

    def _packed(self, graph: str, digest: str | None, elsewhere: Text) -> bytes | None:
        """Return the packed text of a graph that has the digest, from the log or elsewhere."""
        if digest is None:
            return None
        packed = self._texts.get((graph, digest))
        if packed is None and (text := elsewhere(graph, digest)) is not None:
            packed = pack(text)
        return packed

    def _told(self) -> tuple[Counter[str], Counter[str]]:
        """Return how often each owner and each time occurs in the whole log."""
        owners: Counter[str] = Counter()
        times: Counter[str] = Counter()
        for known in self._graphs.values():
            owners.update(known.owners())
            times.update(known.times(None))
        return owners, times


def _last(known: _GraphRows, texts: AbstractSet[str]) -> tuple[str | None, int]:
    """Return the digest and the generation of a graph's last state, no digest when it was removed; ``texts`` are those that are there.

    It is the state of its entry, or what changes made of that since. Without an entry it is the last that any row has.
    """
    entries = [(each.digest in texts, each.generation, each.digest) for each in known.entries if each.current]
    changes = sorted(known.changes, key=lambda each: each.generation)
    if not entries and not known.entries and not changes:
        return None, 0
    if not entries:
        told = [
            *((each.generation, each.digest) for each in known.entries),
            *((each[0], each.after) for each in changes),
        ]
        generation, state = max(told, key=lambda each: (each[0], each[1] is not None and each[1] in texts))
        return state, generation
    _, generation, digest = max(entries)
    made = [each.generation for each in changes if each.after == digest]
    if made and generation not in made:  # one of the two numbers is damaged; the lower one promises less
        generation = min(generation, max(made))
    state = digest
    for each in changes:
        if each.generation > generation and each.before == state:
            generation, state = each.generation, each.after
    return state, generation


class _Told(NamedTuple):
    """A value that rows have, and whether as many have another one."""

    value: str
    is_disputed: bool


def _most(told: Iterable[str], everywhere: Counter[str]) -> _Told:
    """Return what most rows have; when as many have something else, the value that occurs more often in the whole log."""
    counted = Counter(told)
    most = max(counted.values())
    best = sorted((each for each, count in counted.items() if count == most), key=lambda each: -everywhere[each])
    return _Told(best[0], len(best) > 1)


def _is_text(digest: str, packed: bytes) -> bool:
    try:
        return digest_of_bytes(unpacked(packed)) == digest
    except StoreDamaged:
        return False


def _is_whole(values: tuple[Value, ...], at: str, *crc: Value) -> bool:
    """Return whether a change is what was written; one of before format 7 has no check, or NULL."""
    return len(crc) <= 1 and _is_time(at) and crc in ((), (None,), (check_of(*values[:6]),))  # type: ignore[arg-type]


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
