"""One definition of every operation: what is sent and how the answer is read. ``Client`` and ``AsyncClient`` only carry them out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

import httpx
import msgspec

from drumlin.kg.client.encoding import as_json, encoded, in_path
from drumlin.kg.client.notebook import EntityDocument
from drumlin.kg.client.rdf_text import RdfText
from drumlin.kg.client.resolve_api import Resolved
from drumlin.kg.client.rows import Rows
from drumlin.kg.errors import InvalidInput
from drumlin.kg.graphs.owners import HEADER, USER, to_header
from drumlin.kg.rdf import jsonld
from drumlin.kg.rdf.syntax import Syntax, syntax_named
from drumlin.kg.store.protocol import ANY, GraphWrite, Row

T = TypeVar("T")

HISTORY_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request and the reading of its answer. ``seconds`` is how long it may be silent; None takes the client's own.

    ``repeatable``: it may be done twice, so it is sent again when the connection broke and nobody knows whether it was done.
    """

    method: str
    path: str
    read: Callable[[httpx.Response], T]
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    seconds: float | None = None
    repeatable: bool = True


Moment = int | str | datetime
"""A moment of a store: a generation, or a time (aware, or RFC 3339)."""


def _json(response: httpx.Response) -> Any:
    return msgspec.json.decode(response.content)


def _document(response: httpx.Response) -> dict[str, Any]:
    return EntityDocument(_json(response))


def _nothing(_: httpx.Response) -> None:
    return None


def get_subgraph(id: str, *, inline_context: bool = False, at: Moment | None = None) -> Call[dict[str, Any]]:
    """Return the graph as a nested JSON-LD document; raises ``ResourceNotFound``, ``ResourceGone`` when a tombstone is all that is left.

    The document names its context at the service; with ``inline_context`` it carries it, and is read without any service. With ``at``
    it is the graph as it was after a generation (a number) or at a time (aware, or RFC 3339); raises ``EventsGone`` when the change log
    does not reach so far, ``CapabilityMissing`` where the service keeps no past.
    """
    headers = {"Accept": "application/ld+json", **({"Prefer": "context=inline"} if inline_context else {})}
    return Call("GET", f"/subgraph/{in_path(id)}", _document, params=_at(at), headers=headers)


def _at(moment: Moment | None) -> dict[str, str]:
    if moment is None:
        return {}
    return {"at": moment.isoformat() if isinstance(moment, datetime) else str(moment)}


class Version(NamedTuple):
    """A graph as a nested JSON-LD document, and the ETag that a guarded write of it names (``if_match``)."""

    document: dict[str, Any]
    etag: str


def read_subgraph(id: str) -> Call[Version]:
    """Return the graph as ``get`` does, with the ETag for ``put``, ``patch`` or ``delete`` of what was read; raises what ``get`` raises."""
    asked = get_subgraph(id)
    return Call(
        "GET", asked.path, lambda response: Version(_document(response), _etag(response)), headers=asked.headers
    )


def compare_subgraph(id: str, begin: Moment | None, end: Moment | None) -> Call[dict[str, Any]]:
    """Compare one entity's graph at two moments."""
    given = {"from": _at(begin).get("at"), "to": _at(end).get("at")}
    params = {"entity": id, **{name: value for name, value in given.items() if value is not None}}
    return Call("GET", "/compare", _json, params=params)


def get_subgraph_text(id: str, syntax: str, at: Moment | None = None) -> Call[RdfText]:
    """Read one entity's graph as text of an RDF syntax."""
    wanted: Syntax = syntax_named(syntax)
    headers = {"Accept": wanted.media_type}
    return Call("GET", f"/subgraph/{in_path(id)}", RdfText.from_response, params=_at(at), headers=headers)


def put_subgraph(id: str, document: Mapping[str, Any] | str | bytes, syntax: str, if_match: str | None) -> Call[str]:
    """Create or replace one entity's graph; reads the new ETag."""
    content, media_type = _content(document, syntax)
    headers = {"Content-Type": media_type, **({"If-Match": if_match} if if_match else {})}
    again = if_match is None  # what was done has another ETag
    return Call("PUT", f"/subgraph/{in_path(id)}", _etag, headers=headers, content=content, repeatable=again)


def create_subgraph(id: str, document: Mapping[str, Any] | str | bytes, syntax: str) -> Call[str]:
    """Create one entity's graph; reads the new ETag."""
    content, media_type = _content(document, syntax)
    headers = {"Content-Type": media_type}
    return Call("POST", f"/subgraph/{in_path(id)}", _etag, headers=headers, content=content, repeatable=False)


