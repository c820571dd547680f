"""Bodies that ended a service, at every door of one that runs: each is refused with its reason, and the process goes on."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from drumlin.kg import rdf
from drumlin.kg.rdf.nesting import MAX_NESTING
from tests import hostile
from tests.service.conftest import BASE, OWN, OWN_DOCUMENT, Service, run_drumlin, serving

DEEP = f"nested more than {MAX_NESTING} levels deep"
_LISTS = b'{"@id":"x:a","x:p":' + b'{"@list":[' * 12_000 + b"1" + b"]}" * 12_000 + b"}"
_STAR = b'{"x:p":' * 40 + b"1" + b"}" * 40
# (syntax, body, what the answer says)
BODIES = {
    "triple terms in N-Triples": (rdf.NTRIPLES, hostile.triple_terms(12_000), DEEP),
    "triple terms in N-Quads": (rdf.NQUADS, hostile.triple_terms(12_000), DEEP),
    "triple terms in Turtle": (rdf.TURTLE, hostile.triple_terms(12_000), DEEP),
    "triple terms in TriG": (rdf.TRIG, hostile.triple_terms(12_000), DEEP),
    "reified triples": (rdf.TURTLE, hostile.reified_triples(12_000), DEEP),
    "annotations": (rdf.TURTLE, hostile.annotations(12_000), DEEP),
    "collections": (rdf.TURTLE, hostile.collections(100_000), DEEP),
    "blank nodes": (rdf.TRIG, hostile.blank_nodes(12_000), DEEP),
    "formulas": (rdf.N3, hostile.formulas(12_000), DEEP),
    "elements": (rdf.RDFXML, hostile.elements(20_000), DEEP),
    "entities": (rdf.RDFXML, hostile.entities(12), "document type (DOCTYPE)"),
    "entities in UTF-16": (rdf.RDFXML, hostile.entities(12).decode().encode("utf-16"), "UTF-8 only"),
    "lists in JSON-LD": (rdf.JSONLD, _LISTS, "nested 24001 levels deep; the limit is 32"),
    "nodes in JSON-LD": (rdf.JSONLD, b'{"@id":' * 20_000 + b'"x:a"' + b"}" * 20_000, "the limit is 32"),
    "arrays in JSON-LD": (rdf.JSONLD, b"[" * 100_000 + b"]" * 100_000, "the limit is 32"),
    "properties in JSON-LD": (rdf.JSONLD, _STAR, "nested 40 levels deep; the limit is 32"),
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with one entity, and a directory for forecasts."""
    directory = tmp_path_factory.mktemp("service")
    config = directory / "drumlin.toml"
    config.write_text(f'[[datasource]]\nname = "files"\nkind = "parquet"\nurl = "{(directory / "files").as_uri()}"\n')
    with serving("--store", str(directory / "store"), "--config", str(config)) as found:
        document = OWN_DOCUMENT.encode()
        httpx.put(OWN.replace(f"{BASE}/id", f"{found.url}/subgraph"), content=document, headers=_typed("text/turtle"))
        yield found


@pytest.fixture
def http(running: Service) -> Iterator[httpx.Client]:
    """A client; in the end the process still answers, and nothing unexpected is in its log."""
    with httpx.Client(base_url=running.url, timeout=60) as client:
        yield client
        assert running.process.poll() is None, "".join(running.log)
        assert client.get("/livez").status_code == 200
    assert not any("request_crashed" in each for each in running.log)


def _typed(media_type: str) -> dict[str, str]:
    return {"Content-Type": media_type}


def _refused(answer: httpx.Response, said: str, status: int = 422) -> None:
    assert answer.status_code == status, answer.text[:500]
    assert said in answer.json()["detail"]


@pytest.mark.parametrize("name", BODIES)
def test_a_document_is_refused_wherever_documents_are_taken(http: httpx.Client, name: str) -> None:
    """By the entity's own address, by the Graph Store Protocol in all its forms, and in a part of a form."""
    syntax, body, said = BODIES[name]
    typed = _typed(syntax.media_type)
    places = [
        ("PUT", "/subgraph/prod/payments/deployment/own"),
        ("POST", "/subgraph/prod/payments/deployment/new"),
        ("PUT", "/store?graph=http://x/g"),
        ("POST", "/store?graph=http://x/g"),
        ("PUT", "/store/g"),
        ("POST", "/store?default"),
        ("POST", "/store"),
        *([("PUT", "/store")] if syntax.quads else []),
    ]

    for method, place in places:
        _refused(http.request(method, place, content=body, headers=typed), said)
    form = http.post("/store?graph=http://x/g", files={"file": (f"a{syntax.suffix}", body, syntax.media_type)})
    _refused(form, said)
    assert http.get("/store?graph=http://x/g").status_code == 404


