"""Composition: the parts of one service, built from the settings. Routes get them by injection and build nothing themselves."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict
from urllib.parse import quote

import structlog
from fastapi import Request

from drumlin.api.access import audit_log, tokens
from drumlin.api.access.audit_log import AccessLog
from drumlin.api.access.tokens import TokenFile
from drumlin.api.exporting import Candidate, Exporting
from drumlin.api.http.bulkheads import Bulkheads
from drumlin.api.statistics import Counting
from drumlin.exporters.agents.heartbeats import Heartbeats
from drumlin.exporters.agents.registry import AgentRegistry, AgentWatch
from drumlin.exporters.backfill import Backfill
from drumlin.exporters.kubectl.files import Files
from drumlin.exporters.kubernetes.custom_kinds import kinds_of
from drumlin.exporters.observed_calls import ObservedCalls
from drumlin.exporters.own_metrics import OwnMetrics
from drumlin.exporters.peers.follower import PeerFollower
from drumlin.exporters.peers.position import PositionFile
from drumlin.exporters.pipeline.hosting_domain import ensure
from drumlin.exporters.pipeline.pipeline import Pipeline
from drumlin.exporters.protocol import Source
from drumlin.exporters.retention import Retention
from drumlin.exporters.snapshot_expiry import SnapshotExpiry
from drumlin.kg.client import Client
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import InvalidSettings, StoreUnavailable
from drumlin.kg.events.feed import ChangeFeed
from drumlin.kg.graphs.bulk import ValidationPool
from drumlin.kg.graphs.entities import EntityGraphs
from drumlin.kg.graphs.foreign import ForeignDocuments
from drumlin.kg.graphs.legacy import KEPT as SNAPSHOT_KEPT
from drumlin.kg.graphs.legacy import LegacyGraphs
from drumlin.kg.graphs.legacy_snapshot import Measured, snapshot
from drumlin.kg.graphs.named import NamedGraphs
from drumlin.kg.graphs.updates import Updates
from drumlin.kg.model.iris import Iris
from drumlin.kg.observed_time import ObservedTime
from drumlin.kg.parsers import Parsers
from drumlin.kg.search.index import Index
from drumlin.kg.search.query import Search
from drumlin.kg.store.embedded.rebuilding import Progress
from drumlin.kg.store.embedded.retention import Kept
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import Store
from drumlin.kg.store.query_workers.client import QueryExecutor
from drumlin.kg.store.query_workers.supervisor import Readers
from drumlin.kg.telemetry.alerts import Alerts
from drumlin.kg.telemetry.cache import DayCache
from drumlin.kg.telemetry.calls import MESHES, CallReader
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.freshness import Staleness
from drumlin.kg.telemetry.guarding import OwnerLabels
from drumlin.kg.telemetry.history import History
from drumlin.kg.telemetry.intervals import Intervals
from drumlin.kg.telemetry.resolve import Resolver
from drumlin.kg.telemetry.scraped import Discovery
from drumlin.kg.telemetry.templates import TemplateCatalogue
from drumlin.kg.telemetry.values import Values
from drumlin.kg.visibility.visible_store import Visibility, VisibleStore
from drumlin.kg.workers.pool import WorkerPool

if TYPE_CHECKING:
    from drumlin.kg.store.remote.store import RemoteStore

log = structlog.get_logger()

Place = Path | str | None
"""Where a store is: a directory, ``sparql+http(s)://…``, or a temporary directory."""


def now() -> datetime:
    """Return the time in UTC, to the second: what the graph keeps."""
    return datetime.now(UTC).replace(microsecond=0)


