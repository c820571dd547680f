"""Changes → node documents → material writes: the one loop that every source runs through.

``entities`` knows what is, ``following`` when it is written; here a source is followed from its first change to its last.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import structlog

from exporters.context import Surroundings
from exporters.feed import Feed
from exporters.following import Counts, Following, Summary
from exporters.protocol import Clock, Kind, Source
from exporters.sink import BATCH, Sink
from kg.iris import Iris
from kg.settings import Settings
from kg.telemetry.datasources import Datasource
from kg.telemetry.templates import Catalogue

__all__ = ["Pipeline", "Progress", "Summary"]

log = structlog.get_logger()

WINDOW_SECONDS = 0.3
"""How long further changes of one object wait for one another: events come in bursts (scheduled, started, ready)."""

Progress = Callable[[Summary], None]


class Pipeline:
    """Keeps the graphs of one cluster equal to what a source tells. One ``run`` at a time."""

    def __init__(
        self,
        store: Sink,
        kinds: Sequence[Kind],
        settings: Settings,
        iris: Iris,
        catalogue: Catalogue,
        datasources: Sequence[Datasource],
        *,
        clock: Clock,
        window: float = WINDOW_SECONDS,
        most: int = BATCH,
        home: bool = True,
    ) -> None:
        """Write to ``store``, at most ``most`` graphs at once; changes of one object wait ``window`` seconds for one another."""
        self._sink = store
        self._around = Surroundings(settings, iris, catalogue, tuple(datasources), home)
        self._kinds = frozenset(kind.segment for kind in kinds)
        self._clock = clock
        self._window = window
        self._most = most
        self._following: Following | None = None
        self._feed: Feed | None = None

    @property
    def synced(self) -> bool:
        """Whether what existed at the start has been written."""
        return self._following is not None and self._following.gathered

    @property
    def counts(self) -> Counts | None:
        """What became of the changes of this run, by kind; None before the first. Callable from any thread."""
        return self._following.counts if self._following else None

    @property
    def ages(self) -> dict[Kind, float]:
        """For how many seconds the oldest change of each kind has waited to be dealt with. Callable from any thread."""
        return self._feed.ages() if self._feed else {}

    def run(self, source: Source, stop: threading.Event, progress: Progress | None = None) -> Summary:
        """Follow ``source`` until it is done or ``stop`` is set, and return what was done.

        Blocks. Raises ``SourceUnavailable`` when the source cannot go on and ``StoreUnavailable`` when nothing can be written; a
        new run then takes up where the graph stands. An object that cannot be rendered is reported, no more.
        """
        following = Following(self._sink, self._around, source.name, self._kinds, self._clock, self._window, self._most)
        self._following = following
        self._feed = feed = Feed(source)
        try:
            while not feed.ended:
                if stop.is_set():
                    feed.stop()
                for change in feed.take(following.pause()):
                    following.take(change)
                following.flush()
                if progress:
                    progress(following.summary)
        finally:
            feed.close()
        following.flush(everything=True)
        if progress:
            progress(following.summary)
        log.info("source_ended", source=source.name, summary=str(following.summary))
        return following.summary
