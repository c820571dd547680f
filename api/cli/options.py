"""Options that several commands have, and what two of them mean: the form of output, the configuration."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

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


def form_of(form: str, *offered: str) -> Any:
    """Return the form of output that an option names, any or one of those ``offered``; raises typer's ``BadParameter``."""
    from api.cli.output import Output

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
    from kg.settings import Settings

    named = {"id": domain} if domain else None
    settings = Settings.load(config, base=base, cluster=cluster, domain=named, context=contexts, **others)
    return settings.of_cluster(next(iter(settings.clusters)))
