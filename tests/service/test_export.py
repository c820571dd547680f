"""``/export``, ``drumlin dump`` and ``drumlin import`` on a running service."""

from __future__ import annotations

import gzip
import json
import os
import time
from collections import deque
from pathlib import Path

import httpx
import pytest

import drumlin
from drumlin.kg import rdf
from drumlin.kg.errors import SourceUnavailable
from drumlin.kg.store.embedded.store import EmbeddedStore
from tests.service.conftest import BASE, NS, SAMPLE, Service, drumlin_asks, run_drumlin, serving, until_ready
from tests.store.test_files import TYPE, read_back


@pytest.mark.parametrize("syntax", ["nquads", "trig", "jsonld"])
def test_a_dump_is_imported_as_it_was(service: Service, tmp_path: Path, syntax: str) -> None:
    """What a service dumps fills an empty store with the same graphs; importing it again changes nothing."""
    told = drumlin_asks("dump", "--url", service.url, "--format", syntax)
    assert told.returncode == 0, told.stderr
    path = tmp_path / f"graph{rdf.syntax_named(syntax).suffix}.gz"
    path.write_bytes(gzip.compress(told.stdout.encode()))
    store = str(tmp_path / "store")
    first = drumlin_asks("import", str(path), "--store", store, "--base", BASE)
    assert first.returncode == 0, first.stderr
    if syntax == "nquads":
        again = drumlin_asks("import", str(path), "--store", store, "--base", BASE)
        assert (again.returncode, " 0 graphs written" in f" {again.stderr.strip()}") == (0, True)
    copy = EmbeddedStore(tmp_path / "store")
    assert copy.generation == 1
    assert dict(copy.export()) == read_back(told.stdout.encode(), rdf.syntax_named(syntax))
    copy.close()


def test_an_export_goes_into_another_service(service: Service, tmp_path: Path) -> None:
    """Through a service an import is validated and written like any other write; what another owns is left and reported."""
    told = drumlin_asks("dump", "--url", service.url, "--type", "Workload")
    (tmp_path / "w.nq").write_text(told.stdout)
    with serving(environment={"PYTHONHASHSEED": "1"}) as other:
        done = drumlin_asks("import", str(tmp_path / "w.nq"), "--url", other.url, "--base", BASE)
        assert done.returncode == 0, done.stderr
        back = httpx.get(other.url + "/export", params={"type": "Workload"}, timeout=30)
        assert back.text == told.stdout
        for wanted in ("format=trig", "format=turtle", "format=jsonld", "frame=each", "frame=Workload"):
            both = [
                httpx.get(f"{each}/export?type=Workload&{wanted}", timeout=60).content
                for each in (service.url, other.url)
            ]
            assert both[0] == both[1], (
                wanted
            )  # another process, which hashes texts otherwise, and another way to the same graphs
        to = ("--url", other.url, "--base", BASE, "-o", "json")
        foreign = drumlin_asks("import", str(tmp_path / "w.nq"), *to, "--owner", "somebody")
        account = json.loads(foreign.stdout)
        graphs = set(read_back(told.stdout.encode(), rdf.NQUADS))
        assert (foreign.returncode, account["written"], account["unchanged"]) == (3, 0, 0)
        assert {each["graph"] for each in account["left"]} == graphs
        assert {each["owner"] for each in account["left"]} == {"user"}


