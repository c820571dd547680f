"""``drumlin load``: a dump straight into a store directory, with a progress line and an account of what was done and rejected."""

from __future__ import annotations

import logging
import sys
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer
from rich.status import Status

from drumlin.api.bootstrap import configured, now, open_store
from drumlin.api.cli.logs import configure_logging
from drumlin.api.cli.output import STRUCTURED, Output, emit_table, emit_value, progress, rebuilding
from drumlin.exporters.kubectl.dump import STDIN, DumpSource
from drumlin.exporters.kubernetes.custom_kinds import kinds_of
from drumlin.exporters.pipeline.completeness import Completeness
from drumlin.exporters.pipeline.pipeline import Pipeline, RunSummary
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import DrumlinError
from drumlin.kg.model.iris import Iris, ObjectName
from drumlin.kg.telemetry.templates import TemplateCatalogue

PARTLY = 3
"""Exit code when some objects were rejected: the good ones are in the store."""
_MOST_NAMED = 20

Removals = Mapping[str, Sequence[str]]
"""What becomes tombstones: the names by kind, ``namespace/name`` where there is a namespace."""


def load(
    settings: Settings, paths: list[Path], place: str, output: Output, complete: Completeness, *, yes: bool
) -> int:
    """Load ``paths`` into the store at ``place`` and return the exit code; raises what opening and writing raise.

    What ``complete`` says is missing is removed when ``yes``, or when a person at the terminal says so. Otherwise ``DrumlinError`` is
    raised, and the store stays as it was.
    """
    configure_logging(logging.ERROR)  # what was rejected is listed below
    iris = Iris(settings.base)
    kinds = kinds_of(settings)
    catalogue = TemplateCatalogue.shipped(frozenset(settings.exporters))
    with rebuilding() as shown:
        store = open_store(settings, place, shown)
    removals: Removals = {}
    try:
        pipeline = Pipeline(store, kinds, settings, iris, catalogue, configured(settings, iris), clock=now)
        source = DumpSource(paths, kinds, clock=now, complete=complete)
        with progress.status("reading …") as status:

            def approve(graphs: list[str]) -> None:
                nonlocal removals
                removals = _by_kind(graphs, iris)
                _announce(removals)
                if not yes:
                    _ask(removals, status, output, asks=STDIN not in map(str, paths))

            summary = pipeline.run(source, threading.Event(), lambda done: status.update(f"{done}"), approve)
        _tell(summary, source, removals, store.generation, output, complete)
    finally:
        store.close()
    return PARTLY if summary.rejected else 0


def _by_kind(graphs: list[str], iris: Iris) -> Removals:
    found: dict[str, list[str]] = defaultdict(list)
    for graph in graphs:
        name = iris.parse(graph).name
        namespace = f"{name.namespace}/" if isinstance(name, ObjectName) and name.namespace else ""
        found[name.kind].append(f"{namespace}{name.name}")
    return dict(sorted(found.items()))


def _announce(removals: Removals) -> None:
    """Print what is to be removed: the kinds with the number and the first names of each."""
    progress.print("to be removed, as the dump lacks it or reports its end:", highlight=False, markup=False)
    for kind, names in removals.items():
        more = f", +{len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        line = f"  {kind} ({len(names)}): {', '.join(names[:_MOST_NAMED])}{more}"
        progress.print(line, highlight=False, markup=False, soft_wrap=True)


def _ask(removals: Removals, status: Status, output: Output, *, asks: bool) -> None:
    """Return when a person agrees; raise ``DrumlinError`` when they do not, or when nobody can be asked."""
    count = sum(map(len, removals.values()))
    if asks and sys.stdin.isatty():
        status.stop()
        if typer.confirm(f"Remove {count}?", err=True):
            status.start()
            return
    if output in STRUCTURED:
        emit_value({"loaded": False, "removals": removals}, output)
    raise DrumlinError(
        f"nothing was loaded: {count} would be removed", hint="say --yes to remove, or leave --complete out to keep"
    )


def _tell(
    summary: RunSummary,
    source: DumpSource,
    removals: Removals,
    generation: int,
    output: Output,
    complete: Completeness,
) -> None:
    for warning in summary.warnings:
        progress.print(f"warning: {warning}", style="yellow", highlight=False, markup=False, soft_wrap=True)
    for each in summary.left_out:
        progress.print(f"left out: {each.where}: {each.reason}", style="yellow", highlight=False, markup=False)
    for each in summary.rejected:
        progress.print(f"rejected: {each.where}: {each.reason}", style="red", highlight=False, markup=False)
    _tell_what_stays(source, complete)
    if output in STRUCTURED:
        rejected = [{"where": each.where, "reason": each.reason} for each in summary.rejected]
        emit_value(
            {
                "objects": dict(summary.objects),
                "written": summary.added + summary.updated + summary.removed,
                "added": summary.added,
                "updated": summary.updated,
                "unchanged": summary.unchanged,
                "removed": summary.removed,
                "removals": removals,
                "warnings": summary.warnings,
                "rejected": rejected,
                "leftOut": [{"where": each.where, "reason": each.reason} for each in summary.left_out],
                "skipped": dict(source.skipped),
                "generation": generation,
            },
            output,
        )
        return
    rows = [(kind, count, "") for kind, count in sorted(summary.objects.items())]
    rows += [(kind, count, "not in the table of kinds, left out") for kind, count in sorted(source.skipped.items())]
    emit_table(("kind", "objects", ""), rows)
    progress.print(str(summary), highlight=False)


def _tell_what_stays(source: DumpSource, complete: Completeness) -> None:
    """Say why ``--complete`` did not remove what somebody may have expected."""
    if complete and not source.whole:
        progress.print("what could not be read may be what is missing, so that nothing was removed", highlight=False)
    elif complete.seen:
        for where in source.empty[:_MOST_NAMED]:
            progress.print(
                f"{where} is an empty list, which names no kind: nothing was removed because of it; say --complete=KIND/NAMESPACE",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )
