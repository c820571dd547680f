"""/store over a listening server: single graphs, the whole dataset, forms, conditions, and entities under their rules."""

from __future__ import annotations

from typing import Any

import httpx
import pyoxigraph as ox
import pytest

from drumlin.kg import rdf
from tests.service.conftest import BASE, NS, OWN, OWN_DOCUMENT

TURTLE = {"Content-Type": "text/turtle"}
NQUADS = {"Content-Type": "application/n-quads"}
BLANK = '[] a <http://C> ; <http://p> [ <http://q> "é" ] , ( 1 2 ) .'


def _put(client: httpx.Client, graph: str, content: str, **headers: str) -> httpx.Response:
    return client.put("/store", params={"graph": graph}, content=content.encode(), headers={**TURTLE, **headers})


def test_the_same_document_twice_is_no_write(client: httpx.Client) -> None:
    """Blank nodes and all: the second PUT leaves the generation as it is."""
    first = _put(client, "http://g", BLANK)
    second = _put(client, "http://g", BLANK)

    assert (first.status_code, second.status_code) == (201, 204)
    assert first.headers["X-Drumlin-Generation"] == second.headers["X-Drumlin-Generation"]


@pytest.mark.parametrize("syntax", rdf.SYNTAXES, ids=lambda syntax: syntax.name)
def test_a_graph_goes_and_comes_in_every_syntax(client: httpx.Client, syntax: rdf.Syntax) -> None:
    """What is read in one syntax and written back in it is what was there."""
    _put(client, "http://g", BLANK)
    read = client.get("/store", params={"graph": "http://g"}, headers={"Accept": syntax.media_type})
    assert read.status_code == 200
    written = client.put(
        "/store", params={"graph": "http://g"}, content=read.content, headers={"Content-Type": syntax.media_type}
    )

    assert written.status_code == 204
    again = client.get("/store", params={"graph": "http://g"}, headers={"Accept": syntax.media_type})
    assert again.headers["ETag"] == read.headers["ETag"]


def test_a_post_merges_and_keeps_blank_nodes_apart(client: httpx.Client) -> None:
    """Adding a document twice adds its blank nodes twice; what is named is there once."""
    text = '<http://a> <http://p> "x" ; <http://q> [] .'
    answers = [
        client.post("/store", params={"graph": "http://g"}, content=text, headers=TURTLE).status_code for _ in range(2)
    ]

    assert answers == [201, 204]
    lines = client.get("/store", params={"graph": "http://g", "format": "nt"}).text.splitlines()
    assert len(lines) == 3


def test_a_new_graph_gets_a_name_and_an_address(client: httpx.Client) -> None:
    """POST of triples to the store: 201, and Location is the graph's name, readable in both ways."""
    made = client.post("/store", content=BLANK.encode(), headers=TURTLE)
    location = made.headers["Location"]

    assert made.status_code == 201
    assert location.startswith(f"{BASE}/store/")
    assert client.get(location.removeprefix(BASE)).status_code == 200
    assert client.get("/store", params={"graph": location}).status_code == 200


def test_the_whole_dataset_goes_and_comes(client: httpx.Client) -> None:
    """Quads on the store: PUT replaces the foreign graphs, POST adds, GET gives all of them back in each quads syntax."""
    quads = b'<http://a> <http://p> _:x <http://g> .\n<http://a> <http://p> "d" .\n'
    assert client.put("/store", content=quads, headers=NQUADS).status_code == 204
    more = b"<http://h> { <http://b> <http://p> [] }"
    assert client.post("/store", content=more, headers={"Content-Type": "application/trig"}).status_code == 204

    for syntax in ("nq", "trig", "jsonld"):
        answer = client.get("/store", params={"format": syntax})
        graphs = rdf.parse(answer.content, rdf.syntax_named(answer.headers["Content-Type"]))
        assert {name: len(lines) for name, lines in graphs.items() if name is None or not name.startswith(BASE)} == {
            None: 1,
            "http://g": 1,
            "http://h": 1,
        }
        assert f"{BASE}/id/cluster/prod" in graphs
    assert client.get("/store", params={"default": ""}, headers={"Accept": "text/turtle"}).text.count('"d"') == 1
    assert client.put("/store", content=quads, headers=NQUADS).status_code == 204
    assert client.get("/store", params={"graph": "http://h"}).status_code == 404


