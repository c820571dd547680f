"""The books that a remote store keeps inside the engine, in two graphs of its own: what there is, who owns it, what has changed.

``urn:drumlin:books`` has the generation, the base, the claim of the current writer, and of every graph its owner and entry (digest,
generation, time). ``urn:drumlin:log`` has the change log. They are written by the same update as the content, so API processes in front of
an engine keep nothing themselves.

**Claim.** SPARQL has no compare-and-swap, and Oxigraph's server loses concurrent updates that depend on what they read. So a writer
first puts its claim down and then looks: only a writer that sees no other claim goes on; one that sees another withdraws its own and
retries. Of two that come at once at most one goes on, since each looks after its own claim is there. The update that writes begins by
dropping the claim's *fence*, an empty graph, without SILENT: when somebody has taken the claim for abandoned, that fails and nothing is
written.

**Redo.** Where an engine does not run a sequence of operations as one transaction, the operations are first written down (*pending*); the
next writer after a crash runs them again. Each says what shall be, so that running it twice does no harm.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from drumlin.kg.store.protocol import GraphEntry, LogEntry
from drumlin.kg.store.remote.engine import BOOKS, LOG, RESERVED

_STORE = f"<{RESERVED}store>"
_CLAIM, _GENERATION, _BASE, _PENDING = (f"<{RESERVED}{name}>" for name in ("claim", "generation", "base", "pending"))
_OWNER, _ENTRY, _CHANGE, _OPERATION = (f"<{RESERVED}{name}>" for name in ("owner", "entry", "change", "operation"))
_STEP = RESERVED + "step:"
_GENERATIONS = LOG + ":"

Row = Sequence[str | None]
"""One solution: terms in N-Triples form, None where unbound."""


@dataclass(frozen=True, slots=True)
class State:
    """What a writer sees after its claim: all claims, whether a write was cut, the generation, the base, the entries asked for."""

    claims: frozenset[str] = frozenset()
    pending: bool = False
    generation: int = 0
    base: str | None = None
    entries: dict[str, GraphEntry] = field(default_factory=dict)


def state_query(graphs: Iterable[str]) -> str:
    """Return the query for ``State``: columns s, p, o."""
    subjects = " ".join([_STORE, *(f"<{graph}>" for graph in graphs)])
    return f"SELECT ?s ?p ?o {{ VALUES ?s {{ {subjects} }} GRAPH <{BOOKS}> {{ ?s ?p ?o }} }}"


def state(rows: Iterable[Row]) -> State:
    """Read the answer to ``state_query``."""
    claims: set[str] = set()
    base: str | None = None
    generation, pending = 0, False
    told: dict[str, _Facts] = {}
    for s, p, o in rows:
        if o is None:  # gone while the engine looked
            continue
        value = text_of(o)
        if s != _STORE:
            told.setdefault(str(s)[1:-1], _Facts()).add(p, value)
        elif p == _CLAIM:
            claims.add(value)
        elif p == _GENERATION:
            generation = max(generation, int(value))
        elif p == _BASE:
            base = value
        elif p == _PENDING:
            pending = True
    found = {graph: entry for graph, facts in told.items() if (entry := facts.entry(graph))}
    return State(frozenset(claims), pending, generation, base, found)


@dataclass(slots=True)
class _Facts:
    """What the books hold of one graph; of two entries, seen while one is replaced, the newer counts."""

    owner: str | None = None
    entries: list[str] = field(default_factory=list)

    def add(self, p: str | None, value: str) -> None:
        if p == _OWNER:
            self.owner = value
        elif p == _ENTRY:
            self.entries.append(value)

    def entry(self, graph: str) -> GraphEntry | None:
        if self.owner is None or not self.entries:
            return None
        return max((_entry(graph, self.owner, told) for told in self.entries), key=lambda each: each.generation)


def _entry(graph: str, owner: str, told: str) -> GraphEntry:
    digest, generation, changed = told.split(" ")
    return GraphEntry(graph, digest, owner, int(generation), datetime.fromisoformat(changed))


# -- the claim --------------------------------------------------------------------------------------------------------------


def claim(name: str) -> str:
    """Return the update that puts a claim down."""
    return f"CREATE GRAPH {_fence(name)} ;\n{_insert(_claim(name, 0))}"


def renew(name: str, beat: int) -> str:
    """Return the update that shows that the claimant lives."""
    return f"{_delete(_claim(name, beat))} ;\n{_insert(_claim(name, beat + 1))}"


def withdraw(said: str) -> str:
    """Return the update that takes a claim away, one's own or an abandoned one; ``said`` is what it says in the books."""
    name, _, beat = said.partition(" ")
    return f"DROP SILENT GRAPH {_fence(name)} ;\n{release(name, int(beat))}"


