"""``drumlin get``, ``sparql``, ``query``, ``dag``, ``lineage``: questions to the graph of a service."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from drumlin.api.cli.options import Form, Url, form_of, one_of


def get(
    id: Annotated[str, typer.Argument(help="Short id or IRI: prod/payments/deployment/checkout")],
    url: Url = None,
    output: Form = "table",
    at: Annotated[
        str | None, typer.Option("--at", help="As it was: a generation (41), or a time (2026-11-27T00:00:00Z).")
    ] = None,
) -> None:
    """Show one entity's graph; as `jsonld` it carries its context, so that any JSON-LD tool reads it.

    **Example**: `drumlin get prod/payments/deployment/checkout -o jsonld`
    """
    import drumlin
    from drumlin.api.cli.output import Output, emit_json, emit_rows, properties

    form = form_of(output)
    with drumlin.connect(url) as client:
        graph = client.subgraph(id) if at is None else client.subgraph(id, at=at)
        document = graph.get(inline_context=form is Output.jsonld)
    if form in (Output.json, Output.jsonld):
        emit_json(document)
    else:
        emit_rows(("property", "value"), properties(document), form)


def diff(
    id: Annotated[str, typer.Argument(help="Short id or IRI: prod/payments/deployment/checkout")],
    begin: Annotated[
        str | None, typer.Option("--from", help="A generation or a time; before its last change when absent.")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="A generation or a time; now when absent.")] = None,
    url: Url = None,
    output: Form = "table",
) -> None:
    """Show what changed of an entity between two generations or times: the statements that went (-) and came (+).

    **Example**: `drumlin diff prod/payments/deployment/checkout --from 2026-11-27T00:00:00Z`
    """
    import drumlin
    from drumlin.api.cli.output import Output, emit_json, emit_rows

    form = form_of(output)
    with drumlin.connect(url) as client:
        found = client.subgraph(id).compare(begin, end)
    if form in (Output.json, Output.jsonld):
        emit_json(found)
        return
    rows = [(mark, line) for mark, name in (("-", "removed"), ("+", "added")) for line in found[name]]
    emit_rows(("change", "statement"), rows, form)


def sparql(
    query: Annotated[str, typer.Argument(help="The query, @FILE, or - for stdin.")],
    url: Url = None,
    output: Form = "table",
) -> None:
    """Run a SPARQL query.

    **Example**: `drumlin sparql 'PREFIX : <https://w3id.org/drumlin/ns#> SELECT ?w WHERE {?w a :Deployment}' -o csv`
    """
    import drumlin
    from drumlin.api.cli.output import Output, emit, emit_json, emit_rows, progress
    from drumlin.kg.client import calls
    from drumlin.kg.client.rows import Rows

    form = form_of(output)
    text = _text(query)
    with drumlin.connect(url) as client:
        if form is Output.csv:
            emit(client.run(calls.sparql_text(text, "text/csv, application/n-triples;q=0.5")))
            return
        if form is not Output.table:
            accept = "application/sparql-results+json, application/ld+json"
            emit(client.run(calls.sparql_text(text, accept)))
            return
        answer = client.sparql(text, explain=True)
    if isinstance(answer, Rows):
        emit_rows(answer.columns, ([row[name] for name in answer.columns] for row in answer), form)
        for each in answer.warnings:
            progress.print(each)
    elif isinstance(answer, bool):
        emit_json(answer)
    else:
        emit(answer)


def lineage(url: Url = None) -> None:
    """Print the runs of all tasks as OpenLineage run events, a line each: what they read and wrote, and how they ended.

    **Example**: `drumlin lineage > events.ndjson`
    """
    import drumlin
    from drumlin.api.cli.output import emit
    from drumlin.kg.client.rows import Rows
    from drumlin.kg.graphs import open_lineage

    with drumlin.connect(url) as client:
        answer = client.sparql(open_lineage.QUERY)
    assert isinstance(answer, Rows)
    for event in open_lineage.events(answer):
        emit(json.dumps(event, ensure_ascii=False))


def query(
    name: Annotated[str | None, typer.Argument(help="Name of a saved query; without one they are listed.")] = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", "-p", help="A parameter as name=value; may be repeated.")
    ] = None,
    url: Url = None,
    output: Form = "table",
) -> None:
    """Ask a saved query of the service, or list them.

    **Example**: `drumlin query runs-on-node --param node=prod/-/node/edge-a-1 -o csv`
    """
    import drumlin
    from drumlin.api.cli.output import Output, emit_json, emit_rows

    form = form_of(output)
    given = [_named(each) for each in param or ()]
    values = dict(given)
    if len(values) < len(given):
        raise typer.BadParameter("a parameter is given twice", param_hint="--param")
    with drumlin.connect(url) as client:
        if name is None:
            listed = client.queries()
            rows = [[each["name"], each["title"], " ".join(p["name"] for p in each["parameters"])] for each in listed]
            emit_rows(("name", "title", "parameters"), rows, form)
            return
        answer = client.query(name, **values)
    if form in (Output.json, Output.jsonld):
        emit_json(list(answer))
    else:
        emit_rows(answer.columns, ([row[column] for column in answer.columns] for row in answer), form)


def dag(
    id: Annotated[str, typer.Argument(help="Short id or IRI to begin with: a workload, a function, a workflow.")],
    edges: Annotated[
        str, typer.Option(help="Relations to follow, separated by commas; ^ before one follows it backwards.")
    ] = "",
    depth: Annotated[int, typer.Option(help="Links from it, at most.", min=1, max=10)] = 3,
    url: Url = None,
    output: Annotated[str, typer.Option("--output", "-o", help="table, json, mermaid, dot or svg.")] = "table",
) -> None:
    """Show what reaches a thing and what it reaches: calls in both directions, or the relations that are named; of a workflow its steps.

    **Example**: `drumlin dag prod/shop/deployment/cart --edges ^calls -o mermaid`
    """
    import drumlin
    from drumlin.api.cli.output import emit, emit_json, emit_rows

    one_of(output, ("table", "json", "mermaid", "dot", "svg"), "--output")
    with drumlin.connect(url) as client:
        found = client.reach(id, edges=edges, depth=depth, format="json" if output == "table" else output)
    if output == "json":
        emit_json(found)
    elif output == "table":
        rows = [
            [each["from"], each["term"], each["to"], "cycle" if each.get("cyclic") else ""] for each in found["edges"]
        ]
        emit_rows(("from", "relation", "to", ""), rows, form_of(output))
    else:
        emit(found)


def why(
    id: Annotated[str, typer.Argument(help="Short id or IRI of a workload, pod, node or namespace.")],
    url: Url = None,
    output: Form = "table",
) -> None:
    """Say why something is failing: what befell it and its pods, what lasts first (the saved query `why-failing`).

    **Example**: `drumlin why prod/payments/deployment/checkout`
    """
    import drumlin
    from drumlin.api.cli.output import Output, emit_json, emit_rows, progress
    from drumlin.kg.errors import ResourceGone

    form = form_of(output)
    with drumlin.connect(url) as client:
        with suppress(ResourceGone):  # why it failed is known afterwards, too
            client.subgraph(id).get()  # what never was there is an error, and no good news
        answer = client.query("why-failing", entity=id)
    if form in (Output.json, Output.jsonld):
        emit_json(list(answer))
        return
    emit_rows(answer.columns, ([row[column] for column in answer.columns] for row in answer), form)
    if not len(answer):
        progress.print("nothing is known to have befallen it", highlight=False)


def _named(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not equals:
        raise typer.BadParameter(f"{given!r} is not name=value", param_hint="--param")
    return name, value


def _text(query: str) -> str:
    if query == "-":
        return sys.stdin.read()
    if not query.startswith("@"):
        return query
    try:
        return Path(query[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{query[1:]}: {error}", param_hint="QUERY") from error
