"""``drumlin serve``, ``load``, ``follow``, ``rbac``: a graph that is kept equal to clusters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from api.cli.options import Base, Cluster, Config, Domain, Form, form_of, settings_of

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
        bool, typer.Option("--insecure", help="Listen beyond loopback although there is no authentication.")
    ] = False,
    export_to: Annotated[
        Path | None,
        typer.Option(help="Directory to export into: drumlin.nq.gz, replaced whole.", show_default=False),
    ] = None,
    export_every: Annotated[str, typer.Option(help="How often, when something was written: 1h, 15m.")] = "1h",
) -> None:
    """Serve SPARQL, REST and resolve; with a source, keep the graph equal to the cluster.

    **Examples**: `drumlin serve` · `drumlin serve --store /var/lib/drumlin --source kubernetes --cluster prod` ·
    `drumlin serve --source dump:cluster.json`
    """
    from api.cli import serving

    settings = settings_of(config, base, cluster, domain, _contexts(context, namespace, selector))
    serving.serve(
        settings,
        store,
        serving.sources_named(source, settings),
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
    output: Form = "table",
) -> None:
    """Load manifests into a store directory (no service needed). Exit code 3 when some objects were rejected.

    What is loaded is taken for the full picture of the kinds that occur in it: entities of these kinds that an earlier load wrote and
    that are not there any more become tombstones.

    **Example**: `kubectl get deploy,sts,pods,nodes -A -o json | drumlin load - --store ./store --cluster prod`
    """
    from api.cli import loading

    form = form_of(output)
    raise typer.Exit(loading.load(settings_of(config, base, cluster, domain), paths, store, form))


def follow(
    source: Annotated[str, typer.Argument(help="kubernetes, or dump:PATH.")],
    to: Annotated[str, typer.Option(help="Address of the service that keeps the graph.")],
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
            help="File with a bearer token for the proxy in front of the service, read for each request.",
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
) -> None:
    """Export a cluster into a service over REST, from a process of its own. A service that is away for a while is waited for.

    **Example**: `drumlin follow kubernetes --to http://drumlin.monitoring:8080 --cluster prod --metrics-port 9090`
    """
    from api.cli import serving

    contexts = _contexts(context, namespace, selector)
    asked = {"port": metrics_port, "host": metrics_host}
    metrics = {name: value for name, value in asked.items() if value is not None}
    settings = settings_of(config, base, cluster, domain, contexts, metrics=metrics or None)
    serving.follow(settings, serving.sources_named(source, settings), to, token_file)


def rbac(
    config: Config = None,
    namespace: Annotated[
        str | None,
        typer.Option(help="One namespace only, as for serve: a Role there, no ClusterRole.", show_default=False),
    ] = None,
    account: Annotated[str, typer.Option(help="Namespace of the service account.")] = "drumlin",
) -> None:
    """Print the service account, role and binding for following the configured kinds.

    **Examples**: `drumlin rbac --config drumlin.toml | kubectl apply -f -` · `drumlin rbac --namespace shop | kubectl apply -f -`
    """
    from exporters.kubernetes.mappings import kinds_of
    from exporters.kubernetes.rbac import manifests

    print(manifests(kinds_of(settings_of(config, None, None, None)), account, namespace), end="")
