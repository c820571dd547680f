"""Services that serve telemetry, as discovered in a cluster, and whether one is configured already. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from drumlin.kg.config.datasources import DatasourceKind, DatasourceSettings
from drumlin.kg.telemetry.addresses import leads_to_service


@dataclass(frozen=True, slots=True)
class Discovered:
    """A Service that serves telemetry: its namespace and name, what it speaks, and where (an http URL within the cluster).

    ``operated`` is one that counts only where no other leads to a Prometheus of its namespace. ``address`` is its cluster IP.
    """

    namespace: str
    service: str
    kind: DatasourceKind
    url: str
    operated: bool = False
    address: str | None = None


def is_service(configured: DatasourceSettings, found: Discovered, among: Iterable[Discovered]) -> bool:
    """Return whether a configured datasource is a Service: the one that it names, or the one to which its url leads."""
    if configured.service:
        return configured.service == f"{found.namespace}/{found.service}"
    alone = not any(each.service == found.service and each.namespace != found.namespace for each in among)
    url = str(configured.url)
    return configured.kind == found.kind and leads_to_service(url, found.url, alone=alone, cluster_ip=found.address)
