"""Whether a server has things that are scraped more than once: a second kubelet Service, replicas, another job, both address families.

A query that makes one of them (``{{once}} by (…)``) costs the server twice the work, so it is looked, once for all entities, whether that
is needed: has anything two series at some moment of the window, an hour or more apart? Where the server does not answer soon, it may be so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import structlog

from drumlin.kg.errors import DrumlinError
from drumlin.kg.telemetry import promql
from drumlin.kg.telemetry.arrow import pc
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.fetch.prometheus import Prometheus
from drumlin.kg.telemetry.promql import Matcher
from drumlin.kg.telemetry.series import Grid

_log = structlog.get_logger()

_EVERY, _MOST = (
    3600,
    240,
)  # seconds between two looks, at least, and looks at a span: what is doubled for less goes unseen
_LONGEST = 92 * 86_400  # seconds of a window that is looked through
_PATIENCE = 10.0  # seconds that looking may take
_KEPT = 3600.0  # seconds until a server that did not answer is looked at again


@dataclass(slots=True)
class _Looked:
    """The span that was looked through, in seconds since the epoch, and whether anything was doubled; until when that holds."""

    first: int
    last: int
    doubled: bool | None
    until: float = float("inf")


class Doubles:
    """What was seen of each datasource and kind of series; for many threads. ``clock`` counts seconds."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looked: dict[tuple[str, str], _Looked] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def seen(self, datasource: Datasource, query: str, matchers: Sequence[Matcher], grid: Grid) -> bool | None:
        """Return whether something that a template asks for, of any entity, is doubled in a grid's span; None: perhaps.

        What is configured holds. Blocks for some seconds at most; never raises.
        """
        if not datasource.asks_doubled or datasource.access is None:
            return datasource.doubled
        if grid.end - grid.start > _LONGEST:
            return None
        with self._lock:
            lock = self._locks.setdefault(datasource.iri, threading.Lock())
        with lock:
            named = tuple(datasource.labels.items()), tuple(datasource.jobs.items())
            counts = promql.counts_of_things(query, *named, tuple(matchers))
            found = {self._one(datasource, count, grid.start, grid.end) for count in counts}
        return next((each for each in (True, None) if each in found), False)

    def _one(self, datasource: Datasource, count: str, first: int, last: int) -> bool | None:
        key = datasource.iri, count
        known = self._looked.get(key)
        if known is None or known.until < self._clock():
            known = self._looked[key] = self._look(datasource, count, first, last)
        for start, end in ((first, known.first), (known.last, last)):
            if known.doubled is False and end - start > (0 if end == known.first else _EVERY):
                more = self._look(datasource, count, start, end)
                known.first, known.last = min(known.first, start), max(known.last, end)
                known.doubled, known.until = more.doubled, more.until
        return known.doubled

    def _look(self, datasource: Datasource, count: str, first: int, last: int) -> _Looked:
        access = datasource.access and replace(datasource.access, timeout=min(datasource.access.timeout, _PATIENCE))
        step = max(1, min(max(_EVERY, (last - first) // _MOST), last - first))
        grid = Grid(last - -(-(last - first) // step) * step, last, step)
        try:
            with Prometheus(replace(datasource, access=access)) as client:
                parts = client.series(count, grid).parts
        except DrumlinError as error:
            _log.warning("doubles_unknown", datasource=datasource.name, reason=str(error))
            return _Looked(first, last, None, self._clock() + _KEPT)
        doubled = any(pc.any(pc.greater(part.values, 1)).as_py() for part in parts)
        _log.info("doubles_looked_for", datasource=datasource.name, found=doubled)
        return _Looked(first, last, doubled)
