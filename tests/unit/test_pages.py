"""Pages without a server: which requests get one, what templates may hold, and the pictures."""

from __future__ import annotations

import json
import math
import re
import threading
import tomllib
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

import pytest

from drumlin.api.http.relative_addresses import prefix_of, root_from, without_prefix
from drumlin.api.pages import series, wording
from drumlin.api.pages.addresses import has_page, to_page, wants_page
from drumlin.api.pages.charts import chart, plotted, summary
from drumlin.api.pages.drawing import EACH_SIDE, Neighbour, draw
from drumlin.api.pages.series import KEPT, SharedSeries
from drumlin.api.pages.timelines import WIDTH, RanRun, timeline
from drumlin.api.pages.values import ShownValue, shown_binding, shown_iri
from drumlin.kg.errors import SourceUnavailable
from drumlin.kg.model.iris import Iris
from drumlin.kg.sparql.absent_terms import absent_terms
from drumlin.kg.telemetry.series import Window

PAGES = Path(__file__).parents[2] / "api" / "pages"
TEMPLATES = sorted((PAGES / "templates").iterdir())
BROWSER = b"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
NS = "https://w3id.org/drumlin/ns#"
IRIS = Iris("https://kg.example")


@pytest.mark.parametrize(
    ("path", "accept", "query", "wanted"),
    [
        ("/search", BROWSER, b"q=x", True),
        ("/search", b"*/*", b"q=x", False),
        ("/search", None, b"", False),
        ("/search", b"application/json, text/html;q=0.9", b"", False),
        ("/search", BROWSER, b"format=json", False),
        ("/search", b"*/*", b"format=html", True),
        ("/doc/a/b/c/d", b"text/turtle, text/html;q=0.2", b"", False),
        ("/doc/a/b/c/d", b"text/html;q=0.9, text/turtle;q=0.5", b"", True),
        ("/sparql", BROWSER, b"query=ASK%7B%7D&format=csv", False),
        ("/history", BROWSER, b"entity=a&metric=b&last=7d", True),
        ("/history", BROWSER, b"entity=a&metric=b&step=5m", False),
        ("/search", b"text/html;q=nonsense", b"", False),
    ],
)
def test_html_is_for_clients_that_prefer_it(path: str, accept: bytes | None, query: bytes, wanted: bool) -> None:
    """A browser gets a page, a program data; ``format`` wins, and a parameter that the page lacks means data."""
    assert has_page("GET", path)
    assert wants_page(path, accept, query) is wanted


def test_only_reads_of_addresses_with_a_page_are_negotiated() -> None:
    """Writes, other addresses and the pages themselves are left alone."""
    assert not has_page("POST", "/sparql")
    assert not has_page("GET", "/subgraph/a/b/c/d")
    assert not has_page("GET", "/search.html")


def test_a_request_for_a_page_keeps_all_but_its_format() -> None:
    """The suffix is added to both forms of the path; the other parameters stay, also empty ones."""
    scope: dict[str, Any] = {"path": "/doc/a b", "raw_path": b"/doc/a%20b", "query_string": b"format=html&q=&x=1%262"}
    to_page(scope)
    assert (scope["path"], scope["raw_path"]) == ("/doc/a b.html", b"/doc/a%20b.html")
    assert scope["query_string"] == b"q=&x=1%262"


def test_the_path_of_the_base_is_taken_off_whole_segments_only() -> None:
    """/kg/id becomes /id, /kgx stays; a base without a path has no prefix."""
    assert (prefix_of("https://x.example/kg/"), prefix_of("https://x.example")) == ("/kg", "")
    scope: dict[str, Any] = {"path": "/kg/id/a", "raw_path": b"/kg/id/a"}
    assert without_prefix(scope, "/kg")
    assert (scope["path"], scope["raw_path"]) == ("/id/a", b"/id/a")
    assert not without_prefix({"path": "/kgx/id", "raw_path": b"/kgx/id"}, "/kg")
    assert (root_from(0), root_from(3), root_from(-1)) == ("./", "../../../", "./")


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_holds_no_text_no_script_and_no_address_of_elsewhere(path: Path) -> None:
    """Words stand in one file, so that they can be translated; the Content-Security-Policy forbids the rest."""
    template = path.read_text(encoding="utf-8")
    bare = re.sub(r"\{%.*?%\}|\{\{.*?\}\}", "", template, flags=re.DOTALL)
    assert not re.search(r"\son\w+=|\sstyle=|<style|javascript:|https?://|//[a-z]|\|\s*safe", bare, re.IGNORECASE)
    assert re.findall(r"<script\b[^>]*>", bare) == re.findall(r'<script type="module" src="pages\.js">', bare)
    assert re.findall(r"[A-Za-z]{2,}", re.sub(r"<[^>]*>", "", bare)) == []
    assert "|safe" not in template.replace(" ", "")


