"""Writes and feeds of callers that are limited to domains, by every way in: nothing of another domain is touched, or seen to be there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from drumlin.api.access.callers import Role
from drumlin.api.bootstrap import Services, assemble
from drumlin.kg.config.issuers import GrantSettings
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import Busy
from drumlin.kg.rdf import jsonld
from drumlin.kg.store.protocol import GraphWrite
from tests.store.test_domains import BASE, IRIS, Asked
from tests.store.test_visible_store import grant, of_domain

OWN, ANOTHERS, NEW, ASSET = (
    f"main/ns/domaindata.kuscia.secretflow/{name}" for name in ("own", "hidden", "new", "asset")
)
LABEL = "<https://w3id.org/drumlin/ns#label>"


def graph(id: str) -> str:
    """Return the IRI of a graph, in brackets."""
    return f"<{IRIS.root}{id}>"


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """A service with room for two sets of domains."""
    store = tmp_path_factory.mktemp("store")
    made = assemble(Settings(base=BASE, cluster="main", domain_views=2), directory=store)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def as_it_was(parts: Services) -> None:
    """Begin with a graph of alice's and one of bob's."""
    for entry in parts.store.entries(prefix=f"{IRIS.root}main/"):
        parts.store.apply([GraphWrite(entry.graph, None, entry.owner)])
    for id, domain in ((OWN, "alice"), (ANOTHERS, "bob")):
        said = jsonld.lines(json.loads(document(id, domain, label=["a=b"])))
        parts.store.apply([GraphWrite.of(IRIS.root + id, said, "user")])


@pytest.fixture(scope="module")
def alice(parts: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """A writer that is limited to alice."""
    made = Asked(parts, tmp_path_factory.mktemp("tokens") / "alice.json", ["alice"], Role.writer)
    yield made
    made.close()


def document(id: str, domain: str | None, **more: Any) -> str:
    """Return a document of an entity."""
    said = {"id": IRIS.root + id, "type": "DataAsset", "name": id.rpartition("/")[2], "assetType": "DomainData", **more}
    said |= {"cluster": IRIS.cluster("main"), "namespace": "ns"}
    return json.dumps(
        {"@context": f"{BASE}/context/v1.jsonld", **said, **({"domain": IRIS.domain(domain)} if domain else {})}
    )


SENT = {"Content-Type": "application/ld+json"}


@pytest.mark.parametrize(
    ("method", "id", "domain", "more", "status"),
    [
        ("PUT", ASSET, "alice", {}, 201),
        ("PUT", ASSET, "bob", {}, 403),
        ("PUT", ASSET, None, {}, 403),
        ("PUT", ANOTHERS, "alice", {}, 404),
        ("PUT", ANOTHERS, "alice", {"If-None-Match": "*"}, 404),
        ("PUT", ANOTHERS, "alice", {"If-Match": '"x"'}, 412),
        ("POST", ANOTHERS, "alice", {}, 404),
        ("DELETE", ANOTHERS, None, {}, 404),
        ("GET", ANOTHERS, None, {}, 404),
        ("GET", ANOTHERS, None, {"If-None-Match": "*"}, 404),
        ("DELETE", OWN, None, {}, 204),
    ],
)
def test_a_graph_of_another_domain_is_not_there(
    parts: Services, alice: Asked, method: str, id: str, domain: str | None, more: dict[str, str], status: int
) -> None:
    """PUT, POST and DELETE reach own graphs; hidden ones are 404, as absent ones are, and stay as they are."""
    before = parts.store.entry(IRIS.root + ANOTHERS)
    content = None if method in ("GET", "DELETE") else document(id, domain)
    answer = alice.one(method, f"/subgraph/{id}", headers={**SENT, **more}, content=content)
    if status == 412:  # the condition on what is not there
        absent = alice.one(
            method,
            f"/subgraph/{id}-absent",
            headers={**SENT, **more},
            content=content and content.replace(id, f"{id}-absent"),
        )
        assert answer.status_code == absent.status_code
    else:
        assert answer.status_code == status, answer.text
    assert parts.store.entry(IRIS.root + ANOTHERS) == before
    assert "bob" not in answer.text or domain == "bob"


@pytest.mark.parametrize(
    "update",
    [
        f'INSERT DATA {{ GRAPH {graph(ANOTHERS)} {{ {graph(ANOTHERS)} {LABEL} "x=y" }} }}',
        f'DELETE DATA {{ GRAPH {graph(ANOTHERS)} {{ {graph(ANOTHERS)} {LABEL} "a=b" }} }}',
        f'INSERT {{ GRAPH {graph(ANOTHERS)} {{ ?s {LABEL} "x=y" }} }} WHERE {{ GRAPH {graph(OWN)} {{ ?s ?p ?o }} }}',
        f"COPY {graph(OWN)} TO {graph(ANOTHERS)}",
        f"MOVE {graph(OWN)} TO {graph(ANOTHERS)}",
        f"ADD {graph(OWN)} TO {graph(ANOTHERS)}",
        f"DROP GRAPH {graph(ANOTHERS)}",
        f"CLEAR GRAPH {graph(ANOTHERS)}",
        "DROP ALL",
        "CLEAR NAMED",
        "DELETE { GRAPH ?g { ?s ?p ?o } } WHERE { GRAPH ?g { ?s ?p ?o } }",
        f"INSERT {{ GRAPH {graph(OWN)} {{ {graph(OWN)} {LABEL} ?o }} }} WHERE {{ GRAPH {graph(ANOTHERS)} {{ ?s {LABEL} ?o }} }}",
        f"COPY {graph(ANOTHERS)} TO {graph(OWN)}",
        f"INSERT {{ GRAPH {graph(OWN)} {{ {graph(OWN)} {LABEL} ?n }} }} WHERE {{ SELECT (STR(COUNT(*)) AS ?n) {{ GRAPH ?g {{ ?s {LABEL} ?o }} }} }}",
    ],
)
def test_no_update_reaches_or_reads_what_is_hidden(parts: Services, alice: Asked, update: str) -> None:
    """Whatever an update says, hidden graphs stay as they are and nothing of them comes into own graphs."""
    name = IRIS.root + ANOTHERS
    before = parts.store.entry(name)
    sent = {"Content-Type": "application/sparql-update"}
    answer = alice.one("POST", "/sparql/update", headers=sent, content=update)
    assert parts.store.entry(name) == before
    assert answer.status_code < 500, answer.text
    own = parts.store.read(IRIS.root + OWN)
    if own is not None:
        labels = sorted(line for line in own.lines if LABEL in line)
        assert all('"a=b"' in each or '"x=y"' in each or '"1"' in each for each in labels)


def test_an_update_of_own_graphs_is_applied(parts: Services, alice: Asked) -> None:
    """An update changes own graphs, and says of those that it may not change why."""
    sent = {"Content-Type": "application/sparql-update"}
    own = f'INSERT DATA {{ GRAPH {graph(OWN)} {{ {graph(OWN)} {LABEL} "c=d" }} }}'
    assert alice.one("POST", "/sparql/update", headers=sent, content=own).is_success
    assert f'{graph(OWN)} {LABEL} "c=d" .' in (parts.store.read(IRIS.root + OWN) or ())
    moved = f'INSERT DATA {{ GRAPH {graph(NEW)} {{ {graph(NEW)} {LABEL} "c=d" }} }}'
    refused = alice.one("POST", "/sparql/update", headers=sent, content=moved)
    assert refused.status_code in (403, 422), refused.text


def test_a_bulk_request_reports_each_line(parts: Services, alice: Asked) -> None:
    """Of many writes the own ones are done, and each other one is refused in its line."""
    rows = [
        {"op": "put", "id": ASSET, "document": json.loads(document(ASSET, "alice"))},
        {"op": "put", "id": f"{ASSET}-2", "document": json.loads(document(f"{ASSET}-2", "bob"))},
        {"op": "delete", "id": ANOTHERS},
    ]
    body = "\n".join(map(json.dumps, rows))
    answer = alice.one("POST", "/subgraphs", headers={"Content-Type": "application/x-ndjson"}, content=body)
    told = [json.loads(each) for each in answer.text.splitlines()]
    assert parts.store.entry(IRIS.root + ASSET) is not None
    assert parts.store.entry(IRIS.root + f"{ASSET}-2") is None
    assert parts.store.entry(IRIS.root + ANOTHERS) is not None
    assert [each.get("problem", {}).get("status") for each in told[:3]] == [None, 403, 404], told


def test_the_feed_reports_what_becomes_invisible_as_removed(parts: Services, alice: Asked) -> None:
    """A graph that moves to another domain is removed in the feed of the first, and nothing is said of what it becomes."""
    batch = {"Accept": "application/cloudevents-batch+json"}
    first = alice.one("GET", "/events?since=0", headers=batch)
    while first.json():  # a batch may end before the newest change
        first = alice.one("GET", f"/events?since={first.headers['X-Drumlin-Last-Event-Id']}", headers=batch)
    name = IRIS.root + OWN
    parts.store.apply([GraphWrite.of(name, of_domain(name, "bob", "classified"), "user")])
    parts.store.apply(
        [GraphWrite.of(IRIS.root + ANOTHERS, of_domain(IRIS.root + ANOTHERS, "bob", "classified"), "user")]
    )
    last, said, gone = first.headers["X-Drumlin-Last-Event-Id"], "", set[tuple[str, str]]()
    for _ in range(20):  # one may also end, empty, before the feed has seen them
        found = alice.one("GET", f"/events?since={last}&quads=true", headers=batch)
        last, said = found.headers["X-Drumlin-Last-Event-Id"], said + found.text
        gone |= {(each["type"], each["subject"]) for each in found.json()}
        if len(gone) >= 2:
            break
    assert gone == {("drumlin.subgraph.removed", OWN), ("drumlin.subgraph.removed", "cluster/main")}
    assert "classified" not in said


def test_granted_data_is_seen_until_the_grant_ends(parts: Services, tmp_path: Path) -> None:
    """Data that bob grants to alice is there for her, in search and SPARQL too, and gone when the grant has ended."""
    data, given = IRIS.root + "main/ns/domaindata/table", IRIS.root + "main/ns/grant/table-to-alice"
    parts.store.apply([GraphWrite.of(data, of_domain(data, "bob", "table"), "user")])
    end = datetime.now(UTC) + timedelta(hours=1)
    parts.store.apply([GraphWrite.of(given, grant(given, data, "bob", "alice", end), "user")])
    moment = [datetime.now(UTC)]
    parts.visibility.clock = lambda: moment[0]
    reader = Asked(parts, tmp_path / "r.json", ["alice", "zoe"])
    ask = f"/sparql?query=ASK%20%7B%3C{data}%3E%20%3Fp%20%3Fo%7D"
    assert reader.one("GET", f"/subgraph/{data.removeprefix(IRIS.root)}").is_success
    assert reader.one("GET", ask, headers={"Accept": "application/sparql-results+json"}).json()["boolean"] is True
    moment[0] = end
    assert reader.one("GET", f"/subgraph/{data.removeprefix(IRIS.root)}").status_code == 404
    assert reader.one("GET", ask, headers={"Accept": "application/sparql-results+json"}).json()["boolean"] is False
    reader.close()


def test_routes_about_the_whole_service_are_closed_to_limited_callers(
    alice: Asked, parts: Services, tmp_path: Path
) -> None:
    """Metrics and administration are 403, also for an admin that is limited; probes say what they say to everybody."""
    admin = Asked(parts, tmp_path / "admin.json", ["alice"], Role.admin)
    for path in ("/metrics", "/admin/check"):
        answer = admin.one("GET", path)
        assert answer.status_code == 403
        assert "whole service" in answer.json()["detail"]
    assert alice.one("GET", "/readyz").json().keys() == {"status"}
    admin.close()


def test_views_give_way_to_others_unless_they_are_in_use(parts: Services, tmp_path: Path) -> None:
    """Two sets are open at once here: a third one takes the place of the one not asked for longest, and is refused while both are in use."""
    asked = Asked(parts, tmp_path / "a.json", ["bob"])
    views = asked.app._views

    async def run() -> None:
        async with views.lent(frozenset({"dora"})) as first:
            async with views.lent(frozenset({"dora"})) as again:
                assert again is first
            async with views.lent(frozenset({"bob"})):
                with pytest.raises(Busy):
                    async with views.lent(frozenset({"carol"})):
                        pass
            async with views.lent(frozenset({"carol"})):
                assert (frozenset({"bob"}), False) not in views._open
        async with views.lent(frozenset({"bob"})) as bobs:
            assert [each.graph for each in bobs.parts.store.entries(prefix=f"{IRIS.root}main/")] == [
                IRIS.root + ANOTHERS
            ]

    asyncio.run(run())
    asked.close()


def test_a_claim_limits_to_domains() -> None:
    """A grant limits to the domains that it lists, or that a claim lists; without the claim it does not fit."""
    fixed = GrantSettings(claim="groups", value="a*", role="reader", domains=("alice",))
    by_claim = GrantSettings(claim="groups", value="*", role="reader", domain_claim="x.domains")
    claims = {"groups": ["a1"], "x": {"domains": ["alice", "bob", 7]}}
    assert fixed.limits(claims) == {"alice"}
    assert by_claim.fits(claims)
    assert by_claim.limits(claims) == {"alice", "bob"}
    assert not by_claim.fits({"groups": ["a1"], "x": {"domains": []}})
    assert GrantSettings(value="*", role="reader").limits(claims) is None
