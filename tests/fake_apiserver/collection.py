"""GET on a collection: lists in pages, watches with bookmarks and watch-lists, and the fault that strikes one of them.

Specification: https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from email.message import Message
from typing import Protocol

from tests.fake_apiserver.faults import Fault, Faults
from tests.fake_apiserver.state import ApiError, ApiState, Json, LogEntry, Resource, selects

NOT_FOUND = b"404 page not found\n"
_NO_ROLE = ': RBAC: clusterrole.rbac.authorization.k8s.io "drumlin-reader" not found'
_TEMPLATE = {"metadata": {}, "spec": {"containers": None}}
# Zero values that a bookmark of a built-in kind carries besides its version (as recorded); a custom one carries none.
_ZEROES: dict[str, Json] = {
    "Pod": {"spec": {"containers": None}, "status": {}},
    "Deployment": {"spec": {"replicas": 0, "selector": None, "template": _TEMPLATE, "strategy": {}}, "status": {}},
    "ReplicaSet": {"spec": {"replicas": 0, "selector": None, "template": _TEMPLATE}, "status": {"replicas": 0}},
    "Job": {"spec": {"template": _TEMPLATE}, "status": {}},
}


class Dropped(Exception):
    """The connection is to be closed without a proper end."""


class Conduct(Protocol):
    """How the server behaves now."""

    state: ApiState
    faults: Faults
    forbidden: set[str]
    user: str
    cold: int
    warmed: Counter[str]
    watch_list: bool
    bookmark_every: float
    duplicates: bool
    closing: threading.Event


class Answer(Protocol):
    """The one answer to write."""

    headers: Message

    def json(self, status: int, body: Json, retry_after: int | None = None) -> None:
        """Send a JSON body."""

    def send(self, status: int, media_type: str, body: bytes, retry_after: int | None = None) -> None:
        """Send any body."""

    def begin(self) -> None:
        """Begin a chunked answer of JSON."""

    def chunk(self, content: bytes) -> None:
        """Send one chunk; an empty one ends the answer."""


class Collection:
    """One GET on a collection."""

    def __init__(
        self, handler: Answer, fake: Conduct, resource: Resource, namespace: str, params: dict[str, str]
    ) -> None:
        self._handler = handler
        self._fake = fake
        self._state = fake.state
        self._resource = resource
        self._namespace = namespace
        self._params = params
        self._selector = params.get("labelSelector", "")
        self._fields = [each.partition("=") for each in params.get("fieldSelector", "").split(",") if each]
        self._watches = params.get("watch") in {"1", "true"}
        self._fault = fake.faults.strike(resource.plural, watch=self._watches)

    def serve(self) -> None:
        """Answer it. Raises ``ApiError`` for a refusal, ``Dropped`` where a fault closes the connection."""
        fault = self._fault
        if fault is not None and fault.action in {"refuse", "reinitialise", "missing"}:
            return self._refuse(fault)
        if self._resource.plural in self._fake.forbidden:
            raise _forbidden(self._resource, self._verb, self._fake.user)
        if self._fake.warmed[self._resource.plural] < self._fake.cold:
            self._fake.warmed[self._resource.plural] += 1
            some = _NO_ROLE if self._fake.warmed[self._resource.plural] % 2 == 0 else ""
            raise _forbidden(self._resource, self._verb, self._fake.user, some)
        if self._params.get("resourceVersion", "0").isdecimal() is False and self._params["resourceVersion"]:
            given = self._params["resourceVersion"]
            raise ApiError(
                500,
                "",
                f'resourceVersion: Invalid value: "{given}": strconv.ParseUint: parsing "{given}": invalid syntax',
            )
        if self._watches:
            self._check_watch_list()
            return self._stream()
        return self._list()

    @property
    def _verb(self) -> str:
        return "watch" if self._watches else "list"

    def _refuse(self, fault: Fault) -> None:
        """Refuse as a fault says; too many requests are refused in plain text by the filter, in JSON by a storage that starts."""
        if fault.action == "missing":
            return self._handler.send(404, "text/plain; charset=utf-8", NOT_FOUND)
        if fault.action == "reinitialise":
            error = ApiError(
                429,
                "TooManyRequests",
                "storage is (re)initializing",
                details={"retryAfterSeconds": fault.retry_after or 1},
            )
            return self._handler.json(429, error.body, fault.retry_after or 1)
        if fault.status == 429:
            text = b"Too many requests, please try again later.\n"
            return self._handler.send(429, "text/plain; charset=utf-8", text, fault.retry_after or 1)
        return self._handler.json(fault.status, _refusal(fault.status).body, fault.retry_after)

    # -- list -----------------------------------------------------------------------------------------------------------
    def _list(self) -> None:
        exact = self._params.get("resourceVersionMatch") == "Exact"
        if exact and int(self._params.get("resourceVersion", 0)) < self._state.compacted:
            raise ApiError(410, "Expired", "The resourceVersion for the provided list is too old.")
        found, version, token, remaining = self._state.page(
            self._resource,
            self._namespace,
            self._selector,
            int(self._params.get("limit", 0)),
            self._params.get("continue", ""),
        )
        found = [each for each in found if self._fits(each)]
        metadata: Json = {"resourceVersion": str(version)}
        if token and not (self._fault and self._fault.action == "lose-continue"):
            metadata["continue"] = token
        elif self._resource.custom:
            metadata["continue"] = ""
        if remaining and not self._selector:  # the real one cannot tell under a selector
            metadata["remainingItemCount"] = remaining
        body: Json = {
            "kind": f"{self._resource.kind}List",
            "apiVersion": self._resource.api_version,
            "metadata": metadata,
        }
        if "as=PartialObjectMetadataList" in self._handler.headers.get("accept", ""):
            body |= {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
            partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
            body["items"] = [partial | {"metadata": each["metadata"]} for each in found]
        elif self._resource.custom:
            body["items"] = found
        else:  # items of built-in kinds do not repeat their kind
            body["items"] = [{key: each[key] for key in each if key not in {"kind", "apiVersion"}} for each in found]
        self._answer(json.dumps(body).encode())

    def _answer(self, body: bytes) -> None:
        fault = self._fault
        if fault is None or fault.action not in {"drop", "silence", "truncate", "empty", "slow"}:
            return self._handler.send(200, "application/json", body)
        self._handler.begin()
        if fault.action == "slow":
            self._handler.chunk(body[: len(body) // 2])
            time.sleep(0.05)
            self._handler.chunk(body[len(body) // 2 :])
        elif fault.action != "empty":
            self._handler.chunk(body[: fault.after or len(body) // 2])
        return self._end(fault)

    # -- watch ----------------------------------------------------------------------------------------------------------
    def _check_watch_list(self) -> None:
        if "sendInitialEvents" not in self._params:
            return
        if not self._fake.watch_list:
            raise _invalid(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
            )
        if self._params.get("resourceVersionMatch") != "NotOlderThan":
            raise _invalid(
                "resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            )

    def _stream(self) -> None:
        fault = self._fault
        self._handler.begin()
        if fault is not None and fault.action == "empty":
            return self._end(fault)
        for sent, line in enumerate(self._lines()):
            if fault is not None and sent >= fault.after and fault.action not in {"slow", "no-initial-end"}:
                return self._strike(fault, line)
            if fault is not None and fault.action == "slow":
                for at in range(0, len(line), 64):
                    self._handler.chunk(line[at : at + 64])
                    time.sleep(0.001)
            else:
                self._handler.chunk(line)
        if self._fake.closing.is_set():
            raise Dropped
        return self._handler.chunk(b"")

    def _strike(self, fault: Fault, line: bytes) -> None:
        if fault.action == "error":
            expired = ApiError(410, "Expired", "too old resource version: 1 (2)")
            failure = expired if fault.status == 410 else _refusal(fault.status)
            if fault.retry_after is not None:
                failure.body["details"] = {"retryAfterSeconds": fault.retry_after}
            self._handler.chunk(_line("ERROR", failure.body))
        elif fault.action == "garble":
            self._handler.chunk(b'{"type":"MODIFIED","object":{"metadata"}}\n')
        elif fault.action == "truncate":
            self._handler.chunk(line[: len(line) // 2])
        self._end(fault)

    def _end(self, fault: Fault) -> None:
        if fault.action == "drop":
            raise Dropped
        if fault.action == "silence":
            self._fake.closing.wait(30)
            raise Dropped
        self._handler.chunk(b"")

    def _lines(self) -> Iterator[bytes]:
        """Yield the watch's lines: initial objects, then events as they happen, bookmarks in between, until the timeout."""
        params, state = self._params, self._state
        deadline = time.monotonic() + float(params.get("timeoutSeconds", 1800))
        bookmarks = params.get("allowWatchBookmarks") in {"1", "true"}
        since = int(params.get("resourceVersion") or 0)
        with state.changed:
            initial = [] if since and "sendInitialEvents" not in params else self._objects()
            position = len(state.log) if not since else self._position(since)
            expired, future, now = 0 < since < state.compacted, since > state.version, state.version
        if expired:
            yield _line("ERROR", ApiError(410, "Expired", self._too_old(since, now)).body)
            return
        if future:  # 200 and silence, as recorded
            self._fake.closing.wait(max(0.0, deadline - time.monotonic()))
            return
        for each in initial:
            yield _line("ADDED", each)
        if "sendInitialEvents" in params and not (self._fault and self._fault.action == "no-initial-end"):
            yield self._bookmark(now, {"k8s.io/initial-events-end": "true"})
        yield from self._live(position, deadline, bookmarks=bookmarks)

    def _live(self, position: int, deadline: float, *, bookmarks: bool) -> Iterator[bytes]:
        state = self._state
        marked = time.monotonic()
        while not self._fake.closing.is_set():
            with state.changed:
                now = time.monotonic()
                mark_at = min(marked + self._fake.bookmark_every, deadline)
                if position >= len(state.log) and now < mark_at:
                    state.changed.wait(mark_at - now)
                entries, version = state.log[position:], state.version
                position = len(state.log)
            for entry in entries:
                yield from self._told(entry)
            now = time.monotonic()
            if bookmarks and now >= mark_at:
                marked = now
                yield self._bookmark(version)
            if now >= deadline:
                return

    def _told(self, entry: LogEntry) -> Iterator[bytes]:
        """Yield what this watch sees of an event: with a selector an object may come and go without being made or deleted."""
        namespace = entry.object["metadata"].get("namespace", "")
        if entry.resource != self._resource or self._namespace not in {"", namespace} or not self._fits(entry.object):
            return
        before = selects(self._selector, entry.previous)
        after = entry.type != "DELETED" and selects(self._selector, entry.object)
        kind = entry.type
        if self._selector:
            if not (before or after):
                return
            kind = "DELETED" if not after else "MODIFIED" if before else "ADDED"
        for _ in range(2 if self._fake.duplicates else 1):
            yield _line(kind, entry.object)

    def _too_old(self, since: int, now: int) -> str:
        if self._resource.plural == "events":  # not in the watch cache: etcd's own words
            return "The resourceVersion for the provided watch is too old."
        return f"too old resource version: {since} ({now})"

    def _objects(self) -> list[Json]:
        return list(filter(self._fits, self._state.objects(self._resource, self._namespace, self._selector)))

    def _fits(self, found: Json) -> bool:
        """Return whether an object has the fields that are asked for; of those that never change, such as an event's type."""
        return all(found.get(name) == value for name, _, value in self._fields)

    def _position(self, since: int) -> int:
        return next((at for at, entry in enumerate(self._state.log) if entry.version > since), len(self._state.log))

    def _bookmark(self, version: int, annotations: Json | None = None) -> bytes:
        metadata: Json = {"resourceVersion": str(version)} | ({"annotations": annotations} if annotations else {})
        zeroes = {} if self._resource.custom else _ZEROES.get(self._resource.kind, {"spec": {}, "status": {}})
        head = {"kind": self._resource.kind, "apiVersion": self._resource.api_version, "metadata": metadata}
        return _line("BOOKMARK", head | zeroes)


