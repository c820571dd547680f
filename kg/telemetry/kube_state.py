"""The series of kube-state-metrics: which of them a server has, and under which label names.

A server that does not honour the labels of what it scrapes renames them: ``pod`` is then kube-state-metrics' own pod, and the pod that a
series is about is ``exported_pod``. Series: https://github.com/kubernetes/kube-state-metrics/tree/main/docs/metrics/workload.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from drumlin.kg.telemetry.fetch.prometheus import Prometheus
from drumlin.kg.telemetry.promql import Matcher, Selector, select

POD_INFO, POD_OWNER, POD_START = "kube_pod_info", "kube_pod_owner", "kube_pod_start_time"
NO_OWNER = frozenset({"", "<none>"})
"""How an owner's kind and name are written when there is none: since version 2.8.0, and before."""
_RENAMED = "exported_"


@dataclass(frozen=True, slots=True)
class KubeState:
    """How a server has kube-state-metrics' series: all selectors have ``matchers``, ``renamed`` labels begin with ``exported_``."""

    matchers: tuple[Matcher, ...]
    renamed: frozenset[str]
    with_uid: bool = True

    def label(self, name: str) -> str:
        """Return the name of a label on this server."""
        return f"{_RENAMED}{name}" if name in self.renamed else name

    def plain(self, labels: dict[str, str]) -> dict[str, str]:
        """Return the labels of a series, under their own names; a series of which none was renamed has them already."""
        return {**labels, **{name: renamed for name in self.renamed if (renamed := labels.get(self.label(name)))}}

    def by(self, *names: str) -> str:
        """Write label names as a grouping has them; renamed ones both ways, since a server may have series of either kind."""
        return ", ".join(dict.fromkeys(each for name in names for each in (name, self.label(name))))

    def select(self, metric: str, *matchers: Matcher) -> str:
        """Write a selector; the labels of ``matchers`` are renamed as those of the server are."""
        own = (Matcher(self.label(each.label), each.operator, each.value) for each in matchers)
        return select(Selector(metric, ()), (*self.matchers, *own))


def find(
    client: Prometheus, metric: str, matchers: tuple[Matcher, ...], start: datetime, end: datetime
) -> KubeState | None:
    """Look how a server has one of the series in a span; None when it has none of it. Raises what the client raises."""
    names = client.label_names(select(Selector(metric, ()), matchers), start, end)
    if "pod" not in names or "namespace" not in names:
        return None
    renamed = frozenset(name.removeprefix(_RENAMED) for name in names if name.startswith(_RENAMED))
    return KubeState(matchers, renamed, "uid" in names)
