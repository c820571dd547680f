"""The proof: whatever happens in the cluster and on the way to us, the graph ends as a fresh look at the final state would make it.

Thousands of random steps on a model cluster: objects come, change, go, and come again under the same name; events are doubled, late,
overtaken by other kinds, lost with their connection (then the source relists), and the exporter itself is restarted. No ghost, none
missing, no wrong end.
"""

from __future__ import annotations

import copy
import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from drumlin.exporters.kubernetes.kinds import KINDS as BUILT_IN
from drumlin.exporters.pipeline.reconciler import Reconciler
from drumlin.exporters.protocol import Gone, Synced, Upserted
from drumlin.kg.rdf.syntax import Lines
from tests.memory_sink import MemorySink
from tests.thoroughness import examples
from tests.unit.rendering import BY_NAME, around, manifest

Document = dict[str, Any]
Key = tuple[str, str | None, str]  # kind, namespace, name

BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
NAMESPACES = ("alice", "shop")
NAMES = {
    "Namespace": ("alice", "shop"), "Node": ("n1", "n2"), "Deployment": ("web", "db"), "ReplicaSet": ("web-1", "db-1", "lone"),
    "StatefulSet": ("web",), "Job": ("web", "train"), "Pod": ("web-1-a", "web-1-b", "db-0", "train-x"), "Service": ("web", "prom"),
    "EndpointSlice": ("web-s1", "web-s2"), "PersistentVolumeClaim": ("data",), "PersistentVolume": ("pv",), "Ingress": ("web",),
    "HorizontalPodAutoscaler": ("web",), "PodDisruptionBudget": ("web",), "Domain": ("alice", "bob"), "DomainData": ("table", "out"),
    "KusciaJob": ("psi",), "KusciaTask": ("psi-1", "psi-2"), "DomainDataGrant": ("g",), "TaskResource": ("room",),
    "ClusterDomainRoute": ("a-b",), "DomainRoute": ("a-b", "own"), "Gateway": ("gate",), "AppImage": ("image",),
}  # fmt: skip
OUTCOMES = {"Succeeded": "Completed", "Failed": "Failed"}