@dataclass(frozen=True)
class Services:
    """Everything a route needs. ``exporting`` is empty when this process exports nothing."""

    settings: Settings
    iris: Iris
    store: Store
    subgraphs: EntityGraphs
    graphs: NamedGraphs
    updates: Updates
    catalogue: TemplateCatalogue
    resolver: Resolver
    history: History
    owners: OwnerLabels
    values: Values = field(kw_only=True)
    alerts: Alerts = field(kw_only=True)
    search: Search = field(kw_only=True)
    feed: ChangeFeed = field(kw_only=True)
    workers: WorkerPool = field(kw_only=True)
    parsers: Parsers = field(kw_only=True)
    documents: ForeignDocuments = field(kw_only=True)
    validation: ValidationPool = field(kw_only=True)
    counting: Counting = field(kw_only=True)
    agents: AgentRegistry = field(kw_only=True)
    agent_watch: AgentWatch = field(kw_only=True)
    visibility: Visibility = field(kw_only=True)
    ending: threading.Event = field(kw_only=True, default_factory=threading.Event)  # set once it is to end
    bulkheads: Bulkheads = field(kw_only=True, default_factory=Bulkheads)
    exporting: tuple[Exporting, ...] = field(default=())
    asking: QueryExecutor | None = field(default=None)
    retention: Retention | None = field(default=None)
    own_metrics: OwnMetrics | None = field(default=None)
    observed_calls: ObservedCalls | None = field(default=None)
    legacy: LegacyGraphs | None = field(default=None)
    legacy_store: EmbeddedStore | None = field(default=None)
    snapshot_expiry: SnapshotExpiry | None = field(default=None)
    backfills: tuple[Backfill, ...] = field(default=())
    peers: tuple[PeerFollower, ...] = field(default=())
    files: Files | None = field(default=None)
    audit: AccessLog | None = field(default=None)

    def close(self) -> None:
        """Stop exporting, then release what is open."""
        if self.files:
            self.files.stop(timeout=None)  # not in the middle of a file
        self.feed.stop()
        self.agent_watch.stop()
        for job in (*self.backfills, *self.peers):
            job.stop()
        for each in self.exporting:
            each.stop()
        if self.retention:
            self.retention.stop()
        for other in (self.own_metrics, self.observed_calls, self.snapshot_expiry):
            if other:
                other.stop()
        if self.legacy_store:
            self.legacy_store.close()
        self.bulkheads.close()
        self.workers.close()
        self.search.index.close()
        self.history.close()
        self.owners.close()
        if self.audit:
            self.audit.close()
        self.visibility.close()
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


def open_store(settings: Settings, place: Place, progress: Progress | None = None) -> EmbeddedStore | RemoteStore:
    """Open the store; raises ``InvalidSettings`` when it was made under another base, since names never change.

    ``progress`` reports when the engine of a store on this machine has to be built anew; without it, the log does.
    """
    store: EmbeddedStore | RemoteStore
    if isinstance(place, str) and place.startswith("sparql+"):
        from drumlin.kg.store.remote.store import RemoteStore

        store = RemoteStore(place, settings.store, query_timeout=settings.query_timeout)
    else:
        kept = Kept(timedelta(days=settings.log_retention), settings.log_bytes)
        store = EmbeddedStore(None if place is None else Path(place), kept=kept, progress=progress)
    try:
        _hold_to_base(store, settings.base)
    except BaseException:
        store.close()
        raise
    return store


def token_file(settings: Settings, store: Store) -> TokenFile | None:
    """Return the file of the tokens of a service: the setting's, else the one in the directory of its store."""
    if settings.tokens is not None:
        return TokenFile(settings.tokens)
    return TokenFile(store.directory / tokens.FILE) if isinstance(store, EmbeddedStore) else None


def access_log(settings: Settings, store: Store) -> AccessLog | None:
    """Open the audit log of a service; None where there is none. Raises ``InvalidSettings``."""
    path = settings.audit_log
    if path is None and isinstance(store, EmbeddedStore):
        path = store.directory / audit_log.FILE
    if path is None or not settings.audit_files:
        return None
    return AccessLog(path, size=settings.audit_bytes, count=settings.audit_files, needed=is_writable(store))


