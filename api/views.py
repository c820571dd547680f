"""What answers a request: a view of the graph, the whole one or what some domains see of it, which is opened when it is asked for.

Each view has parts of its own (``api.bootstrap.limited``) and whatever keeps answers, so nothing that was made for one is given to another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from operator import itemgetter
from threading import Event

import structlog
from starlette.concurrency import run_in_threadpool

from drumlin.api.bootstrap import Services, close_limited, limited
from drumlin.api.edge.sparql import SparqlEndpoint
from drumlin.api.metrics import Metrics
from drumlin.api.pages.series import SharedSeries
from drumlin.api.routes.events import Subscribers
from drumlin.kg.errors import Busy, DrumlinError
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.threads import ServiceThread
from drumlin.kg.visibility.visible_store import VisibleStore

_PAUSE = 0.05  # seconds between two looks at what has changed, for those who follow it
_IDLE = 1.0  # without news, after which grants may have ended all the same

log = structlog.get_logger()


class View:
    """What answers requests of callers who see the same."""

    def __init__(self, parts: Services, metrics: Metrics) -> None:
        self.parts = parts
        self.subscribers = Subscribers(parts.feed)
        self.shared_series = SharedSeries()
        self.sparql = SparqlEndpoint(parts, parts.asking, metrics) if parts.asking else None


@dataclass(slots=True)
class _Opened:
    """The view of a set of domains; ``users`` are requests that it answers now, ``used`` is when the last one came (monotonic).

    ``followed``: its feed has been started.
    """

    view: View
    store: VisibleStore
    users: int = 0
    used: float = 0.0
    followed: bool = False


_Key = tuple[frozenset[str], bool]  # domains, and whether a peer asks: it gets nothing that came from peers


class DomainViews:
    """The views of a service: ``whole``, and those of the sets of domains that were asked for lately. For one event loop.

    ``most`` of them are open at once: the one that was not asked for longest is closed for another.
    """

    def __init__(self, parts: Services, metrics: Metrics) -> None:
        self.whole = View(parts, metrics)
        self._parts, self._metrics = parts, metrics
        self.most = parts.settings.domain_views
        self._open: dict[_Key, _Opened] = {}
        self._opening: dict[_Key, asyncio.Lock] = {}
        self._asks = not isinstance(parts.store, EmbeddedStore)  # to look whether something has changed takes a request
        self._woken, self._ending = Event(), Event()
        self._thread: ServiceThread | None = None

    @asynccontextmanager
    async def lent(self, domains: frozenset[str], *, to_peer: bool = False) -> AsyncIterator[View]:
        """Give the view of domains for one request, brought up to the store; raises ``Busy`` and what opening one raises."""
        opened = await self._opened((domains, to_peer))
        try:
            if self._asks or not opened.store.is_current:
                await run_in_threadpool(opened.store.bring_up)
            yield opened.view
        finally:
            opened.users -= 1

    async def _opened(self, key: _Key) -> _Opened:
        async with self._opening.setdefault(key, asyncio.Lock()):
            opened = self._open.get(key)
            if opened is None:
                await self._make_room()
                opened = self._open[key] = await run_in_threadpool(self._make, key)
                self._woken.set()
            opened.users += 1
            opened.used = time.monotonic()
            return opened

    async def _make_room(self) -> None:
        while len(self._open) >= self.most:
            resting = [(each.used, key) for key, each in self._open.items() if not each.users]
            if not resting:
                raise Busy(
                    f"{self.most} sets of domains are in use, which are the most that are kept open",
                    hint="ask again in a moment; an operator raises domain_views",
                )
            await run_in_threadpool(close_limited, self._open.pop(min(resting, key=itemgetter(0))[1]).view.parts)

    def _make(self, key: _Key) -> _Opened:
        self.begin()
        domains, to_peer = key
        store = self._parts.visibility.open(domains, to_peer=to_peer)
        try:
            return _Opened(View(limited(self._parts, store), self._metrics), store)
        except BaseException:
            store.close()
            raise

    # -- following ----------------------------------------------------------------------------------------------------
    def begin(self) -> None:
        """Learn who sees what before anybody asks, and bring up views that somebody follows; else begun with the first of them."""
        if self._thread is not None:
            return
        self._thread = ServiceThread(self._follow, "views", lambda _: None)
        self._thread.start()
        if isinstance(self._parts.store, EmbeddedStore):
            self._parts.store.follow_deltas(lambda _: self._woken.set())

    def _follow(self) -> None:
        try:
            self._parts.visibility.learn()
        except DrumlinError as error:  # the first store that is opened meets it again, and reports it
            log.warning("visibility_not_learnt", reason=str(error))
        while not self._ending.is_set():
            self._woken.wait(_IDLE)
            self._woken.clear()
            for each in tuple(self._open.values()):
                if not each.followed and not each.store.pending:
                    each.followed = True
                    each.view.parts.feed.start()
                if each.view.parts.feed.readers:
                    self._bring_up(each.store)
            self._ending.wait(_PAUSE)

    def _bring_up(self, store: VisibleStore) -> None:
        try:
            store.bring_up()
        except Exception:  # the edge of the thread: the next look tries again, and requests report what fails
            log.exception("view_not_brought_up", domains=sorted(store.domains))
            self._ending.wait(_IDLE)

    def close(self) -> None:
        """Close all views of domains."""
        self._ending.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join(10)
        for each in self._open.values():
            close_limited(each.view.parts)
        self._open.clear()
