"""Thirty days of a small cluster of known truth: pods come and go, names return, and kube-state-metrics is away for three hours.

In the namespace ``shop``: the Deployments ``web`` (three pods, rolled out every third day) and ``web-admin``, the DaemonSet ``web-facade``,
whose pods are called as those of ``web`` may be, and the StatefulSet ``db``, whose names return. In ``batch`` the CronJob ``tick`` runs
for twenty minutes of each hour. Everything is scraped every five minutes, which keeps it cheap.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tests.integration.conftest import CADVISOR, T0, OpenMetrics, at

SCRAPE = 5
LAST = 30 * 1440
"""The minute that is now."""
AWAY = range(30_160, 30_340)
"""The minutes, around a midnight, in which kube-state-metrics is away; the pods of one revision of ``web`` live in them and no longer."""
_KSM = {"job": "kube-state-metrics", "instance": "ksm:8080", "cluster": "prod"}
_KUBELET = {**CADVISOR, "cluster": "prod", "from": "kubelet"}
_LINGERS = 60  # minutes that a completed pod stays
_DRAW = random.Random(11)
_SUFFIX, _HASH = "bcdfghjklmnpqrstvwxz2456789", "456789bcd"


class Life(NamedTuple):
    """One run of a pod: minutes of its first and last sample (None: it lives), and what it takes."""

    namespace: str
    pod: str
    owner: tuple[str, str]
    above: tuple[str, str] | None
    start: int
    end: int | None
    cores: float
    mebibytes: int
    born: int | None = None  # before the first sample

    @property
    def uid(self) -> str:
        """Its uid, which no two have in common."""
        return f"{self.pod}.{self.start}"

    @property
    def workload(self) -> tuple[str, str]:
        """Kind and name of the workload that it is of."""
        return self.above or self.owner

    @property
    def is_done(self) -> bool:
        """Whether it ended by itself; its pod is then shown for an hour more."""
        return self.owner[0] == "Job" and self.end is not None

    def shown(self) -> list[int]:
        """Return the minutes at which kube-state-metrics tells of it."""
        ran = self.minutes()
        last = min(LAST, ran[-1] + (_LINGERS if self.is_done else 0))
        return [minute for minute in range(self.start, last + 1, SCRAPE) if minute not in AWAY]

    def minutes(self) -> range:
        """Return the minutes of its samples."""
        return range(self.start, (LAST if self.end is None else self.end) + 1, SCRAPE)


def _word(alphabet: str, length: int) -> str:
    return "".join(_DRAW.choices(alphabet, k=length))


def _spans(changes: Iterable[int]) -> Iterator[tuple[int, int | None]]:
    """Yield the lives between changes: one begins a scrape after the last one ended."""
    start = 0
    for each in changes:
        yield start, each
        start = each + SCRAPE
    yield start, None


def _lives() -> Iterator[Life]:
    for start, end in _spans([*range(35, 30_000, 4320), 30_200, 30_300, *range(34_595, LAST, 4320)]):
        owner = ("ReplicaSet", f"web-{_word(_HASH, 9)}")
        for _ in range(3):
            name = f"{owner[1]}-{_word(_SUFFIX, 5)}"
            yield Life("shop", name, owner, ("Deployment", "web"), start, end, 0.5, 100, -1000 if not start else None)
    for start, end in _spans(range(7235, LAST, 7200)):
        owner = ("ReplicaSet", f"web-admin-{_word(_HASH, 10)}")
        yield Life("shop", f"{owner[1]}-{_word(_SUFFIX, 5)}", owner, ("Deployment", "web-admin"), start, end, 4, 7000)
    for start, end in _spans(range(14_435, LAST, 14_400)):
        for _ in range(2):
            name = f"web-facade-{_word(_SUFFIX, 5)}"
            yield Life("shop", name, ("DaemonSet", "web-facade"), None, start, end, 2, 3000)
    for number in range(2):
        for start, end in _spans(range(5795 + 60 * number, LAST, 5760)):
            yield Life("shop", f"db-{number}", ("StatefulSet", "db"), None, start, end, 1, 500)
    for start in range(10, LAST, 60):
        job = ("Job", f"tick-{int(T0.timestamp()) // 60 + start}")
        end = min(start + 20, LAST)
        yield Life("batch", f"{job[1]}-{_word(_SUFFIX, 5)}", job, ("CronJob", "tick"), start, end, 0.25, 50)


LIVES = tuple(_lives())


def of(name: str) -> list[Life]:
    """Return the lives of a workload's pods."""
    return [each for each in LIVES if each.workload[1] == name]


def core_seconds(lives: Iterable[Life]) -> float:
    """Return what the counters of some pods rose by, over all samples."""
    return sum(60 * each.cores * (each.minutes()[-1] - each.minutes()[0]) for each in lives)


def mebibytes(lives: Iterable[Life], minute: int) -> int:
    """Return what some pods took at a minute at which they were scraped."""
    return sum(each.mebibytes for each in lives if minute in each.minutes())


LAB = (
    Life("lab", "web-86b96c86dc-bcdfg", ("ReplicaSet", "web-86b96c86dc"), ("Deployment", "web"), 0, 900, 1, 1),
    Life("lab", "web-86b96c86dc-hjklm", ("ReplicaSet", "web-86b96c86dc"), ("Deployment", "web"), 905, None, 1, 1),
    Life("lab", "web-facade-npqrs", ("DaemonSet", "web-facade"), None, 0, 1300, 1, 10),
)
"""Another cluster on the same server, for its first day: labels are not honoured there, and owners stand in ``kube_pod_info`` alone."""
LAB_LAST = 1440