def test_every_text_is_used() -> None:
    """No text of the pages is left over: each key of the file occurs in a template."""
    words = tomllib.loads((PAGES / "strings" / "en.toml").read_text(encoding="utf-8"))
    used = "".join(path.read_text(encoding="utf-8") for path in TEMPLATES)
    tables = {"facets", "formats", "outcomes"}
    unused = [
        f"{table}.{key}"
        for table, texts in words.items()
        for key in texts
        if key not in tables
        and f"t.{table}.{key}" not in used
        and not (table == "series" and key in ("copy", "copied", "press_copy"))
    ]
    assert unused == []


def test_the_style_sheet_and_the_script_ask_nothing_of_others() -> None:
    """Neither names another host, and the script never evaluates text."""
    for name in ("style.css", "pages.js"):
        text = (PAGES / "static" / name).read_text(encoding="utf-8")
        assert not re.search(r"https?://|@import|\burl\(|\beval\(|new Function|innerHTML|insertAdjacentHTML", text), (
            name
        )


def test_what_others_made_is_what_its_list_says() -> None:
    """Each vendored file has the hash that ``make vendor`` noted, each of its packages a version and a free licence, and none is left out."""
    bundles = tomllib.loads((PAGES / "vendor" / "vendor.toml").read_text(encoding="utf-8"))["bundle"]
    hashes = {name: noted for bundle in bundles for name, noted in bundle["files"].items()}
    static = PAGES / "static"
    assert hashes.keys() == {each.name for each in static.glob("*.vendored.*s*") if each.suffix != ".txt"}
    for name, noted in hashes.items():
        assert sha256((static / name).read_bytes()).hexdigest() == noted, f"{name}: run make vendor"
    packages = [each for bundle in bundles for each in bundle["packages"]]
    assert {each["licence"] for each in packages} <= {"MIT", "0BSD", "ISC", "BSD-3-Clause"}
    texts = (static / "licences.vendored.txt").read_text(encoding="utf-8")
    assert all(f"{each['name']}\n=" in texts for each in packages)
    locked = json.loads((PAGES / "vendor" / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    assert all(locked[f"node_modules/{each['name']}"]["version"] == each["version"] for each in packages)


def test_all_that_pages_load_is_small() -> None:
    """Styles, scripts and pictures together stay below 1.2 MB, of which a page without an editor or a picture to walk through loads a tenth."""
    sizes = {each.name: each.stat().st_size for each in (PAGES / "static").iterdir() if each.suffix != ".txt"}
    assert sum(sizes.values()) < 1_200_000
    assert sum(size for name, size in sizes.items() if not name.startswith(("editor.", "graph."))) < 120_000


def test_a_chart_has_a_value_or_none_of_each_line_at_each_time() -> None:
    """Measured and predicted points lie on one axis of time; what is not finite is none."""
    told = json.loads(plotted([(0, 1.0), (60, math.nan)], "By", [(60, 3.0), (120, 4.0)], [(120, 3.5, 4.5)]))
    assert told == {
        "unit": "By",
        "at": [0, 60, 120],
        "y": [1.0, None, None],
        "predicted": [None, 3.0, 4.0],
        "low": [None, None, 3.5],
        "high": [None, None, 4.5],
    }


def test_a_chart_leaves_gaps_and_shows_the_interval() -> None:
    """A missing point breaks the line, a lonely one is a dot, a forecast is dashed with its band, ``now`` is marked."""
    points = [(0.0, 1.0), (60.0, 2.0), (120.0, None), (180.0, 3.0), (240.0, None), (300.0, 2.0), (360.0, 1.0)]
    drawn = chart(points, "By", [(360.0, 1.0), (420.0, 2.0)], [(360.0, 0.5, 1.5), (420.0, 1.0, 3.0)], now=360.0)
    assert drawn is not None
    assert drawn.line.count("M") == 2
    assert len(drawn.dots) == 1
    assert drawn.predicted.startswith("M")
    assert drawn.band.endswith("Z")
    assert drawn.now is not None
    assert next(tick.text for tick in drawn.y_ticks) == "0 B"
    assert chart([(0.0, None)], "1") is None
    assert chart([(0.0, float("inf"))], "1") is None


def test_the_words_beside_a_chart_say_what_it_shows() -> None:
    """Last, least, mean and most of the points that are there; nothing where there are none."""
    found = summary([(0.0, 1.0), (1.0, None), (2.0, 3.0)])
    assert (found.last, found.least, found.mean, found.most, found.points) == (3.0, 1.0, 2.0, 3.0, 2)
    assert summary([]).last is None


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.2727, "{cpu}", "1.27 cores"),
        (268_435_456, "By", "256 MiB"),
        (70_000.0, "By/s", "68.4 KiB/s"),
        (28_800.0, "J", "28.8k J"),
        (0.0, "%", "0 %"),
        (0.00123, "1", "0.0012"),
        (None, "1", "–"),
    ],
)
def test_numbers_are_written_as_people_read_them(value: float | None, unit: str, text: str) -> None:
    """Four characters or so, binary prefixes for bytes, units in words."""
    assert wording.number(value, unit) == text


