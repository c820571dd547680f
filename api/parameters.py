"""Parameters that a route does not have are refused: a misspelt filter would widen what is listed, searched, followed or exported."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from kg.errors import InvalidInput


async def known_only(request: Request) -> None:
    """Raise ``InvalidInput`` for a query parameter that the route does not declare (FastAPI dependency)."""
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    names = list(_names(route.dependant))
    if unknown := sorted({*request.query_params} - {*names}):
        close = get_close_matches(unknown[0][:64], names, n=1)
        raise InvalidInput(
            f"there is no parameter {unknown[0][:64]!r} here",
            hint=f"did you mean {close[0]}?" if close else f"there are {', '.join(names) or 'none'}",
        )


def _names(dependant: Dependant) -> Iterator[str]:
    yield from (each.alias for each in dependant.query_params)
    for each in dependant.dependencies:
        yield from _names(each)