def delete_subgraph(id: str, if_match: str | None) -> Call[None]:
    """Delete one entity; a tombstone remains."""
    headers = {"If-Match": if_match} if if_match else {}
    return Call("DELETE", f"/subgraph/{in_path(id)}", _nothing, headers=headers, repeatable=False)


def _content(document: Mapping[str, Any] | str | bytes, syntax: str) -> tuple[bytes, str]:
    if isinstance(document, Mapping):
        return as_json(document), "application/ld+json"
    data = encoded(document)
    return data, syntax_named(syntax).media_type


def _etag(response: httpx.Response) -> str:
    return str(response.headers["ETag"])


class Page(NamedTuple):
    """Some of what is listed, and the call for those after them; None at the end."""

    items: list[dict[str, Any]]
    following: Call[Page] | None


def list_subgraphs(**filters: Any) -> Call[Page]:
    """List entities, page by page."""

    def read(response: httpx.Response) -> Page:
        body = _json(response)
        after = body.get("next")
        return Page(body["items"], list_subgraphs(**{**filters, "after": after}) if after else None)

    return Call(
        "GET", "/subgraphs", read, params={key: value for key, value in filters.items() if value not in (None, "")}
    )


def write_subgraphs(writes: Sequence[GraphWrite], *, atomic: bool) -> Call[list[dict[str, Any]]]:
    """Write many graphs of one owner, all or none when ``atomic``; reads one result a write, in order. Raises ``InvalidInput``."""
    owners = sorted({each.owner for each in writes}) or [USER]
    if len(owners) > 1:
        raise InvalidInput(f"the writes have {len(owners)} owners: {', '.join(owners)}", hint="write for one at a time")
    lines = b"\n".join(msgspec.json.encode(_bulk_line(each)) for each in writes)
    # What was done has another digest, unless the graph was to stay as it is.
    again = all(each.expected is ANY or each.expected == each.digest for each in writes)
    return Call(
        "POST",
        "/subgraphs",
        lambda response: [msgspec.json.decode(line) for line in response.content.split(b"\n") if line],
        params={"atomic": "true"} if atomic else {},
        headers={"Content-Type": "application/x-ndjson", HEADER: to_header(owners[0])},
        content=lines,
        seconds=HISTORY_SECONDS,
        repeatable=again,
    )


def _bulk_line(write: GraphWrite) -> dict[str, Any]:
    if write.lines is None:
        line: dict[str, Any] = {"op": "remove", "id": write.graph}
    else:
        document = jsonld.compact(write.lines, write.graph)
        line = {"op": "put", "id": write.graph, "document": document}
    if write.expected is not ANY:
        line["digest"] = write.expected  # null: it must not exist
    return line


def sparql(
    query: str,
    *,
    graphs: Sequence[str] = (),
    named: Sequence[str] = (),
    seconds: float | None = None,
    explain: bool = False,
) -> Call[Any]:
    """Run a query: ``Rows`` for SELECT, a bool for ASK, N-Triples for CONSTRUCT and DESCRIBE (``RdfText``, with ``to_rdflib``).

    ``graphs`` are merged into the default graph, ``named`` are those that ``GRAPH`` sees, instead of the query's own dataset; ``seconds``
    can only shorten the service's own deadline. With ``explain``, ``warnings`` of ``Rows`` without a row name the terms of the query
    that occur nowhere in the graph, with what may have been meant. Raises ``QueryRejected`` (``reason``: syntax, timeout, complexity …;
    ``detail``: line, column), ``Throttled``, ``ReaderLost``.
    """
    accept = "application/sparql-results+json, application/n-triples"
    headers = {"Content-Type": "application/sparql-query; charset=utf-8", "Accept": accept}
    dataset = {"default-graph-uri": list(graphs), "named-graph-uri": list(named)}
    params: dict[str, Any] = {**dataset, **({} if seconds is None else {"timeout": seconds})}
    params |= {"explain": "true"} if explain else {}
    return Call("POST", "/sparql", _answer, params=params, headers=headers, content=encoded(query))


def sparql_text(query: str, media_type: str, *, seconds: float | None = None) -> Call[bytes]:
    """Run a query and return the result as it was written."""
    headers = {"Content-Type": "application/sparql-query; charset=utf-8", "Accept": media_type}
    params = {} if seconds is None else {"timeout": seconds}
    content = encoded(query)
    return Call("POST", "/sparql", lambda response: response.content, params=params, headers=headers, content=content)


def _answer(response: httpx.Response) -> Any:
    if response.headers["Content-Type"].startswith("application/n-triples"):
        return RdfText.from_response(response)
    body = _json(response)
    return body["boolean"] if "boolean" in body else Rows.from_json(body)