def assemble(settings: Settings, *, directory: Place, source: Source | Mapping[str, Source] | None = None) -> Services:
    """Open the store, ensure the hosting graphs and start exporting from ``source``, or from several by the names of clusters."""
    iris = Iris(settings.base, (each.base for each in settings.peer if each.base))
    store = open_store(settings, directory)
    catalogue = TemplateCatalogue.shipped(frozenset(settings.exporters))
    datasources = configured(settings, iris)
    archive = store.archive if isinstance(store, EmbeddedStore) else None
    owners = OwnerLabels()
    followed: dict[str, Exporting] = {}  # by cluster; filled below
    resolver = Resolver(
        store,
        iris,
        datasources,
        catalogue,
        Intervals(),
        owners=owners,
        archive=archive,
        freshness=partial(_staleness, followed),
    )
    _ensure(store, settings, iris, catalogue, datasources)
    history = History(resolver, days=_days(settings, store))
    workers = WorkerPool()
    parsers = Parsers(workers)
    exporting = tuple(_exporting(settings, store, catalogue, datasources, source))
    followed.update((each.cluster, each) for each in exporting)
    of_store = _parts_of(store, settings, iris, catalogue, datasources, resolver, history, workers, parsers)
    legacy, snapshots, expiry = _legacy(settings, store, iris, workers, of_store["values"])
    parts = Services(
        settings=settings,
        iris=iris,
        store=store,
        catalogue=catalogue,
        resolver=resolver,
        history=history,
        owners=owners,
        exporting=exporting,
        asking=_asking(settings, store) if isinstance(store, EmbeddedStore) else None,
        retention=_retention(settings, store),
        own_metrics=_own_metrics(settings, store, datasources),
        observed_calls=_observed_calls(settings, store, datasources, catalogue, exporting),
        workers=workers,
        parsers=parsers,
        alerts=Alerts(store, iris, datasources),
        validation=ValidationPool(workers, iris, max_bytes=settings.document_bytes),
        agent_watch=AgentWatch(of_store["agents"], partial(_leads, exporting)),
        backfills=tuple(_backfills(settings, store, datasources, exporting)),
        peers=tuple(_peers(settings, store, iris, parsers)),
        audit=access_log(settings, store),
        visibility=_visibility(settings, store, iris),
        legacy=legacy,
        legacy_store=snapshots,
        snapshot_expiry=expiry,
        **of_store,
    )
    parts.feed.start()
    if is_writable(store):
        _start_jobs(parts)
    return parts


def limited(parts: Services, store: VisibleStore) -> Services:
    """Return the parts of a service for callers who see what is in ``store``: what needs no store of its own is shared.

    The feed is not started: its index takes as long as the engine, which a first query waits for.
    """
    settings, iris, catalogue = parts.settings, parts.iris, parts.catalogue
    held = (each for each in configured(settings, iris) if not store.domains.isdisjoint(each.domains))
    datasources = tuple(replace(each, shared=True) for each in held)
    resolver = Resolver(
        store,
        iris,
        datasources,
        catalogue,
        Intervals(),
        owners=parts.owners,
        archive=parts.store.archive if isinstance(parts.store, EmbeddedStore) else None,
        freshness=partial(_staleness, {each.cluster: each for each in parts.exporting}),
        domains=store.seen.domains,
    )
    history = History(resolver, days=parts.history.days)
    beats, workers, parsers = parts.agents.heartbeats, parts.workers, parts.parsers
    return replace(
        parts,
        store=store,
        resolver=resolver,
        history=history,
        alerts=Alerts(store, iris, datasources, matched_only=True),
        asking=_asking(settings, store),
        retention=None,
        own_metrics=None,
        observed_calls=None,
        legacy=None,
        legacy_store=None,
        snapshot_expiry=None,
        backfills=(),
        files=None,
        **_parts_of(store, settings, iris, catalogue, datasources, resolver, history, workers, parsers, beats),
    )


class _PartsOfStore(TypedDict):
    subgraphs: EntityGraphs
    graphs: NamedGraphs
    updates: Updates
    values: Values
    search: Search
    feed: ChangeFeed
    documents: ForeignDocuments
    counting: Counting
    agents: AgentRegistry


