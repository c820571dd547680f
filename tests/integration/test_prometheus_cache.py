"""Finished days are kept: what is asked for again is not fetched again, counted by a proxy before a real Prometheus."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import httpx
import pyarrow as pa
import pytest

from drumlin.kg.errors import SourceUnavailable
from drumlin.kg.telemetry.cache import DayCache
from drumlin.kg.telemetry.history import History, SeriesTable
from drumlin.kg.telemetry.resolve import Resolver
from drumlin.kg.telemetry.series import Grid
from tests.integration.conftest import DAYS, RealPrometheus, at, available
from tests.integration.test_prometheus_history import CHECKOUT, LEDGER, NODE_A, documents
from tests.listening import listening
from tests.unit.telemetry_store import IRIS, GraphStore


class Proxy(ThreadingHTTPServer):
    """Passes range queries on and keeps the span of each."""

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = upstream
        self.spans: list[tuple[datetime, datetime]] = []
        self.statuses: list[int] = []
        self.warning = b""
        self.cut = False


class _Handler(BaseHTTPRequestHandler):
    server: Proxy

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        form = parse_qs(body.decode())
        if "start" in form:
            start, end = (datetime.fromtimestamp(int(form[name][0]), at(0).tzinfo) for name in ("start", "end"))
            self.server.spans.append((start, end))
        given = {"Content-Type": self.headers["Content-Type"]}
        answer = httpx.post(self.server.upstream + self.path, content=body, headers=given)
        content = (
            answer.content.replace(b'{"status"', b'{"warnings":["partial"],"status"')
            if self.server.warning
            else answer.content
        )
        if "start" in form:
            self.server.statuses.append(answer.status_code)
        self.send_response(answer.status_code)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if self.server.cut else content)

    def log_message(self, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture
def proxy(prometheus: RealPrometheus) -> Iterator[Proxy]:
    """A proxy before the real server."""
    with listening(Proxy(prometheus.url)) as running:
        yield running


def _fetch(proxy: Proxy, days: DayCache | None, entity: str, metric: str, now: datetime, **more: object) -> SeriesTable:
    server = RealPrometheus(f"http://127.0.0.1:{proxy.server_port}").datasource()
    with History(
        Resolver(GraphStore(documents()), IRIS, [server]), days=days, clock=lambda: now, sleep=lambda _: None
    ) as history:
        return history.fetch(entity, metric, **{"last": "5d", "step": "5m", **more})


def test_tomorrow_fetches_one_day(proxy: Proxy, tmp_path: Path) -> None:
    """Five days today, five days tomorrow: the second request asks for what is not finished, and its values are the same."""
    today = at(60 * 24 * 7 + 125)
    first = _fetch(proxy, DayCache(tmp_path / "days", 1 << 30), NODE_A, "mem_usage", today)
    assert len(proxy.spans) == 1
    proxy.spans.clear()

    tomorrow = _fetch(proxy, DayCache(tmp_path / "days", 1 << 30), NODE_A, "mem_usage", today + timedelta(days=1))

    assert [end - start for start, end in proxy.spans] == [timedelta(days=1, hours=2, minutes=5)]
    fresh = _fetch(proxy, None, NODE_A, "mem_usage", today + timedelta(days=1))
    assert tomorrow.table.equals(fresh.table)
    assert tomorrow.coverage == fresh.coverage
    assert len(first.table) == len(tomorrow.table)


def test_what_is_asked_again_is_not_fetched(proxy: Proxy, tmp_path: Path) -> None:
    """A window of finished days costs nothing the second time, also in part; another step is another question."""
    days, now = DayCache(tmp_path / "days", 1 << 30), at(60 * 24 * DAYS)
    whole = {"last": None, "start": at(60 * 24), "end": at(60 * 24 * 4 - 5)}
    first = _fetch(proxy, days, NODE_A, "mem_usage", now, **whole)
    proxy.spans.clear()

    again = _fetch(proxy, DayCache(tmp_path / "days", 1 << 30), NODE_A, "mem_usage", now, **whole)
    part = {"last": None, "start": at(60 * 30), "end": at(60 * 50)}
    within = _fetch(proxy, DayCache(tmp_path / "days", 1 << 30), NODE_A, "mem_usage", now, **part)

    assert proxy.spans == []
    assert again.table.equals(first.table)
    assert within.table["y"].to_pylist() == first.table["y"].to_pylist()[72 : 72 + 241]
    _fetch(proxy, DayCache(tmp_path / "days", 1 << 30), NODE_A, "mem_usage", now, **{**part, "step": "10m"})
    assert len(proxy.spans) == 1


@pytest.mark.parametrize(("entity", "metric"), [(CHECKOUT, "cpu_usage"), (LEDGER, "mem_usage")])
def test_gaps_and_pods_that_came_and_went_are_kept_as_they_are(
    proxy: Proxy, tmp_path: Path, entity: str, metric: str
) -> None:
    """Churned pods and missing points come out of the cache as they came from the server."""
    span = {"last": None, "start": at(0), "end": at(60 * 24 - 5)}
    fresh = _fetch(proxy, None, entity, metric, at(60 * 24 * 3), **span)
    asked = len(proxy.spans)
    for _ in range(2):
        kept = _fetch(proxy, DayCache(tmp_path / "days", 1 << 30), entity, metric, at(60 * 24 * 3), **span)
        assert kept.table.equals(fresh.table)
        assert kept.gaps == fresh.gaps
    assert len(proxy.spans) == 2 * asked


def test_a_day_that_is_not_over_is_fetched_again(proxy: Proxy, tmp_path: Path) -> None:
    """Until an hour after its end a day may still get samples."""
    span = {"last": None, "start": at(0), "end": at(60 * 24 - 5)}
    for _ in range(2):
        _fetch(proxy, DayCache(tmp_path / "days", 1 << 30), NODE_A, "mem_usage", at(60 * 24 + 59), **span)
    assert len(proxy.spans) == 2


def test_a_partial_answer_is_not_kept(proxy: Proxy, tmp_path: Path) -> None:
    """What came with a warning (a store was away) is asked for again."""
    proxy.warning = b"partial"
    span = {"last": None, "start": at(0), "end": at(60 * 24 - 5)}
    for _ in range(2):
        found = _fetch(proxy, DayCache(tmp_path / "days", 1 << 30), NODE_A, "mem_usage", at(60 * 24 * 3), **span)
        assert any("partial" in warning for warning in found.warnings)
    assert len(proxy.spans) == 2


def test_a_file_that_is_no_cache_is_left_alone(proxy: Proxy, tmp_path: Path) -> None:
    """A broken file costs speed, never an answer."""
    (tmp_path / "days").write_bytes(b"no database at all" * 1000)
    span = {"last": None, "start": at(0), "end": at(60 * 24 - 5)}
    found = _fetch(proxy, DayCache(tmp_path / "days", 1 << 30), NODE_A, "mem_usage", at(60 * 24 * 3), **span)
    assert len(found.table) == 288
    assert (tmp_path / "days").read_bytes().startswith(b"no database")


def test_the_oldest_days_go_when_the_file_is_full(
    proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file stays near its limit; what was dropped is fetched again."""
    monkeypatch.setattr("drumlin.kg.telemetry.cache._CHECK_EVERY", 1)
    span = {"last": None, "start": at(0), "end": at(60 * 24 * 6 - 5)}
    _fetch(proxy, DayCache(tmp_path / "days", 4096), NODE_A, "mem_usage", at(60 * 24 * DAYS), **span)
    proxy.spans.clear()
    _fetch(proxy, DayCache(tmp_path / "days", 1 << 30), NODE_A, "mem_usage", at(60 * 24 * DAYS), **span)
    assert proxy.spans == [(at(0), at(60 * 24 * 3 - 5))]


