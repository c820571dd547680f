"""How a client gets series: through the service, into a file, or directly from the datasources with its own credentials."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

from drumlin.kg.client import calls
from drumlin.kg.client.download import file_of
from drumlin.kg.client.problems import error_of
from drumlin.kg.client.series import Series
from drumlin.kg.client.transport import CarryMode, ClientTransport, one_by_one
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import InvalidInput, ResourceNotFound
from drumlin.kg.model.iris import Iris
from drumlin.kg.telemetry import Choice, formats, wire
from drumlin.kg.telemetry.datasources import DEFAULT_SCRAPE_INTERVAL, Datasource
from drumlin.kg.telemetry.durations import parse_moment
from drumlin.kg.telemetry.history import History, join
from drumlin.kg.telemetry.resolution import CUSTOM, Resolution, Unresolved
from drumlin.kg.telemetry.series import Step, Window, least_step
from drumlin.kg.telemetry.templates import TemplateCatalogue, shipped_templates

Progress = Callable[[int], None]
_SUFFIXES = {".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".csv": "csv", ".ndjson": "ndjson"}
_DEFAULT_LAST = "1h"
_WITH_STATUS = frozenset({"csv", "ndjson"})  # which say what is missing only when they are asked


async def history(
    carrier: ClientTransport,
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
    carrier: ClientTransport,
    path: Path,
    entities: Sequence[str] | None,
    metrics: Sequence[str],
    progress: Progress | None,
    options: Mapping[str, Any],
) -> list[dict[str, str]]:
    """Write what the service streams into a file; the file is there when all of it has come, and only then.

    Returns the series that are not in it: ``unique_id``, ``metric``, ``error``, ``detail``.
    """
    form = _SUFFIXES.get(path.suffix.lower())
    if form is None:
        raise InvalidInput(f"{path.name} has no suffix of a format", hint=f"end it with {', '.join(_SUFFIXES)}")
    status = True if form in _WITH_STATUS else None
    stream = carrier.stream(calls.history(entities, metrics, form, **options, status=status))
    return await carrier.aside(lambda carry: _write(path, one_by_one(carry, stream), progress, form))


def _write(path: Path, chunks: Iterable[bytes], progress: Progress | None, form: str) -> list[dict[str, str]]:
    unfinished = path.with_name(path.name + ".part")
    try:
        with unfinished.open("wb") as out:
            for chunk in chunks:
                out.write(chunk)
                if progress:
                    progress(out.tell())
        failures = _failures(unfinished, form)
        unfinished.replace(path)
        return failures
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def _failures(path: Path, form: str) -> list[dict[str, str]]:
    """Return what a file says is missing; a CSV or NDJSON file keeps nothing but rows."""
    if form in _WITH_STATUS:
        return formats.split_status(path)
    accounts = wire.accounts_of(path) if form == "arrow" else [formats.account_of(path)]
    return [each for account in accounts for each in account["failures"]]


def _direct(
    carrier: ClientTransport,
    carry: CarryMode,
    entities: Sequence[str] | None,
    metrics: Sequence[str],
    progress: Progress | None,
    options: Mapping[str, Any],
) -> Series:
    """Let the service resolve, and fetch with the datasources (by name) of this process's own configuration."""
    if not entities:
        raise InvalidInput("name the entities: via=direct does not select them")
    if options.get("group_by"):
        raise InvalidInput("groups are formed by the service: leave via=direct away")
    if options.get("kind", "actual") != "actual":
        raise InvalidInput("forecasts are read by the service: leave via=direct away")
    given: dict[str, Any] = {
        name: options.get(name)
        for name in ("step", "gaps", "datasource", "query", "unit", "selector")
        if options.get(name)
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

    def __init__(self, carrier: ClientTransport, carry: CarryMode) -> None:
        self._carrier = carrier
        self._carry = carry
        settings = Settings.load()
        iris = Iris(settings.base)
        found = [Datasource.from_settings(each, iris, None) for each in settings.datasource]
        self._datasources = {each.name: each for each in found}

    def least_step(self, metrics: Iterable[str]) -> timedelta:
        """Return the shortest automatic step for series of these metrics, of the datasources here."""
        found = [each.scrape_interval for each in self._datasources.values() if each.kind == "prometheus"]
        counts = TemplateCatalogue(shipped_templates()).counts(metrics)
        return least_step(max(found, default=DEFAULT_SCRAPE_INTERVAL), counts=counts)

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
        unit: Sequence[str],
        among: frozenset[str] | None = None,
        selector: Choice = "auto",
    ) -> Iterator[Resolution | Unresolved]:
        """Resolve pairs (each entity with the same metrics) in order; ``among`` is for groups, which the service forms."""
        del among
        wanted = list(pairs)
        entities, metrics = (list(dict.fromkeys(pair[which] for pair in wanted)) for which in (0, 1))
        span = {name: at.astimezone(UTC).isoformat() for name, at in (("start", window.start), ("end", window.end))}
        seconds = f"{int(step.total_seconds())}s" if isinstance(step, timedelta) else step
        options = {**span, "step": seconds, "datasource": datasource, "query": query, "unit": list(unit) or None}
        options["selector"] = selector
        asked = calls.resolve_many(entities, [] if query else metrics, **options)
        for said in self._carry(self._carrier.run(asked)):
            if "problem" in said:
                yield Unresolved(said["entity"], said["metric"], error_of(said["problem"]))
            else:
                yield Resolution.from_dict(said)
