"""The pages in a real Chromium, as people use them: by keyboard, narrow and wide, light and dark, over a real Prometheus.

Debian's package is ``chromium``. Pictures of every page are kept where the variable ``PICTURES`` names a directory.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx
import pyarrow as pa
import pytest

import drumlin
from drumlin.api.demo import history, prometheus, sample
from drumlin.api.pages import guide
from drumlin.kg.store.protocol import GraphWrite
from tests import javascript_packages
from tests.browser import BINARY, Browser, browsing
from tests.contract.test_kuscia_run import sink as kuscia
from tests.service.conftest import NS, Service, serving, until_ready

pytestmark = [
    pytest.mark.skipif(BINARY is None and os.environ.get("CI") != "true", reason="apt-get install chromium"),
    pytest.mark.timeout(420),
]
DAYS = 8
CHECKOUT = "sample/payments/deployment/checkout"
NODE = "sample/-/node/edge-a-1"
FRAUD = "sample/cross-domain/kusciajob.kuscia.secretflow/job-fraud"
TRAIN = "sample/cross-domain/kusciatask.kuscia.secretflow/job-fraud-c3de8df4a805"
RULES = "['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']"
PAGES = (
    "/",
    "/search?q=checkout",
    f"/doc/{CHECKOUT}",
    f"/doc/{NODE}",
    "/doc/cluster/sample",
    f"/history?entity={CHECKOUT}&metric=cpu_usage&last=7d",
    "/sparql",
    f"/queries/runs-on-node?node={NODE}",
    "/changes",
    f"/doc/{FRAUD}",
    "/doc/domain/alice.html?part=board",
    f"/doc/{FRAUD}?at=2099-01-01T00:00:00Z",
    f"/compare?entity={FRAUD}",
    f"/forecasts?entity={NODE}",
    "/datasources",
    "/alerts",
    "/about",
    "/docs",
    "/ns",
    "/doc/sample/payments/deployment/none",
    *([f"/docs/guide/{each}" for each in ("docs/operations.html", "search.html?q=backup")] if guide.files() else []),
)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service of the sample cluster with a Prometheus that holds generated history."""
    home = tmp_path_factory.mktemp("browser")
    data = home / "prometheus"
    data.mkdir()
    end = int(time.time()) // history.STEP * history.STEP
    history.write_history(home / "history.om", start=end - DAYS * 86_400, end=end)
    prometheus.backfill(home / "history.om", data)
    sample.write_sample(home / "cluster", days=DAYS, now=datetime.now(UTC))
    with prometheus.start_prometheus(data) as server:
        config = home / "drumlin.toml"
        config.write_text(
            f'[[datasource]]\nname = "prometheus-main"\nkind = "prometheus"\nurl = "{server.url}"\nscrape_interval = "{history.STEP}s"\n'
            f'[[datasource]]\nname = "forecasts"\nkind = "parquet"\nurl = "{(home / "forecasts").as_uri()}"\n'
        )
        options = ("--store", str(home / "store"), "--source", f"dump:{home / 'cluster'}", "--config", str(config))
        with serving(*options, cluster=sample.CLUSTER) as running:
            until_ready(running)
            _fill(running, end)
            yield running


def _fill(service: Service, end: int) -> None:
    """Add the network of a Kuscia run, with a job that failed, and a forecast of the last day."""
    times = range(end - 86_400, end, 300)
    stamps = pa.array([at * 1000 for at in times], pa.timestamp("ms", "UTC"))
    columns = {name: pa.array([value] * len(times)) for name, value in (("y", 1.0), ("q0.1", 0.5), ("q0.9", 1.5))}
    with drumlin.connect(service.url) as client:
        network = {_moved(name): lines for name, lines in kuscia().graphs.items()}
        own = [name for name in network if any(each in name for each in ("kuscia.secretflow", "/pod/", "/domain/"))]
        client.apply([GraphWrite.of(each, frozenset(map(_moved, network[each])), "test") for each in own], atomic=True)
        made = {"of": (NODE, "cpu_usage"), "model": "constant", "horizon": "1d", "step": "5m"}
        client.forecasts.save(pa.table({"ds": stamps, **columns}), **made)


