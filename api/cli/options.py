"""Options that several commands have, and what two of them mean: the form of output, the configuration."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

TOKEN, TOKEN_FILE = "DRUMLIN_TOKEN", "DRUMLIN_TOKEN_FILE"
_ALONE = "\0"  # stands for --complete without a value; no argument of a process can be that

Url = Annotated[
    str | None,
    typer.Option("--url", "-u", envvar="DRUMLIN_URL", help="Address of the service [default: http://localhost:8080]."),
]
Form = Annotated[str, typer.Option("--output", "-o", help="table, json, jsonld or csv.")]
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


TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        envvar=TOKEN_FILE,
        help=f"File with the bearer token for the service; without one, {TOKEN} is the token.",
        show_default=False,
    ),
]


def with_token(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that asks a service (``url``) the option ``--token-file``, unless it has that itself."""
    signature = inspect.signature(command, eval_str=True)
    if "url" not in signature.parameters or "token_file" in signature.parameters:
        return command

    @functools.wraps(command)
    def run(*, token_file: Path | None, **given: Any) -> None:
        with _naming(token_file):
            command(**given)

    own = inspect.Parameter("token_file", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=TokenFile)
    keywords = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in signature.parameters.values()]
    del run.__wrapped__  # whose signature lacks the option
    run.__signature__ = signature.replace(parameters=[*keywords, own])  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in (*keywords, own)}
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


class Command(TyperCommand):
    """A command whose ``--complete`` can stand alone: a value is given after ``=`` only, so that no path is taken for one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give a ``--complete`` that stands alone the value that ``alone`` reads."""
        end = args.index("--") if "--" in args else len(args)
        given = [f"{each}={_ALONE}" if each == "--complete" else each for each in args[:end]]
        return super().parse_args(ctx, [*given, *args[end:]])


def complete_of(values: Sequence[str] | None, settings: Any) -> Any:
    """Return the completeness that ``--complete`` says; raises ``WrongUsage`` for what is not a kind."""
    from drumlin.exporters.kubernetes.custom_kinds import kinds_of
    from drumlin.exporters.pipeline.completeness import Completeness

    given = [None if each == _ALONE else each for each in values or ()]
    return Completeness.parse(given, kinds_of(settings))


def form_of(form: str, *offered: str) -> Any:
    """Return the form of output that an option names, any or one of those ``offered``; raises typer's ``BadParameter``."""
    from drumlin.api.cli.output import Output

    return Output(one_of(form, offered or tuple(Output), "--output"))


def one_of(value: str, offered: Iterable[str], option: str) -> str:
    """Return the value of an option that takes one of a few; raises typer's ``BadParameter``, which names them."""
    offered = tuple(offered)
    if value not in offered:
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(offered)}", param_hint=option)
    return value


def settings_of(
    config: Path | None, base: str | None, cluster: str | None, domain: str | None, contexts: Any = None, **others: Any
) -> Any:
    """Return the configuration, with what the options say in the place of it; of the first cluster. Raises ``InvalidSettings``."""
    from drumlin.kg.config.settings import Settings

    named = {"id": domain} if domain else None
    settings = Settings.load(config, base=base, cluster=cluster, domain=named, context=contexts, **others)
    return settings.of_cluster(next(iter(settings.clusters)))
