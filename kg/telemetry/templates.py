"""Metric templates: which metrics each kind of entity has, and how each is asked for. They are data (``ontology/metrics.ttl``)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import NamedTuple, Self

from drumlin.kg.config.settings import DEFAULT_EXPORTERS
from drumlin.kg.errors import InvalidDocument, InvalidSettings, ResourceNotFound
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import CONTEXT_IRI, NAMESPACE, NodeDocument
from drumlin.kg.rdf.syntax import TURTLE, parse, terms
from drumlin.kg.telemetry import promql

ALIASES: Mapping[str, tuple[str, ...]] = {"network_usage": ("network_receive", "network_transmit")}
"""Metrics that are asked for by one name and are the sum of others; they are resolved, never stored."""
SHARES: Mapping[str, str] = {"cpu_usage": "cpu_utilisation", "mem_usage": "mem_utilisation"}
"""Which metric is another one in per cent."""
_TITLE = "http://purl.org/dc/terms/title"
_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"


@dataclass(frozen=True, slots=True)
class Template:
    """One metric of one scope. ``name`` is scope and metric (``workload.cpu_usage``), ``unit`` is UCUM, ``query`` has holes."""

    name: str
    metric: str
    scope: str
    title: str
    signal: str
    quantity: str
    unit: str
    metric_type: str
    exporter: str
    datasource_type: str
    query: str

    @property
    def adds_up(self) -> bool:
        """Whether points of it add up over time: joules or lines per step do, watts do not."""
        return any(each in self.query for each in ("increase(", "count_over_time(", "bytes_over_time("))

    @property
    def counts(self) -> bool:
        """Whether a point is what was counted in a window."""
        return promql.WINDOW_HOLE in self.query

    def document(self, iris: Iris) -> NodeDocument:
        """Describe the template for the graph."""
        return {
            "@context": CONTEXT_IRI,
            "id": iris.template(self.name),
            "type": "MetricTemplate",
            "name": self.metric,
            "scope": self.scope,
            "title": self.title,
            "signal": self.signal,
            "quantity": self.quantity,
            "unit": self.unit,
            "metricType": self.metric_type,
            "exporter": self.exporter,
            "datasourceType": self.datasource_type,
            "query": self.query,
        }

    @classmethod
    def ones_own(cls, name: str, scope: str) -> Self:
        """Return what a caller's own PromQL is taken for: nobody says its unit or quantity."""
        return cls(name, name, scope, "", "metrics", "", "1", "gauge", "", "prometheus", "")

    @classmethod
    def read(cls, subject: str, statements: Mapping[str, str]) -> Self:
        """Build a template from the statements about ``subject``: predicate → IRI or lexical form.

        Raises ``KeyError`` naming a predicate that is missing.
        """

        def word(term: str) -> str:
            return statements[NAMESPACE + term].removeprefix(NAMESPACE)

        return cls(
            name=subject.rpartition("/")[2],
            metric=word("name"),
            scope=word("scope"),
            title=statements[_TITLE],
            signal=word("signal"),
            quantity=word("quantity"),
            unit=word("unit"),
            metric_type=word("metricType"),
            exporter=word("exporter"),
            datasource_type=word("datasourceType"),
            query=word("query"),
        )


class Meaning(NamedTuple):
    """What values of a metric are: UCUM unit, quantity, type, and whether they add up over time.

    ``metric`` is its name, and ``factor`` what its values in its own unit are multiplied with to be in ``unit``.
    """

    unit: str
    quantity: str
    metric_type: str
    adds_up: bool
    metric: str
    factor: float = 1.0


@cache
def shipped_templates() -> tuple[Template, ...]:
    """Return all templates that Drumlin ships, in the order of their names."""
    text = files("drumlin.ontology").joinpath("metrics.ttl").read_bytes()
    found: dict[str, dict[str, str]] = {}
    for line in parse(text, TURTLE)[None]:
        subject, predicate, value = terms(line)
        found.setdefault(subject.value, {})[predicate.value] = value.value
    templates = (
        Template.read(subject, statements)
        for subject, statements in found.items()
        if statements.get(_TYPE) == f"{NAMESPACE}MetricTemplate"
    )
    return tuple(sorted(templates, key=lambda each: each.name))