def fence(name: str) -> str:
    """Return the operation that fails when the claim is not there any more."""
    return f"DROP GRAPH {_fence(name)}"


def fence_again(name: str) -> str:
    """Return the operation that puts the fence back, for the next request of the same write."""
    return f"CREATE GRAPH {_fence(name)}"


def release(name: str, beat: int) -> str:
    """Return the operation that ends a claim whose fence is gone."""
    return _delete(_claim(name, beat))


def _fence(name: str) -> str:
    return f"<{RESERVED}fence:{name}>"


def _claim(name: str, beat: int) -> str:
    return f"{_STORE} {_CLAIM} {literal(f'{name} {beat}')} ."


# -- a write ----------------------------------------------------------------------------------------------------------------


def booked(old: dict[str, GraphEntry], changes: Sequence[LogEntry], limit: int | None) -> Iterator[str]:
    """Yield the operations that book one generation; in each at most ``limit`` statements."""
    generation = changes[0].generation
    gone = [f"{_STORE} {_GENERATION} {literal(str(generation - 1))} ."]
    come = [f"{_STORE} {_GENERATION} {literal(str(generation))} ."]
    for each in changes:
        before = old.get(each.graph)
        if before is not None:
            gone.append(
                f"<{each.graph}> {_ENTRY} {literal(_entry_text(before.digest, before.generation, before.changed))} ."
            )
        if each.after is not None:
            come.append(f"<{each.graph}> {_ENTRY} {literal(_entry_text(each.after, generation, each.at))} .")
        after = None if each.after is None else each.owner
        if before is not None and before.owner != after:
            gone.append(f"<{each.graph}> {_OWNER} {literal(before.owner)} .")
        if after is not None and (before is None or before.owner != after):
            come.append(f"<{each.graph}> {_OWNER} {literal(after)} .")
    told = [f"<{_GENERATIONS}{generation}> {_CHANGE} {literal(_change_text(each))} ." for each in changes]
    # In this order: where a reader can come between, it finds two entries rather than none, and takes the newer.
    yield from operations("INSERT", [(BOOKS, come), (LOG, told)], limit)
    yield from operations("DELETE", [(BOOKS, gone)], limit)


def operations(verb: str, blocks: Iterable[tuple[str, Sequence[str]]], limit: int | None) -> Iterator[str]:
    """Yield ``DELETE DATA`` or ``INSERT DATA`` operations for the statements of several graphs, at most ``limit`` in each."""
    open_: list[str] = []
    room = limit
    for graph, lines in blocks:
        start = 0
        while start < len(lines):
            end = len(lines) if room is None else min(len(lines), start + room)
            open_.append(_block(graph, lines[start:end]))
            if room is not None and (room := room - (end - start)) == 0:
                yield _data(verb, open_)
                open_, room = [], limit
            start = end
    if open_:
        yield _data(verb, open_)


def based(base: str) -> str:
    """Return the operation that notes the base that all names are below."""
    return _insert(f"{_STORE} {_BASE} {literal(base)} .")


def _block(graph: str, lines: Sequence[str]) -> str:
    return f"GRAPH <{graph}> {{\n" + "\n".join(lines) + "\n}\n"


def _data(verb: str, blocks: Sequence[str]) -> str:
    return f"{verb} DATA {{\n{''.join(blocks)}}}"


def _insert(line: str) -> str:
    return _data("INSERT", [_block(BOOKS, [line])])


def _delete(line: str) -> str:
    return _data("DELETE", [_block(BOOKS, [line])])


# -- redo -------------------------------------------------------------------------------------------------------------------

_PIECE = 100_000  # characters in one literal: Virtuoso's time grows with the square of a literal's length


def written_down(steps: Sequence[str]) -> Iterator[str]:
    """Yield the operations that write steps down; the last one makes them count."""
    for number, text in enumerate(steps):
        for piece, start in enumerate(range(0, len(text), _PIECE)):
            name = f"<{_STEP}{number:06d}:{piece:06d}>"
            yield _insert(f"{name} {_OPERATION} {literal(text[start : start + _PIECE])} .")
    yield _insert(f"{_STORE} {_PENDING} {literal(str(len(steps)))} .")


def struck_out(count: int) -> list[str]:
    """Return the operations that end a pending write of ``count`` steps, and take away what was written down of it."""
    return [_delete(f"{_STORE} {_PENDING} {literal(str(count))} ."), forgotten()]


def forgotten() -> str:
    """Return the operation that takes steps away, also such as never counted."""
    return f"DELETE WHERE {{ GRAPH <{BOOKS}> {{ ?step {_OPERATION} ?text }} }}"


