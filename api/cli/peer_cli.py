"""``drumlin peers``: the services that a service follows, and how far each is."""

from __future__ import annotations

from typing import Annotated

import typer

from drumlin.api.cli.options import Url, form_of

Form = Annotated[str, typer.Option("--output", "-o", help="table, json or csv.")]
_COLUMNS = ("name", "url", "domains", "graphs", "lagSeconds", "lagGenerations", "position", "refused", "error")


def peers(url: Url = None, output: Form = "table") -> None:
    """List the Drumlins that a service follows: what each gave, how far behind it is, and what went wrong last.

    **Examples**: `drumlin peers` · `drumlin peers -o json --url https://drumlin.example`
    """
    import drumlin
    from drumlin.api.cli.output import Output, emit_json, emit_rows

    form = form_of(output, "table", "json", "csv")
    with drumlin.connect(url) as client:
        items = client.peers()
    if form is Output.json:
        emit_json(items)
        return
    told = [{**each, "domains": " ".join(each["domains"]), "refused": sum(each["refused"].values())} for each in items]
    emit_rows(_COLUMNS, [[each[name] for name in _COLUMNS] for each in told], form)
