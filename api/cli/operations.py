"""``drumlin backup``, ``restore``, ``check``, ``optimize``: of a service that runs, or of a store directory that no process has open."""

from __future__ import annotations

import logging
import tarfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.options import Url, one_of
from kg.errors import InvalidInput, StoreUnavailable

Offline = Annotated[
    Path | None,
    typer.Option(
        "--store", help="Directory of a store that no service has open, instead of a service.", show_default=False
    ),
]
Form = Annotated[str, typer.Option("--output", "-o", help="table or json.")]


def backup(
    folder: Annotated[Path, typer.Argument(help="New directory for the backup.")],
    url: Url = None,
    store: Offline = None,
    output: Form = "table",
) -> None:
    """Back up a store while it serves; the backup is then opened and read whole, to prove it.

    **Examples**: `drumlin backup /backups/monday` · `drumlin backup /backups/monday --store /var/lib/drumlin`
    """
    from api.assembly import now
    from kg.store import backups

    _form(output)
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
    import kg
    from kg.client import calls
    from kg.client.incoming import file_of

    _quiet()
    with kg.connect(url) as client:
        chunks = client.stream(calls.backup())
        try:
            with tarfile.open(fileobj=file_of(chunks), mode="r|") as tar:
                tar.extractall(folder, filter="data")
        except tarfile.TarError as error:
            raise StoreUnavailable(f"the backup broke off: {error}", hint="try again") from error


def restore(
    folder: Annotated[Path, typer.Argument(help="Directory of the backup.")],
    store: Annotated[Path, typer.Option(help="New directory for the store.")],
    output: Form = "table",
) -> None:
    """Make a new store directory from a backup, which is opened and read whole before it counts as restored.

    **Example**: `drumlin restore /backups/monday --store /var/lib/drumlin-new`
    """
    from kg.store import backups

    _form(output)
    _quiet()
    _tell_note(backups.restore(folder, store), output)


def check(url: Url = None, store: Offline = None, output: Form = "table") -> None:
    """Read a whole store and hold quads, records and change log against each other. Exit code 1 when something is wrong.

    Links to entities that have no graph are told and are not wrong: objects refer to what is not exported, or is gone.

    **Example**: `drumlin check -o json`
    """
    import msgspec

    import kg
    from api.cli.output import emit_json, emit_table
    from kg.checking import check as checked
    from kg.iris import Iris

    _form(output)
    if store is not None:
        with _opened(store) as (opened, base), opened.snapshot() as snapshot:
            found = checked(snapshot, Iris(base))
            report = {"whole": found.whole, **msgspec.to_builtins(found)}
    else:
        with kg.connect(url) as client:
            report = client.check()
    if output == "json":
        emit_json(report)
    else:
        rows = [(name, f"{report[name]:,}", "") for name in ("generation", "oldest", "graphs", "quads")]
        rows += [(f"graphs of {owner}", f"{count:,}", "") for owner, count in report["owners"].items()]
        rows += [(name, f"{each['count']:,}", "\n".join(each["examples"])) for name, each in report["faults"].items()]
        rows.append(("dangling links", f"{report['dangling']['count']:,}", "\n".join(report["dangling"]["examples"])))
        emit_table(("what", "count", "where"), rows)
    raise typer.Exit(0 if report["whole"] else 1)


def optimize(url: Url = None, store: Offline = None, output: Form = "table") -> None:
    """Merge a store's files: queries are faster after many writes, and room is given back.

    **Example**: `drumlin optimize`
    """
    import kg
    from api.cli.output import emit_json, emit_table

    _form(output)
    if store is not None:
        with _opened(store) as (opened, _):
            before = opened.stored_bytes()
            opened.optimize()
            report = {"before": before, "after": opened.stored_bytes()}
    else:
        with kg.connect(url) as client:
            report = client.optimize()
    if output == "json":
        emit_json(report)
    else:
        emit_table(("bytes before", "after"), [(f"{report['before']:,}", f"{report['after']:,}")])


def _form(output: str) -> None:
    one_of(output, ("table", "json"), "--output")


@contextmanager
def _opened(directory: Path) -> Iterator[tuple[Any, str]]:
    """Open a store that is there, with the base that it was made under."""
    from kg.store.embedded import EmbeddedStore

    _quiet()
    try:
        base = (directory / "base").read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InvalidInput(f"{directory} holds no store", hint="name the directory given to serve or load") from error
    with closing(EmbeddedStore(directory)) as store:
        yield store, base


def _tell_note(note: Any, output: str) -> None:
    import msgspec

    from api.cli.output import emit_json, emit_table

    if output == "json":
        emit_json(msgspec.to_builtins(note))
    else:
        emit_table(
            ("generation", "graphs", "quads", "digest"),
            [(f"{note.generation:,}", f"{note.graphs:,}", f"{note.quads:,}", note.digest)],
        )


def _quiet() -> None:
    """Let errors alone be logged: what was done is told as the result."""
    from api.cli.logs import configure_logging

    configure_logging(logging.ERROR)
