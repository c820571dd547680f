"""The change feed in a real browser: an EventSource of a page gets every event once, also over restarts of the service."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.browser import Browser, browsing
from tests.integration.conftest import need
from tests.service.conftest import BASE, Service, serving
from tests.waiting import until

PAGE = b"""<!doctype html><script>
var seen = [], opened = 0, failed = 0;
function follow(url) {
  var source = new EventSource(url);
  source.onopen = () => opened += 1;
  source.onerror = () => failed += 1;
  source.onmessage = (event) => seen.push([event.lastEventId, JSON.parse(event.data).subject || JSON.parse(event.data).id]);
}
</script>"""


class _Site(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """The address of a page of another origin than the service's."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Site) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def page(site: str, tmp_path: Path) -> Iterator[Browser]:
    """That page in a browser."""
    need("chromium-headless-shell", "chromium-headless-shell")
    with browsing(tmp_path / "profile") as opened:
        opened.open(site)
        until(lambda: opened.run("typeof follow") == "function")
        yield opened


def put(service: Service, name: str, value: int) -> None:
    """Write an entity."""
    document = {"id": f"{BASE}/id/domain/{name}", "type": "Domain", "name": f"{name} {value}"}
    headers = {"Content-Type": "application/ld+json"}
    assert httpx.put(f"{service.url}/subgraph/domain/{name}", json=document, headers=headers).is_success


def test_events_reach_a_page_once_and_in_order_over_restarts(page: Browser, site: str, tmp_path: Path) -> None:
    """What is written while the service or the connection is away comes when the browser is back, though it had seen no event yet."""
    environment = {"DRUMLIN_CORS": json.dumps([site])}
    written: list[str] = []

    def write(service: Service, count: int) -> None:
        for _ in range(count):
            written.append(f"n{len(written)}")
            put(service, written[-1], len(written))

    with serving("--store", str(tmp_path / "store"), environment=environment) as service:
        port = service.url.rpartition(":")[2]
        put(service, "before", 0)
        page.run(f"follow({service.url + '/events'!r})")
        until(lambda: page.run("opened") == 1)
    for restart in (1, 2):
        options = ("--store", str(tmp_path / "store"), "--port", port)
        with serving(*options, environment=environment) as service:
            write(service, 3)  # before the browser is back, which waits for two seconds
            until(lambda number=restart: page.run("opened") == number + 1)
            write(service, 3)
            until(lambda: page.run("seen.length") >= len(written))
            if restart == 2:
                service.process.kill()  # without a word
    assert [subject.rpartition("/")[2] for _, subject in page.run("seen")] == written
    ids = [tuple(map(int, id.split("."))) for id, _ in page.run("seen")]
    assert ids == sorted(set(ids))


def test_a_page_of_a_foreign_origin_sees_nothing(page: Browser, tmp_path: Path) -> None:
    """The browser gives it no event unless the setting names its origin."""
    with serving("--store", str(tmp_path / "store")) as service:
        page.run(f"follow({service.url + '/events?since=0'!r})")
        put(service, "secret", 1)
        until(lambda: page.run("failed") >= 1)
        assert page.run("[opened, seen.length]") == [0, 0]
