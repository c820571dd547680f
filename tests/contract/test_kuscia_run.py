"""A Kuscia network of two domains and two jobs: each row of its ``expected.json`` is a fact of the graph, however the events come."""

from __future__ import annotations

import copy
import json
import os
import random
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pyoxigraph as ox
import pytest

from drumlin.exporters.protocol import Change, Gone, Synced, Upserted
from drumlin.kg.graphs import open_lineage
from drumlin.kg.model.iris import Iris
from drumlin.queries import catalogue
from tests.memory_sink import MemorySink
from tests.unit.rendering import BY_NAME, CONTRACT, KINDS, around, following

RUN = Path(__file__).parents[2].parent / "shared" / "data" / "kuscia-run"
pytestmark = pytest.mark.skipif(
    not RUN.is_dir() and os.environ.get("CI") != "true", reason="no recorded run at ../shared/data/kuscia-run"
)
EXPECTED: dict[str, Any] = json.loads((RUN / "expected.json").read_text()) if RUN.is_dir() else {}
OBSERVED = datetime(2026, 11, 29, 9, 10, tzinfo=UTC)
SETTINGS = {
    **CONTRACT,
    "domain": {"id": "kuscia-system", "type": "Domain", "role": ["Master"]},
    "exporters": ["cadvisor", "kuscia"],
    "discover": False,
    "datasource": [
        {
            "name": "prometheus-main",
            "kind": "prometheus",
            "url": "http://prometheus.example:9090",
            "matchers": {"instance": "{domain}-gw.internal:9091"},
        }
    ],
}
ROOT = "https://kg.example/id/"
IRIS = Iris("https://kg.example")
PREFIXES = """PREFIX : <https://w3id.org/drumlin/ns#> PREFIX prov: <http://www.w3.org/ns/prov#>
PREFIX dcterms: <http://purl.org/dc/terms/> PREFIX csvw: <http://www.w3.org/ns/csvw#>
"""
OUTCOMES = {"Succeeded": "Completed", "Stopped": "Deleted", "OOMKilled": "OOMKilled"}
"""The outcomes of ``expected.json`` in the ontology's words: what was stopped was deleted while it ran."""


def task(name: str) -> str:
    """Return the short id of a task."""
    return f"prod/cross-domain/kusciatask.kuscia.secretflow/{name}"


def job(name: str) -> str:
    """Return the short id of a job."""
    return f"prod/cross-domain/kusciajob.kuscia.secretflow/{name}"


def data(name: str) -> str:
    """Return the short id of ``namespace/name``."""
    domain, _, own = name.partition("/")
    return f"prod/{domain}/domaindata.kuscia.secretflow/{own}"


def route(name: str) -> str:
    """Return the short id of a route."""
    return f"prod/-/clusterdomainroute.kuscia.secretflow/{name}"


def pod(name: str) -> str:
    """Return the short id of ``namespace/name``."""
    namespace, _, own = name.partition("/")
    return f"prod/{namespace}/pod/{own}"


def objects(folder: str) -> list[dict[str, Any]]:
    """Return all objects of a moment, with their kind written into each."""
    found = []
    for kind in KINDS:
        listed = RUN / folder / f"{kind.plural}.json"
        if listed.is_file():
            items = json.loads(listed.read_text())["items"]
            found += [{**each, "kind": kind.name, "apiVersion": kind.api_version} for each in items]
    return found


def events() -> list[dict[str, Any]]:
    """Return the watch events of all kinds in the order in which they happened."""
    by_plural = {kind.plural: kind for kind in KINDS}
    found = []
    for file in (each for each in sorted((RUN / "watch").glob("*.ndjson")) if each.stem in by_plural):
        for line in file.read_text().splitlines():
            event = json.loads(line)
            if event["type"] != "BOOKMARK":
                event["object"] |= {"kind": by_plural[file.stem].name}
                found.append(event)
    return sorted(found, key=lambda each: int(each["object"]["metadata"]["resourceVersion"]))


def change(document: dict[str, Any], kind: str = "MODIFIED") -> Change:
    """Return one event as the change that a source makes of it."""
    row = BY_NAME[document["kind"]]
    read = msgspec.json.decode(json.dumps(document), type=row.projection)
    return Gone(row, read, OBSERVED) if kind == "DELETED" else Upserted(row, read)


