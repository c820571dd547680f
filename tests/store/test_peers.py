"""Exchange between domains: when it is quiet, a service holds of each peer what that shows it, whatever was written, ended, killed or parted."""

from __future__ import annotations

import asyncio
import random
import shutil
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from drumlin.api.access.authentication import Authenticator
from drumlin.api.access.callers import Role
from drumlin.api.access.tokens import TokenFile
from drumlin.api.app import create_app
from drumlin.api.bootstrap import assemble
from drumlin.exporters.peers.follower import COMPARED_SECONDS, PeerFollower
from drumlin.exporters.peers.position import PeerPosition, PositionFile
from drumlin.kg.client.calls import ChangeBatch
from drumlin.kg.config.peers import PeerSettings
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import SourceUnavailable, StoreUnavailable
from drumlin.kg.events import feed
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import NAMESPACE
from drumlin.kg.store.content import GraphContent
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite
from drumlin.kg.telemetry.binding import Place, is_told_apart
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.inventory import Inventory
from drumlin.kg.visibility.standing import standing_of, stub_of
from drumlin.kg.visibility.visible_set import Sight
from tests.in_process import AppWire, client_of
from tests.thoroughness import examples
from tests.unit.test_visible_set import said_in_full

BASE = "https://kg.example"
IRIS = Iris(BASE)
DOMAINS = ("alice", "bob", "carol")
TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
Said = tuple[tuple[str, str], ...]


def term(name: str) -> str:
    """Write a term of the vocabulary."""
    return f"<{NAMESPACE}{name}>"


def moment(at: datetime) -> str:
    """Write a time."""
    return f'"{at:%Y-%m-%dT%H:%M:%SZ}"^^<http://www.w3.org/2001/XMLSchema#dateTime>'


def service(cluster: str, name: str) -> str:
    """Name a Service of a cluster."""
    return IRIS.object(cluster, "ns", "Service", name)


def placed(cluster: str, graph: str) -> Said:
    """Say where a thing of a cluster stands."""
    name = (term("name"), f'"{graph.rpartition("/")[2]}"')
    return name, (term("namespace"), '"ns"'), (term("cluster"), f"<{IRIS.cluster(cluster)}>")


def of_domain(cluster: str, graph: str, domain: str, note: str = "") -> Said:
    """Say that a Service belongs to a domain."""
    more = ((term("label"), f'"note={note}"'),) if note else ()
    return (TYPE, term("Service")), *placed(cluster, graph), (term("domain"), f"<{IRIS.domain(domain)}>"), *more


