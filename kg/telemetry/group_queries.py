"""One metric of a group of pods as one query: the sum over the namespaces in which they ran, exactly the pods that ran.

Pods of several namespaces are not asked for together: ``db-0`` of one namespace may be of the group, and ``db-0`` of another not. What is
missing in one namespace does not take the others away.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from drumlin.kg.errors import InvalidInput, TooLarge
from drumlin.kg.telemetry import asking, binding, dialects, units
from drumlin.kg.telemetry.asking import PodRun, QueryPart, QueryTemplate
from drumlin.kg.telemetry.binding import Place
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.groups import GroupedRun, PodPlace
from drumlin.kg.telemetry.inventory import Inventory
from drumlin.kg.telemetry.quoting import any_of
from drumlin.kg.telemetry.series import Grid
from drumlin.kg.telemetry.templates import Template

MAX_PODS = 10_000
"""Pods of a group that run at one time (about 600 kB of names)."""
_MOST_PARTS = 500
_LABEL = "drumlin_part"

InNamespace = Callable[[str, str, str], str]
"""Makes the query for a cluster, a namespace, and a regular expression of pods' names."""


@dataclass(frozen=True, slots=True)
class GroupQuestion(QueryTemplate):
    """How one metric of a group is asked for; names of ``runs`` are ``cluster/namespace/pod``.

    ``shared`` are the names that other groups have at other times: such a pod counts only while it ran for this group.
    """

    in_namespace: InNamespace | None = None
    in_namespace_precise: InNamespace | None = None
    shared: frozenset[str] = frozenset()

    def parts(self, grid: Grid) -> list[QueryPart]:
        """Return the queries that together cover a grid: one, unless too many pods ran, or a pod came from or went to another group."""
        spans = [span for piece in self._pieces(grid) for span in self._spans(piece)]
        if len(spans) > _MOST_PARTS or any(len(names) > MAX_PODS for _, names in spans):
            raise TooLarge(
                f"more than {MAX_PODS:,} pods ran at one time, or more than {_MOST_PARTS} moves in the window",
                hint="take a shorter window, or ask for a namespace",
            )
        found = [QueryPart(span, self._query(names), _shown(names)) for span, names in spans if names]
        return found or [QueryPart(grid, self._query(self._everybody), _shown(self._everybody))]

    def precisely(self, part: QueryPart) -> str:
        """Return the precise query for the points of a part."""
        return self._query(self.pods(part.grid) or self._everybody, precise=True)

    @property
    def _everybody(self) -> frozenset[str]:
        return frozenset(run.name for run in self.runs or ())

    def pods(self, grid: Grid) -> tuple[str, ...]:
        """Return the names of the pods that ran in a grid's span, sorted; a shared one has no reach."""
        first = grid.start - self.reach
        return tuple(sorted({run.name for run in self.runs or () if self._counts(run, grid, first)}))

    def _spans(self, grid: Grid) -> tuple[tuple[Grid, tuple[str, ...]], ...]:
        names = self.pods(grid)
        if len(names) <= asking.MAX_PODS or grid.points < 2 or grid.end - grid.start <= asking.SHORTEST_PART:
            return ((grid, names),)
        first, second = grid.halves()
        return (*self._spans(first), *self._spans(second))

    def _counts(self, run: PodRun, grid: Grid, first: int) -> bool:
        if run.name in self.shared:  # a point is of the group for which the pod ran before it
            return run.start < grid.start and (run.end is None or run.end >= grid.start)
        return run.start <= grid.end and (run.end is None or run.end >= first)

    def identity(self, grid: Grid) -> str:
        """Return a text that is equal for two spans' questions when their queries are."""
        pieces = (f"{piece.start} {' '.join(self.pods(piece))}" for piece in self._pieces(grid))
        return "\n".join((self.write(""), *pieces, *self.told_precise(grid)))

    def _pieces(self, grid: Grid) -> list[Grid]:
        """Cut a grid where a shared pod begins or ends to run for the group."""
        edges = {grid.start}
        for run in self.runs or ():
            if run.name in self.shared:
                ends = [run.start + 1, *(() if run.end is None else (run.end + 1,))]
                edges |= {grid.start + -(-(int(at) - grid.start) // grid.step) * grid.step for at in ends}
        inside = sorted(edge for edge in edges if grid.start <= edge <= grid.end)
        return [
            Grid(first, (after or grid.end + grid.step) - grid.step, grid.step)
            for first, after in zip(inside, [*inside[1:], None], strict=True)
        ]

    def _query(self, names: Iterable[str], *, precise: bool = False) -> str:
        write = self.in_namespace_precise if precise else self.in_namespace
        assert write is not None
        by_namespace: dict[tuple[str, str], list[str]] = defaultdict(list)
        for name in names:
            cluster, namespace, pod = name.split("/")
            by_namespace[cluster, namespace].append(pod)
        return added([write(*place, any_of(pods)) for place, pods in sorted(by_namespace.items())])


def question(
    runs: Sequence[GroupedRun], shared: Iterable[PodPlace], reach: int, in_namespace: InNamespace
) -> GroupQuestion:
    """Return the question for the runs of a group's pods."""
    first = runs[0].pod
    return GroupQuestion(
        write=lambda pattern: in_namespace(first.cluster, first.namespace, pattern or ""),
        runs=tuple(PodRun("/".join(each.pod), each.start, each.end) for each in runs),
        reach=reach,
        in_namespace=in_namespace,
        shared=frozenset("/".join(each) for each in shared),
    )


def added(queries: Sequence[str]) -> str:
    """Return a query for the sum of queries of one series each; those that have none do not count."""
    if len(queries) == 1:
        return queries[0]
    told_apart = (f'label_replace({each}, "{_LABEL}", "{n}", "", "")' for n, each in enumerate(queries))
    return f"sum({' or '.join(told_apart)})"


def adds_up_over_pods(template: Template) -> bool:
    """Return whether the sum over some pods and the sum over others is that over all: bytes and joules do, shares do not."""
    return template.unit != "%" and template.query.lstrip("0123456789.e+* (").startswith("sum")


def domain_of(cluster: str, namespace: str, inventory: Inventory) -> str | None:
    """Return the id of the domain that a namespace belongs to, as far as the graph says."""
    found = (
        each.domain
        for each in inventory.members
        if each.kind == "namespace" and (each.cluster, each.name) == (cluster, namespace)
    )
    return next(found, None)


def in_namespaces(
    template: Template,
    server: Datasource,
    inventory: Inventory,
    how: Mapping[str, object],
    conversion: units.Conversion,
) -> InNamespace:
    """Return what makes the query for the pods of one namespace; ``how`` are options of ``dialects.write``."""
    domains = binding.names(server, "{domain}")

    def write(cluster: str, namespace: str, pods: str) -> str:
        place = Place((cluster,), domain_of(cluster, namespace, inventory) if domains else None)
        return dialects.write(
            template,
            {"namespace": namespace, "pods": pods},
            "",
            datasource=server,
            matchers=binding.matchers(server, place),
            factor=conversion.factor,
            **how,  # type: ignore[arg-type]  # two durations and a flag
        )

    return write


def check(template: Template, server: Datasource, runs: Sequence[GroupedRun]) -> None:
    """Raise ``InvalidInput`` when a datasource cannot be asked for a metric of a group, or does not hold all of it."""
    namespaces = {(run.pod.cluster, run.pod.namespace) for run in runs}
    if not adds_up_over_pods(template):
        raise InvalidInput(f"{template.metric} of several workloads does not add up", hint="ask for each workload")
    if server.kind == "parquet" or (server.kind == "influxdb" and len(namespaces) > 1):
        raise InvalidInput(
            f"datasource {server.name} ({server.kind}) cannot be asked for a group with one query",
            hint="ask for each workload and add the series up, or name a prometheus datasource",
        )
    if left_out := sorted({namespace for _, namespace in namespaces if not server.covers(namespace)}):
        raise InvalidInput(
            f"datasource {server.name} does not hold the namespace {left_out[0]}, in which pods of the group ran",
            hint="ask for each namespace",
        )


def _shown(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(each.partition("/")[2] for each in names))