def changes() -> list[Change]:
    """Return what the source reports: what was there, that this was all, then the events."""
    return [
        *map(change, objects("before")),
        *(Synced(kind, OBSERVED) for kind in KINDS),
        *(change(each["object"], each["type"]) for each in events()),
    ]


def written(reported: list[Change], *, slowly: bool = False, sink: MemorySink | None = None) -> MemorySink:
    """Return the graphs after changes; ``slowly`` writes after each."""
    sink = sink or MemorySink()
    run = following(sink, around(SETTINGS))
    for each in reported:
        run.take(each)
        if slowly:
            run.flush()
    run.flush(everything=True)
    assert run.summary.rejected == []
    assert run.summary.left_out == []
    return sink


@cache
def sink() -> MemorySink:
    """Return the graphs at the end of the run."""
    return written(changes())


@cache
def store() -> ox.Store:
    """Return the graphs at the end of the run in an engine."""
    return engine(sink())


def engine(graphs: MemorySink) -> ox.Store:
    """Put graphs into an engine."""
    store = ox.Store()
    for graph, lines in graphs.graphs.items():
        triples = ox.parse("\n".join(lines).encode(), format=ox.RdfFormat.N_TRIPLES)
        store.extend(ox.Quad(each.subject, each.predicate, each.object, ox.NamedNode(graph)) for each in triples)
    return store


def short(term: Any) -> str | None:
    """Return a term as people write it."""
    if term is None:
        return None
    return term.value.removeprefix(ROOT).removeprefix("https://w3id.org/drumlin/ns#")


def ask(query: str, about: str | None = None) -> list[tuple[str | None, ...]]:
    """Ask the union of all graphs; ``$x`` stands for the IRI of ``about``."""
    text = PREFIXES + query.replace("$x", f"<{ROOT}{about}>")
    found = store().query(text, use_default_graph_as_union=True)
    assert isinstance(found, ox.QuerySolutions)
    return sorted(tuple(short(term) for term in row) for row in found)


def values(query: str, about: str | None = None) -> set[str | None]:
    """Return the first column of an answer."""
    return {row[0] for row in ask(query, about)}


# -- runs, jobs, tasks, parties -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", EXPECTED.get("runs", ()), ids=lambda row: f"{row['namespace']}/{row['pod']}")
def test_a_pod_ran_for_its_task(row: dict[str, Any]) -> None:
    """Each pod's run has its uid, start, end, outcome and node, and the task manages it, also when the pod is gone."""
    about = pod(f"{row['namespace']}/{row['pod']}")

    assert ask(
        "SELECT ?start ?end ?outcome ?task ?node WHERE { $x :managedBy ?task . ?run :runOf $x ; prov:startedAtTime ?start ;"
        " prov:endedAtTime ?end ; :outcome ?outcome ; :scheduledOn ?node }",
        about,
    ) == [(row["start"], row["end"], OUTCOMES[row["outcome"]], task(row["task"]), f"prod/-/node/{row['party']}-node-0")]
    assert values("SELECT ?run WHERE { ?run :runOf $x }", about) == {f"{about}/run/{row['uid']}"}
    assert values("SELECT ?type WHERE { $x a ?type }", about) == {"Pod" if row["inAfter"] else "Tombstone"}


@pytest.mark.parametrize("row", EXPECTED.get("runs", ()), ids=lambda row: f"{row['namespace']}/{row['pod']}")
def test_a_party_is_a_part_of_its_task(row: dict[str, Any]) -> None:
    """The part of a domain in a task names the domain, its role and its phase."""
    party = f"{task(row['task'])}/party/{row['party']}"
    failed = row["outcome"] != "Succeeded"

    assert ask(
        "SELECT ?domain ?phase WHERE { ?task dcterms:hasPart $x . $x a :Party ; :domain ?domain ; :phase ?phase }",
        party,
    ) == [(f"domain/{row['party']}", "Failed" if failed else "Succeeded")]
    assert values("SELECT ?role WHERE { $x :partyRole ?role }", party) == ({row["role"]} if row["role"] else set())