def _fill_lab(samples: OpenMetrics) -> None:
    for life in LAB:
        ran = range(life.start, (LAB_LAST if life.end is None else life.end) + 1, SCRAPE)
        kubelet = {**CADVISOR, "cluster": "lab", "namespace": "lab", "container": "c", "pod": life.pod}
        samples.add("container_memory_working_set_bytes", kubelet, dict.fromkeys(ran, life.mebibytes << 20))
        exporter = {**_KSM, "cluster": "lab", "namespace": "monitoring", "pod": "ksm-0"}
        pod = {**exporter, "exported_namespace": "lab", "exported_pod": life.pod, "uid": life.uid}
        created = {"created_by_kind": life.owner[0], "created_by_name": life.owner[1], "node": "b"}
        samples.add("kube_pod_info", {**pod, **created}, dict.fromkeys(ran, 1))
        samples.add("kube_pod_start_time", pod, dict.fromkeys(ran, int(at(life.start).timestamp())))


def fill(samples: OpenMetrics) -> None:
    """Add all samples; only the kubelets' of ``prod`` have the label ``from``, by which kube-state-metrics can be left out."""
    _fill_lab(samples)
    sets: dict[tuple[str, str, str, str], set[int]] = {}
    for life in LIVES:
        kubelet = {**_KUBELET, "namespace": life.namespace, "container": "c", "pod": life.pod}
        kubelet["id"] = f"/kubepods/{life.uid}"
        ran = life.minutes()
        cpu = {m: round(60 * life.cores * (m - life.start)) for m in ran}
        samples.add("container_cpu_usage_seconds_total", kubelet, cpu)
        samples.add("container_memory_working_set_bytes", kubelet, dict.fromkeys(ran, life.mebibytes << 20))
        seen = life.shown()
        seldom = seen[::12]  # of what is only looked up in the index
        pod = {**_KSM, "namespace": life.namespace, "pod": life.pod, "uid": life.uid}
        created = {"created_by_kind": life.owner[0], "created_by_name": life.owner[1]}
        samples.add("kube_pod_info", {**pod, **created, "node": "a"}, dict.fromkeys(seen, 1))
        samples.add("kube_pod_info", {**pod, **created, "node": ""}, dict.fromkeys(seen[:1], 1))  # not placed yet
        owner = {"owner_kind": life.owner[0], "owner_name": life.owner[1], "owner_is_controller": "true"}
        samples.add("kube_pod_owner", {**pod, **owner}, dict.fromkeys(seldom, 1))
        born = life.start if life.born is None else life.born
        samples.add("kube_pod_start_time", pod, dict.fromkeys(seen, int(at(born).timestamp())))
        if life.is_done:
            after = [m for m in seen if m > ran[-1]]
            for phase, since in (("Running", False), ("Succeeded", True)):
                values = {m: int((m > ran[-1]) == since) for m in seen}
                samples.add("kube_pod_status_phase", {**pod, "phase": phase}, values)
            samples.add("kube_pod_completion_time", pod, dict.fromkeys(after, int(at(ran[-1]).timestamp())))
        if life.above:
            sets.setdefault((life.namespace, *life.owner, life.above[1]), set()).update(seldom)
    for (namespace, kind, name, above), seen_at in sets.items():
        metric, label, parent = {
            "ReplicaSet": ("kube_replicaset_owner", "replicaset", "Deployment"),
            "Job": ("kube_job_owner", "job_name", "CronJob"),
        }[kind]
        owned = {"owner_kind": parent, "owner_name": above, "owner_is_controller": "true"}
        labels = {**_KSM, "namespace": namespace, label: name, **owned}
        samples.add(metric, labels, dict.fromkeys(sorted(seen_at), 1))


# -- the objects that exist now ---------------------------------------------------------------------------------------------
def _time(minute: int) -> str:
    return at(minute).isoformat().replace("+00:00", "Z")


def _meta(namespace: str, name: str, uid: str, owner: tuple[str, str] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "namespace": namespace,
        "name": name,
        "uid": uid,
        "creationTimestamp": _time(-1000),
    }
    if owner:
        version = "batch/v1" if owner[0] in ("Job", "CronJob") else "apps/v1"
        reference = {"apiVersion": version, "kind": owner[0], "name": owner[1], "uid": f"{owner[0]} {owner[1]}"}
        found["ownerReferences"] = [{**reference, "controller": True}]
    return found


def manifests() -> list[dict[str, Any]]:
    """Return what the API server has at ``LAST``: the workloads, what lives, and the completed pods that linger."""
    spec = {"template": {"spec": {"containers": [{"name": "c", "image": "c:1"}]}}}
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for life in LIVES:
        kind, name = life.workload
        found[life.workload] = {"kind": kind, "metadata": _meta(life.namespace, name, f"{kind} {name}"), "spec": spec}
    found["CronJob", "tick"]["spec"] = {"schedule": "10 * * * *", "jobTemplate": {"spec": spec}}
    for life in LIVES:
        done = life.owner[0] == "Job"
        if life.end is not None and not (done and life.end + _LINGERS > LAST):
            continue
        if life.above:
            found[life.owner] = {
                "kind": life.owner[0],
                "metadata": _meta(life.namespace, life.owner[1], " ".join(life.owner), life.above),
                "spec": spec,
            }
        status: dict[str, Any] = {
            "phase": "Succeeded" if done else "Running",
            "startTime": _time(life.start if life.born is None else life.born),
        }
        if done:
            ended = {"terminated": {"reason": "Completed", "finishedAt": _time(life.end or LAST)}}
            status["containerStatuses"] = [{"name": "c", "state": ended}]
        found["Pod", life.pod] = {
            "kind": "Pod",
            "metadata": _meta(life.namespace, life.pod, life.uid, life.owner),
            "spec": {"nodeName": "a", "containers": [{"name": "c", "image": "c:1"}]},
            "status": status,
        }
    return list(found.values())
