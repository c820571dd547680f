"""What both clients ask with one call, of one definition each: queries, search, resolving, logs, state, writes of many graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from drumlin.kg.client import calls, similar
from drumlin.kg.client.calls import Call
from drumlin.kg.client.endpoint import composed, operation
from drumlin.kg.client.problems import error_of
from drumlin.kg.client.resolve_api import Resolved
from drumlin.kg.client.rows import Rows
from drumlin.kg.client.transport import ClientTransport
from drumlin.kg.errors import SourceUnavailable
from drumlin.kg.store.protocol import GraphWrite
from drumlin.kg.telemetry import Choice

if TYPE_CHECKING:
    from drumlin.kg.client.series import Series
    from drumlin.kg.client.values import ValueRows

Values = str | Sequence[str] | None


def many(value: str | Sequence[str]) -> list[str]:
    """Return one name, or several, as a list."""
    return [value] if isinstance(value, str) else list(value)


def _search(
    text: str = "", *, limit: int = 50, cursor: str = "", sort: str = "relevance", **filters: Values
) -> Call[dict[str, Any]]:
    """Search entities by words and filters (``type="Pod", namespace=["a", "b"]``): a page with ``items``, ``total``, ``facets``.

    ``next`` of a page is the ``cursor`` of the next one. Raises ``InvalidInput`` for a filter, order or cursor that there is not.
    """
    return calls.search(text, filters, limit=limit, cursor=cursor, sort=sort)


def _query(name: str, /, **parameters: Any) -> Call[Rows]:
    """Ask a saved query; raises ``ResourceNotFound`` for an unknown one, ``InvalidInput`` for its parameters, ``QueryRejected``.

    With ``explain=True``, ``warnings`` of rows that there are none of say what of the parameters is nowhere in the graph.
    """
    return calls.query(name, parameters)


def _reach(root: str, *, edges: str = "", depth: int = 3, format: str = "json") -> Call[Any]:
    """Return what reaches a thing and what it reaches: a dict with ``nodes`` and ``edges``, or text as mermaid, dot or svg.

    ``edges`` are relations separated by commas (``calls,^dependsOn``; ``^`` follows one backwards). Raises ``ResourceNotFound``,
    ``InvalidInput``.
    """
    return calls.reach(root, edges, depth, format)


def _resolve(
    entity: str,
    metric: str,
    *,
    last: str | None = None,
    start: str | None = None,
    end: str | None = None,
    step: str | None = None,
    datasource: str | None = None,
    query: str | None = None,
    unit: str | Sequence[str] | None = None,
    selector: Choice | None = None,
) -> Call[Resolved]:
    """Resolve a metric of an entity: endpoint, exact query, unit, curl line; ``query`` is PromQL of your own, limited to the entity.

    ``unit`` converts within the query (``MB``, ``kWh``, ``%``). ``selector`` says how a workload's pods are picked: ``exact``,
    ``pattern`` or ``auto``; ``intervals`` of the answer, how they were.

    ``.prometheus()`` of the answer is for jobs that use prometheus-api-client. Raises ``ResourceNotFound`` for an unknown entity, metric or
    datasource, ``InvalidInput`` for a window or step that cannot be.
    """
    window = {"last": last, "start": start, "end": end, "step": step}
    return calls.resolve(
        entity, metric, **window, datasource=datasource, query=query, unit=unit and many(unit), selector=selector
    )


def _resolve_many(
    entities: str | Sequence[str] | None = None,
    metrics: str | Sequence[str] = (),
    unit: str | Sequence[str] | None = None,
    group_by: str | None = None,
    **options: str,
) -> Call[list[Resolved]]:
    """Resolve many metrics (all when none is named) of many entities: one object each, in order; ``problem`` where there is none.

    ``group_by`` (applicationGroup, application, team, kind, namespace, node, label:KEY) asks for the groups of their pods instead, of all
    pods without ``entities``.

    Each metric is in the first ``unit`` that fits it. Raises ``InvalidInput`` for a window or step that cannot be, ``TooLarge``.
    """
    options |= {"group_by": group_by} if group_by else {}
    return calls.resolve_many(entities and many(entities), many(metrics), **options, unit=unit and many(unit))


def _explain(
    entities: str | Sequence[str] | None, metrics: str | Sequence[str], **options: str
) -> Call[dict[str, Any]]:
    """Return what ``history`` would ask: the queries with curl lines, points and values; nothing is fetched.

    Raises what ``history`` raises before it fetches.
    """
    return calls.explain(entities and many(entities), many(metrics), **options)


def _logs(
    entity: str,
    *,
    last: str | None = None,
    start: str | None = None,
    end: str | None = None,
    filter: str | None = None,
    limit: int = 1000,
    direction: Literal["backward", "forward"] = "backward",
    datasource: str | None = None,
) -> Call[list[dict[str, Any]]]:
    """Fetch log lines of a workload's or pod's, each once, the newest first: ``time``, ``labels``, ``line``, ``metadata``.

    ``filter`` keeps those that contain a text. Raises ``ResourceNotFound`` when the entity has no logs, ``SourceUnavailable`` when their
    server does not answer; when it fails in between, ``detail["received"]`` has the lines that came before.
    """
    window = {"last": last, "start": start, "end": end, "datasource": datasource}
    call = calls.logs(entity, **window, filter=filter, limit=limit, direction=direction)
    return replace(call, read=lambda response: _whole(call.read(response)))


def _whole(said: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines of an answer, whose last object describes the others; raises when that is missing or says that they were cut."""
    lines, about = said[:-1], said[-1] if said else {}
    if "problem" not in about and "lines" in about:
        return lines
    if "problem" in about:
        cause = error_of(about["problem"])
    else:
        lines, cause = said, SourceUnavailable("the answer has no end", hint="ask again")
    text = f"the log lines are cut after {len(lines):,}: {cause}"
    raise SourceUnavailable(text, hint=cause.hint, detail={**cause.detail, "received": lines}) from cause


