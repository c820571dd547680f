"""Renames a template for one datasource, by its profile and its own configuration.

The result is still a template: ``kg.telemetry.promql`` fills the holes and adds matchers. Exporters of one installation differ
(cAdvisor has the node in ``instance``, node-exporter in ``node``), so each selector is rewritten by its own exporter. Two cases wrap the
innermost instant vector: if the query groups by a renamed label, ``label_replace`` restores the template's name; if ``instance`` is an
address, ``and on (instance) node_uname_info`` keeps the series of the node. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from typing import NamedTuple

from drumlin.kg.config.datasources import EXPORTERS, NodeJoin, ProfileName
from drumlin.kg.errors import InvalidDocument, InvalidInput
from drumlin.kg.telemetry import promql
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.profiles import PROFILES, RECORDED, Naming, exporter_of
from drumlin.kg.telemetry.quoting import quote
from drumlin.kg.telemetry.templates import Template, shipped_templates

_NODE = "{{node}}"
_OF_NODES, _UNAME = "node-exporter", "node_uname_info"
_GROUPING = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})
_ADDRESS = r"\[?(.+?)\]?(:[0-9]+)?"
"""What ``instance`` is where it is an address: a host, in brackets when it is IPv6, and a port."""
_PAIRS = {"(": ")", "[": "]", "{": "}"}


class Names(NamedTuple):
    """How the series of a datasource are named, by exporter, where it differs from the templates; hashable.

    ``apart`` are the labels by which clusters are told apart: an address is unique within one.
    """

    namings: tuple[tuple[str, Naming], ...]
    nodes: NodeJoin
    apart: tuple[str, ...] = ()

    def of(self, metric: str) -> Naming | None:
        """Return how the series of a metric are named; None when nothing of them differs."""
        exporter = exporter_of(metric)
        return next((naming for name, naming in self.namings if name == exporter), None)


def written(template: Template, datasource: Datasource) -> str:
    """Return the query of a template in the names of a datasource, its holes still open."""
    if template.datasource_type != "prometheus" or not _differs(datasource):
        return template.query
    query = _own(template, datasource)
    if datasource.recorded and (rule := RECORDED.get(template.name)) and _is_shipped(template):
        query = f"({query}) or ({rule})"
    names = names_of(datasource)
    return renamed(query, names) if names.namings or names.nodes != "label" else query


def _differs(datasource: Datasource) -> bool:
    return bool(
        datasource.profile or datasource.jobs or datasource.exporters or datasource.nodes or datasource.recorded
    )


def label(datasource: Datasource, name: str, exporter: str = "cadvisor") -> str:
    """Return what a label of a template is called in a datasource's series of an exporter."""
    if own := datasource.labels.get(name):
        return own
    if datasource.profile == "otel-collector":
        return _OTEL.get(name, name)
    naming = dict(names_of(datasource).namings).get(exporter, Naming())
    return dict(naming.labels).get(name) or name


_OTEL = {"namespace": "k8s_namespace_name", "pod": "k8s_pod_name", "container": "k8s_container_name"}


def label_of_node(datasource: Datasource) -> str | None:
    """Return the label of node-exporter's series in which the node's name stands; None where only a join finds it."""
    if datasource.profile == "otel-collector":
        return "k8s_node_name"
    names = names_of(datasource)
    naming = dict(names.namings).get(_OF_NODES, Naming())
    return None if names.nodes != "label" else naming.node or datasource.labels.get("instance") or "instance"


def names_of(datasource: Datasource) -> Names:
    """Return how a datasource's series are named: its profile's row, and on top of it what its own table says."""
    return _names(
        datasource.profile,
        datasource.nodes,
        frozenset(datasource.labels),
        tuple(sorted(datasource.jobs.items())),
        tuple((exporter, tuple(sorted(own.items()))) for exporter, own in sorted(datasource.exporters.items())),
        tuple(sorted(label for label, value in datasource.matchers.items() if "{cluster}" in value)),
    )


