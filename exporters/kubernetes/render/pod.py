"""Pod → one node document, its run, and the digests of the images it runs. Source: Pod v1 core."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec

from drumlin.exporters.kubernetes.manifests import Condition, Demand, PodSpec, Projection, Resources
from drumlin.exporters.kubernetes.render.demand import effective, statements
from drumlin.exporters.kubernetes.render.images import digest_in, images_topic
from drumlin.exporters.kubernetes.render.place import controller, manager, placed
from drumlin.exporters.pipeline.context import RenderContext
from drumlin.exporters.pipeline.runs import moment
from drumlin.exporters.protocol import ContainerEnd, Life, Topic, Trouble, without_nulls
from drumlin.kg.rdf.jsonld import NodeDocument


class Terminated(msgspec.Struct, frozen=True, gc=False):
    """How and when a container ended."""

    reason: str | None = None
    startedAt: str | None = None
    finishedAt: str | None = None
    exitCode: int = 0


class Waiting(msgspec.Struct, frozen=True, gc=False):
    """Why a container does not run yet, or again; its message, which may quote anything, is never parsed."""

    reason: str | None = None


class ContainerState(msgspec.Struct, frozen=True, gc=False):
    """A container's state, as far as it is an end or a wait."""

    terminated: Terminated | None = None
    waiting: Waiting | None = None


class ContainerStatus(msgspec.Struct, frozen=True, gc=False):
    """What the kubelet reports of one container."""

    name: str
    imageID: str = ""
    restartCount: int = 0
    state: ContainerState | None = None
    lastState: ContainerState | None = None

    def __post_init__(self) -> None:
        """Hold nothing for the state of a container that runs, as nearly all do: neither an end nor a wait is in it."""
        for name, state in (("state", self.state), ("lastState", self.lastState)):
            if state is not None and state.terminated is None and state.waiting is None:
                msgspec.structs.force_setattr(self, name, None)


class RunningPodSpec(PodSpec, frozen=True):
    """A pod's own fields, which templates leave to the scheduler and the runtime."""

    nodeName: str | None = None
    overhead: Resources | None = None
    resources: Demand | None = None


class PodCondition(Condition, frozen=True, gc=False):
    """A condition with its reason, still without its times and message."""

    reason: str | None = None


class PodStatus(msgspec.Struct, frozen=True, gc=False):
    """The pod's life, with the conditions' reasons and without their times."""

    phase: str | None = None
    reason: str | None = None
    startTime: str | None = None
    containerStatuses: tuple[ContainerStatus, ...] | None = None
    initContainerStatuses: tuple[ContainerStatus, ...] | None = None
    conditions: tuple[PodCondition, ...] | None = None

    def __post_init__(self) -> None:
        """Keep the condition that says why a pod is not placed; readiness flaps, and would be a change each time."""
        kept = tuple(each for each in self.conditions or () if each.type == "PodScheduled" and each.status == "False")
        msgspec.structs.force_setattr(self, "conditions", kept or None)


class Pod(Projection, frozen=True, kw_only=True):
    """What is taken from a Pod."""

    spec: RunningPodSpec = RunningPodSpec()
    status: PodStatus = PodStatus()


def render_pod(pod: Pod, context: RenderContext) -> NodeDocument:
    """Describe a pod: its workload, effective requests and limits (cores, bytes, pieces), its runs, and why it waits or was ended."""
    spec = pod.spec
    return without_nulls(
        {
            **placed(pod.metadata, "Pod", context),
            "managedBy": manager(pod.metadata, context),
            "phase": pod.status.phase or "Pending",
            "reason": pod.status.reason or next((each.reason for each in pod.status.conditions or ()), None),
            **statements(*effective(spec, spec.overhead, spec.resources)),
            "runs": context.runs,
        }
    )


def pod_life(pod: Pod) -> Life:
    """A pod runs from ``status.startTime``; one that finished by itself ends when its last container did."""
    status = pod.status
    end, outcome = None, None
    if status.phase in ("Succeeded", "Failed") and not _ended_by_deletion(pod):
        end, outcome = _last_end(status), _outcome(status)
    return Life(status.startTime, end, outcome, pod.spec.nodeName, tuple(_troubles(status)), tuple(_restarts(status)))


_STARTING = frozenset({"ContainerCreating", "PodInitializing", "Completed"})
"""Reasons of containers that wait, or ended, as they should."""


def _troubles(status: PodStatus) -> Iterator[Trouble]:
    """Yield what is wrong with the containers now, and how they ended last."""
    for each in (*(status.initContainerStatuses or ()), *(status.containerStatuses or ())):
        now, last = each.state or ContainerState(), each.lastState or ContainerState()
        if now.waiting and now.waiting.reason and now.waiting.reason not in _STARTING:
            yield Trouble(now.waiting.reason, each.name, ongoing=True)
        for end, present in ((last.terminated, False), (now.terminated, True)):
            if end and end.reason and end.reason not in _STARTING and end.finishedAt:
                yield Trouble(end.reason, each.name, end.finishedAt, present, end.exitCode)


def _restarts(status: PodStatus) -> Iterator[ContainerEnd]:
    """Yield the last life of each container that was started again."""
    for each in (*(status.initContainerStatuses or ()), *(status.containerStatuses or ())):
        if each.restartCount and each.lastState and (end := each.lastState.terminated) and end.finishedAt:
            number = each.restartCount - 1
            yield ContainerEnd(each.name, number, end.startedAt, end.finishedAt, end.reason, end.exitCode)


def pod_facts(pod: Pod) -> Iterable[tuple[Topic, Any]]:
    """Publish to the pod's controller by which digests its images are running."""
    owner = controller(pod.metadata)
    written = {container.name: container.image for container in pod.spec.running}
    found = {
        (each.name, written.get(each.name)): digest
        for each in pod.status.containerStatuses or ()
        if (digest := digest_in(each.imageID))
    }
    if owner and found:
        yield images_topic(owner.uid), found


def _ends(status: PodStatus) -> list[Terminated]:
    states = [each.state for each in status.containerStatuses or () if each.state]
    return [state.terminated for state in states if state.terminated]


def _last_end(status: PodStatus) -> str | None:
    return max((each.finishedAt for each in _ends(status) if each.finishedAt), default=None)


def _outcome(status: PodStatus) -> str:
    if status.phase == "Succeeded":
        return "Completed"
    if status.reason == "Evicted":
        return "Evicted"
    return "OOMKilled" if any(each.reason == "OOMKilled" for each in _ends(status)) else "Failed"


def _ended_by_deletion(pod: Pod) -> bool:
    """Return whether the containers ended because the pod was being deleted: after the request, which preceded the grace."""
    deletion, end = pod.metadata.deletionTimestamp, _last_end(pod.status)
    if not deletion or not end:
        return bool(deletion)
    grace = timedelta(seconds=pod.metadata.deletionGracePeriodSeconds or 0)
    return _instant(end) > _instant(deletion) - grace


def _instant(written: str) -> datetime:
    return datetime.fromisoformat(moment(written))