def sparql_texts(query: str) -> Call[list[Row]]:
    """Run a SELECT and read each solution as variable → IRI or lexical form; an unbound variable is absent."""
    return replace(sparql(query), read=_texts)


def _texts(response: httpx.Response) -> list[Row]:
    return [{name: term["value"] for name, term in row.items()} for row in _json(response)["results"]["bindings"]]


def audit(media_type: str) -> Call[bytes]:
    """Have the service validate its whole store and return the report as it was written."""
    headers = {"Accept": media_type}
    return Call("GET", "/admin/audit", lambda response: response.content, headers=headers, seconds=HISTORY_SECONDS)


def backup() -> Call[bytes]:
    """Take a backup: a tar of a store directory of one generation, in memory; ``drumlin backup`` streams it.

    Raises ``Conflict`` while another such operation runs, ``CapabilityMissing`` for a store in an engine elsewhere.
    """
    return Call("POST", "/admin/backup", lambda response: response.content, seconds=HISTORY_SECONDS, repeatable=False)


def queries() -> Call[list[dict[str, Any]]]:
    """List the saved queries: name, title, parameters, columns."""
    return Call("GET", "/queries", lambda response: _json(response)["items"])


def query(name: str, values: Mapping[str, Any]) -> Call[Rows]:
    """Ask a saved query; a value is sent as text (``True`` as true, a time as RFC 3339)."""
    headers = {"Accept": "application/sparql-results+json"}
    params = {key: _sent(value) for key, value in values.items()}
    return Call(
        "GET",
        f"/queries/{in_path(name)}",
        lambda response: Rows.from_json(_json(response)),
        params=params,
        headers=headers,
    )


def reach(root: str, edges: str, depth: int, form: str) -> Call[Any]:
    """Return what reaches a thing and what it reaches: JSON read, or the text of another format."""
    params = {"root": root, "depth": depth, "format": form, **({"edges": edges} if edges else {})}
    return Call("GET", "/graph", _json if form == "json" else _text, params=params)


def _text(response: httpx.Response) -> str:
    return response.text


def _sent(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, datetime) else str(value)


def search(text: str, filters: Mapping[str, Any], **options: Any) -> Call[dict[str, Any]]:
    """Search entities: one page of ``items`` with ``total``, ``facets`` and the cursor ``next``."""
    params = {"q": text, **filters, **options}
    return Call(
        "GET", "/search", _json, params={key: value for key, value in params.items() if value not in (None, "")}
    )


SILENCE_SECONDS = 60.0
"""How long the feed may say nothing: the service says something every 15 s."""


def changes(since: str | None, filters: Mapping[str, Any]) -> Call[None]:
    """Follow the changes of the graph; the client reads the stream itself."""
    headers = {"Accept": "text/event-stream", **({"Last-Event-ID": since} if since is not None else {})}
    return Call("GET", "/events", _nothing, params=_given(filters), headers=headers, seconds=SILENCE_SECONDS)


def patch_subgraph(id: str, patch: Mapping[str, Any] | str, if_match: str | None) -> Call[str]:
    """Change a part of one entity's graph: a merge-patch as a mapping, or ground SPARQL Update as text; reads the new ETag."""
    if isinstance(patch, Mapping):
        content, media_type = as_json(patch), "application/merge-patch+json"
    else:
        content, media_type = encoded(patch), "application/sparql-update"
    headers = {"Content-Type": media_type}
    if if_match:
        headers["If-Match"] = if_match
    return Call("PATCH", f"/subgraph/{in_path(id)}", _etag, headers=headers, content=content, repeatable=False)


def frame_subgraph(id: str, frame: str | Mapping[str, Any], depth: int) -> Call[dict[str, Any]]:
    """Read one entity's graph in the shape of a frame: a class's, by its name, or one's own."""
    text = frame if isinstance(frame, str) else msgspec.json.encode(frame).decode()
    params = {"frame": text, "depth": depth}
    return Call("GET", f"/subgraph/{in_path(id)}", _document, params=params, headers={"Accept": "application/ld+json"})


def around_subgraph(id: str, depth: int, include: str | None) -> Call[list[dict[str, Any]]]:
    """Read one entity's graph with those around it, each as a nested document."""
    params = {"depth": depth, **({"include": include} if include else {})}
    headers = {"Accept": "application/ld+json"}
    return Call("GET", f"/subgraph/{in_path(id)}", _documents, params=params, headers=headers)


def _documents(response: httpx.Response) -> list[dict[str, Any]]:
    body = _json(response)
    return [graph["@graph"][0] for graph in body["@graph"]] if "@graph" in body else [body]


