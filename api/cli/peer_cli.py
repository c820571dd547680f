"""``drumlin peers``: the services that a service follows, and how far each is."""

from __future__ import annotations

from drumlin.api.cli.options import Rows, Url, connect

_COLUMNS = ("name", "url", "domains", "graphs", "lagSeconds", "lagGenerations", "position", "refused", "error")


def peers(url: Url = None, output: Rows = "table") -> None:
    """List the Drumlins that a service follows: what each gave, how far behind it is, and what went wrong last.

    **Examples**: `drumlin peers` · `drumlin peers -o json --url https://drumlin.example`
    """
    from drumlin.api.cli.output import STRUCTURED, Output, emit_rows, emit_value

    form = Output(output)
    with connect(url) as client:
        items = client.peers()
    if form in STRUCTURED:
        emit_value(items, form)
        return
    told = [{**each, "domains": " ".join(each["domains"]), "refused": sum(each["refused"].values())} for each in items]
    emit_rows(_COLUMNS, [[each[name] for name in _COLUMNS] for each in told], form)