STEPS = f"SELECT ?step ?text {{ GRAPH <{BOOKS}> {{ ?step {_OPERATION} ?text }} }} ORDER BY STR(?step)"


def steps(rows: Iterable[Row]) -> list[str]:
    """Read the answer to ``STEPS``: the operations, in order."""
    found: dict[str, list[str]] = {}
    for step, text in sorted((str(step), text_of(text)) for step, text in rows):
        found.setdefault(step.rpartition(":")[0], []).append(text)
    return ["".join(pieces) for pieces in found.values()]


# -- entries and log ----------------------------------------------------------------------------------------------------------


def entries_query(after: str, limit: int) -> str:
    """Return the query for a page of entries in the order of their IRIs: columns graph, owner, entry."""
    narrowed = f" FILTER(STR(?graph) > {literal(after)})" if after else ""
    return (
        f"SELECT ?graph ?owner ?entry {{ GRAPH <{BOOKS}> {{ ?graph {_OWNER} ?owner ; {_ENTRY} ?entry }}{narrowed} }} "
        f"ORDER BY STR(?graph) LIMIT {limit}"
    )


def entries(rows: Iterable[Row]) -> list[GraphEntry]:
    """Read the answer to ``entries_query``."""
    told: dict[str, _Facts] = {}
    for graph, owner, said in rows:
        if owner is not None and said is not None:
            facts = told.setdefault(str(graph)[1:-1], _Facts(text_of(owner)))
            facts.entries.append(text_of(said))
    return [entry for graph, facts in told.items() if (entry := facts.entry(graph))]


def graph_query(graph: str) -> str:
    """Return the query for one graph with its books: columns s, p, o, where s is unbound for the books."""
    return (
        f"SELECT ?s ?p ?o {{ {{ GRAPH <{BOOKS}> {{ <{graph}> ?p ?o }} }} UNION {{ GRAPH <{graph}> {{ ?s ?p ?o }} }} }}"
    )


def graph(iri: str, rows: Iterable[Row]) -> tuple[GraphEntry | None, frozenset[str]]:
    """Read the answer to ``graph_query``: the entry, if there is one, and the statements."""
    facts = _Facts()
    lines: set[str] = set()
    for s, p, o in rows:
        if o is None:  # gone while the engine looked
            continue
        if s is None:
            facts.add(p, text_of(o))
        else:
            lines.add(f"{s} {p} {o} .")
    return facts.entry(iri), frozenset(lines)


def contents_query(graphs: Iterable[str]) -> str:
    """Return the query for the statements of several graphs: columns graph, s, p, o."""
    names = " ".join(f"<{graph}>" for graph in graphs)
    return f"SELECT ?graph ?s ?p ?o {{ VALUES ?graph {{ {names} }} GRAPH ?graph {{ ?s ?p ?o }} }}"


def log_query(generations: Iterable[int]) -> str:
    """Return the query for the changes of some generations: columns generation, change."""
    names = " ".join(f"<{_GENERATIONS}{number}>" for number in generations)
    return f"SELECT ?generation ?change {{ VALUES ?generation {{ {names} }} GRAPH <{LOG}> {{ ?generation {_CHANGE} ?change }} }}"


def log(rows: Iterable[Row]) -> list[LogEntry]:
    """Read the answer to ``log_query``, in order."""
    found = []
    for name, told in rows:
        graph, owner, before, after, at = json.loads(text_of(told))
        number = int(str(name)[1:-1].removeprefix(_GENERATIONS))
        found.append(LogEntry(number, graph, owner, before, after, datetime.fromisoformat(at)))
    return sorted(found, key=lambda each: (each.generation, each.graph))


def _entry_text(digest: str, generation: int, changed: datetime) -> str:
    return f"{digest} {generation} {changed.isoformat()}"


def _change_text(change: LogEntry) -> str:
    told = [change.graph, change.owner, change.before, change.after, change.at.isoformat()]
    return msgspec.json.encode(told).decode()


# -- literals of our own ------------------------------------------------------------------------------------------------------

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_SPECIAL = re.compile(r'[\\"\n\r\t]')
_UNESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", '"': '"', "\\": "\\"}
_ESCAPED = re.compile(r'\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([nrtbf"\\]))')


def literal(text: str) -> str:
    """Write a plain literal."""
    return '"' + _SPECIAL.sub(lambda match: _ESCAPES[match[0]], text) + '"'


def text_of(term: str | None) -> str:
    """Read a plain literal."""
    if term is None or term[0] != '"':
        raise ValueError("the books hold something that is not theirs")
    return _ESCAPED.sub(
        lambda match: _UNESCAPES.get(match[3]) or chr(int(match[1] or match[2], 16)), term[1 : term.rindex('"')]
    )
