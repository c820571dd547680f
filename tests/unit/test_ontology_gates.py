"""What keeps the ontology usable by others: no contradiction, words people can read, and no broken promise."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import owlrl
import pytest
import rdflib
from rdflib import OWL, RDF, RDFS, SKOS

from drumlin.ontology import vocabulary

ROOT = Path(__file__).parents[2]
NS = rdflib.Namespace(vocabulary.NAMESPACE)
PROV = rdflib.PROV
ONTOLOGY = rdflib.Graph().parse(ROOT / "ontology" / "drumlin.ttl")
CLASSES = sorted(vocabulary.CLASSES)


ERROR = rdflib.URIRef("http://www.daml.org/2002/03/agents/agent-ont#error")


def contradictions(*axioms: tuple[Any, Any, Any]) -> list[str]:
    """Close the ontology with one instance per class under OWL 2 RL and return what the rules call an error."""
    graph = rdflib.Graph() + ONTOLOGY
    # What the vocabularies that we extend say of the classes that we extend (PROV-O); they are not imported.
    graph.add((PROV.Activity, OWL.disjointWith, PROV.Entity))
    for axiom in axioms:
        graph.add(axiom)
    for name in CLASSES:
        graph.add((rdflib.URIRef(f"urn:one:{name}"), RDF.type, NS[name]))
    closure = owlrl.DeductiveClosure(owlrl.OWLRL_Semantics)
    closure.expand(graph)
    return [str(text) for text in graph.objects(None, ERROR)]


def test_no_class_is_unsatisfiable() -> None:
    """A thing can be of any class without the OWL RL closure finding a contradiction."""
    assert contradictions() == []


def test_the_closure_does_find_an_unsatisfiable_class() -> None:
    """A class below two disjoint ones is caught, so the test above is able to fail."""
    (error,) = contradictions((NS.GlaciationNode, RDFS.subClassOf, NS.Node))

    assert "urn:one:GlaciationNode" in error


def test_the_closure_classifies_as_design_says() -> None:
    """A glaciation node is a domain and an agent, a Deployment a workload and no pod, a metric a dataset."""
    graph = rdflib.Graph() + ONTOLOGY
    graph.add((rdflib.URIRef("urn:g"), RDF.type, NS.GlaciationNode))
    graph.add((rdflib.URIRef("urn:m"), RDF.type, NS.Metric))
    owlrl.DeductiveClosure(owlrl.OWLRL_Semantics).expand(graph)

    assert {NS.Domain, PROV.Agent} <= set(graph.objects(rdflib.URIRef("urn:g"), RDF.type))
    assert rdflib.DCAT.Dataset in set(graph.objects(rdflib.URIRef("urn:m"), RDF.type))
    assert NS.Pod not in set(graph.objects(rdflib.URIRef("urn:g"), RDF.type))


# -- words ----------------------------------------------------------------------------------------------------------------

NAMES = {
    OWL.Class: re.compile(r"([A-Z][a-z]+)+"),
    OWL.ObjectProperty: re.compile(r"[a-z]+([A-Z][a-z]+)*"),
    OWL.DatatypeProperty: re.compile(r"[a-z]+([A-Z][a-z]+)*"),
    SKOS.Concept: re.compile(r"[A-Za-z][A-Za-z]*"),
    SKOS.ConceptScheme: re.compile(r"([A-Z][a-z]+)+Scheme"),
}
TERMS = sorted({(kind, term) for kind in NAMES for term in ONTOLOGY.subjects(RDF.type, kind)})


def words(text: str) -> set[str]:
    """Return the words of a label or a camel-cased name, and the whole of it as one word."""
    spaced = re.sub("([A-Z])", r" \1", text)
    return {*re.findall("[a-z]+", spaced.lower()), re.sub("[^a-z]", "", text.lower())}


@pytest.mark.parametrize(("kind", "term"), TERMS, ids=[str(term).rpartition("#")[2] for _, term in TERMS])
def test_a_terms_name_and_words_are_well_formed(kind: rdflib.URIRef, term: rdflib.URIRef) -> None:
    """Classes are UpperCamelCase, properties lowerCamelCase; a comment is a sentence that says more than the label."""
    name = str(term).removeprefix(NS)
    label, comment = (str(ONTOLOGY.value(term, each)) for each in (RDFS.label, RDFS.comment))

    assert NAMES[kind].fullmatch(name), name
    if kind != SKOS.ConceptScheme:
        assert words(label) & words(name), f"{label!r} does not look like {name}"
    assert comment[0].isupper()
    assert comment.endswith(".")
    assert comment.lower().rstrip(".") != label.lower()
    assert "\n" not in comment
    assert len(comment) <= 200


def test_no_two_terms_have_the_same_label_within_a_kind() -> None:
    """A reader of the documentation can tell terms apart by their labels."""
    for kind in NAMES:
        labels = [str(ONTOLOGY.value(term, RDFS.label)) for term in ONTOLOGY.subjects(RDF.type, kind)]
        assert len(labels) == len(set(labels)), kind


def test_no_class_stands_below_itself_and_none_stands_alone() -> None:
    """The hierarchy has no cycle, and each class is the domain, range or kin of something (OOPS! P04, P06)."""
    linked = set(ONTOLOGY.objects(None, rdflib.URIRef("https://schema.org/domainIncludes")))
    linked |= set(ONTOLOGY.objects(None, rdflib.URIRef("https://schema.org/rangeIncludes")))
    for name in CLASSES:
        above = set(ONTOLOGY.transitive_objects(NS[name], RDFS.subClassOf)) - {NS[name]}
        assert NS[name] not in {up for each in above for up in ONTOLOGY.objects(each, RDFS.subClassOf)}
        assert linked & ({NS[name]} | above), name


# -- promises -------------------------------------------------------------------------------------------------------------


@cache
def baseline() -> ModuleType:
    """Load ``scripts/ontology-baseline``, which knows what a release promises."""
    loader = SourceFileLoader("ontology_baseline", str(ROOT / "scripts" / "ontology-baseline"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


def major(promise: dict[str, Any]) -> int:
    """Return the major version of what promises."""
    return int(promise["version"].split(".")[0])


def test_the_baseline_has_every_term() -> None:
    """What stands for the last release where there is no tag promises all that the ontology has, so nothing slips out of it."""
    before, now = json.loads((ROOT / "ontology" / "released.json").read_bytes()), baseline().now()

    assert now["terms"].keys() - before["terms"].keys() == set(), "run scripts/ontology-baseline"
    assert now["context"].keys() - before["context"].keys() == set(), "run scripts/ontology-baseline"


BREAKS = {
    "a removed term": ("drumlin:gpu a skos:Concept", "drumlin:gpus a skos:Concept", "ns#gpu is gone"),
    "another IRI": ("<https://w3id.org/drumlin/ns#>", "<https://w3id.org/drumlin/ns/2#>", "ns#Node is gone"),
    "another kind": (
        "drumlin:reason a owl:DatatypeProperty",
        "drumlin:reason a owl:ObjectProperty",
        "reason was a datatype property",
    ),
    "one value only": (
        "drumlin:label a owl:DatatypeProperty",
        "drumlin:label a owl:FunctionalProperty, owl:DatatypeProperty",
        "label could have several values",
    ),
    "a narrowed domain": (
        "schema:domainIncludes drumlin:MetricTemplate ;",
        "",
        "lost domainIncludes https://w3id.org/drumlin/ns#MetricTemplate",
    ),
    "a narrowed datatype": (
        "schema:rangeIncludes xsd:decimal",
        "schema:rangeIncludes xsd:integer",
        "lost rangeIncludes http://www.w3.org/2001/XMLSchema#decimal",
    ),
    "another range": (
        "schema:rangeIncludes drumlin:Node",
        "schema:rangeIncludes drumlin:Cluster",
        "lost rangeIncludes https://w3id.org/drumlin/ns#Node",
    ),
    "another superclass": ("rdfs:subClassOf prov:Agent", "rdfs:subClassOf prov:Entity", "Domain lost subClassOf"),
    "a shorter list": (
        "skos:inScheme drumlin:QuantityScheme",
        "skos:inScheme drumlin:SignalScheme",
        "lost inScheme https://w3id.org/drumlin/ns#QuantityScheme",
    ),
    "a new disjointness": (
        "owl:disjointWith drumlin:Node, drumlin:Workload, drumlin:Pod",
        "owl:disjointWith drumlin:Node, drumlin:Workload, drumlin:Pod, drumlin:Service",
        "Domain became disjoint with https://w3id.org/drumlin/ns#Service",
    ),
}


@pytest.mark.parametrize("case", BREAKS)
def test_a_broken_promise_is_named(case: str) -> None:
    """Each way to break data is noticed in a changed copy of the Turtle, with the term and what was lost."""
    old, new, told = BREAKS[case]
    turtle = (ROOT / "ontology" / "drumlin.ttl").read_text(encoding="utf-8")
    context = (ROOT / "ontology" / "context.jsonld").read_bytes()
    assert old in turtle

    found = baseline().broken(baseline().now(), baseline().promise(turtle.replace(old, new, 1).encode(), context))

    assert any(told in each for each in found), found


@pytest.mark.parametrize("old", ['"id": "@id"', '"@type": "xsd:decimal"', '"@container": "@set"'])
def test_a_changed_key_of_the_context_is_named(old: str) -> None:
    """Documents that name the context keep their meaning: no key goes, changes its term, its datatype or its container."""
    context = (ROOT / "ontology" / "context.jsonld").read_text(encoding="utf-8")
    turtle = (ROOT / "ontology" / "drumlin.ttl").read_bytes()
    changed = context.replace(
        old, old.replace("id", "type", 1).replace("decimal", "double").replace("@set", "@list"), 1
    )
    assert changed != context

    (found,) = baseline().broken(baseline().now(), baseline().promise(turtle, changed.encode()))

    assert found.startswith("key ")


def test_more_terms_and_wider_ones_break_nothing() -> None:
    """A new concept, class or key, and a property for more classes and values, are what minor versions are for."""
    turtle = (ROOT / "ontology" / "drumlin.ttl").read_text(encoding="utf-8")
    context = json.loads((ROOT / "ontology" / "context.jsonld").read_bytes())
    context["@context"]["flavour"] = {"@container": "@set"}
    more = turtle.replace("schema:rangeIncludes xsd:decimal", "schema:rangeIncludes xsd:double, xsd:decimal")
    more += "drumlin:Bakery a owl:Class ."

    assert baseline().broken(baseline().now(), baseline().promise(more.encode(), json.dumps(context).encode())) == []
