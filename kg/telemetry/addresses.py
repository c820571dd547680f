"""Compares addresses of servers: with a port or the default one, with the short or the full name of a Service.

In a cluster ``prometheus.monitoring``, ``prometheus.monitoring.svc`` and ``prometheus.monitoring.svc.cluster.local.`` are one name.
Names: https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/. Pure.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}
_OF_SERVICE = re.compile(r"([^.]+\.[^.]+)\.svc(\..+)?")


class Address(NamedTuple):
    """Where a server listens: its host in lower case, a Service's as ``name.namespace``; its port; the path, without slashes at its end."""

    host: str
    port: int | None
    path: str


def address(url: str) -> Address:
    """Read a URL that ``clean_url`` accepts."""
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    if match := _OF_SERVICE.fullmatch(host):
        host = match[1]
    return Address(host, parts.port or _PORTS.get(parts.scheme), parts.path.rstrip("/"))


def leads_to_service(url: str, found: str, *, alone: bool, cluster_ip: str | None = None) -> bool:
    """Return whether a URL leads to the Service whose URL is ``found``; a path below it is the same server's.

    ``alone``: no other Service that was found has its name, so that the name without a namespace is enough. ``cluster_ip`` is the
    Service's own address.
    """
    asked, there = address(url), address(found)
    hosts = {there.host, cluster_ip} | ({there.host.partition(".")[0]} if alone else set())
    return asked.host in hosts and asked.port == there.port
