"""``drumlin token``: the bearer tokens of a service, in the directory of its store; the service need not run, and may."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drumlin.api.cli.options import Config, Report, one_of

if TYPE_CHECKING:
    from drumlin.api.access.tokens import TokenFile, TokenRecord

app = typer.Typer(
    help="Make, list, rotate and revoke the bearer tokens of a service (docs/access.md).", no_args_is_help=True
)

Store = Annotated[Path | None, typer.Option("--store", help="Directory of the service's store.", show_default=False)]
Tokens = Annotated[
    Path | None,
    typer.Option(
        "--tokens",
        help="File of the tokens, where it is not tokens.json in the store's directory [the setting tokens].",
        show_default=False,
    ),
]
Name = Annotated[str, typer.Argument(help="Name of the caller that holds the token.", show_default=False)]
Expires = Annotated[
    str | None, typer.Option("--expires", help="Time until the token ends: 90d, 12h.", show_default=False)
]


@app.command()
def create(
    name: Name,
    role: Annotated[str, typer.Option("--role", help="reader, writer, admin, exporter, agent or peer.")],
    expires: Expires = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            help="exporter: what it writes as: dump, kubernetes:CLUSTER. May be repeated; the first is the default.",
            show_default=False,
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="exporter of a dump: the cluster whose hosting graphs it may write.", show_default=False),
    ] = None,
    guid: Annotated[str | None, typer.Option(help="agent: its GUID.", show_default=False)] = None,
    domain: Annotated[
        list[str] | None,
        typer.Option(
            help="Id of a domain: the token sees and writes what is its, and nothing else. May be repeated [all domains].",
            show_default=False,
        ),
    ] = None,
    store: Store = None,
    tokens: Tokens = None,
    config: Config = None,
    output: Report = "table",
) -> None:
    """Make a token and print it: it is shown once, and only its SHA-256 is kept. A service accepts it within seconds.

    From the first token on, the service asks for one (setting `anonymous`).

    **Examples**: `drumlin token create grafana --role reader --expires 90d --store /var/lib/drumlin` ·
    `drumlin token create prod --role exporter --source kubernetes:prod --store /var/lib/drumlin > prod.token` ·
    `drumlin token create alice --role reader --domain alice --store /var/lib/drumlin`
    """
    from drumlin.api.access.callers import Role

    file = _file(store, tokens, config)
    chosen = Role(one_of(role, tuple(Role), "--role"))
    first = not file.path.exists()
    made = file.create(
        name, chosen, lifetime=_length(expires), owners=_owners(source, cluster), guid=guid, domains=domain or ()
    )
    if first:
        _note("from now on the service asks for tokens; the setting anonymous says what is possible without one")
    _print_made(*made, output)


@app.command("list")
def list_(store: Store = None, tokens: Tokens = None, config: Config = None, output: Report = "table") -> None:
    """List the tokens, also those that ended within the last 30 days. The tokens themselves are kept nowhere.

    **Example**: `drumlin token list --store /var/lib/drumlin -o json`
    """
    from drumlin.api.cli.output import Output, emit_table, emit_value

    rows = [_shown(each) for each in _file(store, tokens, config).read()]
    if output != "table":
        emit_value(rows, Output(output))
    else:
        columns = ("name", "role", "state", "created", "expires", "bound to", "id")
        emit_table(columns, [[_cell(row, column) for column in columns] for row in rows])


@app.command()
def rotate(
    name: Name,
    overlap: Annotated[str, typer.Option(help="Time for which the old token is accepted as well: 1d, 1h, 0.")] = "0",
    expires: Expires = None,
    store: Store = None,
    tokens: Tokens = None,
    config: Config = None,
    output: Report = "table",
) -> None:
    """Make a new token for a name and print it; the old one ends after `--overlap`. It lives as long as the old one did.

    **Example**: `drumlin token rotate grafana --overlap 1d --store /var/lib/drumlin`
    """
    file = _file(store, tokens, config)
    both = None if overlap == "0" else _length(overlap)
    _print_made(*file.rotate(name, both or timedelta(0), lifetime=_length(expires)), output)


@app.command()
def revoke(
    name: Name, store: Store = None, tokens: Tokens = None, config: Config = None, output: Report = "table"
) -> None:
    """End all tokens of a name; a service that runs ends them within seconds, open streams too.

    **Example**: `drumlin token revoke grafana --store /var/lib/drumlin`
    """
    from drumlin.api.cli.output import Output, emit_value

    ended = _file(store, tokens, config).revoke(name)
    if output != "table":
        emit_value([_shown(each) for each in ended], Output(output))
    else:
        _note(f"{len(ended)} token{'s' if len(ended) > 1 else ''} of {name} revoked")


def _file(store: Path | None, tokens: Path | None, config: Path | None) -> TokenFile:
    """Return the file that the options name, or the configuration; raises ``WrongUsage``."""
    from drumlin.api.access.tokens import FILE, TokenFile
    from drumlin.kg.config.settings import Settings
    from drumlin.kg.errors import WrongUsage

    if store is not None and str(store).startswith("sparql+"):
        raise WrongUsage("a store in an engine elsewhere has no directory", hint="say --tokens FILE, here and to serve")
    if store is not None and tokens is not None:
        raise WrongUsage("--store and --tokens name two files", hint="give one of them")
    named = None if tokens else Settings.load(config).tokens
    if store is not None and named is not None:
        raise WrongUsage(
            f"the configuration names {named}, so no service reads a file in {store}", hint="leave --store out"
        )
    path = tokens or (store / FILE if store else named)
    if path is None:
        raise WrongUsage("the file of the tokens is not named", hint="say --store DIR, or --tokens FILE")
    return TokenFile(path)


def _length(text: str | None) -> timedelta | None:
    from drumlin.kg.telemetry.durations import parse_duration

    return None if text is None else parse_duration(text)


def _owners(given: Sequence[str] | None, cluster: str | None) -> tuple[str, ...]:
    """Return the owners that ``--source`` binds an exporter to: its own, and for a cluster the one of its hosting graphs."""
    from drumlin.exporters.pipeline.hosting_domain import followers_of

    found = dict.fromkeys(given or ())
    for each in tuple(found):
        source, _, followed = each.partition(":")
        if source == "kubernetes" and followed:
            found[followers_of(followed)] = None
    if cluster and found:
        found[followers_of(cluster)] = None
    return tuple(found)


def _print_made(record: TokenRecord, token: str, output: str) -> None:
    from drumlin.api.cli.output import Output, emit, emit_value

    if output != "table":
        emit_value({"token": token, **_shown(record)}, Output(output))
        return
    until = f" until {record.expires:%Y-%m-%d %H:%M} UTC" if record.expires else ", without an end"
    _note(f"token of {record.name}, role {record.role}{until}; it is shown once")
    emit(token)


def _shown(record: TokenRecord) -> dict[str, Any]:
    from drumlin.api.access.tokens import utc_now

    found = {
        "id": record.id,
        "name": record.name,
        "role": record.role.value,
        "state": record.state(utc_now()),
        "created": record.created.isoformat(),
        "expires": record.expires and record.expires.isoformat(),
        "revoked": record.revoked and record.revoked.isoformat(),
        "owners": list(record.owners) or None,
        "guid": record.guid,
        "domains": list(record.domains) or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _cell(row: dict[str, Any], column: str) -> str | None:
    if column == "bound to":
        bound = (*row.get("owners", ()), row.get("guid"), *(f"domain/{each}" for each in row.get("domains", ())))
        return ", ".join(filter(None, bound)) or None
    value: str | None = row.get(column)
    return value


def _note(text: str) -> None:
    """Say something beside the result."""
    sys.stderr.write(f"{text}\n")
