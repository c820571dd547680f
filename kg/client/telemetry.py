"""How a client gets series: through the service, into a file, or directly from the datasources with its own credentials."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

from kg.client import calls
from kg.client.carrying import Carrier, Carry, one_by_one
from kg.client.incoming import file_of
from kg.client.problems import error_of
from kg.client.series import Series
from kg.errors import InvalidInput, ResourceNotFound
from kg.iris import Iris
from kg.settings import Settings
from kg.telemetry import wire
from kg.telemetry.datasources import DEFAULT_SCRAPE_INTERVAL, Datasource
from kg.telemetry.durations import parse_moment
from kg.telemetry.history import History, join
from kg.telemetry.resolution import CUSTOM, Resolution, Unresolved
from kg.telemetry.series import Step, Window

Progress = Callable[[int], None]
_SUFFIXES = {".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".csv": "csv", ".ndjson": "ndjson"}
_DEFAULT_LAST = "1h"


async def history(
    carrier: Carrier,
    entities: Sequence[str] | None,
    metrics: Sequence[str],
    options: Mapping[str, Any],
    progress: Progress | None = None,
) -> Series:
    """Fetch series through the service, read as they come, or from the datasources that are configured here (``via="direct"``)."""
    options = dict(options)
    if options.pop("via", "service") == "direct":
        return await carrier.aside(lambda carry: _direct(carrier, carry, entities, metrics, progress, options))
    stream = carrier.stream(calls.history(entities, metrics, **options))
    return await carrier.aside(lambda carry: Series.from_ipc(file_of(one_by_one(carry, stream)), progress))


async def save(
    carrier: Carrier,
    path: Path,
    entities: Sequence[str] | None,
    metrics: Sequence[str],
    progress: Progress | None,
    options: Mapping[str, Any],
) -> None:
    """Write what the service streams into a file; the file is there when all of it has come, and only then."""
    form = _SUFFIXES.get(path.suffix.lower())
    if form is None:
        raise InvalidInput(f"{path.name} has no suffix of a format", hint=f"end it with {', '.join(_SUFFIXES)}")
    stream = carrier.stream(calls.history(entities, metrics, form, **options))
    await carrier.aside(lambda carry: _write(path, one_by_one(carry, stream), progress))


def _write(path: Path, chunks: Iterable[bytes], progress: Progress | None) -> None:
    unfinished = path.with_name(path.name + ".part")
    try:
        with unfinished.open("wb") as out:
            for chunk in chunks:
                out.write(chunk)
                if progress:
                    progress(out.tell())
        unfinished.replace(path)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def _direct(
    carrier: Carrier,
    carry: Carry,
    entities: Sequence[str] | None,
    metrics: Sequence[str],
    progress: Progress | None,
    options: Mapping[str, Any],
) -> Series:
    """Let the service resolve, and fetch with the datasources (by name) of this process's own configuration."""
    if not entities:
        raise InvalidInput("name the entities: via=direct does not select them")
    if options.get("kind", "actual") != "actual":
        raise InvalidInput("forecasts are read by the service: leave via=direct away")
    given: dict[str, Any] = {
        name: options.get(name) for name in ("step", "gaps", "datasource", "query") if options.get(name)
    }
    given |= {name: parse_moment(str(options[name])) for name in ("start", "end") if options.get(name)}
    last = options.get("last") or (None if "start" in given else _DEFAULT_LAST)
    names = [CUSTOM] if options.get("query") else metrics
    with History(ServiceResolver(carrier, carry)) as history:
        parts = []
        for part in history.stream(history.plan(entities, names, last=last, **given)):
            parts.append(part)
            if progress:
                progress(sum(len(each.queries) + len(each.failures) for each in parts))
    whole = join(parts)
    return Series(whole.table, wire.account(whole))


class ServiceResolver:
    """A resolver elsewhere, with the datasources of this process's own configuration."""

    def __init__(self, carrier: Carrier, carry: Carry) -> None:
        self._carrier = carrier
        self._carry = carry
        settings = Settings.load()
        iris = Iris(settings.base)
        found = [Datasource.from_settings(each, iris, None) for each in settings.datasource]
        self._datasources = {each.name: each for each in found}

    @property
    def longest_scrape_interval(self) -> timedelta:
        """The longest scrape interval of the datasources here."""
        found = [each.scrape_interval for each in self._datasources.values() if each.kind == "prometheus"]
        return max(found, default=DEFAULT_SCRAPE_INTERVAL)

    def short(self, iri: str) -> str:
        """Return the short id of an IRI."""
        return iri.partition("/id/")[2]

    def datasource(self, resolution: Resolution) -> Datasource:
        """Return the datasource of that name here, with its access; raises ``ResourceNotFound``."""
        if resolution.datasource not in self._datasources:
            raise ResourceNotFound(
                f"datasource {resolution.datasource} does not stand in the drumlin.toml here",
                hint=f"add [[datasource]] with this name, or fetch via the service; there are {', '.join(self._datasources) or 'none'}",
            )
        return self._datasources[resolution.datasource]

    def resolve_many(
        self,
        pairs: Iterable[tuple[str, str]],
        window: Window,
        *,
        datasource: str | None,
        step: Step,
        query: str | None,
    ) -> Iterator[Resolution | Unresolved]:
        """Resolve pairs (each entity with the same metrics) in order."""
        wanted = list(pairs)
        entities, metrics = (list(dict.fromkeys(pair[which] for pair in wanted)) for which in (0, 1))
        span = {name: at.astimezone(UTC).isoformat() for name, at in (("start", window.start), ("end", window.end))}
        seconds = f"{int(step.total_seconds())}s" if isinstance(step, timedelta) else step
        options = {**span, "step": seconds, "datasource": datasource, "query": query}
        asked = calls.resolve_many(entities, [] if query else metrics, **options)
        for said in self._carry(self._carrier.run(asked)):
            if "problem" in said:
                yield Unresolved(said["entity"], said["metric"], error_of(said["problem"]))
            else:
                yield Resolution.from_dict(said)
