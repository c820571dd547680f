"""Nothing is declared that nobody uses, and nothing used that is not declared: the ontology stays small.

A class or property is used by what is made of it: a renderer or another part of the program that names it, a metric template, a
rule of an alignment, or a shape that asks something of it in particular. That a shape lists it because every property has
a datatype, or every class is one of the classes, is no use: those lists follow from the ontology, so they would keep any term alive.
A concept is used by the closed list that offers it. Each check runs on the repository and on copies with a mistake in them.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import rdflib
from rdflib import OWL, RDF, SKOS

from drumlin.kg import rdf
from drumlin.ontology.vocabulary import NAMESPACE

ROOT = Path(__file__).parents[2]
SH = rdflib.SH
CODE = ("exporters", "kg", "api")
LISTS = {
    "one-class", "tombstone-former-type", "one-value", "text", "cores", "count", "truth", "duration", "time", "reference",
}  # fmt: skip
"""Shapes that name terms because the ontology does."""
KINDS = (OWL.Class, OWL.ObjectProperty, OWL.DatatypeProperty, SKOS.Concept, SKOS.ConceptScheme)


def names(graph: rdflib.Graph | list[Any]) -> set[str]:
    """Return the terms of the namespace among the IRIs of statements, and in the queries that they hold."""
    found: set[str] = set()
    for term in {term for triple in graph for term in triple}:
        if isinstance(term, rdflib.URIRef) and term.startswith(NAMESPACE):
            found.add(term.removeprefix(NAMESPACE))
        elif isinstance(term, rdflib.Literal) and f"PREFIX : <{NAMESPACE}>" in term:
            found.update(re.findall(r"(?<!\w):(\w+)", term))
    return found - {""}


def ontology(root: Path, name: str) -> rdflib.Graph:
    """Read one of the ontology's files."""
    return parsed((root / name).read_bytes())


@cache
def parsed(turtle: bytes) -> rdflib.Graph:
    """Read Turtle (our parser is ten times as fast)."""
    return rdflib.Graph().parse(data="\n".join(rdf.parse(turtle, rdf.TURTLE)[None]), format="nt")


def declared(root: Path, *kinds: rdflib.URIRef) -> set[str]:
    """Return what the ontology declares."""
    graph = ontology(root, "drumlin.ttl")
    return {str(term).removeprefix(NAMESPACE) for kind in kinds or KINDS for term in graph.subjects(RDF.type, kind)}


def in_particular(shapes: rdflib.Graph) -> list[Any]:
    """Return the statements of the shapes without those of the lists that name every term."""
    lists = {node for name in LISTS for node in shapes.transitive_objects(shape(name), None)}
    return [triple for triple in shapes if triple[0] not in lists]


def shape(name: str) -> rdflib.URIRef:
    """Return the IRI of a shape."""
    return rdflib.URIRef(f"https://w3id.org/drumlin/shapes#{name}")


def offered(shapes: rdflib.Graph) -> set[str]:
    """Return what the closed lists offer."""
    heads = set(shapes.objects(None, SH["in"]))
    return names([(each, each, each) for head in heads for each in shapes.items(head)])


@cache
def in_code() -> frozenset[str]:
    """Return the words that strings of the program are, or begin with, or name as a term, and those of what renderers make."""
    found: set[str] = set()
    for file in (file for folder in CODE for file in (ROOT / folder).rglob("*.py")):
        for text in strings(ast.parse(file.read_text(encoding="utf-8"))):
            found.update(re.findall(r"\bdrumlin:(\w+)", text), re.findall(r"^(\w+)(?:$|>)", text))
    for file in (ROOT / "exporters").rglob("*.toml"):
        found.update(leaves(tomllib.loads(file.read_text(encoding="utf-8"))))
    for file in (ROOT / "tests" / "golden" / "render").rglob("*.json"):
        found.update(leaves(json.loads(file.read_bytes())["document"]))
    return frozenset(found)


def strings(tree: ast.AST) -> Iterator[str]:
    """Yield the strings of a module that are no docstrings."""
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.value


def leaves(value: Any) -> Iterator[str]:
    """Yield keys and strings of a document."""
    if isinstance(value, dict):
        yield from value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from leaves(each)
    if isinstance(value, str):
        yield value


