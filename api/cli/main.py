"""``drumlin``: the command line. Every command teaches with ``--help``; heavy imports wait until a command needs them.

Exit codes: 0 done · 1 failed · 2 wrong usage · 3 done, but some objects were rejected · 4 not found · 5 no answer from a server.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli import finding, operations, updates
from kg.errors import DrumlinError, ResourceNotFound, ShapeViolation, SourceUnavailable

app = typer.Typer(
    name="drumlin",
    help="The semantic map of Kubernetes clusters and their telemetry: watch, store, query with SPARQL, resolve to PromQL and series.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

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
Last = Annotated[str | None, typer.Option(help="Window up to now: 30d, 12h, 15m.", show_default=False)]
Start = Annotated[
    str | None, typer.Option(help="Begin of the window: RFC 3339 time or epoch seconds.", show_default=False)
]
End = Annotated[str | None, typer.Option(help="End of the window [default: now].", show_default=False)]


def main() -> None:
    """Run the command line; an error is one line on stderr and an exit code."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `drumlin dump | head` ends quietly
    try:
        app()
    except DrumlinError as error:
        _tell(error)
        sys.exit(_exit_code(error))


def _tell(error: DrumlinError) -> None:
    print(f"drumlin: {error}", file=sys.stderr)
    if isinstance(error, ShapeViolation):
        for violation in error.violations[1:]:
            print(f"  also: {violation.message}", file=sys.stderr)
    if error.hint:
        print(f"  hint: {error.hint}", file=sys.stderr)


def _exit_code(error: DrumlinError) -> int:
    if isinstance(error, ResourceNotFound):
        return 4
    return 5 if isinstance(error, SourceUnavailable) else 1


def _output(form: str) -> Any:
    from api.cli.output import Output

    try:
        return Output(form)
    except ValueError:
        raise typer.BadParameter(f"{form!r} is not one of {', '.join(Output)}", param_hint="--output") from None


def _settings(
    config: Path | None, base: str | None, cluster: str | None, domain: str | None, contexts: Any = None
) -> Any:
    from kg.settings import Settings

    named = {"id": domain} if domain else None
    settings = Settings.load(config, base=base, cluster=cluster, domain=named, context=contexts)
    return settings.of_cluster(next(iter(settings.clusters)))


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


@app.command()
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

    settings = _settings(config, base, cluster, domain, _contexts(context, namespace, selector))
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


@app.command()
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

    form = _output(output)
    raise typer.Exit(loading.load(_settings(config, base, cluster, domain), paths, store, form))


@app.command()
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
) -> None:
    """Export a cluster into a service over REST, from a process of its own.

    **Example**: `drumlin follow kubernetes --to http://drumlin.monitoring:8080 --cluster prod`
    """
    from api.cli import serving

    settings = _settings(config, base, cluster, domain, _contexts(context, namespace, selector))
    serving.follow(settings, serving.sources_named(source, settings), to)


@app.command()
def rbac(
    config: Config = None,
    namespace: Annotated[str, typer.Option(help="Namespace of the service account.")] = "drumlin",
) -> None:
    """Print the service account, role and binding for following the configured kinds.

    **Example**: `drumlin rbac --config drumlin.toml | kubectl apply -f -`
    """
    from exporters.kubernetes.mappings import kinds_of
    from exporters.kubernetes.rbac import manifests

    print(manifests(kinds_of(_settings(config, None, None, None)), namespace), end="")


@app.command()
def get(
    id: Annotated[str, typer.Argument(help="Short id or IRI: prod/payments/deployment/checkout")],
    url: Url = None,
    output: Form = "table",
) -> None:
    """Show one entity's graph.

    **Example**: `drumlin get prod/payments/deployment/checkout -o jsonld`
    """
    import kg
    from api.cli.output import Output, emit_json, emit_rows, properties

    form = _output(output)
    with kg.connect(url) as client:
        document = client.subgraph(id).get()
    if form in (Output.json, Output.jsonld):
        emit_json(document)
    else:
        emit_rows(("property", "value"), properties(document), form)


@app.command()
def sparql(
    query: Annotated[str, typer.Argument(help="The query, @FILE, or - for stdin.")],
    url: Url = None,
    output: Form = "table",
) -> None:
    """Run a SPARQL query.

    **Example**: `drumlin sparql 'PREFIX : <https://w3id.org/drumlin/ns#> SELECT ?w WHERE {?w a :Deployment}' -o csv`
    """
    import kg
    from api.cli.output import Output, emit, emit_json, emit_rows
    from kg.client import calls
    from kg.client.rows import Rows

    form = _output(output)
    text = _text(query)
    with kg.connect(url) as client:
        if form is Output.csv:
            emit(client.run(calls.sparql_text(text, "text/csv, application/n-triples;q=0.5")))
            return
        if form is not Output.table:
            accept = "application/sparql-results+json, application/ld+json"
            emit(client.run(calls.sparql_text(text, accept)))
            return
        answer = client.sparql(text)
    if isinstance(answer, Rows):
        emit_rows(answer.columns, ([row[name] for name in answer.columns] for row in answer), form)
    elif isinstance(answer, bool):
        emit_json(answer)
    else:
        emit(answer)


