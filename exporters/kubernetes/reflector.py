"""One kind, followed for ever: list, then watch, through every way in which an API server can let go.

A reflector is a small state machine around ``resourceVersion``: without one it lists (as a watch-list, else page by page), with
one it watches from there. Whatever happens decides two things only: whether the version is kept, and how long to wait.
It keeps the last projection of each object by uid, so that what vanished unseen can be reported as ``Gone``.

Specification: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from drumlin.exporters.kubernetes.access import ApiRefused, ApiServer, StreamBroken, StreamSilent, WatchStream
from drumlin.exporters.kubernetes.backlog import Backlog
from drumlin.exporters.kubernetes.cluster_identity import ClusterIdentity
from drumlin.exporters.kubernetes.kind_status import KindStatus, Tally
from drumlin.exporters.kubernetes.served_kinds import is_unserved
from drumlin.exporters.kubernetes.timing import Backoff, Timing
from drumlin.exporters.kubernetes.wire import (
    ListPage,
    ManifestDecoder,
    UnreadableObject,
    WatchEvent,
    WatchFailure,
    lines,
)
from drumlin.exporters.protocol import Clock, Gone, Kind, KindUnavailable, Manifest, Rejected, Synced, Upserted
from drumlin.kg.errors import SourceRefused, SourceUnavailable

log = structlog.get_logger()

_STUBBORN = 5  # refusals in a row after which the version itself is suspected
_MOST_PATIENCE = 64
_NOBODY = "requests are anonymous: name a user in the kubeconfig's context, and check that its credentials are complete"
_ADDRESS = "check the server's address, and what it needs behind the host: a proxy may serve clusters below a path"
_PASSING = {403, 410, 429, 503, 504}  # says nothing about whether the server knows watch-lists


class ApiFailed(SourceUnavailable):
    """An ERROR event arrived inside a healthy answer."""

    def __init__(self, failure: WatchFailure) -> None:
        super().__init__(f"the API server ended the watch: {failure.code} {failure.reason}")
        self.status = failure.code
        self.retry_after = failure.retry_after


class _NoInitialEnd(Exception):
    """The server took the watch-list's parameters and never said where the list ends; never leaves this module."""


class _WentBack(Exception):
    """A watch reported versions below the one it began at: the server was restored; never leaves this module."""