def _moved(text: str) -> str:
    """Return a text about the cluster of the run as one about the sample cluster: of several, none is a metric's by itself."""
    return text.replace("/id/prod/", "/id/sample/").replace("/id/cluster/prod", "/id/cluster/sample")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests of the module."""
    with browsing(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(autouse=True)
def _anew(browser: Browser) -> None:
    """Start each test with nothing noted, and nothing of the page before under way."""
    browser.call("Page.navigate", url="about:blank")
    browser.requests.clear()
    browser.errors.clear()


def _clean(browser: Browser, service: Service) -> None:
    """Assert that nothing was asked of another host, and that no error was in the console."""
    hosts = {urlsplit(each).netloc for each in browser.requests if each.startswith("http")}
    assert hosts <= {urlsplit(service.url).netloc}
    refused = [each for each in browser.errors if "status of 4" not in each and "status of 5" not in each]
    assert refused == []


@pytest.fixture(scope="module")
def axe() -> str:
    """The accessibility engine, as one script."""
    javascript_packages.install()
    return (javascript_packages.FOLDER / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


def _keep_picture(browser: Browser, name: str) -> None:
    """Save a picture of the page where ``PICTURES`` names a directory."""
    if directory := os.environ.get("PICTURES"):
        Path(directory).mkdir(parents=True, exist_ok=True)
        browser.picture(Path(directory) / f"{name}.png")


def _violations(browser: Browser) -> list[tuple[str, str, str]]:
    found = browser.run(f"axe.run({{runOnly: {RULES}}}).then(found => found.violations)")
    return [(each["id"], each["nodes"][0]["html"][:160], each["nodes"][0]["failureSummary"][:200]) for each in found]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_accessible_narrow_and_wide_light_and_dark(
    browser: Browser, shown: Service, axe: str, path: str
) -> None:
    """Nothing is cut off to the side, axe finds nothing against WCAG 2.2 AA, no host but ours is asked, nothing fails."""
    for width in (360, 1280):
        browser.open(shown.url + path, width=width)
        assert browser.run("document.querySelectorAll('h1').length") == 1
        browser.run("document.querySelectorAll('[data-src]').forEach(each => each.scrollIntoView())")
        browser.until("!document.querySelector('[aria-busy]')")
        browser.until("!document.querySelector('[data-query]') || document.getElementById('query-editor')")
        browser.until("!document.querySelector('figure[data-plot]') || document.querySelector('.plot canvas')")
        assert browser.run("document.documentElement.scrollWidth") <= width
        browser.run(axe)
        for dark in (False, True):
            browser.look(dark=dark)
            _keep_picture(browser, f"{quote(path, safe='')[:60]}-{width}-{'dark' if dark else 'light'}")
            assert _violations(browser) == [], (width, dark)
    _clean(browser, shown)


def test_a_workload_is_found_and_its_query_of_last_week_copied(browser: Browser, shown: Service) -> None:
    """By keyboard alone: search, open, look at seven days of CPU, copy the exact query."""
    browser.open(f"{shown.url}/")
    browser.press("/")
    browser.until("document.activeElement.id === 'find'")
    browser.type("checkout")
    browser.press("Enter")
    browser.until("location.pathname === '/search' && document.readyState === 'complete'")
    browser.follow(f"at.href && at.href.endsWith('/doc/{CHECKOUT}')")
    card = "document.querySelector('[data-src*=\"metric=cpu_usage\"]')"
    browser.run(f"{card}.scrollIntoView()")
    browser.until(f"{card}.querySelector('.plot canvas')")
    browser.tab_to("at.textContent === '7d' && at.dataset.part && at.dataset.part.includes('cpu_usage')")
    browser.press("Enter")
    browser.until(f"{card}.querySelector('svg.chart') && {card}.querySelector('[aria-current]')?.textContent === '7d'")
    query = browser.run(f"{card}.querySelector('pre').textContent")
    assert "container_cpu_usage_seconds_total" in query
    browser.run("navigator.clipboard.writeText = text => { window.copied = text; return Promise.resolve() }")
    browser.run(f"{card}.querySelector('summary').focus()")
    browser.press("Enter")
    browser.tab_to("at.dataset.copy && at.dataset.copy.startsWith('q-cpu_usage') && !at.dataset.copy.endsWith('curl')")
    browser.press("Enter")
    browser.until("window.copied")
    assert browser.run("window.copied") == query
    asked = [each for each in browser.requests if "/history.html" in each and "cpu_usage" in each]
    assert [each for each in asked if "last=7d" in each]
    _clean(browser, shown)


def test_what_ran_on_a_node_is_asked_by_keyboard(browser: Browser, shown: Service) -> None:
    """Which pods ran there: from the first page to a saved question, its form, and a pod of its answer."""
    browser.open(f"{shown.url}/")
    browser.follow("at.href && at.href.endsWith('/queries/runs-on-node')")
    browser.tab_to("at.name === 'node'")
    browser.type(NODE)
    browser.press("Enter")
    browser.until("document.querySelector('table[data-sortable] tbody tr')")
    assert browser.run("document.querySelectorAll('table[data-sortable] tbody tr').length") >= 3
    browser.follow("at.href && at.href.includes('/pod/')")
    browser.until("document.querySelector('h1')")
    _clean(browser, shown)


def test_why_a_job_failed_is_seen_on_its_page(browser: Browser, shown: Service) -> None:
    """What needs attention leads to the job; its page says that it failed, and how its run ended."""
    job = f"{'https://kg.example'}/id/sample/payments/job/settle"
    run = f"{job}/run/7c8d0f2e-0000-4000-8000-000000000001"
    document = f"""@prefix d: <{NS}> . @prefix prov: <http://www.w3.org/ns/prov#> .
        <{job}> a d:Job ; d:name "settle" ; d:namespace "payments" ; d:phase d:Failed ;
          d:cluster <https://kg.example/id/cluster/sample> ; d:domain <https://kg.example/id/domain/local> .
        <{run}> a d:Run ; d:runOf <{job}> ; d:outcome d:OOMKilled ;
          prov:startedAtTime "2026-11-28T10:00:00Z"^^<http://www.w3.org/2001/XMLSchema#dateTime> ;
          prov:endedAtTime "2026-11-28T10:05:00Z"^^<http://www.w3.org/2001/XMLSchema#dateTime> ."""
    answer = httpx.put(
        f"{shown.url}/subgraph/{job.partition('/id/')[2]}", content=document, headers={"Content-Type": "text/turtle"}
    )
    assert answer.status_code == 201, answer.text
    browser.open(f"{shown.url}/")
    browser.follow("at.href && at.href.endsWith('/job/settle')")
    text = browser.run("document.querySelector('main').innerText")
    assert "Failed" in text
    assert "OOMKilled" in text
    assert "5 min" in text


