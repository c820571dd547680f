"""What a shell offers when Tab is pressed: ids, metrics and names of saved queries, asked of the service that the command line names.

A shell waits meanwhile, and nobody reads errors: the service gets two seconds, and without an answer nothing is offered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from drumlin.kg.errors import DrumlinError
from drumlin.kg.model.kind_names import KIND_NAMES, spelled

if TYPE_CHECKING:
    from drumlin.kg.client import Client

_SECONDS = 2.0
_MOST = 50
"""Ids that are offered at once; where there are more, what their next segments are."""
_READ = 5000
_METRICS = """PREFIX : <https://w3id.org/drumlin/ns#>
SELECT DISTINCT ?name WHERE { ?metric a :Metric ; :name ?name } ORDER BY ?name"""


def ids(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the short ids that begin so."""
    return _asked(ctx, lambda client: _ids(client, incomplete))


def _ids(client: Client, incomplete: str) -> list[str]:
    from drumlin.kg.client import calls

    begun = _begun(incomplete)
    page = client.run(calls.list_subgraphs(prefix=begun, limit=_READ))
    rest = [each["id"].removeprefix(begun) for each in page.items]
    if len(rest) > _MOST or page.following is not None:
        rest = _next_segments(rest)
    return [f"{incomplete}{each}" for each in rest]  # a shell keeps what begins as it is written


def _begun(incomplete: str) -> str:
    """Return the beginning of an id with its kind as ids write it, once the kind is whole."""
    if incomplete.count("/") < 3:
        return incomplete
    return spelled(f"{incomplete}\0").removesuffix("\0")


def _next_segments(rest: Iterable[str]) -> list[str]:
    """Return the beginnings of what is left of ids, each up to its next slash and once."""
    return list(dict.fromkeys(head + slash for head, slash, _ in (each.partition("/") for each in rest)))


def metrics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the metrics that begin so: those of the entity that is named before, else all that the graph knows."""
    return _begin(incomplete, _asked(ctx, lambda client: _metrics(client, ctx.params.get("id"))))


def _metrics(client: Client, id: Any) -> list[str]:
    from drumlin.kg.client.entities import metrics_of

    own = sorted(metrics_of(client.subgraph(spelled(str(id))).get())) if id else []
    return own or [str(row["name"]) for row in client.sparql(_METRICS)]


def kinds(incomplete: str) -> list[str]:
    """Return the kinds that begin so, as kubectl lists them."""
    return [each.plural for each in KIND_NAMES if each.plural.startswith(incomplete.lower())]


def queries(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of saved queries that begin so."""
    return _begin(incomplete, _asked(ctx, lambda client: [str(each["name"]) for each in client.queries()]))


def parameters(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the parameters (``node=``) of the saved query that is named before; after an ``=``, ids."""
    name, equals, value = incomplete.partition("=")
    if equals:
        return [f"{name}={each}" for each in ids(ctx, value)]

    def named(client: Client) -> list[str]:
        known = {each["name"]: each["parameters"] for each in client.queries()}
        query = ctx.params.get("name") or next(iter(ctx.args), None)  # the latter while an option lacks its value
        return [f"{each['name']}=" for each in known.get(query, ())]

    return _begin(incomplete, _asked(ctx, named))


def _begin(incomplete: str, found: Iterable[str]) -> list[str]:
    return [each for each in found if each.startswith(incomplete)]


def _asked(ctx: typer.Context, ask: Callable[[Client], list[str]]) -> list[str]:
    """Ask the service that ``--url`` or the environment names; [] where it does not answer."""
    import drumlin

    given = {name: value for name, value in ctx.params.items() if value is not None}
    file = given.get("token_file")
    try:
        options = {"token_file": Path(file)} if file else {}
        with drumlin.connect(given.get("url"), limit=_SECONDS, retries=0, **options) as client:
            return ask(client)
    except DrumlinError:
        return []
