"""What domains see as a store of its own: equal to what the rules show of the source, after any writes, restarts and grants that end."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from drumlin.kg.errors import DrumlinError, Forbidden, GraphOwned, PreconditionFailed, ResourceNotFound
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import NAMESPACE
from drumlin.kg.store.content import GraphContent
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite, StoredGraph
from drumlin.kg.visibility import visible_store
from drumlin.kg.visibility.standing import Standing, standing_of, stub_of
from drumlin.kg.visibility.visible_set import Sight
from drumlin.kg.visibility.visible_store import Visibility, VisibleStore
from tests.thoroughness import examples
from tests.unit.test_visible_set import said_in_full

IRIS = Iris("https://kg.example")
DOMAINS = ("alice", "bob", "carol")
TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
SETS = [frozenset({"alice"}), frozenset({"bob", "carol"})]


def term(name: str) -> str:
    """Write a term of the vocabulary."""
    return f"<{NAMESPACE}{name}>"


def lines(graph: str, *said: tuple[str, str]) -> frozenset[str]:
    """Return statements about a graph's entity."""
    return frozenset(f"<{graph}> {name} {value} ." for name, value in said)


def of_domain(graph: str, domain: str, note: str = "x") -> frozenset[str]:
    """Return a graph that belongs to a domain."""
    return lines(graph, (term("domain"), f"<{IRIS.domain(domain)}>"), (term("name"), f'"{note}"'))


def grant(graph: str, data: str, giver: str, to: str, until: datetime) -> frozenset[str]:
    """Return a grant that a domain states."""
    end = f'"{until:%Y-%m-%dT%H:%M:%SZ}"^^<http://www.w3.org/2001/XMLSchema#dateTime>'
    said = ((term("grants"), f"<{data}>"), (term("grantedTo"), f"<{IRIS.domain(to)}>"), (term("expiresAt"), end))
    return of_domain(graph, giver) | lines(graph, *said)


class Site:
    """A source, what sets of domains see of it, and a clock."""

    def __init__(self, directory: Path) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.source = EmbeddedStore(directory / "store")
        self.folder = directory / "views"
        self.visibility = self.fresh()
        for each in DOMAINS:
            iri = IRIS.domain(each)
            self.put(iri, lines(iri, (TYPE, term("Domain")), (term("name"), f'"{each}"'), (term("role"), term("Lite"))))

    def fresh(self) -> Visibility:
        """Look at the source as a new process does."""
        return Visibility(self.source, self.folder, IRIS, lambda: self.now)

    def put(self, graph: str, said: frozenset[str] | None, owner: str = "user") -> None:
        """Write a graph of the source, or remove it."""
        self.source.apply([GraphWrite.of(graph, said, owner)])

    def expected(self, domains: frozenset[str]) -> dict[str, str]:
        """Return the digest of each graph that the rules show, from the source alone."""
        graphs: dict[str, Standing] = {}
        for entry in self.source.entries():
            found = self.source.read(entry.graph)
            assert found is not None
            graphs[entry.graph] = standing_of(entry.graph, found.text)
        seen = said_in_full(graphs, frozenset(map(IRIS.domain, domains)), self.now)
        return {graph: self._digest(graph, sight) for graph, sight in seen.items()}

    def _digest(self, graph: str, sight: Sight) -> str:
        found = self.source.read(graph)
        assert found is not None
        return found.entry.digest if sight is Sight.WHOLE else GraphContent.of_text(stub_of(graph, found.text)).digest