TASKS = [
    (job_name, alias, spec)
    for job_name, told in EXPECTED.get("jobs", {}).items()
    for alias, spec in told["tasks"].items()
]


@pytest.mark.parametrize("name", EXPECTED.get("jobs", ()))
def test_a_job_has_its_phase_and_its_run(name: str) -> None:
    """Phase, start and end of the job."""
    told = EXPECTED["jobs"][name]

    assert ask(
        "SELECT ?phase ?start ?end WHERE { $x a :Workflow ; :phase ?phase ; :initiator ?initiator . ?run :runOf $x ;"
        " prov:startedAtTime ?start ; prov:endedAtTime ?end }",
        job(name),
    ) == [(told["phase"], told["start"], told["end"])]


@pytest.mark.parametrize(("name", "alias", "spec"), TASKS, ids=lambda each: each if isinstance(each, str) else "")
def test_a_step_of_the_plan_names_its_task_and_what_it_waits_for(name: str, alias: str, spec: dict[str, Any]) -> None:
    """The DAG is in the job's own graph, with the steps whose tasks were never created."""
    step = f"{job(name)}/step/{alias}"

    assert values("SELECT ?task WHERE { ?job dcterms:hasPart $x . $x :task ?task }", step) == {task(spec["id"])}
    assert values("SELECT ?other WHERE { $x :dependsOn ?other . ?other a :Step }", step) == {
        f"{job(name)}/step/{each}" for each in spec["dependsOn"]
    }


@pytest.mark.parametrize(("name", "alias", "spec"), TASKS, ids=lambda each: each if isinstance(each, str) else "")
def test_a_task_is_one_of_its_job(name: str, alias: str, spec: dict[str, Any]) -> None:
    """Each task that was created has phase and end, its job manages it, and it depends on the tasks of the steps before it."""
    del alias
    steps = {each: told["id"] for each, told in EXPECTED["jobs"][name]["tasks"].items()}
    rows = ask(
        "SELECT ?phase ?end ?job WHERE { $x a :Task ; :phase ?phase ; :managedBy ?job . ?run :runOf $x ; prov:endedAtTime ?end }",
        task(spec["id"]),
    )

    assert rows == ([] if spec["phase"] is None else [(spec["phase"], spec["end"], job(name))])
    if rows:
        assert values("SELECT ?other WHERE { $x :dependsOn ?other . ?other a :Task }", task(spec["id"])) == {
            task(steps[each]) for each in spec["dependsOn"]
        }


def test_the_cause_is_the_party_with_a_reason() -> None:
    """Of a failed job: task, party, role, reason, pod and exit code; the party that was stopped has no reason."""
    why = EXPECTED["whyFailed"]

    assert ask(
        "SELECT ?task ?domain ?role ?reason ?pod ?code WHERE { ?task :managedBy $x ; :phase :Failed ; dcterms:hasPart ?party ."
        " ?party :domain ?domain ; :partyRole ?role ; :reason ?reason ."
        " ?pod :managedBy ?task ; :domain ?domain . ?run :runOf ?pod ; :transition/:exitCode ?code }",
        job(why["job"]),
    ) == [
        (
            task(why["task"]),
            f"domain/{why['party']}",
            why["role"],
            why["reason"],
            pod(why["pod"]),
            str(why["exitCode"]),
        )
    ]
    for party in why["notTheCause"]:
        assert ask("SELECT ?reason WHERE { $x :reason ?reason }", f"{task(why['task'])}/party/{party}") == []
    for name in why["neverStarted"]:
        assert ask("SELECT ?type WHERE { $x a ?type }", task(name)) == []
        assert ask("SELECT ?step WHERE { ?step :task $x }", task(name)) != []


def test_a_party_has_the_room_that_was_set_aside_for_it() -> None:
    """Requests and limits of a party come from its TaskResource, as long as that exists."""
    failed = EXPECTED["whyFailed"]["task"]
    for party in ("alice", "bob"):
        assert ask(
            "SELECT ?cpu ?limit ?memory WHERE { $x :cpuRequest ?cpu ; :cpuLimit ?limit ; :memoryLimit ?memory }",
            f"{task(failed)}/party/{party}",
        ) == [("1", "2", "1073741824")]


