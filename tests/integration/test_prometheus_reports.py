"""What others' clients were reported for: a test per report, on a real Prometheus or with the answer that was reported."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import DatasourceRefused, InvalidInput, InvalidSettings, MetricMissing
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.fetch.prometheus import Prometheus, decode_values
from drumlin.kg.telemetry.history import History
from drumlin.kg.telemetry.quoting import literally, quote
from drumlin.kg.telemetry.resolve import Resolver
from drumlin.kg.telemetry.series import Grid, Window
from tests.integration.conftest import RealPrometheus, at, odd_values
from tests.integration.test_prometheus_faults import FaultServer, _datasource, _one, server  # noqa: F401  # a fixture
from tests.integration.test_prometheus_history import CHECKOUT, LEDGER, NODE_A, _graph
from tests.unit.telemetry_store import IRIS

MEMORY = "container_memory_working_set_bytes"
FIRST = Grid(int(at(0).timestamp()), int(at(4).timestamp()), 60)


def _values(prometheus: RealPrometheus, query: str, grid: Grid = FIRST) -> list[float]:
    with Prometheus(prometheus.datasource()) as client:
        return [value for part in client.series(query, grid).parts for value in part.values.to_pylist()]


def test_krr_60_and_97_a_long_list_of_pods_goes_as_a_form_with_whole_seconds(
    prometheus: RealPrometheus,
    server: FaultServer,  # noqa: F811  a fixture
) -> None:
    """60 kB of pod names pass, and no fraction of a second stands in what is sent."""
    names = "|".join(literally(f"pod-{number:06}.x") for number in range(4000))
    assert _values(prometheus, f'sum({MEMORY}{{pod=~"ledger-797bcddfd6-n9hxf|{names}"}})'.replace("\\", "\\\\"))

    server.replies = [_one]
    resolver = Resolver(_graph(), IRIS, [_datasource(server.server_port, timeout=20)])
    with History(resolver) as history:
        history.fetch(NODE_A, "mem_usage", start=at(0.123), end=at(60.456), step="1m")
    assert all(server.forms[0][name].isdigit() for name in ("start", "end", "step"))


def test_maia_251_an_empty_431_and_a_redirect_are_told_and_slashes_do_not_double(
    server: FaultServer,  # noqa: F811  a fixture
) -> None:
    """A refusal without words still names the status; a redirect never turns the POST into a GET; the path has one slash."""
    given = {"name": "p", "kind": "prometheus", "url": f"http://127.0.0.1:{server.server_port}//", "timeout": 20}
    datasource = Datasource.from_settings(DatasourceSettings.model_validate(given), IRIS, None)
    assert datasource.url.endswith(str(server.server_port))
    with Prometheus(datasource) as client:
        server.replies = [(431, {}, b"")]
        with pytest.raises(DatasourceRefused, match="answered 431"):
            client.series("up", FIRST)
        server.replies = [(301, {"Location": "/api/v1/query_range"}, b"")]
        with pytest.raises(DatasourceRefused, match="not followed"):
            client.series("up", FIRST)
    assert len(server.forms) == 2


@pytest.mark.parametrize(
    "value", ["x'} or vector(42) or up{job='x", '"} or vector(42) or up{a="', "back\\slash", 'q"uote']
)
def test_litellm_27013_a_value_does_not_become_a_query(prometheus: RealPrometheus, value: str) -> None:
    """A namespace that looks like an injection selects its own series and nothing else."""
    assert _values(prometheus, f"sum({MEMORY}{{namespace={quote(value)}}})") == [float(odd_values().index(value))] * 5


@pytest.mark.parametrize("value", ["a+b", "a&b~c-d", "%41", "#c"])
def test_hertzbeat_4376_plus_and_ampersand_arrive(prometheus: RealPrometheus, value: str) -> None:
    """What a form encodes comes out of it as it went in."""
    assert _values(prometheus, f"sum({MEMORY}{{namespace={quote(value)}}})") == [float(odd_values().index(value))] * 5


@pytest.mark.parametrize("value", ["a.b", "a|b", ".*", "^$", "(", "a+b"])
def test_grafana_114668_a_regular_expression_takes_a_name_literally(prometheus: RealPrometheus, value: str) -> None:
    """Marks of the regular expression in a pod's name match themselves."""
    query = f'sum({MEMORY}{{namespace="odd",pod=~{quote(literally(value))}}})'
    assert _values(prometheus, query) == [float(odd_values().index(value))] * 5


