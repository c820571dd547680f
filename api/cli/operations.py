"""``drumlin backup``, ``restore``, ``check``, ``optimize``, ``repair``: of a service that runs, or of a store that no process has open."""

from __future__ import annotations

import logging
import tarfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from drumlin.api.cli.options import Report, Url, connect
from drumlin.kg.errors import InvalidInput, StoreUnavailable

Offline = Annotated[
    Path | None,
    typer.Option(
        "--store", help="Directory of a store that no service has open, instead of a service.", show_default=False
    ),
]


def backup(
    folder: Annotated[Path, typer.Argument(help="New directory for the backup.")],
    url: Url = None,
    store: Offline = None,
    output: Report = "table",
) -> None:
    """Back up a store while it serves; the backup is then opened and read whole, to prove it.

    **Examples**: `drumlin backup /backups/monday` · `drumlin backup /backups/monday --store /var/lib/drumlin`
    """
    from drumlin.api.bootstrap import now
    from drumlin.kg.store.embedded import backups

    with backups.filling(folder) as made:
        if store is None:
            _fetch(url, made)
        else:
            with _opened(store) as (opened, base):
                backups.take(opened, base, made, now())
        note = backups.verify(made)
    _tell_note(note, output)


def _fetch(url: str | None, folder: Path) -> None:
    """Unpack the backup that a service streams."""
    from drumlin.kg.client import calls
    from drumlin.kg.client.download import file_of

    _quiet()
    with connect(url) as client:
        chunks = client.stream(calls.backup())
        try:
            with tarfile.open(fileobj=file_of(chunks), mode="r|") as tar:
                tar.extractall(folder, filter="data")
        except tarfile.TarError as error:
            raise StoreUnavailable(f"the backup broke off: {error}", hint="try again") from error


def restore(
    folder: Annotated[Path, typer.Argument(help="Directory of the backup.")],
    store: Annotated[Path, typer.Option(help="New directory for the store.")],
    output: Report = "table",
) -> None:
    """Make a new store directory from a backup, which is opened and read whole before it counts as restored.

    **Example**: `drumlin restore /backups/monday --store /var/lib/drumlin-new`
    """
    from drumlin.kg.store.embedded import backups

    _quiet()
    _tell_note(backups.restore(folder, store), output)


def check(url: Url = None, store: Offline = None, output: Report = "table") -> None:
    """Read a whole store and hold quads, records and change log against each other. Exit code 1 when something is wrong.

    Links to entities that have no graph are reported and are not wrong: objects refer to what is not exported, or is gone.

    **Example**: `drumlin check -o json`
    """
    import msgspec

    from drumlin.api.cli.output import Output, emit_table, emit_value
    from drumlin.kg.model.iris import Iris
    from drumlin.kg.store.embedded.consistency import check as checked

    if store is not None:
        with _opened(store) as (opened, base), opened.snapshot() as snapshot:
            found = checked(snapshot, Iris(base))
            report = {"whole": found.whole, **msgspec.to_builtins(found)}
    else:
        with connect(url) as client:
            report = client.check()
    if output != "table":
        emit_value(report, Output(output))
    else:
        rows = [(name, f"{report[name]:,}", "") for name in ("generation", "oldest", "graphs", "quads")]
        rows += [(f"graphs of {owner}", f"{count:,}", "") for owner, count in report["owners"].items()]
        rows += [(name, f"{each['count']:,}", "\n".join(each["examples"])) for name, each in report["faults"].items()]
        rows.append(("dangling links", f"{report['dangling']['count']:,}", "\n".join(report["dangling"]["examples"])))
        emit_table(("what", "count", "where"), rows)
    raise typer.Exit(0 if report["whole"] else 1)