def test_an_empty_graph_is_there_until_it_is_deleted(client: httpx.Client) -> None:
    """PUT of nothing makes an empty graph: 200; DELETE makes it 404. The default graph is always there."""
    assert _put(client, "http://g", "").status_code == 201
    assert client.get("/store", params={"graph": "http://g"}).status_code == 200
    assert client.delete("/store", params={"graph": "http://g"}).status_code == 204
    assert client.get("/store", params={"graph": "http://g"}).status_code == 404
    assert client.delete("/store", params={"graph": "http://g"}).status_code == 404
    assert client.get("/store?default").status_code == 200
    assert client.head("/store?default").status_code == 200


def test_conditions_guard_a_graph(client: httpx.Client) -> None:
    """If-Match and If-None-Match hold for writes; If-None-Match gives 304 for reads."""
    assert _put(client, "http://g", "<a:a> <a:b> 1 .", **{"If-None-Match": "*"}).status_code == 201
    assert _put(client, "http://g", "<a:a> <a:b> 2 .", **{"If-None-Match": "*"}).status_code == 412
    read = client.get("/store", params={"graph": "http://g"}, headers={"Accept": "text/turtle"})
    tag = read.headers["ETag"]
    same = client.get("/store", params={"graph": "http://g"}, headers={"Accept": "text/turtle", "If-None-Match": tag})
    assert same.status_code == 304
    assert _put(client, "http://g", "<a:a> <a:b> 2 .", **{"If-Match": tag}).status_code == 204
    assert _put(client, "http://g", "<a:a> <a:b> 3 .", **{"If-Match": tag}).status_code == 412
    assert client.delete("/store", params={"graph": "http://g"}, headers={"If-Match": tag}).status_code == 412
    default = client.get("/store?default", headers={"Accept": "text/turtle"}).headers["ETag"]
    assert (
        client.put("/store?default", content="<a:a> <a:b> 1 .", headers={**TURTLE, "If-Match": default}).status_code
        < 300
    )


def test_entities_keep_their_rules(client: httpx.Client) -> None:
    """Below /id/ a graph is validated, owned, and leaves a tombstone."""
    assert _put(client, OWN, OWN_DOCUMENT).status_code == 201
    assert client.get(f"/subgraph/{OWN.partition('/id/')[2]}").status_code == 200
    added = client.post("/store", params={"graph": OWN}, content=f'<{OWN}> <{NS}label> "a=b" .', headers=TURTLE)
    assert added.status_code == 204
    assert _put(client, OWN, f'<{OWN}> <{NS}name> "x" .').status_code == 422
    assert _put(client, OWN, f"{OWN_DOCUMENT} <{OWN}> <http://p> [] .").status_code == 422
    assert _put(client, f"{BASE}/id/cluster/prod", OWN_DOCUMENT).status_code == 409
    assert client.delete("/store", params={"graph": OWN}).status_code == 204
    assert client.get("/store", params={"graph": OWN}).status_code == 410
    assert _put(client, OWN, OWN_DOCUMENT).status_code == 201


FORM = {"Content-Type": "multipart/form-data; boundary=x"}
PART = "--x\r\nContent-Disposition: form-data; name=a; filename=a.nt\r\n{}\r\n<a:a> <a:b> <a:{}> .\r\n"


def test_a_form_of_files_is_one_document(client: httpx.Client) -> None:
    """The syntax of a file is its Content-Type's, or its name's, also where curl knows no type for that."""
    unknown = PART.format("Content-Type: application/octet-stream\r\n", "e")
    body = PART.format("Content-Type: text/turtle\r\n", "c") + PART.format("", "d") + unknown + "--x--\r\n"
    assert client.put("/store?graph=http://g", content=body.encode(), headers=FORM).status_code == 201

    assert len(client.get("/store?graph=http://g&format=nt").text.splitlines()) == 3


