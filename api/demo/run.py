"""``drumlin demo``: the whole path on a sample cluster, each step shown and checked.

Cluster → graph → SPARQL → resolved PromQL → series. The service is the real one on the embedded store, asked over HTTP by the
real client; Prometheus and node-exporter are real where they are installed. Where they are not, the steps that need them are
skipped, saying what to install.
"""

from __future__ import annotations

import logging
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import structlog
from rich.console import Console

import drumlin
from drumlin.api.bootstrap import assemble, now
from drumlin.api.cli.output import emit_table
from drumlin.api.cli.serving import listening_address, run_server
from drumlin.api.demo import agent_site, function_calls, history, kuscia_network, prometheus, sample
from drumlin.exporters.kubectl.dump import DumpSource
from drumlin.exporters.kubernetes.kinds import KINDS
from drumlin.kg.client import Client
from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.config.settings import DomainSettings, Settings
from drumlin.kg.errors import DrumlinError

WORKLOAD = f"{sample.CLUSTER}/payments/deployment/checkout"
METRIC = "cpu_usage"
LIVE_SCRAPE = "1s"
_LIVE_SECONDS = 45.0
_GOES_ON = "15s"  # how often what is generated is scraped, after its history

COUNTS = """PREFIX : <https://w3id.org/drumlin/ns#>
SELECT ?kind (COUNT(?entity) AS ?count) WHERE { GRAPH ?entity { ?entity a ?type } BIND(STRAFTER(STR(?type), "#") AS ?kind) }
GROUP BY ?kind ORDER BY DESC(?count) ?kind"""

out = Console(highlight=False)


@dataclass
class Demo:
    """What is running, and which steps did not give real results."""

    days: int
    began: float = field(default_factory=time.monotonic)
    missing: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        """Announce a step."""
        out.print(f"\n[bold]{text}[/bold] [dim]({time.monotonic() - self.began:.1f} s)[/dim]", soft_wrap=True)


System = Literal["edge", "kuscia", "agents", "functions"]


