"""What both clients ask with one call, of one definition each: queries, search, resolving, logs, state, writes of many graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kg.client import calls
from kg.client.calls import Call
from kg.client.carrying import Carrier
from kg.client.operation import composed, operation
from kg.client.resolving import Resolved
from kg.client.rows import Rows
from kg.store.protocol import GraphWrite

if TYPE_CHECKING:
    from kg.client.series import Series

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


def _query(name: str, **parameters: Any) -> Call[Rows]:
    """Ask a saved query; raises ``ResourceNotFound`` for an unknown one, ``InvalidInput`` for its parameters, ``QueryRejected``."""
    return calls.query(name, parameters)


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
) -> Call[Resolved]:
    """Resolve a metric of an entity: endpoint, exact query, unit, curl line; ``query`` is PromQL of your own, limited to the entity.

    ``.prometheus()`` of the answer is for jobs that use prometheus-api-client. Raises ``ResourceNotFound`` for an unknown entity, metric or
    datasource, ``InvalidInput`` for a window or step that cannot be.
    """
    window = {"last": last, "start": start, "end": end, "step": step}
    return calls.resolve(entity, metric, **window, datasource=datasource, query=query)


def _resolve_many(
    entities: str | Sequence[str], metrics: str | Sequence[str] = (), **options: str
) -> Call[list[Resolved]]:
    """Resolve many metrics (all when none is named) of many entities: one object each, in order; ``problem`` where there is none.

    Raises ``InvalidInput`` for a window or step that cannot be, ``TooLarge`` for too many.
    """
    return calls.resolve_many(many(entities), many(metrics), **options)


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
    server does not answer.
    """
    window = {"last": last, "start": start, "end": end, "datasource": datasource}
    call = calls.logs(entity, **window, filter=filter, limit=limit, direction=direction)
    return replace(call, read=lambda response: call.read(response)[:-1])  # the last object tells about the others


def _datasources(name: str | None = None, *, probe: bool = True) -> Call[list[dict[str, Any]]]:
    """Return the datasources and what a look at each shows: version, oldest sample, what templates do not find.

    Raises ``ResourceNotFound`` for a ``name`` that there is not; a server that is away is told in its place.
    """
    return calls.datasources(name, probe=probe)


def _apply(writes: Sequence[GraphWrite], *, atomic: bool = False) -> Call[list[dict[str, Any]]]:
    """Write many graphs in one request; one result a write, in order: ``outcome`` or ``problem``.

    ``atomic``: all or none, and a refused write raises: ``Conflict``, ``PreconditionFailed``, ``ShapeViolation`` …. It is repeated by
    itself only when no write says what it expects.
    """
    return calls.write_subgraphs(writes, atomic=atomic)


class Asking:
    """Operations of both clients."""

    _carrier: Carrier
    sparql = operation(calls.sparql)
    search = operation(_search)
    queries = operation(calls.queries)
    query = operation(_query)
    resolve = operation(_resolve)
    resolve_many = operation(_resolve_many)
    explain = operation(_explain)
    logs = operation(_logs)
    datasources = operation(_datasources)
    import_datasources = operation(calls.import_datasources)
    ready = operation(calls.ready)
    about = operation(calls.about)
    apply = operation(_apply)

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
        via: Literal["service", "direct"] = "service",
        progress: Callable[[int], None] | None = None,
        **selection: str,
    ) -> Series:
        """Fetch series: a long table with ``.queries .coverage .gaps .warnings``; ``progress`` is told how many have come.

        Without ``entities``, ``type`` (and ``namespace``) or ``sparql`` selects them; ``query`` is PromQL of your own, limited to each.
        ``kind="forecast"`` returns what was predicted: in the window, or the whole newest forecast when there is none.
        ``via="direct"``: the service only resolves, and this process asks the datasources that stand in its own ``drumlin.toml``.

        Raises ``ResourceNotFound`` for an unknown entity or metric, ``InvalidInput`` for a window, step or selection that cannot be,
        ``TooLarge`` for too much, ``SourceUnavailable`` when no series could be had, ``InvalidDocument`` when the answer is cut.
        ``AsyncClient`` reads in a thread, where ``progress`` is called too.
        """
        from kg.client import telemetry

        window = {"last": last, "start": start, "end": end, "step": step, "gaps": gaps, "datasource": datasource}
        names = entities and many(entities)
        options = {**window, **selection, "via": via}
        return await telemetry.history(self._carrier, names, many(metrics), options, progress)

    @composed
    async def save_history(
        self,
        /,
        path: str | Path,
        entities: str | Sequence[str] | None,
        metrics: str | Sequence[str],
        *,
        progress: Callable[[int], None] | None = None,
        **options: str,
    ) -> None:
        """Fetch series into a file (.parquet, .arrow, .csv, .ndjson) as they come, however many there are; options as for ``history``.

        ``progress`` is told how many bytes have been written. Raises what ``history`` raises; then there is no file.
        """
        from kg.client import telemetry

        await telemetry.save(self._carrier, Path(path), entities and many(entities), many(metrics), progress, options)
