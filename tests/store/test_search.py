"""Search: words in any script, filters, counts, order and pages; an index that follows the store and can be made anew."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drumlin.kg.errors import InvalidInput, StoreUnavailable
from drumlin.kg.graphs.entities import EntityGraphs
from drumlin.kg.graphs.ingest import Statements
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf import jsonld
from drumlin.kg.search import query
from drumlin.kg.search.facets import FIELDS
from drumlin.kg.search.index import Index
from drumlin.kg.search.indexer import Intake
from drumlin.kg.search.query import Result, Search, SearchQuery
from drumlin.kg.search.tokenizer import SearchTerm, fold, sought, words
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite
from tests.thoroughness import examples

IRIS = Iris("https://kg.example")
NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)


def lines(id: str, kind: str, **more: Any) -> frozenset[str]:
    """Describe an entity, as lines."""
    segments = id.split("/")
    place = {"namespace": segments[1]} if len(segments) == 4 and segments[1] != "-" else {}
    document = {"id": IRIS.expand(id), "type": kind, "name": segments[-1], "cluster": IRIS.cluster("prod"), **place}
    return jsonld.lines({**document, **more})


def said(*of: Any, **more: Any) -> Statements:
    """Return the same as what somebody wants the graph to say."""
    return Statements(lines(*of, **more))


@pytest.fixture
def store() -> Iterator[EmbeddedStore]:
    """Open an empty store."""
    opened = EmbeddedStore(clock=lambda: NOON)
    yield opened
    opened.close()


def index_of(store: EmbeddedStore) -> Index:
    """Open the index of a store."""
    return Index(store, IRIS, store.directory / "search.sqlite")


@pytest.fixture
def found(store: EmbeddedStore) -> Iterator[Search]:
    """Give a few entities of several kinds, namespaces and owners, one of them deleted."""
    graphs = EntityGraphs(store, IRIS, clock=lambda: NOON)
    image = {
        "id": IRIS.expand("prod/a/deployment/one/container/c"),
        "type": "Container",
        "name": "c",
        "image": "reg/shop:1.2",
    }
    run = {
        "id": IRIS.expand("prod/a/pod/one-x/run/u"),
        "type": "Run",
        "startedAt": "2026-11-27T10:00:00Z",
        "scheduledOn": IRIS.expand("prod/-/node/edge-1"),
    }
    past = {
        **run,
        "id": run["id"] + "0",
        "endedAt": "2026-11-27T10:30:00Z",
        "scheduledOn": IRIS.expand("prod/-/node/edge-2"),
    }
    for id, kind, more in [
        (
            "prod/a/deployment/one",
            "Deployment",
            {"container": [image], "label": ["team=shop"], "domain": IRIS.domain("alice")},
        ),
        ("prod/a/pod/one-x", "Pod", {"phase": "Running", "runs": [run, past], "domain": IRIS.domain("alice")}),
        ("prod/b/deployment/two", "Deployment", {}),
        ("prod/b/statefulset/three", "StatefulSet", {"phase": "Failed", "tag": ["训练数据集"]}),
    ]:
        graphs.put(id, said(id, kind, **more))
    graphs.delete("prod/b/deployment/two")
    store.apply(
        [GraphWrite.of(IRIS.datasource("p"), jsonld.lines({"id": IRIS.datasource("p"), "name": "p"}), "drumlin")]
    )
    index = index_of(store)
    yield Search(index)
    index.close()


def ids(result: Result) -> list[str]:
    """Return the ids of a page."""
    return [each.id for each in result.items]


# -- words ------------------------------------------------------------------------------------------------------------------


def test_words_are_folded_and_cut() -> None:
    """Case, accents and compatibility forms do not matter; unspaced scripts are cut into pairs, the rest at every sign."""
    assert list(words("Checkout-API_v2.1")) == ["checkout", "api", "v2", "1"]
    assert list(words("Crème ＡＢＣ ẞ")) == ["creme", "abc", "ss"]
    assert list(words("训练数据 k8s数")) == ["训练", "练数", "数据", "据", "k8s", "数"]
    assert list(words("서울 データ")) != []


def test_what_is_typed_may_be_a_beginning() -> None:
    """The last part of each typed word may be a beginning; a pair of characters is one word, a single one a beginning."""
    assert sought("orders-d Pay") == [SearchTerm("orders", False), SearchTerm("d", True), SearchTerm("pay", True)]
    assert sought("数据 集") == [SearchTerm("数据", False), SearchTerm("集", True)]
    assert sought("--- !") == []


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=40))
def test_every_part_of_a_text_finds_it(text: str) -> None:
    """What is typed as it is written is always found: each word sought is a word of the text, or begins one."""
    held = list(words(text))
    for word, beginning in sought(text):
        assert word in held or (beginning and any(each.startswith(word) for each in held)), (word, held)
    assert fold(fold(text)) == fold(text) or not text.isascii()


# -- finding ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (SearchQuery("one"), ["prod/a/deployment/one", "prod/a/pod/one-x"]),
        (SearchQuery("ONE x"), ["prod/a/pod/one-x"]),
        (SearchQuery("one-"), ["prod/a/deployment/one", "prod/a/pod/one-x"]),
        (SearchQuery("shop:1"), ["prod/a/deployment/one"]),
        (SearchQuery("team=sh"), ["prod/a/deployment/one"]),
        (SearchQuery("数据"), ["prod/b/statefulset/three"]),
        (SearchQuery("集"), ["prod/b/statefulset/three"]),
        (SearchQuery("练数据"), ["prod/b/statefulset/three"]),
        (SearchQuery("据训"), []),
        (SearchQuery("nothing"), []),
        (SearchQuery(filters={"type": ["Workload"]}), ["prod/a/deployment/one", "prod/b/statefulset/three"]),
        (SearchQuery(filters={"type": ["Pod", "StatefulSet"]}), ["prod/a/pod/one-x", "prod/b/statefulset/three"]),
        (SearchQuery(filters={"node": ["edge-1"]}), ["prod/a/pod/one-x"]),
        (SearchQuery(filters={"node": ["edge-2"]}), []),
        (SearchQuery(filters={"domain": ["alice"], "type": ["Pod"]}), ["prod/a/pod/one-x"]),
        (SearchQuery(filters={"phase": ["Failed"]}), ["prod/b/statefulset/three"]),
        (SearchQuery(filters={"owner": ["drumlin"]}), ["datasource/p"]),
        (SearchQuery(filters={"namespace": ["b"]}), ["prod/b/statefulset/three"]),
        (
            SearchQuery(filters={"namespace": ["b"]}, tombstones=True),
            ["prod/b/deployment/two", "prod/b/statefulset/three"],
        ),
        (SearchQuery(prefix="prod/a/"), ["prod/a/deployment/one", "prod/a/pod/one-x"]),
        (SearchQuery(after="prod/a/pod/one-x", sort="id"), ["prod/b/statefulset/three"]),
        (SearchQuery("three", filters={"namespace": ["a"]}), []),
    ],
    ids=str,
)
@pytest.mark.parametrize("exact", [2_000, 0], ids=["narrow", "broad"])
def test_text_and_filters_narrow(
    found: Search, question: SearchQuery, expected: list[str], exact: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words and filters must all hold, values of one filter are alternatives; few matches and many are found alike."""
    monkeypatch.setattr(query, "EXACT", exact)
    assert ids(found.find(question)) == expected


