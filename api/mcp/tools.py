"""The tools of agents: questions to the graph and its telemetry, written once against the client, for every transport. All only read.

A tool gets a client of the caller: over stdio of the service that is named, over HTTP of this one, with the caller's own token. So a tool
can do nothing, and sees nothing, that its caller could not do and see over REST.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from drumlin.api.mcp import summaries
from drumlin.api.mcp.answers import AnswerCursor, Table
from drumlin.api.mcp.arguments import ToolArgument
from drumlin.kg.client import AsyncClient
from drumlin.kg.client.rows import Rows
from drumlin.kg.errors import DrumlinError, InvalidIdentifier, ResourceGone, ResourceNotFound
from drumlin.kg.model.kind_names import kind_named, spelled
from drumlin.kg.telemetry.durations import parse_duration, parse_moment

Given = Mapping[str, Any]
MAX_ANSWER = 8 << 20
"""Bytes of an answer of the service that a tool reads: what an agent asks for must not fill the memory of whoever answers it."""
_HITS = 50
_LOG_LINES = 300
_QUERY_SECONDS = 20.0
_LONG_LINE, _LONG_QUERY = 500, 3000

_ID = ToolArgument(
    "id", "Id of the entity: cluster/namespace/kind/name, such as prod/payments/deployment/checkout.", required=True
)
_METRIC = ToolArgument(
    "metric", "Name of a metric, such as cpu_usage or mem_usage; describe lists those of an entity.", required=True
)
_CURSOR = ToolArgument(
    "cursor", "Where the last answer ended, as it says; the other arguments stay the same.", default=""
)
_UNIT = ToolArgument("unit", "Unit to convert to: MB, GiB, %, kWh, cores …", default="")
_SELECTOR = ToolArgument(
    "selector",
    "How pods are picked: exact (those that ran), pattern (of their names: a short query), auto.",
    default="auto",
)
_WINDOW = (
    ToolArgument("last", "Length of the window up to now: 15m, 6h, 7d.", default=""),
    ToolArgument("start", "Begin of the window instead, RFC 3339: 2026-11-27T00:00:00Z.", default=""),
    ToolArgument("end", "End of the window, RFC 3339; now when it is left out.", default=""),
)
_FILTERS = (
    ToolArgument(
        "type", "Only a class or kind: Deployment, Pod, Node …; Workload stands for all workloads.", default=""
    ),
    ToolArgument("namespace", "Only a namespace.", default=""),
    ToolArgument("cluster", "Only a cluster.", default=""),
)


@dataclass(frozen=True, slots=True)
class AgentTool:
    """A tool: what it is called, what it says of itself, what it takes, and what it does."""

    name: str
    title: str
    description: str
    arguments: tuple[ToolArgument, ...]
    ask: Callable[[AsyncClient, Given, AnswerCursor], Awaitable[Table]]


# -- the graph --------------------------------------------------------------------------------------------------------------


async def _search(client: AsyncClient, given: Given, cursor: AnswerCursor) -> Table:
    filters = {"node": given["node"], "phase": given["phase"], **_filters(given)}
    found = await client.search(given["text"], limit=_HITS, cursor=cursor.page, **_said(filters))
    rows = [[each["id"], each["type"], each.get("phase"), each["changed"][:19]] for each in found["items"]]
    count = f"{found['total']:,}{'' if found['exact'] else ' or more'}"
    title = f"found: {count}" if rows or cursor.page else "nothing is found"
    return Table(title, ("id", "type", "phase", "changed"), rows, found.get("next") or "", found.get("warnings", ()))


def _filters(given: Given) -> dict[str, str]:
    kind = kind_named(given["type"]) if given["type"] else None
    return {
        "type": kind.entity if kind else given["type"],
        "namespace": given["namespace"],
        "cluster": given["cluster"],
    }


def _said(given: Given) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value not in ("", None)}


async def _describe(client: AsyncClient, given: Given, _: AnswerCursor) -> Table:
    document = await client.subgraph(spelled(given["id"])).get()
    return Table(f"{document.get('type', 'entity')}", ("property", "value"), list(summaries.facts(document)))


async def _neighbours(client: AsyncClient, given: Given, _: AnswerCursor) -> Table:
    id = spelled(given["id"])
    if not given["relations"] and given["depth"] == 1:
        documents = await client.subgraph(id).around(1, include="incoming")
        rows = list(summaries.links(documents))
        return Table(f"{len(documents) - 1:,} neighbours", ("direction", "relation", "id", "type"), rows)
    found = await client.reach(id, edges=given["relations"], depth=given["depth"])
    reached = [[each["from"], each["term"], each["to"]] for each in found["edges"]]
    notes = [f"{found['left_out']:,} more neighbours are left out"] if found.get("left_out") else []
    return Table(f"{len(found['nodes']):,} entities reached", ("from", "relation", "to"), reached, notes=notes)


async def _what_changed(client: AsyncClient, given: Given, cursor: AnswerCursor) -> Table:
    if given["id"]:
        return await _difference(client, given)
    since = _since(given["since"] or "1h")
    found = await client.search(
        "", limit=_HITS, cursor=cursor.page, sort="-changed", tombstones="true", **_said(_filters(given))
    )
    newer = [each for each in found["items"] if parse_moment(each["changed"]) >= since]
    rows = [[each["changed"][:19], each["id"], each["type"], _state(each), each["owner"]] for each in newer]
    follow = (found.get("next") or "") if len(newer) == len(found["items"]) else ""
    title = f"changes since {since:%Y-%m-%dT%H:%M:%SZ}, the newest first" if rows else "nothing has changed"
    return Table(title, ("changed", "id", "type", "state", "by"), rows, follow)


def _state(hit: Mapping[str, Any]) -> str | None:
    return "deleted" if hit["tombstone"] else hit.get("phase")


def _since(text: str) -> datetime:
    """Read a length of time before now, or a moment."""
    if text[:1].isdigit() and "-" in text:
        return parse_moment(text)
    return datetime.now(UTC) - parse_duration(text)


async def _difference(client: AsyncClient, given: Given) -> Table:
    subgraph = client.subgraph(spelled(given["id"]))
    found = await subgraph.compare(_since(given["since"]) if given["since"] else None)
    rows = [
        (mark, *summaries.statement(line, quad=True))
        for mark, name in (("-", "removed"), ("+", "added"))
        for line in found[name]
    ]
    title = f"generations {found['from']} to {found['to']}: {len(rows):,} statements differ"
    return Table(title, ("change", "subject", "property", "value"), rows)


async def _why_failing(client: AsyncClient, given: Given, _: AnswerCursor) -> Table:
    id = spelled(given["id"])
    with suppress(ResourceGone):  # why it failed is known afterwards, too
        await client.subgraph(id).get()  # what never was there is an error, and no good news
    answer = await client.query("why-failing", entity=id)
    rows = [[summaries.short(each[name]) for name in answer.columns] for each in answer]
    notes = []
    try:
        for alert in (await client.alerts(id))["items"]:
            about = f"alert {alert['alert']} ({alert['severity'] or 'no severity'})"
            known = {
                "pod": alert["entity"],
                "reason": about,
                "ongoing": alert["state"] == "firing",
                "last": alert["since"],
            }
            rows.append([known.get(name) for name in answer.columns])
    except DrumlinError as error:
        notes.append(f"alerts are not known: {error}")
    title = (
        "what befell it and its pods, what lasts first; alerts at the end"
        if rows
        else "nothing is known to have befallen it"
    )
    return Table(title, answer.columns, rows, notes=notes)


# -- queries ----------------------------------------------------------------------------------------------------------------


async def _saved_query(client: AsyncClient, given: Given, _: AnswerCursor) -> Table:
    known = {each["name"]: each for each in await client.queries()}
    if not given["name"]:
        rows = [
            [name, each["title"], " ".join(p["name"] for p in each["parameters"]) or None]
            for name, each in known.items()
        ]
        return Table(
            "saved queries: call again with a name and its parameters", ("name", "answers", "parameters"), rows
        )
    ids = {each["name"] for each in known.get(given["name"], {}).get("parameters", ()) if each["type"] == "id"}
    values = {
        name: spelled(str(value)) if name in ids else value for name, value in (given["parameters"] or {}).items()
    }
    return _rows(await client.query(given["name"], **{**values, "explain": True}))


async def _sparql(client: AsyncClient, given: Given, _: AnswerCursor) -> Table:
    answer = await client.sparql(given["query"], explain=True, seconds=_QUERY_SECONDS)
    if isinstance(answer, Rows):
        return _rows(answer)
    if isinstance(answer, bool):
        return Table(f"the answer is {str(answer).lower()}", (), ())
    rows = [summaries.statement(each) for each in str(answer).splitlines() if each]
    return Table(f"a graph of {len(rows):,} statements", ("subject", "property", "value"), rows)


def _rows(answer: Rows) -> Table:
    rows = [[summaries.short(each[name]) for name in answer.columns] for each in answer]
    return Table(f"{len(rows):,} rows" if rows else "no row", answer.columns, rows, notes=answer.warnings)


# -- telemetry --------------------------------------------------------------------------------------------------------------


async def _resolve(client: AsyncClient, given: Given, _: AnswerCursor) -> Table:
    options = _said({**_window(given, "1h"), **{name: given[name] for name in ("step", "unit", "selector")}})
    found = await client.resolve(spelled(given["id"]), given["metric"], **options)
    kept = ("metric", "unit", "datasource", "endpoint", "query", "start", "end", "step", "selector")
    rows = [(name, found[name]) for name in kept if found.get(name) is not None]
    notes = list(found.get("warnings", ()))
    return Table(
        "where the values are, and the query that returns them",
        ("what", "value"),
        rows,
        notes=notes,
        longest=_LONG_QUERY,
    )


def _window(given: Given, last: str) -> dict[str, str]:
    if given["start"]:
        return {"start": given["start"], "end": given["end"]}
    return {"last": given["last"] or last, "end": given["end"]}


async def _series_summary(client: AsyncClient, given: Given, _: AnswerCursor) -> Table:
    options = _said({**_window(given, "6h"), "unit": given["unit"]})
    series = await client.history(spelled(given["id"]), given["metric"], **options)
    rows = summaries.statistics(series)
    return Table("statistics of the series, not its samples", ("what", "value", "when"), rows, notes=series.warnings)


async def _logs(client: AsyncClient, given: Given, cursor: AnswerCursor) -> Table:
    end = (
        cursor.page or given["end"] or datetime.now(UTC).isoformat().replace("+00:00", "Z")
    )  # so that pages fit together
    window = _said({**_window(given, "1h"), "end": end, "filter": given["containing"]})
    lines = await client.logs(spelled(given["id"]), limit=_LOG_LINES, **window)
    rows = [[each["time"][:23], each["labels"].get("pod"), each["line"]] for each in lines]
    skipped = rows[cursor.skip :]
    more = f"the newest {_LOG_LINES:,} lines" if len(rows) == _LOG_LINES else f"{len(rows):,} lines"
    title = f"{more}, the newest first" if skipped else "no line in the window"
    return Table(title, ("time", "pod", "line"), rows, page=end, longest=_LONG_LINE)


TOOLS: tuple[AgentTool, ...] = (
    AgentTool(
        "search",
        "Search entities",
        "Find clusters, nodes, workloads, pods, services, data … by words of their names, labels, images and ids, or by filters.",
        (
            ToolArgument("text", "Words, or beginnings of them; none finds all that the filters leave.", default=""),
            *_FILTERS,
            ToolArgument("node", "Only what runs on a node.", default=""),
            ToolArgument("phase", "Only in a phase: Running, Pending, Failed …", default=""),
            _CURSOR,
        ),
        _search,
    ),
    AgentTool(
        "describe",
        "Describe an entity",
        "Return what the graph says of an entity, its metrics and log streams among it.",
        (_ID, _CURSOR),
        _describe,
    ),
    AgentTool(
        "neighbours",
        "What is linked to an entity",
        "Return the entities that it links to and those that link to it; with relations, what is reached along them.",
        (
            _ID,
            ToolArgument(
                "relations",
                "Relations to follow, separated by commas, such as calls,^dependsOn; ^ follows one backwards.",
                default="",
            ),
            ToolArgument("depth", "Links from it, at most.", "integer", 1, most=5),
            _CURSOR,
        ),
        _neighbours,
    ),
    AgentTool(
        "resolve",
        "Resolve a metric to its query",
        "Return the exact query (PromQL, LogQL, InfluxQL) for a metric of an entity, its unit and the endpoint that answers it.",
        (_ID, _METRIC, *_WINDOW, ToolArgument("step", "Distance of the points: 5m.", default=""), _UNIT, _SELECTOR),
        _resolve,
    ),
    AgentTool(
        "series_summary",
        "Summarise a metric's history",
        "Return statistics of a metric over a window: least, mean, median, 95th percentile, most, and when; first, last, trend, gaps.",
        (_ID, _METRIC, *_WINDOW, _UNIT),
        _series_summary,
    ),
    AgentTool(
        "logs",
        "Read log lines",
        "Return log lines of a workload or pod, the newest first.",
        (_ID, *_WINDOW, ToolArgument("containing", "Only lines that contain this text.", default=""), _CURSOR),
        _logs,
    ),
    AgentTool(
        "what_changed",
        "What changed",
        "Return which entities changed lately, deleted ones among them; with an id, which statements about it were removed and added.",
        (
            ToolArgument(
                "since",
                "Length of time up to now (2d), or a moment (RFC 3339) [1h; of one entity, its last change].",
                default="",
            ),
            ToolArgument("id", "Id of one entity, to see which statements went and came.", default=""),
            *_FILTERS,
            _CURSOR,
        ),
        _what_changed,
    ),
    AgentTool(
        "why_failing",
        "Why something is failing",
        "Return what befell a workload, pod, node or namespace and its pods: how containers ended and what they wait for, and its alerts.",
        (_ID, _CURSOR),
        _why_failing,
    ),
    AgentTool(
        "saved_query",
        "Ask a saved query",
        "List the saved queries (without a name), or ask one: what runs where, what depends on what, capacity, images, lineage.",
        (
            ToolArgument("name", "Name of a saved query.", default=""),
            ToolArgument("parameters", "Its parameters by name.", "object"),
            _CURSOR,
        ),
        _saved_query,
    ),
    AgentTool(
        "sparql",
        "Run a SPARQL query",
        "Run a SPARQL 1.1 query over the graph; its terms are those of drumlin://ontology. An empty answer names terms that occur nowhere.",
        (ToolArgument("query", "The query, with its prefixes.", required=True), _CURSOR),
        _sparql,
    ),
)
"""All tools, in the order in which they are listed."""


async def proposing(client: AsyncClient, given: Given, error: DrumlinError) -> DrumlinError:
    """Return an error with the ids that may have been meant, where it is about an id that is not there."""
    id = given.get("id")
    about = isinstance(error, InvalidIdentifier) or (
        isinstance(error, ResourceNotFound) and str(error).startswith(("there is no ", "there was no "))
    )
    if id and about and not isinstance(error, ResourceGone) and "did you mean" not in (error.hint or ""):
        try:
            near = await client.similar(spelled(id))
        except DrumlinError:
            return error
        kept = error.hint if error.hint and "/subgraphs" not in error.hint else "find it with the tool search"
        error.hint = f"did you mean {' or '.join(near)}?" if near else kept
    return error
