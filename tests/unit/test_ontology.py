"""Turtle, context, shapes, templates, contract graphs and constants say the same thing."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import rdflib
from pyld import jsonld as pyld
from rdflib import DCTERMS, OWL, RDF, RDFS, SKOS, VANN, XSD
from rdflib.collection import Collection

from drumlin.kg import rdf
from drumlin.kg.rdf import jsonld_loader
from drumlin.ontology import vocabulary

ROOT = Path(__file__).parents[2] / "ontology"
NS = rdflib.Namespace(vocabulary.NAMESPACE)
SCHEMA = rdflib.Namespace("https://schema.org/")
SH = rdflib.SH
ONTOLOGY = rdflib.Graph().parse(ROOT / "drumlin.ttl")
SHAPES = rdflib.Graph().parse(ROOT / "shapes.ttl")
TEMPLATES = rdflib.Graph().parse(ROOT / "metrics.ttl")
CONTEXT = json.loads((ROOT / "context.jsonld").read_bytes())["@context"]


def local(iri: object) -> str:
    """Return the local name of a term of the namespace."""
    assert str(iri).startswith(NS), f"{iri} is not of the namespace"
    return str(iri).removeprefix(NS)


def declared(kind: rdflib.URIRef) -> set[str]:
    """Return the local names of what the Turtle declares as ``kind``."""
    return {local(each) for each in ONTOLOGY.subjects(RDF.type, kind)}


def used_in(graph: rdflib.Graph) -> set[str]:
    """Return the local names of the terms of the namespace that a graph uses anywhere."""
    iris = {
        term for triple in graph for term in triple if isinstance(term, rdflib.URIRef) and term != rdflib.URIRef(NS)
    }
    return {local(each) for each in iris if each.startswith(NS)}


def context_properties() -> dict[str, tuple[str, str | None]]:
    """Return each property key of the context: key → (predicate, coercion), both in full."""
    found = {}
    for key, meaning in CONTEXT.items():
        if key.startswith("@") or (isinstance(meaning, str) and (meaning.startswith("@") or meaning[-1] in "#/")):
            continue
        entry = {"@id": meaning} if isinstance(meaning, str) else meaning
        found[key] = (expanded(entry.get("@id") or entry.get("@reverse") or key), expanded(entry.get("@type")))
    return found


def expanded(name: str | None) -> str | None:
    """Write a compact name of the context in full."""
    if name is None or name.startswith("@"):
        return name
    prefix, colon, rest = name.partition(":")
    return CONTEXT[prefix] + rest if colon else CONTEXT["@vocab"] + name


PROPERTIES = declared(OWL.ObjectProperty) | declared(OWL.DatatypeProperty)
CONCEPTS = declared(SKOS.Concept)
TERMS = declared(OWL.Class) | PROPERTIES | CONCEPTS | declared(SKOS.ConceptScheme)


# -- the Turtle and the constants ---------------------------------------------------------------------------------------


def test_the_constants_are_what_the_turtle_declares() -> None:
    """Code that never parses Turtle still knows exactly the vocabulary."""
    workloads = {local(each) for each in ONTOLOGY.subjects(RDFS.subClassOf, NS.Workload)}
    schemes = {
        scheme: {local(each) for each in ONTOLOGY.subjects(SKOS.inScheme, NS[scheme])}
        for scheme in declared(SKOS.ConceptScheme)
    }

    assert declared(OWL.Class) == vocabulary.CLASSES
    assert workloads == vocabulary.WORKLOAD_KINDS
    assert PROPERTIES == vocabulary.PROPERTIES
    assert declared(OWL.FunctionalProperty) == vocabulary.FUNCTIONAL_PROPERTIES
    assert schemes == vocabulary.SCHEMES
    assert CONCEPTS == vocabulary.CONCEPTS


DESIGNED = {
    "Domain", "GlaciationNode", "Cluster", "Node", "Namespace", "Workload", "Run", "Pod", "Container", "Service", "Ingress", "Autoscaler",
    "DataAsset", "DomainRoute", "Tombstone", "Agent", "Tag", "Telemetry", "Metric", "MetricQuery", "LogQuery", "TraceQuery", "Datasource",
    "Dashboard", "MetricTemplate", "Forecast", "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob",
}  # fmt: skip
"""The classes of the design, and Kubernetes' own kinds of workloads."""