def _alerts(
    entity: str | Sequence[str] | None = None,
    *,
    state: str | Sequence[str] | None = None,
    severity: str | Sequence[str] | None = None,
    datasource: str | None = None,
) -> Call[dict[str, Any]]:
    """List the alerts that are pending or firing, all or those about an entity: ``items`` and, where a server failed, ``failures``.

    Each has ``alert``, ``state`` (pending, firing, suppressed), ``severity``, ``entity``, ``entities``, ``since``, ``value``,
    ``labels``, ``annotations``. Raises ``ResourceNotFound`` for an unknown entity, and when no datasource with alerts is configured.
    """
    given = {"entity": entity and many(entity), "state": state and many(state), "severity": severity and many(severity)}
    return calls.alerts(**given, datasource=datasource)


def _datasources(name: str | None = None, *, probe: bool = True) -> Call[list[dict[str, Any]]]:
    """Return the datasources and what a look at each shows: version, oldest sample, what templates do not find.

    Raises ``ResourceNotFound`` for a ``name`` that there is not; a server that is away is reported in its place.
    """
    return calls.datasources(name, probe=probe)


def _apply(writes: Sequence[GraphWrite], *, atomic: bool = False) -> Call[list[dict[str, Any]]]:
    """Write many graphs of one owner in one request; one result a write, in order: ``outcome`` or ``problem``.

    ``atomic``: all or none, and a refused write raises: ``Conflict``, ``PreconditionFailed``, ``ShapeViolation`` …. It is repeated by
    itself only when no write says what it expects. Writes of several owners raise ``InvalidInput``, an owner that the service itself
    writes as raises ``Conflict``.
    """
    return calls.write_subgraphs(writes, atomic=atomic)