def about() -> Call[dict[str, Any]]:
    """Ask the service who it is: ``base``, ``cluster``, ``version``."""
    return Call("GET", "/livez", _json)


def ready() -> Call[dict[str, Any]]:
    """Ask whether everything that existed has been read, and up to which ``generation``; raises ``StoreUnavailable`` until it has."""
    return Call("GET", "/readyz", _json, repeatable=False)


def resolve(entity: str, metric: str, **window: Any) -> Call[Resolved]:
    """Resolve one metric of one entity."""
    params = {"entity": entity, "metric": metric, **{key: value for key, value in window.items() if value is not None}}
    return Call("GET", "/resolve", lambda response: Resolved(_json(response)), params=params)


def resolve_many(entities: Sequence[str] | None, metrics: Sequence[str], **window: Any) -> Call[list[Resolved]]:
    """Resolve many metrics of many entities: one object each, in order; ``problem`` where there is none."""
    body = {"metrics": list(metrics), **_given({"entities": entities, **window})}
    return Call(
        "POST",
        "/resolve",
        lambda response: [Resolved(msgspec.json.decode(line)) for line in response.content.split(b"\n") if line],
        headers={"Content-Type": "application/json"},
        content=msgspec.json.encode(body),
        seconds=HISTORY_SECONDS,
    )


HISTORY_FORMATS: Mapping[str, str] = {
    "arrow": "application/vnd.apache.arrow.stream",
    "parquet": "application/vnd.apache.parquet",
    "csv": "text/csv",
    "ndjson": "application/x-ndjson",
}


def history(entities: Sequence[str] | None, metrics: Sequence[str], form: str = "arrow", **options: Any) -> Call[bytes]:
    """Fetch series as a stream of one of ``HISTORY_FORMATS``."""
    body = {"metrics": list(metrics), **_given({"entities": entities, **options})}
    headers = {"Content-Type": "application/json", "Accept": HISTORY_FORMATS[form]}
    return Call(
        "POST",
        "/history",
        lambda response: response.content,
        headers=headers,
        content=msgspec.json.encode(body),
        seconds=HISTORY_SECONDS,
    )


def explain(entities: Sequence[str] | None, metrics: Sequence[str], **options: Any) -> Call[dict[str, Any]]:
    """Ask what a call of ``history`` would ask: queries, points and values."""
    asked = history(entities, metrics, **options)
    return Call("POST", asked.path, _json, {"explain": "true"}, {**asked.headers, "Accept": "*/*"}, asked.content)


def values(metrics: Sequence[str], **filters: Any) -> Call[dict[str, Any]]:
    """Read the current values of the entities that filters match: a page, with the cursor ``next`` for more."""
    return Call("GET", "/values", _json, params={"metric": list(metrics), **filters}, seconds=HISTORY_SECONDS)


def values_of(body: Mapping[str, Any]) -> Call[dict[str, Any]]:
    """Read the current values of the entities that a body names."""
    headers = {"Content-Type": "application/json"}
    return Call("POST", "/values", _json, headers=headers, content=msgspec.json.encode(body), seconds=HISTORY_SECONDS)


def alerts(**filters: Any) -> Call[dict[str, Any]]:
    """Read the alerts that are pending or firing."""
    return Call("GET", "/alerts", _json, params=_given(filters), seconds=HISTORY_SECONDS)


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if value is not None}


def logs(entity: str, **options: Any) -> Call[list[dict[str, Any]]]:
    """Fetch log lines: one object each, and last one with ``query`` and ``warnings``."""
    return Call(
        "GET",
        "/logs",
        lambda response: [msgspec.json.decode(line) for line in response.content.split(b"\n") if line],
        params={"entity": entity, **_given(options)},
        seconds=HISTORY_SECONDS,
    )


def datasources(name: str | None, *, probe: bool) -> Call[list[dict[str, Any]]]:
    """List the datasources, and look at each."""
    params = {"probe": str(probe).lower(), **_given({"name": name})}
    return Call("GET", "/datasources", lambda response: _json(response)["items"], params=params, seconds=120.0)


def import_datasources(name: str) -> Call[list[dict[str, Any]]]:
    """Import the datasources of a Grafana that is configured; raises ``ResourceNotFound`` for another, ``SourceUnavailable``."""
    return Call("POST", "/datasources/import", lambda response: _json(response)["items"], {"name": name})


def export(syntax: str, **narrowed: str) -> Call[None]:
    """Stream the whole graph, or a part of it; the client reads the body itself."""
    params = {"format": syntax_named(syntax).name, **narrowed}
    return Call("GET", "/export", _nothing, params=params, seconds=HISTORY_SECONDS)