def test_the_phase_of_a_party_before_it_runs_is_that_of_its_room() -> None:
    """While the task says nothing of a party, it is Reserved and then Schedulable, as its TaskResource is."""
    seen: dict[str, list[str]] = {}
    graphs = MemorySink()
    run = following(graphs, around(SETTINGS))
    party = f"{ROOT}{task(EXPECTED['whyFailed']['task'])}/party/bob"
    for each in changes():
        run.take(each)
        run.flush()
        for line in graphs.graphs.get(party.rpartition("/party/")[0], ()):
            if line.startswith(f"<{party}> <https://w3id.org/drumlin/ns#phase>"):
                word = line.rpartition("#")[2][:-3]
                if seen.setdefault(party, [word])[-1] != word:
                    seen[party].append(word)

    assert seen[party] == ["Pending", "Reserved", "Schedulable", "Running", "Failed"]


@pytest.mark.parametrize("kinds", [("Pod",), ("TaskResource",), ("TaskResourceGroup",), ("KusciaTask",)], ids=str)
def test_each_way_to_a_pods_task_is_enough(kinds: tuple[str, ...]) -> None:
    """The pod's annotation, its TaskResource, the group, or the task's status: any one of them says whose pod it is."""
    found = [copy.deepcopy(each) for each in objects("after") if each["kind"] in {*kinds, "KusciaTask", "Pod"}]
    for each in found:
        if each["kind"] == "Pod" and kinds != ("Pod",):
            each["metadata"]["annotations"] = {}
        if each["kind"] == "KusciaTask" and kinds != ("KusciaTask",):
            each["status"].pop("podStatuses")
    graph = written([*map(change, found)]).graphs[ROOT + pod(EXPECTED["whyFailed"]["pod"])]

    (manager,) = [line.rpartition("<")[2][:-3] for line in graph if "ns#managedBy>" in line]
    assert manager == ROOT + task(EXPECTED["whyFailed"]["task"])


# -- lineage, copies, grants ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPECTED.get("lineage", ()))
def test_lineage(name: str) -> None:
    """What a task reads and writes, as far as it exists; a job reads what it does not make itself."""
    told, about = EXPECTED["lineage"][name], job(name) if name in EXPECTED["jobs"] else task(name)

    assert values("SELECT ?data WHERE { $x :dependsOn ?data . ?data a :DataAsset }", about) == {
        *map(data, told["reads"])
    }
    if "writes" in told:
        assert values("SELECT ?data WHERE { $x :produces ?data }", about) == {*map(data, told["writes"])}
    else:
        made = values("SELECT ?data WHERE { $x :produces ?data }", about)
        assert made
        assert made.isdisjoint(map(data, told["reads"]))


@pytest.mark.parametrize("name", EXPECTED.get("copies", ()))
def test_a_copy_is_its_original(name: str) -> None:
    """Data that was copied into a grantee's namespace is one entity, in its author's namespace; nothing links to the copy."""
    assert ask("SELECT ?author WHERE { $x a :DataAsset ; dcterms:creator ?author }", data(name)) == [
        (f"domain/{name.partition('/')[0]}",)
    ]
    for other in EXPECTED["copies"][name]:
        assert ask("SELECT ?p WHERE { { $x ?p ?o } UNION { ?s ?p $x } }", data(other)) == []


def test_each_grant_is_one_entity_and_says_who_may_read_what() -> None:
    """Two grants, each stored twice: from, to, data, expiry, use limit, flow and phase."""
    assert ask(
        "SELECT ?grant ?data ?from ?to ?until ?uses ?flow ?phase WHERE { ?grant a :Grant ; :grants ?data ; :grantedBy ?from ;"
        " :grantedTo ?to ; :phase ?phase . OPTIONAL { ?grant :expiresAt ?until ; :useLimit ?uses ; :flow ?flow } }"
    ) == [
        (
            "prod/alice/domaindatagrant.kuscia.secretflow/predictions-to-bob",
            data("alice/predictions"),
            "domain/alice",
            "domain/bob",
            "2027-01-31T00:00:00Z",
            "3",
            "flow-7",
            "Ready",
        ),
        (
            "prod/bob/domaindatagrant.kuscia.secretflow/bob-table-to-alice",
            data("bob/bob-table"),
            "domain/bob",
            "domain/alice",
            None,
            None,
            None,
            "Ready",
        ),
    ]


