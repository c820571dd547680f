"""Composition: the parts of one service, built from the settings. Routes get them by injection and build nothing themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import Request

from api.counting import Counting
from api.exporting import Exporting
from exporters.files import Files
from exporters.hosting import ensure
from exporters.kubernetes.mappings import kinds_of
from exporters.pipeline import Pipeline
from exporters.protocol import Source
from exporters.retention import Retention
from kg.errors import InvalidSettings
from kg.feed import Feed
from kg.foreign import Graphs
from kg.index_helper import Helper
from kg.indexing import Index
from kg.iris import Iris
from kg.proving import Provers
from kg.search import Search
from kg.settings import Settings
from kg.store.embedded import EmbeddedStore
from kg.store.protocol import Store
from kg.store.pruning import Kept
from kg.store.reader_answers import Asking
from kg.store.readers import Readers
from kg.subgraphs import Subgraphs
from kg.telemetry.cache import DayCache
from kg.telemetry.datasources import Datasource
from kg.telemetry.history import History
from kg.telemetry.intervals import Intervals
from kg.telemetry.resolve import Resolver
from kg.telemetry.templates import Catalogue
from kg.updating import Updates

if TYPE_CHECKING:
    from kg.store.remote import RemoteStore

Place = Path | str | None
"""Where a store is: a directory, ``sparql+http(s)://…``, or a temporary directory."""


def now() -> datetime:
    """Return the time in UTC, to the second: what the graph keeps."""
    return datetime.now(UTC).replace(microsecond=0)


@dataclass(frozen=True)
class Parts:
    """Everything a route needs. ``exporting`` is empty when this process exports nothing."""

    settings: Settings
    iris: Iris
    store: Store
    subgraphs: Subgraphs
    graphs: Graphs
    updates: Updates
    catalogue: Catalogue
    resolver: Resolver
    history: History
    search: Search = field(kw_only=True)
    feed: Feed = field(kw_only=True)
    provers: Provers = field(kw_only=True)
    counting: Counting = field(kw_only=True)
    exporting: tuple[Exporting, ...] = field(default=())
    asking: Asking | None = field(default=None)
    retention: Retention | None = field(default=None)
    files: Files | None = field(default=None)

    def close(self) -> None:
        """Stop exporting, then release what is open."""
        if self.files:
            self.files.stop(timeout=None)  # not in the middle of a file
        self.feed.stop()
        for each in self.exporting:
            each.stop()
        if self.retention:
            self.retention.stop()
        self.updates.close()
        self.provers.close()
        self.search.index.close()
        self.history.close()
        self.store.close()


def configured(settings: Settings, iris: Iris) -> tuple[Datasource, ...]:
    """Return the datasources that stand in the settings: the only ones that are ever fetched from."""
    domain = iris.domain(settings.domain.id)
    return tuple(Datasource.from_settings(each, iris, domain) for each in settings.datasource)


def _hold_to_base(store: EmbeddedStore | RemoteStore, base: str) -> None:
    made_under = store.made_under(base)
    if made_under != base:
        raise InvalidSettings(
            f"the store in {store.place} names everything below {made_under}, not below {base}",
            hint=f"say --base {made_under}, or use another store and load it anew",
        )


def open_store(settings: Settings, place: Place) -> EmbeddedStore | RemoteStore:
    """Open the store; raises ``InvalidSettings`` when it was made under another base, since names never change."""
    store: EmbeddedStore | RemoteStore
    if isinstance(place, str) and place.startswith("sparql+"):
        from kg.store.remote import RemoteStore

        store = RemoteStore(place, settings.store, query_timeout=settings.query_timeout)
    else:
        kept = Kept(timedelta(days=settings.log_retention), settings.log_bytes)
        store = EmbeddedStore(None if place is None else Path(place), kept=kept)
    try:
        _hold_to_base(store, settings.base)
    except BaseException:
        store.close()
        raise
    return store