@pytest.mark.parametrize(
    ("method", "url", "content", "headers", "status"),
    [
        ("PUT", "/store?graph=http://g", b"<a:a> <a:b> .", TURTLE, 422),
        ("PUT", "/store?graph=http://g", b"", {}, 415),
        ("PUT", "/store?graph=http://g", b"", {"Content-Type": "image/png"}, 415),
        ("PUT", "/store?graph=http://g", b"", {"Content-Type": "text/turtle; charset=utf-16"}, 415),
        ("PUT", "/store?graph=relative", b"", TURTLE, 400),
        ("PUT", "/store?graph=http://g&default", b"", TURTLE, 400),
        ("PUT", "/store?graph=http://g&graph=http://h", b"", TURTLE, 400),
        ("PUT", "/store?grahp=http://g", b"", TURTLE, 400),
        ("PUT", "/store?graph=http://g/%FF", b"", TURTLE, 400),
        ("PUT", "/store", b"<a:a> <a:b> 1 .", TURTLE, 415),
        ("PUT", "/store?graph=http://g", b"<a:a> <a:b> 1 <http://h> .", NQUADS, 422),
        ("PUT", "/store?graph=http://g", b"x" * 1_100_000, TURTLE, 413),
        ("PUT", "/store?graph=http://g", b"no parts", FORM, 422),
        ("PUT", "/store?graph=http://g", b'{"@context": "http://127.0.0.1:9/", "@id": "a:a"}', {"Content-Type": "application/ld+json"}, 422),
        ("GET", "/store?graph=http://g", b"", {}, 404),
        ("GET", "/store?default", b"", {"Accept": "image/png"}, 406),
        ("GET", "/store", b"", {"Accept": "text/turtle"}, 406),
        ("PATCH", "/store?default", b"", {}, 405),
        ("DELETE", "/store", b"", {"If-Match": '"x"'}, 412),
    ],
)  # fmt: skip
def test_bad_requests(
    client: httpx.Client, method: str, url: str, content: bytes, headers: dict[str, Any], status: int
) -> None:
    """Each gets its status as a problem document, and nothing is written."""
    answer = client.request(method, url, content=content, headers=headers)

    assert answer.status_code == status, answer.text
    assert answer.json()["status"] == status
    assert client.get("/store?graph=http://g").status_code == 404


def test_options_say_what_there_is(client: httpx.Client) -> None:
    """OPTIONS lists the methods, 405 lists the same."""
    allowed = client.options("/store?default").headers["Allow"]

    assert allowed == client.patch("/store/x").headers["Allow"] == "DELETE, GET, HEAD, OPTIONS, POST, PUT"


# -- blank nodes that several graphs share ----------------------------------------------------------------------------------

SHARED = """
_:x <http://p> "left" <http://g1> .
_:x <http://q> _:y <http://g1> .
_:x <http://p> "right" <http://g2> .
_:y <http://p> "alike" <http://g2> .
_:z <http://p> "alike" <http://g2> .
<http://a> <http://p> _:x .
<http://a> <http://p> _:z .
"""
JOINS = {
    "two graphs": "GRAPH <http://g1> { ?x <http://p> 'left' } GRAPH <http://g2> { ?x <http://p> 'right' }",
    "by a link": "GRAPH <http://g1> { ?x <http://q> ?y } GRAPH <http://g2> { ?y <http://p> 'alike' }",
    "the default graph": f"GRAPH <{BASE}/store/default> {{ <http://a> <http://p> ?x }} GRAPH <http://g2> {{ ?x ?p 'right' }}",
}
QUADS = [syntax for syntax in rdf.SYNTAXES if syntax.quads]


def _joined(client: httpx.Client) -> dict[str, int]:
    """Count the solutions of each join across graphs."""
    found = {}
    for name, pattern in JOINS.items():
        answer = client.get("/sparql", params={"query": f"SELECT * {{ {pattern} }}"}, headers={"Accept": "text/csv"})
        found[name] = len(answer.text.splitlines()) - 1
    return found


