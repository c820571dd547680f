"""``drumlin get``, ``sparql``, ``query``: questions to the graph of a service."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from api.cli.options import Form, Url, form_of


def get(
    id: Annotated[str, typer.Argument(help="Short id or IRI: prod/payments/deployment/checkout")],
    url: Url = None,
    output: Form = "table",
) -> None:
    """Show one entity's graph.

    **Example**: `drumlin get prod/payments/deployment/checkout -o jsonld`
    """
    import kg
    from api.cli.output import Output, emit_json, emit_rows, properties

    form = form_of(output)
    with kg.connect(url) as client:
        document = client.subgraph(id).get()
    if form in (Output.json, Output.jsonld):
        emit_json(document)
    else:
        emit_rows(("property", "value"), properties(document), form)


def sparql(
    query: Annotated[str, typer.Argument(help="The query, @FILE, or - for stdin.")],
    url: Url = None,
    output: Form = "table",
) -> None:
    """Run a SPARQL query.

    **Example**: `drumlin sparql 'PREFIX : <https://w3id.org/drumlin/ns#> SELECT ?w WHERE {?w a :Deployment}' -o csv`
    """
    import kg
    from api.cli.output import Output, emit, emit_json, emit_rows
    from kg.client import calls
    from kg.client.rows import Rows

    form = form_of(output)
    text = _text(query)
    with kg.connect(url) as client:
        if form is Output.csv:
            emit(client.run(calls.sparql_text(text, "text/csv, application/n-triples;q=0.5")))
            return
        if form is not Output.table:
            accept = "application/sparql-results+json, application/ld+json"
            emit(client.run(calls.sparql_text(text, accept)))
            return
        answer = client.sparql(text)
    if isinstance(answer, Rows):
        emit_rows(answer.columns, ([row[name] for name in answer.columns] for row in answer), form)
    elif isinstance(answer, bool):
        emit_json(answer)
    else:
        emit(answer)


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
    import kg
    from api.cli.output import Output, emit_json, emit_rows

    form = form_of(output)
    given = [_named(each) for each in param or ()]
    values = dict(given)
    if len(values) < len(given):
        raise typer.BadParameter("a parameter is given twice", param_hint="--param")
    with kg.connect(url) as client:
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