def assemble(settings: Settings, *, directory: Place, source: Source | Mapping[str, Source] | None = None) -> Parts:
    """Open the store, ensure the hosting graphs and start exporting from ``source``, or from several by the names of clusters."""
    iris = Iris(settings.base)
    store = open_store(settings, directory)
    catalogue = Catalogue.shipped(frozenset(settings.exporters))
    datasources = configured(settings, iris)
    resolver = Resolver(store, iris, datasources, catalogue, Intervals())
    ensure(store, settings, iris, catalogue, datasources)
    subgraphs = Subgraphs(store, iris, clock=now)
    index = _index(store, iris)
    graphs = Graphs(store, iris, subgraphs, max_bytes=settings.document_bytes)
    parts = Parts(
        settings,
        iris,
        store,
        subgraphs,
        graphs,
        Updates(store, graphs, settings.base, seconds=settings.query_timeout),
        catalogue,
        resolver,
        History(resolver, days=_days(settings, store)),
        tuple(_exporting(settings, store, catalogue, datasources, source)),
        _asking(settings, store) if isinstance(store, EmbeddedStore) else None,
        Retention(store, settings.retention, now),
        search=Search(index),
        feed=Feed(store, iris, index),
        provers=Provers(iris),
        counting=Counting(store, iris.root),
    )
    _follow(store, index, parts.feed)
    for each in parts.exporting:
        each.start()
    if parts.retention:
        parts.retention.start()
    return parts


def _exporting(
    settings: Settings,
    store: EmbeddedStore | RemoteStore,
    catalogue: Catalogue,
    datasources: tuple[Datasource, ...],
    source: Source | Mapping[str, Source] | None,
) -> Iterator[Exporting]:
    """Yield an exporter for each cluster; the hosting graphs of those beside the settings' own are ensured."""
    iris = Iris(settings.base)
    clusters = source if isinstance(source, Mapping) else {settings.cluster: source} if source else {}
    for name, each in clusters.items():
        own, home = settings.of_cluster(name), name == settings.cluster
        if not home:
            ensure(store, own, iris, catalogue, datasources, home=False)
        yield Exporting(Pipeline(store, kinds_of(own), own, iris, catalogue, datasources, clock=now, home=home), each)


def _asking(settings: Settings, store: EmbeddedStore) -> Asking:
    """Have callers' queries run by reader processes; the store ends them when it is closed."""
    readers = Readers(store, store.directory / "readers", count=settings.readers, memory=settings.query_memory)
    asking = Asking(readers, timeout=settings.query_timeout, slow=settings.slow_query)
    store.answer_through(asking)
    return asking


def _days(settings: Settings, store: EmbeddedStore | RemoteStore) -> DayCache | None:
    """Return where finished days of series are kept: beside the store, when that is on this machine."""
    limit = settings.series_cache_bytes
    return DayCache(store.directory / "series.db", limit) if limit and isinstance(store, EmbeddedStore) else None


def _index(store: EmbeddedStore | RemoteStore, iris: Iris) -> Index:
    """Open the search index: beside the store when that is here, where a process can take in the log."""
    if not isinstance(store, EmbeddedStore):
        return Index(store, iris, None)
    file = store.directory / "search.sqlite"
    return Index(store, iris, file, helper=Helper(store.log_file, file, iris, store.has_changed))


def _follow(store: Store, index: Index, feed: Feed) -> None:
    """Start the feed; a store elsewhere is looked at from time to time, one here wakes it."""
    if isinstance(store, EmbeddedStore):
        store.follow_deltas(lambda _: feed.wake())
        store.keep_log_after(lambda: feed.taken_in)
        index.lines_of = feed.lines_of = store.recent_lines
    feed.start()


async def parts(request: Request) -> Parts:
    """Return the parts of the service that answers ``request`` (FastAPI dependency)."""
    found: Parts = request.app.state.parts
    return found


__all__: Sequence[str] = ["Parts", "assemble", "configured", "now", "parts"]