def test_why_a_workflow_failed_is_found_by_keyboard(browser: Browser, shown: Service) -> None:
    """Needs attention → the job → the failed step in the picture of its plan → its task, and from there the logs of the pod."""
    browser.open(f"{shown.url}/search?type=Workflow&phase=Failed")
    browser.follow(f"at.href && at.href.endsWith('/doc/{FRAUD}')")
    browser.until("document.querySelector('svg.plan')")
    boxes = "[...document.querySelectorAll('svg.plan rect')].map(each => each.getAttribute('class'))"
    assert browser.run(boxes) == ["good", "bad", "over"]
    assert "OOMKilled" in browser.run("document.getElementById('why').parentElement.innerText")
    browser.tab_to("at.closest('svg.plan') && at.querySelector('rect.bad') !== null", most=200)
    assert "train" in browser.run("document.activeElement.querySelector('title').textContent")
    browser.press("Enter")
    browser.until(f"location.pathname.endsWith('/doc/{TRAIN}') && document.readyState === 'complete'")
    assert browser.run(boxes) == ["good", "bad own", "over"]
    rows = browser.run("[...document.querySelectorAll('table')].map(each => each.innerText).join()")
    assert "bob" in rows
    assert "137" in rows
    browser.tab_to("at.href && at.href.includes('/logs?entity=sample%2Fbob%2Fpod%2F')", most=200)
    _clean(browser, shown)


def _replace(browser: Browser, text: str) -> None:
    """Replace what the editor holds; it is emptied first, since Chromium puts styles of its own where text replaces lines."""
    browser.tab_to("at.id === 'query-editor'")
    browser.press("a", control=True)
    browser.press("Backspace")
    browser.type(text)


def _write_query(browser: Browser, text: str) -> None:
    """Replace what the editor holds, and run it, by keyboard."""
    _replace(browser, text)
    browser.press("Enter", control=True)


def test_a_query_is_written_corrected_and_downloaded(browser: Browser, shown: Service) -> None:
    """A typo finds nothing and is named; corrected, the result is a table, and its download is a link; the page stays."""
    browser.open(f"{shown.url}/sparql")
    browser.until("document.getElementById('query-editor')")
    browser.run("window.same = true")
    _write_query(browser, f"PREFIX : <{NS}> SELECT ?x ?n {{ ?x a :Deploymnt ; :name ?n }}")
    browser.until("document.body.innerText.includes('Did you mean :Deployment?')")
    _write_query(browser, f"PREFIX : <{NS}> SELECT ?x ?n {{ ?x a :Deployment ; :name ?n }}")
    browser.until("document.querySelectorAll('table[data-sortable] tbody tr').length === 10")
    assert browser.run("window.same && location.search.includes('Deployment')")
    browser.tab_to("at.textContent === 'n' && at.tagName === 'BUTTON'")
    browser.press("Enter")
    first = "document.querySelector('table[data-sortable] tbody tr').innerText"
    names = browser.run(
        "[...document.querySelectorAll('table[data-sortable] tbody tr')].map(row => row.cells[1].innerText)"
    )
    assert names == sorted(names), first
    browser.run("history.replaceState(null, '', location.href)")
    browser.tab_to("at.textContent === 'CSV'", most=300)
    address = browser.run("document.activeElement.href")
    assert httpx.get(address).text.splitlines()[0] == "x,n"
    _clean(browser, shown)