class QueryOperations:
    """Operations of both clients."""

    _carrier: ClientTransport
    sparql = operation(calls.sparql)
    search = operation(_search)
    queries = operation(calls.queries)
    query = operation(_query)
    reach = operation(_reach)
    resolve = operation(_resolve)
    resolve_many = operation(_resolve_many)
    explain = operation(_explain)
    logs = operation(_logs)
    alerts = operation(_alerts)
    datasources = operation(_datasources)
    import_datasources = operation(calls.import_datasources)
    ready = operation(calls.ready)
    about = operation(calls.about)
    apply = operation(_apply)

    @composed
    async def similar(self, /, id: str, *, limit: int = 3) -> list[str]:
        """Return short ids that may have been meant by one that there is not, the nearest first; raises what ``search`` raises."""
        return await similar.similar(self._carrier, id, limit)

    @composed
    async def history(
        self,
        /,
        entities: str | Sequence[str] | None = None,
        metrics: str | Sequence[str] = (),
        *,
        last: str | None = None,
        start: str | None = None,
        end: str | None = None,
        step: str = "auto",
        gaps: str = "null",
        datasource: str | None = None,
        unit: str | Sequence[str] | None = None,
        selector: Choice | None = None,
        via: Literal["service", "direct"] = "service",
        progress: Callable[[int], None] | None = None,
        **selection: str,
    ) -> Series:
        """Fetch series: a long table with ``.queries .coverage .gaps .intervals .warnings``; ``progress`` receives how many have come.

        Without ``entities``, ``type`` (and ``namespace``) or ``sparql`` selects them; ``group_by`` (applicationGroup, application, team,
        kind, namespace, node, label:KEY) adds their pods up, those of all workloads where none is selected. ``query`` is PromQL of your
        own, limited to each.
        ``unit`` converts (``MB``, ``kWh``, ``%``): each metric is in the first one that fits it.
        ``selector`` says how a workload's pods are picked: ``exact`` (those known to have run), ``pattern`` (of their names), or ``auto``.
        ``kind="forecast"`` returns what was predicted: in the window, or the whole newest forecast when there is none.
        ``via="direct"``: the service only resolves, and this process asks the datasources that stand in its own ``drumlin.toml``.

        Raises ``ResourceNotFound`` for an unknown entity or metric, ``InvalidInput`` for a window, step or selection that cannot be,
        ``TooLarge`` for too much, ``SourceUnavailable`` when no series could be had, ``InvalidDocument`` when the answer is cut.
        ``AsyncClient`` reads in a thread, where ``progress`` is called too.
        """
        from drumlin.kg.client import telemetry

        window = {"last": last, "start": start, "end": end, "step": step, "gaps": gaps, "datasource": datasource}
        names = entities and many(entities)
        picked = {"selector": selector} if selector else {}
        options = {**window, **picked, **selection, "unit": unit and many(unit), "via": via}
        return await telemetry.history(self._carrier, names, many(metrics), options, progress)

    @composed
    async def values(
        self,
        /,
        metrics: str | Sequence[str],
        entities: str | Sequence[str] | None = None,
        *,
        unit: str | Sequence[str] | None = None,
        at: str | None = None,
        window: str | None = None,
        datasource: str | None = None,
        **filters: Values,
    ) -> ValueRows:
        """Read the current values of many entities: rows of entity, metric, value, unit, time, age, with ``.missing`` and why.

        Without ``entities``, filters select them as in ``search`` (``type="Node", cluster="prod"``), or ``sparql``. ``unit`` converts,
        ``at`` asks for an earlier time, ``window`` (5m) is how far rates look back. Each server is asked once for each metric.

        Raises ``InvalidInput`` for a filter, unit or time that cannot be, ``TooLarge`` for too much.
        """
        from drumlin.kg.client import values

        options = {"unit": unit and many(unit), "at": at, "window": window, "datasource": datasource, **filters}
        return await values.fetch(self._carrier, entities and many(entities), many(metrics), options)

    @composed
    async def save_history(
        self,
        /,
        path: str | Path,
        entities: str | Sequence[str] | None,
        metrics: str | Sequence[str],
        *,
        unit: str | Sequence[str] | None = None,
        progress: Callable[[int], None] | None = None,
        **options: str,
    ) -> list[dict[str, str]]:
        """Fetch series into a file (.parquet, .arrow, .csv, .ndjson) as they come, however many there are; options as for ``history``.

        Returns the series that are not in it: ``unique_id``, ``metric``, ``error``, ``detail``. ``progress`` receives how many bytes have
        been written. Raises what ``history`` raises; then there is no file.
        """
        from drumlin.kg.client import telemetry

        chosen = {**options, "unit": unit and many(unit)}
        return await telemetry.save(
            self._carrier, Path(path), entities and many(entities), many(metrics), progress, chosen
        )