WHOLE = {"last": None, "start": at(0), "end": at(60 * 24 * 2 - 5)}
NOW = at(60 * 24 * 4)


def test_a_day_damaged_on_disk_is_fetched_again(proxy: Proxy, tmp_path: Path) -> None:
    """One bit of one value flipped: that day comes from the server, the other from the cache, and the damage is mended."""
    fresh = _fetch(proxy, DayCache(tmp_path / "days", 1 << 30), NODE_A, "mem_usage", NOW, **WHOLE)
    with closing(sqlite3.connect(tmp_path / "days", isolation_level=None)) as file:
        ((key, y),) = file.execute("SELECT key, y FROM day WHERE day = ?", [int(at(60 * 24).timestamp())])
        damaged = bytearray(y)
        damaged[1000] ^= 1
        file.execute("UPDATE day SET y = ? WHERE key = ?", [bytes(damaged), key])
    proxy.spans.clear()

    for _ in range(2):
        again = _fetch(proxy, DayCache(tmp_path / "days", 1 << 30), NODE_A, "mem_usage", NOW, **WHOLE)
        assert again.table.equals(fresh.table)
    assert proxy.spans == [(at(60 * 24), at(60 * 24 * 2 - 5))]


def test_a_damaged_file_is_made_anew(proxy: Proxy, tmp_path: Path) -> None:
    """Pages full of noise under a good header: the values come from the server, and from the next request on from a new file."""
    path = tmp_path / "days"
    fresh = _fetch(proxy, DayCache(path, 1 << 30), NODE_A, "mem_usage", NOW, **WHOLE)
    content = bytearray(path.read_bytes())
    content[100:] = b"\xa5" * (len(content) - 100)
    path.write_bytes(content)
    proxy.spans.clear()

    for _ in range(2):
        again = _fetch(proxy, DayCache(path, 1 << 30), NODE_A, "mem_usage", NOW, **WHOLE)
        assert again.table.equals(fresh.table)
    assert len(proxy.spans) == 1