def held(store: VisibleStore) -> dict[str, str]:
    """Return the digest of each graph of a store."""
    return {each.graph: each.digest for each in store.entries()}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A source with three domains."""
    made = Site(tmp_path)
    yield made
    made.source.close()


NAMES = [f"{IRIS.root}main/ns/pod/{number}" for number in range(12)]
GRANTS = [f"{IRIS.root}main/ns/grant/{number}" for number in range(4)]


def write_something(site: Site, chance: random.Random) -> None:
    """Write a graph, a grant or a removal, or let time pass."""
    domain, graph = chance.choice(DOMAINS), chance.choice(NAMES)
    match chance.randrange(10):
        case 0:
            site.put(graph, None)
        case 1:
            site.now += timedelta(minutes=20)
        case 2 | 3:
            found = chance.choice(GRANTS)
            until = site.now + timedelta(minutes=chance.choice([-5, 10, 45]))
            site.put(found, grant(found, chance.choice(NAMES), domain, chance.choice(DOMAINS), until))
        case 4:
            parties = [(term("party"), f"<{IRIS.domain(each)}>") for each in chance.sample(DOMAINS, 2)]
            site.put(graph, lines(graph, *parties))
        case 5:
            site.put(graph, lines(graph, (term("name"), '"of nobody"')))
        case 6:
            many = [
                GraphWrite.of(each, of_domain(each, chance.choice(DOMAINS), str(chance.random())), "user")
                for each in chance.sample(NAMES, 5)
            ]
            site.source.apply(many)
        case _:
            site.put(graph, of_domain(graph, domain, str(chance.random())))


@pytest.mark.parametrize("seed", range(examples(3)))
def test_each_set_holds_what_the_rules_show_after_any_writes(site: Site, seed: int) -> None:
    """After each few writes, grants that end, and a restart that finds another state, the store of a set equals the filtered source."""
    chance = random.Random(seed)
    stores = [site.visibility.open(each) for each in SETS]
    for _ in range(25):
        for _ in range(chance.choice([1, 1, 2, 6])):
            write_something(site, chance)
        for domains, store in zip(SETS, stores, strict=True):
            store.bring_up()
            assert held(store) == site.expected(domains)
    generations = [each.generation for each in stores]
    for each in stores:
        each.close()
    for _ in range(5):
        write_something(site, chance)
    site.visibility = site.fresh()
    stores = [site.visibility.open(each) for each in SETS]
    for domains, before, store in zip(SETS, generations, stores, strict=True):
        assert held(store) == site.expected(domains)
        assert store.generation >= before
        store.close()


def test_a_store_is_what_the_rules_show_beside_writers(site: Site) -> None:
    """While others write, each state that is brought up has whole generations; in the end it is the filtered source."""
    pair = NAMES[:2]

    def write_pairs() -> None:
        for number in range(150):
            site.source.apply([GraphWrite.of(each, of_domain(each, "alice", str(number)), "user") for each in pair])

    store = site.visibility.open(SETS[0])
    writer = threading.Thread(target=write_pairs)
    writer.start()
    while writer.is_alive():
        store.bring_up()
        notes = {line for each in pair if (found := store.read(each)) for line in found.lines if "name>" in line}
        assert len({line.split('"')[1] for line in notes}) <= 1
    writer.join()
    store.bring_up()
    assert held(store) == site.expected(SETS[0])
    store.close()


def test_what_is_seen_no_more_leaves_with_an_entry_in_the_log(site: Site) -> None:
    """A graph that moves to another domain is a removal in the log of the first and a creation in that of the second."""
    first, second = (site.visibility.open(frozenset({each})) for each in ("alice", "bob"))
    site.put(NAMES[0], of_domain(NAMES[0], "alice"))
    first.bring_up()
    marks = first.generation, second.generation
    site.put(NAMES[0], of_domain(NAMES[0], "bob"))
    first.bring_up()
    second.bring_up()
    assert [(each.graph, each.after is None) for each in first.log(marks[0])] == [(NAMES[0], True)]
    assert [(each.graph, each.before is None) for each in second.log(marks[1])] == [(NAMES[0], True)]
    first.close()
    second.close()


def test_an_untouched_set_makes_no_generations(site: Site) -> None:
    """Writes that a set does not see leave its generation as it is, so a caller cannot count what others do."""
    store = site.visibility.open(SETS[0])
    before = store.generation
    for number in range(5):
        site.put(NAMES[number], of_domain(NAMES[number], "bob"))
        store.bring_up()
    assert store.generation == before
    store.close()


def test_a_limited_caller_writes_what_belongs_to_its_domain(site: Site) -> None:
    """A write goes to the source and is read back; owners and preconditions hold there."""
    store = site.visibility.open(SETS[0])
    (written,) = store.apply([GraphWrite.of(NAMES[0], of_domain(NAMES[0], "alice"), "user", None)])
    assert written.outcome == "created"
    assert written.generation == store.generation
    assert site.source.read(NAMES[0]) is not None
    with pytest.raises(PreconditionFailed):
        store.apply([GraphWrite.of(NAMES[0], of_domain(NAMES[0], "alice", "y"), "user", None)])
    with pytest.raises(GraphOwned):
        store.apply([GraphWrite.of(NAMES[0], of_domain(NAMES[0], "alice", "y"), "kubernetes")])
    (removed,) = store.apply([GraphWrite.of(NAMES[0], None, "user")])
    assert removed.outcome == "removed"
    assert site.source.read(NAMES[0]) is None
    store.close()


FORECAST = f"{IRIS.root}forecast/1"


def about(entity: str) -> frozenset[str]:
    """Return a forecast of a metric of an entity, which states no domain."""
    return lines(FORECAST, ("<http://www.w3.org/ns/prov#wasDerivedFrom>", f"<{entity}/metric/cpu_usage>"))


def test_a_forecast_belongs_to_whom_the_entity_belongs_to(site: Site) -> None:
    """A limited caller saves forecasts of what is its own, and sees them; they go with the entity when that moves to another domain."""
    site.put(NAMES[0], of_domain(NAMES[0], "alice"))
    store = site.visibility.open(SETS[0])
    store.apply([GraphWrite.of(FORECAST, about(NAMES[0]), "user")])
    assert store.read(FORECAST) is not None
    site.put(NAMES[0], of_domain(NAMES[0], "bob"))
    store.bring_up()
    assert store.read(FORECAST) is None
    store.close()


def of_bob() -> frozenset[str]:
    """Return a graph of another domain."""
    return of_domain(NAMES[1], "bob")


@pytest.mark.parametrize(
    ("write", "error"),
    [
        (GraphWrite.of(NAMES[1], of_domain(NAMES[1], "alice"), "user"), ResourceNotFound),
        (GraphWrite.of(NAMES[1], of_domain(NAMES[1], "alice"), "user", None), ResourceNotFound),
        (GraphWrite.of(NAMES[1], None, "user"), ResourceNotFound),
        (GraphWrite.of(NAMES[2], of_domain(NAMES[2], "bob"), "user"), Forbidden),
        (GraphWrite.of(NAMES[2], lines(NAMES[2], (term("name"), '"of nobody"')), "user"), Forbidden),
        (GraphWrite.of(NAMES[3], of_domain(NAMES[3], "alice"), "user"), Forbidden),
        (GraphWrite.of(NAMES[3], None, "user"), Forbidden),
        (GraphWrite.of(IRIS.domain("bob"), None, "user"), Forbidden),
        (GraphWrite.of(FORECAST, about(NAMES[1]), "user"), Forbidden),
        (GraphWrite.of(FORECAST, about(NAMES[9]), "user"), Forbidden),
    ],
    ids=[
        "hidden",
        "hidden, if new",
        "hidden, removed",
        "another's",
        "nobody's",
        "taken over",
        "removed",
        "a stub",
        "about what is hidden",
        "about nothing",
    ],
)
def test_a_limited_caller_touches_nothing_of_other_domains(
    site: Site, write: GraphWrite, error: type[DrumlinError]
) -> None:
    """What is hidden is not there, what is only seen cannot be changed or taken over, and nothing is given away; nothing is written."""
    site.put(NAMES[1], of_bob())
    shared = of_domain(NAMES[3], "bob") | lines(NAMES[3], (term("party"), f"<{IRIS.domain('alice')}>"))
    site.put(NAMES[3], shared)
    store = site.visibility.open(SETS[0])
    assert store.read(IRIS.domain("bob")) is not None
    before = site.source.generation
    with pytest.raises(error) as caught:
        store.apply([GraphWrite.of(NAMES[0], of_domain(NAMES[0], "alice"), "user"), write])
    assert caught.value.refusals.keys() == {write.graph}
    assert site.source.generation == before
    store.close()


def test_nobody_grants_itself_what_is_anothers(site: Site) -> None:
    """A grant counts only where the domain states it that the data belongs to."""
    site.put(NAMES[1], of_bob())
    store = site.visibility.open(SETS[0])
    until = site.now + timedelta(hours=1)
    store.apply([GraphWrite.of(GRANTS[0], grant(GRANTS[0], NAMES[1], "alice", "alice", until), "user")])
    assert store.read(NAMES[1]) is None
    site.put(GRANTS[1], grant(GRANTS[1], NAMES[1], "bob", "alice", until))
    store.bring_up()
    assert store.read(NAMES[1]) is not None
    site.now = until
    store.bring_up()
    assert store.read(NAMES[1]) is None
    assert store.read(GRANTS[1]) is None
    store.close()


def test_a_damaged_store_of_a_set_is_made_anew(site: Site) -> None:
    """What is derived is never mourned: a set's store that cannot be opened is made again from the source."""
    site.put(NAMES[0], of_domain(NAMES[0], "alice"))
    store = site.visibility.open(SETS[0])
    directory = store.directory
    store.close()
    (directory / "changes.sqlite").write_bytes(b"damaged")
    store = site.visibility.open(SETS[0])
    assert held(store) == site.expected(SETS[0])
    store.close()