def test_filters_syntaxes_and_gzip(http: httpx.Client) -> None:
    """Each filter narrows, each syntax is valid, gzip is given on request only, and equal questions get equal bytes."""
    whole = http.get("/export", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in whole.headers
    packed = http.get("/export", headers={"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == whole.content
    pods = http.get("/export", params={"type": "Pod", "namespace": "payments", "format": "trig"})
    graphs = read_back(pods.content, rdf.TRIG)
    assert graphs
    assert all("/payments/pod/" in graph for graph in graphs)
    turtle = http.get("/export", params={"prefix": "prod/payments/"}, headers={"Accept": "text/turtle"})
    assert turtle.headers["content-type"].startswith("text/turtle")
    assert rdf.parse(turtle.content, rdf.TURTLE)
    assert http.get("/export", params={"format": "rdfxml"}).status_code == 406


def test_each_filter_gives_the_graphs_that_say_so(http: httpx.Client) -> None:
    """By class, owner, domain and namespace, alone and together, an export holds what the graphs themselves say, and nothing else."""
    whole = read_back(http.get("/export", timeout=60).content, rdf.NQUADS)
    owners = {each["iri"]: each["owner"] for each in _listed(http)}
    domain = http.get("/search", params={"facet": "domain", "limit": 1}).json()["facets"]["domain"]
    said = {
        "type": lambda graph, lines, value: any(f"<{graph}> <{TYPE}> <{NS}{value}> ." == line for line in lines),
        "domain": lambda graph, lines, value: f"<{graph}> <{NS}domain> <{BASE}/id/domain/{value}> ." in lines,
        "namespace": lambda graph, lines, value: f'<{graph}> <{NS}namespace> "{value}" .' in lines,
        "owner": lambda graph, _, value: owners.get(graph) == value,
    }
    source = next(each for each in owners.values() if each not in ("user", "drumlin"))
    for chosen in (
        {"type": "Pod"},
        {"owner": "drumlin"},
        {"domain": min(domain)},
        {"namespace": "payments"},
        {"type": "Pod", "owner": source, "domain": min(domain), "namespace": "payments"},
    ):
        found = read_back(http.get("/export", params=chosen, timeout=60).content, rdf.NQUADS)
        wanted = {
            graph: lines
            for graph, lines in whole.items()
            if all(said[name](graph, lines, value) for name, value in chosen.items())
        }
        assert found == wanted != {}, chosen


def _listed(http: httpx.Client) -> list[dict[str, str]]:
    """Return all entities, tombstones among them."""
    found: list[dict[str, str]] = http.get("/subgraphs", params={"tombstones": True, "limit": 10_000}).json()["items"]
    return found


def test_an_export_begins_at_once_and_ends_with_its_reader(service: Service) -> None:
    """The first piece comes long before the last is made; when the client has left, no more of it is."""
    url = f"{service.url}/export?frame=each"
    with httpx.Client(timeout=60) as http:
        before, size = processor(service), len(http.get(url).content)
        whole = processor(service) - before
        with http.stream("GET", url) as answer:
            first = next(answer.iter_raw())
        begun = -1.0
    assert 0 < len(first) < size / 4
    deadline = time.monotonic() + 30
    while (now := processor(service)) != begun:
        assert time.monotonic() < deadline
        begun = now
        time.sleep(0.2)
    assert now - before - whole < whole / 2


def processor(service: Service) -> float:
    """Return the processor time that a service has taken, in seconds."""
    fields = Path(f"/proc/{service.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_framed_export_is_trees_and_comes_back(http: httpx.Client) -> None:
    """Each entity in the shape of its class, the same graphs and bytes every time; one class alone; a frame of one's own; a bad one is told."""
    whole = read_back(http.get("/export", timeout=60).content, rdf.NQUADS)
    framed = http.get("/export", params={"frame": "each"}, timeout=60)
    assert framed.headers["content-type"] == "application/ld+json"
    assert read_back(framed.content, rdf.JSONLD) == whole
    one, again = (http.get("/export", params={"frame": "Deployment", "namespace": "payments"}) for _ in range(2))
    assert one.content == again.content
    documents = [each["@graph"][0] for each in one.json()["@graph"]]
    assert {each["type"] for each in documents} == {"Deployment"}
    assert documents[0]["container"][0]["image"]
    assert len(http.get("/export", params={"frame": "Workload"}).json()["@graph"]) == 20
    own = http.get("/export", params={"frame": '{"type": "Node", "@explicit": true, "name": {}}'}).json()["@graph"]
    assert len(own) == 6
    assert all(each["@graph"][0].keys() == {"id", "type", "name"} for each in own)
    statuses = {"Deploymnt": 404, "{": 422, '{"@embed": "x", "type": "Node"}': 422}
    assert {frame: http.get("/export", params={"frame": frame}).status_code for frame in statuses} == statuses
    assert http.get("/export", params={"frame": "each", "format": "turtle"}).status_code in (406, 415)
    assert http.get("/export", params={"frame": "each"}, headers={"Accept": "text/turtle"}).status_code == 406


def test_a_framed_dump_is_json_ld(service: Service) -> None:
    """``drumlin dump --frame`` needs no format."""
    told = drumlin_asks("dump", "--url", service.url, "--frame", "Node", "--prefix", "prod/-/node/edge-a-1")
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["@graph"][0]["@graph"][0]["name"] == "edge-a-1"


def test_an_export_that_is_cut_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    """``kill -9`` in the middle: the client raises instead of ending early; what a file export left is removed at the next start."""
    out = tmp_path / "out"
    out.mkdir()
    (out / ".drumlin.nq.gz-abc").write_bytes(b"half")
    with (
        serving("--source", f"dump:{SAMPLE}", "--export-to", str(out)) as running,
        drumlin.connect(running.url) as client,
    ):
        until_ready(running)
        assert not (out / ".drumlin.nq.gz-abc").exists()
        chunks = client.export("jsonld", frame="each")
        assert next(chunks)
        running.process.kill()
        with pytest.raises(SourceUnavailable):
            deque(chunks, maxlen=0)


def test_a_service_exports_into_a_directory(tmp_path: Path) -> None:
    """``--export-to`` writes a file at once, whole, and a wrong interval is said at the start."""
    with serving("--export-to", str(tmp_path / "out"), "--export-every", "1s") as running:
        until_ready(running)
        path = tmp_path / "out" / "drumlin.nq.gz"
        deadline = time.monotonic() + 30
        while not path.exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert read_back(gzip.decompress(path.read_bytes()), rdf.NQUADS)
    wrong = run_drumlin("serve", "--export-to", str(tmp_path / "out"), "--export-every", "often")
    assert (wrong.returncode, "not a duration" in wrong.stderr) == (1, True)
