"""The alignments on the recorded cluster: what another vocabulary's client finds, and that its own ontology allows it."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest
import rdflib
from rdflib import DCAT, DCTERMS, FOAF, OWL, PROV, RDF, RDFS, SKOS, XSD

from drumlin.kg.errors import ResourceNotFound
from drumlin.kg.graphs import vocabulary_mapping
from drumlin.kg.sparql import gate
from tests.contract.cookbook_answers import B, Manifest, alive, iri, metrics, node_iri, workloads
from tests.contract.test_cluster import CLUSTER, SHARED, replayed
from tests.contract.test_cookbook import engine, state

PEER = SHARED / "data" / "glaciation-heu+MetadataReferenceModel"
GLC = rdflib.Namespace("https://glaciation-project.eu/MetadataReferenceModel#")
K8S = rdflib.Namespace("https://glaciation-project.eu/MetadataReferenceModel/kubernetes#")
OTEL = rdflib.Namespace("https://opentelemetry.io/schemas/1.37.0#")
RULES = [(name, rule) for name in vocabulary_mapping.alignments() for rule in vocabulary_mapping.rules(name)]

pytestmark = pytest.mark.skipif(
    not CLUSTER.is_dir() and os.environ.get("CI") != "true", reason="no recorded cluster at ../shared/data/cluster"
)


@cache
def aligned(name: str) -> rdflib.Graph:
    """Give what an alignment makes of the recorded cluster, and nothing of ours."""
    graph = rdflib.Graph()
    _, store = state("after")
    for rule in vocabulary_mapping.rules(name):
        for triple in store.query(rule, use_default_graph_as_union=True):
            graph.parse(data=f"{triple} .", format="nt")
    return graph


def found() -> dict[str, list[Manifest]]:
    """Give the manifests that the graph was made of."""
    return state("after")[0]


@pytest.mark.parametrize(("name", "rule"), RULES, ids=[f"{name}-{number}" for number, (name, _) in enumerate(RULES)])
def test_a_rule_passes_the_gate(name: str, rule: str) -> None:
    """A rule is a CONSTRUCT that a caller might send too."""
    assert gate.check(rule, max_bytes=10_000).form == "construct", name


def test_the_alignments_are_those_of_the_design_and_others_are_suggested() -> None:
    """DCAT and PROV, OpenTelemetry, GLACIATION; a misspelt name is told what may have been meant."""
    assert set(vocabulary_mapping.alignments()) == {"dcat", "opentelemetry", "glaciation"}
    with pytest.raises(ResourceNotFound) as told:
        vocabulary_mapping.source("glaciaton")
    assert told.value.hint == "did you mean glaciation?"


def made(name: str) -> dict[str, set[str]]:
    """Give what each rule of an alignment makes of the recorded cluster, before, after, and with what is gone."""
    stores = [state("before")[1], state("after")[1], engine(replayed())]
    return {
        rule: {str(triple) for store in stores for triple in store.query(rule, use_default_graph_as_union=True)}
        for rule in vocabulary_mapping.rules(name)
    }


@pytest.mark.parametrize("name", vocabulary_mapping.alignments())
def test_every_rule_says_what_no_other_says(name: str) -> None:
    """A rule that makes nothing of a real cluster is wrong or not needed; ReplicaSets of their own are none of the recorded one's."""
    by_rule = made(name)
    idle = [
        rule
        for rule, said in by_rule.items()
        if not said - set().union(*(others for other, others in by_rule.items() if other != rule))
    ]

    assert [rule for rule in idle if ":ReplicaSet" not in rule] == []


# -- DCAT and PROV --------------------------------------------------------------------------------------------------------


def test_a_plain_dcat_walk_reaches_every_metric_of_every_workload() -> None:
    """Catalog → dataset → distribution → accessService → endpointURL, knowing DCAT and nothing else."""
    graph = aligned("dcat")
    reached = {
        str(dataset)
        for catalog in graph.subjects(RDF.type, DCAT.Catalog)
        for dataset in graph.objects(catalog, DCAT.dataset)
        for distribution in graph.objects(dataset, DCAT.distribution)
        for service in graph.objects(distribution, DCAT.accessService)
        for _ in graph.objects(service, DCAT.endpointURL)
        if (dataset, RDF.type, DCAT.Dataset) in graph
        and (distribution, RDF.type, DCAT.Distribution) in graph
        and (service, RDF.type, DCAT.DataService) in graph
    }
    expected = {f"{name}/metric/{metric}" for name, _, each in workloads(found()) for metric in metrics(each)}

    assert len(expected) > 100
    assert expected <= reached
    assert {f"{name}/telemetry/logs" for name, _, _ in workloads(found())} <= reached


