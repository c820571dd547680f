"""``drumlin``: the command line. Every command teaches with ``--help``; heavy imports wait until a command needs them.

Exit codes: 0 done · 1 failed · 2 wrong usage · 3 done, but some objects were rejected · 4 not found · 5 no answer from a server.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Literal

import typer

from drumlin.api.cli import (
    agent_cli,
    environment,
    following,
    operations,
    query_cli,
    search_cli,
    store_cli,
    telemetry_cli,
    token_cli,
    updates,
)
from drumlin.api.cli.options import Command, with_service
from drumlin.api.cli.streams import ready_streams, visible
from drumlin.kg.errors import DrumlinError, ResourceNotFound, ShapeViolation, SourceUnavailable, StoreFull, WrongUsage

app = typer.Typer(
    name="drumlin",
    help="The semantic map of Kubernetes clusters and their telemetry: watch, store, query with SPARQL, resolve to PromQL and series.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command line; an error is one line on stderr and an exit code."""
    ready_streams()
    sys.argv = [_as_typed(each) for each in sys.argv]
    try:
        _run()
    except BrokenPipeError:  # `drumlin dump | head` ends quietly, but no SIGPIPE: a reader's end would be the service's
        _give_up_output()
        sys.exit(1)
    except OSError as error:
        from drumlin.kg.store.embedded.wal import is_full

        if not is_full(error):
            raise
        _give_up_output()
        _tell(
            StoreFull(
                f"the result cannot be written whole: {error.strerror}",
                hint="make room on its disk; what is there is a part",
            )
        )
        sys.exit(1)


def _as_typed(argument: str) -> str:
    """Read an argument as UTF-8, whatever the locale; one that is not stays as it is, and is refused where it matters."""
    try:
        return os.fsencode(argument).decode("utf-8")
    except UnicodeError:
        return argument


def _give_up_output() -> None:
    """Lead what is still to be written nowhere: it would fail again at the end of the process."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())


def _run() -> None:
    try:
        ended = app(prog_name="drumlin", standalone_mode=False)
    except DrumlinError as error:
        _tell(error)
        sys.exit(_exit_code(error))
    except typer.TyperException as error:
        if error.format_message():  # else it is the help, which has been printed
            _tell(_wrong_usage(error))
        sys.exit(error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        sys.stderr.write("drumlin: interrupted\n")
        sys.exit(_INTERRUPTED)
    finally:
        sys.stdout.flush()
    sys.exit(ended if isinstance(ended, int) else 0)


_INTERRUPTED = 130  # 128 and SIGINT, as shells say it


def _wrong_usage(error: typer.TyperException) -> WrongUsage:
    """Return a mistake on the command line as an error of ours: a line that is not broken, and the command that explains."""
    from pydantic import ValidationError

    if isinstance(error.__cause__, ValidationError):  # by which typer reads values
        from drumlin.kg.config.explaining import explained

        error.message = explained(error.__cause__.errors(include_url=False)[0])
    context = getattr(error, "ctx", None)
    return WrongUsage(error.format_message(), hint=f"{context.command_path if context else 'drumlin'} --help")


def _tell(error: DrumlinError) -> None:
    lines = [f"drumlin: {error}"]
    if isinstance(error, ShapeViolation):
        lines += [f"  also: {violation.message}" for violation in error.violations[1:]]
    if error.hint:
        lines.append(f"  hint: {error.hint}")
    text = "\n".join(lines)
    sys.stderr.write((visible(text) if sys.stderr.isatty() else text) + "\n")  # in one, as threads may log meanwhile


def _exit_code(error: DrumlinError) -> int:
    if isinstance(error, WrongUsage):
        return 2
    if isinstance(error, ResourceNotFound):
        return 4
    return 5 if isinstance(error, SourceUnavailable) else 1


def _version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)] = False,
) -> None:
    """The semantic map of Kubernetes clusters and their telemetry: watch, store, query with SPARQL, resolve to PromQL and series."""
    environment.check()


def demo(
    once: Annotated[
        bool, typer.Option("--once", help="Check every step, then exit: 0 only if each gave real results.")
    ] = False,
    port: Annotated[int, typer.Option(help="Port of the service; 0 takes a free one.", min=0, max=65535)] = 8080,
    days: Annotated[int, typer.Option(help="Days of generated history.", min=1, max=60)] = 14,
    system: Annotated[
        Literal["edge", "kuscia", "agents", "functions"],
        typer.Option(
            help="An edge cluster, a Kuscia network of two domains, agents outside Kubernetes, or functions and calls."
        ),
    ] = "edge",
) -> None:
    """Show the whole path on a sample cluster: graph → SPARQL → PromQL → series, with a real Prometheus where there is one."""
    from drumlin.api.demo import run

    raise typer.Exit(run.demo(once=once, port=port, days=days, system=system))


def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    print(installed("drumlin"))


for command in (
    following.serve,
    following.load,
    following.follow,
    following.rbac,
    search_cli.list_,
    query_cli.get,
    query_cli.diff,
    query_cli.sparql,
    query_cli.query,
    query_cli.dag,
    query_cli.lineage,
    query_cli.why,
    telemetry_cli.resolve,
    telemetry_cli.history,
    telemetry_cli.values,
    telemetry_cli.alerts,
    telemetry_cli.logs,
    telemetry_cli.datasources,
    telemetry_cli.forecast,
    store_cli.audit,
    store_cli.dump,
    store_cli.import_,
    demo,
    operations.backup,
    operations.restore,
    operations.check,
    operations.repair,
    operations.optimize,
    updates.update,
    agent_cli.agents,
    agent_cli.agent,
    agent_cli.mcp,
    search_cli.search,
    search_cli.events,
    version,
):
    app.command(command.__name__.rstrip("_"), cls=Command)(with_service(command))
app.add_typer(token_cli.app, name="token")


if __name__ == "__main__":
    main()