def unused(root: Path) -> set[str]:
    """Return the terms that an ontology declares and nothing uses."""
    shapes = ontology(root, "shapes.ttl")
    rules = [triple for file in (root / "align").glob("*.ttl") for triple in ontology(root, f"align/{file.name}")]
    used = in_code() | names(ontology(root, "metrics.ttl")) | names(rules) | names(in_particular(shapes))
    schemes, concepts = declared(root, SKOS.ConceptScheme), declared(root, SKOS.Concept)
    filled = names([triple for triple in ontology(root, "drumlin.ttl") if triple[1] == SKOS.inScheme])
    return (declared(root) - schemes - concepts - used) | (concepts - offered(shapes)) | (schemes - filled)


def undeclared(root: Path) -> set[str]:
    """Return the terms that shapes, templates, rules or the context use and the ontology does not declare."""
    files = ["shapes.ttl", "metrics.ttl", *(f"align/{file.name}" for file in (root / "align").glob("*.ttl"))]
    used = {name for file in files for name in names(ontology(root, file))}
    return used - declared(root)


def test_every_term_is_used() -> None:
    """A term that no renderer, template, shape or alignment uses only makes the ontology harder to learn."""
    assert unused(ROOT / "ontology") == set()


def test_every_used_term_is_declared() -> None:
    """Shapes, templates and alignments name nothing that the ontology does not explain."""
    assert undeclared(ROOT / "ontology") == set()


# -- copies with a mistake ------------------------------------------------------------------------------------------------


@pytest.fixture
def copy(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that copies the ontology and changes texts of its files: file → (old, new)."""

    def changed(**changes: tuple[str, str]) -> Path:
        root = tmp_path / "ontology"
        shutil.copytree(ROOT / "ontology", root, ignore=shutil.ignore_patterns("__pycache__"))
        for name, (old, new) in changes.items():
            file = root / f"{name.replace('__', '/')}.ttl"
            text = file.read_text(encoding="utf-8")
            assert old in text
            file.write_text(text.replace(old, new, 1), encoding="utf-8")
        return root

    return changed


TERM = """drumlin:flavour a owl:DatatypeProperty, owl:FunctionalProperty ;
    rdfs:label "flavour"@en ; rdfs:isDefinedBy drumlin: .
drumlin:Bakery a owl:Class ; rdfs:isDefinedBy drumlin: .
drumlin:Fresh a skos:Concept ; skos:inScheme drumlin:PhaseScheme ; rdfs:isDefinedBy drumlin: .
drumlin:TasteScheme a skos:ConceptScheme ; rdfs:isDefinedBy drumlin: .

drumlin:labelName a"""


def test_a_term_that_only_the_turtle_knows_is_named(copy: Callable[..., Path]) -> None:
    """A class, a property, a concept and a scheme that nothing uses are all found."""
    root = copy(drumlin=("drumlin:labelName a", TERM))

    assert unused(root) == {"flavour", "Bakery", "Fresh", "TasteScheme"}


def test_the_lists_that_name_every_term_keep_none_alive(copy: Callable[..., Path]) -> None:
    """A property in the list of texts and a class in the list of classes are still used by nobody; a concept that is offered is."""
    shapes = ROOT.joinpath("ontology", "shapes.ttl").read_text(encoding="utf-8")
    more = shapes.replace("drumlin:name drumlin:namespace", "drumlin:flavour drumlin:name drumlin:namespace", 1)
    more = more.replace("drumlin:Domain drumlin:GlaciationNode", "drumlin:Bakery drumlin:Domain drumlin:GlaciationNode")
    more = more.replace("drumlin:Pending drumlin:Running", "drumlin:Fresh drumlin:Pending drumlin:Running")
    root = copy(drumlin=("drumlin:labelName a", TERM), shapes=(shapes, more))

    assert unused(root) == {"flavour", "Bakery", "TasteScheme"}


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("shapes", "shape:name sh:path drumlin:name", "shape:name sh:path drumlin:nam"),
        ("metrics", "drumlin:quantity drumlin:cpu", "drumlin:quantity drumlin:cpus"),
        ("align__dcat", "?asset a :DataAsset", "?asset a :DataAssett"),
    ],
)
def test_a_used_term_that_is_not_declared_is_named(copy: Callable[..., Path], file: str, old: str, new: str) -> None:
    """A misspelt term in a shape, a template or a rule is found."""
    assert undeclared(copy(**{file: (old, new)})) == {new.rpartition(":")[2]}
