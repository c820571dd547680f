"""``drumlin list``, ``search`` and ``events``: entities by kind, by words and filters, and the changes of the graph as they happen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Annotated, Any

import typer

from drumlin.api.cli import completion
from drumlin.api.cli.options import Entities, Url, connect, form_option
from drumlin.kg.model.kind_names import kind_named

Many = list[str] | None
Type = Annotated[Many, typer.Option(help="Only a class; Workload is all workloads. May be repeated.")]
Domain = Annotated[Many, typer.Option(help="Only a domain.")]
Namespace = Annotated[Many, typer.Option(help="Only a namespace.")]
Owner = Annotated[Many, typer.Option(help="Only what a source or user writes.")]

_COLUMNS = ("id", "type", "name", "namespace", "phase", "changed")
_WIDE = (*_COLUMNS, "owner", "generation", "iri")


def list_(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="A kind as kubectl names it (deploy, pods, no …) or a class; without one, everything.",
            autocompletion=completion.kinds,
        ),
    ] = None,
    namespace: Annotated[Many, typer.Option("--namespace", "-n", help="Only a namespace.")] = None,
    cluster: Annotated[Many, typer.Option(help="Only a cluster.")] = None,
    domain: Domain = None,
    node: Annotated[Many, typer.Option(help="Only what runs on a node.")] = None,
    phase: Annotated[Many, typer.Option(help="Only in a phase: Running, Failed …")] = None,
    limit: Annotated[int | None, typer.Option(help="Most entities.", min=1, show_default=False)] = None,
    url: Url = None,
    output: Entities = "table",
) -> None:
    """List entities in the order of their ids.

    **Examples**: `drumlin list deploy -n payments` · `drumlin list pods --phase Pending -o name` · `drumlin list Workload -o wide`
    """
    from drumlin.api.cli.output import Output, progress

    found = kind_named(kind) if kind else None
    filters = {"namespace": namespace, "cluster": cluster, "domain": domain, "node": node, "phase": phase}
    given = _given({**filters, "type": [found.entity if found else kind] if kind else None})
    with connect(url) as client:
        items = (vars(each) for each in client.subgraphs(**given))
        if found:  # a class may be that of several kinds
            items = (each for each in items if f"/{found.segment}/" in each["id"])
        rows = list(islice(items, limit))
    if not rows:
        progress.print("nothing is found", highlight=False)
    _emit(rows, Output(output))


def _emit(items: Iterable[Mapping[str, Any]], form: Any) -> None:
    """Write entities; the wide table and nested forms have all that is known of each."""
    from drumlin.api.cli.output import STRUCTURED, Output, emit_rows

    columns = _WIDE if form in STRUCTURED or form is Output.wide else _COLUMNS
    emit_rows(columns, [[each.get(name) for name in columns] for each in items], form)


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
    output: Entities = "table",
) -> None:
    """Find entities by words of their names, labels, images, ids and tags.

    **Examples**: `drumlin search checkout --type Workload` · `drumlin search --phase Failed --namespace payments -o json`
    """
    from drumlin.api.cli.output import STRUCTURED, Output, emit_value, progress

    form = Output(output)
    filters = _given(
        {"type": type, "domain": domain, "namespace": namespace, "node": node, "phase": phase, "owner": owner}
    )
    with connect(url) as client:
        found = client.search(text, sort=sort, limit=limit, **filters)
    for warning in found.get("warnings", ()):
        progress.print(warning, highlight=False)
    if form in STRUCTURED:
        emit_value(found, form)
        return
    _emit(found["items"], form)
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
    output: Annotated[str, form_option("table", "json", "name")] = "table",
) -> None:
    """Follow the changes of the graph, each once and in order, for ever; a lost connection is taken up again.

    A change is a line: as a table, as a CloudEvent (`-o json`), or the id of what changed (`-o name`).

    **Examples**: `drumlin events --type Workload` · `drumlin events --since 0 -o json --limit 100`
    """
    from drumlin.api.cli.output import emit

    written = {"table": _told, "json": _json, "name": _name}[output]
    filters = _given({"type": type, "domain": domain, "namespace": namespace, "owner": owner})
    with connect(url) as client:
        for number, event in enumerate(client.changes(since, quads=quads, **filters), 1):
            for line in written(event):
                emit(line)
            if number == limit:
                return


def _json(event: Mapping[str, Any]) -> Iterator[str]:
    import msgspec

    yield msgspec.json.encode(event).decode()


def _name(event: Mapping[str, Any]) -> Iterator[str]:
    yield str(event["subject"])


def _told(event: Mapping[str, Any]) -> Iterator[str]:
    what = event["type"].rpartition(".")[2]
    yield f"{event['id']:<12} {event['time'][:19]}  {what:<9} {event['data'].get('type', ''):<12} {event['subject']}"
    for sign, key in (("-", "removed"), ("+", "added")):
        yield from (f"  {sign} {quad}" for quad in event["data"].get(key, ()))
    if "leftOut" in event["data"]:
        yield f"  {event['data']['leftOut']}"


def _given(filters: Mapping[str, Many]) -> dict[str, Any]:
    return {name: values for name, values in filters.items() if values}