def test_the_classes_are_those_of_the_design_and_no_more() -> None:
    """Each class beyond the design, and each that is left out, stands in the decision with its reason."""
    page = (ROOT.parent / "docs" / "decisions" / "0013-class-list.md").read_text(encoding="utf-8")
    beyond, left_out = page.split("Beyond the design:")[1].split("Not there:")
    named = [
        {
            name
            for line in part.splitlines()
            if line.startswith("* ")
            for name in re.findall(r"`(\w+)`", line.partition(" — ")[0])
        }
        for part in (beyond, left_out)
    ]

    assert named == [vocabulary.CLASSES - DESIGNED, DESIGNED - vocabulary.CLASSES]


def test_a_name_has_one_meaning() -> None:
    """A class, a property, a concept and a scheme never share an IRI; a concept may be in two schemes."""
    kinds = [declared(OWL.Class), PROPERTIES, CONCEPTS, declared(SKOS.ConceptScheme)]

    assert sum(map(len, kinds)) == len(TERMS)
    assert declared(OWL.ObjectProperty).isdisjoint(declared(OWL.DatatypeProperty))


@pytest.mark.parametrize("name", sorted(TERMS))
def test_every_term_is_annotated(name: str) -> None:
    """Each term has one English label and comment, an example, and names where it is defined."""
    term = NS[name]

    for annotation in (RDFS.label, RDFS.comment):
        (text,) = ONTOLOGY.objects(term, annotation)
        assert (text.language, bool(text.strip())) == ("en", True)
    assert ONTOLOGY.value(term, SKOS.example)
    assert list(ONTOLOGY.objects(term, RDFS.isDefinedBy)) == [rdflib.URIRef(NS)]


def test_the_lists_are_skos_as_browsers_of_it_read_them() -> None:
    """Each concept has its label as the preferred one, and each list names all of its concepts as top concepts."""
    for name in CONCEPTS:
        assert list(ONTOLOGY.objects(NS[name], SKOS.prefLabel)) == list(ONTOLOGY.objects(NS[name], RDFS.label)), name
    for name in declared(SKOS.ConceptScheme):
        tops = set(ONTOLOGY.objects(NS[name], SKOS.hasTopConcept))
        assert tops == set(ONTOLOGY.subjects(SKOS.inScheme, NS[name])), name


@pytest.mark.parametrize("name", sorted(PROPERTIES))
def test_every_property_tells_where_it_is_used_without_inferring_types(name: str) -> None:
    """Hints for people stand in schema:domainIncludes and rangeIncludes; rdfs:domain and range would infer."""
    term = NS[name]
    ranges = set(ONTOLOGY.objects(term, SCHEMA.rangeIncludes))

    assert list(ONTOLOGY.objects(term, SCHEMA.domainIncludes))
    assert ranges
    assert not list(ONTOLOGY.objects(term, RDFS.domain)) + list(ONTOLOGY.objects(term, RDFS.range))
    assert all(each.startswith(XSD) for each in ranges) is (name in declared(OWL.DatatypeProperty))


def test_the_turtle_uses_only_terms_it_declares() -> None:
    """Domains, ranges, superclasses and schemes of the namespace exist."""
    assert used_in(ONTOLOGY) == TERMS


def test_the_ontology_says_what_it_is() -> None:
    """Version, licence, creator, date and preferred prefix, as catalogues of ontologies ask for them."""
    header = rdflib.URIRef(NS)

    assert (header, RDF.type, OWL.Ontology) in ONTOLOGY
    assert ONTOLOGY.value(header, OWL.versionIRI)
    assert str(ONTOLOGY.value(header, VANN.preferredNamespacePrefix)) == "drumlin"
    assert str(ONTOLOGY.value(header, VANN.preferredNamespaceUri)) == str(NS)
    for each in (DCTERMS.license, DCTERMS.creator, DCTERMS.issued, DCTERMS.title):
        assert ONTOLOGY.value(header, each), each


# -- used and declared --------------------------------------------------------------------------------------------------