def test_data_has_columns_kind_format_and_path() -> None:
    """A table is described as CSV on the Web describes one; its source tells its kind and never what is in it."""
    about = data("alice/alice-table")

    assert ask(
        "SELECT ?name ?type WHERE { $x csvw:column ?c . ?c a csvw:Column ; csvw:name ?name ; csvw:datatype ?type }",
        about,
    ) == [
        ("age", "float"),
        ("id", "str"),
    ]
    assert ask("SELECT ?kind ?format ?path ?source ?sort WHERE { $x :kind ?kind ; dcterms:format ?format ; :path ?path ;"
        " :storedIn ?source . ?source :kind ?sort }", about) == [
        ("table", "csv", "alice-table.csv", "prod/alice/domaindatasource.kuscia.secretflow/default-data-source", "localfs")
    ]  # fmt: skip


# -- domains and routes ---------------------------------------------------------------------------------------------------


def test_domains_have_role_controller_nodes_quota_and_phase() -> None:
    """Two domains with nodes under one control plane are its lites; that is derived, and said to be."""
    for name in ("alice", "bob"):
        assert ask(
            "SELECT ?role ?derived ?by ?quota ?phase WHERE { $x :role ?role ; :roleDerived ?derived ; :controlledBy ?by ;"
            " :podQuota ?quota ; :phase ?phase }",
            f"domain/{name}",
        ) == [("Lite", "true", "domain/kuscia-system", "100", "Ready")]
        assert values("SELECT ?thing WHERE { ?thing a ?type ; :domain $x FILTER(?type IN (:Node, :Namespace)) }", f"domain/{name}") == {
            f"prod/-/node/{name}-node-0",
            f"prod/-/namespace/{name}",
        }  # fmt: skip


@pytest.mark.parametrize("name", EXPECTED.get("routes", ()))
def test_a_route_is_one_entity(name: str) -> None:
    """Its three objects are one, which has ends, host, port, protocol, authentication word, phase, and healthy members."""
    told = EXPECTED["routes"][name]
    source, destination = name.split("-")

    assert ask(
        "SELECT ?from ?to ?host ?port ?protocol ?word ?phase ?healthy ?members ?domain WHERE { $x a :DomainRoute ; :source ?from ;"
        " :destination ?to ; :host ?host ; :port ?port ; :protocol ?protocol ; :authentication ?word ; :phase ?phase ;"
        " :membersHealthy ?healthy ; :members ?members ; :domain ?domain }",
        route(name),
    ) == [
        (
            f"domain/{source}",
            f"domain/{destination}",
            f"{destination}-gw.example",
            "http",
            "kuscia",
            "Token",
            "Ready" if told["ready"] else "NotReady",
            str(told["members_healthy"]),
            "1",
            f"domain/{source}",
        )
    ]
    routes = values("SELECT ?route WHERE { ?route a :DomainRoute }")
    assert routes == {route(each) for each in EXPECTED["routes"]}


def test_an_unreachable_flag_of_the_sources_copy_is_enough() -> None:
    """The route is not ready when only the source's copy says so, before the cluster-wide object does."""
    reported = [
        each
        for each in changes()
        if not (
            isinstance(each, Upserted) and each.kind.name == "ClusterDomainRoute" and "False" in repr(each.manifest)
        )
    ]
    (phase,) = [
        line.rpartition("#")[2][:-3]
        for line in written(reported).graphs[f"{ROOT}{route('bob-alice')}"]
        if "ns#phase>" in line
    ]

    assert phase == "NotReady"


def test_programs_name_their_image_and_their_metrics() -> None:
    """An application image has name and version of the image, and where its containers expose metrics; steps and tasks depend on it."""
    about = "prod/-/appimage.kuscia.secretflow/train-image"

    assert ask("SELECT ?image ?version ?path ?port WHERE { $x :image ?image ; :version ?version ; :metricPath ?path ; :metricPort ?port }", about) == [
        ("registry.example/train", "3.0", "/metrics", "metric")
    ]  # fmt: skip
    assert task(EXPECTED["whyFailed"]["task"]) in values("SELECT ?user WHERE { ?user :dependsOn $x }", about)


