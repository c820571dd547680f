"""``drumlin update``: a SPARQL Update from a file, run by a service."""

from __future__ import annotations

from typing import Annotated

import typer

from drumlin.api.cli.options import GRACE, Url, connect, text_of, time_limit


def update(
    file: Annotated[str, typer.Argument(help="File with the update, or - for stdin.")],
    url: Url = None,
) -> None:
    """Run a SPARQL Update, all of it or nothing, and print the generation that holds it.

    **Examples**: `drumlin update rename.ru` · `echo 'CLEAR GRAPH <http://example.org/g>' | drumlin update -`
    """
    with connect(url, grace=GRACE) as client:
        print(client.update(text_of(file), seconds=time_limit()))
