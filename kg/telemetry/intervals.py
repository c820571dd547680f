"""How often a server's targets are scraped and which language it speaks, asked of the server itself where the configuration does not say.

A rate needs two scrapes in its range, so its window depends on the interval, and a guess that is too short gives no points at all. Jobs are
scraped at different intervals, so each is learned. What was learned is kept for an hour; a server that did not tell is asked again
after a minute, and until then the usual interval is assumed.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache
from typing import NamedTuple

import structlog

from drumlin.kg.errors import DrumlinError
from drumlin.kg.telemetry import promql
from drumlin.kg.telemetry.datasources import Datasource, Language, LearntDatasources
from drumlin.kg.telemetry.fetch.prometheus import Prometheus

_log = structlog.get_logger()

KEPT = 3600.0
"""Seconds for which an answer holds."""
_AGAIN = 60.0  # seconds until a server that did not answer is asked again
_PATIENCE = 5.0  # seconds that learning may take


class _Learned(NamedTuple):
    by_job: Mapping[str, timedelta]
    language: Language
    until: float


class Intervals:
    """What was learned of each datasource; for many threads. ``clock`` counts seconds."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._learned: dict[str, _Learned] = {}
        self._learnt = LearntDatasources()
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def learned(self, datasource: Datasource, query: str) -> Datasource:
        """Return a datasource with what the server reported: its language, and the interval of what a template's query asks for.

        What is configured holds. Blocks for some seconds at most when the server has to be asked; never raises.
        """
        if not (datasource.learns or datasource.asks_language) or datasource.access is None:
            return datasource
        language = self._known(datasource).language if datasource.asks_language else datasource.language
        return self._learnt.get(datasource, self.of(datasource, query), language, doubled=datasource.doubled)

    def of(self, datasource: Datasource, query: str) -> timedelta:
        """Return the interval of the jobs that a query asks for, in the datasource's names; of all jobs, the longest, without such.

        What is configured holds. Blocks for some seconds at most when the server has to be asked; never raises.
        """
        by_job = self._by_job(datasource)
        if not by_job:
            return datasource.scrape_interval
        named = _jobs(query, datasource.labels.get("job") or "job", tuple(datasource.jobs.items()))
        return max([each for job, each in by_job.items() if _is_named(job, named)] or by_job.values())

    def longest(self, datasource: Datasource) -> timedelta:
        """Return the longest interval of any job."""
        return max(self._by_job(datasource).values(), default=datasource.scrape_interval)

    def _by_job(self, datasource: Datasource) -> Mapping[str, timedelta]:
        if not datasource.learns or datasource.access is None:
            return {}
        return self._known(datasource).by_job

    def _known(self, datasource: Datasource) -> _Learned:
        with self._lock:
            lock = self._locks.setdefault(datasource.iri, threading.Lock())
        with lock:
            known = self._learned.get(datasource.iri)
            if known is None or known.until < self._clock():
                known = self._learned[datasource.iri] = self._ask(datasource)
            return known

    def _ask(self, datasource: Datasource) -> _Learned:
        access = datasource.access and replace(datasource.access, timeout=min(datasource.access.timeout, _PATIENCE))
        try:
            with Prometheus(replace(datasource, access=access)) as client:
                found = client.scrape_intervals() if datasource.learns else {}
                language = client.language() if datasource.asks_language else datasource.language
        except DrumlinError as error:
            _log.warning("scrape_interval_unknown", datasource=datasource.name, reason=str(error))
            return _Learned({}, datasource.language, self._clock() + _AGAIN)
        _log.info("scrape_interval_learned", datasource=datasource.name, jobs=len(found), language=language)
        return _Learned(found, language, self._clock() + (KEPT if found or not datasource.learns else _AGAIN))


@lru_cache(maxsize=256)
def _jobs(query: str, label: str, renamed: tuple[tuple[str, str], ...]) -> frozenset[str]:
    """Return the jobs that a template names, as this server calls them; ``=~`` begins a regular expression."""
    names = dict(renamed)
    return frozenset(filter(None, (names.get(job, job) for job in promql.jobs(query, label))))


def _is_named(job: str, named: frozenset[str]) -> bool:
    return job in named or any(each.startswith("=~") and re.fullmatch(each.removeprefix("=~"), job) for each in named)