# -- saved queries --------------------------------------------------------------------------------------------------------


def saved(name: str, within: ox.Store | None = None, **values: str) -> list[tuple[str | None, ...]]:
    """Ask a saved query as the service binds it."""
    text = (Path(__file__).parents[2] / "queries" / f"{name}.rq").read_text(encoding="utf-8")
    query = catalogue.read(name, text, IRIS)
    found = (within or store()).query(query.bound(values, IRIS), use_default_graph_as_union=True)
    assert isinstance(found, ox.QuerySolutions)
    return [tuple(short(term) for term in row) for row in found]


def test_pods_of_tasks_are_targets_while_they_run() -> None:
    """Those whose annotations say where their metrics are, by the address that the status has; nothing of them afterwards."""
    before, past = [*map(change, objects("before")), *(Synced(kind, OBSERVED) for kind in KINDS)], events()
    path, port = (f"kuscia.secretflow/metric_{each}" for each in ("path", "port"))

    def exposing(event: dict[str, Any]) -> bool:
        found = event["object"]
        annotated = found["metadata"].get("annotations", {})
        return found["kind"] == "Pod" and port in annotated and found.get("status", {}).get("phase") == "Running"

    first = next(number for number, each in enumerate(past) if exposing(each))
    pod_ = past[first]["object"]
    then = written([*before, *(change(each["object"], each["type"]) for each in past[: first + 1])])

    (row,) = saved("targets-pods", engine(then))
    name, namespace = pod_["metadata"]["name"], pod_["metadata"]["namespace"]
    assert row[:6] == (
        f"{pod_['status']['podIP']}:{pod_['metadata']['annotations'][port]}",
        pod_["metadata"]["annotations"][path],
        pod(f"{namespace}/{name}"),
        name,
        namespace,
        f"domain/{namespace}",
    )
    assert saved("targets-pods") == []


@pytest.mark.parametrize("name", EXPECTED.get("jobs", ()))
def test_the_dag_of_a_job(name: str) -> None:
    """Every planned step with its task, phase and what it waits for, also those that never began."""
    tasks = EXPECTED["jobs"][name]["tasks"]

    assert saved("job-dag", job=job(name)) == sorted(
        (f"{job(name)}/step/{alias}", task(told["id"]), told["phase"], before and f"{job(name)}/step/{before}")
        for alias, told in tasks.items()
        for before in (sorted(told["dependsOn"]) or [None])
    )


def test_why_a_job_failed() -> None:
    """Asked of the job or of its task: one cause, with pod and exit code; a job that succeeded has none."""
    why = EXPECTED["whyFailed"]
    row = (
        task(why["task"]),
        f"domain/{why['party']}",
        why["role"],
        why["reason"],
        pod(why["pod"]),
        str(why["exitCode"]),
        "2026-11-29T09:08:00Z",
    )

    assert saved("why-failed", work=job(why["job"])) == [row]
    assert saved("why-failed", work=task(why["task"])) == [row]
    assert saved("why-failed", work=job("job-risk")) == []


def test_the_lineage_of_data() -> None:
    """Of the predictions: every task of the job that made them, with what it read and wrote; of a report, only what led to it."""
    lineage = EXPECTED["lineage"]
    edges = sorted(
        (task(name), data(read), data(wrote))
        for name, told in lineage.items()
        if name not in EXPECTED["jobs"]
        for read in told["reads"]
        for wrote in told["writes"]
    )
    risk = [each for each in edges if "job-risk" in str(each[0])]
    stats, psi = task("job-risk-73d693d0410b"), task("job-risk-611d3cb3d694")

    assert saved("lineage", asset=data("alice/predictions")) == [each for each in risk if each[0] != stats]
    assert saved("lineage", asset=data("alice/stats-report")) == [
        each
        for each in risk
        if each[0] == stats or (each[0] == psi and "alice/domaindata.kuscia.secretflow/psi-out" in str(each[2]))
    ]
    assert saved("lineage", asset=data("alice/alice-table")) == [
        each for each in edges if "bob-table" not in str(each[1])
    ]