def test_counts_tell_how_matches_spread(found: Search) -> None:
    """Without a question the counts are those of all that lives; with one, of what matches."""
    everything = found.find(SearchQuery(facets=FIELDS))
    assert (everything.total, everything.exact) == (4, True)
    assert everything.facets["type"] == {"Deployment": 1, "Pod": 1, "StatefulSet": 1}
    assert everything.facets["namespace"] == {"a": 2, "b": 1}
    assert everything.facets["owner"] == {"user": 3, "drumlin": 1}
    some = found.find(SearchQuery(filters={"domain": ["alice"]}, facets=["phase", "type"]))
    assert (some.total, some.facets) == (2, {"phase": {"Running": 1}, "type": {"Deployment": 1, "Pod": 1}})
    with_gone = found.find(SearchQuery(tombstones=True, facets=["type"]))
    assert (with_gone.total, with_gone.facets["type"]["Deployment"]) == (5, 2)


def test_too_many_matches_are_said_to_be_counted_in_part(found: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit a page is as exact as ever, and the counts are said not to be."""
    monkeypatch.setattr(query, "EXACT", 1)
    result = found.find(SearchQuery("prod", facets=["type"]))
    assert (len(result.items), result.total, result.exact) == (3, 1, False)
    assert sum(result.facets["type"].values()) == 1


def test_a_line_tells_what_it_is(found: Search) -> None:
    """Type, name, place, phase, owner and state come with each; a tombstone under its former class."""
    one, gone = found.find(SearchQuery(prefix="prod/b/", tombstones=True, sort="-changed")).items
    assert {one.name, gone.name} == {"two", "three"}
    gone = found.find(SearchQuery("two", tombstones=True)).items[0]
    assert (gone.type, gone.tombstone, gone.phase, gone.namespace, gone.owner) == (
        "Deployment",
        True,
        None,
        "b",
        "user",
    )
    assert gone.iri == IRIS.expand(gone.id)


@pytest.mark.parametrize("sort", ["relevance", "id", "name", "-changed"])
@pytest.mark.parametrize("text", ["", "prod", "one"])
@pytest.mark.parametrize("exact", [2_000, 0], ids=["narrow", "broad"])
def test_pages_make_up_the_whole(
    found: Search, sort: Any, text: str, exact: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Following the cursor gives every match once, in the order asked for, whatever the size of the pages."""
    monkeypatch.setattr(query, "EXACT", exact)
    whole = ids(found.find(SearchQuery(text, sort=sort, tombstones=True)))
    for limit in (1, 2, 3):
        pages: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            page = found.find(SearchQuery(text, sort=sort, tombstones=True, limit=limit, cursor=cursor))
            assert 0 < len(page.items) <= limit
            pages += ids(page)
            cursor = page.next
        assert pages == whole


def test_pages_stay_whole_while_the_data_changes(found: Search, store: EmbeddedStore) -> None:
    """What was there from the first page to the last is seen exactly once, whatever comes and goes meanwhile."""
    graphs = EntityGraphs(store, IRIS, clock=lambda: NOON)
    for number in range(20):
        graphs.put(f"prod/c/pod/p{number:02}", said(f"prod/c/pod/p{number:02}", "Pod"))
    seen: list[str] = []
    cursor: str | None = ""
    step = 0
    while cursor is not None:
        page = found.find(SearchQuery("p", filters={"namespace": ["c"]}, limit=3, cursor=cursor))
        seen += ids(page)
        cursor = page.next
        new = f"prod/c/pod/p{step:02}-new"
        graphs.put(new, said(new, "Pod"))
        store.apply([GraphWrite.of(IRIS.expand(f"prod/c/pod/p{step + 10:02}"), None, "user")])
        step += 1
    assert len(seen) == len(set(seen))
    assert {f"prod/c/pod/p{number:02}" for number in range(10)} <= set(seen)


@pytest.mark.parametrize(
    "question",
    [SearchQuery(filters={"colour": ["red"]}), SearchQuery(facets=["colour"]), SearchQuery("- -"), SearchQuery(" ".join(map(str, range(40)))), SearchQuery(cursor="x"), SearchQuery(cursor="WzcsIiIsIiJd")],
    ids=str,
)  # fmt: skip
def test_a_question_that_makes_no_sense_is_refused(found: Search, question: SearchQuery) -> None:
    """An unknown field, a text without a word, too many words, a made-up cursor: refused with a hint."""
    with pytest.raises(InvalidInput):
        found.find(question)


# -- the index --------------------------------------------------------------------------------------------------------------


def contents(index: Index) -> Any:
    """Return everything an index holds that does not depend on when it was made."""
    index.catch_up()
    with index.reading() as connection:
        rows = connection.execute(
            "SELECT id, name, type, phase, tombstone, digest, facets, words FROM entity WHERE NOT removed ORDER BY id"
        ).fetchall()
        matches = connection.execute("SELECT count(*) FROM found WHERE found MATCH '\"prod\"'").fetchone()
    counts = [{value: count for value, count in each.items() if count} for each in index.counts]
    return rows, matches, counts, index.live


@settings(deadline=None, max_examples=examples(8), suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 4), st.sampled_from([None, "Running", "Failed"])), min_size=1, max_size=4),
        max_size=8,
    )
)
def test_an_index_that_followed_equals_one_made_anew(history: list[list[tuple[int, str | None]]]) -> None:
    """After any history of writes, removals and returns, and a restart in it, the index is what a new one would be."""
    store = EmbeddedStore(clock=lambda: NOON)
    index = index_of(store)
    for number, writes in enumerate(history):
        for which, phase in writes:
            id = f"prod/a/pod/p{which}"
            store.apply(
                [GraphWrite.of(IRIS.expand(id), None if phase is None else lines(id, "Pod", phase=phase), "user")]
            )
        if number % 2:
            index.catch_up()
        if number == 3:
            index.close()
            index = index_of(store)
    fresh = Index(store, IRIS, store.directory / "fresh.sqlite")
    assert contents(index) == contents(fresh)
    with index.reading() as connection:
        connection.execute("INSERT INTO found (found, rank) VALUES ('integrity-check', 1)")
    index.close()
    fresh.close()
    store.close()


