"""Who sees which graph: what standings read from graphs, and sets that follow changes, held against the rules said in full."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.kg.rdf.jsonld import NAMESPACE
from drumlin.kg.visibility.standing import NOBODYS, DataGrant, Standing, standing_of, stub_of
from drumlin.kg.visibility.visible_set import Sight, Standings, VisibleSet

BASE = "https://kg.example/id/"
ALICE, BOB, CAROL = (f"{BASE}domain/{name}" for name in ("alice", "bob", "carol"))
CLUSTERS = [f"{BASE}cluster/{name}" for name in ("a", "b")]
THINGS = [f"{BASE}a/ns/pod/{number}" for number in range(6)]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"


def text(graph: str, *said: tuple[str, str]) -> str:
    """Write statements about a graph's entity."""
    return "\n".join(sorted(f"<{graph}> {name} {value} ." for name, value in said))


def term(name: str) -> str:
    """Write a term of the vocabulary."""
    return f"<{NAMESPACE}{name}>"


def derived(metric: str) -> tuple[str, str]:
    """Say of which metric something is derived."""
    return "<http://www.w3.org/ns/prov#wasDerivedFrom>", f"<{metric}>"


def test_a_standing_is_what_the_graph_says_of_its_own_entity() -> None:
    """Domain, parties and cluster are read; what a graph says of its parts counts nothing."""
    task = f"{BASE}a/cross-domain/task/t"
    said = text(
        task,
        (TYPE, term("Task")),
        (term("party"), f"<{ALICE}>"),
        (term("party"), f"<{BOB}>"),
        (term("cluster"), f"<{CLUSTERS[0]}>"),
        (term("name"), '"t . <x> \\" <https://w3id.org/drumlin/ns#domain>"'),
    )
    part = f"<{task}/party/carol> {term('domain')} <{CAROL}> ."
    assert standing_of(task, f"{said}\n{part}") == Standing(None, frozenset({ALICE, BOB}), CLUSTERS[0])
    assert standing_of(task, part) is NOBODYS
    assert standing_of(THINGS[0], "") is NOBODYS


@pytest.mark.parametrize(
    ("more", "until"),
    [
        ([], None),
        (
            [(term("expiresAt"), '"2026-01-02T00:00:00Z"^^<http://www.w3.org/2001/XMLSchema#dateTime>')],
            NOW + timedelta(days=1),
        ),
    ],
)
def test_a_grant_is_read_with_its_end(more: list[tuple[str, str]], until: datetime | None) -> None:
    """A grant names its data, the domain that it is to, and when it ends."""
    graph = THINGS[0]
    said = [(term("domain"), f"<{BOB}>"), (term("grants"), f"<{THINGS[1]}>"), (term("grantedTo"), f"<{ALICE}>"), *more]
    assert standing_of(graph, text(graph, *said)).grant == DataGrant(THINGS[1], ALICE, until)


@pytest.mark.parametrize(
    "more",
    [
        (term("phase"), term("NotReady")),
        (term("expiresAt"), '"soon"'),
        (term("expiresAt"), '"2026-01-02T00:00:00"^^<http://www.w3.org/2001/XMLSchema#dateTime>'),
    ],
)
def test_a_grant_that_is_not_in_force_or_whose_end_is_not_known_grants_nothing(more: tuple[str, str]) -> None:
    """A controller that says NotReady ends a grant, and so does an end that cannot be read."""
    graph = THINGS[0]
    said = text(graph, (term("grants"), f"<{THINGS[1]}>"), (term("grantedTo"), f"<{ALICE}>"), more)
    assert standing_of(graph, said).grant is None


def test_a_tombstone_stood_in_a_namespace() -> None:
    """A tombstone, which has no domain, names the namespace that it stood in; what lives in one names its own domain."""
    graph = f"{BASE}a/ml/pod/p"
    said = [(term("cluster"), f"<{CLUSTERS[0]}>"), (term("namespace"), '"ml"')]
    assert standing_of(graph, text(graph, (TYPE, term("Tombstone")), *said)).within == f"{BASE}a/-/namespace/ml"
    assert standing_of(graph, text(graph, (TYPE, term("Pod")), *said)).within is None


