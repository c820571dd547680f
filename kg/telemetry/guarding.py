"""The guard of a name pattern: which pods match it and are another workload's.

The pods of the Deployment ``web`` are called ``web-<hash>-<suffix>``, and so may be those of a DaemonSet ``web-facade``. Where a server has
the owner labels of kube-state-metrics, it is asked for the names that match and whose owner is another one; mostly there is none, so the
answer costs little. They are then left out of the query. The graph's own knowledge of other workloads' pods guards every server.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import structlog

from drumlin.kg.errors import DrumlinError
from drumlin.kg.telemetry import kube_state
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.describe import owner_names
from drumlin.kg.telemetry.fetch.prometheus import Prometheus
from drumlin.kg.telemetry.kube_state import POD_INFO, POD_OWNER, KubeState
from drumlin.kg.telemetry.promql import Matcher
from drumlin.kg.telemetry.quoting import any_of

_log = structlog.get_logger()
T = TypeVar("T")

KEPT = 600.0
"""Seconds for which an answer holds."""
_PATIENCE = 10.0  # seconds that a look-up may take
_MOST_KEPT = 20_000  # answers
_LONG = 40  # characters of an owner's name from which its pods are asked for in any case
_LABELS = {POD_OWNER: ("owner_kind", "owner_name"), POD_INFO: ("created_by_kind", "created_by_name")}


class Namesake(NamedTuple):
    """Whose pods are looked for: kind and name as Kubernetes has them."""

    kind: str
    namespace: str
    name: str
    pattern: str


class OwnerLabels:
    """Asks datasources for owners; for many threads. ``clock`` counts seconds; ``close`` ends its connections.

    What many workloads of a namespace have in common is asked once: the names of owners. Only where a pod of another one could be called as
    the pattern says, pods are asked for.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._clients: dict[str, Prometheus] = {}
        self._kept: dict[object, tuple[float, Any]] = {}

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            for client in self._clients.values():
                client.close()
            self._clients.clear()

    def foreign(
        self, datasource: Datasource, matchers: tuple[Matcher, ...], workload: Namesake, start: datetime, end: datetime
    ) -> frozenset[str] | None:
        """Return the names of pods in a span that match a workload's pattern and have another owner; None: the server does not know.

        Blocks for some seconds at most; never raises.
        """
        if datasource.access is None or datasource.kind != "prometheus":
            return None
        try:
            return _NamesakeSearch(self, self._client(datasource), matchers, workload, (start, end)).run()
        except DrumlinError as error:
            _log.warning("owners_unknown", datasource=datasource.name, workload=workload.name, reason=str(error))
            return None

    def _client(self, datasource: Datasource) -> Prometheus:
        with self._lock:
            known = self._clients.get(datasource.iri)
            if known is None or known.datasource.url != datasource.url:
                access = datasource.access and replace(
                    datasource.access, timeout=min(datasource.access.timeout, _PATIENCE)
                )
                known = self._clients[datasource.iri] = Prometheus(replace(datasource, access=access))
            return known

    def cached(self, key: object, ask: Callable[[], T]) -> T:
        """Return an answer of the last minutes, or ask; raises what asking raises."""
        with self._lock:
            known: tuple[float, T] | None = self._kept.get(key)
        if known and known[0] > self._clock():
            return known[1]
        found = ask()
        with self._lock:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[key] = self._clock() + KEPT, found
        return found


class _NamesakeSearch:
    """The search for one workload's namesakes; all that it asks is kept, for others of its namespace."""

    def __init__(
        self,
        owners: OwnerLabels,
        client: Prometheus,
        matchers: tuple[Matcher, ...],
        workload: Namesake,
        span: tuple[datetime, datetime],
    ) -> None:
        self._owners = owners
        self._client = client
        self._matchers = matchers
        self._workload = workload
        self._span = span
        self._key = (client.datasource.iri, matchers, span[0].date(), span[1].date())

    def run(self) -> frozenset[str] | None:
        """Return the names; None when the server has no owner labels."""
        workload = self._workload
        found_in = next(((metric, state) for metric in _LABELS if (state := self._state(metric))), None)
        if found_in is None:
            return None
        metric, state = found_in
        labels = _LABELS[metric]
        kind, names = owner_names(workload.kind, workload.name)
        of_kind, other_kind = Matcher(labels[0], "=", kind), Matcher(labels[0], "!=", kind)
        here = Matcher("namespace", "=", workload.namespace)
        same = self._values(state, metric, labels[1], here, of_kind)
        others = self._values(state, metric, labels[1], here, other_kind)
        bare = self._values(state, metric, "pod", here, Matcher(labels[1], "=~", "|<none>"))
        owned = re.compile(names).fullmatch
        between = self._between(state, here, names)
        if not (
            between & {each for each in same if owned(each)}
            or any(self._is_like(each) for each in same if not owned(each))
            or any(map(self._is_like, others))
            or alike(workload.pattern, bare)
        ):
            return frozenset()
        place = [here, Matcher("pod", "=~", workload.pattern)]
        if metric == POD_OWNER:  # of several owners one is the controller
            place.append(Matcher("owner_is_controller", "!=", "false"))
        own = [of_kind, Matcher(labels[1], "=~", names)]
        found = self._values(state, metric, "pod", *place, other_kind)
        found |= self._values(state, metric, "pod", *place, of_kind, Matcher(labels[1], "!~", names))
        if between:
            found |= self._values(state, metric, "pod", *place, of_kind, Matcher(labels[1], "=~", any_of(between)))
            own.append(Matcher(labels[1], "!~", any_of(between)))
        if found:  # a name that was the workload's own at some time is not left out
            found -= self._values(state, metric, "pod", here, Matcher("pod", "=~", any_of(found)), *own)
        return frozenset(found)

    def _state(self, metric: str) -> KubeState | None:
        def ask() -> KubeState | None:
            return kube_state.find(self._client, metric, self._matchers, *self._span)

        return self._owners.cached((self._key, metric), ask)

    def _values(self, state: KubeState, metric: str, label: str, *matchers: Matcher) -> set[str]:
        """Return the values of a label of the series with such labels."""
        selector = state.select(metric, *matchers)
        asked = (self._key, label, selector)
        return set(
            self._owners.cached(asked, lambda: self._client.label_values(state.label(label), *self._span, selector))
        )

    def _between(self, state: KubeState, here: Matcher, names: str) -> set[str]:
        """Return the names of ReplicaSets, or Jobs, that are called like the workload's own and that no such workload owns."""
        if self._workload.kind not in _BETWEEN:
            return set()
        metric, label, owner = _BETWEEN[self._workload.kind]
        found = self._values(state, metric, label, here, Matcher("owner_kind", "!=", owner))
        return {each for each in found if re.fullmatch(names, each)}

    def _is_like(self, owner: str) -> bool:
        """Return whether pods of an owner may be called as the pattern says: by the ends that controllers give them; long names are cut."""
        ends = ("-bcdfg", "-0", "-0-bcdfg")
        return len(owner) > _LONG or bool(alike(self._workload.pattern, [owner + end for end in ends]))


_BETWEEN = {
    "Deployment": ("kube_replicaset_owner", "replicaset", "Deployment"),
    "CronJob": ("kube_job_owner", "job_name", "CronJob"),
}


def alike(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that a pattern of pods' names matches whole, as the server would."""
    matches = re.compile(pattern).fullmatch
    return [name for name in names if matches(name)]