def test_words_of_times_and_amounts() -> None:
    """Times are UTC to the second, lengths have two units, a share is never rounded to the whole."""
    assert wording.moment("2026-11-29T14:03:11.5+02:00") == "2026-11-29 12:03:11Z"
    assert wording.moment("soon") == "soon"
    assert (wording.span(90_061), wording.span(0)) == ("1 d 1 h", "0 s")
    assert (wording.percent(0.99999), wording.percent(1)) == ("99.9 %", "100 %")
    assert (wording.amount("memoryRequest", "1024"), wording.amount("cpuRequest", "1024")) == ("1 KiB", "1024")
    assert (wording.label("cpuRequest"), wording.kind("StatefulSet")) == ("cpu request", "Stateful Set")


NOW = datetime(2026, 11, 29, tzinfo=UTC)


def _run(hours: float, ended: float | None, outcome: str = "") -> RanRun:
    over = None if ended is None else NOW - timedelta(hours=ended)
    return RanRun(ShownValue("pod"), None, NOW - timedelta(hours=hours), over, outcome)


def test_runs_are_bars_on_one_line_of_time() -> None:
    """What still runs comes first and reaches to now; a short run is seen all the same; bars stay inside."""
    found = timeline([_run(10, 5, "Completed"), _run(4, None), _run(1, 0.9999, "OOMKilled")], NOW)
    assert found is not None
    assert [row.state for row in found.rows] == ["running", "bad", "good"]
    assert (found.rows[0].x, found.rows[0].width) == (600, 400)
    assert found.rows[1].width >= 4
    assert all(row.x >= 0 and row.x + row.width <= WIDTH for row in found.rows)
    assert found.running == 1
    assert timeline([], NOW) is None


def test_a_neighbourhood_is_drawn_up_to_a_bound() -> None:
    """Each side has at most so many; a property that repeats is named once; nothing around is no picture."""
    many = [Neighbour("managedBy", ShownValue(f"pod-{n}", f"doc/{n}"), "good") for n in range(50)]
    drawn = draw("checkout", many, many[:1])
    assert drawn is not None
    assert len(drawn.nodes) == EACH_SIDE + 1
    assert [edge.term for edge in drawn.edges if edge.term] == ["managedBy", "managedBy"]
    assert draw("alone", [], []) is None


@pytest.mark.parametrize(
    ("iri", "shown"),
    [
        ("https://kg.example/id/prod/payments/deployment/checkout", ("checkout", "doc/prod/payments/deployment/checkout", False)),
        ("https://kg.example/id/prod/a/pod/x%22%3E/run/7", ("7", "doc/prod/a/pod/x%22%3E", False)),
        (f"{NS}Running", ("Running", "ns#Running", False)),
        ("https://other.example/x", ("https://other.example/x", "https://other.example/x", True)),
        ("javascript:alert(1)", ("javascript:alert(1)", "", False)),
        ("https://kg.example/id/broken", ("https://kg.example/id/broken", "", False)),
    ],
)  # fmt: skip
def test_only_what_has_an_address_becomes_a_link(iri: str, shown: tuple[str, str, bool]) -> None:
    """Entities and terms lead to their pages, web addresses away; no other scheme is ever a link."""
    found = shown_iri(iri, IRIS)
    assert (found.text, found.href, found.away) == shown