def test_thanos_3353_and_mimir_6711_both_ends_are_multiples_of_the_step(server: FaultServer) -> None:  # noqa: F811  a fixture
    """Whatever the window, what is asked can be served from a cache and has no shifted points."""
    server.replies = [_one]
    resolver = Resolver(_graph(), IRIS, [_datasource(server.server_port, timeout=20)])
    with History(resolver) as history:
        for step in (60, 420, 3600):
            history.fetch(NODE_A, "mem_usage", start=at(3.7), end=at(700.1), step=timedelta(seconds=step))
    assert [int(form[name]) % int(form["step"]) for form in server.forms for name in ("start", "end")] == [0] * 6


def test_grafana_13055_not_a_number_and_infinity_break_nothing() -> None:
    """The API writes them as strings; they are read as what they are, beside numbers of any form."""
    raw = b'[[1,"NaN"],[2,"+Inf"],[3,"-Inf"],[4,"1e-7"],[5,"0"],[6.5,"12345678901234567890"]]'
    assert str(decode_values(raw).values.to_pylist()) == "[nan, inf, -inf, 1e-07, 0.0, 1.2345678901234567e+19]"


def test_grafana_21417_a_rate_looks_back_four_scrapes_at_least() -> None:
    """However short the step, the window of a rate holds the scrapes that it needs, and the one before it."""
    for interval, step, window in (
        ("15s", "15s", "[74999ms]"),
        ("60s", "1m", "[299999ms]"),
        ("60s", "10m", "[659999ms]"),
    ):
        given = {"name": "p", "kind": "prometheus", "url": "http://p", "scrape_interval": interval}
        datasource = Datasource.from_settings(DatasourceSettings.model_validate(given), IRIS, None)
        found = Resolver(_graph(), IRIS, [datasource]).resolve(CHECKOUT, "cpu_usage", Window(at(0), at(60)), step=step)
        assert window in found.query


def test_prometheus_10310_more_than_11_000_points_are_never_tried(server: FaultServer) -> None:  # noqa: F811  a fixture
    """The limit is computed: two requests that meet, and no refusal whose text would mislead."""
    server.replies = [_one]
    with Prometheus(_datasource(server.server_port, timeout=20)) as client:
        client.series("up", Grid(0, 11_000 * 60, 60))
    spans = [(int(form["start"]), int(form["end"])) for form in server.forms]
    assert spans == [(0, 10_999 * 60), (11_000 * 60, 11_000 * 60)]


def test_dcgm_85_and_k3s_5782_a_label_of_another_name_is_named(prometheus: RealPrometheus) -> None:
    """Where the exporter calls the pod otherwise, the error says which label is missing and which is like it."""
    with (
        History(Resolver(_graph(), IRIS, [prometheus.datasource()])) as history,
        pytest.raises(MetricMissing) as error,
    ):
        history.fetch(LEDGER, "disk_usage", start=at(5), end=at(60), step="5m")
    assert (error.value.detail["missing"], error.value.detail["similar"]) == ("pod", ["pod_name"])


def test_telegraf_3739_a_password_in_the_url_goes_nowhere(tmp_path: Path) -> None:
    """A configured URL with one is refused without repeating it; a discovered one loses it, in the document too."""
    secret = "http://joe:hunter2@127.0.0.1:9"
    config = tmp_path / "drumlin.toml"
    config.write_text(f'[[datasource]]\nname = "p"\nkind = "prometheus"\nurl = "{secret}"\n')
    with pytest.raises(InvalidSettings) as error:
        Settings.load(config)
    found = Datasource.discovered("p", "prometheus", secret, IRIS, None, None)
    assert found.url == "http://127.0.0.1:9"
    told = f"{error.value} {error.value.hint} {error.value.detail} {found} {found.document(IRIS)}"
    assert "hunter2" not in told
    assert "joe" not in told


def test_dataretrieval_307_a_time_without_a_zone_is_refused() -> None:
    """Nobody's local time is guessed."""
    with pytest.raises(InvalidInput, match="without a zone"):
        Window(datetime(2026, 11, 1), datetime(2026, 11, 2))  # noqa: DTZ001  naive on purpose
