"""``drumlin get``, ``sparql``, ``query``, ``dag``, ``lineage``: questions to the graph of a service."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from drumlin.api.cli import completion
from drumlin.api.cli.options import GRACE, Id, Rows, Url, connect, form_option, id_argument, text_of, time_limit
from drumlin.kg.errors import DrumlinError, InvalidInput
from drumlin.kg.model.kind_names import spelled

if TYPE_CHECKING:
    from drumlin.api.cli.output import Output
    from drumlin.kg.client import Client


def get(
    id: Id,
    url: Url = None,
    output: Annotated[str, form_option("table", "json", "jsonld", "yaml", "csv", "tsv", "name")] = "table",
    at: Annotated[
        str | None, typer.Option("--at", help="As it was: a generation (41), or a time (2026-11-27T00:00:00Z).")
    ] = None,
) -> None:
    """Show one entity's graph; as `jsonld` it carries its context, so that any JSON-LD tool reads it.

    **Example**: `drumlin get prod/payments/deployment/checkout -o jsonld`
    """
    from drumlin.api.cli.output import STRUCTURED, Output, emit_names, emit_rows, emit_value, properties

    form = Output(output)
    with connect(url) as client:
        graph = client.subgraph(id) if at is None else client.subgraph(id, at=at)
        document = graph.get(inline_context=form is Output.jsonld)
    if form in STRUCTURED:
        emit_value(document, form)
    elif form is Output.name:
        emit_names([document["id"].partition("/id/")[2]])
    else:
        emit_rows(("property", "value"), properties(document), form)


def diff(
    id: Id,
    begin: Annotated[
        str | None, typer.Option("--from", help="A generation or a time; before its last change when absent.")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="A generation or a time; now when absent.")] = None,
    url: Url = None,
    output: Rows = "table",
) -> None:
    """Show what changed of an entity between two generations or times: the statements that went (-) and came (+).

    **Example**: `drumlin diff prod/payments/deployment/checkout --from 2026-11-27T00:00:00Z`
    """
    from drumlin.api.cli.output import STRUCTURED, Output, emit_rows, emit_value

    form = Output(output)
    with connect(url) as client:
        found = client.subgraph(id).compare(begin, end)
    if form in STRUCTURED:
        emit_value(found, form)
        return
    rows = [(mark, line) for mark, name in (("-", "removed"), ("+", "added")) for line in found[name]]
    emit_rows(("change", "statement"), rows, form)


_ACCEPT = {
    "json": "application/sparql-results+json, application/ld+json",
    "jsonld": "application/ld+json",
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
}
_FITTING = "of a SELECT: table, json, yaml, csv, tsv; of an ASK: table, json, yaml, csv, tsv; of a graph: table (N-Triples), json, jsonld"
_NOT_ACCEPTABLE = 406


def sparql(
    query: Annotated[str, typer.Argument(help="The query, @FILE, or - for stdin.")],
    url: Url = None,
    output: Annotated[str, form_option("table", "json", "jsonld", "yaml", "csv", "tsv")] = "table",
) -> None:
    """Run a SPARQL query; JSON, CSV and TSV are those of the W3C.

    **Example**: `drumlin sparql 'PREFIX : <https://w3id.org/drumlin/ns#> SELECT ?w WHERE {?w a :Deployment}' -o csv`
    """
    from drumlin.api.cli.output import Output, emit
    from drumlin.kg.client import calls

    form = Output(output)
    text = _text(query)
    with connect(url, grace=GRACE) as client:
        if (accept := _ACCEPT.get(form)) is None:
            _emit_answer(client, text, form)
            return
        try:
            emit(client.run(calls.sparql_text(text, accept, seconds=time_limit())))
        except DrumlinError as error:
            if error.detail.get("status") == _NOT_ACCEPTABLE:
                raise _unfit(form) from error
            raise


def _emit_answer(client: Client, text: str, form: Output) -> None:
    """Write an answer as a table or YAML, and why it is empty."""
    from drumlin.api.cli.output import Output, emit, emit_rows, emit_value, progress
    from drumlin.kg.client.rows import Rows as Solutions

    answer = client.sparql(text, explain=True, seconds=time_limit())
    if isinstance(answer, Solutions):
        emit_rows(answer.columns, ([row[name] for name in answer.columns] for row in answer), form)
        for each in answer.warnings:
            progress.print(each, highlight=False)
    elif isinstance(answer, bool):
        emit_value(answer, form)
    elif form is Output.table:
        emit(answer)
    else:
        raise _unfit(form)


def _unfit(form: str) -> typer.BadParameter:
    return typer.BadParameter(f"{form} does not fit the result of this query; {_FITTING}", param_hint="--output")


def lineage(url: Url = None) -> None:
    """Print the runs of all tasks as OpenLineage run events, a line each: what they read and wrote, and how they ended.

    **Example**: `drumlin lineage > events.ndjson`
    """
    from drumlin.api.cli.output import emit
    from drumlin.kg.client.rows import Rows as Solutions
    from drumlin.kg.graphs import open_lineage

    with connect(url) as client:
        answer = client.sparql(open_lineage.QUERY)
    assert isinstance(answer, Solutions)
    for event in open_lineage.events(answer):
        emit(json.dumps(event, ensure_ascii=False))


def query(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Name of a saved query; without one they are listed.",
            autocompletion=completion.queries,
            show_default=False,
        ),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param", "-p", help="A parameter as name=value; may be repeated.", autocompletion=completion.parameters
        ),
    ] = None,
    url: Url = None,
    output: Annotated[str, form_option("table", "json", "yaml", "csv", "tsv", "name")] = "table",
) -> None:
    """Ask a saved query of the service, or list them (`-o name`: their names).

    **Example**: `drumlin query runs-on-node --param node=prod/-/node/edge-a-1 -o csv`
    """
    from drumlin.api.cli.output import STRUCTURED, Output, emit_rows, emit_value, progress

    form = Output(output)
    given = [_named(each) for each in param or ()]
    values = dict(given)
    if len(values) < len(given):
        raise typer.BadParameter("a parameter is given twice", param_hint="--param")
    if form is Output.name and name is not None:
        raise typer.BadParameter(
            "name is for the list of queries; take csv or json for the rows of one", param_hint="--output"
        )
    with connect(url) as client:
        if name is None:
            listed = client.queries()
            rows = [[each["name"], each["title"], " ".join(p["name"] for p in each["parameters"])] for each in listed]
            emit_rows(("name", "title", "parameters"), rows, form, name="name")
            return
        answer = client.query(name, explain=True, **_spelled(client, name, values))
    if form in STRUCTURED:
        emit_value(list(answer), form)
    else:
        emit_rows(answer.columns, ([row[column] for column in answer.columns] for row in answer), form)
    for each in answer.warnings:
        progress.print(each, highlight=False)


def dag(
    id: Annotated[str, id_argument("Short id or IRI to begin with: a workload, a function, a workflow.")],
    edges: Annotated[
        str, typer.Option(help="Relations to follow, separated by commas; ^ before one follows it backwards.")
    ] = "",
    depth: Annotated[int, typer.Option(help="Links from it, at most.", min=1, max=10)] = 3,
    url: Url = None,
    output: Annotated[
        str, form_option("table", "json", "yaml", "csv", "tsv", "name", "mermaid", "dot", "svg")
    ] = "table",
) -> None:
    """Show what reaches a thing and what it reaches: calls in both directions, or the relations that are named; of a workflow its steps.

    **Example**: `drumlin dag prod/shop/deployment/cart --edges ^calls -o mermaid`
    """
    from drumlin.api.cli.output import STRUCTURED, Output, emit, emit_names, emit_rows, emit_value

    if output in ("mermaid", "dot", "svg"):
        with connect(url) as client:
            emit(client.reach(id, edges=edges, depth=depth, format=output))
        return
    form = Output(output)
    with connect(url) as client:
        found = client.reach(id, edges=edges, depth=depth)
    if form in STRUCTURED:
        emit_value(found, form)
    elif form is Output.name:
        emit_names(each["id"] for each in found["nodes"])
    else:
        rows = [
            [each["from"], each["term"], each["to"], "cycle" if each.get("cyclic") else ""] for each in found["edges"]
        ]
        emit_rows(("from", "relation", "to", ""), rows, form)


def why(
    id: Annotated[str, id_argument("Short id or IRI of a workload, pod, node or namespace.")],
    url: Url = None,
    output: Rows = "table",
) -> None:
    """Say why something is failing: what befell it and its pods, what lasts first (the saved query `why-failing`).

    **Example**: `drumlin why prod/payments/deployment/checkout`
    """
    from drumlin.api.cli.output import STRUCTURED, Output, emit_rows, emit_value, progress
    from drumlin.kg.errors import ResourceGone

    form = Output(output)
    with connect(url) as client:
        with suppress(ResourceGone):  # why it failed is known afterwards, too
            client.subgraph(id).get()  # what never was there is an error, and no good news
        answer = client.query("why-failing", entity=id)
    if form in STRUCTURED:
        emit_value(list(answer), form)
        return
    emit_rows(answer.columns, ([row[column] for column in answer.columns] for row in answer), form)
    if not len(answer):
        progress.print("nothing is known to have befallen it", highlight=False)


def _named(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not equals:
        raise typer.BadParameter(f"{given!r} is not name=value", param_hint="--param")
    return name, value


def _spelled(client: Client, name: str, values: Mapping[str, str]) -> Mapping[str, str]:
    """Return the parameters of a saved query with the kinds in ids as ids write them; which are ids its description says."""
    if all(spelled(value) == value for value in values.values()):
        return values
    found = next((each["parameters"] for each in client.queries() if each["name"] == name), ())
    ids = {each["name"] for each in found if each["type"] == "id"}
    return {key: spelled(value) if key in ids else value for key, value in values.items()}


def _text(query: str) -> str:
    if query != "-" and not query.startswith("@"):
        return query
    try:
        return text_of(query.removeprefix("@"))
    except InvalidInput as error:
        raise typer.BadParameter(str(error), param_hint="QUERY") from error
