"""Changes → node documents → material writes: the one loop that every source runs through.

``entities`` knows what is, ``following`` when it is written; here a source is followed from its first change to its last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Protocol

import structlog

from drumlin.exporters.pipeline.context import ClusterContext
from drumlin.exporters.pipeline.reconciler import ChangeCounts, Progress, Reconciler, RunSummary
from drumlin.exporters.pipeline.runs import Observed
from drumlin.exporters.pipeline.sink import BATCH, Sink
from drumlin.exporters.pipeline.source_thread import SourceThread
from drumlin.exporters.protocol import Clock, Kind, Source
from drumlin.kg.config.settings import Settings
from drumlin.kg.model.iris import Iris
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.templates import TemplateCatalogue

__all__ = ["Approval", "Ending", "Pipeline", "Progress", "RunSummary"]

log = structlog.get_logger()

WINDOW_SECONDS = 0.3
"""How long further changes of one object wait for one another: events come in bursts (scheduled, started, ready)."""


class Ending(Protocol):
    """Says whether a run is to end, as ``threading.Event`` does."""

    def is_set(self) -> bool:
        """Return whether it is to end."""
        ...


Approval = Callable[[list[str]], None]
"""Is given the IRIs of the graphs that are to become tombstones, before anything is written; raises to have nothing written."""


class Pipeline:
    """Keeps the graphs of one cluster equal to what a source reports. One ``run`` at a time."""

    def __init__(
        self,
        store: Sink,
        kinds: Sequence[Kind],
        settings: Settings,
        iris: Iris,
        catalogue: TemplateCatalogue,
        datasources: Sequence[Datasource],
        *,
        clock: Clock,
        window: float = WINDOW_SECONDS,
        most: int = BATCH,
        home: bool = True,
        follower: bool = False,
        renderings: Path | None = None,
    ) -> None:
        """Write to ``store``, at most ``most`` graphs at once; changes of one object wait ``window`` seconds for one another.

        ``follower``: the store is a service's elsewhere, which writes its hosting graphs itself. ``renderings`` is a file that notes
        what graphs were rendered from, so that a restart need not render them again.
        """
        self._sink = store
        self._around = ClusterContext(
            settings,
            iris,
            catalogue,
            tuple(datasources),
            home,
            follower=follower,
            functions=frozenset(kind.segment for kind in kinds if kind.reserved == "function"),
        )
        self._kinds = frozenset(kind.segment for kind in kinds)
        self._clock = clock
        self._window = window
        self._most = most
        self._renderings = renderings
        self._observed: SimpleQueue[tuple[Sequence[Observed], Future[int]]] = SimpleQueue()
        self._following: Reconciler | None = None
        self._feed: SourceThread | None = None

    @property
    def cluster(self) -> str:
        """The name of the cluster."""
        return self._around.settings.cluster

    @property
    def synced(self) -> bool:
        """Whether what existed at the start has been written."""
        return self._following is not None and self._following.gathered

    @property
    def remembered(self) -> frozenset[str]:
        """The homes of the kinds of which the graph had living objects of this source when the run began. Callable from any thread."""
        return self._following.remembered if self._following else frozenset()

    @property
    def counts(self) -> ChangeCounts | None:
        """What became of the changes of this run, by kind; None before the first. Callable from any thread."""
        return self._following.counts if self._following else None

    @property
    def ages(self) -> dict[Kind, float]:
        """For how many seconds the oldest change of each kind has waited to be dealt with. Callable from any thread."""
        return self._feed.ages() if self._feed else {}

    def renew_templates(self) -> bool:
        """Return whether users have overridden or restored templates since the last run, which has ended."""
        return self._following is not None and self._following.renew_templates()

    def observe(self, found: Sequence[Observed]) -> Future[int]:
        """Have the run, as soon as all that exists is written, merge what a datasource remembers into the graphs.

        Callable from any thread. The result is how many graphs were written.
        """
        done: Future[int] = Future()
        self._observed.put((found, done))
        if feed := self._feed:
            feed.wake()
        return done

    def write_observed(self) -> None:
        """Do so after a run that has come to its end; called by the thread that runs."""
        if self._following is not None:
            self._take_observed(self._following)

    def _take_observed(self, following: Reconciler) -> None:
        with suppress(Empty):
            while following.gathered:
                found, done = self._observed.get_nowait()
                if not done.set_running_or_notify_cancel():
                    continue
                try:
                    done.set_result(following.observed(found))
                except BaseException as error:
                    done.set_exception(error)
                    raise

    def run(
        self,
        source: Source,
        stop: Ending,
        progress: Progress | None = None,
        approve: Approval | None = None,
    ) -> RunSummary:
        """Follow ``source`` until it is done or ``stop`` is set, and return what was done.

        With ``approve`` nothing is written before the source is done, and nothing at all when that raises.

        Blocks. Raises ``SourceUnavailable`` when the source cannot go on and ``StoreUnavailable`` when nothing can be written; a
        new run then takes up where the graph stands. An object that cannot be rendered is reported, no more.
        """
        following = Reconciler(
            self._sink,
            self._around,
            source.name,
            self._kinds,
            self._clock,
            self._window,
            self._most,
            progress,
            self._renderings,
        )
        self._following = following
        self._feed = feed = SourceThread(source)
        try:
            while not feed.ended:
                if stop.is_set():
                    feed.stop()
                for change in feed.take(following.pause()):
                    following.take(change)
                if not approve:
                    following.flush()
                    self._take_observed(following)
                following.report()
        finally:
            feed.close()
        if approve and (removals := following.removals()):
            approve(removals)
        following.flush(everything=True)
        following.report()
        following.note_renderings()
        log.info("source_ended", source=source.name, summary=str(following.summary))
        return following.summary
