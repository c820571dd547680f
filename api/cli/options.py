"""Options and arguments that several commands have, and what they mean: the service, the form of output, ids, the configuration."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from drumlin.api.cli import completion
from drumlin.kg.errors import DrumlinError, InvalidIdentifier, InvalidInput, ResourceGone, ResourceNotFound
from drumlin.kg.model.kind_names import kind_named, spelled

if TYPE_CHECKING:
    from drumlin.kg.client import Client

TOKEN, TOKEN_FILE = "DRUMLIN_TOKEN", "DRUMLIN_TOKEN_FILE"
_LIST = "list what there is: drumlin list"
_NO_IDS = frozenset({"-", "all"})
_ALONE = "\0"  # stands for --complete without a value; no argument of a process can be that
_limit: ContextVar[float | None] = ContextVar("drumlin_timeout", default=None)

Url = Annotated[
    str | None,
    typer.Option("--url", "-u", envvar="DRUMLIN_URL", help="Address of the service [default: http://localhost:8080]."),
]
Config = Annotated[
    Path | None, typer.Option(help="Configuration file [default: ./drumlin.toml where it exists].", show_default=False)
]
Base = Annotated[str | None, typer.Option(help="Base of all IRIs; fixed for the life of a store.", show_default=False)]
Cluster = Annotated[str | None, typer.Option(help="Name of the cluster.", show_default=False)]
Domain = Annotated[str | None, typer.Option(help="Id of the hosting domain.", show_default=False)]

Complete = Annotated[
    list[str] | None,
    typer.Option(
        "--complete",
        metavar="[=KIND[/NAMESPACE],…]",
        help="What the dump holds in full, so that what it lacks is removed: its kinds in its namespaces (with Namespaces: in all); "
        "or, after =, the kinds that are named: --complete=pods,services/payments. May be repeated.",
        show_default=False,
    ),
]


# -- ids and names ----------------------------------------------------------------------------------------------------------


def id_argument(help: str, **more: Any) -> Any:
    """Make an argument that is an id: kubectl's names of kinds are taken, and a shell completes it."""
    return typer.Argument(help=help, autocompletion=completion.ids, callback=_spelled, **more)


def id_option(*names: str, help: str) -> Any:
    """Make an option that takes ids, as ``id_argument`` does."""
    return typer.Option(*names, help=help, autocompletion=completion.ids, callback=_spelled, show_default=False)


def _spelled(value: Any) -> Any:
    if isinstance(value, str):
        return spelled(value)
    return [spelled(each) for each in value] if value else value


Id = Annotated[str, id_argument("Short id or IRI: prod/payments/deployment/checkout")]
MetricName = Annotated[
    str,
    typer.Argument(help="Name of the metric: cpu_usage, mem_usage …", autocompletion=completion.metrics),
]


# -- forms of output --------------------------------------------------------------------------------------------------------


def form_option(*offered: str) -> Any:
    """Make the option ``--output`` of a command that writes these forms; another one is refused before anything is done."""

    def check(value: str) -> str:
        return one_of(value, offered, "--output")

    def complete(incomplete: str) -> list[str]:
        return [each for each in offered if each.startswith(incomplete)]

    named = f"{', '.join(offered[:-1])} or {offered[-1]}"
    return typer.Option("--output", "-o", help=f"{named}.", callback=check, autocompletion=complete)


Rows = Annotated[str, form_option("table", "json", "yaml", "csv", "tsv")]
"""The form of rows."""
Entities = Annotated[str, form_option("table", "wide", "json", "yaml", "csv", "tsv", "name")]
"""The form of a list of entities."""
Report = Annotated[str, form_option("table", "json", "yaml")]
"""The form of what a command has done."""


def one_of(value: str, offered: Iterable[str], option: str) -> str:
    """Return the value of an option that takes one of a few; raises typer's ``BadParameter``, which names them."""
    offered = tuple(offered)
    if value not in offered:
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(offered)}", param_hint=option)
    return value


# -- the service ------------------------------------------------------------------------------------------------------------

TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        envvar=TOKEN_FILE,
        help=f"File with the bearer token for the service; without one, {TOKEN} is the token.",
        show_default=False,
    ),
]
TimeOut = Annotated[
    float | None,
    typer.Option(
        help="Seconds to wait for the service [default: 60, and 900 for what takes long].",
        min=0.001,
        show_default=False,
    ),
]


GRACE = 5.0
"""Seconds beyond a time limit that the service keeps itself, so that its own word on it arrives."""


def connect(url: str | None, *, grace: float = 0.0) -> Client:
    """Connect to the service that a command asks, with the time limit that ``--timeout`` sets, and ``grace`` seconds more."""
    import drumlin

    limit = _limit.get()
    return drumlin.connect(url, limit=None if limit is None else limit + grace)


