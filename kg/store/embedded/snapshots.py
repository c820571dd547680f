"""The whole store as it was at one generation, while writing goes on: what exports, backups and checks read.

It is a checkpoint of the quads (hard links) and a read transaction of the change log, begun at the same moment under the writer's lock.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyoxigraph as ox

from drumlin.kg.rdf.syntax import Lines, lines_in
from drumlin.kg.store.embedded.change_log_reader import SELECT_TEXT, past
from drumlin.kg.store.embedded.engine import lines_of, translated
from drumlin.kg.store.embedded.inspection import COUNTED, DISAGREEING, unchecked
from drumlin.kg.store.embedded.wal import unavailable
from drumlin.kg.store.graph_text import unpack
from drumlin.kg.store.protocol import GraphEntry, Narrowed

_ENTRIES = "SELECT graph, digest, owner, generation, changed FROM graphs ORDER BY graph"
_GRAPHS = """
SELECT graph FROM graphs WHERE graph >= ?1 AND (?2 IS NULL OR graph < ?2) AND (?3 IS NULL OR owner = ?3) ORDER BY graph
"""
_FEW = 50_000  # graphs up to which those that state a fact are looked up, 10 MB; else each is read and looked at


class Snapshot:
    """Reads ``quads``, a checkpoint, and ``log``, a connection in a read transaction, which it closes."""

    def __init__(self, generation: int, quads: Path, log: sqlite3.Connection) -> None:
        self.generation = generation
        self._log = log
        with translated("read"):
            self._quads = ox.Store.read_only(str(quads))

    def entries(self) -> Iterator[GraphEntry]:
        """Yield what is recorded about all graphs, in the order of their IRIs."""
        for row in self._rows(_ENTRIES):
            yield GraphEntry(row[0], row[1], row[2], row[3], datetime.fromisoformat(row[4]))

    def graphs(self, narrowed: Narrowed) -> Iterator[str]:
        """Yield the graphs that are wanted, in the order of their IRIs, but for facts that very many graphs state."""
        stating = self._stating(narrowed)
        if stating is not None and narrowed.owner is None:
            yield from sorted(each for each in stating if each.startswith(narrowed.prefix))
            return
        for (graph,) in self._rows(_GRAPHS, (narrowed.prefix, past(narrowed.prefix), narrowed.owner)):
            if stating is None or graph in stating:
                yield graph

    def _stating(self, narrowed: Narrowed) -> set[str] | None:
        """Return the graphs that state one of each of the facts that at most ``_FEW`` do; None when there are no such facts."""
        found: set[str] | None = None
        for each in narrowed.facts:
            with translated("read"):
                stated = list(islice(chain.from_iterable(map(self._about, each)), _FEW + 1))
            if len(stated) <= _FEW:
                found = found.intersection(stated) if found is not None else set(stated)
        return found

    def _about(self, fact: tuple[str, str]) -> Iterator[str]:
        """Yield the graphs that state a fact about their own name; none for what is no RDF."""
        try:
            name, text = ox.NamedNode(fact[0]), fact[1][1:-1]
            value = ox.NamedNode(text) if fact[1].startswith("<") else ox.Literal(text)
        except ValueError:
            return
        for quad in self._quads.quads_for_pattern(None, name, value, None):
            graph = quad.graph_name
            if isinstance(graph, ox.NamedNode) and graph == quad.subject:
                yield graph.value

    def lines(self, graph: str) -> Lines:
        """Return what the engine holds of a graph, nothing when it has none."""
        with translated("read"):
            return lines_of(self._quads, graph)

    def text(self, graph: str) -> Lines | None:
        """Return what the text beside a graph's entry says that it holds; None when there is none of its digest."""
        (row,) = [*self._rows(SELECT_TEXT, (graph,))] or [(None,)]
        return None if row[0] is None else lines_in(unpack(row[0]))

    def names(self) -> Iterator[str]:
        """Yield the graphs that the engine has."""
        with translated("read"):
            for each in self._quads.named_graphs():
                yield each.value

    def quads(self) -> int:
        """Count the engine's quads."""
        with translated("read"):
            return len(self._quads)

    def disagreeing(self) -> list[str]:
        """Return the graphs whose last change in the log is not what is recorded about them, or of which a change is damaged."""
        found = [row[0] for row in self._rows(DISAGREEING)]
        try:
            return [*found, *unchecked(self._log)]
        except sqlite3.Error as error:
            raise unavailable("the change log cannot be read", error) from error

    @property
    def oldest(self) -> int:
        """The first generation that the log still holds."""
        ((pruned, _, _),) = self._rows(COUNTED)
        return int(pruned) + 1

    def missing_generations(self) -> int:
        """Count the generations from ``oldest`` on that the log does not hold."""
        ((pruned, told, last),) = self._rows(COUNTED)
        return max(int(last), self.generation) - int(pruned) - int(told)

    def copy_log(self, path: Path) -> None:
        """Write the change log as a database of its own."""
        try:
            with closing(sqlite3.connect(path)) as copy:
                self._log.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")
                copy.execute("UPDATE settled SET generation = ?", (self.generation,))
                copy.commit()
        except sqlite3.Error as error:
            raise unavailable("the change log cannot be copied", error) from error

    def close(self) -> None:
        """Let go of the log."""
        self._log.close()

    def _rows(self, query: str, values: Sequence[str | None] = ()) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._log.execute(query, values)
        except sqlite3.Error as error:
            raise unavailable("the change log cannot be read", error) from error
