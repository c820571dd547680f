"""What keeps the ontology usable by others: no contradiction, words people can read, and no broken promise."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import owlrl
import pytest
import rdflib
from rdflib import OWL, RDF, RDFS, SKOS

from ontology import vocabulary

ROOT = Path(__file__).parents[2]
NS = rdflib.Namespace(vocabulary.NAMESPACE)
PROV = rdflib.PROV
ONTOLOGY = rdflib.Graph().parse(ROOT / "ontology" / "drumlin.ttl")
RELEASED = json.loads((ROOT / "ontology" / "released.json").read_bytes())
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


def promise() -> dict[str, Any]:
    """Return what the ontology promises now, as ``scripts/ontology-baseline`` reads it."""
    loader = SourceFileLoader("ontology_baseline", str(ROOT / "scripts" / "ontology-baseline"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module
    loader.exec_module(module)
    found: dict[str, Any] = module.promise()
    return found


def broken(released: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """List the promises of a release that are not kept; anything may be added."""
    found = []
    for name, before in released["terms"].items():
        after = now["terms"].get(name)
        if after is None:
            found.append(f"{name} is gone")
            continue
        if after["kind"] != before["kind"]:
            found.append(f"{name} was a {before['kind']}")
        if after.get("functional") and not before.get("functional") and before["kind"].endswith("property"):
            found.append(f"{name} could have several values")
        found += [
            f"{name} lost {link} {', '.join(sorted(lost))}"
            for link in ("subClassOf", "domainIncludes", "rangeIncludes", "inScheme")
            if (lost := set(before.get(link, ())) - set(after.get(link, ())))
        ]
    found += [
        f"key {key} changed" for key, meaning in released["context"].items() if now["context"].get(key) != meaning
    ]
    return found


def test_nothing_that_was_released_is_broken() -> None:
    """Data and clients of the last version stay right; a change that breaks them needs a new major version and namespace."""
    now = promise()
    if int(now["version"].split(".")[0]) > int(RELEASED["version"].split(".")[0]):
        pytest.skip("a new major version may break promises; run scripts/ontology-baseline when it is tagged")
    assert broken(RELEASED, now) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda now: now["terms"].pop("Node"),
        lambda now: now["terms"]["name"].update(kind="object property"),
        lambda now: now["terms"]["label"].update(functional=True),
        lambda now: now["terms"]["name"].update(domainIncludes=[]),
        lambda now: now["terms"]["cpu"].update(inScheme=[]),
        lambda now: now["terms"]["GlaciationNode"].update(subClassOf=[]),
        lambda now: now["context"].update(startedAt="prov:startedAtTime"),
        lambda now: now["context"].pop("id"),
    ],
)
def test_a_broken_promise_is_named(change: Any) -> None:
    """Each way to break data or clients is noticed, so the test above is able to fail."""
    now = promise()
    change(now)

    assert broken(promise(), now) != []
