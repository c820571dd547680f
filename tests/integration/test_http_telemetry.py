"""Telemetry of many entities over a listening service: selections, streams in every format, one's own PromQL, fetching directly."""

from __future__ import annotations

import asyncio
import io
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pandas
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from mcp import Client

import drumlin
from drumlin.kg.client.download import file_of
from drumlin.kg.client.problems import raise_for_problem
from drumlin.kg.client.series import Series
from drumlin.kg.errors import InvalidDocument, InvalidInput, ResourceNotFound, TooLarge
from drumlin.kg.rdf.jsonld import lines
from drumlin.kg.store.protocol import GraphWrite
from drumlin.kg.telemetry import history, wire
from tests.agents import over_http, refused, told
from tests.integration.conftest import RealPrometheus, at
from tests.integration.test_prometheus_history import (
    CHECKOUT,
    LEDGER,
    NODE_A,
    checkout_cpu,
    checkout_cpu_by_rate,
    documents,
)
from tests.service.conftest import Service, drumlin_asks, serving

WINDOW = {"start": at(5).isoformat(), "end": at(235).isoformat(), "step": "5m"}
POINTS = 47


@pytest.fixture(scope="module")
def config(prometheus: RealPrometheus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration with the real server."""
    path = tmp_path_factory.mktemp("config") / "drumlin.toml"
    path.write_text(
        f'[[datasource]]\nname = "prometheus-main"\nkind = "prometheus"\nurl = "{prometheus.url}"\nscrape_interval = "60s"\n'
    )
    return path


@pytest.fixture(scope="module")
def service(config: Path) -> Iterator[Service]:
    """A service with the workloads of the sample and one real Prometheus."""
    with (
        serving("--store", str(config.parent / "store"), "--config", str(config)) as running,
        drumlin.connect(running.url) as client,
    ):
        client.apply([GraphWrite.of(str(each["id"]), lines(each), "test") for each in documents()], atomic=True)
        yield running


@pytest.fixture
def client(service: Service) -> Iterator[drumlin.Client]:
    """A client of the service."""
    with drumlin.connect(service.url) as connected:
        yield connected


@pytest.fixture
def http(service: Service) -> Iterator[httpx.Client]:
    """A plain HTTP client of the service."""
    with httpx.Client(base_url=service.url, timeout=60) as opened:
        yield opened


def test_every_stream_holds_the_same_rows_and_says_what_is_missing(http: httpx.Client) -> None:
    """Arrow, Parquet, CSV and NDJSON carry the same series; CSV and NDJSON report what is missing on request, in a last line."""
    body = {"entities": [LEDGER, CHECKOUT, "prod/payments/deployment/nope"], "metrics": ["mem_usage"], **WINDOW}

    def posted(form: str, *, status: bool = False) -> bytes:
        answer = http.post("/history", json={**body, "status": status}, params={"format": form})
        assert answer.headers["X-Drumlin-Failures"] == "2"
        return answer.raise_for_status().content

    table, account = wire.read(posted("arrow"))
    assert len(table) == POINTS
    assert [each["unique_id"] for each in account["failures"]] == [CHECKOUT, "prod/payments/deployment/nope"]
    parquet = pyarrow.parquet.ParquetFile(io.BytesIO(posted("parquet")))
    footer = json.loads(parquet.metadata.metadata[b"drumlin"])
    assert footer["failures"] == account["failures"]
    assert parquet.read()["y"].to_pylist() == table["y"].to_pylist()
    text = posted("csv")
    assert pyarrow.csv.read_csv(io.BytesIO(text))["y"].to_pylist() == table["y"].to_pylist()
    rows = posted("ndjson")
    assert [json.loads(line)["y"] for line in rows.splitlines()] == table["y"].to_pylist()
    for plain, mark, form in ((text, b"# ", "csv"), (rows, b"", "ndjson")):
        with_status = posted(form, status=True)
        assert with_status.startswith(plain)
        last = json.loads(with_status.removeprefix(plain).removeprefix(mark))
        assert last == {"failures": account["failures"], "warnings": account["warnings"]}


@pytest.mark.parametrize("size", [1, 7, 5_000])
def test_a_stream_is_read_however_it_comes(http: httpx.Client, size: int) -> None:
    """Chunks of any size are one table; less than the whole is told."""
    body = {"entities": [LEDGER, NODE_A], "metrics": ["mem_usage"], **WINDOW}
    content = http.post("/history", json=body, params={"format": "arrow"}).content
    chunks = [content[place : place + size] for place in range(0, len(content), size)]

    assert wire.read(file_of(iter(chunks)))[0].equals(wire.read(content)[0])
    with pytest.raises(InvalidDocument):
        wire.read(file_of(iter(chunks[: len(chunks) // 2])))


def test_a_stream_of_many_parts_is_one_table(http: httpx.Client) -> None:
    """Ten days every ten seconds are more than one part holds; what is read is one table, whole and in order."""
    body = {
        "entities": [NODE_A],
        "metrics": ["mem_usage", "cpu_usage"],
        "start": at(0).isoformat(),
        "end": at(14_000).isoformat(),
        "step": "1s",
    }
    plan = 14_000 * 60 + 1
    assert plan > history.PART_VALUES

    seen: list[int] = []
    content = http.post("/history", json=body, params={"format": "arrow"}).content
    table, account = wire.read(content, seen.append)

    assert seen == [1, 2]
    assert len(table) == plan
    assert [each["metric"] for each in account["failures"]] == ["cpu_usage"]
    with pytest.raises(InvalidDocument):
        wire.read(content[:-600])


def test_entities_are_selected_by_filter_or_query(client: drumlin.Client, http: httpx.Client) -> None:
    """All of a class, or what a SPARQL query finds, without naming any."""
    by_type = client.history(type="Deployment", namespace="payments", metrics="mem_usage", **WINDOW)
    query = "PREFIX d: <https://w3id.org/drumlin/ns#> SELECT ?entity WHERE { ?entity a d:Deployment ; d:name 'ledger' }"
    by_query = client.history(sparql=query, metrics="mem_usage", **WINDOW)

    assert set(by_type.coverage) == set(by_query.coverage) == {(LEDGER, "mem_usage")}
    assert len(by_type.failures) > len(by_query.failures) == 0
    for wrong in ({}, {"entities": [LEDGER], "type": "Node"}, {"sparql": "ASK {}"}, {"type": "Ingress"}):
        answer = http.post("/history", json={"metrics": ["mem_usage"], **WINDOW, **wrong})
        assert answer.status_code == 422, wrong
    assert (
        http.post(
            "/history", json={"sparql": "SELECT * { SERVICE <http://x/> {} }", "metrics": ["a"], **WINDOW}
        ).status_code
        == 403
    )


def test_many_are_resolved_in_one_request(client: drumlin.Client) -> None:
    """Each pair has its line, in order; without metrics, each entity's own."""
    found = client.resolve_many([LEDGER, "prod/payments/deployment/nope", NODE_A], ["mem_usage"], last="1h")

    assert [each["metric"] for each in found] == ["mem_usage"] * 3
    assert found[1]["problem"]["status"] == 404
    assert found[0]["query"] == client.resolve(LEDGER, "mem_usage", last="1h")["query"]
    assert len(client.resolve_many(NODE_A)) >= 7


def test_a_query_of_ones_own_sees_the_entity_alone(client: drumlin.Client, http: httpx.Client) -> None:
    """The caller's PromQL runs over exactly the pods of the entity; an attempt to see more is refused."""
    own = client.history(CHECKOUT, query="sum(rate(container_cpu_usage_seconds_total[359999ms]))", **WINDOW)

    assert own.table["y"].to_pylist() == pytest.approx(checkout_cpu_by_rate())
    params = {"entity": CHECKOUT, "query": "x'} or vector(42) or up{job='x"}
    assert http.get("/resolve", params=params).status_code == 422
    assert (
        http.get("/resolve", params={**params, "query": "max(a)"})
        .json()["query"]
        .startswith('max(a{namespace="payments",pod=~"')
    )


def test_explaining_asks_nothing(client: drumlin.Client) -> None:
    """What would be asked is told with the numbers, also what could not be."""
    found = client.explain([LEDGER, "prod/payments/deployment/nope"], "mem_usage", **WINDOW)

    assert (found["points"], found["step"], found["values"]) == (POINTS, 300, 2 * POINTS)
    assert found["queries"][0]["curl"].startswith("curl ")
    assert found["queries"][1]["problem"]["status"] == 404


def test_fetching_directly_gives_the_same(
    client: drumlin.Client, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service resolves, this process fetches with its own configuration: equal table, coverage and failures."""
    monkeypatch.setenv("DRUMLIN_CONFIG", str(config))
    entities = [CHECKOUT, LEDGER, "prod/payments/deployment/nope"]
    seen: list[int] = []

    direct = client.history(entities, "cpu_usage", via="direct", progress=seen.append, **WINDOW)
    through = client.history(entities, "cpu_usage", **WINDOW)

    assert direct.table.equals(through.table)
    assert (direct.coverage, direct.gaps, direct.failures) == (through.coverage, through.gaps, through.failures)
    assert seen[-1] == 3
    (tmp_path / "other.toml").write_text(
        '[[datasource]]\nname = "other"\nkind = "prometheus"\nurl = "http://127.0.0.1:9"\n'
    )
    monkeypatch.setenv("DRUMLIN_CONFIG", str(tmp_path / "other.toml"))
    with pytest.raises(ResourceNotFound, match="does not stand in the drumlin.toml here"):
        client.history(CHECKOUT, "cpu_usage", via="direct", **WINDOW)


def test_the_asynchronous_client_fetches_files_and_directly_too(
    client: drumlin.Client, service: Service, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same table through the service, directly and in a file, at the same time; what it reads is read in other threads."""
    monkeypatch.setenv("DRUMLIN_CONFIG", str(config))
    entities = [CHECKOUT, LEDGER, "prod/payments/deployment/nope"]
    told: list[tuple[int, int]] = []

    def note(done: int) -> None:
        told.append((done, threading.get_ident()))

    async def ask() -> tuple[Series, Series]:
        async with drumlin.connect_async(service.url) as twin:
            through, direct, _ = await asyncio.gather(
                twin.history(entities, "cpu_usage", progress=note, **WINDOW),
                twin.history(entities, "cpu_usage", via="direct", **WINDOW),
                twin.save_history(tmp_path / "x.parquet", entities, "cpu_usage", **WINDOW),
            )
            with pytest.raises(ResourceNotFound):
                await twin.save_history(tmp_path / "y.csv", "prod/payments/deployment/nope", "cpu_usage", **WINDOW)
            return through, direct

    through, direct = asyncio.run(ask())
    expected = client.history(entities, "cpu_usage", **WINDOW)
    assert direct.table.equals(through.table)
    assert through.table.equals(expected.table)
    assert pyarrow.parquet.read_table(tmp_path / "x.parquet").num_rows == len(expected)
    assert not (tmp_path / "y.csv").exists()
    assert told
    assert threading.get_ident() not in {thread for _, thread in told}


def test_series_go_into_the_tools_of_forecasters(client: drumlin.Client, tmp_path: Path) -> None:
    """Parquet has the table as it is, Prophet gets naive UTC, a wide table has a column per series at equal times."""
    series = client.history([CHECKOUT, LEDGER], ["cpu_usage", "mem_usage"], **WINDOW)

    series.to_parquet(tmp_path / "series.parquet")
    assert pyarrow.parquet.read_table(tmp_path / "series.parquet").equals(series.table)
    frame = series.to_prophet(LEDGER)
    assert list(frame.columns) == ["ds", "y"]
    assert frame["ds"].dt.tz is None
    assert str(frame["ds"].iloc[0]) == "2026-11-01 00:05:00"
    nixtla = series.to_nixtla("mem_usage")
    assert list(nixtla.columns) == ["unique_id", "ds", "y"]
    whole = frame["y"].interpolate(limit_area="inside").dropna()
    assert nixtla[nixtla["unique_id"] == LEDGER]["y"].tolist() == pytest.approx(whole.tolist())
    assert pandas.tseries.frequencies.to_offset(series.freq) == pandas.Timedelta(seconds=series.step)
    with pytest.raises(InvalidInput, match="2 metrics"):
        series.to_nixtla()
    wide = series.wide()
    assert wide.column_names == ["ds", f"{CHECKOUT} cpu_usage", f"{LEDGER} mem_usage"]
    assert (
        wide[f"{LEDGER} mem_usage"].to_pylist() == client.history(LEDGER, "mem_usage", **WINDOW).table["y"].to_pylist()
    )
    with pytest.raises(InvalidInput, match="2 series fit"):
        series.to_prophet()


def test_files_are_written_as_they_come(client: drumlin.Client, service: Service, tmp_path: Path) -> None:
    """A file is there when all of it has come, and only then; its suffix says its format."""
    for suffix in ("parquet", "arrow", "csv", "ndjson"):
        sizes: list[int] = []
        wanted = [LEDGER, "prod/payments/deployment/nope"]
        failed = client.save_history(tmp_path / f"x.{suffix}", wanted, "mem_usage", progress=sizes.append, **WINDOW)
        assert [each["unique_id"] for each in failed] == wanted[1:]
        assert sizes == sorted(sizes)
        assert sizes[-1] >= (tmp_path / f"x.{suffix}").stat().st_size
    assert pyarrow.parquet.read_table(tmp_path / "x.parquet").num_rows == POINTS
    assert pyarrow.csv.read_csv(tmp_path / "x.csv").num_rows == POINTS
    assert len((tmp_path / "x.ndjson").read_text().splitlines()) == POINTS
    with pytest.raises(ResourceNotFound):
        client.save_history(tmp_path / "y.parquet", "prod/payments/deployment/nope", "mem_usage", **WINDOW)
    with pytest.raises(InvalidInput, match="suffix"):
        client.save_history(tmp_path / "y.xlsx", LEDGER, "mem_usage", **WINDOW)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.arrow", "x.csv", "x.ndjson", "x.parquet"]


def test_the_command_line_reads_ids_explains_and_writes_files(service: Service, tmp_path: Path) -> None:
    """Ids come from stdin, a file gets the series, explain prints runnable lines."""
    window = [f"--{name}={value}" for name, value in WINDOW.items()]
    common = [*window, "--url", service.url]

    done = drumlin_asks(
        "history", "-", "mem_usage", "--to", str(tmp_path / "a.parquet"), *common, input=f"{LEDGER}\n{NODE_A}\n"
    )
    assert done.returncode == 0, done.stderr
    assert pa.parquet.read_table(tmp_path / "a.parquet").num_rows == 2 * POINTS
    told = drumlin_asks("history", LEDGER, "mem_usage", "--explain", *common)
    assert told.stdout.splitlines()[0] == f"# 1 series of {POINTS} points every 300 s"
    assert told.stdout.splitlines()[1].startswith("curl -sS")


def test_json_is_for_small_answers(http: httpx.Client) -> None:
    """What is too much for JSON is refused before anything is asked, with the numbers."""
    body = {
        "entities": [NODE_A],
        "metrics": ["mem_usage"],
        "start": at(0).isoformat(),
        "end": at(14_000).isoformat(),
        "step": "1s",
    }
    answer = http.post("/history", json=body)
    assert answer.status_code == 413
    assert "200,000" in answer.json()["detail"]
    with pytest.raises(TooLarge):
        raise_for_problem(answer)


def test_prometheus_api_client_gets_the_same_series(client: drumlin.Client) -> None:
    """A resolution gives a configured connection and its arguments, for jobs that use that library already; of pods' edges an estimate."""
    connection, arguments = client.resolve(CHECKOUT, "cpu_usage", **WINDOW).prometheus()
    (found,) = connection.custom_query_range(**arguments)
    ours = client.history(CHECKOUT, "cpu_usage", **WINDOW).table["y"].to_pylist()
    assert [float(value) for _, value in found["values"]] == pytest.approx(checkout_cpu_by_rate())
    assert ours == pytest.approx(checkout_cpu())  # history asks precisely


def test_what_one_query_does_not_have_gives_no_connection(client: drumlin.Client) -> None:
    """A resolution in parts, and the lines of a log, are refused for that library with what to use instead."""
    resolved = client.resolve(CHECKOUT, "cpu_usage", **WINDOW)
    half = {"query": "up", "start": resolved["start"], "end": resolved["end"]}
    for other in ({"parts": [half, half]}, {"endpoint": "http://l/loki/api/v1/query_range"}):
        with pytest.raises(InvalidInput) as refused:
            type(resolved)({**resolved, **other}).prometheus()
        assert refused.value.hint == "use history"


def test_a_query_of_ones_own_is_resolved_by_the_client(client: drumlin.Client) -> None:
    """The client's resolve takes PromQL, limited to the entity like that of history."""
    resolved = client.resolve(CHECKOUT, "promql", query="sum(up)", **WINDOW)
    assert 'pod=~"checkout-86b96c86dc-aaaaa|checkout-86b96c86dc-bbbbb"' in resolved["query"]
    (found,) = client.resolve_many([CHECKOUT], ["cpu_usage"], **WINDOW)
    assert found.prometheus()[1]["step"] == "300"


def test_an_agent_is_told_statistics_and_never_samples(service: Service) -> None:
    """Over both windows of an agent's question: least, mean, most and when, with the unit; a wrong unit is an error of ours."""

    async def step(agent: Client) -> tuple[str, str]:
        window = {"start": WINDOW["start"], "end": WINDOW["end"]}
        return (
            await told(agent, "series_summary", id=LEDGER, metric="mem_usage", unit="MB", **window),
            await refused(agent, "series_summary", id=LEDGER, metric="mem_usage", unit="kWh", **window),
        )

    summary, wrong = over_http(service.url, step)
    facts = dict(line.split("\t")[:2] for line in summary.split("\n") if "\t" in line)
    assert facts["unit"] == "MBy"
    assert 0 < float(facts["least"]) <= float(facts["mean"]) <= float(facts["most"])
    assert re.search(r"^most\t\S+\t2026-\S+Z$", summary, re.MULTILINE)
    assert len(summary) < 900
    assert "kWh" in wrong