@pytest.mark.parametrize(
    ("graph", "said", "within"),
    [
        (f"{BASE}notes/a/ns/pod/1", [], f"{BASE}a/ns/pod/1"),
        (f"{BASE}scraped/a/ns/deployment/web", [], f"{BASE}a/ns/deployment/web"),
        (f"{BASE}forecast/1", [derived(f"{BASE}a/ns/pod/1/metric/cpu_usage")], f"{BASE}a/ns/pod/1"),
        (f"{BASE}forecast/1", [derived(f"{BASE}scraped/a/ns/pod/1/metric/own")], f"{BASE}a/ns/pod/1"),
        (f"{BASE}forecast/1", [derived("https://elsewhere.example/x")], None),
    ],
)
def test_what_is_about_an_entity_is_within_it(graph: str, said: list[tuple[str, str]], within: str | None) -> None:
    """Notes, scraped metrics and forecasts belong to whom the entity belongs to that they are about."""
    assert standing_of(graph, text(graph, (TYPE, term("Forecast")), *said)).within == within


def test_a_stub_is_class_and_name() -> None:
    """Of another domain nothing is seen but its class and its name."""
    said = [(TYPE, term("Domain")), (term("name"), '"bob"'), (term("role"), '"secret"')]
    assert stub_of(BOB, text(BOB, *said)) == text(BOB, *said[:2])


DOMAINS = st.sampled_from([ALICE, BOB, CAROL])
TIMES = st.sampled_from([None, NOW + timedelta(hours=1), NOW + timedelta(hours=3)])
GRANTS = st.builds(DataGrant, st.sampled_from(THINGS), DOMAINS, TIMES)
STANDINGS = st.builds(
    Standing,
    st.none() | DOMAINS,
    st.frozensets(DOMAINS, max_size=2),
    st.none() | st.sampled_from(CLUSTERS),
    st.none() | GRANTS,
    st.booleans(),
    within=st.none(),
)
NAMESPACES = [f"{BASE}a/-/namespace/{name}" for name in ("m", "n")]
WITHIN = st.builds(Standing, within=st.sampled_from([*NAMESPACES, *THINGS]))
HOMES = st.builds(Standing, home=st.none() | DOMAINS, within=st.none())
PLACES = st.builds(Standing, home=st.none() | DOMAINS, place=st.just(True), within=st.none())
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(THINGS), st.none() | STANDINGS | WITHIN),
        st.tuples(st.sampled_from(NAMESPACES), st.none() | HOMES),
        st.tuples(st.sampled_from([ALICE, BOB, CAROL, *CLUSTERS]), st.none() | PLACES),
        st.tuples(st.just("time"), st.just(None)),
    ),
    max_size=25,
)


def said_in_full(graphs: dict[str, Standing], domains: frozenset[str], now: datetime) -> dict[str, Sight]:
    """Return what is seen, from the rules alone."""

    def in_force(standing: Standing) -> bool:
        grant = standing.grant
        return grant is not None and grant.to in domains and (grant.until is None or now < grant.until)

    def home(standing: Standing, deep: int = 3) -> str | None:
        if standing.home is not None or standing.within is None or not deep:
            return standing.home
        return home(graphs.get(standing.within, NOBODYS), deep - 1)

    def whole(graph: str) -> bool:
        found = graphs[graph]
        granted = any(
            in_force(each)
            and each.grant
            and each.grant.data == graph
            and home(found) is not None
            and home(each) == home(found)
            for each in graphs.values()
        )
        own = home(found) in domains or graph in domains or bool(domains & found.parties)
        return found.common or own or in_force(found) or granted

    seen = {graph: Sight.WHOLE for graph in graphs if whole(graph)}
    named = {name for graph in seen for name in graphs[graph].names if name != graph}
    return seen | {each: Sight.NAME for each in named if each in graphs and graphs[each].place and each not in seen}


@given(STEPS, st.frozensets(DOMAINS, min_size=1, max_size=2))
def test_a_set_that_follows_changes_sees_what_the_rules_say(
    steps: list[tuple[str, Standing | None]], domains: frozenset[str]
) -> None:
    """After each change and as time passes, what is seen is what the rules say of all graphs, and what differs was reported."""
    standings, graphs, now = Standings(), dict[str, Standing](), NOW
    seen = VisibleSet(domains, standings, now)
    told = dict[str, Sight]()
    for graph, standing in steps:
        if graph == "time":
            now += timedelta(hours=2)
            touched = seen.update((), now)
        else:
            standings.put(graph, standing)
            graphs.pop(graph, None)
            if standing is not None:
                graphs[graph] = standing
            touched = seen.update([graph], now)
        for each in touched:
            told[each] = seen.sight(each) if each in graphs else Sight.NOTHING
        expected = said_in_full(graphs, domains, now)
        assert {each: sight for each, sight in seen.seen().items() if each in graphs} == expected
        assert {each: sight for each, sight in told.items() if sight is not Sight.NOTHING} == expected
