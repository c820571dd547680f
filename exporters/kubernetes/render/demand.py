"""Requests and limits in exact numbers: CPU in cores, memory in bytes, GPUs in pieces. What is not set is absent.

A container that is limited and asks for nothing asks for its limit, as the API server would write it into the pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import lru_cache

from exporters.kubernetes.manifests import Demand, PodSpec, Resources, is_sidecar
from kg.quantities import EXACT, quantity, whole

Amounts = Mapping[str, Decimal]
"""Resource (cpu, memory, gpu) → amount in base units."""


def amounts(resources: Resources | None) -> dict[str, Decimal]:
    """Return the amounts that are set."""
    if resources is None:
        return {}
    written = {"cpu": resources.cpu, "memory": resources.memory, "gpu": resources.gpu}
    return {name: quantity(value) for name, value in written.items() if value is not None}


@lru_cache(maxsize=4096)  # replicas ask for the same
def demanded(demand: Demand | None) -> tuple[Amounts, Amounts]:
    """Return what is effectively requested and what is the limit."""
    if demand is None:
        return {}, {}
    limits = amounts(demand.limits)
    return {**limits, **amounts(demand.requests)}, limits


def statements(requests: Amounts, limits: Amounts) -> dict[str, object]:
    """Write amounts with the ontology's terms. A GPU cannot be overcommitted, so its limit is its request."""
    return {
        **{f"{name}Request": _written(name, value) for name, value in requests.items()},
        **{f"{name}Limit": _written(name, value) for name, value in limits.items() if name != "gpu"},
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
    return _effective(tuple(each.resources for each in spec.containers), initial, overhead, whole_pod)


Needs = tuple[Demand | None, ...]


@lru_cache(maxsize=4096)  # replicas ask for the same
def _effective(
    containers: Needs,
    initial: tuple[tuple[Demand | None, bool], ...],
    overhead: Resources | None,
    whole_pod: Demand | None,
) -> tuple[Amounts, Amounts]:
    requests, limits = (_side(containers, initial, side) for side in (0, 1))
    asked, most = demanded(whole_pod)
    extra = amounts(overhead)
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
