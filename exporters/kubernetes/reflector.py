"""One kind, followed for ever: list, then watch, through every way in which an API server can let go.

A reflector is a small state machine around ``resourceVersion``: without one it lists (as a watch-list, else page by page), with
one it watches from there. Whatever happens decides two things only: whether the version is kept, and how long to wait.
It keeps the last projection of each object by uid, so that what vanished unseen can be told as ``Gone``.

Specification: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from exporters.kubernetes.access import Access, ApiRefused, Stream, StreamBroken, StreamSilent
from exporters.kubernetes.backlog import Backlog
from exporters.kubernetes.status import KindStatus, Tally
from exporters.kubernetes.timing import Backoff, Timing
from exporters.kubernetes.wire import Event, Failure, Page, Reader, Unreadable, lines
from exporters.protocol import Aside, Clock, Gone, Kind, Manifest, Rejected, Synced, Upserted
from kg.errors import SourceUnavailable

log = structlog.get_logger()

_STUBBORN = 5  # refusals in a row after which the version itself is suspected
_MOST_PATIENCE = 64
_LONGEST_ASKED = 300.0  # seconds of a Retry-After that are honoured; one kind must not sleep for a day
_PASSING = {403, 410, 429, 503, 504}  # says nothing about whether the server knows watch-lists


class ApiFailed(SourceUnavailable):
    """An ERROR event arrived inside a healthy answer."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"the API server ended the watch: {failure.code} {failure.reason}")
        self.status = failure.code
        self.retry_after = failure.retry_after


class _NoInitialEnd(Exception):
    """The server took the watch-list's parameters and never said where the list ends; never leaves this module."""