def test_a_failed_or_cut_answer_is_not_kept(proxy: Proxy, tmp_path: Path) -> None:
    """What failed in the middle leaves nothing behind: the next request asks for all of it and has all of it."""
    days = tmp_path / "days"
    proxy.cut = True
    with pytest.raises(SourceUnavailable):
        _fetch(proxy, DayCache(days, 1 << 30), NODE_A, "mem_usage", NOW, **WHOLE)
    proxy.cut = False
    proxy.spans.clear()

    whole = _fetch(proxy, DayCache(days, 1 << 30), NODE_A, "mem_usage", NOW, **WHOLE)
    assert proxy.spans == [(at(0), at(60 * 24 * 2 - 5))]
    assert whole.table["y"].to_pylist() == [4_000_000.0 - available(m) for m in range(0, 60 * 48, 5)]


_WRITER = """
import sys
from pathlib import Path
import pyarrow as pa
from drumlin.kg.telemetry.cache import DayCache
from drumlin.kg.telemetry.series import Grid
days = DayCache(Path(sys.argv[1]), 1 << 30)
for n in range(20):
    days.put([(b"a%015d" % n, Grid(n, n, 1), pa.array([float(n)] * 24))])
    days.get([b"b%015d" % n], 24)
assert days._database is not None
"""


def test_two_processes_share_the_file(tmp_path: Path) -> None:
    """Another process writes while this one writes and reads; afterwards the days of both are there, each whole."""
    days, mine = DayCache(tmp_path / "days", 1 << 30), 0
    with subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path / "days")]) as other:
        while other.poll() is None:
            days.put([(b"b%015d" % mine, Grid(mine, mine, 1), pa.array([float(mine)] * 24))])
            days.get([b"a%015d" % mine], 24)
            mine += 1
            time.sleep(0.005)

    assert other.returncode == 0
    for name, count in (("a", 20), ("b", mine)):
        for n in range(0, count, 7):
            key = b"%s%015d" % (name.encode(), n)
            assert days.get([key], 24)[key].to_pylist() == [float(n)] * 24
    days.close()