def _parts_of(
    store: EmbeddedStore | RemoteStore,
    settings: Settings,
    iris: Iris,
    catalogue: TemplateCatalogue,
    datasources: Sequence[Datasource],
    resolver: Resolver,
    history: History,
    workers: WorkerPool,
    parsers: Parsers,
    beats: Heartbeats | None = None,
) -> _PartsOfStore:
    """Build what reads and writes one store alike, be it the service's own or what some domains see of it."""
    limit = settings.document_bytes
    shipped = {document["id"]: document for document in catalogue.documents(iris)}
    subgraphs = EntityGraphs(store, iris, clock=now, max_bytes=limit, shipped=shipped, parsers=parsers)
    graphs = NamedGraphs(store, iris, subgraphs, max_bytes=limit, parsers=parsers)
    beats = beats or Heartbeats(time.monotonic)
    index = _index(store, iris)
    feed = ChangeFeed(store, iris, index)
    _connect(store, index, feed)
    return {
        "subgraphs": subgraphs,
        "graphs": graphs,
        "updates": Updates(store, graphs, settings.base, workers, seconds=settings.query_timeout),
        "values": Values(resolver, history.clients, clock=now),
        "search": Search(index),
        "feed": feed,
        "documents": ForeignDocuments(store, iris, parsers, workers, max_bytes=limit),
        "counting": Counting(store, iris.root),
        "agents": AgentRegistry(store, settings, iris, catalogue, datasources, clock=now, heartbeats=beats),
    }


def close_limited(parts: Services) -> None:
    """Release what ``limited`` made."""
    parts.feed.stop()
    parts.search.index.close()
    parts.history.clients.close()
    parts.store.close()


def _visibility(settings: Settings, store: EmbeddedStore | RemoteStore, iris: Iris) -> Visibility:
    """Keep what callers see that are limited to domains: beside the store when that is here."""
    folder = store.files / "views" if isinstance(store, EmbeddedStore) else None
    kept = Kept(timedelta(days=settings.log_retention), settings.log_bytes)
    return Visibility(store, folder, iris, lambda: datetime.now(UTC), kept)


def _leads(exporting: Sequence[Exporting]) -> bool:
    """Return whether this process is the elected one, or there is no election."""
    election = next((each.election for each in exporting if each.election is not None), None)
    return election is None or election.leads


def _staleness(followed: Mapping[str, Exporting], cluster: str) -> Staleness | None:
    """Return since when changes of a cluster may have gone unseen; None for one that is not followed here."""
    return followed[cluster].staleness if cluster in followed else None


def _retention(settings: Settings, store: EmbeddedStore | RemoteStore) -> Retention:
    if isinstance(store, EmbeddedStore):
        return Retention(store, settings.retention, store.observed, store.archive)
    return Retention(store, settings.retention, ObservedTime(None, now), None)


def _backfills(
    settings: Settings,
    store: EmbeddedStore | RemoteStore,
    datasources: tuple[Datasource, ...],
    exporting: Sequence[Exporting],
) -> Iterator[Backfill]:
    """Yield what reads the past of each cluster; a store elsewhere has no place to note how far that has come."""
    if not isinstance(store, EmbeddedStore):
        return
    iris = Iris(settings.base)
    for each in exporting:
        yield Backfill(each, store, store.archive, settings.of_cluster(each.cluster), iris, datasources, now)


def _peers(
    settings: Settings, store: EmbeddedStore | RemoteStore, iris: Iris, parsers: Parsers
) -> Iterator[PeerFollower]:
    """Yield what follows each peer; how far that has come is kept beside the store, when that is here."""
    for each in settings.peer:
        path = store.files / "peers" / f"{each.name}.json" if isinstance(store, EmbeddedStore) else None
        client = Client(str(each.url), token_file=each.token, timeout=30.0, retries=0)
        clusters = settings.clusters.keys() | {settings.cluster}
        position, limit = PositionFile(path), settings.document_bytes
        yield PeerFollower(each, client, store, iris, clusters, position, parsers, max_bytes=limit)


