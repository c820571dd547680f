"""Search against a naive model: every question the same answer; pages that stay whole while others write; kills while the index is made."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drumlin.kg.errors import InvalidInput
from drumlin.kg.search import query
from drumlin.kg.search.index import Index
from drumlin.kg.search.query import Search, SearchQuery
from drumlin.kg.search.tokenizer import SearchTerm, sought, words
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite
from tests.store.test_search import IRIS, NOON, contents, ids, index_of, lines

ROOT = Path(__file__).parents[2]
SORTS = ("relevance", "id", "name", "-changed")


class Entity(NamedTuple):
    """What the model knows of an entity."""

    id: str
    type: str
    namespace: str
    name: str
    phase: str
    tags: tuple[str, ...]

    @property
    def lines(self) -> frozenset[str]:
        """Its graph."""
        return lines(self.id, self.type, name=self.name, phase=self.phase, tag=list(self.tags))

    def has(self, field: str, values: list[str]) -> bool:
        """Return whether one of ``values`` is one of its own."""
        own = {"type": (self.type,), "namespace": (self.namespace,), "phase": (self.phase,), "tag": self.tags}
        return bool(set(own[field]) & set(values))

    def holds(self, part: SearchTerm) -> bool:
        """Return whether a word is among its own, or begins one."""
        held = {word for text in (self.id, self.name, *self.tags) for word in words(text)}
        return any(each == part.word or (part.beginning and each.startswith(part.word)) for each in held)


NAMES = ["web", "web-1", "Web", "orders", "ordersx", "数据", "训练数据集", "data数据v2", "서울", "crème"]
ENTITIES = st.lists(
    st.builds(
        lambda number, kind, namespace, name, phase, tags: Entity(
            f"prod/{namespace}/{kind.lower()}/e{number}", kind, namespace, name, phase, tuple(sorted(set(tags)))
        ),
        st.integers(0, 30),
        st.sampled_from(["Pod", "Deployment", "Job"]),
        st.sampled_from(["a", "b", "zz"]),
        st.sampled_from(NAMES),
        st.sampled_from(["Running", "Failed", "Pending"]),
        st.lists(st.sampled_from(["gpu", "数据 集", "x y"]), max_size=2),
    ),
    max_size=25,
    unique_by=lambda each: each.id,
)
QUESTIONS = st.builds(
    SearchQuery,
    st.sampled_from(
        ["", "web", "WEB", "w", "or e1", "数据", "数", "集", "data 数", "서", "creme", "prod zz", "nothing"]
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.lists(st.sampled_from(["Pod", "Job", "Service"]), min_size=1, max_size=2),
            "namespace": st.lists(st.sampled_from(["a", "zz"]), min_size=1, max_size=2),
            "phase": st.just(["Failed"]),
            "tag": st.lists(st.sampled_from(["gpu", "数据 集"]), min_size=1, max_size=2),
        },
    ),
    sort=st.sampled_from(SORTS),
    limit=st.integers(1, 4),
    facets=st.just(["type", "namespace", "tag"]),
)


def expected(entities: list[Entity], question: SearchQuery) -> list[Entity]:
    """Return what matches, in order, as plainly as it can be said."""
    found = [
        each
        for each in entities
        if all(map(each.holds, sought(question.text)))
        and all(each.has(field, [*values]) for field, values in question.filters.items())
    ]
    text = question.text.casefold()
    keys: dict[str, Any] = {
        "relevance": lambda each: (bool(text) and each.name.casefold() != text, each.id),
        "id": lambda each: each.id,
        "name": lambda each: (each.name.casefold(), each.id),
    }
    if question.sort == "-changed":
        return sorted(found, key=lambda each: each.id, reverse=True)  # all of one moment
    return sorted(found, key=keys[question.sort])


def pages(found: Search, question: SearchQuery) -> list[str]:
    """Follow the cursor to the end, and return all that came."""
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        result = found.find(
            SearchQuery(question.text, question.filters, sort=question.sort, limit=question.limit, cursor=cursor)
        )
        seen += ids(result)
        cursor = result.next
    return seen


@settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(ENTITIES, st.lists(QUESTIONS, min_size=8, max_size=12))
def test_every_question_is_answered_as_the_model_does(entities: list[Entity], questions: list[SearchQuery]) -> None:
    """Text of any script, filters in combination, counts, order and pages, in each of the ways that the index goes, are the naive ones."""
    store = EmbeddedStore(clock=lambda: NOON)
    if entities:
        store.apply([GraphWrite.of(IRIS.expand(each.id), each.lines, "user") for each in entities])
    index = index_of(store)
    found = Search(index)
    for question in questions:
        wanted = expected(entities, question)
        result = found.find(question)
        assert (result.total, result.exact) == (len(wanted), True)
        assert result.facets["type"] == Counter(each.type for each in wanted)
        assert result.facets["namespace"] == Counter(each.namespace for each in wanted)
        assert result.facets["tag"] == Counter(tag for each in wanted for tag in each.tags)
        for exact, looks, most in ((2_000, 4_000, 30_000), (0, 4_000, 30_000), (0, 1, 30_000), (0, 1, 0)):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(query, "EXACT", exact)
                patch.setattr(query, "LOOKS", looks)
                patch.setattr(query, "LOOKS_EACH", 0)
                patch.setattr(query, "SORTED", most)
                assert pages(found, question) == [each.id for each in wanted]
    index.close()
    store.close()


@pytest.mark.parametrize("sort", SORTS)
def test_pages_stay_whole_while_others_write(sort: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In each order, while entities come, go and are renamed all around the cursor: what stays as it is comes once, nothing twice."""
    store = EmbeddedStore()
    stays = [f"prod/n/pod/stays{number:03}" for number in range(0, 80, 2)]
    store.apply([GraphWrite.of(IRIS.expand(each), lines(each, "Pod"), "user") for each in stays])
    index = index_of(store)
    found = Search(index)
    stop = threading.Event()

    def write(seed: int) -> None:
        chance = random.Random(seed)
        while not stop.is_set():
            number = chance.randrange(80) * 2 + 1
            id = f"prod/n/pod/stays{number:03}-{seed}"
            graph = (
                None
                if chance.random() < 0.4
                else lines(id, "Pod", name=chance.choice(["stays", "a", f"stays{number:03}"]))
            )
            store.apply([GraphWrite.of(IRIS.expand(id), graph, "user")])

    writers = [threading.Thread(target=write, args=(seed,)) for seed in range(2)]
    for each in writers:
        each.start()
    try:
        for exact, looks in ((2_000, 4_000), (0, 3)):
            monkeypatch.setattr(query, "EXACT", exact)
            monkeypatch.setattr(query, "LOOKS", looks)
            question = SearchQuery("stays", {"type": ["Pod"]}, sort=cast("query.Sort", sort), limit=7)
            counted = Counter(pages(found, question))
            assert {counted[each] for each in stays} == {1}
            if sort == "id":
                assert set(counted.values()) == {1}
    finally:
        stop.set()
        for each in writers:
            each.join()
        index.close()
        store.close()


