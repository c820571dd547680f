"""Saved queries: what a file must say, and parameters that are terms and never text."""

from __future__ import annotations

from pathlib import Path

import pyoxigraph as ox
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drumlin.kg.client.query_api import _query
from drumlin.kg.errors import DrumlinError, InvalidInput, InvalidSettings, ResourceNotFound
from drumlin.kg.model.iris import Iris
from drumlin.kg.sparql import gate
from drumlin.queries.catalogue import QueryCatalogue, read

IRIS = Iris("https://kg.example")
HEADER = "# title: T\n# description: D\n"
ECHO = HEADER + "# param text string: t\n# column t: t\nSELECT ?t WHERE { BIND(?text AS ?t) }"


def ask(query: str, /, **values: str) -> list[tuple[str, ...]]:
    """Run a saved query, with its parameters bound, on a small graph."""
    store = ox.Store()
    store.load(b'<x:a> <x:p> "one" . <x:b> <x:p> "two" . <x:a> <x:n> 3 . <x:b> <x:n> 4 .', format=ox.RdfFormat.TURTLE)
    bound = read("q", query, IRIS).bound(values, IRIS)
    gate.check(bound, max_bytes=100_000)
    found = store.query(bound)
    assert isinstance(found, ox.QuerySolutions)
    return sorted(tuple(str(getattr(term, "value", "")) for term in row) for row in found)


def test_every_file_that_comes_along_is_good() -> None:
    """All shipped files are read, each with title, description and columns."""
    shipped = QueryCatalogue.load(IRIS).queries
    files = sorted(path.stem for path in (Path(__file__).parents[2] / "queries").glob("*.rq"))
    assert sorted(shipped) == files
    assert len(files) >= 25
    assert all(each.title and each.description and each.columns for each in shipped.values())


def test_a_client_takes_every_parameter_whatever_its_name() -> None:
    """A query about a name has a parameter called name, as the method's own first one is."""
    for saved in QueryCatalogue.load(IRIS).queries.values():
        values = {each.name: "x" for each in saved.parameters}
        assert _query(saved.name, **values).params == values


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=40).filter(lambda text: not any("\ud800" <= each <= "\udfff" for each in text)))
def test_a_text_comes_back_as_it_was(text: str) -> None:
    """Whatever a string holds (quotes, braces, line ends, query text), it is one literal and nothing else."""
    assert ask(ECHO, text=text) == [(text,)]


@pytest.mark.parametrize("text", ['" } SELECT * { ?s ?p ?o', "x\\", '\\" . ?a ?b ?c', "?text", "}", "\u0000", "a\r\nb"])
def test_a_text_is_never_read_as_query(text: str) -> None:
    """Texts that would end the literal, the group or the query do not."""
    assert ask(ECHO, text=text) == [(text,)]


@pytest.mark.parametrize(
    ("body", "values", "rows"),
    [
        ("# param v string: x\nSELECT ?s WHERE { ?s <x:p> ?v }", {"v": "one"}, [("x:a",)]),
        ("# param v string: x\nSELECT ?s WHERE { ?s <x:p> ?w FILTER(?w = $v) }", {"v": "two"}, [("x:b",)]),
        ("# param v integer 3: x\nSELECT ?s WHERE { { ?s <x:n> ?n FILTER(?n > ?v) } }", {}, [("x:b",)]),
        ("# param v integer 3: x\nSELECT ?s WHERE { ?s <x:p> ?w FILTER NOT EXISTS { ?s <x:n> ?v } }", {}, [("x:b",)]),
        ("# param v string: x\nSELECT ?s ?c WHERE { { SELECT ?s (COUNT(?w) AS ?c) WHERE { ?s <x:p> ?w FILTER(?w = ?v) } GROUP BY ?s } }", {"v": "one"}, [("x:a", "1")]),
        ('# param v string: x\nSELECT ?s WHERE { VALUES (?s ?v) { (<x:q> "one") } }', {"v": "one"}, [("x:q",)]),
        ("# param v string: x\nSELECT ?s ?o WHERE { ?s <x:n> ?n OPTIONAL { ?s <x:p> ?o FILTER(?o = ?v) } }", {"v": "one"}, [("x:a", "one"), ("x:b", "")]),
        ("# param v decimal: x\nSELECT ?s WHERE { ?s <x:n> ?n FILTER(?n >= ?v) }", {"v": "3.5"}, [("x:b",)]),
        ("# param v boolean: x\nSELECT ?s WHERE { ?s <x:n> 3 FILTER(?v) }", {"v": "false"}, []),
        ("# param v id: x\nSELECT ?x WHERE { BIND(?v AS ?x) }", {"v": "domain/x"}, [("https://kg.example/id/domain/x",)]),
        ("# param v concept: x\nSELECT ?x WHERE { BIND(?v AS ?x) }", {"v": "Deployment"}, [("https://w3id.org/drumlin/ns#Deployment",)]),
        ("# param v dateTime: x\nSELECT ?x WHERE { BIND(?v AS ?x) }", {"v": "2026-11-28T02:00:00+02:00"}, [("2026-11-28T00:00:00Z",)]),
    ],
)  # fmt: skip
def test_a_parameter_is_bound_wherever_it_is_named(
    body: str, values: dict[str, str], rows: list[tuple[str, ...]]
) -> None:
    """In patterns, filters, nested groups, sub-selects and beside other VALUES, each type as its term."""
    assert ask(HEADER + body, **values) == rows