def demo(*, once: bool, port: int, days: int, system: System = "edge") -> int:
    """Run the demo and return its exit code: 1 when a step gave no real result and ``once`` was asked for."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    show = Demo(days)
    directory = Path(tempfile.mkdtemp(prefix="drumlin-demo-"))
    try:
        {"edge": _edge, "kuscia": _kuscia, "agents": _agents, "functions": _functions}[system](
            show, directory, port, once=once
        )
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    for each in show.missing:
        out.print(f"[yellow]not shown:[/yellow] {each}")
    if once and not show.missing:
        out.print("\nevery step gave real results")
    return 1 if once and show.missing else 0


def _edge(show: Demo, directory: Path, port: int, *, once: bool) -> None:
    scaled_down = now() - timedelta(days=show.days / 2)
    with (
        _telemetry(show, directory, scaled_down) as url,
        _sample_service(show, directory, url, port, scaled_down) as client,
    ):
        _graph(show, client)
        _series(show, client, fetch=url is not None)
        if not once:
            _keep_serving(client, WORKLOAD, f"history {WORKLOAD} {METRIC} --last 7d")


def _kuscia(show: Demo, directory: Path, port: int, *, once: bool) -> None:
    with kuscia_network.telemetry(directory) as url, listening_address("127.0.0.1", port) as chosen:
        settings = kuscia_network.settings(url, chosen)
        source = kuscia_network.source(directory / "cluster", settings)
        with _service(directory, settings, source, chosen) as client:
            _graph(show, client)
            show.say("How is each domain?")
            if not kuscia_network.board(client):
                show.missing.append("the board of domains is empty")
            if url is None:
                show.missing.append("figures of routes, since Prometheus is not installed: apt-get install prometheus")
            else:
                show.say("Each route's own figures, resolved and fetched")
                if len(set(kuscia_network.routes(client).values())) < 8:
                    show.missing.append("the figures of both routes")
            show.say("Why did job-fraud fail?")
            if not kuscia_network.cause(client):
                show.missing.append("the cause of the failure")
            if not once:
                _keep_serving(
                    client,
                    kuscia_network.FAILED,
                    f"query why-failed -p work={kuscia_network.FAILED}",
                )


def _agents(show: Demo, directory: Path, port: int, *, once: bool) -> None:
    with (
        _machine(show, directory) as url,
        listening_address("127.0.0.1", port) as chosen,
        _service(directory, agent_site.settings(url, chosen), None, chosen) as client,
    ):
        show.say(
            "This machine's agent registers it; a second agent has a virtual machine, and a Collector reports a host"
        )
        agent_site.register(client)
        _graph(show, client)
        show.say("Who manages what, and who is above whom?")
        if not agent_site.chains(client):
            show.missing.append("the chain of agents")
        show.say("An agent that says nothing for three intervals is silent; nothing else was written meanwhile")
        if not agent_site.fall_silent(client, _until):
            show.missing.append("the silent agent")
        if url is not None:
            _live(show, client, agent_site.HOST)
        if not once:
            _keep_serving(client, agent_site.HOST, f"agents -u {client.url}")


@contextmanager
def _machine(show: Demo, directory: Path) -> Iterator[str | None]:
    """Start a real Prometheus that scrapes a real node-exporter; yield its address."""
    if not prometheus.find_binary("prometheus"):
        show.missing.append("series, since Prometheus is not installed: apt-get install prometheus")
        yield None
        return
    home = directory / "prometheus"
    home.mkdir()
    with (
        _node_exporter(show, home) as targets,
        prometheus.start_prometheus(home, targets=targets, scrape_interval=LIVE_SCRAPE) as server,
    ):
        yield server.url


def _functions(show: Demo, directory: Path, port: int, *, once: bool) -> None:
    with function_calls.telemetry(directory) as url, listening_address("127.0.0.1", port) as chosen:
        settings = function_calls.settings(url, chosen)
        source = function_calls.source(directory / "cluster", settings)
        with _service(directory, settings, source, chosen) as client:
            _graph(show, client)
            _step(show, "Which function runs in which pods?", function_calls.functions(client))
            if url is None:
                show.missing.append("calls, since Prometheus is not installed: apt-get install prometheus")
            else:
                _observed(show, client)
            _step(show, "How fast does it scale?", function_calls.scaling(client))
            if not once:
                _keep_serving(client, function_calls.FUNCTION, f"dag {function_calls.FRONTEND} -o mermaid")


def _step(show: Demo, title: str, table: tuple[tuple[str, ...], list[tuple[object, ...]]]) -> None:
    """Show a table; nothing in it is a step that failed."""
    show.say(title)
    emit_table(*table)
    if not table[1]:
        show.missing.append(title)


def _observed(show: Demo, client: Client) -> None:
    """Show the calls that were observed, compared with those that were generated, and what a failure of one workload reaches."""
    _until(lambda: function_calls.seen(client) == len(function_calls.CALLS), 60, "the calls were not observed")
    show.say("Who calls whom, as the service graph in Prometheus tells: resolved, and fetched for each pair")
    found = function_calls.calls(client, now().isoformat())
    emit_table(function_calls.COLUMNS, [(*pair, *each) for pair, each in sorted(found.items())])
    if wrong := function_calls.differing(found):
        show.missing.append(f"the figures of {', '.join(wrong)} are not those that were generated")
    show.say("What a failure of orders-db reaches")
    picture = client.reach(function_calls.DATABASE, edges="^calls", format="mermaid")
    out.print(picture, soft_wrap=True)
    if "frontend" not in picture:
        show.missing.append("the blast radius of orders-db")
    minutes = client.values(["invocation_rate"], [function_calls.FUNCTION], at=now().isoformat(), window="5m")
    show.say("Invocations of the function per minute")
    rates = [round(row["value"], 1) for row in minutes]
    out.print(*rates)
    if rates != [function_calls.PER_MINUTE]:
        show.missing.append("invocations per minute")


@contextmanager
def _telemetry(show: Demo, directory: Path, scaled_down: datetime) -> Iterator[str | None]:
    """Start a real Prometheus that holds generated history and scrapes a real node-exporter; yield its address."""
    if not prometheus.find_binary("prometheus") or not prometheus.find_binary("promtool"):
        show.missing.append("series, since Prometheus is not installed: apt-get install prometheus")
        yield None
        return
    home = directory / "prometheus"
    home.mkdir()
    text = directory / "history.om"
    end = int(now().timestamp()) // history.STEP * history.STEP
    with out.status(f"generating {show.days} days of history …"):
        generated = history.GeneratedHistory(end - show.days * 86_400, scaled_down)
        count = generated.write(text, end + 1)
        prometheus.backfill(text, home)
        text.unlink()
    with (
        _node_exporter(show, home) as targets,
        history.scraped(generated, time.time) as going_on,
        prometheus.start_prometheus(
            home,
            targets={**targets, "generated": prometheus.ScrapeTarget(going_on, {}, _GOES_ON, as_is=True)},
            scrape_interval=LIVE_SCRAPE,
        ) as server,
    ):
        show.say(f"Prometheus runs at {server.url} with {count:,} generated samples")
        yield server.url


@contextmanager
def _node_exporter(show: Demo, home: Path) -> Iterator[dict[str, prometheus.ScrapeTarget]]:
    if not prometheus.find_binary("prometheus-node-exporter"):
        show.missing.append(
            "live series, since node-exporter is not installed: apt-get install prometheus-node-exporter"
        )
        yield {}
        return
    with prometheus.start_node_exporter(home) as exporter:
        target = f"127.0.0.1:{exporter.port}"
        yield {"node-exporter": prometheus.ScrapeTarget(target, {"instance": sample.THIS_MACHINE})}


@contextmanager
def _sample_service(show: Demo, directory: Path, url: str | None, port: int, scaled_down: datetime) -> Iterator[Client]:
    """Load the sample into a fresh store and serve it; yield a client."""
    cluster = directory / "cluster"
    sample.write_sample(cluster, days=show.days, now=now())
    sample.write_scaled_down(cluster, scaled_down)
    with (
        listening_address("127.0.0.1", port) as chosen,
        _service(
            directory, _settings(url, chosen, directory), DumpSource([cluster], KINDS, clock=now), chosen
        ) as client,
    ):
        yield client


@contextmanager
def _service(directory: Path, settings: Settings, source: DumpSource | None, port: int) -> Iterator[Client]:
    """Load a dump, where there is one, into a fresh store and serve it; yield a client."""
    parts = assemble(settings, directory=directory / "store", source=source)
    stop = threading.Event()
    server = threading.Thread(target=run_server, args=(parts, "127.0.0.1", port, stop), name="http")
    server.start()
    try:
        with drumlin.connect(f"http://127.0.0.1:{port}") as client:
            _until(lambda: _ready(client), 60, "the service did not become ready")
            yield client
    finally:
        stop.set()
        server.join(15)
        parts.close()


def _settings(url: str | None, port: int, directory: Path) -> Settings:
    found: list[DatasourceSettings] = []
    if url:
        scrape = f"{history.STEP}s"
        found.append(
            DatasourceSettings.model_validate(
                {
                    "name": "prometheus-main",
                    "kind": "prometheus",
                    "url": url,
                    "service": "monitoring/prometheus",
                    "scrape_interval": scrape,
                }
            )
        )
    grafana = {
        "workload": "https://grafana.example/d/workload?var-namespace={namespace}&var-type={kind}&var-workload={name}"
    }
    found.append(
        DatasourceSettings.model_validate(
            {
                "name": "grafana-main",
                "kind": "grafana",
                "url": "https://grafana.example",
                "service": "monitoring/grafana",
                "dashboards": grafana,
            }
        )
    )
    kept = {"name": "forecasts", "kind": "parquet", "url": (directory / "forecasts").as_uri()}
    found.append(DatasourceSettings.model_validate(kept))
    site = DomainSettings.model_validate(
        {"id": "glaciation-node1", "type": "GlaciationNode", "url": "https://glaciation-node1.example/"}
    )
    return Settings(base=f"http://localhost:{port}", cluster=sample.CLUSTER, domain=site, datasource=tuple(found))


def _ready(client: Client) -> bool:
    try:
        return bool(client.ready())
    except DrumlinError:
        return False  # not listening yet; the deadline decides


def _until(condition: Callable[[], bool], seconds: float, failure: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise DrumlinError(failure, hint="run it again; if it happens again, report it with what was printed")
        time.sleep(0.1)


def _graph(show: Demo, client: Client) -> None:
    rows = client.sparql(COUNTS)
    show.say(f"The graph of the sample cluster: {sum(row['count'] for row in rows)} entities, by kind")
    emit_table(("kind", "count"), [(row["kind"], row["count"]) for row in rows])
    if not rows:
        show.missing.append("the graph is empty")


def _series(show: Demo, client: Client, *, fetch: bool) -> None:
    resolution: dict[str, Any] = client.resolve(WORKLOAD, METRIC, last=f"{show.days}d", step="5m")
    show.say(f"{METRIC} of {WORKLOAD}, resolved")
    out.print(f"[green]{resolution['query']}[/green]", soft_wrap=True)
    out.print(f"unit {resolution['unit']}, at {resolution['endpoint']}", soft_wrap=True)
    if not fetch:
        return
    workload = client.workload(WORKLOAD)
    series = workload.history(METRIC, last=f"{show.days}d", step="5m")
    show.say(f"Its history, ready for a forecast: {len(series):,} rows, {min(series.coverage.values()):.1%} covered")
    table = series.to_arrow()
    emit_table(table.column_names, [tuple(row.values()) for row in table.slice(0, 5).to_pylist()])
    if not len(series) or min(series.coverage.values()) < 0.9:
        show.missing.append(f"the history of {WORKLOAD} is incomplete")
    _live(show, client, f"{sample.CLUSTER}/-/node/{sample.THIS_MACHINE}")


def _live(show: Demo, client: Client, machine: str) -> None:
    """Show the machine's own CPU, as node-exporter measures it now."""
    if any("node-exporter" in each for each in show.missing):
        return
    found: list[float] = []

    def measured() -> bool:
        try:
            series = client.history(machine, "mem_usage", last="30s", step="1s", gaps="drop")
        except DrumlinError:
            return False  # not scraped yet; the deadline decides
        found.extend(series.to_arrow()["y"].to_pylist())
        return bool(found)

    try:
        _until(measured, _LIVE_SECONDS, "node-exporter was not scraped")
    except DrumlinError as error:
        show.missing.append(f"live series: {error}")
        return
    show.say(f"And live, from this machine's node-exporter: {found[-1] / 1e9:.2f} GB of memory in use")


def _keep_serving(client: Client, entity: str, question: str) -> None:
    out.print(f"\nOpen [bold]{client.url}[/bold], or ask in another terminal:")
    out.print(f"  drumlin get {entity} -u {client.url}\n  drumlin {question} -u {client.url}", soft_wrap=True)
    out.print(f"The page that shows the most: [bold]{client.url}/doc/{entity}[/bold]", soft_wrap=True)
    out.print("Press Ctrl-C to end.")
    ended = threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: ended.set())
    while not ended.wait(3600):
        pass