def repair(
    store: Annotated[Path, typer.Argument(help="Directory of the store; no service may have it open.")],
    output: Report = "table",
) -> None:
    """Keep what is provably whole of a damaged store, list what is lost, and make the rest anew. Nothing is destroyed.

    A graph is whole when its text has the digest that is recorded of it. A whole change log stays as it is; of a damaged one a new log is
    made, which begins a history of its own: followers read everything anew. The engine and the search index are made from the log. What was
    replaced is in the store's subdirectory `damaged-TIME`, and can be removed once nobody misses anything. What left no trace in any file
    cannot be listed: where there is a backup of the same day, restore it instead.

    Exit code 0: nothing is lost · 3: repaired, and what is lost or in doubt is listed · 1: nothing was done, because nothing can be kept,
    the disk is full or a service has the store open.

    **Examples**: `drumlin repair /var/lib/drumlin` · `drumlin repair /var/lib/drumlin -o json | jq .lost`
    """
    import msgspec

    from drumlin.api.access.tokens import FILE, TokenFile
    from drumlin.api.bootstrap import now
    from drumlin.api.cli.output import Output, emit_value, rebuilding
    from drumlin.kg.search.schema import recorded
    from drumlin.kg.store.embedded.repairing import repair as repaired

    _quiet()
    with rebuilding() as shown:
        report = repaired(store, now, shown, lambda: recorded(store / "search.sqlite"))
    tokens, damaged = TokenFile(store / FILE).salvage()
    if damaged:
        report.damage[FILE] = f"{tokens} whole tokens are left" if tokens else "no whole token is left: make new ones"
    whole = report.whole and not damaged
    if output != "table":
        emit_value({"whole": whole, "tokens": tokens, **msgspec.to_builtins(report)}, Output(output))
    else:
        _tell_repair(report, tokens)
    raise typer.Exit(0 if whole else 3)


def _tell_repair(report: Any, tokens: int) -> None:
    from drumlin.api.cli.output import emit_table

    rows = [(f"damaged: {name}", why) for name, why in report.damage.items()]
    rows += [("graphs", f"{report.graphs:,}"), ("quads", f"{report.quads:,}"), ("archived runs", f"{report.runs:,}")]
    rows += [("tokens", f"{tokens:,}"), ("generation", f"{report.last:,}, and changes from {report.first:,} on")]
    rows += [("lost", f"{each.graph}: {each.why}") for each in report.lost]
    rows += [("in doubt", f"{graph}: {why}") for graph, why in report.unsure.items()]
    rows += [("lost changes", f"of generations {first:,} to {last:,}") for first, last in report.missing]
    if report.runs_lost:
        rows.append(("lost", "archived runs"))
    if report.aside:
        rows.append(("replaced files", report.aside))
    emit_table(("what", "found"), rows)


def optimize(url: Url = None, store: Offline = None, output: Report = "table") -> None:
    """Merge a store's files, or build them anew where they have outgrown the graphs: queries are faster, and room is given back.

    **Example**: `drumlin optimize`
    """
    from drumlin.api.cli.output import Output, emit_table, emit_value

    if store is not None:
        with _opened(store) as (opened, _):
            before = opened.stored_bytes()
            opened.optimize()
            report = {"before": before, "after": opened.stored_bytes()}
    else:
        with connect(url) as client:
            report = client.optimize()
    if output != "table":
        emit_value(report, Output(output))
    else:
        emit_table(("bytes before", "after"), [(f"{report['before']:,}", f"{report['after']:,}")])


@contextmanager
def _opened(directory: Path) -> Iterator[tuple[Any, str]]:
    """Open a store that is there, with the base that it was made under."""
    from drumlin.api.cli.output import rebuilding
    from drumlin.kg.store.embedded.opening import is_store
    from drumlin.kg.store.embedded.store import EmbeddedStore

    _quiet()
    if not is_store(directory):
        raise InvalidInput(f"{directory} holds no store", hint="name the directory given to serve or load")
    with rebuilding() as shown:
        opened = EmbeddedStore(directory, progress=shown)
    with closing(opened) as store:
        if (base := store.base) is None:
            raise InvalidInput(
                f"{directory} does not say below which base its names are", hint="serve it once with --base"
            )
        yield store, base


def _tell_note(note: Any, output: str) -> None:
    import msgspec

    from drumlin.api.cli.output import Output, emit_table, emit_value

    if output != "table":
        emit_value(msgspec.to_builtins(note), Output(output))
    else:
        emit_table(
            ("generation", "graphs", "quads", "digest"),
            [(f"{note.generation:,}", f"{note.graphs:,}", f"{note.quads:,}", note.digest)],
        )


def _quiet() -> None:
    """Let errors alone be logged: what was done is reported as the result."""
    from drumlin.api.cli.logs import configure_logging

    configure_logging(logging.ERROR)
