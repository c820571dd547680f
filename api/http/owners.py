"""The owner that a request writes as: its caller's, or named by its header, and never one that the service itself writes as."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Header, Request

from drumlin.api.access.callers import Caller
from drumlin.api.bootstrap import Services, parts
from drumlin.api.http.asgi import SAFE_METHODS, Scope
from drumlin.exporters.pipeline.hosting_domain import OWNER
from drumlin.kg.errors import Conflict, Forbidden, InvalidInput
from drumlin.kg.graphs.owners import HEADER, USER, from_headers

_HEADER = HEADER.lower().encode()


def owner_of(service: Services, scope: Scope) -> str:
    """Return the owner that a request (ASGI) writes as: what its caller is bound to, else what its header names, else ``user``.

    Raises ``Forbidden`` when the header names what the caller may not write as, ``InvalidInput`` for several or an invalid one,
    ``Conflict`` for a source that this service runs, a peer that it follows, and for its own graphs'.
    """
    caller: Caller = scope["caller"]
    named = [value for name, value in scope["headers"] if name == _HEADER]
    owner = from_headers(named) if named else caller.default_owner
    if not caller.may_own(owner):
        raise Forbidden(
            f"{caller.name} ({caller.role}) writes as {', '.join(caller.owns)}, never as {owner[:64]}",
            hint=f"leave {HEADER} out; an operator binds an exporter: drumlin token create NAME --role exporter --source OWNER",
            detail={"identity": caller.name, "role": caller.role.value, "needs": ["exporter", "admin"]},
        )
    own = {OWNER, *(each.source.name for each in service.exporting), *(each.settings.owner for each in service.peers)}
    if owner in own:
        raise Conflict(
            f"this service itself writes as {owner}",
            hint=f"name another owner in {HEADER}, or none to write as {caller.default_owner}",
            detail={"owner": owner},
        )
    return owner


async def named_owner(
    request: Request,
    service: Annotated[Services, Depends(parts)],
    x_drumlin_owner: Annotated[
        str | None,
        Header(
            description="Owner that is written as, percent-encoded, among those of the caller; by default its own, or user."
        ),
    ] = None,
) -> str:
    """Return what ``owner_of`` does (FastAPI dependency)."""
    del x_drumlin_owner  # declared for the document: it would be the first of several
    return owner_of(service, request.scope)


Owner = Annotated[str, Depends(named_owner)]


async def users_only(request: Request) -> None:
    """Raise ``InvalidInput`` for a write that names an owner where only users write (FastAPI dependency)."""
    if request.method in SAFE_METHODS:
        return
    owner = from_headers([value for name, value in request.headers.raw if name == _HEADER])
    if owner != USER:
        raise InvalidInput(
            f"what is written here belongs to {USER}, never to {owner[:64]}",
            hint=f"leave {HEADER} out, or write with /subgraphs or /subgraph",
        )
