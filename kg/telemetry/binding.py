"""Which of a server's series are an entity's: a datasource is bound to clusters and domains, and its matchers pick theirs.

A Prometheus that holds two clusters has two series of every name. Nothing in an entity's own query tells them apart, so a datasource says
whose telemetry it holds (``clusters``, ``domains``) and which labels name the cluster or domain (``matchers``). Where neither is enough, an
answer would add the clusters together: it is refused, with the lines to write. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from drumlin.kg.errors import InvalidInput
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.inventory import Inventory, Member
from drumlin.kg.telemetry.promql import Matcher
from drumlin.kg.telemetry.quoting import any_of

_CLUSTER, _DOMAIN = "{cluster}", "{domain}"
MAX_NAMES = 2000
"""Nodes or namespaces that a query for a domain names."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an entity is: the names of its clusters (one, but of a domain that spans several) and the id of its domain."""

    clusters: tuple[str, ...]
    domain: str | None = None


def holds(datasource: Datasource, place: Place) -> bool:
    """Return whether a datasource holds the telemetry of all that is in a place, as far as it is bound."""
    if datasource.clusters and not set(place.clusters) <= set(datasource.clusters):
        return False
    return not datasource.domains or place.domain in datasource.domains


def names(datasource: Datasource, hole: str) -> bool:
    """Return whether a matcher of the datasource names the entity's ``{cluster}`` or ``{domain}``."""
    return any(hole in value for value in datasource.matchers.values())


def is_bound(datasource: Datasource) -> bool:
    """Return whether a datasource says of which clusters or domains it holds what; a Parquet file's series have full ids."""
    told = datasource.clusters or datasource.domains or names(datasource, _CLUSTER) or names(datasource, _DOMAIN)
    return bool(told) or datasource.kind not in _TOLD


_TOLD = frozenset(
    {"prometheus", "loki", "influxdb"}
)  # of the others nothing is asked in which clusters could be added together


def is_told_apart(datasource: Datasource, place: Place, known: Collection[str], of_domain: Collection[str]) -> bool:
    """Return whether a query for a place can not meet series of another cluster.

    ``known`` are all clusters, ``of_domain`` those in which the place's domain has something. The place may be another one: a peer's.
    """
    known = {*known, *place.clusters}
    if len(known) <= 1 or datasource.kind not in _TOLD or names(datasource, _CLUSTER):
        return True
    if not is_bound(datasource):
        return False
    possible = known
    if datasource.clusters:
        possible &= set(datasource.clusters)
    if len(datasource.domains) == 1 or names(datasource, _DOMAIN):
        possible &= set(of_domain)
    return possible <= set(place.clusters)


def matchers(datasource: Datasource, place: Place) -> tuple[Matcher, ...]:
    """Return the label matchers that every selector for a place has, in this server's names.

    Raises ``InvalidInput`` when one names the domain or cluster and the entity's is not known.
    """
    found = []
    for label, value in sorted(datasource.matchers.items()):
        if (_DOMAIN in value and place.domain is None) or (_CLUSTER in value and not place.clusters):
            what = "domain" if _DOMAIN in value and place.domain is None else "cluster"
            raise InvalidInput(
                f"the matcher {label} of datasource {datasource.name} names a {what}, and none is known of the entity",
                hint=f"state the entity's `{what}`, or give the datasource other matchers in drumlin.toml",
            )
        text = value.replace(_DOMAIN, place.domain or "")
        if _CLUSTER not in text:
            found.append(Matcher(label, "=", text))
        elif len(place.clusters) == 1:
            found.append(Matcher(label, "=", text.replace(_CLUSTER, place.clusters[0])))
        else:
            found.append(Matcher(label, "=~", any_of(text.replace(_CLUSTER, each) for each in place.clusters)))
    return tuple(found)


def described(datasources: Iterable[Datasource], place: Place, known: Collection[str]) -> list[Datasource]:
    """Return the datasources that the telemetry of what is in a place is described in: those that hold it and tell it apart."""
    return [each for each in datasources if holds(each, place) and is_told_apart(each, place, known, place.clusters)]


def preferred(datasources: Iterable[Datasource], kind: str, domain: str | None) -> list[Datasource]:
    """Sort the datasources that hold the same, the one to ask first: configured, of the template's ``kind``, of the entity's domain (IRI).

    Configured ones stay as the configuration lists them, others are sorted by name, so the order is the same wherever it is asked for:
    what the graph marks as preferred is what ``resolve`` chooses.
    """

    def rank(each: Datasource) -> tuple[bool, str, bool, str]:
        found = each.access is None
        return found, "" if each.kind == kind else each.kind, each.domain != domain, each.name if found else ""

    return sorted(datasources, key=rank)