def test_questions_are_refused_rather_than_answered_from_a_part(
    found: Search, store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing that is under way holds up a question for a moment at most, is not begun twice, and ends with everything."""
    index = Index(store, IRIS, None)
    begun, go_on = threading.Event(), threading.Event()
    held = index._held

    def slowly() -> Iterator[Any]:
        for each in held():
            begun.set()
            assert go_on.wait(60)
            yield each

    monkeypatch.setattr(index, "_held", slowly)
    listing = threading.Thread(target=index.catch_up)
    listing.start()
    assert begun.wait(60)
    monkeypatch.setattr(query, "LISTING", 0.01)
    with pytest.raises(StoreUnavailable, match="only be a part") as refused:
        Search(index).find(SearchQuery("one"))
    assert refused.value.hint
    assert index.partial
    monkeypatch.setattr(query, "LISTING", 60)
    threading.Timer(0.05, go_on.set).start()
    assert Search(index).find(SearchQuery("one")).total == found.find(SearchQuery("one")).total > 0
    listing.join()
    assert contents(index) == contents(found.index)
    index.close()


def test_what_is_gone_is_known_as_long_as_the_log_tells_of_it(
    found: Search, store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The feed knows what a removed graph was; when no event tells of it any more its row goes, and it may come again."""
    iri, id = IRIS.expand("prod/z/pod/gone"), "prod/z/pod/gone"
    for graph in (lines(id, "Pod"), None):
        store.apply([GraphWrite.of(iri, graph, "user")])
        found.index.catch_up()
    assert found.index.known([iri])[iri].facets[0] == ("Pod",)
    monkeypatch.setattr(EmbeddedStore, "oldest", property(lambda self: self.generation))
    store.apply([GraphWrite.of(IRIS.expand("prod/z/pod/other"), lines("prod/z/pod/other", "Pod"), "user")])
    found.index.catch_up()
    assert found.index.known([iri]) == {}
    store.apply([GraphWrite.of(iri, lines(id, "Pod"), "user")])
    assert ids(found.find(SearchQuery("gone"))) == [id]
    with found.index.reading() as connection:
        connection.execute("INSERT INTO found (found, rank) VALUES ('integrity-check', 1)")


def test_many_who_catch_up_at_once_list_nothing_twice(
    found: Search, store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever comes when another has taken everything in has nothing to do; a question does not run after what is written meanwhile."""
    found.find(SearchQuery())
    monkeypatch.setattr(found.index, "_list_anew", lambda: pytest.fail("listed anew"))
    for number in range(6):
        id = f"prod/z/pod/n{number}"
        store.apply([GraphWrite.of(IRIS.expand(id), lines(id, "Pod"), "user")])
        with found.index._tables.lock:
            waiting = [threading.Thread(target=found.index.catch_up) for _ in range(4)]
            for each in waiting:
                each.start()
        for each in waiting:
            each.join()
        assert found.index.position == store.generation
    taken = Intake.take_in
    monkeypatch.setattr(Intake, "take_in", lambda *given: (taken(*given), write())[0])

    def write() -> None:
        id = f"prod/z/pod/more{store.generation}"
        store.apply([GraphWrite.of(IRIS.expand(id), lines(id, "Pod"), "user")])

    write()
    assert found.index.catch_up() == store.generation - 1


@pytest.mark.parametrize(
    "damage", ["garbage", "format", "missing", "ahead", "other", "row changed", "row lost", "page", "cut"]
)
def test_an_index_that_cannot_be_used_is_made_anew(found: Search, store: EmbeddedStore, damage: str) -> None:
    """A damaged file, another format, another store's history, rows that are not the store's: the answers are right all the same."""
    path = store.directory / "search.sqlite"
    expected = contents(found.index)
    with found.index.reading() as connection:
        if damage == "format":
            connection.execute("PRAGMA user_version = 99")
        elif damage == "ahead":
            connection.execute("UPDATE state SET position = 1000")
        elif damage == "other":
            connection.execute("UPDATE state SET mark = 'x'")
        elif damage == "row changed":
            connection.execute("UPDATE entity SET digest = 'x', name = 'x' WHERE row = 1")
        elif damage == "row lost":
            connection.execute("DELETE FROM entity WHERE row = 1")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'found_idx'").fetchone()
    found.index.close()
    if damage == "page":
        with path.open("r+b") as file:
            file.seek(4096 * (page - 1))
            file.write(b"\xff" * 4096)
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif damage == "garbage":
        path.write_bytes(b"garbage" * 1000)
        path.with_name("search.sqlite-wal").unlink(missing_ok=True)
    elif damage == "missing":
        path.unlink()
    again = index_of(store)
    assert contents(again) == expected
    again.close()


def test_an_older_copy_of_an_index_catches_up(found: Search, store: EmbeddedStore) -> None:
    """Rows of graphs that changed since the copy was made are not held against it: they are taken in."""
    path = store.directory / "search.sqlite"
    found.index.catch_up()
    with found.index.reading() as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    copy = path.read_bytes()
    store.apply([GraphWrite.of(IRIS.expand("prod/z/pod/late"), lines("prod/z/pod/late", "Pod"), "user")])
    store.apply([GraphWrite.of(store.entries(owner="user", limit=1)[0].graph, None, "user")])
    found.index.catch_up()
    expected = contents(found.index)
    found.index.close()
    path.write_bytes(copy)
    again = index_of(store)
    assert 0 < again.position < store.generation
    again.catch_up()
    assert contents(again) == expected
    again.close()


@pytest.mark.parametrize("damage", ["words", "gone", "rows"])
def test_an_index_that_is_damaged_while_it_is_used_is_made_anew(
    found: Search, store: EmbeddedStore, damage: str
) -> None:
    """Pages overwritten, or the file taken away, under a running service: questions and writes go on, and all is found again, counted once."""
    expected = contents(found.index)
    path = store.directory / "search.sqlite"
    with found.index.reading() as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if damage != "gone":
            table = "found_data" if damage == "words" else "entity"
            (page,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
            with path.open("r+b") as file:
                file.seek(4096 * (page - 1))
                file.write(b"\xff" * 4096)
    found.index.close()
    if damage == "gone":
        path.unlink()
        again = index_of(store)
        for each in store.directory.glob("search.sqlite*"):
            each.unlink()
    else:
        again = index_of(store)
    query = Search(again)
    store.apply([GraphWrite.of(IRIS.expand("prod/z/pod/late"), lines("prod/z/pod/late", "Pod"), "user")])
    deadline = time.monotonic() + 30
    while query.find(SearchQuery("late")).total != 1 or query.find(SearchQuery("one")).total != 2:
        assert time.monotonic() < deadline
    store.apply([GraphWrite.of(IRIS.expand("prod/z/pod/late"), None, "user")])
    assert contents(again) == expected
    again.close()


def test_signs_that_separate_nothing_are_values(found: Search, store: EmbeddedStore) -> None:
    """Control characters in a tag or a name are no more than characters: they are found, counted and told, by the feed as well."""
    id, tag = "prod/a/pod/odd", "a\x1eb\x1fc\x00d"
    store.apply([GraphWrite.of(IRIS.expand(id), lines(id, "Pod", tag=[tag]), "user")])
    result = found.find(SearchQuery(filters={"tag": [tag]}, facets=["tag"]))
    assert (ids(result), result.facets["tag"]) == ([id], {tag: 1})
    found.index.close()
    again = index_of(store)
    assert ids(Search(again).find(SearchQuery(filters={"tag": [tag]}))) == [id]
    assert tag in again.known([IRIS.expand(id)])[IRIS.expand(id)].facets[FIELDS.index("tag")]
    again.close()


def test_an_index_catches_up_after_a_crash(found: Search, store: EmbeddedStore) -> None:
    """What was written while nobody followed is found at the next question."""
    found.find(SearchQuery())
    store.apply([GraphWrite.of(IRIS.expand("prod/z/pod/late"), lines("prod/z/pod/late", "Pod"), "user")])
    assert ids(found.find(SearchQuery("late"))) == ["prod/z/pod/late"]
    assert found.find(SearchQuery()).generation == store.generation
