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
    following,
    operations,
    peer_cli,
    query_cli,
    search_cli,
    store_cli,
    telemetry_cli,
    token_cli,
    updates,
)
from drumlin.api.cli.options import Command, with_token
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
    try:
        _run()
    except BrokenPipeError:  # `drumlin dump | head` ends quietly, but no SIGPIPE: a reader's end would be the service's
        _give_up_stdout()
        sys.exit(1)
    except OSError as error:
        from drumlin.kg.store.embedded.wal import is_full

        if not is_full(error):
            raise
        _give_up_stdout()
        _tell(
            StoreFull(
                f"the result cannot be written whole: {error.strerror}",
                hint="make room on its disk; what is there is a part",
            )
        )
        sys.exit(1)


def _give_up_stdout() -> None:
    """Lead what is still to be written nowhere: it would fail again at the end of the process."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run() -> None:
    try:
        app()
    except DrumlinError as error:
        _tell(error)
        sys.exit(_exit_code(error))
    finally:
        sys.stdout.flush()


def _tell(error: DrumlinError) -> None:
    from drumlin.api.cli.output import visible

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
    peer_cli.peers,
    search_cli.search,
    search_cli.events,
    version,
):
    app.command("import" if command is store_cli.import_ else None, cls=Command)(with_token(command))
app.add_typer(token_cli.app, name="token")


if __name__ == "__main__":
    main()