@app.command()
def query(
    name: Annotated[str | None, typer.Argument(help="Name of a saved query; without one they are listed.")] = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", "-p", help="A parameter as name=value; may be repeated.")
    ] = None,
    url: Url = None,
    output: Form = "table",
) -> None:
    """Ask a saved query of the service, or list them.

    **Example**: `drumlin query runs-on-node --param node=prod/-/node/edge-a-1 -o csv`
    """
    import kg
    from api.cli.output import Output, emit_json, emit_rows

    form = _output(output)
    values = dict(_named(each) for each in param or ())
    with kg.connect(url) as client:
        if name is None:
            listed = client.queries()
            rows = [[each["name"], each["title"], " ".join(p["name"] for p in each["parameters"])] for each in listed]
            emit_rows(("name", "title", "parameters"), rows, form)
            return
        answer = client.query(name, **values)
    if form in (Output.json, Output.jsonld):
        emit_json(list(answer))
    else:
        emit_rows(answer.columns, ([row[column] for column in answer.columns] for row in answer), form)


def _named(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not equals:
        raise typer.BadParameter(f"{given!r} is not name=value", param_hint="--param")
    return name, value


def _text(query: str) -> str:
    if query == "-":
        return sys.stdin.read()
    if not query.startswith("@"):
        return query
    try:
        return Path(query[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{query[1:]}: {error}", param_hint="QUERY") from error


@app.command()
def resolve(
    id: Annotated[str, typer.Argument(help="Short id or IRI of the entity.")],
    metric: Annotated[str, typer.Argument(help="Name of the metric: cpu_usage, mem_usage …")],
    last: Last = None,
    start: Start = None,
    end: End = None,
    step: Annotated[str | None, typer.Option(help="Distance of the points: 5m.", show_default=False)] = None,
    datasource: Annotated[str | None, typer.Option(help="Name of the datasource to use.", show_default=False)] = None,
    url: Url = None,
    output: Form = "table",
) -> None:
    """Turn entity × metric × window into an endpoint and an exact, runnable query.

    **Example**: `drumlin resolve prod/payments/deployment/checkout cpu_usage --last 6h`
    """
    import kg
    from api.cli.output import Output, emit_json, emit_rows, properties

    form = _output(output)
    with kg.connect(url) as client:
        resolution = client.resolve(id, metric, last=last, start=start, end=end, step=step, datasource=datasource)
    if form in (Output.json, Output.jsonld):
        emit_json(resolution)
    else:
        emit_rows(("property", "value"), properties(resolution), form)


@app.command()
def history(
    id: Annotated[str, typer.Argument(help="Short id or IRI of the entity; - reads them from stdin, one a line.")],
    metric: Annotated[str, typer.Argument(help="Name of the metric: cpu_usage, mem_usage …")],
    last: Last = "1d",
    start: Start = None,
    end: End = None,
    step: Annotated[
        str, typer.Option(help="Distance of the points: 5m; auto stays below the server's limit.")
    ] = "auto",
    gaps: Annotated[str, typer.Option(help="What becomes of gaps: null, ffill, linear or drop.")] = "null",
    datasource: Annotated[str | None, typer.Option(help="Name of the datasource to use.", show_default=False)] = None,
    via: Annotated[str, typer.Option(help="service, or direct: fetch with the drumlin.toml here.")] = "service",
    forecast: Annotated[bool, typer.Option("--forecast", help="What was predicted, not what was measured.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Print what would be asked, and ask nothing.")] = False,
    to: Annotated[
        Path | None, typer.Option(help="File to write: .parquet, .arrow, .csv or .ndjson.", show_default=False)
    ] = None,
    url: Url = None,
    output: Form = "table",
) -> None:
    """Fetch a metric's history as a forecast-ready table (unique_id, ds, y).

    **Examples**: `drumlin history prod/payments/deployment/checkout cpu_usage --last 30d --step 5m -o csv > cpu.csv` ·
    `drumlin history - cpu_usage --last 30d --to all.parquet < ids.txt`
    """
    from api.cli import series

    window = {"start": start, "end": end} if start else {"last": last, "end": end}
    options = {**window, "step": step, "gaps": gaps, "datasource": datasource}
    if forecast:
        options |= {"kind": "forecast", "last": None}
    ids = [line.strip() for line in sys.stdin if line.strip()] if id == "-" else [id]
    if explain:
        series.explain(url, ids, metric, options)
    elif to:
        series.save(url, to, ids, metric, options)
    else:
        series.show(url, ids, metric, {**options, "via": via}, _output(output))


@app.command()
def logs(
    id: Annotated[str, typer.Argument(help="Short id or IRI of a workload or pod.")],
    last: Last = "1h",
    start: Start = None,
    end: End = None,
    filter: Annotated[str | None, typer.Option(help="Only lines that contain this text.", show_default=False)] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Most lines; the newest.", min=1)] = 100,
    url: Url = None,
    output: Form = "table",
) -> None:
    """Show an entity's log lines, the oldest first, from the Loki that holds them.

    **Example**: `drumlin logs prod/payments/deployment/checkout --last 6h --filter error`
    """
    from api.cli import series

    window = {"start": start, "end": end} if start else {"last": last, "end": end}
    series.show_logs(url, id, {**window, "filter": filter, "limit": limit}, _output(output))


@app.command()
def datasources(
    name: Annotated[str | None, typer.Argument(help="Only this one, with every template.", show_default=False)] = None,
    take: Annotated[
        bool, typer.Option("--import", help="Import the datasources of this Grafana into the graph.")
    ] = False,
    url: Url = None,
    output: Form = "table",
) -> None:
    """Look at each datasource: reachable, version, oldest sample, and which templates find nothing there, and why.

    **Examples**: `drumlin datasources prometheus-main` · `drumlin datasources grafana-main --import`
    """
    from api.cli import series

    if not take:
        series.show_datasources(url, name, _output(output))
    elif name:
        series.import_datasources(url, name, _output(output))
    else:
        raise typer.BadParameter("name the Grafana whose datasources are imported")


@app.command()
def forecast(
    id: Annotated[str, typer.Argument(help="Short id or IRI of the entity.")],
    metric: Annotated[str, typer.Argument(help="Name of the metric: cpu_usage, energy_joules …")],
    last: Annotated[str, typer.Option(help="History that it learns from.")] = "28d",
    horizon: Annotated[str, typer.Option(help="How far ahead.")] = "1d",
    step: Annotated[str, typer.Option(help="Distance of the points.")] = "5m",
    compare: Annotated[bool, typer.Option("--compare", help="Compare the newest forecast with what came.")] = False,
    url: Url = None,
    output: Form = "table",
) -> None:
    """Forecast a metric by its values at the same time of earlier weeks, save the points and register them in the graph.

    **Example**: `drumlin forecast prod/payments/deployment/checkout energy_joules --horizon 1d`
    """
    from api.cli import series

    options = {"last": last, "horizon": horizon, "step": step}
    series.forecast(url, (id, metric), options, compare=compare, output=_output(output))


@app.command()
def audit(
    store: Annotated[
        Path | None,
        typer.Option(help="Directory of a store that no service has open; without it the service.", show_default=False),
    ] = None,
    url: Url = None,
    base: Base = None,
    config: Config = None,
    output: Annotated[
        str, typer.Option("--output", "-o", help="table, json or shacl (a SHACL report in Turtle).")
    ] = "table",
) -> None:
    """Validate everything that is stored; exit code 3 when a rule is broken.

    **Examples**: `drumlin audit` · `drumlin audit --store /var/lib/drumlin -o shacl > report.ttl`
    """
    from api.cli import auditing

    try:
        form = auditing.Form(output)
    except ValueError:
        raise typer.BadParameter(f"{output!r} is not one of table, json, shacl", param_hint="--output") from None
    if store is None:
        raise typer.Exit(auditing.service(url, form))
    raise typer.Exit(auditing.directory(_settings(config, base, None, None), store, form))


@app.command()
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
    from api.cli import exporting

    narrowed = {"type": type, "domain": domain, "namespace": namespace, "owner": owner, "prefix": prefix}
    narrowed["frame"] = frame
    exporting.dump(url, format, narrowed)


@app.command("import")
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
) -> None:
    """Write the graphs of an export into a store; exit code 3 when some belong to another owner and were left.

    **Example**: `drumlin dump | drumlin import - --format nquads --store ./copy`
    """
    from api.cli import exporting

    settings = _settings(config, base, None, None)
    raise typer.Exit(exporting.load(settings, path, format, owner, store=store, url=url))


@app.command()
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


for operation in (
    operations.backup,
    operations.restore,
    operations.check,
    operations.optimize,
    updates.update,
    finding.search,
    finding.events,
):
    app.command()(operation)


@app.command()
def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    print(installed("drumlin"))


if __name__ == "__main__":
    main()