def test_every_used_term_is_declared(contract: dict[str, bytes]) -> None:
    """Context, shapes, templates and the contract's graphs know no term that the Turtle does not."""
    keys = {predicate for predicate, _ in context_properties().values()}

    assert {local(each) for each in keys if each.startswith(NS)} <= PROPERTIES
    assert used_in(SHAPES) <= TERMS
    assert used_in(TEMPLATES) <= TERMS
    for name, content in contract.items():
        lines = rdf.parse(jsonld_loader.inline(content), rdf.JSONLD)[None]
        assert used_in(rdflib.Graph().parse(data="\n".join(lines), format="nt")) <= TERMS, name


def test_every_declared_term_is_held_to_something() -> None:
    """A class or property that no shape mentions is not checked; concepts are by the closed lists. Use: test_ontology_use.py."""
    in_lists = {
        local(each) for head in SHAPES.objects(None, SH["in"]) for each in SHAPES.items(head) if NS in str(each)
    }

    assert declared(OWL.Class) | PROPERTIES <= used_in(SHAPES)
    assert in_lists >= CONCEPTS


def test_the_context_keeps_the_meaning_of_every_key_of_the_contract() -> None:
    """Released keys never change; new ones may come."""
    draft = ROOT.parents[1] / "shared" / "contract" / "context.jsonld"
    if not draft.is_file() and os.environ.get("CI") != "true":
        pytest.skip("needs ../shared/contract/context.jsonld beside the repository")
    released = json.loads(draft.read_bytes())["@context"]

    assert {key: CONTEXT.get(key) for key in released} == released


def test_the_contract_uses_properties_where_the_ontology_says(contract: dict[str, bytes]) -> None:
    """The hints of schema:domainIncludes are true of every document that the contract shows."""
    for name, content in contract.items():
        graph = rdflib.Graph().parse(
            data="\n".join(rdf.parse(jsonld_loader.inline(content), rdf.JSONLD)[None]), format="nt"
        )
        for subject, predicate in graph.subject_predicates():
            if str(predicate).startswith(NS):
                kinds = set(ONTOLOGY.transitive_objects(graph.value(subject, RDF.type), RDFS.subClassOf))
                assert kinds & set(ONTOLOGY.objects(predicate, SCHEMA.domainIncludes)), (name, subject, predicate)


# -- the context --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(CONCEPTS | declared(OWL.Class)))
def test_no_concept_or_class_is_a_key_of_the_context(name: str) -> None:
    """JSON-LD expands a value that is a key of the context to that key's IRI, so ``"phase": "domain"`` would mean a property."""
    assert name not in CONTEXT


def test_pyld_reads_every_concept_and_class_as_the_term_of_that_name() -> None:
    """An independent JSON-LD processor gives each name its own IRI, as value of each coerced key and as type."""
    keys = [key for key, (_, coercion) in context_properties().items() if coercion == "@vocab"]
    names = sorted(CONCEPTS | declared(OWL.Class))
    document = {"@context": CONTEXT, "id": "urn:x", "type": names, **dict.fromkeys(keys, names)}

    (read,) = pyld.expand(document)

    assert sorted(read["@type"]) == sorted(NS + name for name in names)
    for key in keys:
        assert {each["@id"] for each in read[NS + key]} == {NS + name for name in names}, key


def test_the_context_coerces_as_the_ontology_says() -> None:
    """References are IRIs, closed lists are names, literals other than text have their datatype."""
    for key, (predicate, coercion) in context_properties().items():
        if not predicate.startswith(NS) or "@reverse" in CONTEXT[key]:
            continue
        ranges = {str(each) for each in ONTOLOGY.objects(rdflib.URIRef(predicate), SCHEMA.rangeIncludes)}
        if ranges <= {str(SKOS.Concept), str(RDFS.Class)}:
            assert coercion == "@vocab", key
        elif local(predicate) in declared(OWL.ObjectProperty):
            assert coercion == "@id", key
        else:
            assert ranges == {coercion or str(XSD.string)}, key


def test_a_property_without_a_key_is_plain_text() -> None:
    """A key that is not in the context takes its value as it is written, which is right for text only."""
    keyed = {predicate for predicate, _ in context_properties().values()}

    for name in PROPERTIES:
        if NS + name not in keyed:
            assert list(ONTOLOGY.objects(NS[name], SCHEMA.rangeIncludes)) == [XSD.string], name


def test_only_functional_properties_are_no_sets_in_the_context() -> None:
    """What can have several values is always an array, so a client needs one way to read it."""
    sets = {
        expanded(key) for key, each in CONTEXT.items() if isinstance(each, dict) and each.get("@container") == "@set"
    }

    assert {name for name in PROPERTIES if NS + name in sets} == PROPERTIES - declared(OWL.FunctionalProperty)