class Network:
    """Services that follow one another, in this process, with one clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.seconds = 0.0
        self.sites = {each: Site(self, each) for each in DOMAINS}

    def followers(self) -> Iterator[PeerFollower]:
        """Yield all that follow."""
        for site in self.sites.values():
            yield from site.peers.values()

    def settle(self) -> None:
        """Let everybody follow until nothing is new."""
        for _ in range(4):
            for each in self.followers():
                each.turn()

    def close(self) -> None:
        """Close all."""
        for each in self.sites.values():
            each.close()


class Site:
    """A service of one domain: its application, the token that each other one has, and what follows the others."""

    def __init__(self, network: Network, name: str, **more: Any) -> None:
        self.network, self.name = network, name
        self.folder = network.folder / name
        settings = Settings(base=BASE, cluster=name, domain={"id": name}, discover=False, exporters=(), **more)
        self.parts = assemble(settings, directory=self.folder / "store")
        self.parts.visibility.clock = lambda: network.now
        self.app = create_app(self.parts)
        file = TokenFile(self.folder / "tokens.json")
        others = [each for each in DOMAINS if each != name]
        self.tokens = {each: file.create(each, Role.peer, domains=[each])[1] for each in others}
        self.app._access.authenticator = Authenticator(settings, file, unguarded=True)
        self.loop, self.lock = asyncio.new_event_loop(), threading.Lock()
        self.wires: dict[str, AppWire] = {}  # from others, by their names
        self.peers: dict[str, PeerFollower] = {}

    def follow(self, name: str) -> PeerFollower:
        """Follow another one, as a process does that has just begun."""
        giver = self.network.sites[name]
        wire = giver.wires.setdefault(self.name, AppWire(giver.app, giver.loop, giver.lock, giver.tokens[self.name]))
        settings = PeerSettings(name=name, url="http://localhost", token=Path("unused"), domains=(name,))
        self.peers[name] = PeerFollower(
            settings, client_of(wire), self.parts.store, IRIS, (self.name,), PositionFile(self.position_of(name)),
            self.parts.parsers, max_bytes=1_000_000, wait=0.0, clock=lambda: self.network.seconds,
        )  # fmt: skip
        return self.peers[name]

    def position_of(self, name: str) -> Path:
        """Return where the position of a peer is kept."""
        return self.folder / "store" / "peers" / f"{name}.json"

    def put(self, graph: str, said: Said | None, owner: str = "user") -> None:
        """Write or remove a graph, as its owner or not at all."""
        lines = None if said is None else frozenset(f"<{graph}> {name} {value} ." for name, value in said)
        here = self.parts.store.entry(graph)
        if here is None or here.owner == owner:
            self.parts.store.apply([GraphWrite.of(graph, lines, owner)])

    def forget_views(self) -> None:
        """Lose what was made for others: it is made anew, and its ids begin anew."""
        self.app._views.close()
        shutil.rmtree(self.folder / "store" / "views", ignore_errors=True)

    def clear(self) -> None:
        """Remove what is not its own description, and what parts it from others."""
        entries = [each for each in self.parts.store.entries() if each.owner != "drumlin"]
        self.parts.store.apply([GraphWrite(each.graph, None, each.owner) for each in entries])
        self.wires.clear()

    def given(self, name: str) -> dict[str, str]:
        """Return the digest of each graph that is here from a peer."""
        return {each.graph: each.digest for each in self.parts.store.entries(owner=f"peer:{name}")}

    def expected(self, name: str) -> dict[str, str]:
        """Return what the rules show of a peer, as far as it is accepted, from its store alone."""
        source, own = self.network.sites[name].parts.store, self.parts.store
        texts = {each.graph: source.read(each.graph).text for each in source.entries()}  # type: ignore[union-attr]
        graphs = {graph: standing_of(graph, text) for graph, text in texts.items()}
        seen = said_in_full(graphs, frozenset({IRIS.domain(self.name)}), self.network.now)
        shown: dict[str, str] = {}
        for graph, sight in seen.items():
            text = texts[graph] if sight is Sight.WHOLE else stub_of(graph, texts[graph])
            found, entry, here = standing_of(graph, text), source.entry(graph), own.entry(graph)
            homes = {found.home} if found.home else found.parties
            assert entry
            if (
                (IRIS.domain(name) in homes or graph == IRIS.domain(name))
                and not entry.owner.startswith("peer:")
                and (here is None or here.owner == f"peer:{name}")
                and not graph.startswith(f"{IRIS.root}{self.name}/")
            ):
                shown[graph] = GraphContent.of_text(text).digest
        return shown

    def close(self) -> None:
        """Close it."""
        self.app._views.close()
        self.loop.close()
        self.parts.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """Three services."""
    made = Network(tmp_path_factory.mktemp("network"))
    yield made
    made.close()


@pytest.fixture
def network(running: Network, monkeypatch: pytest.MonkeyPatch) -> Network:
    """Three services, each of which follows the two others, with nothing but themselves."""
    monkeypatch.setattr(feed, "UNREAD", 0.005)
    for site in running.sites.values():
        site.clear()
        for other in running.sites.keys() - {site.name}:
            site.position_of(other).unlink(missing_ok=True)
            site.follow(other)
    return running


def write_something(network: Network, chance: random.Random) -> None:
    """Write a graph, a grant, a task or a removal at one of the services."""
    site = network.sites[chance.choice(DOMAINS)]
    graph = service(site.name, str(chance.randrange(12)))
    match chance.randrange(12):
        case 0 | 1:
            site.put(graph, None)
        case 2 | 3 | 4:
            grant = IRIS.object(site.name, "ns", "DomainDataGrant", str(chance.randrange(6)), "kuscia.secretflow")
            until = network.now + timedelta(minutes=chance.choice([-5, 10, 45, 600]))
            what: Said = (
                (term("grants"), f"<{service(site.name, str(chance.randrange(12)))}>"),
                (term("grantedTo"), f"<{IRIS.domain(chance.choice(DOMAINS))}>"),
                (term("expiresAt"), moment(until)),
                (term("domain"), f"<{IRIS.domain(site.name)}>"),
            )
            site.put(grant, ((TYPE, term("Grant")), *placed(site.name, grant), *what))
        case 5:
            grant = IRIS.object(site.name, "ns", "DomainDataGrant", str(chance.randrange(6)), "kuscia.secretflow")
            site.put(grant, None)
        case 6 | 7:
            task = IRIS.object(site.name, "ns", "KusciaTask", str(chance.randrange(4)), "kuscia.secretflow")
            parties = [(term("party"), f"<{IRIS.domain(each)}>") for each in chance.sample(DOMAINS, 2)]
            site.put(task, ((TYPE, term("Task")), *placed(site.name, task), *parties))
        case 8:  # another one's name, which belongs to whoever was first
            other = service(chance.choice(DOMAINS), str(chance.randrange(12)))
            site.put(other, of_domain(site.name, other, site.name))
        case 9:
            site.put(graph, of_domain(site.name, graph, chance.choice(DOMAINS)))
        case _:
            site.put(graph, of_domain(site.name, graph, site.name, str(chance.randrange(1000))))


def disturb(network: Network, chance: random.Random) -> None:
    """Part two services, kill what follows one, lose its position or the giver's views, or let time pass."""
    site = network.sites[chance.choice(DOMAINS)]
    other = chance.choice([each for each in DOMAINS if each != site.name])
    match chance.randrange(7):
        case 0:
            site.follow(other)
        case 1:
            site.follow(other)
            site.position_of(other).unlink(missing_ok=True)
        case 2:
            site.forget_views()
        case 3 | 4:
            for wire in site.wires.values():
                wire.cut = chance.random() < 0.5
        case 5:
            network.seconds += COMPARED_SECONDS
        case _:
            network.now += timedelta(minutes=20)


