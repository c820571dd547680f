"""Virtual machines and containers outside Kubernetes: which series are one's, where another machine has the same name.

cAdvisor and the libvirt exporter name what they measure and know nothing of the site. So two containers of one name are told apart by the
target that was scraped: its ``instance`` is the host's name, with or without a port.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from drumlin.kg.model.iris import Iris
from drumlin.kg.store.protocol import Row
from drumlin.kg.telemetry.promql import Matcher
from drumlin.kg.telemetry.quoting import literally

LABELS: Mapping[str, str] = {"VirtualMachine": "domain", "ContainerInstance": "name"}
"""Scope → the label in which the series of its exporter have the name: the libvirt exporter's, cAdvisor's."""
_ALIKE = """SELECT ?other ?host WHERE {
  <%s> a ?type ; drumlin:name ?name ; drumlin:cluster ?site . ?other drumlin:name ?name ; a ?type ; drumlin:cluster ?site .
  OPTIONAL { ?other dcterms:isPartOf ?part . ?part a drumlin:Host ; drumlin:name ?host } } LIMIT 1000"""


def told_apart(
    ask: Callable[[str], list[Row]], iris: Iris, iri: str, name: str
) -> tuple[tuple[Matcher, ...], tuple[str, ...]]:
    """Return what distinguishes a machine's series from those of others of its name in the site, and what to know about it."""
    rows = ask(_ALIKE % iri)
    others = sorted({row["other"] for row in rows} - {iri})
    if not others:
        return (), ()
    listed = ", ".join(map(iris.short, others[:5]))
    host = next((row["host"] for row in rows if row["other"] == iri and "host" in row), None)
    if host is None:
        return (), (f"{listed} has the same name {name}, and no host is known of this one: their series are added up",)
    matcher = Matcher("instance", "=~", f"{literally(host)}(:[0-9]+)?")
    return (matcher,), (f"{listed} has the same name: only what the target of {host} shows is asked for",)