def _start_jobs(parts: Services) -> None:
    """Begin what writes by itself: exporters, backfills, peers, retention, the search for pods' own metrics and for calls."""
    for each in (*parts.exporting, *parts.backfills, *parts.peers):
        each.start()
    parts.agents.recall()
    parts.agent_watch.start()
    if parts.retention:
        parts.retention.start()
    for job in (parts.own_metrics, parts.observed_calls, parts.snapshot_expiry):
        if job:
            job.start()


def is_writable(store: Store) -> bool:
    """Return whether the store takes writes: one that was opened while its disk was full does not."""
    return not isinstance(store, EmbeddedStore) or store.unwritable is None


def _ensure(
    store: EmbeddedStore | RemoteStore,
    settings: Settings,
    iris: Iris,
    catalogue: TemplateCatalogue,
    datasources: Sequence[Datasource],
    *,
    home: bool = True,
) -> None:
    """Write the hosting graphs; in a store that takes no writes they stay as they are."""
    try:
        ensure(store, settings, iris, catalogue, datasources, home=home)
    except StoreUnavailable as error:
        if is_writable(store):
            raise
        log.warning("hosting_not_written", reason=str(error))


def renew_hosting(parts: Services) -> None:
    """Write the hosting graphs anew after a follower has changed the datasources that they are described by."""
    ensure(parts.store, parts.settings, parts.iris, parts.catalogue, configured(parts.settings, parts.iris))


def _exporting(
    settings: Settings,
    store: EmbeddedStore | RemoteStore,
    catalogue: TemplateCatalogue,
    datasources: tuple[Datasource, ...],
    source: Source | Mapping[str, Source] | None,
) -> Iterator[Exporting]:
    """Yield an exporter for each cluster; the hosting graphs of those beside the settings' own are ensured."""
    iris = Iris(settings.base)
    clusters = source if isinstance(source, Mapping) else {settings.cluster: source} if source else {}
    for name, each in clusters.items():
        own, home = settings.of_cluster(name), name == settings.cluster
        if not home:
            _ensure(store, own, iris, catalogue, datasources, home=False)
        candidate = Candidate.of(own, each, store, iris, (each.name,))
        if candidate and isinstance(store, EmbeddedStore):
            raise InvalidSettings(
                "an election is for several processes before one store, and a directory has one process",
                hint="leave election.lease out, name an engine (--store sparql+http://…), or elect followers (drumlin follow)",
            )
        pipeline = Pipeline(
            candidate.sink if candidate else store,
            kinds_of(own),
            own,
            iris,
            catalogue,
            datasources,
            clock=now,
            home=home,
            renderings=_renderings(store, each),
        )
        yield Exporting(pipeline, each, candidate)


def _renderings(store: EmbeddedStore | RemoteStore, source: Source) -> Path | None:
    """Return the file that notes what the graphs of a source were rendered from: beside a store that is here and takes writes."""
    if not isinstance(store, EmbeddedStore) or store.unwritable:
        return None
    return store.files / f"rendered-{quote(source.name, safe='')}"


def _own_metrics(
    settings: Settings, store: EmbeddedStore | RemoteStore, datasources: Sequence[Datasource]
) -> OwnMetrics | None:
    """Look for the metrics that workloads expose themselves, where a Prometheus can be asked for them."""
    if not settings.own_metrics or not any(each.kind == "prometheus" and each.access for each in datasources):
        return None
    iris = Iris(settings.base)
    return OwnMetrics(store, iris, Discovery(store, iris, datasources, settings.own_metrics), now)


