"""``drumlin load``: a dump straight into a store directory, with a progress line and an account of what was rejected."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from api.assembly import configured, now, open_store
from api.cli.logs import configure_logging
from api.cli.output import Output, emit_json, emit_table, progress
from exporters.dump import DumpSource
from exporters.hosting import ensure
from exporters.kubernetes.mappings import kinds_of
from exporters.pipeline import Pipeline, Summary
from kg.iris import Iris
from kg.settings import Settings
from kg.telemetry.templates import Catalogue

PARTLY = 3
"""Exit code when some objects were rejected: the good ones are in the store."""


def load(settings: Settings, paths: list[Path], place: str, output: Output) -> int:
    """Load ``paths`` into the store at ``place`` and return the exit code; raises what opening and writing raise."""
    configure_logging(logging.ERROR)  # what was rejected is told below
    iris = Iris(settings.base)
    kinds = kinds_of(settings)
    catalogue = Catalogue.shipped(frozenset(settings.exporters))
    datasources = configured(settings, iris)
    store = open_store(settings, place)
    try:
        ensure(store, settings, iris, catalogue, datasources)
        pipeline = Pipeline(store, kinds, settings, iris, catalogue, datasources, clock=now)
        source = DumpSource(paths, kinds, clock=now)
        with progress.status("reading …") as status:
            summary = pipeline.run(source, threading.Event(), lambda done: status.update(f"{done}"))
        _tell(summary, source.skipped, store.generation, output)
    finally:
        store.close()
    return PARTLY if summary.rejected else 0


def _tell(summary: Summary, skipped: dict[str, int], generation: int, output: Output) -> None:
    for each in summary.rejected:
        progress.print(f"rejected: {each.where}: {each.reason}", style="red", highlight=False, markup=False)
    if output in (Output.json, Output.jsonld):
        rejected = [{"where": each.where, "reason": each.reason} for each in summary.rejected]
        counts = {"written": summary.written, "unchanged": summary.unchanged, "gone": summary.gone}
        emit_json(
            {
                "objects": dict(summary.objects),
                **counts,
                "rejected": rejected,
                "skipped": dict(skipped),
                "generation": generation,
            }
        )
        return
    rows = [(kind, count, "") for kind, count in sorted(summary.objects.items())]
    rows += [(kind, count, "not in the table of kinds, left out") for kind, count in sorted(skipped.items())]
    emit_table(("kind", "objects", ""), rows)
    progress.print(str(summary), highlight=False)