def time_limit() -> float | None:
    """Return what ``--timeout`` says, in seconds; None where it does not."""
    return _limit.get()


def with_service(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that asks a service (``url``) the options ``--token-file`` and ``--timeout``, unless it has them itself.

    Where its ``id`` is not found, the error proposes those that may have been meant.
    """
    signature = inspect.signature(command, eval_str=True)
    if "url" not in signature.parameters or "token_file" in signature.parameters:
        return command

    @functools.wraps(command)
    def run(*, token_file: Path | None, timeout: float | None, **given: Any) -> None:
        with (
            _naming(token_file),
            _limited(timeout),
            _proposing(given.get("url"), given.get("id") or given.get("managing")),
        ):
            command(**given)

    keyword = inspect.Parameter.KEYWORD_ONLY
    own = [
        inspect.Parameter(name, keyword, default=None, annotation=annotation)
        for name, annotation in (("timeout", TimeOut), ("token_file", TokenFile))
    ]
    parameters = [*(each.replace(kind=keyword) for each in signature.parameters.values()), *own]
    del run.__wrapped__  # whose signature lacks the options
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


@contextmanager
def _naming(file: Path | None) -> Iterator[None]:
    """Have every client of this process read its token from ``file``."""
    before = os.environ.get(TOKEN_FILE)
    if file is not None:
        os.environ[TOKEN_FILE] = str(file)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(TOKEN_FILE, None)
        else:
            os.environ[TOKEN_FILE] = before


@contextmanager
def _limited(seconds: float | None) -> Iterator[None]:
    """Have every client of this command wait so long at most."""
    before = _limit.set(seconds)
    try:
        yield
    finally:
        _limit.reset(before)


@contextmanager
def _proposing(url: str | None, id: str | None) -> Iterator[None]:
    """Let an error about an id that is not there say which one may have been meant."""
    try:
        yield
    except (ResourceNotFound, InvalidIdentifier) as error:
        explained = isinstance(error, ResourceGone) or "did you mean" in (error.hint or "")
        error.hint = None if "/subgraphs" in (error.hint or "") else error.hint  # which is advice for HTTP
        if id and id not in _NO_IDS and not explained and _is_about(error):
            error.hint = _hint(url, id) or error.hint or _LIST
        raise


def _is_about(error: DrumlinError) -> bool:
    """Return whether an error is about an id, and not about a metric or a datasource."""
    return isinstance(error, InvalidIdentifier) or str(error).startswith(("there is no ", "there was no "))


def _hint(url: str | None, id: str) -> str | None:
    if kind_named(id):
        return f"list them: drumlin list {id}"
    near = _near(url, id)
    return f"did you mean {' or '.join(near)}?" if near else None


def _near(url: str | None, id: str) -> list[str]:
    try:
        with connect(url) as client:
            return client.similar(id)
    except DrumlinError:  # the error that is being explained is what matters
        return []


class Command(TyperCommand):
    """A command whose ``--complete`` can stand alone: a value is given after ``=`` only, so that no path is taken for one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give a ``--complete`` that stands alone the value that ``alone`` reads."""
        end = args.index("--") if "--" in args else len(args)
        given = [f"{each}={_ALONE}" if each == "--complete" else each for each in args[:end]]
        return super().parse_args(ctx, [*given, *args[end:]])


# -- the configuration ------------------------------------------------------------------------------------------------------


def complete_of(values: Sequence[str] | None, settings: Any) -> Any:
    """Return the completeness that ``--complete`` says; raises ``WrongUsage`` for what is not a kind."""
    from drumlin.exporters.kubernetes.custom_kinds import kinds_of
    from drumlin.exporters.pipeline.completeness import Completeness

    given = [None if each == _ALONE else each for each in values or ()]
    return Completeness.parse(given, kinds_of(settings))


def settings_of(
    config: Path | None, base: str | None, cluster: str | None, domain: str | None, contexts: Any = None, **others: Any
) -> Any:
    """Return the configuration, with what the options say in the place of it; of the first cluster. Raises ``InvalidSettings``."""
    from drumlin.kg.config.settings import Settings

    named = {"id": domain} if domain else None
    settings = Settings.load(config, base=base, cluster=cluster, domain=named, context=contexts, **others)
    return settings.of_cluster(next(iter(settings.clusters)))


def text_of(source: str) -> str:
    """Read a UTF-8 text, whatever the locale, from a file, or from stdin for ``-``; raises ``InvalidInput``."""
    named = "what comes on stdin" if source == "-" else source or "a file without a name"
    try:
        content = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
        return content.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{named} is not UTF-8, from byte {error.start} on") from error
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise InvalidInput(f"{named} cannot be read: {reason}") from error