@lru_cache(maxsize=256)
def _names(
    profile: ProfileName | None,
    nodes: NodeJoin | None,
    taken: frozenset[str],
    jobs: tuple[tuple[str, str], ...],
    exporters: tuple[tuple[str, tuple[tuple[str, str], ...]], ...],
    apart: tuple[str, ...],
) -> Names:
    row = PROFILES[profile or "kube-prometheus"]
    own_labels, own_jobs = {name: dict(labels) for name, labels in exporters}, dict(jobs)
    found = []
    for exporter in EXPORTERS:
        usual, own = row.namings.get(exporter, Naming()), own_labels.get(exporter, {})
        kept = {name: there for name, there in usual.labels if name not in taken}
        labels = {**kept, **own}
        job = own_jobs.get(exporter, usual.job if _JOBS.get(exporter, exporter) not in own_jobs else None)
        node = None if taken & _NODE_LABELS or own.keys() & _NODE_LABELS else usual.node
        node = labels.pop("instance", None) or node  # series keep an instance, by which the query may group
        naming = Naming(job, node, tuple(sorted(labels.items())))
        if naming != Naming():
            found.append((exporter, naming))
    named = taken & {"instance"} or "instance" in own_labels.get(_OF_NODES, {})
    return Names(tuple(found), nodes or ("label" if named else row.nodes), apart)


_JOBS = {"cadvisor": "kubelet"}  # exporter → its job in the templates, where that is not its name
_NODE_LABELS = frozenset({"instance", "node"})


def _own(template: Template, datasource: Datasource) -> str:
    """Return the template's query, or the profile's own; a template that somebody has replaced holds everywhere."""
    own = PROFILES[datasource.profile].queries.get(template.name) if datasource.profile else None
    return own if own and _is_shipped(template) else template.query


def _is_shipped(template: Template) -> bool:
    return _shipped().get(template.name) == template.query


@lru_cache(maxsize=1)
def _shipped() -> dict[str, str]:
    return {each.name: each.query for each in shipped_templates()}


def joined_to_node(query: str, datasource: Datasource, node: str, matchers: tuple[promql.Matcher, ...]) -> str:
    """Return a query that somebody wrote in which every selector is kept to a node by a join, and has ``matchers``.

    For a datasource whose ``label_of_node`` is None. Raises ``InvalidInput`` for what is not PromQL or cannot be limited.
    """
    names, own = names_of(datasource), replace(datasource, labels={}, jobs={})  # a caller writes in the server's names
    hint = 'write plain selectors: metric{label="value"}'
    try:
        written = len(promql.parts_of(query))
        tokens = promql.tokens_of(query)
        texts = [text for _, text in tokens]
        for each in (_selected(tokens, at) for at in promql.positions_of_metrics(tokens)):
            before, after = _joined(names, f"={_NODE}", "", "")
            start, end = each.vector
            texts[start], texts[end] = before + texts[start], texts[end] + after
        limited = promql.render("".join(texts), {"node": node}, window=_ANY, datasource=own, matchers=matchers)
        found = len(promql.parts_of(limited))
    except InvalidDocument as error:
        raise InvalidInput(str(error), hint=hint) from error
    if found != 2 * written:  # each selector with one that names the node
        raise InvalidInput("the query cannot be limited to the node", hint=hint)
    return limited


_ANY = timedelta(minutes=5)  # a window that nothing in a caller's query refers to


# -- a query, selector by selector ----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Selected:
    """One selector of a template: where it stands among the tokens, both ends included, and its matchers between braces."""

    metric: str
    first: int
    last: int
    vector: tuple[int, int]
    """The innermost instant vector made of it: itself, or the function that takes its range."""
    matchers: tuple[tuple[tuple[str, str], ...], ...]


@lru_cache(maxsize=4096)
def renamed(query: str, names: Names) -> str:
    """Return a template with its selectors in other names; a second time changes nothing. Raises ``InvalidDocument`` for no PromQL."""
    tokens = promql.tokens_of(query)
    grouped = _grouped(tokens)
    texts = [text for _, text in tokens]
    for each in (_selected(tokens, at) for at in promql.positions_of_metrics(tokens)):
        naming = names.of(each.metric)
        joined = names.nodes != "label" and exporter_of(each.metric) == _OF_NODES and each.metric != _UNAME
        if naming is None and not joined:
            continue
        kept, node = _matchers(each, naming or Naming(), joined=joined)
        for position in range(each.first + 1, each.last + 1):
            texts[position] = ""
        texts[each.first] = f"{each.metric}{{{','.join(kept)}}}"
        start, end = each.vector
        before, after = _wrapping(naming or Naming(), grouped)
        if after and "".join(text for _, text in tokens[end + 1 :]).startswith(after):
            before = after = ""
        if node:
            before, after = _joined(names, node, before, after)
        texts[start], texts[end] = before + texts[start], texts[end] + after
    return "".join(texts)


