"""Sign-in of browsers: with a token, or at an issuer of the configuration; a cookie then stands for it (``api.access.sessions``)."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qs, urlsplit

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from drumlin.api.access.authentication import Authenticator
from drumlin.api.access.code_flow import SECONDS as FLOW_SECONDS
from drumlin.api.access.code_flow import CodeFlow
from drumlin.api.access.sessions import SECONDS, Sessions, id_of, new_value
from drumlin.api.http import problems
from drumlin.api.http.bodies import body_of
from drumlin.api.http.relative_addresses import prefix_of, root_of
from drumlin.api.pages.rendering import render
from drumlin.api.routes.pages import PageRoute
from drumlin.kg.errors import DrumlinError, Forbidden, ResourceNotFound, Throttled, Unauthenticated

_FORM_BYTES = 64 * 1024
_STATE = "_state"  # the end of the name of the cookie of a sign-in that is under way

router = APIRouter(tags=["pages"], route_class=PageRoute, include_in_schema=False)

Next = Annotated[str, Query(max_length=4096, description="Where to go afterwards.")]


@router.get("/signin")
def page(request: Request, next: Next = "/") -> Response:
    """Show the form for a token, and the issuers to sign in at."""
    return _page(request, next)


def _page(request: Request, next: str, error: DrumlinError | None = None) -> Response:
    flow: CodeFlow | None = request.app.state.code_flow
    return render(
        request, "sign_in.html", status=problems.status_of(error)[0] if error else 200, next=next,
        issuers=[urlsplit(each.issuer).netloc for each in flow.issuers] if flow else [],
        problem=problems.problem_of(error) if error else None,
    )  # fmt: skip


@router.post("/signin")
async def with_token(request: Request) -> Response:
    """Begin a session for the holder of a token; show the form again when the token is not accepted."""
    form = parse_qs((await body_of(request, _FORM_BYTES)).decode("latin-1"))
    token, next = (form.get(name, [""])[0].strip() for name in ("token", "next"))
    try:
        await _check(request, token)
    except (Unauthenticated, Forbidden, Throttled) as error:
        return _page(request, next, error)
    sessions: Sessions = request.app.state.sessions
    return _signed_in(request, sessions.begin(token.encode("latin-1")), next)


async def _check(request: Request, token: str) -> None:
    """Raise ``Unauthenticated``, ``Forbidden`` or ``GuessesThrottled`` for a token that is not accepted."""
    authenticator: Authenticator = request.app.state.authenticator
    headers = [(b"authorization", b"Bearer " + token.encode("latin-1", "replace"))]
    address = request.client.host if request.client else ""
    await authenticator.learn(headers, address)
    caller = authenticator.caller_of(headers, address) if token else None
    if caller is None or caller.token is None:
        hint = "an operator makes one: drumlin token create NAME --role reader"
        raise Unauthenticated("this is not a token", hint=hint)


@router.post("/signout")
async def sign_out(request: Request) -> Response:
    """End the session."""
    sessions: Sessions = request.app.state.sessions
    sessions.end(request.scope["headers"])
    answer = Response(status_code=303, headers={"Location": f"{root_of(request)}signin", "Clear-Site-Data": '"cache"'})
    _set_cookie(answer, request, sessions.cookie, "", 0)
    return answer


@router.get("/signin/with/{number}")
async def at_issuer(request: Request, number: int, next: Next = "/") -> Response:
    """Send the browser to the page of an issuer."""
    flow, sessions = _flow(request), request.app.state.sessions
    address, state = await run_in_threadpool(flow.begin, number, next)
    answer = Response(status_code=303, headers={"Location": address, "Cache-Control": "no-store"})
    _set_cookie(answer, request, sessions.cookie + _STATE, state, int(FLOW_SECONDS))
    return answer


@router.get("/signin/callback")
async def back(
    request: Request,
    state: str = "",
    code: str = "",
    error: Annotated[str, Query(max_length=200)] = "",
    iss: str | None = None,
) -> Response:
    """Take the browser back from its issuer, and begin its session."""
    flow, sessions = _flow(request), request.app.state.sessions
    kept = Sessions.value_of(request.scope["headers"], sessions.cookie + _STATE)
    if error or not code:
        reason = error[:80] or "it sent no code"
        return _page(request, "/", Unauthenticated(f"the issuer has not signed you in: {reason}", hint="sign in again"))
    try:
        value = new_value()
        holder, next = await run_in_threadpool(flow.finish, state, kept, code, id_of(value), iss)
    except (Unauthenticated, Forbidden) as refused:
        return _page(request, "/", refused)
    return _signed_in(request, sessions.begin(holder, value), next)


def _flow(request: Request) -> CodeFlow:
    flow: CodeFlow | None = request.app.state.code_flow
    if flow is None:
        raise ResourceNotFound("no issuer is configured to sign in at", hint="sign in with a token")
    return flow


def _signed_in(request: Request, value: str, next: str) -> Response:
    """Send the browser, with the cookie of its session, to where it wants to go within this service."""
    place = next.lstrip("/\\") if next.isprintable() else ""
    answer = Response(status_code=303, headers={"Location": f"{root_of(request)}{place}", "Cache-Control": "no-store"})
    sessions: Sessions = request.app.state.sessions
    _set_cookie(answer, request, sessions.cookie, value, int(SECONDS))
    return answer


def _set_cookie(answer: Response, request: Request, name: str, value: str, seconds: int) -> None:
    """Set a cookie that no script reads, that goes to this service alone, and over TLS only where the service is reached by it."""
    settings = request.app.state.parts.settings
    forwarded = request.client is not None and request.client.host in settings.proxies
    secure = (
        settings.base.startswith("https:")
        or settings.tls is not None
        or (forwarded and request.headers.get("x-forwarded-proto") == "https")
    )
    answer.set_cookie(
        name, value, max_age=seconds, path=prefix_of(settings.base) or "/", secure=secure, httponly=True, samesite="lax"
    )