class TemplateCatalogue:
    """The templates that are known, by scope and metric. Immutable, so it may be shared by threads."""

    def __init__(self, templates: Iterable[Template]) -> None:
        self.templates: tuple[Template, ...] = tuple(sorted(templates, key=lambda each: each.name))
        self._by_scope: dict[str, dict[str, Template]] = {}
        for template in self.templates:
            self._by_scope.setdefault(template.scope, {})[template.metric] = template
        workload = self._by_scope.get("Workload", {})
        self._by_scope["Pod"] = workload  # a pod is asked for as a workload of one
        several = {name: each for name, each in workload.items() if each.unit != "%"}  # shares do not add up
        self._by_scope["Namespace"] = self._by_scope["Group"] = several

    @classmethod
    @cache
    def shipped(cls, exporters: frozenset[str] = frozenset(DEFAULT_EXPORTERS)) -> Self:
        """Return the templates that Drumlin ships for these exporters (read once per process).

        Raises ``InvalidSettings`` for an exporter that no template knows, and for two that give one metric.
        """
        shipped = shipped_templates()
        known = {each.exporter for each in shipped}
        if unknown := sorted(exporters - known):
            raise InvalidSettings(
                f"no template is for the exporter {unknown[0]!r}", hint=did_you_mean(unknown[0], known)
            )
        chosen: dict[tuple[str, str], Template] = {}
        for each in shipped:
            replaced = _REPLACED_BY.get(each.exporter) in exporters and _has(shipped, each, _REPLACED_BY[each.exporter])
            if (
                each.exporter in exporters
                and not replaced
                and (other := chosen.setdefault((each.scope, each.metric), each)) is not each
            ):
                raise InvalidSettings(f"{other.exporter} and {each.exporter} both give {each.metric}; name one of them")
        return cls(chosen.values())

    def for_scope(self, scope: str) -> tuple[Template, ...]:
        """Return the templates of a scope (Workload, Pod, Namespace, Node, Domain, Cluster), in the order of their metrics."""
        return tuple(self._by_scope.get(scope, {}).values())

    def get(self, scope: str, metric: str) -> Template | None:
        """Return one template, or the sum that an alias stands for; None when there is none."""
        known = self._by_scope.get(scope, {})
        return known.get(metric) or _sum_of(metric, [known.get(each) for each in ALIASES.get(metric, ())])

    def find(self, scope: str, metric: str) -> Template:
        """Return one template; raises ``ResourceNotFound`` that says which metrics there are and which may be meant."""
        if found := self.get(scope, metric):
            return found
        known = self._by_scope.get(scope, {})
        raise ResourceNotFound(
            f"{metric[:80]!r} is not a metric of a {scope}",
            hint=did_you_mean(metric, known),
            detail={"metrics": list(known)},
        )

    def counts(self, metrics: Iterable[str]) -> bool:
        """Return whether any of these metrics comes from counters that are scraped, in any scope."""
        wanted = set(metrics)
        scraped = (each for each in self.templates if each.datasource_type == "prometheus")
        return any(each.metric in wanted and each.counts for each in scraped)

    def with_(self, templates: Iterable[Template]) -> TemplateCatalogue:
        """Return a catalogue in which these templates come first: they replace those of the same name."""
        return TemplateCatalogue({each.name: each for each in (*self.templates, *templates)}.values())

    def overridden_by(self, templates: Iterable[Template]) -> TemplateCatalogue:
        """Return a catalogue of the same metrics, in which those of ``templates`` that give one of them take its place."""
        known = {each.name: (each.scope, each.metric) for each in self.templates}
        return self.with_(each for each in templates if known.get(each.name) == (each.scope, each.metric))

    def documents(self, iris: Iris) -> list[NodeDocument]:
        """Describe all templates for the graph."""
        return [template.document(iris) for template in self.templates]


def _sum_of(metric: str, parts: Sequence[Template | None]) -> Template | None:
    """Return the template of an alias: the sum of its parts; None unless all of them are there, in one language."""
    found = [each for each in parts if each is not None]
    if not found or len(found) < len(parts) or len({each.datasource_type for each in found}) > 1:
        return None
    first, title = found[0], " and ".join(each.title[:1].lower() + each.title[1:] for each in found)
    query = " + ".join(f"({each.query})" for each in found)
    name = f"{first.scope.lower()}.{metric}"
    return replace(first, name=name, metric=metric, title=title[:1].upper() + title[1:], query=query)


_REPLACED_BY: Mapping[str, str] = {"kuscia": "envoy"}
"""Exporters whose metrics another one has better: Envoy's own port has response codes, which Kuscia leaves out."""


def _has(templates: Iterable[Template], like: Template, exporter: str) -> bool:
    return any((each.scope, each.metric, each.exporter) == (like.scope, like.metric, exporter) for each in templates)


_HOLES: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("Workload", "Pod"), frozenset({"namespace", "pods"})),
    "Node": frozenset({"node"}),
    **dict.fromkeys(("Cluster", "Domain"), frozenset[str]()),
    "DomainRoute": frozenset({"remote", "clusters"}),
    **dict.fromkeys(("VirtualMachine", "ContainerInstance"), frozenset({"machine"})),
    "Invocation": frozenset(),
    "Function": frozenset({"namespace", "function", "qualified"}),
}
"""What an entity of a scope fills, beside the window."""


def unfillable(query: str, scope: str) -> str | None:
    """Return why a template's query can never be asked, in one line, or None when it can; an unknown scope has no reason."""
    if scope not in _HOLES:
        return None
    try:
        unknown = sorted(promql.holes(query) - _HOLES[scope])
    except InvalidDocument as error:
        return str(error).partition("\n")[0]
    return f"nothing fills {{{{{unknown[0]}}}}} for a {scope}" if unknown else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Suggest the known word that is nearest, else list what is known (at most a dozen)."""
    words = sorted(known)
    if near := difflib.get_close_matches(word, words, n=1):
        return f"did you mean {near[0]}?"
    more = f" and {len(words) - 12} more" if len(words) > 12 else ""
    return f"there are {', '.join(words[:12])}{more}" if words else "there are none"
