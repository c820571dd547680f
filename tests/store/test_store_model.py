"""The embedded store against a dictionary: any sequence of writes leaves the same in both."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drumlin.kg.errors import GraphOwned, PreconditionFailed
from drumlin.kg.rdf.syntax import digest
from drumlin.kg.store.embedded import engine_applier, writer
from drumlin.kg.store.embedded.engine_applier import EngineApplier
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import ANY, GraphWrite, Lines
from tests.thoroughness import examples

NAMES = "abcdef"
LINES = st.none() | st.frozensets(
    st.integers(0, 5).map(lambda number: f'<https://kg.example/s> <https://kg.example/p> "{number}" .'), max_size=4
)
EXPECTED = st.sampled_from(["any", "any", "any", "absent", "current", "wrong"])
WRITE = st.tuples(st.sampled_from(NAMES), LINES, st.sampled_from(["user", "user", "dump"]), EXPECTED)
BATCH = st.lists(WRITE, max_size=6, unique_by=lambda write: write[0])


@dataclass
class Model:
    """What a store is, in a few lines."""

    graphs: dict[str, tuple[Lines, str, int]] = field(default_factory=dict)
    log: list[tuple[int, str, str, str | None, str | None]] = field(default_factory=list)
    generation: int = 0

    def digest(self, graph: str) -> str | None:
        """Return the digest of a graph, None when it is absent."""
        return digest(self.graphs[graph][0]) if graph in self.graphs else None

    def apply(self, writes: list[GraphWrite]) -> list[tuple[str, str, str | None]]:
        """Write as the store must, or raise as it must."""
        changes: list[tuple[GraphWrite, str | None, str | None]] = []
        results: list[tuple[str, str, str | None]] = []
        for write in writes:
            before = self.digest(write.graph)
            if write.graph in self.graphs and self.graphs[write.graph][1] != write.owner:
                raise GraphOwned(write.graph, self.graphs[write.graph][1], write.owner)
            if write.expected is not ANY and write.expected != before:
                raise PreconditionFailed("")
            after = None if write.lines is None else digest(write.lines)
            if before == after:
                results.append((write.graph, "unchanged", after))
                continue
            changes.append((write, before, after))
            outcome = "removed" if after is None else "created" if before is None else "replaced"
            results.append((write.graph, outcome, after))
        self.generation += bool(changes)
        for write, before, after in changes:
            self.log.append((self.generation, write.graph, write.owner, before, after))
            if write.lines is None:
                del self.graphs[write.graph]
            else:
                self.graphs[write.graph] = (write.lines, write.owner, self.generation)
        return results


def tried(target: Any, writes: list[GraphWrite]) -> Any:
    """Return what a write gives: results, or the class of its refusal."""
    try:
        found = target.apply(writes)
    except (GraphOwned, PreconditionFailed) as error:
        return type(error)
    return found if isinstance(target, Model) else [(each.graph, each.outcome, each.digest) for each in found]


@pytest.fixture(scope="module")
def store() -> Iterator[EmbeddedStore]:
    """One store for all examples: each has graphs of its own, and opening one takes longer than most examples."""
    with closing(EmbeddedStore()) as opened:
        yield opened


_NUMBERS = itertools.count()


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("bulk", [2, 500])
@given(batches=st.lists(BATCH, max_size=12))
@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_sequence_of_writes_leaves_what_the_model_says(
    store: EmbeddedStore, bulk: int, late: bool, batches: list[list[tuple[str, Lines | None, str, str]]]
) -> None:
    """Graphs, digests, owners, generations, outcomes, refusals and log are the model's, bulk-loaded or not, applied at once or late."""
    root = f"https://kg.example/id/prod/{next(_NUMBERS)}/node/"
    began = store.generation
    model = Model(generation=began)
    apply, go_on = EngineApplier._apply, threading.Event()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(writer, "BULK", bulk)
        if late:
            patched.setattr(EngineApplier, "_apply", lambda *given: (go_on.wait(60), apply(*given))[1])
        else:
            patched.setattr(engine_applier, "CHUNK", 2)
        patched.setattr(engine_applier, "LOADED", bulk)
        for batch in batches:
            writes = []
            for name, lines, owner, expected in batch:
                graph = root + name
                now = {"any": ANY, "absent": None, "current": model.digest(graph), "wrong": "0" * 32}[expected]
                writes.append(GraphWrite.of(graph, lines, owner, now))
            assert tried(store, writes) == tried(model, writes)
        go_on.set()
    told = {each.graph: (each.owner, each.generation) for each in store.entries(prefix=root)}
    assert told == {graph: (owner, number) for graph, (_, owner, number) in model.graphs.items()}
    exported = {graph: lines for graph, lines in store.export() if graph.startswith(root)}
    assert exported == {graph: lines for graph, (lines, _, _) in model.graphs.items()}
    log = [(each.generation, each.graph, each.owner, each.before, each.after) for each in store.log(began)]
    assert log == sorted(model.log, key=lambda each: each[:2])
    assert store.generation == model.generation