def _foreign(client: httpx.Client, syntax: rdf.Syntax) -> bytes:
    """Read the whole store, without the entities: those of others cannot be written."""
    form = ox.RdfFormat.from_media_type(syntax.media_type)
    assert form is not None
    quads = ox.parse(client.get("/store", headers={"Accept": syntax.media_type}).content, format=form)
    kept = [quad for quad in quads if not str(quad.graph_name).startswith(f"<{BASE}/id/")]
    return ox.serialize(kept, format=form) or b""


@pytest.mark.parametrize("syntax", QUADS, ids=lambda syntax: syntax.name)
def test_a_dataset_goes_and_comes_with_the_nodes_that_graphs_share(client: httpx.Client, syntax: rdf.Syntax) -> None:
    """What is read from the whole store and PUT back in any syntax joins as before, and the second time nothing changes."""
    client.post("/store", content=SHARED, headers=NQUADS)
    assert _joined(client) == dict.fromkeys(JOINS, 1)
    generations = []
    for _ in range(3):
        put = client.put("/store", content=_foreign(client, syntax), headers={"Content-Type": syntax.media_type})
        assert put.status_code == 204
        generations.append(put.headers["X-Drumlin-Generation"])
        assert _joined(client) == dict.fromkeys(JOINS, 1)

    assert generations[1] == generations[2]


def test_an_equal_dataset_is_no_write_whatever_its_labels(client: httpx.Client) -> None:
    """The same dataset with other labels, in another syntax or in several parts of a form changes nothing."""
    put = client.put("/store", content=SHARED, headers=NQUADS)
    renamed = SHARED.replace("_:x", "_:other").replace("_:y", "_:x").replace("_:z", "_:y")
    again = client.put("/store", content=renamed, headers=NQUADS)
    parts = [
        ("file", ("a.nq", SHARED, "application/n-quads")),
        ("file", ("b.trig", "<http://g3> {}", "application/trig")),
    ]
    form = client.put("/store", files=parts)

    assert [each.status_code for each in (put, again, form)] == [204] * 3
    assert len({each.headers["X-Drumlin-Generation"] for each in (put, again, form)}) == 1
    assert _joined(client) == dict.fromkeys(JOINS, 1)


def test_parts_of_a_form_share_no_node(client: httpx.Client) -> None:
    """A label means another node in each document of a form."""
    one, other = (f'_:x <http://p> "{word}" <http://{graph}> .' for word, graph in (("left", "g1"), ("right", "g2")))
    client.put(
        "/store", files=[("file", (name, text, "application/n-quads")) for name, text in (("a", one), ("b", other))]
    )

    assert _joined(client)["two graphs"] == 0


@pytest.mark.parametrize("verb", ["COPY", "ADD", "MOVE"])
def test_what_an_update_takes_from_graph_to_graph_are_the_same_nodes(client: httpx.Client, verb: str) -> None:
    """COPY, ADD and MOVE keep nodes, and so does a dataset that is PUT afterwards."""
    client.put("/store", content=SHARED, headers=NQUADS)
    updated = client.post("/sparql/update", data={"update": f"{verb} <http://g2> TO <http://g3>"})
    assert updated.status_code < 300
    asked = {
        "query": "SELECT * { GRAPH <http://g1> { ?x <http://p> 'left' } GRAPH <http://g3> { ?x <http://p> 'right' } }"
    }
    for _ in range(2):
        assert len(client.get("/sparql", params=asked, headers={"Accept": "text/csv"}).text.splitlines()) == 2
        assert client.put("/store", content=_foreign(client, rdf.NQUADS), headers=NQUADS).status_code == 204


def test_a_graph_by_itself_has_nodes_of_its_own(client: httpx.Client) -> None:
    """One graph PUT again is a document of its own: its nodes are no more those of other graphs; twice is no write."""
    client.put("/store", content=SHARED, headers=NQUADS)
    alone = client.get("/store", params={"graph": "http://g1", "format": "nt"}).text
    answers = [_put(client, "http://g1", alone) for _ in range(2)]

    assert _joined(client)["two graphs"] == 0
    assert answers[0].headers["X-Drumlin-Generation"] == answers[1].headers["X-Drumlin-Generation"]
