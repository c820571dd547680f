"""What both clients ask with one call, of one definition each: queries, search, resolving, logs, state, writes of many graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from kg.client import calls
from kg.client.calls import Call
from kg.client.operation import operation
from kg.client.resolving import Resolved
from kg.client.rows import Rows
from kg.store.protocol import GraphWrite

Values = str | Sequence[str] | None


def many(value: str | Sequence[str]) -> list[str]:
    """Return one name, or several, as a list."""
    return [value] if isinstance(value, str) else list(value)


def _search(
    text: str = "", *, limit: int = 50, cursor: str = "", sort: str = "relevance", **filters: Values
) -> Call[dict[str, Any]]:
    """Search entities by words and filters (``type="Pod", namespace=["a", "b"]``): a page with ``items``, ``total``, ``facets``."""
    return calls.search(text, filters, limit=limit, cursor=cursor, sort=sort)


def _query(name: str, **parameters: Any) -> Call[Rows]:
    """Ask a saved query."""
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

    ``.prometheus()`` of the answer is for jobs that use prometheus-api-client.
    """
    window = {"last": last, "start": start, "end": end, "step": step}
    return calls.resolve(entity, metric, **window, datasource=datasource, query=query)


def _resolve_many(
    entities: str | Sequence[str], metrics: str | Sequence[str] = (), **options: Any
) -> Call[list[Resolved]]:
    """Resolve many metrics (all when none is named) of many entities: one object each, in order; ``problem`` where there is none."""
    return calls.resolve_many(many(entities), many(metrics), **options)


def _explain(
    entities: str | Sequence[str] | None, metrics: str | Sequence[str], **options: Any
) -> Call[dict[str, Any]]:
    """Return what ``history`` would ask: the queries with curl lines, points and values; nothing is fetched."""
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
) -> Call[list[dict[str, Any]]]:
    """Fetch log lines of a workload's or pod's, each once, the newest first: ``time``, ``labels``, ``line``, ``metadata``.

    ``filter`` keeps those that contain a text.
    """
    window = {"last": last, "start": start, "end": end}
    call = calls.logs(entity, **window, filter=filter, limit=limit, direction=direction)
    return replace(call, read=lambda response: call.read(response)[:-1])  # the last object tells about the others


def _datasources(name: str | None = None, *, probe: bool = True) -> Call[list[dict[str, Any]]]:
    """Return the datasources and what a look at each shows: version, oldest sample, what templates do not find."""
    return calls.datasources(name, probe=probe)


def _apply(writes: Sequence[GraphWrite], *, atomic: bool = False) -> Call[list[dict[str, Any]]]:
    """Write many graphs in one request; one result a write, in order: ``outcome`` or ``problem``.

    ``atomic``: all or none, and a refused write raises.
    """
    return calls.write_subgraphs(writes, atomic=atomic)


class Asking:
    """Operations of both clients."""

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
