"""Never two writers: a batch of an earlier term is refused whole, whenever it arrives."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from drumlin.exporters.pipeline.fencing import FencedSink, NotLeading
from drumlin.exporters.pipeline.sink import write as write_all
from drumlin.kg.errors import GraphOwned
from drumlin.kg.model.iris import Iris
from drumlin.kg.store.protocol import GraphWrite, Written
from tests.memory_sink import MemorySink
from tests.store_behaviours import A, B, write

IRIS = Iris("https://kg.example")
OWNER, HOSTING = "kubernetes:prod", "drumlin:prod"
TERM = IRIS.of_class("agent", OWNER)


class Right:
    """What a test says it is."""

    def __init__(self, holder: str, *, leads: bool = True) -> None:
        self.holder = holder
        self.leads = leads

    def resign(self) -> None:
        """Lead no more."""
        self.leads = False


def fenced(store: MemorySink, holder: str) -> FencedSink:
    """Return the sink of a process that leads."""
    return FencedSink(store, Right(holder), IRIS, (OWNER, HOSTING))


def of(graph: str, value: int, owner: str = OWNER) -> GraphWrite:
    """Return a write of an exporter."""
    return write(graph, value, owner=owner)


def test_a_term_is_a_graph_that_says_who_writes() -> None:
    """Each election counts the term of the source up and names the process; of batches of another owner it has one too."""
    store = MemorySink()
    for holder in ("one", "two"):
        fenced(store, holder).take_over()

    said = "\n".join(sorted(store.graphs[TERM]))
    assert '"two"' in said
    assert '"2"^^' in said
    assert store.owners[IRIS.of_class("agent", HOSTING)] == HOSTING


def test_what_is_written_is_as_without_a_fence() -> None:
    """The answers are those of the writes that were given; a graph that another owner has is refused alone."""
    store = MemorySink()
    store.apply([of(B, 0, "user")])
    sink = fenced(store, "one")
    sink.take_over()
    written, refused = write_all(sink, [of(A, 1), of(B, 1)])

    assert [(each.graph, each.outcome) for each in written] == [(A, "created")]
    assert [type(each) for each in refused] == [GraphOwned]


def test_a_batch_of_an_earlier_term_is_refused_whole() -> None:
    """A process that still takes itself for the leader writes nothing once another has begun, and knows it from then on."""
    store = MemorySink()
    one, two = fenced(store, "one"), fenced(store, "two")
    one.take_over()
    write_all(one, [of(A, 1)])
    two.take_over()
    before = dict(store.graphs)
    for owner in (OWNER, HOSTING):
        with pytest.raises(NotLeading, match="taken over"):
            write_all(fence_of(one), [of(A, 2, owner), of(B, 2, owner)])
    assert store.graphs == before
    with pytest.raises(NotLeading):
        one.apply([of(A, 3)])


def fence_of(sink: FencedSink) -> FencedSink:
    """Return the sink as if it had not noticed yet that it leads no more."""
    sink._right.leads = True  # type: ignore[misc]
    return sink


def test_of_two_that_begin_at_once_one_begins() -> None:
    """Who saw the term before another one began cannot begin any more."""
    store = MemorySink()
    one, two = fenced(store, "one"), fenced(store, "two")

    class Late(MemorySink):
        """A store on which another is faster."""

        def apply(self, writes: Sequence[GraphWrite]) -> list[Written]:
            two.take_over()
            return store.apply(writes)

    late = Late()
    late.graphs, late.owners = store.graphs, store.owners
    one._sink = late
    with pytest.raises(NotLeading):
        one.take_over()
    assert any('"two"' in line for line in store.graphs[TERM])


def test_nothing_is_asked_of_the_store_without_the_right() -> None:
    """A process whose right has run out does not even send the batch."""
    store = MemorySink()
    sink = FencedSink(store, Right("one", leads=False), IRIS, (OWNER,))
    with pytest.raises(NotLeading):
        sink.take_over()
    assert store.applies == 0
