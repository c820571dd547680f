"""``drumlin``: the command line. Every command teaches with ``--help``; heavy imports wait until a command needs them.

Exit codes: 0 done · 1 failed · 2 wrong usage · 3 done, but some objects were rejected · 4 not found · 5 no answer from a server.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from api.cli import asking, finding, following, measuring, operations, updates, whole
from kg.errors import DrumlinError, ResourceNotFound, ShapeViolation, SourceUnavailable

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
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _run() -> None:
    try:
        app()
    except DrumlinError as error:
        _tell(error)
        sys.exit(_exit_code(error))
    finally:
        sys.stdout.flush()


def _tell(error: DrumlinError) -> None:
    lines = [f"drumlin: {error}"]
    if isinstance(error, ShapeViolation):
        lines += [f"  also: {violation.message}" for violation in error.violations[1:]]
    if error.hint:
        lines.append(f"  hint: {error.hint}")
    sys.stderr.write("\n".join(lines) + "\n")  # in one, as threads may log meanwhile


def _exit_code(error: DrumlinError) -> int:
    if isinstance(error, ResourceNotFound):
        return 4
    return 5 if isinstance(error, SourceUnavailable) else 1


def demo(
    once: Annotated[
        bool, typer.Option("--once", help="Check every step, then exit: 0 only if each gave real results.")
    ] = False,
    port: Annotated[int, typer.Option(help="Port of the service; 0 takes a free one.", min=0, max=65535)] = 8080,
    days: Annotated[int, typer.Option(help="Days of generated history.", min=1, max=60)] = 14,
) -> None:
    """Show the whole path on a sample cluster: graph → SPARQL → PromQL → series, with a real Prometheus where there is one."""
    from api.demo import run

    raise typer.Exit(run.demo(once=once, port=port, days=days))


def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    print(installed("drumlin"))


for command in (
    following.serve,
    following.load,
    following.follow,
    following.rbac,
    asking.get,
    asking.sparql,
    asking.query,
    measuring.resolve,
    measuring.history,
    measuring.logs,
    measuring.datasources,
    measuring.forecast,
    whole.audit,
    whole.dump,
    whole.import_,
    demo,
    operations.backup,
    operations.restore,
    operations.check,
    operations.optimize,
    updates.update,
    finding.search,
    finding.events,
    version,
):
    app.command("import" if command is whole.import_ else None)(command)


if __name__ == "__main__":
    main()