def _selected(tokens: Sequence[tuple[str, str]], at: int) -> _Selected:
    last = at
    matchers: tuple[tuple[tuple[str, str], ...], ...] = ()
    opening = _next(tokens, at)
    if opening is not None and tokens[opening][1] == "{":
        last = _closing(tokens, opening)
        matchers = _split(tokens[opening + 1 : last])
    bracket = _next(tokens, last)
    ranged = bracket is not None and tokens[bracket][1] == "["
    if ranged and bracket is not None:
        inside = tokens[bracket + 1 : _closing(tokens, bracket)]
        ranged = not any(":" in text for _, text in inside)  # a subquery ranges over an instant vector
    vector = _call(tokens, at) if ranged else (at, last)
    return _Selected(tokens[at][1], at, last, vector, matchers)


def _call(tokens: Sequence[tuple[str, str]], at: int) -> tuple[int, int]:
    """Return the ends of the innermost call around a position, from the function's name to its closing parenthesis."""
    depth = 0
    for position in range(at - 1, -1, -1):
        text = tokens[position][1]
        depth += (text in (")", "]", "}")) - (text in ("(", "[", "{"))
        if depth < 0 and text == "(":
            name = next((p for p in range(position - 1, -1, -1) if tokens[p][0] != "space"), None)
            if name is not None and tokens[name][0] == "name":
                return name, _closing(tokens, position)
            depth = 0
    return at, at  # a range outside any function: the parser refuses it


def _closing(tokens: Sequence[tuple[str, str]], opening: int) -> int:
    """Return the position of what closes a bracket, else the last one."""
    depth, mark = 0, tokens[opening][1]
    for position in range(opening, len(tokens)):
        text = tokens[position][1]
        depth += (text == mark) - (text == _PAIRS[mark])
        if not depth:
            return position
    return len(tokens) - 1


def _next(tokens: Sequence[tuple[str, str]], at: int) -> int | None:
    return next((position for position in range(at + 1, len(tokens)) if tokens[position][0] != "space"), None)


def _split(inner: Iterable[tuple[str, str]]) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Split what stands between braces into matchers, without space."""
    found: list[list[tuple[str, str]]] = [[]]
    for kind, text in inner:
        if text == ",":
            found.append([])
        elif kind != "space":
            found[-1].append((kind, text))
    return tuple(tuple(each) for each in found if each)


def _grouped(tokens: Sequence[tuple[str, str]]) -> frozenset[str]:
    """Return the labels that a query groups or joins by."""
    found: set[str] = set()
    for at, (_, text) in enumerate(tokens):
        opening = _next(tokens, at) if text.lower() in _GROUPING else None
        if opening is not None and tokens[opening][1] == "(":
            found |= {name for kind, name in tokens[opening : _closing(tokens, opening)] if kind == "name"}
    return frozenset(found)


def _matchers(selected: _Selected, naming: Naming, *, joined: bool) -> tuple[list[str], str | None]:
    """Return the matchers in other names, and the one of the node apart (operator and hole) where a join takes its place."""
    labels, kept, node = dict(naming.labels), [], None
    exporter = exporter_of(selected.metric) or ""
    usual = ["job", "=", quote(_JOBS.get(exporter, exporter))]
    for matcher in selected.matchers:
        texts = [text for _, text in matcher]
        if len(texts) == 3:
            name, operator, value = texts
            is_job = texts == usual
            if value == _NODE and joined:
                node = operator + value
                continue
            if value == _NODE and naming.node:
                name = naming.node
            elif is_job and naming.job is not None:
                operator, value = promql.operator_of(naming.job), quote(naming.job.removeprefix("=~"))
                name = name if naming.job else ""
            name = labels.get(name, name)
            texts = [name, operator, value] if name else []
        if texts:
            kept.append("".join(texts))
    return kept, node


def _wrapping(naming: Naming, grouped: frozenset[str]) -> tuple[str, str]:
    """Return what gives renamed labels the template's names again, for those that the query groups by."""
    before = after = ""
    for usual, own in naming.labels:
        if own and usual in grouped:
            before, after = f"label_replace({before}", f'{after}, "{usual}", "$1", "{own}", "(.+)")'
    return before, after


def _joined(names: Names, node: str, before: str, after: str) -> tuple[str, str]:
    """Return what keeps a node's series where their ``instance`` is an address. ``node`` is the operator and the hole."""
    plain = names._replace(nodes="label")
    apart = "".join(f",{each}" for each in names.apart)
    if names.nodes == "node_uname_info":
        info = renamed(f'node_uname_info{{job="node-exporter",nodename{node}}}', plain)
        return f"({before}", f"{after} and on (instance{apart}) {info})"
    info = renamed(f'kube_node_info{{job="kube-state-metrics",node{node}}}', plain)
    address = f'"internal_ip", "$1", "instance", {quote(_ADDRESS)}'
    return f"(label_replace({before}", f"{after}, {address}) and on (internal_ip{apart}) {info})"
