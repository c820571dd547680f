"""Audit: does everything in a store satisfy the rules that each write is held to, and those that only the whole can break?

A graph is validated alone when it is written, so a store made by an older version, or restored, or written past the API may
hold what would be refused today; and no single graph can show a circle of owners or a link that leads nowhere. The report can
be written as SHACL's (https://www.w3.org/TR/shacl/#validation-report).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from drumlin.kg.errors import InvalidInput, ShapeViolation, Violation
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import literal
from drumlin.kg.rdf.syntax import Lines, parts
from drumlin.kg.validation.validate import validate
from drumlin.ontology.vocabulary import NAMESPACE

MAX_REPORTED = 1000
"""A report lists this many violations and as many dangling links; it counts all."""

Progress = Callable[[int], None]
"""Called with the number of graphs that are done."""

_STEP = 64  # graphs after which progress is reported
_MANAGED_BY = f"<{NAMESPACE}managedBy>"
_LINKS = {
    _MANAGED_BY,
    *(
        f"<{NAMESPACE}{name}>"
        for name in ("cluster", "domain", "scheduledOn", "dependsOn", "selects", "scales", "template")
    ),
    "<http://purl.org/dc/terms/isPartOf>",
    "<http://www.w3.org/ns/dcat#accessService>",
    "<http://www.w3.org/ns/prov#wasDerivedFrom>",
}


@dataclass(frozen=True, slots=True)
class Dangling:
    """A thing that is linked and that the store does not know; ``count`` links lead there, ``focus`` and ``path`` are one."""

    target: str
    count: int
    focus: str
    path: str


@dataclass(slots=True)
class AuditReport:
    """What an audit found. ``rules`` counts all violations by rule; ``violations`` and ``dangling`` are cut at the limit."""

    graphs: int = 0
    statements: int = 0
    foreign: int = 0
    rules: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    dangling: list[Dangling] = field(default_factory=list)

    @property
    def conforms(self) -> bool:
        """Whether no rule is broken; a dangling link breaks none (what it leads to may not be readable here)."""
        return not self.rules

    def add(self, found: Iterable[Violation]) -> None:
        """Count violations and keep those that still fit."""
        for each in found:
            self.rules[each.rule] += 1
            if len(self.violations) < MAX_REPORTED:
                self.violations.append(each)


def audit(graphs: Iterable[tuple[str, Lines]], iris: Iris, progress: Progress | None = None) -> AuditReport:
    """Validate all graphs of a store, as ``Store.export`` gives them, and return what was found. See ``audited``."""
    report = AuditReport()
    for report in audited(graphs, iris):
        if progress:
            progress(report.graphs + report.foreign)
    return report


def audited(graphs: Iterable[tuple[str, Lines]], iris: Iris) -> Iterator[AuditReport]:
    """Validate graphs and yield the one report as it grows; it is whole when there is no more. Foreign graphs are counted only.

    About 15 s of processor time for a million statements, reading them included. Keeps in memory the names of the graphs
    and what they link to. One graph adds as many violations as one write would be answered (``kg.validation.validate.MAX_VIOLATIONS``).
    """
    report, links = AuditReport(), _Links(iris)
    rest = iter(graphs)
    while batch := list(islice(rest, _STEP)):
        ours = [each for each in batch if each[0].startswith(iris.root)]
        report.foreign += len(batch) - len(ours)
        report.graphs += len(ours)
        report.statements += sum(len(lines) for _, lines in ours)
        report.add(_breaches(ours, iris))
        links.add(ours)
        yield report
    report.add(_circles(links.managers))
    report.dangling = list(links.dangling())
    yield report


def _breaches(graphs: Iterable[tuple[str, Lines]], iris: Iris) -> Iterator[Violation]:
    for graph, lines in graphs:
        try:
            validate(lines, graph, iris)
        except ShapeViolation as error:
            yield from error.violations
        except InvalidInput as error:  # its name is no name, or it holds what is not RDF 1.1
            yield Violation(graph, None, None, "readable-graph", str(error), error.hint)


class _Links:
    """What entities link to, and which of them are there."""

    def __init__(self, iris: Iris) -> None:
        self.managers: dict[str, str] = {}
        self._iris = iris
        self._known: set[str] = set()
        self._targets: dict[str, tuple[int, str, str]] = {}

    def add(self, graphs: Iterable[tuple[str, Lines]]) -> None:
        """Take in the links of some graphs: count them by target, with one as an example."""
        start = f"<{self._iris.root}"
        for graph, lines in graphs:
            self._known.add(graph)
            for subject, predicate, value in map(parts, lines):
                if predicate in _LINKS and value.startswith(start):
                    self._add(subject[1:-1], predicate, value[1:-1])

    def _add(self, subject: str, predicate: str, target: str) -> None:
        count, *example = self._targets.get(target, (0, subject, predicate))
        self._targets[target] = (count + 1, example[0], example[1])
        if predicate == _MANAGED_BY:
            self.managers[subject] = target

    def dangling(self) -> Iterator[Dangling]:
        """Yield what is linked and not there, the most linked first."""
        missing = [
            Dangling(target, count, focus, path[1:-1])
            for target, (count, focus, path) in self._targets.items()
            if self._entity(target) not in self._known
        ]
        yield from sorted(missing, key=lambda each: (-each.count, each.target))[:MAX_REPORTED]

    def _entity(self, target: str) -> str:
        try:
            return self._iris.entity(target)
        except InvalidInput:
            return target


def _circles(managers: Mapping[str, str]) -> Iterator[Violation]:
    """Find entities that manage themselves through others; each circle is reported once."""
    settled: set[str] = set()
    for start in managers:
        path: dict[str, None] = {}
        at: str | None = start
        while at is not None and at not in settled and at not in path:
            path[at] = None
            at = managers.get(at)
        if at is not None and at in path:
            members = list(path)[list(path).index(at) :]
            message = f"it is managed by itself, through {len(members)} links"
            yield Violation(at, f"{NAMESPACE}managedBy", managers[at], "managed-by-circle", message)
        settled |= path.keys()


# -- as SHACL says it -----------------------------------------------------------------------------------------------------

_SH = "http://www.w3.org/ns/shacl#"
_TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
_SHAPES = "https://w3id.org/drumlin/shapes#"


def shacl_report(report: AuditReport) -> Lines:
    """Write the violations as a SHACL validation report; the source shape is the rule, the value its text as shown."""
    conforms = "true" if report.conforms else "false"
    found = {
        f"_:report {_TYPE} <{_SH}ValidationReport> .",
        f'_:report <{_SH}conforms> "{conforms}"^^<http://www.w3.org/2001/XMLSchema#boolean> .',
    }
    for number, each in enumerate(report.violations):
        name = f"_:result{number}"
        found.add(f"_:report <{_SH}result> {name} .")
        found |= {f"{name} {predicate} {value} ." for predicate, value in _result(each)}
    return frozenset(found)


def _result(violation: Violation) -> Iterator[tuple[str, str]]:
    yield _TYPE, f"<{_SH}ValidationResult>"
    yield f"<{_SH}resultSeverity>", f"<{_SH}Violation>"
    yield f"<{_SH}sourceConstraintComponent>", f"<{_SHAPES}Rule>"
    yield f"<{_SH}sourceShape>", f"<{_SHAPES}{violation.rule}>"
    yield f"<{_SH}resultMessage>", literal(violation.message)
    if not violation.focus.startswith("_:"):
        yield f"<{_SH}focusNode>", f"<{violation.focus}>"
    if violation.path:
        yield f"<{_SH}resultPath>", f"<{violation.path}>"
    if violation.value is not None:
        yield f"<{_SH}value>", literal(violation.value)
