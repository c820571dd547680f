"""The names that kubectl has for a kind, and the one that ids have: ``deploy``, ``deployments`` and ``Deployment`` are ``deployment``.

People write ids as they write kubectl's commands. What asks for an entity takes these names (the command line, the tools of agents); an
IRI has one spelling only (``kg.model.iris``), so what writes does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from drumlin.kg.model.iris import RESERVED, is_own_group

_MONITORING = "monitoring.coreos.com"


class KindNames(NamedTuple):
    """A kind: its segment in ids, the class of its entities, kubectl's plural and short names."""

    segment: str
    entity: str
    plural: str
    short: tuple[str, ...] = ()


# fmt: off
KIND_NAMES: tuple[KindNames, ...] = (
    KindNames("namespace", "Namespace", "namespaces", ("ns",)),
    KindNames("node", "Node", "nodes", ("no",)),
    KindNames("replicaset", "ReplicaSet", "replicasets", ("rs",)),
    KindNames("deployment", "Deployment", "deployments", ("deploy",)),
    KindNames("statefulset", "StatefulSet", "statefulsets", ("sts",)),
    KindNames("daemonset", "DaemonSet", "daemonsets", ("ds",)),
    KindNames("cronjob", "CronJob", "cronjobs", ("cj",)),
    KindNames("job", "Job", "jobs"),
    KindNames("pod", "Pod", "pods", ("po",)),
    KindNames("persistentvolumeclaim", "DataAsset", "persistentvolumeclaims", ("pvc",)),
    KindNames("persistentvolume", "Storage", "persistentvolumes", ("pv",)),
    KindNames("storageclass", "Storage", "storageclasses", ("sc",)),
    KindNames("service", "Service", "services", ("svc",)),
    KindNames("ingress", "Ingress", "ingresses", ("ing",)),
    KindNames("horizontalpodautoscaler", "Autoscaler", "horizontalpodautoscalers", ("hpa",)),
    KindNames("poddisruptionbudget", "DisruptionBudget", "poddisruptionbudgets", ("pdb",)),
    KindNames("networkpolicy", "NetworkPolicy", "networkpolicies", ("netpol",)),
    KindNames("rolebinding", "RoleBinding", "rolebindings"),
    KindNames("clusterrolebinding", "RoleBinding", "clusterrolebindings"),
    KindNames(f"servicemonitor.{_MONITORING}", "Monitor", "servicemonitors", ("smon",)),
    KindNames(f"podmonitor.{_MONITORING}", "Monitor", "podmonitors", ("pmon",)),
    KindNames(f"scrapeconfig.{_MONITORING}", "Monitor", "scrapeconfigs", ("scfg",)),
)
# fmt: on
"""Kubernetes' kinds that become entities, as ``exporters.kubernetes.kinds`` renders them."""

_BY_NAME: Mapping[str, KindNames] = {
    name: each
    for each in KIND_NAMES
    for name in (each.segment, each.segment.partition(".")[0], each.plural, *each.short)
}
_BESIDE = ("notes", "scraped")


def kind_named(written: str) -> KindNames | None:
    """Return the kind that kubectl would take for ``written`` (``po``, ``Pods``, ``deployments.apps``); None for any other."""
    name, _, group = written.lower().partition(".")
    found = _BY_NAME.get(name)
    if found is None or not group:
        return found
    own = found.segment.partition(".")[2]
    return found if group == own or (not own and is_own_group(group)) else None


def spelled(id: str) -> str:
    """Return an id or IRI with its kind as ids write it; anything else stays as it is, for the service to judge.

    ``prod/payments/deploy/checkout`` is ``prod/payments/deployment/checkout``.
    """
    root, mark, short = id.partition("/id/") if "://" in id else ("", "", id)
    segments = short.split("/")
    first = 1 if segments[0] in _BESIDE else 0
    place = first + 2
    if len(segments) < place + 2 or segments[first] in RESERVED or (found := kind_named(segments[place])) is None:
        return id
    segments[place] = found.segment
    return f"{root}{mark}{'/'.join(segments)}"