@pytest.mark.parametrize(
    ("type", "value"),
    [
        ("integer", "1.5"), ("integer", "9" * 30), ("decimal", "1e5"), ("boolean", "yes"), ("dateTime", "2026-11-28"),
        ("dateTime", "2026-11-28T00:00:00"), ("dateTime", "tomorrow"), ("id", "x"), ("id", "http://other/id/a/b/c/d"), ("concept", "Deploymnt"),
        ("concept", "x> } #"), ("string", "x" * 5000),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_refused(type: str, value: str) -> None:
    """What is not of the parameter's type never reaches the query."""
    query = read("q", HEADER + f"# param v {type}: x\nSELECT ?v WHERE {{ }}", IRIS)
    with pytest.raises(DrumlinError):
        query.bound({"v": value}, IRIS)


def test_missing_and_unknown_parameters_are_named() -> None:
    """A parameter without default must be given; one that the header does not declare is refused."""
    query = read("q", ECHO, IRIS)
    with pytest.raises(InvalidInput, match="needs the parameter text"):
        query.bound({}, IRIS)
    with pytest.raises(InvalidInput, match="no parameter 'txt'"):
        query.bound({"text": "a", "txt": "b"}, IRIS)


BAD = {
    "no-title": "SELECT * WHERE { ?s ?p ?o }",
    "not-sparql": HEADER + "SELECT",
    "update": HEADER + "CLEAR ALL",
    "construct": HEADER + "CONSTRUCT WHERE { ?s ?p ?o }",
    "service": HEADER + "SELECT * WHERE { SERVICE <http://x> { ?s ?p ?o } }",
    "type": HEADER + "# param v colour: x\nSELECT ?v WHERE { }",
    "unused": HEADER + "# param v string: x\nSELECT ?s WHERE { ?s ?p ?o }",
    "taken": HEADER + "# param format string: x\nSELECT ?format WHERE { }",
    "twice": HEADER + "# param v string: x\n# param v integer: y\nSELECT ?v WHERE { }",
    "default": HEADER + "# param v integer many: x\nSELECT ?v WHERE { }",
    "assigned": HEADER + "# param v string: x\nSELECT ?v WHERE { BIND(1 AS ?v) }",
    "empty": "",
    "long": HEADER + "#" * 70_000 + "\nSELECT ?s WHERE { ?s ?p ?o }",
    "column": HEADER + "# column x: not there\nSELECT ?s WHERE { ?s ?p ?o }",
    "Name": HEADER + "SELECT ?s WHERE { ?s ?p ?o }",
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_skipped_and_told(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that cannot be used is named in the log with the reason; the others serve."""
    (tmp_path / f"{name}.rq").write_text(BAD[name])
    (tmp_path / "good.rq").write_text(ECHO)
    found = QueryCatalogue.load(IRIS, tmp_path)
    assert "good" in found.queries
    assert name not in found.queries
    assert f"{name}.rq" in capsys.readouterr().out
    with pytest.raises(ResourceNotFound, match=name):
        found.get(name)


def test_files_that_cannot_be_read_are_told_and_no_directory_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder, a link to nothing and a text that is not UTF-8 are skipped; a directory that is not there is refused at the start."""
    (tmp_path / "folder.rq").mkdir()
    (tmp_path / "link.rq").symlink_to(tmp_path / "nothing")
    (tmp_path / "bytes.rq").write_bytes(b"# title: \xff")
    assert not {"folder", "link", "bytes"} & QueryCatalogue.load(IRIS, tmp_path).queries.keys()
    told = capsys.readouterr().out
    assert all(f"{name}.rq" in told for name in ("folder", "link", "bytes"))
    with pytest.raises(InvalidSettings, match="no directory"):
        QueryCatalogue.load(IRIS, tmp_path / "nowhere")


def test_a_users_file_wins_over_one_that_comes_along(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of the same name in the user's directory replaces the shipped one, and that is told; a bad one does not replace it."""
    (tmp_path / "units.rq").write_text(ECHO)
    (tmp_path / "classes.rq").write_text("SELECT")
    found = QueryCatalogue.load(IRIS, tmp_path)
    assert found.get("units").title == "T"
    assert found.get("classes").title == QueryCatalogue.load(IRIS).get("classes").title
    told = capsys.readouterr().out
    assert "saved_query_replaced" in told
    assert "classes.rq" in told
    with pytest.raises(ResourceNotFound) as refused:
        QueryCatalogue.load(IRIS).get("unit")
    assert "units" in str(refused.value.hint)
