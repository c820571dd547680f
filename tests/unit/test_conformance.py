"""Proofs without the SHACL engine: none is wrong, and nearly every good graph has one."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumlin.kg import rdf
from drumlin.kg.errors import ShapeViolation
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf import jsonld_loader
from drumlin.kg.rdf.syntax import Lines
from drumlin.kg.validation import validate
from drumlin.kg.validation.shape_compiler import TYPE, Conformance
from tests.thoroughness import examples

FIXTURES = Path(__file__).parents[1] / "golden" / "shapes"
IRIS = Iris("https://kg.example")
THING = "<https://kg.example/id/prod/a/pod/b>"
PREFIXES = "@prefix sh: <http://www.w3.org/ns/shacl#> . @prefix x: <http://x/> . "


def read(path: Path) -> tuple[Lines, str]:
    """Read a fixture as its lines and the name of its graph."""
    content = path.read_bytes()
    lines = rdf.parse(jsonld_loader.inline(content), rdf.JSONLD).get(None, frozenset())
    return lines, IRIS.entity(json.loads(content)["id"])


PASSING = {path.name: read(path) for path in sorted(FIXTURES.glob("*.pass.jsonld"))}
ALL = [sorted(read(path)[0]) for path in sorted(FIXTURES.glob("*.jsonld"))]
TERMS = [tuple(line[:-2].split(" ", 2)) for lines in ALL for line in lines]
PREDICATES = sorted({predicate for _, predicate, _ in TERMS})
STRANGE = ('"-1"^^<http://www.w3.org/2001/XMLSchema#integer>', '"a\\"b"', '"a\\nb"', '"é"', '"n"@en', '""', "<x:y>", "<http://[bad>",
    '"2026-11-27T00:00:00+01:00"^^<http://www.w3.org/2001/XMLSchema#dateTime>', f'"{"x" * 70_000}"', '"By\\u007F"', "_:b")  # fmt: skip
OBJECTS = sorted({value for _, _, value in TERMS} | set(STRANGE))


@st.composite
def mutants(draw: st.DrawFn) -> tuple[Lines, str]:
    """Take a good graph and change, add or leave out a few statements."""
    lines, graph = PASSING[draw(st.sampled_from(sorted(PASSING)))]
    held = sorted(lines)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(held) - 1))
        subject, predicate, value = held[place][:-2].split(" ", 2)
        what = draw(st.sampled_from(("leave out", "value", "another value", "predicate", "subject", "add")))
        other = draw(st.sampled_from(OBJECTS))
        if what == "leave out" and len(held) > 1:
            held.pop(place)
        elif what == "value":
            held[place] = f"{subject} {predicate} {other} ."
        elif what == "another value":
            held.append(f"{subject} {predicate} {other} .")
        elif what == "predicate":
            held[place] = f"{subject} {draw(st.sampled_from(PREDICATES))} {value} ."
        elif what == "subject":
            held[place] = f"{draw(st.sampled_from(held)).split(' ')[0]} {predicate} {value} ."
        else:
            held.append(f"{subject} {draw(st.sampled_from(PREDICATES))} {value} .")
    return frozenset(held), graph


@settings(max_examples=examples(120))
@given(mutants())
def test_what_is_proven_has_an_empty_report(mutant: tuple[Lines, str]) -> None:
    """Whatever is done to a good graph, a proof never stands against what the engine says."""
    lines, graph = mutant
    if validate._proven(lines, validate._place(graph, IRIS), None):
        with patch.object(validate, "_proven", return_value=False):
            validate.validate(lines, graph, IRIS)


APART = ("ns#step> ", "ns#horizon> ", "ns#scope> ")
WHOLE = [name for name, (lines, _) in PASSING.items() if not any(each in line for line in lines for each in APART)]


@pytest.mark.parametrize("name", WHOLE)
def test_a_good_graph_needs_no_engine(name: str) -> None:
    """Each passing fixture is proven, but for forecasts and templates, which have rules that no shape can say."""
    lines, graph = PASSING[name]
    with patch.object(validate, "_shape_violations", side_effect=AssertionError("the engine was asked")):
        validate.validate(lines, graph, IRIS)


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.fail.jsonld")), ids=lambda path: path.name)
def test_a_bad_graph_has_no_proof(path: Path) -> None:
    """Each failing fixture is told by its report, so none is proven."""
    lines, graph = read(path)

    assert not validate._proven(lines, validate._place(graph, IRIS), None)
    with pytest.raises(ShapeViolation):
        validate.validate(lines, graph, IRIS)


FACTS = {THING: {TYPE: ["<http://x/Thing>"], "<http://x/p>": ['"abc"']}}
KNOWN = "x:s a sh:NodeShape ; sh:targetClass x:Thing ; sh:property [ sh:path x:p ; sh:maxCount 1 ; sh:pattern '^a' ] ."


@pytest.mark.parametrize(
    ("shapes", "proven"),
    [
        (KNOWN, True),
        (KNOWN.replace("'^a'", "'^b'"), False),
        (KNOWN.replace("'^a'", "'^a' ; sh:flags 'i'"), False),
        (KNOWN.replace("sh:maxCount 1", "sh:minLength 1"), False),
        (KNOWN.replace("sh:path x:p", "sh:path [ sh:inversePath x:p ]"), False),
        (KNOWN.replace("sh:targetClass", "sh:targetObjectsOf"), False),
        (KNOWN.replace("sh:targetClass x:Thing ;", "sh:targetClass x:Thing ; sh:closed true ;"), False),
        ("x:Thing a sh:NodeShape, <http://www.w3.org/2000/01/rdf-schema#Class> .", False),
    ],
)
def test_a_construct_that_is_not_known_proves_nothing(shapes: str, *, proven: bool) -> None:
    """A shape that says what the checks do not understand leaves the graph to the engine."""
    assert Conformance(PREFIXES + shapes).proves(FACTS) is proven


def test_a_subclass_in_the_graph_proves_nothing() -> None:
    """A graph that states a subclass may be aimed at by more shapes than its types tell."""
    facts = {**FACTS, "<http://x/Other>": {"<http://www.w3.org/2000/01/rdf-schema#subClassOf>": ["<http://x/Thing>"]}}

    assert not Conformance(PREFIXES + KNOWN).proves(facts)