@dataclass(frozen=True, slots=True)
class Share:
    """What of a datasource is a domain's: all that it holds in some clusters (``kind`` None), or some nodes or namespaces there.

    ``left_out`` are clusters in which the domain has something that is not in it.
    """

    clusters: tuple[str, ...]
    kind: Literal["node", "namespace"] | None = None
    names: frozenset[str] = frozenset()
    left_out: tuple[str, ...] = ()


def share(domain: str, datasource: Datasource, inventory: Inventory) -> Share:
    """Return what of a datasource is a domain's: its nodes, else its namespaces.

    Raises ``InvalidInput`` when several domains are known and nothing shows which series are this one's.
    """
    everywhere = inventory.clusters_of(domain)
    whole = Share(tuple(sorted(everywhere)))
    bound = names(datasource, _DOMAIN) or datasource.domains == (domain,)
    if bound or datasource.kind == "parquet" or inventory.domains.union(datasource.domains) <= {domain}:
        return whole
    hosted = frozenset(each.cluster for each in inventory.of(domain, "cluster"))
    for kind in _KINDS:
        own = inventory.of(domain, kind)
        others = [each for each in inventory.members if each.kind == kind and each.domain != domain]
        if kind == "node" and own and everywhere <= hosted and not any(each.cluster in hosted for each in others):
            return whole
        if own:
            return _some(domain, datasource, kind, own, others, everywhere)
    if hosted and everywhere <= hosted:
        return whole
    raise domains_added_together(datasource, domain, inventory.domains)


def _some(
    domain: str,
    datasource: Datasource,
    kind: Literal["node", "namespace"],
    own: Collection[Member],
    others: Iterable[Member],
    everywhere: Collection[str],
) -> Share:
    """Return a share of nodes or namespaces; refuse one that cannot be distinguished from others' of the same name."""
    clusters, named = frozenset(each.cluster for each in own), frozenset(each.name for each in own)
    if shared := sorted(each.name for each in others if each.cluster in clusters and each.name in named):
        raise InvalidInput(
            f"the {kind} {shared[0]} belongs to the domain {domain} in one cluster and to another domain in a second one, and"
            f" datasource {datasource.name} holds both",
            hint=f"ask for cluster/{min(clusters)}, or add a [[datasource]] for each cluster (clusters, matchers)",
        )
    if len(named) > MAX_NAMES:
        raise InvalidInput(
            f"the domain {domain} has {len(named):,} {kind}s, and a query names {MAX_NAMES:,} at most",
            hint=f'give its datasource domains = ["{domain}"] in drumlin.toml',
        )
    return Share(tuple(sorted(clusters)), kind, named, tuple(sorted(set(everywhere) - clusters)))


_KINDS: tuple[Literal["node", "namespace"], ...] = ("node", "namespace")


def clusters_added_together(datasource: Datasource, known: Collection[str]) -> InvalidInput:
    """Return the error that a datasource cannot tell clusters apart, with the lines that bind it."""
    listed = sorted(known)
    shown = ", ".join(listed[:5]) + (f" and {len(listed) - 5} more" if len(listed) > 5 else "")
    lines = configuration(datasource, f'clusters = ["{listed[0]}"]', 'matchers = { cluster = "{cluster}" }')
    return InvalidInput(
        f"datasource {datasource.name} is bound to no cluster, and {len(listed)} are known ({shown}):"
        " the answer would add series of all that it holds together",
        hint="add to drumlin.toml one of the last two lines: the first when the server holds that cluster alone, the second"
        f" when its series have a label with the cluster's name:\n{lines}",
        detail={"datasource": datasource.name, "clusters": listed, "configuration": lines},
    )


def domains_added_together(datasource: Datasource, domain: str, known: Collection[str]) -> InvalidInput:
    """Return the error that a datasource cannot distinguish a domain's series from those of others, with the lines that bind it."""
    lines = configuration(datasource, f'domains = ["{domain}"]', 'matchers = { domain = "{domain}" }')
    return InvalidInput(
        f"no node or namespace is known of the domain {domain}, {len(known)} domains are known, and datasource"
        f" {datasource.name} is bound to none: the answer would add series of all that it holds together",
        hint="add to drumlin.toml one of the last two lines: the first when the server holds that domain alone, the second"
        f" when its series have a label with the domain's id:\n{lines}",
        detail={"datasource": datasource.name, "domains": sorted(known), "configuration": lines},
    )


def configuration(datasource: Datasource, *lines: str) -> str:
    """Return a table of ``drumlin.toml`` for a datasource with more lines."""
    table = [
        "[[datasource]]",
        f'name = "{datasource.name}"',
        f'kind = "{datasource.kind}"',
        f'url = "{datasource.url}"',
    ]
    return "\n".join([*table, *lines])
