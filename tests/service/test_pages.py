"""The pages over a listening server: every one, with hostile data, below a prefix, and nothing that leads to other hosts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

import httpx
import pytest

import drumlin
from tests.service.conftest import NS, SAMPLE, Service, drumlin_asks, serving, until_ready
from tests.waiting import until

BASE = "https://kg.example/kg"
BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
CHECKOUT = "prod/payments/deployment/checkout"
EVIL = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}"
EVIL_ID = "prod/payments/deployment/%22%27%3E%3Cscript%3Ealert%281%29%3C%2Fscript%3E"
EVIL_JOB = "prod/payments/workflow.argoproj.io/%22%27%3E%3Cscript%3E"
PAGES = (
    "/",
    "/search",
    "/search?q=checkout&type=Pod&sort=name",
    f"/search?q={EVIL}",
    f"/doc/{CHECKOUT}",
    f"/doc/{EVIL_ID}",
    "/doc/prod/-/node/edge-a-1",
    "/doc/cluster/prod",
    "/doc/domain/local",
    "/sparql",
    f"/sparql?query=SELECT * {{ <{BASE}/id/{EVIL_ID}> ?p ?o }}",
    f"/sparql?query={EVIL}",
    f"/sparql?query=DESCRIBE <{BASE}/id/{EVIL_ID}>",
    "/queries",
    "/queries/runs-on-node",
    f"/queries/what-is?entity={EVIL_ID}",
    f"/queries/workloads-with-label?label={EVIL}",
    "/changes",
    f"/changes?entity={EVIL_ID}&quads=true",
    f"/changes?before={EVIL}",
    f"/doc/{EVIL_JOB}",
    f"/doc/{EVIL_JOB}?at=2099-01-01T00:00:00Z",
    "/doc/domain/local.html?part=board",
    "/measured?entity=prod/-/node/edge-a-1",
    "/measured?entity=domain/local",
    f"/measured?entity={EVIL}",
    f"/accuracy?entity={EVIL_ID}&metric={EVIL}&id={EVIL}",
    f"/doc/{EVIL_ID}?at=2099-01-01T00:00:00Z",
    f"/doc/{EVIL_ID}?at={EVIL}",
    f"/compare?entity={EVIL_ID}",
    f"/compare?entity={EVIL_ID}&from={EVIL}",
    f"/compare?entity={EVIL}",
    "/datasources",
    "/alerts",
    f"/forecasts?entity={EVIL_ID}",
    f"/history?entity={EVIL_ID}&metric=cpu_usage",
    f"/logs?entity={EVIL_ID}&filter={EVIL}",
    "/about",
    "/docs",
    "/ns",
    "/ns/Deployment",
    "/doc/prod/payments/deployment/nothing",
    f"/doc/{EVIL}",
)


def _document(id: str, name: str, more: str = "") -> str:
    """Return a Deployment in Turtle."""
    return f"""<{BASE}/id/{id}> a <{NS}Deployment> ; <{NS}name> "{name}" ; <{NS}namespace> "payments" ; {more}
        <{NS}cluster> <{BASE}/id/cluster/prod> ; <{NS}domain> <{BASE}/id/domain/local> ."""


def _plan(name: str) -> str:
    """Return a Workflow in Turtle whose two steps, hostile ones, wait for each other, and a third that has failed."""
    job = f"{BASE}/id/{EVIL_JOB}"
    steps = "".join(
        f"""<{job}/step/{own}> a <{NS}Step> ; <{NS}name> "{name} {own}" ; <{NS}dependsOn> <{job}/step/{other}> ;
            <{NS}phase> <{NS}{phase}> ."""
        for own, other, phase in (("a", "b", "Running"), ("b", "a", "Pending"), ("c", "b", "Failed"))
    )
    return f"""<{job}> a <{NS}Workflow> ; <{NS}name> "{name}" ; <{NS}namespace> "payments" ; <{NS}phase> <{NS}Failed> ;
        <{NS}cluster> <{BASE}/id/cluster/prod> ; <{NS}domain> <{BASE}/id/domain/local> ;
        <http://purl.org/dc/terms/hasPart> <{job}/step/a>, <{job}/step/b>, <{job}/step/c> . {steps}"""