def test_datasets_have_the_words_that_a_catalogue_shows() -> None:
    """Each dataset has one title and a subject or type; each service says what it serves."""
    graph = aligned("dcat")
    for dataset in graph.subjects(RDF.type, DCAT.Dataset):
        assert len(list(graph.objects(dataset, DCTERMS.title))) == 1, dataset
        assert list(graph.objects(dataset, DCAT.theme)) or list(graph.objects(dataset, DCTERMS.type)), dataset
    (prometheus,) = graph.subjects(DCTERMS.title, rdflib.Literal("prometheus-main"))
    assert len(list(graph.objects(prometheus, DCAT.servesDataset))) > 100


def test_a_catalogue_has_what_dcat_ap_3_makes_mandatory() -> None:
    """Catalogues have a title, a description and one publisher that is an agent with a name; datasets, services and concepts their texts.

    https://semiceu.github.io/DCAT-AP/releases/3.0.1/; its shapes, which are not copied here, find nothing in /profiles/dcat.
    """
    graph = aligned("dcat")
    mandatory = {
        DCAT.Catalog: (DCTERMS.title, DCTERMS.description, DCTERMS.publisher),
        DCAT.Dataset: (DCTERMS.title, DCTERMS.description),
        DCAT.DataService: (DCTERMS.title, DCAT.endpointURL),
        DCAT.Distribution: (DCAT.accessURL,),
        FOAF.Agent: (FOAF.name,),
        SKOS.Concept: (SKOS.prefLabel,),
    }
    ranges = {
        DCTERMS.publisher: FOAF.Agent,
        DCTERMS.type: SKOS.Concept,
        DCAT.theme: SKOS.Concept,
        DCTERMS.conformsTo: DCTERMS.Standard,
        DCAT.dataset: DCAT.Dataset,
    }
    for kind, predicates in mandatory.items():
        things = set(graph.subjects(RDF.type, kind))
        assert things, kind
        for predicate in predicates:
            assert all(len(set(graph.objects(each, predicate))) == 1 for each in things), (kind, predicate)
    for predicate, kind in ranges.items():
        assert all((value, RDF.type, kind) in graph for value in graph.objects(None, predicate)), predicate


def test_prov_knows_what_ran_where() -> None:
    """Each pod on a node is an entity used by an activity at that location, with its start."""
    graph = aligned("dcat")
    for pod in alive(found()):
        runs = list(graph.subjects(PROV.used, rdflib.URIRef(iri(pod, "Pod"))))
        assert [str(graph.value(run, PROV.atLocation)) for run in runs] == [node_iri(pod["spec"]["nodeName"])]
        assert graph.value(runs[0], PROV.startedAtTime)


# -- OpenTelemetry --------------------------------------------------------------------------------------------------------


def test_pods_have_the_attributes_that_a_collector_gives_them() -> None:
    """Names, uids and relations are those of the conventions, and equal the manifests'."""
    graph = aligned("opentelemetry")
    for pod in found()["Pod"]:
        meta, name = pod["metadata"], rdflib.URIRef(iri(pod, "Pod"))
        assert str(graph.value(name, OTEL["entity.type"])) == "k8s.pod"
        assert str(graph.value(name, OTEL["k8s.pod.name"])) == meta["name"]
        assert str(graph.value(name, OTEL["k8s.namespace.name"])) == meta["namespace"]
        assert str(graph.value(name, OTEL["k8s.cluster.name"])) == "prod"
        assert [str(each) for each in graph.objects(name, OTEL["k8s.pod.uid"])] == [meta["uid"]]
        if pod in alive(found()):
            assert str(graph.value(name, OTEL.scheduled_on)) == node_iri(pod["spec"]["nodeName"])
            assert list(graph.objects(name, OTEL.part_of))


