"""Requests and limits in exact numbers: CPU in cores, memory in bytes, GPUs in pieces. What is not set is absent.

A container that is limited and asks for nothing asks for its limit, as the API server would write it into the pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import lru_cache

from exporters.kubernetes.manifests import Container, Demand, PodSpec, Resources, is_sidecar
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
    requests, limits = (_effective(spec, side) for side in (0, 1))
    asked, most = demanded(whole_pod)
    extra = amounts(overhead)
    requests = add({**requests, **asked}, extra)
    limits = {**limits, **most}
    return requests, add(limits, {name: value for name, value in extra.items() if name in limits})


def _effective(spec: PodSpec, side: int) -> Amounts:
    sidecars: Amounts = {}
    initial: Amounts = {}
    for container in spec.initContainers or ():
        needs = demanded(container.resources)[side]
        if is_sidecar(container):
            sidecars = add(sidecars, needs)
            initial = _larger(initial, sidecars)
        else:  # runs alone, beside the sidecars that were started before it
            initial = _larger(initial, add(sidecars, needs))
    return _larger(_sum(spec.containers, side, sidecars), initial)


def _sum(containers: Iterable[Container], side: int, start: Amounts) -> Amounts:
    total = start
    for container in containers:
        total = add(total, demanded(container.resources)[side])
    return total


def add(one: Amounts, other: Amounts) -> Amounts:
    """Add amounts, exactly; what only one of them has stays."""
    shared = {name: EXACT.add(one[name], other[name]) for name in one.keys() & other.keys()}
    return {**one, **other, **shared}


def _larger(one: Amounts, other: Amounts) -> Amounts:
    return {**one, **other, **{name: max(one[name], other[name]) for name in one.keys() & other.keys()}}


def _written(name: str, value: Decimal) -> Decimal | int:
    return value if name == "cpu" else whole(value)