class Page(HTMLParser):
    """What a browser would make of a page: its elements with their attributes, and the text of its title."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.title, self._in_title = "", False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self._in_title = tag == "title" and not self.title

    def handle_data(self, data: str) -> None:
        """Note the title."""
        if self._in_title:
            self.title, self._in_title = data, False

    def values(self, *names: str) -> list[str]:
        """Return the values of attributes."""
        return [given[name] for _, given in self.elements for name in names if name in given]


@pytest.fixture(scope="module")
def prefixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service of the sample below a prefix, with an entity whose every text is hostile."""
    store = tmp_path_factory.mktemp("store")
    with serving("--store", str(store), "--source", f"dump:{SAMPLE}", "--base", BASE) as running:
        until_ready(running)
        quoted = EVIL.replace("\\", "\\\\").replace('"', '\\"')
        more = f'<{NS}label> "x={quoted}" ; <{NS}application> "{quoted}" ; <{NS}version> "javascript:alert(3)" ;'
        document = _document(EVIL_ID, quoted, more)
        answer = httpx.put(
            f"{running.url}/subgraph/{EVIL_ID}", content=document, headers={"Content-Type": "text/turtle"}
        )
        assert answer.status_code == 201, answer.text
        answer = httpx.put(
            f"{running.url}/subgraph/{EVIL_JOB}", content=_plan(quoted), headers={"Content-Type": "text/turtle"}
        )
        assert answer.status_code == 201, answer.text
        yield running


