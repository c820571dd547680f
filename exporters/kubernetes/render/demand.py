"""Requests and limits in exact numbers: CPU in cores, memory in bytes, GPUs and extended resources in pieces. What is not set is absent.

A container that is limited and asks for nothing asks for its limit, as the API server would write it into the pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import lru_cache

from drumlin.exporters.kubernetes.manifests import Demand, PodSpec, Resources, is_sidecar
from drumlin.kg.model.quantities import EXACT, Written, quantity, whole

Amounts = Mapping[str, Decimal]
"""Resource (cpu, memory, gpu, or an extended resource by its own name) → amount in base units."""

_NAMES = {"cpu": "cpu", "memory": "memory", "nvidia.com/gpu": "gpu"}
_OWN = frozenset(_NAMES.values())
_HUGE_PAGES = "hugepages-"
_NATIVE = "kubernetes.io/"


def amounts(resources: Resources | None) -> dict[str, Decimal]:
    """Return the amounts that are set."""
    if resources is None:
        return {}
    return {
        _NAMES.get(name, name): quantity(value)
        for name, value in resources.items()
        if value is not None and (name in _NAMES or extended(name))
    }


def extended(name: str) -> bool:
    """Return whether a resource is an extended one or huge pages, not one of Kubernetes' own (``ephemeral-storage``, ``pods``).

    https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#extended-resources
    """
    return name.startswith(_HUGE_PAGES) or ("/" in name and name not in _NAMES and not name.startswith(_NATIVE))


def extended_amounts(found: Amounts) -> list[str]:
    """Write the extended resources among amounts as ``name=amount``; every node has none of some huge pages, which says nothing."""
    return [f"{name}={whole(value)}" for name, value in sorted(found.items()) if value and extended(name)]


@lru_cache(maxsize=4096)  # replicas ask for the same
def demanded(demand: Demand | None) -> tuple[Amounts, Amounts]:
    """Return what is effectively requested and what is the limit."""
    if demand is None:
        return {}, {}
    limits = amounts(demand.limits)
    return {**limits, **amounts(demand.requests)}, limits


def statements(requests: Amounts, limits: Amounts) -> dict[str, object]:
    """Write amounts with the ontology's terms. Devices and huge pages cannot be overcommitted, so their limit is their request."""
    more = extended_amounts(requests)
    return {
        **{f"{name}Request": _written(name, value) for name, value in requests.items() if name in _OWN},
        **{f"{name}Limit": _written(name, value) for name, value in limits.items() if name in ("cpu", "memory")},
        **({"extendedRequest": more} if more else {}),
    }


def effective(
    spec: PodSpec, overhead: Resources | None = None, whole_pod: Demand | None = None
) -> tuple[Amounts, Amounts]:
    """Return what a whole pod requests and may use, by the scheduler's arithmetic.

    The larger of what the containers and sidecars need together and what initialisation needs at its worst moment; a
    pod-level amount replaces it; the overhead of the runtime is added (to limits, only where there is one).
    https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers
    """
    initial = tuple((each.resources, is_sidecar(each)) for each in spec.initContainers or ())
    extra = tuple(overhead.items()) if overhead else ()
    return _effective(tuple(each.resources for each in spec.containers), initial, extra, whole_pod)


Needs = tuple[Demand | None, ...]


@lru_cache(maxsize=4096)  # replicas ask for the same
def _effective(
    containers: Needs,
    initial: tuple[tuple[Demand | None, bool], ...],
    overhead: tuple[tuple[str, Written | None], ...],
    whole_pod: Demand | None,
) -> tuple[Amounts, Amounts]:
    requests, limits = (_side(containers, initial, side) for side in (0, 1))
    asked, most = demanded(whole_pod)
    extra = amounts(dict(overhead))
    requests = add({**requests, **asked}, extra)
    limits = {**limits, **most}
    return requests, add(limits, {name: value for name, value in extra.items() if name in limits})


def _side(containers: Needs, initial: Iterable[tuple[Demand | None, bool]], side: int) -> Amounts:
    sidecars: Amounts = {}
    worst: Amounts = {}
    for demand, sidecar in initial:
        needs = demanded(demand)[side]
        if sidecar:
            sidecars = add(sidecars, needs)
            worst = _larger(worst, sidecars)
        else:  # runs alone, beside the sidecars that were started before it
            worst = _larger(worst, add(sidecars, needs))
    total = sidecars
    for demand in containers:
        total = add(total, demanded(demand)[side])
    return _larger(total, worst)


def add(one: Amounts, other: Amounts) -> Amounts:
    """Add amounts, exactly; what only one of them has stays."""
    shared = {name: EXACT.add(one[name], other[name]) for name in one.keys() & other.keys()}
    return {**one, **other, **shared}


def _larger(one: Amounts, other: Amounts) -> Amounts:
    return {**one, **other, **{name: max(one[name], other[name]) for name in one.keys() & other.keys()}}


def _written(name: str, value: Decimal) -> Decimal | int:
    return value if name == "cpu" else whole(value)