@pytest.mark.parametrize("seed", range(examples(1)))
def test_replicas_equal_what_their_givers_show(network: Network, seed: int) -> None:
    """After any writes, grants that end, kills, lost positions, views made anew and partitions: each replica is the filtered source."""
    chance = random.Random(7 + seed)
    writes = 200 if examples(1) == 1 else 400
    for _ in range(writes // 25):
        for _ in range(25):
            write_something(network, chance)
        disturb(network, chance)
        for each in network.followers():
            if chance.random() < 0.6:
                with suppress(SourceUnavailable):  # the network is parted
                    each.turn()
        if chance.random() < 0.25:
            heal_and_compare(network)
    heal_and_compare(network)
    assert sum(each.state.written for each in network.followers()) > 20


def heal_and_compare(network: Network) -> None:
    """End all partitions, let everybody follow and compare; a graph whose local owner has gone comes with the next comparison."""
    for site in network.sites.values():
        for wire in site.wires.values():
            wire.cut = False
    network.seconds += COMPARED_SECONDS
    network.settle()
    for site in network.sites.values():
        for name, peer in site.peers.items():
            assert site.given(name) == site.expected(name), (site.name, name)
            assert peer.lag == 0
            assert peer.state.lag_generations() == 0


def share(network: Network, giver: str, graph: str, to: str) -> str:
    """Write a Service and the grant of it to another domain, for an hour; returns the grant."""
    site = network.sites[giver]
    site.put(graph, of_domain(giver, graph, giver))
    grant = IRIS.object(giver, "ns", "DomainDataGrant", f"to-{to}", "kuscia.secretflow")
    what = (term("grants"), f"<{graph}>"), (term("grantedTo"), f"<{IRIS.domain(to)}>")
    said = (TYPE, term("Grant")), *placed(giver, grant), *what, (term("domain"), f"<{IRIS.domain(giver)}>")
    site.put(grant, (*said, (term("expiresAt"), moment(network.now + timedelta(hours=1)))))
    return grant


def test_what_is_seen_no_more_is_withdrawn(network: Network) -> None:
    """A grant brings its data, its change is followed, and its end by the clock takes the data back, without a tombstone."""
    alice, bob = network.sites["alice"], network.sites["bob"]
    graph = service("alice", "shared")
    grant = share(network, "alice", graph, "bob")
    network.settle()
    assert {graph, grant, IRIS.domain("alice")} <= bob.given("alice").keys()
    assert graph not in network.sites["carol"].given("alice")
    alice.put(graph, of_domain("alice", graph, "alice", "other"))
    network.settle()
    found = bob.parts.store.read(graph)
    assert found is not None
    assert "note=other" in found.text
    network.now += timedelta(hours=2)
    network.settle()
    assert not {graph, grant} & bob.given("alice").keys()
    assert bob.parts.store.entry(graph) is None


def test_nothing_of_a_peer_is_passed_on(network: Network) -> None:
    """What bob has from alice is carol's only by alice's own feed, also when it is a grant to carol; people at bob see it."""
    graph = service("alice", "shared")
    share(network, "alice", graph, "bob")
    task = IRIS.object("alice", "ns", "KusciaTask", "of-all", "kuscia.secretflow")
    parties = [(term("party"), f"<{IRIS.domain(each)}>") for each in DOMAINS]
    network.sites["alice"].put(task, ((TYPE, term("Task")), *placed("alice", task), *parties))
    bob, carol = network.sites["bob"], network.sites["carol"]
    bob.peers["alice"].turn()
    assert {graph, task} <= bob.given("alice").keys()
    carol.peers["bob"].turn()
    assert not {graph, task} & carol.given("bob").keys()
    to_peer, to_people = (bob.parts.visibility.open(frozenset({"carol", "x"}), to_peer=each) for each in (True, False))
    assert task not in {each.graph for each in to_peer.entries()}
    assert task in {each.graph for each in to_people.entries()}
    bob.put(task, None, "peer:alice")
    bob.put(task, ((TYPE, term("Task")), *placed("alice", task), *parties), "user")
    to_peer.bring_up()
    assert task in {each.graph for each in to_peer.entries()}
    to_peer.close()
    to_people.close()


def test_a_peer_speaks_for_its_own_domains_only(network: Network) -> None:
    """Graphs of other domains, and below a cluster that is followed here, are refused and counted; a local owner's stays as it is."""
    alice, bob = network.sites["alice"], network.sites["bob"]
    claims = {
        "foreign": (service("alice", "x"), of_domain("alice", service("alice", "x"), "bob")),
        "squatting": (service("bob", "y"), of_domain("bob", service("bob", "y"), "alice")),
        "owned": (service("alice", "z"), of_domain("alice", service("alice", "z"), "alice")),
    }
    for graph, said in claims.values():
        alice.put(graph, (*said, (term("party"), f"<{IRIS.domain('bob')}>")))
    own = claims["owned"][0]
    bob.put(own, of_domain("alice", own, "bob"))
    before = bob.parts.store.entry(own)
    network.settle()
    assert not {graph for graph, _ in claims.values()} & bob.given("alice").keys()
    assert bob.parts.store.entry(own) == before
    refused = bob.peers["alice"].state.refused
    assert refused["foreign"] >= 2
    assert refused["owned"] >= 1


def test_other_terms_take_back_what_is_no_longer_accepted(network: Network) -> None:
    """A peer that speaks for no domain any more loses what it gave here, at the next start."""
    bob = network.sites["bob"]
    graph = service("alice", "shared")
    share(network, "alice", graph, "bob")
    network.settle()
    assert graph in bob.given("alice")
    peer = bob.follow("alice")
    settings = peer.settings.model_copy(update={"domains": ()})
    wire = network.sites["alice"].wires["bob"]
    PeerFollower(
        settings, client_of(wire), bob.parts.store, IRIS, ("bob",), PositionFile(bob.position_of("alice")),
        bob.parts.parsers, max_bytes=1_000_000, wait=0.0,
    ).turn()  # fmt: skip
    assert bob.given("alice") == {}


def test_a_position_is_kept_once_its_changes_are_written(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between a write and its position, the next life takes the change again; a file that is no position is not read."""
    bob = network.sites["bob"]
    network.settle()
    path = bob.position_of("alice")
    before = path.read_bytes()
    graph = service("alice", "shared")
    share(network, "alice", graph, "bob")
    with monkeypatch.context() as patch:

        def full(_: PositionFile, __: PeerPosition) -> None:
            raise StoreUnavailable("the disk is full")

        patch.setattr(PositionFile, "write", full)
        with pytest.raises(StoreUnavailable):
            bob.peers["alice"].turn()
    assert graph in bob.given("alice")
    assert path.read_bytes() == before
    again = bob.follow("alice")
    again.turn()
    assert (again.state.written, again.state.compared) == (0, 0)
    assert path.read_bytes() != before
    path.write_bytes(b"{}")
    anew = bob.follow("alice")
    anew.turn()
    assert (anew.state.written, anew.state.compared) == (0, 1)


def test_a_giver_that_is_away_leaves_what_it_gave(network: Network) -> None:
    """Its graphs stay, the lag grows, the error is reported, and the pauses between two tries grow up to a minute."""
    bob = network.sites["bob"]
    graph = service("alice", "shared")
    share(network, "alice", graph, "bob")
    network.settle()
    peer = bob.peers["alice"]
    network.sites["alice"].wires["bob"].cut = True
    pauses = []
    for _ in range(10):
        network.seconds += 10
        assert not peer._done()
        pauses.append(peer._seconds)
    assert graph in bob.given("alice")
    assert peer.lag == 100
    assert peer.failure is not None
    assert "parted" in peer.failure
    assert pauses[0] <= 1
    assert 30 <= pauses[-1] <= 60
    network.sites["alice"].wires["bob"].cut = False
    assert not peer._done()
    assert (peer.failure, peer._seconds, peer.lag) == (None, 0.1, 0)


def test_an_answer_of_no_drumlin_is_tried_again_later(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails in an unforeseen way is reported and tried again after a pause, never in a loop without one."""
    peer = network.sites["bob"].peers["alice"]
    peer.turn()
    batch = ChangeBatch("9.0", 9, peer._position.read().history, [{"no": "event"}])  # type: ignore[union-attr]
    monkeypatch.setattr(peer._giver, "next_changes", lambda *_, **__: batch)
    assert not peer._done()
    assert peer.failure is not None
    assert peer._seconds >= 0.5


def test_what_states_no_domain_belongs_to_that_of_what_it_is_within(network: Network) -> None:
    """Tombstones come with their namespace and notes with their entity, at the first look too; without these they are withdrawn."""
    alice, bob = network.sites["alice"], network.sites["bob"]
    namespace = IRIS.object("alice", None, "Namespace", "ns")
    cluster, home = (term("cluster"), f"<{IRIS.cluster('alice')}>"), (term("domain"), f"<{IRIS.domain('alice')}>")
    alice.put(namespace, ((TYPE, term("Namespace")), (term("name"), '"ns"'), cluster, home))
    file = TokenFile(alice.folder / "tokens.json")
    token = file.create("all-of-alice", Role.peer, domains=["alice"])[1]  # an operator may give all that is its own
    alice.wires["bob"] = AppWire(alice.app, alice.loop, alice.lock, token)
    alice.app._access.authenticator = Authenticator(alice.parts.settings, file, unguarded=True)
    peer = bob.follow("alice")
    graphs = [service("alice", each) for each in ("first", "second")]
    for each in graphs:
        alice.put(each, of_domain("alice", each, "alice"))
    alice.parts.subgraphs.delete(graphs[0])
    notes = IRIS.notes(graphs[1])
    alice.put(notes, (("<http://www.w3.org/2000/01/rdf-schema#comment>", '"remark"'),))
    peer.turn()
    assert notes in bob.given("alice")
    alice.parts.subgraphs.delete(graphs[1])
    peer.turn()
    for each in graphs:
        found = bob.parts.store.read(each)
        assert found is not None
        assert f"{TYPE} {term('Tombstone')}" in found.text
    alice.put(notes, None)
    alice.put(namespace, None)
    peer.turn()
    assert not {*graphs, namespace, notes} & bob.given("alice").keys()


def test_what_peers_give_makes_no_series_of_ones_own_ambiguous(tmp_path: Path) -> None:
    """Clusters and domains of peers are none of this service's, also where some of a cluster is its own; series of peers are not asked here."""
    store = EmbeddedStore(tmp_path / "store")

    def put(owner: str, cluster: str, *graphs: str) -> None:
        said = {each: frozenset({f"<{each}> {TYPE} {term('Namespace')} .",
                f"<{each}> {term('domain')} <{IRIS.domain(cluster)}> ."}) for each in graphs}  # fmt: skip
        store.apply([GraphWrite.of(each, lines, owner) for each, lines in said.items()])

    put(
        "kubernetes", "alice", IRIS.cluster("alice"), IRIS.domain("alice"), IRIS.object("alice", None, "Namespace", "a")
    )
    put("peer:bob", "bob", IRIS.cluster("bob"), IRIS.domain("bob"), IRIS.object("bob", None, "Namespace", "b"))
    put("peer:bob", "bob", IRIS.object("lab", None, "Namespace", "a"), IRIS.object("granted", "ns", "Service", "s"))
    put("agent:1", "alice", IRIS.object("lab", None, "Host", "b"))
    found = Inventory(store, IRIS)
    assert (found.clusters, found.declared, found.domains) == ({"alice", "lab"}, {"alice"}, {"alice"})
    assert {(each.cluster, each.domain) for each in found.members} == {("alice", "alice"), ("lab", "bob")}
    server = Datasource("p", IRIS.datasource("p"), "prometheus", "http://p")
    for cluster, told in (("alice", True), ("bob", False)):
        assert is_told_apart(server, Place((cluster,)), {"alice"}, ()) is told
    store.close()


def test_names_below_the_base_of_a_peer_are_known_names(tmp_path: Path) -> None:
    """They are read, listed, searched, counted, linked and shown by their full IRI, and nobody writes over them."""
    (tmp_path / "token").write_text("drumlin_x")
    base = "https://bob.example/kg"
    peer = {"name": "bob", "url": "http://127.0.0.1:9", "token": tmp_path / "token", "base": base, "domains": ["bob"]}
    parts = assemble(Settings(base=BASE, peer=[peer], discover=False, exporters=()), directory=tmp_path / "store")
    parts.peers[0].stop()
    theirs = Iris(base)
    graph, home = theirs.object("c", "ns", "Service", "shop"), theirs.domain("bob")
    said = {f"<{graph}> {TYPE} {term('Service')} .", f'<{graph}> {term("name")} "shop" .',
            f"<{graph}> {term('domain')} <{home}> ."}  # fmt: skip
    about = {f"<{home}> {TYPE} {term('Domain')} .", f'<{home}> {term("name")} "bob" .'}
    written = {graph: said, home: about}
    parts.store.apply([GraphWrite.of(each, frozenset(lines), "peer:bob") for each, lines in written.items()])
    app = create_app(parts)
    encoded, other = quote(graph, safe=""), {"id": home, "type": "Domain", "name": "x"}

    async def ask() -> dict[str, httpx.Response]:
        transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            paths = (f"/subgraph/{encoded}", f"/subgraph/{graph}", "/subgraphs?owner=peer:bob", "/search?q=shop",
                     "/events?since=1", f"/doc/{encoded}.html", f"/subgraph/{encoded}?depth=1",
                     f"/resolve?entity={encoded}&metric=cpu_usage")  # fmt: skip
            headers = {"Accept": "application/json"}
            found = {each: await client.get(each, headers=headers) for each in paths}
            return found | {"PUT": await client.put(f"/subgraph/{quote(home, safe='')}", json=other)}

    try:
        answers = asyncio.run(ask())
        one, plain, listed, searched, events, page, around, resolved, put = answers.values()
        assert {each.status_code for each in (one, plain, listed, searched, events, page, around)} == {200}
        assert one.json()["id"] == plain.json()["id"] == graph
        assert f'<{graph}>; rel="describes"' in one.headers["Link"]
        assert [each["iri"] for each in listed.json()["items"]] == [graph, home]
        assert [each["id"] for each in searched.json()["items"]] == [graph]
        told = {each["subject"]: each["data"] for each in events.json()}
        assert (told[graph]["type"], told[graph]["domain"]) == ("Service", "bob")
        assert "shop" in page.text
        assert around.headers["X-Drumlin-Graphs"] == "2"
        assert (resolved.status_code, "the service that names it" in resolved.json()["detail"]) == (404, True)
        assert (put.status_code, put.json().get("owner")) == (409, "peer:bob"), put.text
    finally:
        app._views.close()
        parts.close()


def test_the_state_of_peers_is_told_on_a_page_in_metrics_and_to_nobody_who_is_limited(tmp_path: Path) -> None:
    """Lag, position, counts and the last error of each peer; a giver that is away is no reason to fail."""
    (tmp_path / "token").write_text("drumlin_x")
    peer = {"name": "bob", "url": "http://127.0.0.1:9", "token": tmp_path / "token", "domains": ["bob"]}
    parts = assemble(Settings(base=BASE, peer=[peer], discover=False, exporters=()), directory=tmp_path / "store")
    app = create_app(parts)

    async def ask(*paths: str) -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return [await client.get(each) for each in paths]

    try:
        assert not parts.peers[0]._done()
        told, page, metrics = asyncio.run(ask("/peers", "/peers.html", "/metrics"))
        (item,) = told.json()["items"]
        assert (item["name"], item["graphs"], item["position"], item["lagGenerations"]) == ("bob", 0, None, None)
        assert "127.0.0.1:9" in item["error"]
        assert item["error"].split(" to ")[0] in page.text
        assert 'drumlin_peer_failing{peer="bob"} 1.0' in metrics.text
        assert 'drumlin_peer_lag_seconds{peer="bob"}' in metrics.text
        file = TokenFile(tmp_path / "store" / "tokens.json")
        token = file.create("limited", Role.admin, domains=["alice"])[1]
        app._access.authenticator = Authenticator(parts.settings, file, unguarded=True)

        async def limited() -> list[int]:
            transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
            headers = {"Authorization": f"Bearer {token}"}
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
                return [(await client.get(each)).status_code for each in ("/peers", "/peers.html")]

        assert asyncio.run(limited()) == [403, 403]
    finally:
        app._views.close()
        parts.close()
