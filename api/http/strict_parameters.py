"""Parameters that a route does not have are refused, and values that it would pass over.

A misspelt filter would widen what is listed, searched, followed or exported; the first of two values would be lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, get_args, get_origin

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from drumlin.api.http.asgi import SAFE_METHODS
from drumlin.kg.errors import InvalidInput
from drumlin.kg.graphs import owners


async def known_only(request: Request) -> None:
    """Raise ``InvalidInput`` for a query parameter that the route does not declare, or takes once only (FastAPI dependency)."""
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    names = dict(_parameters(route.dependant))
    if unknown := sorted({*request.query_params} - names.keys()):
        close = get_close_matches(unknown[0][:64], names, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(names) or 'none'}"
        if unknown[0] == "owner" and request.method not in SAFE_METHODS:
            hint = owners.HINT
        raise InvalidInput(f"there is no parameter {unknown[0][:64]!r} here", hint=hint)
    given = [name for name, _ in request.query_params.multi_items()]
    if double := next((name for name in given if not names[name] and given.count(name) > 1), None):
        raise InvalidInput(f"the parameter {double!r} is given twice and takes one value")


def _parameters(dependant: Dependant) -> Iterator[tuple[str, bool]]:
    """Yield the parameters of a route, and whether each may be given several times."""
    yield from ((each.alias, _takes_many(each.field_info.annotation)) for each in dependant.query_params)
    for each in dependant.dependencies:
        yield from _parameters(each)


def _takes_many(annotation: Any) -> bool:
    return any(get_origin(each) is list for each in (annotation, *get_args(annotation)))