def test_jobs_keep_their_uid_when_they_have_ended() -> None:
    """The object is there until it is deleted, and a collector gives its uid."""
    graph = aligned("opentelemetry")
    for job in found()["Job"]:
        assert [str(each) for each in graph.objects(rdflib.URIRef(iri(job, "Job")), OTEL["k8s.job.uid"])] == [
            job["metadata"]["uid"]
        ]


def test_metrics_bear_the_names_of_the_conventions() -> None:
    """A workload's CPU and memory, a node's CPU."""
    graph = aligned("opentelemetry")
    checkout = f"{B}prod/payments/deployment/checkout/metric"
    said = {
        f"{checkout}/cpu_usage": "k8s.pod.cpu.usage",
        f"{checkout}/mem_usage": "k8s.pod.memory.working_set",
        f"{B}prod/-/node/edge-a-1/metric/cpu_usage": "k8s.node.cpu.usage",
    }
    for metric, name in said.items():
        assert [str(each) for each in graph.objects(rdflib.URIRef(metric), OTEL["metric.name"])] == [name]
    ways = {
        str(graph.value(rdflib.URIRef(f"{checkout}/network_{way}"), OTEL["network.io.direction"]))
        for way in ("receive", "transmit")
    }
    assert ways == {"receive", "transmit"}
    assert not list(graph.objects(rdflib.URIRef(f"{checkout}/cpu_usage"), OTEL["network.io.direction"]))


# -- GLACIATION -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def peer() -> rdflib.Graph:
    """The peer's own ontology."""
    if not PEER.is_dir() and os.environ.get("CI") != "true":
        pytest.skip("the peer's ontology is not at ../shared/data")
    return rdflib.Graph().parse(PEER / "glc.ttl").parse(PEER / "kubernetes" / "ontology.ttl")


def test_every_term_of_glaciation_is_one_of_its_ontology(peer: rdflib.Graph) -> None:
    """No misspelt or invented term, unlike the data that its own exporter wrote."""
    declared = set(peer.subjects(RDF.type))
    used = {term for triple in aligned("glaciation") for term in triple if str(term).startswith((GLC, K8S))}

    assert used
    assert used <= declared


def test_the_ontology_of_glaciation_allows_each_statement(peer: rdflib.Graph) -> None:
    """Subject and object are of the classes that the property is for, as the alignment itself types them."""
    graph = aligned("glaciation")

    def classes(thing: rdflib.term.Node) -> set[rdflib.term.Node]:
        return {up for each in graph.objects(thing, RDF.type) for up in peer.transitive_objects(each, RDFS.subClassOf)}

    for subject, predicate, value in graph:
        for domain in peer.objects(predicate, RDFS.domain):
            assert domain in classes(subject) or (domain == GLC.Class and classes(subject)), (subject, predicate)
        for wanted in peer.objects(predicate, RDFS.range):
            if isinstance(value, rdflib.Literal):
                stamped = wanted == XSD.dateTimeStamp and value.value.tzinfo  # the engine knows them as dateTime
                assert (value.datatype or XSD.string) == wanted or stamped, (subject, predicate, value)
            else:
                assert wanted in classes(value), (predicate, value)
    assert not [each for each in peer.subjects(RDF.type, OWL.ObjectProperty) if each in set(graph.subjects())]


def test_workloads_and_nodes_of_the_cluster_are_all_there() -> None:
    """Each workload is a task under namespace and name, each node a resource of the cluster at its site."""
    graph = aligned("glaciation")
    tasks = {str(each) for each in graph.subjects(RDF.type, GLC.AssignedTask)}

    assert {name for name, _, _ in workloads(found())} <= tasks
    checkout = rdflib.URIRef(f"{B}prod/payments/deployment/checkout")
    assert (checkout, RDF.type, K8S.DeploymentWorkload) in graph
    assert str(graph.value(checkout, GLC.hasID)) == "payments/checkout"
    cluster = rdflib.URIRef(f"{B}cluster/prod")
    assert {str(each) for each in graph.objects(cluster, GLC.hasSubResource)} == {
        iri(each, "Node") for each in found()["Node"]
    }


def test_no_alignment_file_copies_the_peers() -> None:
    """Ours are rules; nothing of the upstream files stands in the repository."""
    folder = Path(__file__).parents[2] / "ontology" / "align"

    assert all("owl:Class" not in path.read_text(encoding="utf-8") for path in folder.iterdir())
