"""``drumlin update``: a SPARQL Update from a file, run by a service."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from drumlin.api.cli.options import Url
from drumlin.kg.errors import InvalidInput


def update(
    file: Annotated[str, typer.Argument(help="File with the update, or - for stdin.")],
    url: Url = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds it may take; can only shorten the service's own.", min=0.001)
    ] = None,
) -> None:
    """Run a SPARQL Update, all of it or nothing, and print the generation that holds it.

    **Examples**: `drumlin update rename.ru` · `echo 'CLEAR GRAPH <http://example.org/g>' | drumlin update -`
    """
    import drumlin

    with drumlin.connect(url) as client:
        print(client.update(_read(file), seconds=timeout))


def _read(file: str) -> str:
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return content.decode()
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file} is not UTF-8, from byte {error.start} on") from error