def test_a_document_in_a_bulk_request_and_a_patch_is_refused(http: httpx.Client) -> None:
    """A line of a bulk request says it for itself; a merge-patch and a frame are held to the same limit."""
    for depth in (40, 20_000):
        nested = '{"hasPart":' * depth + "{}" + "}" * depth
        line = f'{{"op":"put","id":"prod/payments/deployment/own","document":{nested}}}\n'
        said = http.post("/subgraphs", content=line, headers=_typed("application/x-ndjson")).text
        assert json.loads(said.splitlines()[0])["problem"]["status"] == 422
        for method, place, media_type in (
            ("PATCH", "/subgraph/prod/payments/deployment/own", "application/merge-patch+json"),
            ("PUT", "/subgraph/prod/payments/deployment/own", "application/json"),
        ):
            _refused(http.request(method, place, content=nested, headers=_typed(media_type)), "the limit is 32")


ENDED = "the parser ended on it (SIG"


def test_a_document_that_ends_its_parser_ends_a_worker_alone(http: httpx.Client) -> None:
    """Nothing that is checked before finds it: terms that are defined by one another. It is refused, and the next document is read."""
    body = hostile.aliases(20_000)
    typed, sound = _typed("application/ld+json"), _typed("text/turtle")
    lines = b"".join(b'{"op":"put","id":"domain/a","document":%s}\n' % each for each in (body, b'{"type":"x"}', body))

    for method, place in (("PUT", "/subgraph/prod/payments/deployment/own"), ("POST", "/store")):
        _refused(http.request(method, place, content=body, headers=typed), ENDED)
        assert http.put("/store?graph=http://x/s", content=b"<x:a> <x:b> 1 .", headers=sound).status_code in (201, 204)
    told = http.post("/subgraphs", content=lines, headers=_typed("application/x-ndjson")).text.splitlines()
    problems = [json.loads(each)["problem"] for each in told]
    assert [each["status"] for each in problems] == [422, 422, 422]
    assert [ENDED in each["detail"] for each in problems] == [True, False, True]


def test_a_batch_with_a_line_that_ends_its_parser_is_written_but_for_that_line(http: httpx.Client) -> None:
    """The worker of a thousand lines is lost with one of them: each is then read by itself."""
    sound = [
        json.dumps({"op": "put", "id": f"domain/h{n}", "document": {"id": f"{BASE}/id/domain/h{n}", "type": "Domain", "name": "h"}})
        for n in range(1000)
    ]  # fmt: skip
    sound[500] = '{"op":"put","id":"domain/h","document":' + hostile.aliases(20_000).decode() + "}"

    told = http.post("/subgraphs", content="\n".join(sound), headers=_typed("application/x-ndjson")).text.splitlines()

    outcomes = [json.loads(each) for each in told]
    assert ENDED in outcomes.pop(500)["problem"]["detail"]
    assert {each["outcome"] for each in outcomes} == {"created"}


def test_a_bomb_of_newlines_is_refused_before_it_is_unpacked(http: httpx.Client) -> None:
    """50 KB of gzip that unpack to 50 MB of empty lines; lines of blanks and a document that unpacks too far name their limits."""
    typed = {**_typed("application/x-ndjson"), "Content-Encoding": "gzip"}
    for body, said in (
        (b"\n" * 50_000_000, "at most 100,000 empty lines"),
        (b" " * 5_000_000, "a line has more than"),
    ):
        _refused(http.post("/subgraphs", content=gzip.compress(body), headers=typed), said, 413)
    packed = {**_typed("text/turtle"), "Content-Encoding": "gzip"}
    bomb = http.put("/store?graph=http://x/g", content=gzip.compress(b"\n" * 50_000_000), headers=packed)
    _refused(bomb, "more than 1,048,576 bytes", 413)


def test_a_form_of_too_many_parts_is_refused_before_they_are_read(http: httpx.Client) -> None:
    """20,000 parts within the limit of a document."""
    part = b"--x\r\nContent-Type: text/turtle\r\n\r\n.\r\n"
    body = part * 20_000 + b"--x--\r\n"

    answer = http.put("/store?graph=http://x/g", content=body, headers=_typed("multipart/form-data; boundary=x"))

    _refused(answer, "at most 100 parts", 413)


@pytest.mark.parametrize("place", ["/resolve", "/history"])
def test_a_json_body_is_refused_by_its_depth(http: httpx.Client, place: str) -> None:
    """Routes whose bodies the framework reads say what is wrong with them, too."""
    for body in (b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 100_000 + b"1" + b"}" * 100_000):
        _refused(http.post(place, content=body, headers=_typed("application/json")), "nested too deeply")


