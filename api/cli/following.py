"""``drumlin serve``, ``load``, ``follow``, ``rbac``: a graph that is kept equal to clusters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from drumlin.api.cli.options import Base, Cluster, Complete, Config, Domain, Report, complete_of, settings_of

Contexts = Annotated[
    list[str] | None,
    typer.Option(
        "--context",
        help="kubernetes: the kubeconfig's context, or CONTEXT=CLUSTER; may be repeated, one for each cluster.",
        show_default=False,
    ),
]
Namespace = Annotated[str | None, typer.Option(help="kubernetes: watch one namespace only.", show_default=False)]
Selector = Annotated[
    str | None,
    typer.Option(help="kubernetes: watch objects with these labels only: team=shop,tier!=test.", show_default=False),
]

StrictReady = Annotated[
    bool,
    typer.Option(
        "--strict-ready", help="/readyz is 503 also while a cluster that was read once cannot be followed for a while."
    ),
]


def _contexts(
    given: list[str] | None, namespace: str | None, selector: str | None
) -> list[dict[str, str | None]] | None:
    """Return what the options say in the form of ``[[context]]`` tables, which they replace; None where they say nothing."""
    if not (given or namespace or selector):
        return None
    named = [each.partition("=") for each in given or [""]]
    return [
        {"name": name or None, "cluster": cluster or None, "namespace": namespace, "label_selector": selector}
        for name, _, cluster in named
    ]


def serve(
    store: Annotated[
        str | None,
        typer.Option(
            help="Directory of the store, or an engine: sparql+http(s)://…; a temporary directory when none is named.",
            show_default=False,
        ),
    ] = None,
    source: Annotated[str, typer.Option(help="Where manifests come from: none, dump:PATH or kubernetes.")] = "none",
    complete: Complete = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)] = 8080,
    base: Base = None,
    cluster: Cluster = None,
    domain: Domain = None,
    config: Config = None,
    context: Contexts = None,
    namespace: Namespace = None,
    selector: Selector = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", help="Let everybody do everything, beyond loopback too, as long as there are no tokens."
        ),
    ] = False,
    export_to: Annotated[
        Path | None,
        typer.Option(help="Directory to export into: drumlin.nq.gz, replaced whole.", show_default=False),
    ] = None,
    export_every: Annotated[str, typer.Option(help="How often, when something was written: 1h, 15m.")] = "1h",
    strict_ready: StrictReady = False,
    tokens: Annotated[
        Path | None,
        typer.Option(
            help="File of the bearer tokens [default: tokens.json in the store's directory].", show_default=False
        ),
    ] = None,
) -> None:
    """Serve SPARQL, REST and resolve; with a source, keep the graph equal to the cluster.

    Beyond loopback it asks for tokens, which `drumlin token create` makes (docs/access.md).

    A dump is read again when its files change. What it holds is added and updated; what it lacks is removed, without a question, for what
    `--complete` says that it holds in full.

    **Examples**: `drumlin serve` · `drumlin serve --store /var/lib/drumlin --source kubernetes --cluster prod` ·
    `drumlin serve --source dump:cluster.json --complete`
    """
    from drumlin.api.cli import serving

    contexts = _contexts(context, namespace, selector)
    settings = settings_of(config, base, cluster, domain, contexts, tokens=tokens, strict_ready=strict_ready or None)
    serving.serve(
        settings,
        store,
        serving.sources_named(source, settings, complete_of(complete, settings)),
        host,
        port,
        insecure=insecure,
        export_to=export_to,
        export_every=export_every,
    )


def load(
    paths: Annotated[
        list[Path],
        typer.Argument(help="Files or directories of what `kubectl get … -o json|yaml` printed; - is stdin."),
    ],
    store: Annotated[str, typer.Option(help="Directory of the store, or an engine: sparql+http(s)://…")],
    base: Base = None,
    cluster: Cluster = None,
    domain: Domain = None,
    config: Config = None,
    complete: Complete = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove what --complete removes without a question.")] = False,
    output: Report = "table",
) -> None:
    """Load manifests into a store directory (no service needed). Exit code 3 when some objects were rejected.

    What is loaded is added and updated; everything else stays. With `--complete`, what earlier loads wrote and the dump lacks becomes
    tombstones: it is listed first, and nothing is written before a yes.

    **Examples**: `kubectl get deploy,sts,pods,nodes -A -o json | drumlin load - --store ./store --cluster prod` ·
    `drumlin load cluster.json --store ./store --complete=pods,services/payments`
    """
    from drumlin.api.cli import loading
    from drumlin.api.cli.output import Output

    form = Output(output)
    settings = settings_of(config, base, cluster, domain)
    raise typer.Exit(loading.load(settings, paths, store, form, complete_of(complete, settings), yes=yes))


def follow(
    source: Annotated[str, typer.Argument(help="kubernetes, or dump:PATH.")],
    to: Annotated[str, typer.Option(help="Address of the service that keeps the graph.")],
    complete: Complete = None,
    base: Base = None,
    cluster: Cluster = None,
    domain: Domain = None,
    config: Config = None,
    context: Contexts = None,
    namespace: Namespace = None,
    selector: Selector = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            envvar="DRUMLIN_TOKEN_FILE",
            help="File with the bearer token for the service, or a proxy in front of it, read for each request.",
            show_default=False,
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            help="Port for this process's own /metrics, /readyz and /livez; 0 takes a free one. Off when not given.",
            min=0,
            max=65535,
            show_default=False,
        ),
    ] = None,
    metrics_host: Annotated[
        str | None, typer.Option(help="Address for them [default: 127.0.0.1].", show_default=False)
    ] = None,
    strict_ready: StrictReady = False,
) -> None:
    """Export a cluster into a service over REST, from a process of its own. A service that is away for a while is waited for.

    A dump is read once. `--complete` says what it holds in full; what it lacks of that is removed, without a question.

    **Example**: `drumlin follow kubernetes --to http://drumlin.monitoring:8080 --cluster prod --metrics-port 9090`
    """
    from drumlin.api.cli import serving

    contexts = _contexts(context, namespace, selector)
    asked = {"port": metrics_port, "host": metrics_host}
    metrics = {name: value for name, value in asked.items() if value is not None}
    settings = settings_of(
        config, base, cluster, domain, contexts, metrics=metrics or None, strict_ready=strict_ready or None
    )
    sources = serving.sources_named(source, settings, complete_of(complete, settings))
    serving.follow(settings, sources, to, token_file)


def rbac(
    config: Config = None,
    namespace: Annotated[
        str | None,
        typer.Option(help="One namespace only, as for serve: a Role there, no ClusterRole.", show_default=False),
    ] = None,
    account: Annotated[str, typer.Option(help="Namespace of the service account.")] = "drumlin",
) -> None:
    """Print the service account, role and binding for following the configured kinds, and for the Lease of an election.

    **Examples**: `drumlin rbac --config drumlin.toml | kubectl apply -f -` · `drumlin rbac --namespace shop | kubectl apply -f -`
    """
    from drumlin.exporters.kubernetes.custom_kinds import kinds_of
    from drumlin.exporters.kubernetes.rbac import manifests

    settings = settings_of(config, None, None, None)
    print(manifests(kinds_of(settings), account, namespace, settings.election), end="")