def _observed_calls(
    settings: Settings,
    store: EmbeddedStore | RemoteStore,
    datasources: Sequence[Datasource],
    catalogue: TemplateCatalogue,
    exporting: Sequence[Exporting],
) -> ObservedCalls | None:
    """Read calls where an exporter counts them and a Prometheus can be asked for them."""
    counting = not MESHES.keys().isdisjoint(settings.exporters) or "kuscia" in settings.exporters
    if not counting or not any(each.kind == "prometheus" and each.access for each in datasources):
        return None
    iris = Iris(settings.base)
    reader = CallReader(store, iris, datasources, settings.exporters)
    return ObservedCalls(store, iris, reader, catalogue, now, lambda: all(each.is_written for each in exporting))


def _measured(values: Values, iris: Iris, entities: Sequence[str], metrics: Sequence[str]) -> Iterator[Measured]:
    """Yield the current values of metrics; of what cannot be had, none."""
    for each in values.fetch(entities, metrics).values:
        yield Measured(iris.expand(each.key.unique_id), each.key.metric, each.value, each.time.timestamp())


def _legacy(
    settings: Settings, store: EmbeddedStore | RemoteStore, iris: Iris, workers: WorkerPool, values: Values
) -> tuple[LegacyGraphs | None, EmbeddedStore | None, SnapshotExpiry | None]:
    """Open the store of the public peer's snapshots, beside the service's own; nothing of it is a part of the graph."""
    if not settings.legacy.enabled:
        return None, None, None
    if not isinstance(store, EmbeddedStore) or store.unwritable:
        raise InvalidSettings("[legacy] needs an embedded store that takes writes", hint="say --store DIRECTORY")
    snapshots = EmbeddedStore(store.files / "legacy", kept=Kept(SNAPSHOT_KEPT, settings.log_bytes))
    _asking(settings, snapshots)
    parsers = Parsers(workers)
    limits = {"max_bytes": settings.document_bytes}
    entities = EntityGraphs(snapshots, iris, clock=now, shipped={}, parsers=parsers, **limits)
    graphs = NamedGraphs(snapshots, iris, entities, parsers=parsers, **limits)
    updates = Updates(snapshots, graphs, settings.base, workers, seconds=settings.query_timeout)
    legacy = LegacyGraphs(
        snapshots,
        graphs,
        updates,
        parsers,
        lambda: datetime.now(UTC),
        lambda at: snapshot(store.look_up, partial(_measured, values, iris), iris, at),
        base=settings.base,
        query_bytes=settings.query_bytes,
        **limits,
    )
    return legacy, snapshots, SnapshotExpiry(legacy)


def _asking(settings: Settings, store: EmbeddedStore) -> QueryExecutor:
    """Have callers' queries run by reader processes; the store ends them when it is closed."""
    readers = Readers(store, store.files / "readers", count=settings.readers, memory=settings.query_memory)
    asking = QueryExecutor(readers, timeout=settings.query_timeout, slow=settings.slow_query)
    store.answer_through(asking)
    return asking


def _days(settings: Settings, store: EmbeddedStore | RemoteStore) -> DayCache | None:
    """Return where finished days of series are kept: beside the store, when that is on this machine."""
    limit = settings.series_cache_bytes
    return DayCache(store.files / "series.db", limit) if limit and isinstance(store, EmbeddedStore) else None


def _index(store: EmbeddedStore | RemoteStore, iris: Iris) -> Index:
    """Open the search index: beside the store when that is here."""
    return Index(store, iris, store.files / "search.sqlite" if isinstance(store, EmbeddedStore) else None)


def _connect(store: Store, index: Index, feed: ChangeFeed) -> None:
    """Have a store wake its feed; one elsewhere is looked at from time to time."""
    if isinstance(store, EmbeddedStore):
        store.follow_deltas(lambda _: feed.wake())
        store.keep_log_after(lambda: feed.taken_in)
        index.lines_of = feed.lines_of = store.recent_lines


async def parts(request: Request) -> Services:
    """Return the parts of the service that answers ``request``, those for what its caller sees (FastAPI dependency)."""
    found: Services = request.scope["view"].parts
    return found


__all__: Sequence[str] = ["Services", "assemble", "configured", "limited", "now", "parts"]