@pytest.mark.parametrize(
    ("written", "chosen"),
    [
        (f"PREFIX : <{NS}> SELECT * {{ ?x a :Statef", ":StatefulSet"),
        (f"PREFIX k: <{NS}> SELECT * {{ ?x k:namesp", "k:namespace"),
        ("SELECT ?workload { ?wor", "?workload"),
        ("SELECT * { ?x ?p <checko", f"<https://kg.example/id/{CHECKOUT}>"),
        ("SELECT * { ?x ?p ?o } ORD", "ORDER"),
    ],
)
def test_the_editor_completes_terms_variables_keywords_and_names(
    browser: Browser, shown: Service, written: str, chosen: str
) -> None:
    """Ctrl+Space offers what fits where the text ends, and Enter takes it; the names come from the store."""
    browser.open(f"{shown.url}/sparql")
    browser.until("document.getElementById('query-editor')")
    _replace(browser, written)
    browser.press(" ", control=True)
    labels = "[...document.getElementById('query-editor').shadowRoot.querySelectorAll('.cm-completionLabel')]"
    browser.until(f"{labels}.length")
    place = f"{labels}.findIndex(each => {json.dumps(chosen)}.match(/[^/]*$/)[0].replace('>', '') === each.textContent)"
    browser.run("new Promise(done => setTimeout(done, 150))")  # the list takes no key in its first moment
    for _ in range(browser.run(place)):
        browser.press("ArrowDown")
    browser.press("Enter")
    browser.until(f"document.getElementById('query').value.includes({json.dumps(chosen)})")
    _clean(browser, shown)


def test_a_query_that_takes_long_is_cancelled(browser: Browser, shown: Service) -> None:
    """A clock runs beside it; the button ends it, also in the service, which is idle soon after."""
    browser.open(f"{shown.url}/sparql")
    browser.until("document.getElementById('query-editor')")
    _write_query(browser, "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i }")
    browser.until("/^[0-9.]+ s$/.test(document.querySelector('[data-clock]').textContent)")
    browser.tab_to("'cancel' in at.dataset")
    browser.press("Enter")
    browser.until("document.getElementById('answer').innerText === 'Cancelled.'")
    assert browser.run("document.querySelector('[data-cancel]').hidden")
    deadline = time.monotonic() + 30
    while 'drumlin_pool_running{pool="queries"} 0' not in (told := httpx.get(f"{shown.url}/metrics").text):
        assert time.monotonic() < deadline, [line for line in told.splitlines() if "pool_running" in line]
        time.sleep(0.2)


def test_numbers_of_a_result_become_a_chart(browser: Browser, shown: Service) -> None:
    """A button draws each numeric column, and takes the charts away again."""
    browser.open(f"{shown.url}/queries/requests-per-node")
    browser.tab_to("'chart' in at.dataset")
    browser.press("Enter")
    browser.until("document.querySelectorAll('.plot canvas').length === 4")
    browser.press("Enter")
    browser.until("!document.querySelector('.plot')")
    _clean(browser, shown)


def test_a_neighbourhood_is_walked_through_by_keyboard(browser: Browser, shown: Service) -> None:
    """The picture grows by what is around an entity, and its table holds the same; what was opened once is not opened again."""
    browser.open(f"{shown.url}/doc/{CHECKOUT}")
    browser.tab_to("'exploreButton' in at.dataset")
    browser.press("Enter")
    rows = "[...document.querySelectorAll('[data-explored] tbody tr')].map(row => row.textContent)"
    browser.until(f"{rows}.length >= 6")
    before = browser.run(rows)
    assert any(each.startswith("checkout-") and "managed by → checkout" in each for each in before), before
    browser.run("document.querySelector('[data-with-explore] summary').focus()")
    browser.press("Enter")
    browser.tab_to("at.tagName === 'BUTTON' && at.getAttribute('aria-label')?.startsWith('Open: checkout-')")
    browser.press("Enter")
    browser.until(f"{rows}.length > {len(before)}")
    assert any(NODE.rpartition("/")[2] in each for each in browser.run(rows))
    _clean(browser, shown)


def test_parts_come_when_they_are_in_view_and_a_few_at_a_time(browser: Browser, shown: Service) -> None:
    """Nothing of a Prometheus is asked for before the reader gets there."""
    browser.call("Emulation.setDeviceMetricsOverride", width=1280, height=200, deviceScaleFactor=1, mobile=False)
    browser.call("Page.navigate", url=f"{shown.url}/doc/{NODE}")
    browser.until("document.readyState === 'complete'")
    browser.run("new Promise(done => setTimeout(done, 500))")
    assert not [each for each in browser.requests if "history.html" in each]
    browser.run("document.querySelector('[data-src*=\"history.html\"]').scrollIntoView()")
    browser.wait(
        lambda: any("history.html" in each for each in browser.requests if browser.run("1")), "a part was fetched"
    )
