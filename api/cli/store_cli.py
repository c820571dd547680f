"""``drumlin audit``, ``dump``, ``import``: the whole graph, held to the rules, written out and read back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from drumlin.api.cli.options import Base, Config, Report, Url, form_option, settings_of


def audit(
    store: Annotated[
        Path | None,
        typer.Option(help="Directory of a store that no service has open; without it the service.", show_default=False),
    ] = None,
    url: Url = None,
    base: Base = None,
    config: Config = None,
    output: Annotated[str, form_option("table", "json", "yaml", "shacl")] = "table",
) -> None:
    """Validate everything that is stored; exit code 3 when a rule is broken. `shacl` is a SHACL report in Turtle.

    **Examples**: `drumlin audit` · `drumlin audit --store /var/lib/drumlin -o shacl > report.ttl`
    """
    from drumlin.api.cli import auditing

    form = auditing.Form(output)
    if store is None:
        raise typer.Exit(auditing.service(url, form))
    raise typer.Exit(auditing.directory(settings_of(config, base, None, None), store, form))


def dump(
    format: Annotated[
        str | None,
        typer.Option("--format", "-f", help="nquads (default), jsonld, trig or turtle.", show_default=False),
    ] = None,
    frame: Annotated[
        str | None,
        typer.Option(help="JSON-LD in a shape: each (by its class), a class, or a frame as JSON.", show_default=False),
    ] = None,
    type: Annotated[
        str | None, typer.Option(help="Only a class; Workload is all workloads.", show_default=False)
    ] = None,
    domain: Annotated[str | None, typer.Option(help="Only a domain.", show_default=False)] = None,
    namespace: Annotated[str | None, typer.Option(help="Only a namespace.", show_default=False)] = None,
    owner: Annotated[str | None, typer.Option(help="Only what a source or user writes.", show_default=False)] = None,
    prefix: Annotated[str | None, typer.Option(help="Only ids that begin so.", show_default=False)] = None,
    url: Url = None,
) -> None:
    """Write the graph of a service, or a part of it, to stdout; equal graphs give equal bytes.

    **Examples**: `drumlin dump --format jsonld > graph.jsonld` · `drumlin dump --type Workload --namespace payments` ·
    `drumlin dump --frame Deployment`
    """
    from drumlin.api.cli import exporting

    narrowed = {"type": type, "domain": domain, "namespace": namespace, "owner": owner, "prefix": prefix}
    narrowed["frame"] = frame
    exporting.dump(url, format, narrowed)


def import_(
    path: Annotated[Path, typer.Argument(help="What `drumlin dump` or `--export-to` wrote, also gzipped; - is stdin.")],
    store: Annotated[
        str | None,
        typer.Option(help="Directory of a store, or sparql+http(s)://…; without it a service.", show_default=False),
    ] = None,
    owner: Annotated[str, typer.Option(help="Who owns the graphs from now on.")] = "user",
    format: Annotated[
        str | None,
        typer.Option("--format", "-f", help="nquads, trig or jsonld [default: by the suffix].", show_default=False),
    ] = None,
    base: Base = None,
    config: Config = None,
    url: Url = None,
    output: Report = "table",
) -> None:
    """Write the graphs of an export into a store; exit code 3 when some belong to another owner and were left.

    **Example**: `drumlin dump | drumlin import - --format nquads --store ./copy`
    """
    from drumlin.api.cli import exporting
    from drumlin.api.cli.output import Output

    settings = settings_of(config, base, None, None)
    raise typer.Exit(exporting.load(settings, path, format, owner, Output(output), store=store, url=url))