class Reflector:
    """Follows the objects of ``kind`` below ``path`` and puts their changes into ``backlog``; ``run`` is its thread."""

    def __init__(
        self,
        access: ApiServer,
        kind: Kind,
        backlog: Backlog,
        clock: Clock,
        timing: Timing,
        *,
        path: str,
        label_selector: str | None,
        page_size: int,
        identity: ClusterIdentity,
    ) -> None:
        self.kind = kind
        self._identity = identity
        self._epoch = identity.epoch
        identity.on_change(self.interrupt)
        self._access = access
        self._backlog = backlog
        self._clock = clock
        self._timing = timing
        self._path = path
        self._selection = {"labelSelector": label_selector} if label_selector else {}
        if kind.fields:
            self._selection["fieldSelector"] = kind.fields
        self._page_size = page_size
        self._reader = ManifestDecoder(kind)
        self._backoff = Backoff(*timing.backoff)
        self._log = log.bind(kind=kind.name, path=path)
        self._known: dict[str, Manifest] = {}  # by uid
        self._uids: dict[tuple[str | None, str], str] = {}  # (namespace, name) → uid
        self._version: str | None = None  # opaque; None: list first
        self._watch_list = True  # until the server turns out not to know it
        self._answered = access.served  # whether the server ever took the request and the credentials for good
        self._unsure = False  # whether the connection was lost, so that the server may have been restored meanwhile
        self._relist_at = math.inf  # time.monotonic()
        self._missing = 0  # 404s in a row
        self._forbidden_since: float | None = None  # time.monotonic() of the first 403 in a row
        self._silent = 0  # watches in a row that said nothing
        self._patience = 2  # how many of them until the version is suspected
        self._began = 0.0  # when the current watch was opened, time.monotonic()
        self._tally = Tally()
        self._halted = threading.Event()
        self._lock = threading.Lock()
        self._stream: WatchStream | None = None

    # -- its thread -----------------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Follow until halted. An error that no wait can mend is handed to the backlog's taker."""
        try:
            while not self._halted.is_set():
                self._halted.wait(self._turn())
        except SourceUnavailable as error:
            self._backlog.fail(error)
        except BaseException as error:  # noqa: BLE001 — the thread's edge: a defect ends the source, it leaves no kind dead
            self._log.exception("reflector_failed")
            self._backlog.fail(error)

    def halt(self) -> None:
        """End ``run`` soon, also while it blocks in a read; callable from any thread."""
        self._halted.set()
        self.interrupt()

    def interrupt(self) -> None:
        """End the present request, as if its connection were lost; callable from any thread."""
        with self._lock:
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
            self._verify()
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
        except _WentBack:
            self._forget_version("version_went_back")
            return self._backoff.next()
        except SourceUnavailable as error:
            self._unsure = True
            if not self._halted.is_set():
                self._tally.troubled(str(error))
                self._log.warning("kubernetes_unreachable", reason=str(error), hint=error.hint)
            return self._backoff.next()
        if heard == (self._tally.event, self._tally.bookmark):  # a stale or a future version looks like this
            return self._unheard() + self._backoff.next()
        return 0.0 if self._long_lived() else self._backoff.next()

    def _verify(self) -> None:
        """Give the version up where it may be worth nothing: it is long ago that all was listed, or the server was restored.

        After a lost connection the server is asked for its version: one below ours is that of an older backup.
        """
        if self._epoch != self._identity.epoch:
            self._epoch = self._identity.epoch
            self._forget_version("cluster_replaced")
        if self._version is not None and time.monotonic() >= self._relist_at:
            self._version = None
        if self._version is None or not self._unsure:
            return
        if self.kind.name == "Namespace":
            self._version = None  # few objects, and by one of them the cluster is known
        elif _is_before(self._page("", size=1).version, self._version):
            self._forget_version("server_restored")
        self._unsure = False

    def _forget_version(self, event: str) -> None:
        self._log.warning(event, version=self._version, hint="everything is listed anew and compared")
        self._version = None

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
        """Decide by status. Raises ``SourceRefused`` where it is the operator's and not the server's: at the first contact."""
        tally, listing = self._tally, self._version is None
        tally.troubled(str(error))
        if error.status in (400, 422) and listing and self._watch_list:
            return self._without_watch_list()
        if listing and self._watch_list and isinstance(error, ApiFailed) and error.status not in _PASSING:
            return self._without_watch_list()  # e.g. 500 inside a 200: an etcd that cannot report progress
        if error.status in (400, 401, 422) and not self._answered:
            raise SourceRefused(str(error), hint=error.hint, detail=error.detail) from error
        if self._is_nobody(error):
            raise SourceRefused(str(error), hint=_NOBODY, detail=error.detail) from error
        self._answered = True
        if error.status == 403 and self._is_forgiven():
            self._log.warning("kubernetes_refused", status=error.status, reason=str(error))
            return self._backoff.next()
        if error.status == 404 and not self.kind.group:
            return self._no_kubernetes()
        if error.status in (403, 404):
            return self._set_aside(error)
        if error.status == 410:
            tally.gone410 += 1
        stubborn = self._backoff.failures >= _STUBBORN and error.status not in _PASSING | {401}
        if error.status in (400, 410, 422) or stubborn:
            self._version = None
        self._log.warning("kubernetes_refused", status=error.status, reason=str(error))
        return max(self._backoff.next(), min(error.retry_after or 0.0, self._timing.asked))

    def _is_nobody(self, error: ApiRefused | ApiFailed) -> bool:
        """Return whether the server takes us for nobody, and serves nothing to nobody: the credentials are missing."""
        anonymous = error.status == 403 and 'User "system:anonymous"' in str(error)
        return anonymous and not self._access.served and self._backoff.failures >= _STUBBORN

    def _is_forgiven(self) -> bool:
        """Return whether a 403 may pass: a server that starts forbids everything until it has read its roles."""
        now = time.monotonic()
        if self._forbidden_since is None:
            self._forbidden_since = now
            self._backoff.reset()  # it answers again: the waits of an outage are over
        return (self._tally.synced or self._version is not None) and now - self._forbidden_since < self._timing.forgiven

    def _no_kubernetes(self) -> float:
        """A kind of the core group is not found: whatever answers is no Kubernetes API, or not at this address."""
        reason = f"{self._access.server} is not a Kubernetes API: it does not have {self._path} (404)"
        self._tally.trouble = reason
        self._log.warning("no_kubernetes", reason=reason, hint=_ADDRESS)
        return self._backoff.next()

    def _set_aside(self, error: ApiRefused | ApiFailed) -> float:
        """Leave a kind that is forbidden or not installed for minutes; the others go on, what is known stays known.

        A kind that is not installed, now and somewhat later, and of which the server says so, has no objects any more.
        """
        tally, timing = self._tally, self._timing
        if not (tally.synced or tally.forbidden or tally.absent):
            self._backlog.put(KindUnavailable(self.kind))
        tally.forbidden, tally.absent = error.status == 403, error.status == 404
        self._log.warning("kind_set_aside", status=error.status, reason=str(error), hint=error.hint)
        wait = timing.forbidden
        if error.status == 404:
            self._version = None
            self._missing += 1
            wait = timing.absent if self._missing == 1 else timing.forbidden
            if self._missing > 1 and is_unserved(self._access, self.kind):
                tally.untroubled()
                self._complete(set())
        elif not self._access.served:  # nothing yet is served: the server may just be starting
            return min(self._backoff.next(), timing.forbidden[0])
        return random.uniform(*wait)  # noqa: S311  spread, no secret

    # -- requests -----------------------------------------------------------------------------------------------------
    @contextmanager
    def _opened(self, params: dict[str, str], timeout: float) -> Iterator[WatchStream]:
        """Open the collection so that ``halt``, or another cluster, can end it, however the threads interleave."""
        with self._access.stream(self._path, {**self._selection, **params}, timeout=timeout) as stream:
            with self._lock:
                self._stream = stream
                if self._halted.is_set() or self._epoch != self._identity.epoch:
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

    def _page(self, token: str, size: int | None = None) -> ListPage:
        params = {"limit": str(size or self._page_size)} | ({"continue": token} if token else {})
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
        self._forbidden_since = None
        self._missing = 0
        self._tally.forbidden = self._tally.absent = False
        self._tally.untroubled()

    # -- what arrives -------------------------------------------------------------------------------------------------
    def _on_event(self, event: WatchEvent, found: set[str] | None) -> set[str] | None:
        """Apply one event; ``found`` collects uids until the watch-list's end, then it is None."""
        if event.type == "ERROR":
            raise ApiFailed(self._reader.failure(event))
        if event.type == "BOOKMARK":
            mark = self._reader.bookmark(event)
            if found is not None and not mark.ends_initial_events:
                return found
            self._check_order(mark.resourceVersion, found)
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
            self._check_order(version, found)
            self._version = version or self._version
            self._progressed()
        return found

    def _check_order(self, version: str, found: set[str] | None) -> None:
        """Raise ``_WentBack`` when a watch goes on below the version that it was opened at."""
        if found is None and self._version and _is_before(version, self._version):
            raise _WentBack

    def _progressed(self) -> None:
        self._silent, self._patience = 0, 2
        if self._long_lived():
            self._backoff.reset()

    def _long_lived(self) -> bool:
        """Return whether the watch has lasted; one that is cut at once, again and again, must not become a busy loop."""
        return time.monotonic() - self._began > 10 * self._timing.backoff[0]

    def _apply(self, decoded: Manifest | UnreadableObject, found: set[str] | None) -> str:
        """Report an object that exists unless it is known in this version; return its version."""
        if isinstance(decoded, UnreadableObject):
            return self._reject(decoded, found)
        meta = decoded.metadata
        if found is not None:
            found.add(meta.uid)
        self._identity.seen(self.kind, meta)
        known = self._known.get(meta.uid)
        same = known is not None and known.metadata.resourceVersion == meta.resourceVersion
        if same and (found is None or known == decoded):  # after a restore a version may come again with something else
            return meta.resourceVersion
        former = self._uids.get((meta.namespace, meta.name), meta.uid)
        if former != meta.uid:  # same name, new uid, and the end of the old one went unseen
            self._gone(former, self._known[former], estimated=True)
        self._known[meta.uid] = decoded
        self._uids[meta.namespace, meta.name] = meta.uid
        self._backlog.put(Upserted(self.kind, decoded))
        return meta.resourceVersion

    def _vanished(self, decoded: Manifest | UnreadableObject, found: set[str] | None) -> str:
        """Report the end of an object that is known; a late or repeated DELETED touches nothing. Return its version."""
        if isinstance(decoded, UnreadableObject):
            uid, version = decoded.uid, decoded.version
        else:
            uid, version = decoded.metadata.uid, decoded.metadata.resourceVersion
        if found is not None:
            found.discard(uid)
        last = self._known.get(uid)
        if last is not None:
            self._gone(uid, last if isinstance(decoded, UnreadableObject) else decoded, estimated=False)
        return version

    def _gone(self, uid: str, last: Manifest, *, estimated: bool) -> None:
        meta = self._known.pop(uid).metadata
        if self._uids.get((meta.namespace, meta.name)) == uid:
            del self._uids[meta.namespace, meta.name]
        self._backlog.put(Gone(self.kind, last, self._clock(), estimated=estimated))

    def _reject(self, unreadable: UnreadableObject, found: set[str] | None) -> str:
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
        if self._timing.relist:
            self._relist_at = time.monotonic() + random.uniform(*self._timing.relist)  # noqa: S311  spread, no secret
        if not self._tally.synced:
            self._tally.synced = True
            self._backlog.put(Synced(self.kind, self._clock()))


def _is_before(version: str, other: str) -> bool:
    """Return whether a resourceVersion is older; only numbers can be compared, as those of Kubernetes' own storage are."""
    return version.isdecimal() and other.isdecimal() and int(version) < int(other)


def _lively(stream: WatchStream, silence: float) -> Iterator[bytes]:
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