# -- the shapes ---------------------------------------------------------------------------------------------------------

SHAPE = rdflib.Namespace("https://w3id.org/drumlin/shapes#")


def alternatives(shape: str) -> set[rdflib.term.Node]:
    """Return the properties that a shape with an alternative path watches."""
    (path,) = SHAPES.objects(SHAPE[shape], SH.path)
    return set(SHAPES.items(SHAPES.value(path, SH.alternativePath)))


@pytest.mark.parametrize(
    ("shape", "datatype"),
    [
        ("text", XSD.string),
        ("cores", XSD.decimal),
        ("count", XSD.integer),
        ("truth", XSD.boolean),
        ("duration", XSD.duration),
        ("time", XSD.dateTime),
    ],
)
def test_the_shapes_check_the_datatype_of_every_property(shape: str, datatype: rdflib.URIRef) -> None:
    """The properties that a shape watches are those that ontology and context give its datatype."""
    coerced = {
        rdflib.URIRef(predicate) for predicate, coercion in context_properties().values() if coercion == str(datatype)
    }
    ours = set(ONTOLOGY.subjects(SCHEMA.rangeIncludes, datatype))

    assert alternatives(shape) == ours | coerced
    assert SHAPES.value(SHAPE[shape], SH.datatype) == datatype


def test_the_shapes_hold_every_reference_to_be_no_text() -> None:
    """Object properties never have a literal: by this shape, by a closed list, or because the class of a part is asked."""
    listed = {local(SHAPES.value(each, SH.path)) for each in SHAPES.subjects(SH["in"]) if SHAPE in each}
    parts = {local(SHAPES.value(each, SH.path)) for each in SHAPES.objects(SHAPE.Whole, SH.property)}
    held = {local(each) for each in alternatives("reference")}

    assert held | listed | parts >= declared(OWL.ObjectProperty)
    assert held <= declared(OWL.ObjectProperty)


def test_the_shapes_bound_every_functional_property() -> None:
    """One value at most, for exactly the properties of which the ontology says so."""
    bounded = {local(SHAPES.value(each, SH.path)) for each in SHAPES.objects(SHAPE["one-value"], SH.property)}

    assert bounded == declared(OWL.FunctionalProperty)


def test_the_shapes_close_every_list() -> None:
    """The values that a shape allows are the concepts of the scheme."""
    lists = {frozenset(map(str, SHAPES.items(head))) for head in SHAPES.objects(None, SH["in"])}

    for scheme, concepts in vocabulary.SCHEMES.items():
        assert frozenset(NS + name for name in concepts) in lists, scheme
    assert (
        frozenset(NS + name for name in vocabulary.CLASSES - {"Workload"}) in lists
    )  # which nothing may have as its type


def test_every_shape_that_reports_has_words_for_it() -> None:
    """A constraint without a message would be told in the engine's words."""
    inner = {
        node
        for head in (SH["or"], SH["not"], SH.qualifiedValueShape)
        for each in SHAPES.objects(None, head)
        for node in SHAPES.transitive_objects(each, None)
    }
    reporting = {shape for shape in SHAPES.subjects(SH.path) if shape not in inner}

    assert [shape for shape in reporting if len(list(SHAPES.objects(shape, SH.message))) != 1] == []
    assert all("\n" not in text and text.language is None for text in SHAPES.objects(None, SH.message))


# -- files --------------------------------------------------------------------------------------------------------------


def test_the_documentation_names_every_class_and_closed_list() -> None:
    """The page shows the whole vocabulary, so it cannot fall behind."""
    page = (ROOT.parent / "docs" / "ontology.md").read_text(encoding="utf-8")
    words = set(re.findall(r"[A-Za-z]+", page))

    assert (declared(OWL.Class) | CONCEPTS) - words == set()


def test_a_tombstone_names_any_class_of_an_entity() -> None:
    """The classes that a tombstone may name are the same in the code and in the shapes."""
    listed = SHAPES.value(rdflib.URIRef("https://w3id.org/drumlin/shapes#tombstone-former-type"), SH["in"])
    assert {local(each) for each in Collection(SHAPES, listed)} == vocabulary.ENTITY_CLASSES