def test_a_binding_is_shown_by_its_type() -> None:
    """Times are readable, literals text, unbound variables empty."""
    time = {"type": "literal", "value": "2026-11-29T00:00:00Z", "datatype": "http://www.w3.org/2001/XMLSchema#dateTime"}
    assert shown_binding(time, IRIS).text == "2026-11-29 00:00:00Z"
    assert shown_binding({"type": "literal", "value": "javascript:x"}, IRIS) == ShownValue("javascript:x")
    uri = {"type": "uri", "value": "urn:a"}
    triple = {
        "type": "triple",
        "value": {"subject": uri, "predicate": uri, "object": {"type": "literal", "value": "x"}},
    }
    assert shown_binding(triple, IRIS).text == "<<( urn:a urn:a x )>>"
    assert shown_binding(None, IRIS).text == ""


KNOWN = {f"{NS}Deployment", f"{NS}phase"}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (f"PREFIX : <{NS}> SELECT * {{ ?x a :Deploymnt ; :phase ?p }}", [(":Deploymnt", ":Deployment")]),
        (f"SELECT * {{ ?x a <{NS}deployment> }}", [(f"<{NS}deployment>", f"<{NS}Deployment>")]),
        (f"PREFIX k: <{NS}> SELECT * {{ ?x k:phse ?y FILTER(?y = k:Running) }}", [("k:phse", "k:phase"), ("k:Running", None)]),
        ("SELECT * { ?x <http://o.example/p> ?y }", [("<http://o.example/p>", None)]),
        (f'PREFIX : <{NS}> PREFIX x: <http://www.w3.org/2001/XMLSchema#> SELECT * {{ ?x :phase "1"^^x:int }}', []),
        ("SELECT * { ?x undeclared:p ?y }", []),
        ("no query at §all", []),
    ],
)  # fmt: skip
def test_an_empty_answer_is_explained_by_terms_that_occur_nowhere(
    query: str, found: list[tuple[str, str | None]]
) -> None:
    """Each absent term comes as the query writes it, with what was meant in the same spelling; datatypes are not looked up."""
    assert [(each.written, each.suggestion) for each in absent_terms(query, KNOWN.__contains__)] == found


class Slow:
    """Makes a picture once it is let go, and counts how often it was asked to."""

    def __init__(self) -> None:
        self.count, self.let_go, self.fails = 0, threading.Event(), False

    def __call__(self) -> Any:
        """Be asked for a picture."""
        self.count += 1
        self.let_go.wait(10)
        if self.fails:
            raise SourceUnavailable("it does not answer")
        return f"picture {self.count}"


def test_ten_people_who_look_at_one_series_make_one_query() -> None:
    """Those who come meanwhile wait for the same picture; it is made anew when something newer can be seen."""
    clock, slow = [0.0], Slow()
    shared = SharedSeries(lambda: clock[0])
    got: list[Any] = []
    people = [threading.Thread(target=lambda: got.append(shared.get(("cpu",), slow))) for _ in range(10)]
    for each in people:
        each.start()
    slow.let_go.set()
    for each in people:
        each.join(10)
    assert (got, slow.count) == (["picture 1"] * 10, 1)
    assert shared.get(("memory",), slow) == "picture 2"
    clock[0] += KEPT
    assert shared.get(("cpu",), slow) == "picture 3"


def test_a_series_that_failed_is_asked_for_again() -> None:
    """The error is everybody's who waited, and is not kept."""
    slow = Slow()
    slow.fails = True
    slow.let_go.set()
    shared = SharedSeries(lambda: 0.0)
    with pytest.raises(SourceUnavailable):
        shared.get(("cpu",), slow)
    slow.fails = False
    assert shared.get(("cpu",), slow) == "picture 2"


def test_a_forecast_that_cannot_be_read_is_said_beside_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A datasource that is away is no missing forecast: the page gives the reason."""

    class Away:
        def find(self, *_: str) -> NoReturn:
            raise SourceUnavailable("datasource forecasts does not answer")

    monkeypatch.setattr(series, "forecasts_of", lambda _: Away())
    window = Window(datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC))
    assert series._forecast(None, "e", "m", window) == (None, [], "datasource forecasts does not answer")