def test_a_cursor_is_of_one_question(tmp_path: Path) -> None:
    """Another text, filter, order or state of tombstones refuses it; another limit or other counts do not."""
    store = EmbeddedStore(tmp_path / "s", clock=lambda: NOON)
    some = [f"prod/n/pod/p{number}" for number in range(4)]
    store.apply([GraphWrite.of(IRIS.expand(each), lines(each, "Pod"), "user") for each in some])
    index = index_of(store)
    found = Search(index)
    cursor = found.find(SearchQuery("p", {"type": ["Pod"]}, limit=1)).next
    assert cursor
    assert ids(found.find(SearchQuery("p", {"type": ["Pod"]}, limit=9, facets=["type"], cursor=cursor))) == some[1:]
    for other in (
        SearchQuery("p1", {"type": ["Pod"]}, cursor=cursor),
        SearchQuery("p", {"type": ["Job"]}, cursor=cursor),
        SearchQuery("p", {"type": ["Pod"]}, sort="id", cursor=cursor),
        SearchQuery("p", {"type": ["Pod"]}, tombstones=True, cursor=cursor),
        SearchQuery("p", {"type": ["Pod"]}, prefix="prod/", cursor=cursor),
    ):
        with pytest.raises(InvalidInput, match="another question"):
            found.find(other)
    with pytest.raises(InvalidInput, match="more than 200 values"):
        found.find(SearchQuery(filters={"type": [f"T{number}" for number in range(201)]}))
    index.close()
    store.close()


def test_names_of_any_length_page(tmp_path: Path) -> None:
    """Names that begin alike, longer than any cursor may be, and in any case, are gone through by name."""
    store = EmbeddedStore(tmp_path / "s", clock=lambda: NOON)
    some = [f"prod/n/pod/p{number}" for number in range(4)]
    names = ["X" * 5_000 + each[-1] for each in some[:2]] + ["x" * 5_000, "b"]
    store.apply(
        [
            GraphWrite.of(IRIS.expand(id), lines(id, "Pod", name=name), "user")
            for id, name in zip(some, names, strict=True)
        ]
    )
    index = index_of(store)
    found = Search(index)
    first = found.find(SearchQuery(sort="name", limit=2))
    assert len(first.next or "") < 1_000
    assert pages(found, SearchQuery(sort="name", limit=1)) == [some[3], *some[:3]]
    index.close()
    store.close()


MAKING = """
import sys
from pathlib import Path
from drumlin.kg.search import index
from drumlin.kg.search.index import Index
from drumlin.kg.model.iris import Iris
from drumlin.kg.store.embedded.store import EmbeddedStore

index.LISTED, index.CHUNK = 5, 3
store = EmbeddedStore(Path(sys.argv[1]))
moment = int(sys.argv[2])
index = Index(store, Iris("https://kg.example"), store.directory / "search.sqlite")
done = 0

def counted(statement):
    global done
    done += 1
    if done >= moment:
        print("here", flush=True)
        sys.stdin.read()

index._tables.writer.set_trace_callback(counted)
index.catch_up()
print("whole", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("rebuilt", [False, True], ids=["built", "rebuilt"])
def test_an_index_that_is_killed_while_it_is_made_is_made(tmp_path: Path, rebuilt: bool) -> None:
    """``kill -9`` between any two statements of making it, from nothing or from a state that it cannot go on from: the next life has all."""
    store = EmbeddedStore(tmp_path / "s", clock=lambda: NOON)
    some = [f"prod/n/pod/p{number}" for number in range(12)]
    store.apply([GraphWrite.of(IRIS.expand(each), lines(each, "Pod"), "user") for each in some])
    if rebuilt:
        index = index_of(store)
        index.catch_up()
        with index.reading() as connection:
            connection.execute("UPDATE state SET position = 0")
        index.close()
    store.close()
    for moment in (5, 30) if rebuilt else (30,):
        process = subprocess.Popen(
            [sys.executable, "-c", MAKING, str(tmp_path / "s"), str(moment)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout
        while (said := process.stdout.readline().strip()) not in ("here", "whole"):
            assert said, "it ended"
        process.kill()
        process.communicate()
    store = EmbeddedStore(tmp_path / "s", clock=lambda: NOON)
    index, fresh = index_of(store), Index(store, IRIS, None)
    assert contents(index) == contents(fresh)
    assert ids(Search(index).find(SearchQuery("p"))) == sorted(some)
    for each in (index, fresh):
        each.close()
    store.close()