def test_the_runs_of_tasks_are_open_lineage_events() -> None:
    """A START and an end for each task, with what it read and wrote, the workflow's run as parent, and run ids that are UUIDs."""
    found = store().query(open_lineage.QUERY, use_default_graph_as_union=True)
    assert isinstance(found, ox.QuerySolutions)
    names = [each.value for each in found.variables]
    rows = [{name: term.value for name, term in zip(names, row, strict=True) if term} for row in found]

    events = list(open_lineage.events(rows))

    tasks = {told["id"]: (told, name) for name, each in EXPECTED["jobs"].items() for told in each["tasks"].values()}
    ended = {each["job"]["name"]: each for each in events if each["eventType"] != "START"}
    assert len(events) == 2 * len(ended)
    assert ended.keys() == {task(name) for name, (told, _) in tasks.items() if told["phase"]}
    for name, (told, of) in tasks.items():
        if told["phase"]:
            event, lineage = ended[task(name)], EXPECTED["lineage"][name]
            assert event["eventType"] == {"Succeeded": "COMPLETE", "Failed": "FAIL"}[told["phase"]]
            assert event["eventTime"] == told["end"]
            assert {each["name"] for each in event["inputs"]} == {*map(data, lineage["reads"])}
            assert {each["name"] for each in event["outputs"]} == {*map(data, lineage["writes"])}
            assert event["run"]["facets"]["parent"]["job"] == {"namespace": "https://kg.example", "name": job(of)}
    for each in events:
        assert str(uuid.UUID(each["run"]["runId"])) == each["run"]["runId"]


def test_the_grants_of_a_domain() -> None:
    """What a domain has granted, with the limits of each grant."""
    assert saved("grants-of", domain="domain/alice") == [
        (
            "prod/alice/domaindatagrant.kuscia.secretflow/predictions-to-bob",
            data("alice/predictions"),
            "domain/bob",
            "Ready",
            "2027-01-31T00:00:00Z",
            "3",
            "flow-7",
        )
    ]
    assert [row[1:3] for row in saved("grants-of", domain="domain/bob")] == [(data("bob/bob-table"), "domain/alice")]


def test_who_may_read() -> None:
    """The owner, and who holds a grant that is not over at the time that is asked for."""

    def readers(name: str, at: str) -> list[str | None]:
        return [row[0] for row in saved("who-may-read", asset=data(name), at=at)]

    assert readers("bob/bob-table", "2030-01-01T00:00:00Z") == ["domain/alice", "domain/bob"]
    assert readers("alice/predictions", "2026-12-01T00:00:00Z") == ["domain/alice", "domain/bob"]
    assert readers("alice/predictions", "2027-01-31T00:00:00Z") == ["domain/alice"]
    assert readers("alice/alice-table", "2026-12-01T00:00:00Z") == ["domain/alice"]


def test_the_board_of_domains() -> None:
    """Machines and tasks by state, and each route with its state, healthy members and the queries of its own figures."""
    rows = saved("domain-board")

    for name, failed in (("alice", "1"), ("bob", "1")):
        own = [row for row in rows if row[0] == f"domain/{name}"]
        assert [row[1:4] for row in own if row[1] != "route"] == [
            ("nodes", "Ready", "1"),
            ("tasks", "Failed", failed),
            ("tasks", "Succeeded", "5" if name == "alice" else "4"),
        ]
    routes = {row[4]: row for row in rows if row[1] == "route"}
    assert routes.keys() == {route(each) for each in EXPECTED["routes"]}
    for name, told in EXPECTED["routes"].items():
        _, _, state, healthy, _, peer, latency, errors = routes[route(name)]
        assert (state, healthy) == ("Ready" if told["ready"] else "NotReady", str(told["members_healthy"]))
        assert peer == f"domain/{name.partition('-')[2]}"
        assert f'remote_domain="{told["remote_domain"]}"' in str(latency)
        assert told["envoy_cluster_name"] in str(errors)