@pytest.fixture(scope="module")
def browser(prefixed: Service) -> Iterator[httpx.Client]:
    """A client that asks as a browser does."""
    with httpx.Client(base_url=prefixed.url, headers=BROWSER, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def fetched(browser: httpx.Client) -> Callable[[str], httpx.Response]:
    """Return what fetches each page once."""
    return cache(browser.get)


@pytest.mark.parametrize("path", PAGES, ids=range(len(PAGES)))
def test_a_page_runs_nothing_of_what_the_graph_says(fetched: Callable[[str], httpx.Response], path: str) -> None:
    """Hostile names, labels, queries and ids are text: the only script is the page's own file, nothing is in line."""
    answer = fetched(path)
    assert answer.status_code in (200, 400, 404, 422), answer.text
    assert answer.headers["Content-Type"].startswith("text/html")
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    page = Page(answer.text)
    scripts = [given for tag, given in page.elements if tag == "script"]
    assert [set(each) for each in scripts] == [{"type", "src"}]
    assert not [tag for tag, _ in page.elements if tag in ("img", "iframe", "object", "base", "style")]
    assert not [name for _, given in page.elements for name in given if name.startswith("on") or name == "style"]
    assert not [
        each for each in page.values("href", "src", "action") if urlsplit(each).scheme not in ("", "http", "https")
    ]
    assert "49" not in page.title
    assert page.title.endswith("· Drumlin")


@pytest.mark.parametrize("path", PAGES, ids=range(len(PAGES)))
def test_a_page_asks_nothing_of_other_hosts(fetched: Callable[[str], httpx.Response], path: str) -> None:
    """What a browser fetches by itself has relative addresses; a link that leads away sends no referrer."""
    page = Page(fetched(path).text)
    for tag, given in page.elements:
        for name in ("src", "action", "data-src", "data-live", "data-suggest", "data-part"):
            assert not urlsplit(given.get(name, "")).netloc, given
        if urlsplit(given.get("href", "")).netloc:
            assert tag == "a", given
            assert "noreferrer" in given["rel"], given


@pytest.mark.parametrize("prefix", ["", "/kg"])
def test_every_address_in_a_page_leads_somewhere_below_any_prefix(browser: httpx.Client, prefix: str) -> None:
    """Each link, part and file of the main pages is answered, whether a proxy strips the path of the base or leaves it."""
    seen: set[str] = set()
    for path in ("/", "/search", f"/doc/{CHECKOUT}", f"/doc/{EVIL_ID}", "/sparql", "/queries/runs-on-node", "/changes"):
        at = f"{browser.base_url}{prefix}{path}".replace("//kg", "/kg")
        page = Page(browser.get(at).text)
        for address in page.values("href", "src", "action", "data-src", "data-live"):
            target = urljoin(at, address).partition("#")[0]
            if urlsplit(target).netloc == urlsplit(at).netloc:
                assert urlsplit(target).path.startswith(f"{prefix}/"), (path, address)
                seen.add(target)
    assert len(seen) > 60
    unlike = sorted(seen, key=len)
    kinds = {re.sub(r"/doc/.*?(\.\w+)?$", r"/doc/\1", urlsplit(each).path): each for each in unlike}
    for target in kinds.values():
        assert browser.head(target).status_code in (200, 404, 422, 502), target
    assert browser.head(next(each for each in unlike if each.endswith(CHECKOUT))).status_code == 200


def test_a_name_leads_to_its_page_below_a_prefix(browser: httpx.Client) -> None:
    """The answer of /id has the path of the base, as the name has it, whether a proxy left that there or not."""
    for at in (f"/id/{CHECKOUT}", f"/kg/id/{CHECKOUT}"):
        answer = browser.get(at)
        assert answer.status_code == 303
        assert urljoin(at, answer.headers["Location"]) == f"/kg/doc/{CHECKOUT}"
        assert browser.head(answer.headers["Location"]).status_code == 200


@pytest.mark.parametrize(
    "path", [f"/doc/{CHECKOUT}", "/search?q=checkout", "/queries/units", "/datasources", "/sparql?query=ASK{}"]
)
def test_a_page_and_its_data_have_one_address(browser: httpx.Client, path: str) -> None:
    """A browser gets the page, a program the data, ``format=html`` and ``.html`` the page for both; caches know that."""
    page, data = browser.get(path), browser.get(path, headers={"Accept": "*/*"})
    assert page.headers["Content-Type"].startswith("text/html")
    assert "json" in data.headers["Content-Type"]
    assert all("Accept" in [each.strip() for each in answer.headers["Vary"].split(",")] for answer in (page, data))
    named, _, query = path.partition("?")
    for each in (f"{named}.html?{query}", f"{path}{'&' if query else '?'}format=html"):
        again = browser.get(each, headers={"Accept": "*/*"})
        assert again.headers["Content-Type"].startswith("text/html"), each
        assert Page(again.text).title == Page(page.text).title
    plain = browser.get(f"{path}{'&' if query else '?'}format=json")
    assert "json" in plain.headers["Content-Type"]


def test_an_id_that_ends_like_a_page_stays_data(browser: httpx.Client) -> None:
    """An entity whose name ends in .html is had as data at its address, and as a page by a browser."""
    id = "prod/payments/deployment/x.html"
    document = _document(id, "x.html")
    assert browser.put(f"/subgraph/{id}", content=document, headers={"Content-Type": "text/turtle"}).status_code == 201
    assert browser.get(f"/doc/{id}", headers={"Accept": "*/*"}).json()["name"] == "x.html"
    assert Page(browser.get(f"/doc/{id}.html").text).title.startswith("x.html")


def test_the_page_of_an_entity_shows_what_it_is_and_how_it_does(browser: httpx.Client) -> None:
    """State, place, containers, runs of its pods, metrics, links both ways, and its data in every syntax."""
    text = browser.get(f"/doc/{CHECKOUT}").text
    page = Page(text)
    assert page.title.startswith("checkout · Deployment")
    for shown in ("Running", "256 MiB", "registry.example/checkout:2.3.1", "edge-a-1", "cpu_usage", "managed by"):
        assert shown in text, shown
    assert {f"../../../../doc/{CHECKOUT}.{each}" for each in ("ttl", "jsonld", "nt")} <= set(page.values("href"))
    parts = [each for each in page.values("data-src") if "history.html" in each]
    assert any("metric=cpu_usage" in each for each in parts)
    assert len(text.encode()) < 60_000


def test_the_page_of_a_deleted_entity_says_so(browser: httpx.Client) -> None:
    """410, when it was deleted, and who it was."""
    id = "prod/payments/deployment/gone"
    document = _document(id, "gone")
    assert browser.put(f"/subgraph/{id}", content=document, headers={"Content-Type": "text/turtle"}).status_code == 201
    assert browser.delete(f"/subgraph/{id}").status_code == 204
    answer = browser.get(f"/doc/{id}")
    assert answer.status_code == 410
    assert "It was deleted at" in answer.text
    assert "Deployment" in answer.text


def test_an_empty_result_is_explained(browser: httpx.Client) -> None:
    """A misspelt class is named, with what was meant; a query that is right says that its conditions do not meet."""
    wrong = browser.get("/sparql", params={"query": f"PREFIX : <{NS}> SELECT * {{ ?x a :Deploymnt }}"}).text
    assert "Did you mean :Deployment?" in wrong
    right = browser.get("/sparql", params={"query": f'PREFIX : <{NS}> SELECT * {{ ?x a :Node ; :name "none" }}'}).text
    assert "Did you mean" not in right
    assert "Nothing was found." in right
    refused = browser.get("/sparql", params={"query": "SELECT * {"})
    assert refused.status_code == 400
    assert 'role="alert"' in refused.text


def test_a_result_links_its_entities_and_has_its_downloads(browser: httpx.Client) -> None:
    """IRIs of entities are links to their pages; each download is the same query in another format."""
    page = Page(browser.get("/queries/runs-on-node", params={"node": "prod/-/node/edge-a-1"}).text)
    links = page.values("href")
    assert any(each.startswith("../doc/prod/") and "/pod/" in each for each in links)
    (csv,) = [each for each in links if each.endswith("format=csv")]
    rows = browser.get(urljoin(f"{browser.base_url}/queries/runs-on-node", csv)).text.splitlines()
    assert rows[0] == "pod,start,end,outcome"


def test_search_narrows_by_facets(browser: httpx.Client) -> None:
    """Each value of a facet is a link that narrows, a chosen one a link that widens; the address says it all."""
    page = browser.get("/search", params={"type": "Pod", "namespace": "payments"})
    assert "phase=Running" in page.text
    assert 'aria-current="true"' in page.text
    assert page.text.count("doc/prod/payments/pod/") >= 3


def test_changes_are_listed_the_newest_first_and_by_entity(browser: httpx.Client) -> None:
    """A write shows up at the top with its statements; the changes of one entity are its own alone."""
    id = "prod/payments/deployment/changing"
    for version in ("1", "2"):
        document = _document(id, "changing", f'<{NS}version> "{version}" ;')
        answer = browser.put(f"/subgraph/{id}", content=document, headers={"Content-Type": "text/turtle"})
        assert answer.status_code in (201, 204)

    def own_page() -> str:
        return browser.get("/changes", params={"entity": id, "quads": "true"}).text

    until(lambda: own_page().count(f"doc/{id}") >= 2)  # the feed is a moment behind the store
    own = own_page()
    assert "checkout" not in own.partition("<tbody>")[2]
    assert own.index(">changed<") < own.index(">created<")
    assert browser.get("/changes").text.partition("<tbody>")[2].index("changing") < 500
    compared = browser.get("/compare", params={"entity": id}).text
    rows = re.findall(r"<tr><td.*?</tr>", compared)
    assert [re.sub(r"<[^>]*>", " ", row).split() for row in rows] == [["the", "entity", "version", "−", "1", "+", "2"]]
    (since,) = re.findall(r'name="from" value="(\d+)"', compared)
    then = browser.get(f"/doc/{id}", params={"at": since}).text
    assert f"generation {int(since):,}" in then
    assert "<dd>1</dd>" in then
    assert f"doc/{id}.ttl?at={since}" in then


def test_a_plan_is_drawn_and_told_in_a_table(browser: httpx.Client) -> None:
    """Steps that wait for each other too: a box and a row for each, states in words, the picture with a title and a description."""
    page = browser.get(f"/doc/{EVIL_JOB}").text
    plan = page.partition('id="plan"')[2].partition("</section>")[0]
    assert plan.count("<rect ") == 3
    assert plan.count('<path class="edge') == 3
    assert plan.count('class="edge back"') == 1
    assert '<title id="plan-title">' in plan
    assert '<desc id="plan-text">3 steps and 3 links' in plan
    rows = [re.sub(r"<[^>]*>", " ", row) for row in re.findall(r"<tr>.*?</tr>", plan, re.DOTALL)]
    assert [row.split()[-3:] for row in rows[1:]] == [
        ["a", "Running", "b"],
        ["b", "Pending", "a"],
        ["c", "Failed", "b"],
    ]


def test_a_domain_has_a_board_and_a_node_its_usage(browser: httpx.Client) -> None:
    """Machines by state lead to the search for them; of what cannot be measured it is said why, and what is reserved is shown."""
    board = browser.get("/doc/domain/local.html", params={"part": "board"}).text
    assert "search?type=Node&amp;domain=local&amp;phase=Ready" in board
    usage = browser.get("/measured", params={"entity": "prod/-/node/edge-a-1"}).text
    assert re.search(r"Reserved</td><td class=\"number\">[0-9.]+ cores", usage)
    assert "is not configured" in usage


def test_changes_around_an_entity_are_listed_together(browser: httpx.Client) -> None:
    """Those of what is linked with it too, in one order, each once, page by page."""
    seen, address = [], f"/changes?entity={CHECKOUT}&around=true&limit=3"
    while len(seen) < 30:
        page = browser.get(address)
        row = r'<tr><td class="when">.*?href="[./]*doc/([^"]*)".*?number">([\d,]+)</td>'
        seen += re.findall(row, page.text, re.DOTALL)
        following = re.search(r'rel="next" href="\./([^"]*)"', page.text)
        if following is None:
            break
        address = f"/{following[1].replace('&amp;', '&')}&limit=3"
    assert len(set(seen)) == len(seen)
    assert {"prod/payments/pod", "prod/payments/deployment"} <= {id.rpartition("/")[0] for id, _ in seen}
    generations = [int(number.replace(",", "")) for _, number in seen]
    assert generations == sorted(generations, reverse=True)


def test_changes_lead_on_without_a_gap(browser: httpx.Client) -> None:
    """Page by page every change of the log comes once, also those of one generation."""
    seen, address = [], "/changes?limit=7"
    for _ in range(40):
        page = browser.get(address)
        seen += re.findall(r'<tr><td class="when">.*?href="[./]*doc/([^"]*)"', page.text)
        following = re.search(r'rel="next" href="\./([^"]*)"', page.text)
        if following is None:
            break
        address = f"/{following[1].replace('&amp;', '&')}&limit=7"
    assert len(seen) > 100
    headers = {"Accept": "application/cloudevents-batch+json"}

    def changes() -> list[str]:
        return [each["subject"] for each in browser.get("/events?since=0", headers=headers).json()]

    until(lambda: len(changes()) >= len(seen))  # the feed follows the log a moment later
    assert seen == changes()[::-1][: len(seen)]


def test_a_part_has_addresses_of_the_page_that_shows_it(browser: httpx.Client) -> None:
    """A part for a page four folders deep has no frame of its own, and its links lead up from there; so has its error."""
    part = browser.get("/changes", params={"fragment": 4}).text
    assert "<html" not in part
    assert 'href="../../../../doc/' in part
    failed = browser.get("/history.html", params={"entity": CHECKOUT, "metric": "none", "fragment": 4})
    assert failed.status_code == 404
    assert "<html" not in failed.text


def test_assets_are_kept_for_good_under_their_hash(browser: httpx.Client) -> None:
    """The style sheet that a page names may be kept; under another name it is looked at again; nothing else is there."""
    (style,) = [each for each in Page(browser.get("/").text).values("href") if each.endswith(".css")]
    answer = browser.get(f"/{style.removeprefix('./')}")
    assert answer.headers["Content-Type"].startswith("text/css")
    assert "immutable" in answer.headers["Cache-Control"]
    assert browser.get("/static/old/style.css").headers["Cache-Control"] == "no-cache"
    assert browser.get("/static/old/..%2frendering.py").status_code == 404


def test_the_root_is_found_without_its_last_slash(browser: httpx.Client) -> None:
    """/kg leads to /kg/, from where the page's relative addresses are right."""
    answer = browser.get("/kg")
    assert (answer.status_code, urljoin("https://kg.example/kg", answer.headers["Location"])) == (
        308,
        "https://kg.example/kg/",
    )


def test_an_empty_answer_is_explained_to_programs_on_request(browser: httpx.Client, prefixed: Service) -> None:
    """``explain=true`` adds warnings to an empty result in JSON and nothing else; client and command line pass them on."""
    wrong = f"PREFIX : <{NS}> SELECT ?x {{ ?x a :Deploymnt }}"
    json = {"Accept": "application/sparql-results+json"}
    told = browser.get("/sparql", params={"query": wrong, "explain": "true"}, headers=json).json()
    assert told["results"]["bindings"] == []
    assert told["warnings"][0]["suggestion"] == ":Deployment"
    assert "warnings" not in browser.get("/sparql", params={"query": wrong}, headers=json).json()
    right = f"PREFIX : <{NS}> SELECT ?x {{ ?x a :Deployment }}"
    plain, asked = (
        browser.get("/sparql", params={"query": right, **more}, headers=json).json()
        for more in ({}, {"explain": "true"})
    )
    assert plain == asked
    csv = browser.get("/sparql", params={"query": wrong, "explain": "true", "format": "csv"})
    assert csv.text.split() == ["x"]
    with drumlin.connect(prefixed.url) as client:
        assert "did you mean :Deployment?" in client.sparql(wrong, explain=True).warnings[0]
        assert list(client.sparql(right, explain=True).warnings) == []
    printed = drumlin_asks("sparql", wrong, "-u", prefixed.url)
    assert (printed.returncode, "did you mean :Deployment?" in printed.stderr) == (0, True)