class Cluster:
    """The truth: what exists, and how every uid fared."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.objects: dict[Key, Document] = {}
        self.finished: dict[str, tuple[str, str]] = {}  # uid → end and outcome of what ended by itself
        self.now = BEGIN
        self._uids = 0

    def stamp(self) -> str:
        """The time now, which passes with every look at it."""
        self.now += timedelta(seconds=1)
        return self.now.strftime("%Y-%m-%dT%H:%M:%SZ")

    def step(self) -> list[tuple[str, Document]]:
        """Let something happen: the events that watches would tell."""
        kind = self.chance.choice(list(NAMES))
        key = (
            kind,
            self._namespace(kind),
            self.chance.choice(NAMES[kind]),
        )
        found = self.objects.get(key)
        if found is None:
            return [("ADDED", self._put(key, self._new(key)))]
        if self.chance.random() < 0.45:
            return [("DELETED", self._remove(each)) for each in (key, *self._collected(key))]
        return [("MODIFIED", self._put(key, self._changed(copy.deepcopy(found))))]

    def _namespace(self, kind: str) -> str | None:
        if kind in ("KusciaJob", "KusciaTask"):
            return "cross-domain"
        return self.chance.choice(NAMESPACES) if BY_NAME[kind].namespaced else None

    def _put(self, key: Key, document: Document) -> Document:
        self.objects[key] = document
        return document

    def _remove(self, key: Key) -> Document:
        last = copy.deepcopy(self.objects.pop(key))
        if key[0] in ("Pod", "Deployment") and self.chance.random() < 0.5:
            last["metadata"]["deletionTimestamp"] = self.stamp()
        return last

    def _collected(self, key: Key) -> list[Key]:
        """What goes with an object, after it: the pods of a ReplicaSet; the room of a Kuscia task and the pods in it."""
        kind, namespace, name = key
        if kind == "KusciaTask":
            rooms = [
                each for each, found in self.objects.items()
                if each[0] == "TaskResource" and name in found["metadata"]["annotations"].values()
            ]  # fmt: skip
            pods = [("Pod", room[1], "train-x") for room in rooms]
            return [*rooms, *(each for each in pods if each in self.objects)]
        return [
            each for each, found in self.objects.items()
            if kind == "ReplicaSet" and each[:2] == ("Pod", namespace) and name in [owner["name"] for owner in found["metadata"].get("ownerReferences", ())]
        ]  # fmt: skip

    def _new(self, key: Key) -> Document:
        kind, namespace, name = key
        self._uids += 1
        metadata: Document = {"name": name, "uid": f"uid-{self._uids}", "creationTimestamp": self.stamp()}
        metadata |= {"namespace": namespace} if namespace else {}
        row = BY_NAME[kind]
        return self._changed(
            {"kind": kind, "apiVersion": row.api_version, "metadata": metadata, "spec": {}, "status": {}}
        )

    def _changed(self, document: Document) -> Document:
        """Change an object in a way that its kind can change."""
        chance, kind = self.chance, document["kind"]
        metadata, spec, status = document["metadata"], document["spec"], document["status"]
        labels = {"app": chance.choice(["web", "db"]), "team": chance.choice(["a", "b"])}
        metadata["labels"] = labels
        match kind:
            case "Namespace":
                metadata["labels"] = chance.choice([{}, {"kuscia.secretflow/domain-name": "alice"}])
            case "Deployment" | "ReplicaSet" | "StatefulSet" | "Job":
                spec |= {"replicas": chance.randrange(3), "template": {"metadata": {"labels": labels}}}
                if kind == "ReplicaSet" and metadata["name"] != "lone":
                    metadata["ownerReferences"] = [
                        self._owner("Deployment", metadata["name"].split("-")[0], metadata["namespace"])
                    ]
                if kind == "Job" and not status and chance.random() < 0.4:
                    self._finish(metadata["uid"], status, chance.choice(["Succeeded", "Failed"]))
            case "Pod":
                self._pod(document)
            case "Service":
                metadata["labels"] |= (
                    {"app.kubernetes.io/name": "prometheus"}
                    if metadata["name"] == "prom" and chance.random() < 0.7
                    else {}
                )
                spec |= {"selector": labels, "ports": [{"port": 9090}]}
            case "EndpointSlice":
                metadata["labels"] = {"kubernetes.io/service-name": "web"}
                document["endpoints"] = [
                    {"targetRef": {"kind": "Pod", "name": each}} for each in chance.sample(NAMES["Pod"], 2)
                ]
            case "PersistentVolumeClaim":
                spec["volumeName"] = chance.choice(["pv", None])
            case "PersistentVolume":
                status["phase"] = chance.choice(["Bound", "Available"])
            case "HorizontalPodAutoscaler":
                spec |= {
                    "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"},
                    "maxReplicas": chance.randrange(1, 9),
                }
            case "PodDisruptionBudget":
                spec |= {"selector": {"matchLabels": {"app": labels["app"]}}, "maxUnavailable": 1}
            case "Domain":
                nodes = [{"name": "n", "status": chance.choice(["Ready", "NotReady"])}]
                status["nodeStatuses"] = chance.choice([nodes, nodes, []])
                spec["role"] = chance.choice(["", "partner"])
            case "KusciaJob":
                spec |= {
                    "initiator": "alice",
                    "tasks": [self._task("psi-1", []), self._task("psi-2", chance.choice([[], ["psi-1"]]))],
                }
            case _:
                self._kuscia(kind, metadata, spec, status)
        return document

    def _kuscia(self, kind: str, metadata: Document, spec: Document, status: Document) -> None:
        chance = self.chance
        match kind:
            case "DomainDataGrant":
                spec |= {"domainDataID": "table", "grantDomain": "bob", "author": chance.choice(NAMESPACES)}
            case "DomainData":
                spec |= {"author": chance.choice(NAMESPACES), "columns": [{"name": "id", "type": "str"}]}
            case "KusciaTask":
                spec |= {"parties": [{"domainID": each, "role": "host"} for each in NAMESPACES]}
                pods = chance.sample(NAMES["Pod"], 2)
                status |= {
                    "podStatuses": {f"shop/{each}": {"namespace": "shop", "podName": each} for each in pods},
                    "partyTaskStatus": chance.choice([[], [{"domainID": "shop", "phase": "Running"}]]),
                }
            case "TaskResource":
                metadata["annotations"] = {"kuscia.secretflow/task-id": chance.choice(NAMES["KusciaTask"])}
                room = {"requests": {"cpu": "1", "memory": "1Gi"}}
                spec["pods"] = [{"name": "train-x", "resources": room}]
                status["phase"] = chance.choice(["Reserving", "Reserved", "Schedulable"])
            case "ClusterDomainRoute":
                spec |= {"source": "alice", "destination": "shop", "endpoint": {"ports": [{"name": "http"}]}}
                status["conditions"] = [{"type": "Ready", "status": chance.choice(["True", "False"])}]
            case "DomainRoute":
                spec |= {"source": "alice", "destination": "shop", "endpoint": {"host": "h.example"}}
                status["isDestinationUnreachable"] = chance.choice([True, False])
                if metadata["name"] == "a-b":
                    version = BY_NAME["ClusterDomainRoute"].api_version
                    metadata["ownerReferences"] = [
                        {
                            "apiVersion": version,
                            "kind": "ClusterDomainRoute",
                            "name": "a-b",
                            "uid": "r",
                            "controller": True,
                        }
                    ]
            case "Gateway":
                healthy = chance.randrange(3)
                status["networkStatus"] = [
                    {"name": "alice-to-shop-http", "totalEndpointsCount": 2, "healthyEndpointsCount": healthy}
                ]

    def _task(self, name: str, dependencies: list[str]) -> Document:
        config = '{"sf_output_ids": ["out"], "sf_input_ids": ["table"]}'
        return {
            "taskID": name,
            "alias": name,
            "dependencies": dependencies,
            "taskInputConfig": config,
            "parties": [{"domainID": "alice"}, {"domainID": "shop"}],
        }

    def _owner(self, kind: str, name: str, namespace: str) -> Document:
        owner = self.objects.get((kind, namespace, name))
        uid = owner["metadata"]["uid"] if owner else "uid-unknown"
        return {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": True}

    def _pod(self, pod: Document) -> None:
        metadata, spec, status = pod["metadata"], pod["spec"], pod["status"]
        owner = {"web-1-a": "web-1", "web-1-b": "web-1", "db-0": "db-1"}.get(metadata["name"])
        if owner and "ownerReferences" not in metadata:
            metadata["ownerReferences"] = [self._owner("ReplicaSet", owner, metadata["namespace"])]
        if "nodeName" not in spec:
            spec["nodeName"] = self.chance.choice(NAMES["Node"])
        elif "startTime" not in status:
            status |= {"startTime": self.stamp(), "phase": "Running"}
        elif status["phase"] == "Running" and self.chance.random() < 0.4:
            self._finish(metadata["uid"], status, self.chance.choice(["Succeeded", "Failed"]))

    def _finish(self, uid: str, status: Document, phase: str) -> None:
        end = self.stamp()
        terminated = {"state": {"terminated": {"finishedAt": end}}, "name": "c"}
        condition = {
            "type": "Complete" if phase == "Succeeded" else "Failed",
            "status": "True",
            "lastTransitionTime": end,
        }
        status |= {"phase": phase, "containerStatuses": [terminated], "conditions": [condition]}
        self.finished[uid] = (end, OUTCOMES[phase])


class Way:
    """From the cluster to the graph: a watch per kind that can fail, and an exporter that can be restarted."""

    def __init__(self, cluster: Cluster, chance: random.Random, renderings: Path | None = None) -> None:
        self.sink = MemorySink()
        self._renderings = renderings
        self.told_gone: set[str] = set()  # uids whose end was told as an event
        self._cluster = cluster
        self._chance = chance
        self._waiting: dict[str, list[tuple[str, Document]]] = defaultdict(list)
        self._known: dict[str, dict[str, Document]] = defaultdict(dict)  # what the source has told, by kind and uid
        self._past: list[tuple[str, Document]] = []
        self.restart()

    def _now(self) -> datetime:
        return self._cluster.now

    def restart(self) -> None:
        """Begin a new life on the same store: everything that exists is listed, what waited is never told."""
        self._waiting.clear()
        self._known.clear()
        self.run = Reconciler(
            self.sink,
            around(),
            "test",
            frozenset(each.segment for each in BY_NAME.values()),
            self._now,
            window=0.0,
            renderings=self._renderings,
        )
        rows = list(BY_NAME)
        self._chance.shuffle(rows)
        for kind in rows:
            for document in self._listed(kind):
                self._tell("ADDED", document)
            self.run.take(Synced(BY_NAME[kind], self._cluster.now))
        self.run.flush()

    def _listed(self, kind: str) -> list[Document]:
        return [copy.deepcopy(each) for (found, _, _), each in self._cluster.objects.items() if found == kind]

    def happened(self, event: str, document: Document) -> None:
        """Put an event on its way."""
        self._waiting[document["kind"]].append((event, copy.deepcopy(document)))

    def misfortune(self) -> None:
        """Let something go wrong, or arrive, or be written."""
        match self._chance.choices(["deliver", "flush", "double", "late", "relist", "restart"], [60, 20, 6, 6, 6, 2])[
            0
        ]:
            case "deliver":
                self._deliver(self._chance.randrange(1, 5))
            case "flush":
                self.run.flush()
            case "double" if self._past:
                event, document = self._past[-1]
                self._tell(event, document)
            case "late":
                self._late()
            case "relist":
                self._relist(self._chance.choice(list(BY_NAME)))
            case "restart":
                if self._chance.random() < 0.5:  # else it is killed, and what was noted is of an earlier life
                    self.run.flush(everything=True)
                    self.run.note_renderings()
                self.restart()

    def _deliver(self, count: int) -> None:
        while count and (kinds := [kind for kind, waiting in self._waiting.items() if waiting]):
            self._tell(*self._waiting[self._chance.choice(kinds)].pop(0))
            count -= 1

    def _late(self) -> None:
        """A DELETED of an old uid comes once more, after its name was given away."""
        old = [each for event, each in self._past[-50:] if event == "DELETED"]
        if old:
            self._tell("DELETED", self._chance.choice(old))

    def _relist(self, kind: str) -> None:
        """The connection is lost with what waited on it: what is missing ends with an estimated time, the rest is told again."""
        self._waiting[kind].clear()
        present = {each["metadata"]["uid"]: each for each in self._listed(kind)}
        for uid, last in list(self._known[kind].items()):
            if uid not in present:
                del self._known[kind][uid]
                self.run.take(Gone(BY_NAME[kind], manifest(last), self._cluster.now, estimated=True))
        for document in present.values():
            self._tell("ADDED", document)

    def _tell(self, event: str, document: Document) -> None:
        kind, uid = document["kind"], document["metadata"]["uid"]
        self._past.append((event, document))
        row, read = BY_NAME[kind], manifest(document)
        if event == "DELETED":
            self._known[kind].pop(uid, None)
            self.told_gone.add(uid)
            self.run.take(Gone(row, read, self._cluster.now))
        else:
            self._known[kind][uid] = document
            self.run.take(Upserted(row, read))

    def arrive(self) -> None:
        """Let everything arrive that waits, and be written."""
        self._deliver(10**6)
        self.run.flush(everything=True)


def fresh(cluster: Cluster) -> dict[str, Lines]:
    """What an exporter that knows only the final state writes."""
    way = Way(cluster, random.Random(0))
    way.arrive()
    return way.sink.graphs


def parts(graphs: dict[str, Lines]) -> tuple[dict[str, Lines], set[str], dict[str, dict[str, str]]]:
    """Living graphs without their runs, the tombstones, and the runs by uid: predicate → value."""
    living: dict[str, Lines] = {}
    buried: set[str] = set()
    runs: dict[str, dict[str, str]] = {}
    for graph, lines in graphs.items():
        for line in lines:
            subject, predicate, value = line[:-2].split(" ", 2)
            if "/run/" in subject:
                runs.setdefault(subject.rpartition("/")[2][:-1], {})[predicate.strip("<>").rpartition("#")[2]] = value
        if any(line.endswith("ns#Tombstone> .") for line in lines):
            buried.add(graph)
        else:
            living[graph] = frozenset(line for line in lines if "/run/" not in line.split(" ", 1)[0])
    return living, buried, runs


STEPS = 250


@pytest.mark.parametrize("noted", [False, True], ids=["rendered", "noted"])
@pytest.mark.parametrize("seed", range(examples(5)))
def test_the_graph_ends_as_a_fresh_export_of_the_final_state(seed: int, noted: bool, tmp_path: Path) -> None:
    """After any operations and faults: the same living graphs, every other a tombstone, and every run open or ended as it was.

    So it is too where a restart renders only those again that may differ.
    """
    chance = random.Random(seed)
    cluster = Cluster(chance)
    way = Way(cluster, chance, tmp_path / "rendered" if noted else None)
    for _ in range(STEPS):
        for event in cluster.step():
            way.happened(*event)
        way.misfortune()
    way.arrive()
    living, buried, runs = parts(way.sink.graphs)
    expected, nothing, truth = parts(fresh(cluster))

    assert way.run.summary.rejected == []
    assert living == expected
    assert nothing == set()
    assert not buried & expected.keys()
    assert {uid: run for uid, run in runs.items() if uid in truth} == truth
    for uid in runs.keys() - truth.keys():
        assert_ended_rightly(runs[uid], cluster.finished.get(uid), told=uid in way.told_gone)
    before = way.sink.generation
    way.restart()
    way.arrive()
    assert way.sink.generation == before


def assert_ended_rightly(run: dict[str, str], finished: tuple[str, str] | None, *, told: bool) -> None:
    """A run of what is gone has an end not before its start; how it ended is what happened, or that nobody saw it."""
    outcome = run["outcome"].rpartition("#")[2][:-1]

    assert run["startedAtTime"] <= run["endedAtTime"]
    if outcome in ("Completed", "Failed"):
        assert finished is not None
        assert (run["endedAtTime"].split('"')[1], outcome) == finished
        assert "endEstimated" not in run
    else:
        assert outcome in ("Deleted", "Lost")
        assert outcome == "Deleted" or "endEstimated" in run
        assert told or "endEstimated" in run or finished is None or outcome == "Deleted"


def test_the_model_knows_every_kind_that_has_relations() -> None:
    """A kind that the proof leaves out has no relation that depends on the order of things."""
    left_out = {each.name for each in BUILT_IN} - NAMES.keys()

    assert left_out == {
        "DaemonSet",
        "CronJob",
        "StorageClass",
        "Prometheus",
        "ServiceMonitor",
        "PodMonitor",
        "ScrapeConfig",
    }