def _line(kind: str, found: Json) -> bytes:
    return json.dumps({"type": kind, "object": found}, separators=(",", ":")).encode() + b"\n"


def _refusal(status: int) -> ApiError:
    reasons = {
        401: ("Unauthorized", "Unauthorized"),
        403: ("Forbidden", "forbidden by a test"),
        429: ("TooManyRequests", "Too many requests, please try again later."),
        503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    }
    reason, message = reasons.get(
        status, ("InternalError", "an error on the server has prevented the request from succeeding")
    )
    return ApiError(status, reason, message)


def _forbidden(resource: Resource, verb: str, user: str, more: str = "") -> ApiError:
    message = (
        f'{resource.qualified} is forbidden: User "{user}" cannot {verb} resource "{resource.plural}" in API group '
        f'"{resource.group}" at the cluster scope{more}'
    )
    group = {"group": resource.group} if resource.group else {}
    return ApiError(403, "Forbidden", message, details=group | {"kind": resource.plural})


def _invalid(field: str, why: str) -> ApiError:
    cause = {"reason": "FieldValueForbidden", "message": f"Forbidden: {why}", "field": field}
    details = {"group": "meta.k8s.io", "kind": "ListOptions", "causes": [cause]}
    message = f'ListOptions.meta.k8s.io "" is invalid: {field}: Forbidden: {why}'
    return ApiError(422, "Invalid", message, details=details)