KILLED = """
import os, sys
from datetime import UTC, datetime
from pathlib import Path
from drumlin.kg.store.embedded import engine_applier
from drumlin.kg.store.embedded.change_log import ChangeLog
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.visibility import visible_store
from tests.store.test_visible_store import IRIS, SETS

at, step = int(sys.argv[2]), sys.argv[3]
visible_store._PAGE, engine_applier.LOADED, engine_applier.CHUNK = 5, 2, 4
visibility = visible_store.Visibility(
    EmbeddedStore(Path(sys.argv[1]) / "store"), Path(sys.argv[1]) / "views", IRIS, lambda: datetime(2026, 1, 1, tzinfo=UTC)
)
target = ChangeLog if step == "record" else engine_applier.EngineApplier
name = "record" if step == "record" else "_done"
before, calls = getattr(target, name), iter(range(1000))

def or_end(*given, **named):
    if next(calls) == at:
        os._exit(9)
    return before(*given, **named)

setattr(target, name, or_end)
visibility.open(SETS[0]).look_up("SELECT * { ?s ?p ?o }")
"""


@pytest.mark.parametrize(("at", "step"), [(0, "record"), (3, "record"), (0, "applied"), (2, "applied")])
def test_a_store_whose_making_was_killed_is_made_to_its_end(site: Site, at: int, step: str) -> None:
    """A process that is killed while it fills a set's store, or the engine of it, leaves what the next one completes."""
    pods = [f"{IRIS.root}main/ns/pod/{number}" for number in range(40)]
    site.source.apply([GraphWrite.of(each, of_domain(each, "alice"), "user") for each in pods])
    site.source.close()
    command = [sys.executable, "-c", KILLED, str(site.folder.parent), str(at), step]
    ended = subprocess.run(command, check=False, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert ended.returncode == 9, ended.stderr

    site.source = EmbeddedStore(site.folder.parent / "store")
    site.visibility = site.fresh()
    store = site.visibility.open(SETS[0])
    assert held(store) == site.expected(SETS[0])
    assert len(store.look_up("SELECT DISTINCT ?g { GRAPH ?g { ?s ?p ?o } }")) == len(held(store))
    store.close()


def test_a_source_that_changes_while_a_store_is_made(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs that move to others, come and go between two pages of a new store's making are in the end as the rules show them."""
    monkeypatch.setattr(visible_store, "_PAGE", 4)
    chance = random.Random(1)
    for each in NAMES:
        site.put(each, of_domain(each, "alice"))
    site.visibility.learn()
    read_each, reads = EmbeddedStore.read_each, list[int]()

    def read_and_write(self: EmbeddedStore, graphs: Sequence[str]) -> dict[str, StoredGraph]:
        found = read_each(self, graphs)
        reads.append(len(graphs))
        if len(reads) < 6:  # else there would be no end
            for _ in range(3):
                write_something(site, chance)
        return found

    monkeypatch.setattr(EmbeddedStore, "read_each", read_and_write)
    store = site.visibility.open(SETS[0])
    store.bring_up()
    assert len(reads) >= 4
    assert held(store) == site.expected(SETS[0])
    store.close()


@pytest.mark.parametrize("domains", [frozenset({"nobody"}), frozenset(DOMAINS)], ids=["nothing", "everything"])
def test_sets_that_see_nothing_and_everything(site: Site, domains: frozenset[str]) -> None:
    """A set without graphs has an empty store; one of all domains has all graphs that have a domain, and they are its generations."""
    for number, each in enumerate(NAMES):
        site.put(each, of_domain(each, DOMAINS[number % 3]))
    store = site.visibility.open(domains)
    assert held(store) == site.expected(domains)
    assert len(held(store)) == (0 if "nobody" in domains else len(NAMES) + len(DOMAINS))
    assert store.generation == (0 if "nobody" in domains else 1)
    assert len(store.look_up("SELECT DISTINCT ?g { GRAPH ?g { ?s ?p ?o } }")) == len(held(store))
    store.close()