# -- never, and however it comes ------------------------------------------------------------------------------------------


def test_no_canary_reaches_a_graph() -> None:
    """No certificate, token, key, header, signature, argument, variable or input is anywhere in what is written."""
    text = "\n".join(line for lines in sink().graphs.values() for line in lines)

    assert [each for each in EXPECTED["canaries"] if each in text] == []
    assert "CANARY" not in text
    assert len(EXPECTED["canaries"]) == 12


def shuffled(seed: int) -> Iterator[Change]:
    """Yield the changes with the kinds in another order: each kind's own events stay in theirs."""
    by_kind: dict[str, list[Change]] = {}
    for each in changes():
        if not isinstance(each, Synced):
            by_kind.setdefault(each.kind.name, []).append(each)  # type: ignore[union-attr]  # neither is a rejection
    generator = random.Random(seed)  # an order that can be repeated
    yield from (Synced(kind, OBSERVED) for kind in KINDS)
    while by_kind:
        name = generator.choice(sorted(by_kind))
        yield by_kind[name].pop(0)
        if not by_kind[name]:
            del by_kind[name]


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_kinds_does_not_matter(seed: int) -> None:
    """Watches of different kinds run beside each other; whatever comes first, the graph is the same."""
    assert written(list(shuffled(seed)), slowly=seed == 0).graphs == sink().graphs


def test_runs_that_nobody_watched_are_rebuilt_from_what_the_tasks_remember() -> None:
    """Begun after the run, an exporter knows every pod's run from the status of its task, with an estimated end; what is seen is not estimated."""
    late = written([*map(change, objects("after")), *(Synced(kind, OBSERVED) for kind in KINDS)])
    graphs = engine(late)
    query = PREFIXES + (
        "SELECT ?pod ?task ?start ?end ?outcome ?node ?estimated WHERE { ?run :runOf ?pod ; prov:startedAtTime ?start ; prov:endedAtTime ?end ;"
        " :outcome ?outcome ; :scheduledOn ?node . ?pod :managedBy ?task . OPTIONAL { ?run :endEstimated ?estimated } }"
    )
    rows = {
        tuple(short(term) for term in row)
        for row in graphs.query(query, use_default_graph_as_union=True)  # type: ignore[union-attr]
    }
    ends = {told["id"]: told["end"] for each in EXPECTED["jobs"].values() for told in each["tasks"].values()}

    assert rows == {
        (
            pod(f"{row['namespace']}/{row['pod']}"),
            task(row["task"]),
            row["start"],
            row["end"] if row["inAfter"] else ends[row["task"]],
            OUTCOMES[row["outcome"]],
            f"prod/-/node/{row['party']}-node-0",
            None if row["inAfter"] else "true",
        )
        for row in EXPECTED["runs"]
    }
    before = late.generation
    written([*map(change, objects("after")), *(Synced(kind, OBSERVED) for kind in KINDS)], sink=late)
    assert late.generation == before


def test_what_stood_in_for_a_run_goes_when_its_uid_is_known() -> None:
    """Pods that are reported after their tasks' ends have been rebuilt have one run each, by their uid."""
    graphs = MemorySink()
    run = following(graphs, around(SETTINGS))
    pods = [each for each in changes() if isinstance(each, (Upserted, Gone)) and each.kind.name == "Pod"]
    for each in [*map(change, objects("after")), *(Synced(kind, OBSERVED) for kind in KINDS)]:
        run.take(each)
    run.flush()
    for each in pods:
        run.take(each)
    run.flush(everything=True)
    uids = {line.split(" ")[0].rpartition("/run/")[2].strip(">").split("/")[0] for lines in graphs.graphs.values() for line in lines if "/pod/" in line and "/run/" in line.split(" ")[0]}  # fmt: skip

    assert uids == {row["uid"] for row in EXPECTED["runs"]}


def test_a_restart_at_the_end_writes_nothing() -> None:
    """An exporter that starts again over the same cluster finds every graph as it left it."""
    graphs = written(changes())
    before = graphs.generation

    written([*map(change, objects("after")), *(Synced(kind, OBSERVED) for kind in KINDS)], sink=graphs)

    assert graphs.generation == before
