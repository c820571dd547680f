"""``drumlin search`` and ``drumlin events``: entities by words and filters, and the changes of the graph as they happen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from drumlin.api.cli.options import Url, form_of

Form = Annotated[str, typer.Option("--output", "-o", help="table, json or csv.")]
Many = list[str] | None
Type = Annotated[Many, typer.Option(help="Only a class; Workload is all workloads. May be repeated.")]
Domain = Annotated[Many, typer.Option(help="Only a domain.")]
Namespace = Annotated[Many, typer.Option(help="Only a namespace.")]
Owner = Annotated[Many, typer.Option(help="Only what a source or user writes.")]

_COLUMNS = ("id", "type", "name", "namespace", "phase", "changed")


def search(
    text: Annotated[str, typer.Argument(help="Words, or beginnings of them; without any, everything.")] = "",
    type: Type = None,
    domain: Domain = None,
    namespace: Namespace = None,
    node: Annotated[Many, typer.Option(help="Only what runs on a node.")] = None,
    phase: Annotated[Many, typer.Option(help="Only in a phase: Running, Failed …")] = None,
    owner: Owner = None,
    sort: Annotated[str, typer.Option(help="relevance, id, name or -changed.")] = "relevance",
    limit: Annotated[int, typer.Option("--limit", "-n", help="Most entities.", min=1, max=1000)] = 50,
    url: Url = None,
    output: Form = "table",
) -> None:
    """Find entities by words of their names, labels, images, ids and tags.

    **Examples**: `drumlin search checkout --type Workload` · `drumlin search --phase Failed --namespace payments -o json`
    """
    import drumlin
    from drumlin.api.cli.output import Output, emit_json, emit_rows, progress

    form = form_of(output, "table", "json", "csv")
    filters = _given(
        {"type": type, "domain": domain, "namespace": namespace, "node": node, "phase": phase, "owner": owner}
    )
    with drumlin.connect(url) as client:
        found = client.search(text, sort=sort, limit=limit, **filters)
    if form is Output.json:
        emit_json(found)
        return
    emit_rows(_COLUMNS, [[each.get(name) for name in _COLUMNS] for each in found["items"]], form)
    if (left := found["total"] - len(found["items"])) > 0:
        progress.print(f"{left:,}{'' if found['exact'] else ' or more'} others; say more, or --limit", highlight=False)


def events(
    since: Annotated[
        str | None, typer.Option(help="Id of an event, or a generation; 0 is the beginning [default: now].")
    ] = None,
    type: Type = None,
    domain: Domain = None,
    namespace: Namespace = None,
    owner: Owner = None,
    quads: Annotated[bool, typer.Option("--quads", help="With the quads that each change removed and added.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", "-n", help="End after so many.", min=1)] = None,
    url: Url = None,
    output: Annotated[
        str, typer.Option("--output", "-o", help="table: a line each; json: a CloudEvent a line.")
    ] = "table",
) -> None:
    """Follow the changes of the graph, each once and in order, for ever; a lost connection is taken up again.

    **Examples**: `drumlin events --type Workload` · `drumlin events --since 0 -o json --limit 100`
    """
    import drumlin
    from drumlin.api.cli.output import Output, emit

    form = form_of(output, "table", "json")
    filters = _given({"type": type, "domain": domain, "namespace": namespace, "owner": owner})
    with drumlin.connect(url) as client:
        for number, event in enumerate(client.changes(since, quads=quads, **filters), 1):
            for line in [_json(event)] if form is Output.json else _told(event):
                emit(line)
            if number == limit:
                return


def _json(event: Mapping[str, Any]) -> str:
    import msgspec

    return msgspec.json.encode(event).decode()


def _told(event: Mapping[str, Any]) -> Iterator[str]:
    what = event["type"].rpartition(".")[2]
    yield f"{event['id']:<12} {event['time'][:19]}  {what:<9} {event['data'].get('type', ''):<12} {event['subject']}"
    for sign, key in (("-", "removed"), ("+", "added")):
        yield from (f"  {sign} {quad}" for quad in event["data"].get(key, ()))
    if "leftOut" in event["data"]:
        yield f"  {event['data']['leftOut']}"


def _given(filters: Mapping[str, Many]) -> dict[str, Any]:
    return {name: values for name, values in filters.items() if values}