class Reflector:
    """Follows the objects of ``kind`` below ``path`` and puts their changes into ``backlog``; ``run`` is its thread."""

    def __init__(
        self,
        access: Access,
        kind: Kind,
        backlog: Backlog,
        clock: Clock,
        timing: Timing,
        *,
        path: str,
        label_selector: str | None,
        page_size: int,
    ) -> None:
        self.kind = kind
        self._access = access
        self._backlog = backlog
        self._clock = clock
        self._timing = timing
        self._path = path
        self._selection = {"labelSelector": label_selector} if label_selector else {}
        self._page_size = page_size
        self._reader = Reader(kind)
        self._backoff = Backoff(*timing.backoff)
        self._log = log.bind(kind=kind.name, path=path)
        self._known: dict[str, Manifest] = {}  # by uid
        self._uids: dict[tuple[str | None, str], str] = {}  # (namespace, name) → uid
        self._version: str | None = None  # opaque; None: list first
        self._watch_list = True  # until the server turns out not to know it
        self._answered = False  # whether the server ever took the request and the credentials for good
        self._silent = 0  # watches in a row that said nothing
        self._patience = 2  # how many of them until the version is suspected
        self._began = 0.0  # when the current watch was opened, time.monotonic()
        self._tally = Tally()
        self._halted = threading.Event()
        self._lock = threading.Lock()
        self._stream: Stream | None = None

    # -- its thread -----------------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Follow until halted. An error that no wait can mend is handed to the backlog's taker."""
        try:
            while not self._halted.is_set():
                self._halted.wait(self._turn())
        except SourceUnavailable as error:
            self._backlog.fail(error)
        except Exception as error:  # noqa: BLE001 — the thread's edge: a defect ends the source, it leaves no kind dead
            self._log.exception("reflector_failed")
            self._backlog.fail(error)

    def halt(self) -> None:
        """End ``run`` soon, also while it blocks in a read; callable from any thread."""
        with self._lock:
            self._halted.set()
            if self._stream is not None:
                self._stream.interrupt()

    def status(self) -> KindStatus:
        """Return how the kind is doing now; callable from any thread."""
        return self._tally.status(self.kind, len(self._known))

    # -- one turn: list or watch, and what its end means -------------------------------------------------------------
    def _turn(self) -> float:
        """List or watch once; return how many seconds to wait before the next turn."""
        heard = self._tally.event, self._tally.bookmark
        try:
            if self._version is not None or self._watch_list:
                self._watch()
            else:
                self._list()
                return 0.0  # on to the watch
        except StreamSilent:
            self._log.warning("kubernetes_silent")
            if self._version is not None:
                return self._unheard()
            return self._without_watch_list() if self._watch_list else self._backoff.next()
        except _NoInitialEnd:
            return self._without_watch_list()
        except (ApiRefused, ApiFailed) as error:
            return self._refused(error)
        except SourceUnavailable as error:
            if not self._halted.is_set():
                self._tally.trouble = str(error)
                self._log.warning("kubernetes_unreachable", reason=str(error), hint=error.hint)
            return self._backoff.next()
        if heard == (self._tally.event, self._tally.bookmark):  # a stale or a future version looks like this
            return self._unheard() + self._backoff.next()
        return 0.0 if self._long_lived() else self._backoff.next()

    def _unheard(self) -> float:
        """A watch said nothing. Once is a dead connection; again and again is a version the server does not know."""
        self._silent += 1
        if self._silent >= self._patience:
            self._version, self._silent = None, 0
            self._patience = min(2 * self._patience, _MOST_PATIENCE)  # a quiet kind on a server without bookmarks
        return 0.0

    def _without_watch_list(self) -> float:
        self._log.info("watch_list_unsupported", fallback="pages")
        self._watch_list = False
        return self._backoff.next()

    def _refused(self, error: ApiRefused | ApiFailed) -> float:
        """Decide by status. Raises ``error`` where it is the operator's and not the server's: at the first contact."""
        tally, listing = self._tally, self._version is None
        tally.trouble = str(error)
        if error.status in (400, 422) and listing and self._watch_list:
            return self._without_watch_list()
        if listing and self._watch_list and isinstance(error, ApiFailed) and error.status not in _PASSING:
            return self._without_watch_list()  # e.g. 500 inside a 200: an etcd that cannot report progress
        if error.status in (400, 401, 422) and not self._answered:
            raise error
        self._answered = True
        if error.status in (403, 404):
            return self._set_aside(error)
        if error.status == 410:
            tally.gone410 += 1
        stubborn = self._backoff.failures >= _STUBBORN and error.status not in _PASSING | {401}
        if error.status in (400, 410, 422) or stubborn:
            self._version = None
        self._log.warning("kubernetes_refused", status=error.status, reason=str(error))
        return max(self._backoff.next(), min(error.retry_after or 0.0, _LONGEST_ASKED))

    def _set_aside(self, error: ApiRefused | ApiFailed) -> float:
        """Leave a kind that is forbidden or not installed for minutes; the others go on, what is known stays known."""
        tally = self._tally
        if not (tally.synced or tally.forbidden or tally.absent):
            self._backlog.put(Aside(self.kind))
        tally.forbidden, tally.absent = error.status == 403, error.status == 404
        if error.status == 404:
            self._version = None
        self._log.warning("kind_set_aside", status=error.status, reason=str(error), hint=error.hint)
        return random.uniform(*self._timing.forbidden)  # noqa: S311  spread, no secret

    # -- requests -----------------------------------------------------------------------------------------------------
    @contextmanager
    def _opened(self, params: dict[str, str], timeout: float) -> Iterator[Stream]:
        """Open the collection so that ``halt`` can end it, however the two threads interleave."""
        with self._access.stream(self._path, {**self._selection, **params}, timeout=timeout) as stream:
            with self._lock:
                self._stream = stream
                if self._halted.is_set():
                    stream.interrupt()
            try:
                yield stream
            finally:
                with self._lock:
                    self._stream = None

    def _watch(self) -> None:
        """Watch from the version, or from the beginning as a watch-list; return at the clean end of the stream."""
        silence = random.uniform(*self._timing.silence)  # noqa: S311  spread, no secret
        params = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, round(random.uniform(*self._timing.watch)))),  # noqa: S311  spread, no secret
        }
        found: set[str] | None = None
        if self._version is None:
            found = self._listing()
            params |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        else:
            params |= {"resourceVersion": self._version}
        with self._opened(params, silence) as stream:
            self._served()
            self._began = time.monotonic()
            for line in lines(_lively(stream, silence)):
                found = self._on_event(self._reader.event(line), found)
        if found is not None and not self._halted.is_set():
            raise _NoInitialEnd

    def _list(self) -> None:
        """List page by page. A list that cannot be finished leaves the version unset, so it begins anew."""
        found, token = self._listing(), ""
        while True:
            page = self._page(token)
            for each in page.objects:
                self._apply(each, found)
            token = page.token
            if not token:
                break
        self._version = page.version
        self._complete(found)

    def _page(self, token: str) -> Page:
        params = {"limit": str(self._page_size)} | ({"continue": token} if token else {})
        with self._opened(params, self._timing.page) as stream:
            self._served()
            page = self._reader.page(b"".join(stream))
        if page.remaining > 0 and not page.token:
            raise StreamBroken(
                f"the list of {self.kind.plural} lost its continue token, {page.remaining} objects are missing"
            )
        return page

    def _listing(self) -> set[str]:
        self._tally.relists += self._tally.synced
        return set()

    def _served(self) -> None:
        self._answered = True
        self._tally.forbidden = self._tally.absent = False
        self._tally.trouble = None

    # -- what arrives -------------------------------------------------------------------------------------------------
    def _on_event(self, event: Event, found: set[str] | None) -> set[str] | None:
        """Apply one event; ``found`` collects uids until the watch-list's end, then it is None."""
        if event.type == "ERROR":
            raise ApiFailed(self._reader.failure(event))
        if event.type == "BOOKMARK":
            mark = self._reader.bookmark(event)
            if found is not None and not mark.ends_initial_events:
                return found
            self._version = mark.resourceVersion or self._version
            self._tally.bookmark = time.monotonic()
            if found is None:
                self._progressed()
            else:
                self._complete(found)
            return None
        decoded = self._reader.object(event.object)
        version = self._vanished(decoded, found) if event.type == "DELETED" else self._apply(decoded, found)
        self._tally.event = time.monotonic()
        if found is None:
            self._version = version or self._version
            self._progressed()
        return found

    def _progressed(self) -> None:
        self._silent, self._patience = 0, 2
        if self._long_lived():
            self._backoff.reset()

    def _long_lived(self) -> bool:
        """Tell whether the watch has lasted; one that is cut at once, again and again, must not become a busy loop."""
        return time.monotonic() - self._began > 10 * self._timing.backoff[0]

    def _apply(self, decoded: Manifest | Unreadable, found: set[str] | None) -> str:
        """Report an object that exists unless it is known in this version; return its version."""
        if isinstance(decoded, Unreadable):
            return self._reject(decoded, found)
        meta = decoded.metadata
        if found is not None:
            found.add(meta.uid)
        known = self._known.get(meta.uid)
        if known is not None and known.metadata.resourceVersion == meta.resourceVersion:
            return meta.resourceVersion
        former = self._uids.get((meta.namespace, meta.name), meta.uid)
        if former != meta.uid:  # same name, new uid, and the end of the old one went unseen
            self._gone(former, self._known[former], estimated=True)
        self._known[meta.uid] = decoded
        self._uids[meta.namespace, meta.name] = meta.uid
        self._backlog.put(Upserted(self.kind, decoded))
        return meta.resourceVersion

    def _vanished(self, decoded: Manifest | Unreadable, found: set[str] | None) -> str:
        """Report the end of an object that is known; a late or repeated DELETED touches nothing. Return its version."""
        if isinstance(decoded, Unreadable):
            uid, version = decoded.uid, decoded.version
        else:
            uid, version = decoded.metadata.uid, decoded.metadata.resourceVersion
        if found is not None:
            found.discard(uid)
        last = self._known.get(uid)
        if last is not None:
            self._gone(uid, last if isinstance(decoded, Unreadable) else decoded, estimated=False)
        return version

    def _gone(self, uid: str, last: Manifest, *, estimated: bool) -> None:
        meta = self._known.pop(uid).metadata
        if self._uids.get((meta.namespace, meta.name)) == uid:
            del self._uids[meta.namespace, meta.name]
        self._backlog.put(Gone(self.kind, last, self._clock(), estimated=estimated))

    def _reject(self, unreadable: Unreadable, found: set[str] | None) -> str:
        """Report an object that cannot be read. It exists, so a known form of it stays."""
        if found is not None and unreadable.uid:
            found.add(unreadable.uid)
        self._tally.rejected += 1
        where = f"{self._path}/{unreadable.name}"
        if unreadable.namespace and "/namespaces/" not in self._path:
            root = self._path.removesuffix(self.kind.plural)
            where = f"{root}namespaces/{unreadable.namespace}/{self.kind.plural}/{unreadable.name}"
        reason = f"{unreadable.reason} (uid {unreadable.uid or 'unknown'})"
        self._backlog.put(Rejected(where, reason, self.kind, unreadable.namespace, unreadable.name))
        return unreadable.version

    def _complete(self, found: set[str]) -> None:
        """Everything that exists has been seen: report what was known and is not there, and the first time ``Synced``."""
        for uid in self._known.keys() - found:
            self._gone(uid, self._known[uid], estimated=True)
        if not self._tally.synced:
            self._tally.synced = True
            self._backlog.put(Synced(self.kind, self._clock()))


def _lively(stream: Stream, silence: float) -> Iterator[bytes]:
    """Yield the chunks of ``stream``; one that drips bytes without ever ending a line counts as silent.

    Only the time spent reading counts, not the time that a full queue holds the watch up.
    """
    read, asked = 0.0, time.monotonic()
    for chunk in stream:
        read = 0.0 if b"\n" in chunk else read + time.monotonic() - asked
        if read > silence:
            raise StreamSilent("no whole event arrived in time")
        yield chunk
        asked = time.monotonic()
