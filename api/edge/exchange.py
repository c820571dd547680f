"""One request and its answer: what all answers have in common happens here, whichever route makes them.

An exchange is passed on as ASGI (``scope``, ``receive``, ``send``) to an application of the edge or to FastAPI. Every answer gets the
request's id, is counted, compressed for clients that accept it, watched for clients that take nothing, and sent without a body for
HEAD. The head of an answer waits for the first piece of its body, so that an error before it still becomes a problem document.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import time
import uuid
import weakref
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import structlog
from fastapi import Request
from starlette.concurrency import run_in_threadpool

from drumlin.api.access.callers import Caller
from drumlin.api.edge.slow_clients import ClientProgress, SlowClientGuard
from drumlin.api.http import bodies, compression, disconnects, etags, problems
from drumlin.api.http.asgi import Application, Headers, Message, Receive, Scope, Send, joined
from drumlin.api.http.compression import Packer
from drumlin.api.http.etags import Coding
from drumlin.api.metrics import Metrics
from drumlin.kg import fairness
from drumlin.kg.errors import DrumlinError, PreconditionFailed

P = ParamSpec("P")
T = TypeVar("T")

_LARGE = 256 << 10  # bytes of a piece, beyond which a whole answer is sent in several
_INLINE = 128 << 10  # bytes that are compressed on the event loop (about a millisecond); more goes to a thread
_PAUSE = 0.05  # seconds after which what a stream has so far is sent, so that a slow one is not held back
CLIENT_LEFT = 499  # the status under which a request without an answer is counted
_STALLED = 408
_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
_OTHER_METHOD = "other"  # the label of all methods that a client may think up: each label is kept for ever
_WITH_BODY = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_CONDITIONS = (b"if-match", b"if-none-match")
_NO_SNIFFING = (b"x-content-type-options", b"nosniff")
_OF_DATA: Headers = [_NO_SNIFFING, (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")]
_OF_PAGES: Headers = [
    _NO_SNIFFING,
    (
        b"content-security-policy",
        b"; ".join(
            (
                *(
                    b"%s 'self'" % each
                    for each in (b"script-src", b"style-src", b"img-src", b"connect-src", b"form-action")
                ),
                *(b"%s 'none'" % each for each in (b"default-src", b"base-uri", b"frame-ancestors")),
            )
        ),
    ),
]
_SANE_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_numbers = itertools.count(1)
_process = uuid.uuid4().hex[:20]


class Exchange:
    """One HTTP request and its answer; ``scope["exchange"]`` leads to it.

    ``route`` is the label under which it is counted when no route of FastAPI answers it.
    """

    route: str | None = None
    status = 0
    """The status of the answer, 0 until its head was sent."""
    caller: Caller | None = None
    """Who sent the request, None as long as that is not known."""
    changes = False
    """Whether the route that answers changes something."""
    refusal = ""
    """For what the request was refused before any route, or ended: the last part of the problem's type."""
    has_page = False
    """Whether the answer depends on Accept because there is a page beside the data."""
    ended = False
    """Whether the whole answer was sent."""
    _is_read = False
    _coming: asyncio.Future[Message] | None = None
    _head: Message | None = None
    _packer: Packer | None = None
    _progress: ClientProgress | None = None
    _sent_at = 0.0

    def __init__(self, scope: Scope, receive: Receive, send: Send, metrics: Metrics, guard: SlowClientGuard) -> None:
        self.scope, self._receive, self._send = scope, receive, send
        self._metrics, self._guard = metrics, guard
        self.method: str = scope["method"]
        headers, self.headers = joined(scope["headers"])
        self._if_none_match = self.headers.get(b"if-none-match")
        if self._if_none_match is not None or b"if-match" in self.headers:
            headers = [(name, etags.plain_tags(value) if name in _CONDITIONS else value) for name, value in headers]
            _, self.headers = joined(headers)
        reads = self.method in ("GET", "HEAD")  # the routes of other methods look at it before they write
        self._if_match = self.headers.get(b"if-match") if reads else None
        scope["headers"] = headers
        scope["exchange"] = self
        scope["request_id"] = self.id = _request_id(self.headers.get(b"x-request-id"))

    async def run(self, app: Application) -> None:
        """Have ``app`` answer, and count the request when it has."""
        began = time.perf_counter()
        bound = structlog.contextvars.bind_contextvars(request_id=self.id)
        client = fairness.client.set(self.scope["client"][0] if self.scope.get("client") else "")
        leaving = disconnects.client.set(weakref.WeakMethod(self.receive))  # contexts are copied, and may last
        try:
            await app(self.scope, self.receive, self.send)
        finally:
            fairness.client.reset(client)
            disconnects.client.reset(leaving)
            structlog.contextvars.reset_contextvars(**bound)
            if self._progress is not None:
                self._guard.forget(self._progress)
            if self._coming is not None:
                self._coming.cancel()
            del self.scope["exchange"]  # a cycle would keep the connection open until garbage is collected
            route = self.route or str(getattr(self.scope.get("route"), "path", "unmatched"))
            method = self.method if self.method in _METHODS else _OTHER_METHOD
            self._metrics.observe(method, route, self.status or CLIENT_LEFT, time.perf_counter() - began)

    def problem(self, error: Exception) -> Application:
        """Return the problem document of an error; of one that nobody expected it says no more than that there was one."""
        request = Request(self.scope)
        if isinstance(error, DrumlinError):
            return problems.error_response(request, error)
        return problems.crash_response(request, error)

    @property
    def may_be_cut(self) -> bool:
        """Whether ending the request leaves no doubt about what was done: its body is still coming, or its answer has begun."""
        return bool(self.status) or (not self._is_read and self.method in _WITH_BODY)

    # -- the request --------------------------------------------------------------------------------------------------
    async def receive(self) -> Message:
        """Receive the next message of the client (ASGI).

        After the body there is only one more: the client has left. A waiting task may be cancelled and another may begin to wait;
        the cancellation must not reach the server, which would lose the message.
        """
        if self.method in _WITH_BODY and not self._is_read:
            message = await self._receive()
        else:
            if self._coming is None:
                self._coming = asyncio.ensure_future(self._receive())
            message = await asyncio.shield(self._coming)
        if message["type"] != "http.disconnect":
            self._coming = None
            self._is_read = not message.get("more_body", False)
        return message

    def _is_sending(self) -> bool:
        """Return whether the client sends a body that nobody has read: many look for the answer only when they are done sending."""
        return not self._is_read and self.method in _WITH_BODY and b"expect" not in self.headers

    # -- the answer ---------------------------------------------------------------------------------------------------
    async def send(self, message: Message) -> None:
        """Send a message of the answer (ASGI)."""
        if message["type"] == "http.response.start":
            self._head = message
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        if self._head is not None:
            head, self._head = self._head, None
            if self._if_match is not None and not more and self._has_changed(head):
                head, body = self._precondition_failed()
            body = await self._begin(head["status"], list(head.get("headers", ())), body, more=more)
        elif self._packer is not None:
            body = await self._packed(self._packer, body, more=more)
            if more and not body:
                return
        await self._write(body, more=more)

    def _has_changed(self, head: Message) -> bool:
        """Return whether a read is answered with another representation than those that If-Match lists (RFC 9110 §13.1.1)."""
        tag = dict(head.get("headers", ())).get(b"etag")
        if tag is None or head["status"] not in (200, 304) or self._if_match is None:
            return False
        return not etags.is_listed(self._if_match.decode("latin-1"), tag.decode("latin-1"))

    def _precondition_failed(self) -> tuple[Message, bytes]:
        error = PreconditionFailed(
            "it is another representation now than If-Match lists", hint="read it without If-Match"
        )
        answer = problems.error_response(Request(self.scope), error)
        return {"status": answer.status_code, "headers": answer.raw_headers}, bytes(answer.body)

    async def _begin(self, status: int, headers: Headers, body: bytes, *, more: bool) -> bytes:
        """Send the head of the answer; return the first piece of its body as it is to be sent."""
        if 400 <= status != _STALLED and self._is_sending():
            await bodies.discard(bodies.pieces(self.receive))
        if self.has_page:
            headers = compression.varying(headers, b"Accept")
        coding: Coding | None = None
        if status == 304:
            known = self._if_none_match or b""
            headers = [(name, etags.held_tag(value, known) if name == b"etag" else value) for name, value in headers]
            headers = compression.varying(headers)
        elif compression.may_be_coded(headers):
            headers = compression.varying(headers)
            accepted = self.headers.get(b"accept-encoding")
            if accepted is not None and status not in (204, 206) and (more or len(body) >= compression.MINIMUM):
                coding = compression.wanted(accepted)
        if coding is not None and more:
            self._packer = compression.packer(coding)
            headers = compression.coded_headers(headers, coding, None)
            body = await self._packed(self._packer, body, more=True)
        elif coding is not None:
            headers, body = await _aside_if_large(len(body), compression.coded, headers, body, coding)
        headers.append((b"x-request-id", self.id.encode()))
        headers += [_NO_SNIFFING] if status == 304 else _protections(headers)  # what is kept keeps its own policy
        self.status = status
        if more:
            self._progress = self._guard.watch(self.scope, self._send)
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        return body

    async def _packed(self, packer: Packer, body: bytes, *, more: bool) -> bytes:
        """Return what is ready of a compressed stream; the first piece, and what comes after a pause, is not held back."""
        packed = await _aside_if_large(len(body), packer.compress, body)
        if not more:
            packed += packer.flush()
        elif body and time.monotonic() - self._sent_at > _PAUSE:
            packed += packer.so_far()
        if packed:
            self._sent_at = time.monotonic()
        return packed

    async def _write(self, body: bytes, *, more: bool) -> None:
        """Send a piece; a large one in several: the server would take it at once, and keep it as long as its client likes."""
        if self.method == "HEAD":
            body = b""
        if len(body) > _LARGE:
            if self._progress is None:
                self._progress = self._guard.watch(self.scope, self._send)
            pieces = [body[start : start + _LARGE] for start in range(0, len(body), _LARGE)]
            for piece in pieces[:-1]:
                await self._progress.send({"type": "http.response.body", "body": piece, "more_body": True})
            body = pieces[-1]
        send = self._send if self._progress is None else self._progress.send
        await send({"type": "http.response.body", "body": body, "more_body": more})
        self.ended = not more


def _protections(headers: Headers) -> Headers:
    """Return the headers that keep a browser from taking an answer for something else; a page has nothing in line."""
    page = any(name == b"content-type" and value.startswith(b"text/html") for name, value in headers)
    return _OF_PAGES if page else _OF_DATA


async def _aside_if_large(size: int, work: Callable[P, T], *given: P.args, **more: P.kwargs) -> T:
    return work(*given, **more) if size <= _INLINE else await run_in_threadpool(work, *given, **more)


def _request_id(sent: bytes | None) -> str:
    """Return the id that a client sent when it is sane, else one that no other request has."""
    if sent is not None and _SANE_ID.fullmatch(sent):
        return sent.decode()
    return f"{_process}{next(_numbers):012x}"