@pytest.mark.parametrize("opening", ["<<( <x:s> <x:p> ", "<< <x:s> <x:p> ", "( ", "[ <x:p> ", "<x:o> {| <x:p> "])
def test_an_update_is_refused_by_the_gate(http: httpx.Client, opening: str) -> None:
    """INSERT DATA, templates and WHERE parts, as an update and as a patch of one entity; queries too."""
    deep = f"<x:s> <x:p> {opening * 12_000}"
    for text in (
        f"INSERT DATA {{ {deep}",
        f"DELETE DATA {{ GRAPH <x:g> {{ {deep}",
        f"INSERT {{ {deep} }} WHERE {{}}",
        f"DELETE WHERE {{ {deep}",
    ):
        update = http.post("/sparql/update", content=text, headers=_typed("application/sparql-update"))
        patch = http.patch(
            "/subgraph/prod/payments/deployment/own", content=text, headers=_typed("application/sparql-update")
        )
        for answer in (update, patch):
            _refused(answer, "nested more than", 413)
    query = http.post("/sparql", content=f"SELECT * {{ {deep}", headers=_typed("application/sparql-query"))
    assert query.status_code == 413
    assert "nested more than" in query.json()["detail"]


def test_an_update_cannot_have_a_reader_answer_what_is_too_deep(http: httpx.Client) -> None:
    """A WHERE part can nest triples in triples, hundreds of levels in a line: what comes of it is refused before it is read."""
    levels = "".join(
        f"BIND(TRIPLE(<x:s>,<x:p>,{'TRIPLE(<x:s>,<x:p>,' * 30}?v{n}{')' * 30}) AS ?v{n + 1})" for n in range(200)
    )
    http.post(
        "/sparql/update",
        content="INSERT DATA { GRAPH <x:h> { <x:s> <x:p> 1 } }",
        headers=_typed("application/sparql-update"),
    )

    text = f"INSERT {{ GRAPH <x:h> {{ <x:s> <x:q> ?v200 }} }} WHERE {{ GRAPH <x:h> {{ <x:s> <x:p> ?v0 }} {levels} }}"
    answer = http.post("/sparql/update", content=text, headers=_typed("application/sparql-update"))

    _refused(answer, f"triple terms are {DEEP}")
    assert http.get("/store?graph=x:h").status_code == 200


FORECAST = {
    "entity": "prod/payments/deployment/own",
    "metric": "cpu_usage",
    "model": "m",
    "horizon": "1h",
    "step": "1m",
}
STREAMS = {
    "offsets out of bounds": (hostile.out_of_bounds, "out of bounds", 422),
    "indices out of their dictionary": (hostile.out_of_dictionary, "not a valid Arrow IPC stream", 422),
    "a bomb of zstd": (lambda: hostile.bomb("zstd"), "the limit is 268,435,456", 413),
    "a bomb of lz4": (lambda: hostile.bomb("lz4"), "the limit is 268,435,456", 413),
    "too many rows": (lambda: hostile.stream(pa.table({"y": pa.nulls(1_000_001)})), "more than 1,000,000 rows", 413),
    "Parquet": (lambda: b"PAR1" * 100, "not a valid Arrow IPC stream", 422),
    "nothing": (bytes, "not a valid Arrow IPC stream", 422),
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_forecast_is_refused_by_what_is_wrong_with_its_stream(http: httpx.Client, name: str) -> None:
    """Before anything of it is used; the message has pyarrow's words or the limit."""
    make, said, status = STREAMS[name]

    answer = http.post(
        "/forecasts", params=FORECAST, content=make(), headers=_typed("application/vnd.apache.arrow.stream")
    )

    _refused(answer, said, status)


@pytest.mark.parametrize("syntax", [rdf.NQUADS, rdf.TRIG])
def test_an_import_names_the_line_and_ends_with_an_error(tmp_path: Path, syntax: rdf.Syntax) -> None:
    """The command line reads a file of any size, and says where it is too deep."""
    graph = "<https://kg.example/id/x> " if syntax is rdf.NQUADS else ""
    file = tmp_path / f"dump{syntax.suffix}"
    file.write_bytes(b"# a dump\n" + hostile.triple_terms(100_000, graph))

    done = run_drumlin("import", str(file), "--store", str(tmp_path / "store"), "--base", BASE)

    assert done.returncode not in (0, -11), (done.returncode, done.stderr)
    assert f"{DEEP} at line 2" in " ".join(done.stderr.split())


def test_an_import_of_json_ld_that_ends_its_parser_ends_with_an_error(tmp_path: Path) -> None:
    """The command line has the same limits as a service: it says what is wrong, and is not ended."""
    file = tmp_path / "dump.jsonld"
    file.write_bytes(hostile.aliases(20_000))

    done = run_drumlin("import", str(file), "--store", str(tmp_path / "store"), "--base", BASE)

    assert done.returncode > 0, (done.returncode, done.stderr)
    assert ENDED in " ".join(done.stderr.split())
