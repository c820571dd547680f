"""Pod → one node document, its run, and the digests of the images it runs. Source: Pod v1 core."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from exporters.context import Context
from exporters.kubernetes.manifests import Demand, PodSpec, Projection, Resources, without_nulls
from exporters.kubernetes.render.demand import effective, statements
from exporters.kubernetes.render.images import digest_in, images_topic
from exporters.kubernetes.render.place import controller, manager, placed
from exporters.protocol import Life, Topic
from exporters.runs import moment
from kg.jsonld import NodeDocument


class Terminated(msgspec.Struct, frozen=True, gc=False):
    """How and when a container ended."""

    reason: str | None = None
    finishedAt: str | None = None


class ContainerState(msgspec.Struct, frozen=True, gc=False):
    """A container's state, as far as it is an end."""

    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct, frozen=True, gc=False):
    """What the kubelet reports of one container."""

    name: str
    imageID: str = ""
    state: ContainerState | None = None


class RunningPodSpec(PodSpec, frozen=True):
    """A pod's own fields, which templates leave to the scheduler and the runtime."""

    nodeName: str | None = None
    overhead: Resources | None = None
    resources: Demand | None = None


class PodStatus(msgspec.Struct, frozen=True, gc=False):
    """The pod's life without its conditions."""

    phase: str | None = None
    reason: str | None = None
    startTime: str | None = None
    containerStatuses: tuple[ContainerStatus, ...] | None = None


class Pod(Projection, frozen=True, kw_only=True):
    """What is taken from a Pod."""

    spec: RunningPodSpec = RunningPodSpec()
    status: PodStatus = PodStatus()


def render_pod(pod: Pod, context: Context) -> NodeDocument:
    """Describe a pod: its workload, effective requests and limits (cores, bytes, pieces), and its runs."""
    spec = pod.spec
    return without_nulls(
        {
            **placed(pod.metadata, "Pod", context),
            "managedBy": manager(pod.metadata, context),
            "phase": pod.status.phase or "Pending",
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
    return Life(status.startTime, end, outcome, pod.spec.nodeName)


def pod_facts(pod: Pod) -> Iterable[tuple[Topic, Any]]:
    """Tell the pod's controller by which digests its images are running."""
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
    """Tell whether the containers ended because the pod was being deleted: after the request, which preceded the grace."""
    deletion, end = pod.metadata.deletionTimestamp, _last_end(pod.status)
    if not deletion or not end:
        return bool(deletion)
    grace = timedelta(seconds=pod.metadata.deletionGracePeriodSeconds or 0)
    return _instant(end) > _instant(deletion) - grace


def _instant(written: str) -> datetime:
    return datetime.fromisoformat(moment(written))
