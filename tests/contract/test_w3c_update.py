"""The W3C's evaluation tests of SPARQL 1.1 Update (basic-update, update-silent), on our own evaluation.

What the suites call the unnamed graph is the graph of that role here; where a WHERE part reads it, the request names it as its dataset, since ours is the
union unless it is told otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyoxigraph as ox
import pytest

from drumlin.kg.errors import QueryRejected
from drumlin.kg.sparql import gate
from drumlin.kg.sparql.dataset import Dataset
from drumlin.kg.sparql.update import Scope, evaluate
from drumlin.kg.store.sandbox import Scratch, parse

SUITES = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "w3c" / "sparql11"
FOLDERS = ("basic-update", "update-silent")
SCOPE = Scope(default="http://kg.example/store/default", roots=("http://kg.example/id/",))
_MF = "http://www.w3.org/2001/sw/DataAccess/tests/test-manifest#"
_UT = "http://www.w3.org/2009/sparql/tests/test-update#"
_CASES = f"""PREFIX mf: <{_MF}> PREFIX ut: <{_UT}>
SELECT ?test ?request {{ ?test a mf:UpdateEvaluationTest ; mf:action/ut:request ?request }} ORDER BY ?test"""
_DATA = f"""PREFIX mf: <{_MF}> PREFIX ut: <{_UT}> PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#>
SELECT ?file ?graph {{ ?test ?role ?state . {{ ?state ut:data ?file }} UNION {{ ?state ut:graphData [ ut:graph ?file ; rdfs:label ?graph ] }} }}"""


def _manifest(folder: str) -> ox.Store:
    store = ox.Store()
    store.load(path=str(SUITES / folder / "manifest.ttl"), format=ox.RdfFormat.TURTLE, base_iri=f"file:///{folder}/")
    return store


def _cases() -> Iterator[Any]:
    if not SUITES.exists():
        if os.environ.get("CI") == "true":
            raise AssertionError(f"{SUITES} is missing")
        yield pytest.param("", "", "", marks=pytest.mark.skip(reason="the W3C's suites are not at ../shared/data/w3c"))
        return
    for folder in FOLDERS:
        for row in _manifest(folder).query(_CASES):
            test, request = row["test"].value, row["request"].value
            yield pytest.param(folder, test, request, id=f"{folder}/{test.rpartition('#')[2]}")


def _state(folder: str, test: str, role: str) -> ox.Store:
    """Load the graphs that a case begins with (action) or ends with (result)."""
    state = ox.Store()
    found = {ox.Variable("test"): ox.NamedNode(test), ox.Variable("role"): ox.NamedNode(_MF + role)}
    query = _DATA.replace("SELECT", "SELECT ?test ?role")
    for row in _manifest(folder).query(query, substitutions=found):
        name = row["graph"].value if row["graph"] else SCOPE.default
        file = SUITES / folder / row["file"].value.rpartition("/")[2]
        state.load(file.read_bytes(), format=ox.RdfFormat.TURTLE, to_graph=ox.NamedNode(name))
    return state


def _canonical(state: ox.Store) -> ox.Dataset:
    dataset = ox.Dataset(state)
    dataset.canonicalize(ox.CanonicalizationAlgorithm.UNSTABLE)
    return dataset


@pytest.mark.parametrize(("folder", "test", "request_"), list(_cases()))
def test_an_update_of_the_w3c_ends_as_it_should(folder: str, test: str, request_: str) -> None:
    """The graphs after the update are isomorphic to the case's result; LOAD is refused by name."""
    text = (SUITES / folder / request_.rpartition("/")[2]).read_text(encoding="utf-8")
    if "LOAD" in text:
        with pytest.raises(QueryRejected) as caught:
            gate.check(text, max_bytes=1 << 20, expect="update")
        assert caught.value.reason == "forbidden"
        return
    state = _state(folder, test, "action")
    dataset = Dataset() if "USING" in text or "WITH" in text else Dataset((SCOPE.default,))
    gated = gate.check(text, max_bytes=1 << 20, expect="update")

    world = Scratch(_state(folder, test, "action"), "http://x/")  # it is changed on the way
    for changed in evaluate(parse(gated.text, "http://x/"), world, SCOPE, dataset):
        graph = ox.NamedNode(changed.graph)
        state.remove_graph(graph)
        content = "\n".join(changed.lines or ()).encode()
        state.extend(
            ox.Quad(each.subject, each.predicate, each.object, graph)
            for each in ox.parse(content, format=ox.RdfFormat.N_TRIPLES)
        )

    assert _canonical(state) == _canonical(_state(folder, test, "result"))
