"""An audit finds in a whole store what a write would be refused for, and what only the whole can show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import rdflib

from drumlin.kg import rdf
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf import jsonld, jsonld_loader
from drumlin.kg.rdf.syntax import Lines
from drumlin.kg.validation.audit import MAX_REPORTED, audit, shacl_report
from drumlin.ontology.vocabulary import NAMESPACE
from tests.counting import counted_calls

FIXTURES = Path(__file__).parents[1] / "golden" / "shapes"
IRIS = Iris("https://kg.example")
ID = "https://kg.example/id/prod/payments"
SH = rdflib.SH


def fixture(path: Path) -> tuple[str, Lines]:
    """Read a fixture as a graph of a store."""
    content = path.read_bytes()
    lines = rdf.parse(jsonld_loader.inline(content), rdf.JSONLD)[None]
    return IRIS.entity(json.loads(content)["id"]), lines


def pod(name: str, **more: object) -> tuple[str, Lines]:
    """Return a well-shaped pod's graph with something more."""
    document = {"id": f"{ID}/pod/{name}", "type": "Pod", "name": name, "namespace": "payments", **more}
    return document["id"], jsonld.lines(document)


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.fail.jsonld")), ids=lambda path: path.name.split(".")[0])
def test_an_audit_finds_what_a_write_is_refused_for(path: Path) -> None:
    """Each rule that has a fixture is found in a store that holds it."""
    report = audit([fixture(path)], IRIS)

    assert set(report.rules) == {path.name.split(".")[0]}
    assert not report.conforms


def test_a_good_store_conforms() -> None:
    """The fixtures that break no rule break none together, and are counted."""
    graphs = dict(map(fixture, sorted(FIXTURES.glob("*.pass.jsonld"))))

    report = audit(sorted(graphs.items()), IRIS)

    assert (report.conforms, report.violations) == (True, [])
    assert (report.graphs, report.statements) == (len(graphs), sum(map(len, graphs.values())))


def test_foreign_graphs_are_counted_and_left_alone() -> None:
    """What stands outside the base's ids follows no rule of ours."""
    report = audit([("http://elsewhere.example/g", frozenset({'_:b <http://x/p> "odd"@en .'}))], IRIS)

    assert (report.foreign, report.graphs, report.conforms) == (1, 0, True)


def test_a_circle_of_owners_is_told_once() -> None:
    """No graph alone shows it; a workload at the end of a chain is in no circle."""
    graphs = [
        pod("a", managedBy=f"{ID}/pod/b"),
        pod("b", managedBy=f"{ID}/pod/c"),
        pod("c", managedBy=f"{ID}/pod/a"),
        pod("d", managedBy=f"{ID}/pod/a"),
        pod("e", managedBy=f"{ID}/deployment/f"),
    ]

    report = audit(graphs, IRIS)

    assert report.rules == {"managed-by-circle": 1}
    assert report.violations[0].focus.rpartition("/")[2] in "abc"


def test_links_that_lead_nowhere_are_listed_by_how_many_there_are() -> None:
    """A dangling link breaks no rule, since what it leads to may not be readable; a part of a known entity is known."""
    gone, part = f"{ID}/deployment/gone", f"{ID}/pod/a/metric/cpu_usage"
    graphs = [pod("a", managedBy=gone), pod("b", managedBy=gone, dependsOn=[part, f"{ID}/service/x"])]

    report = audit(graphs, IRIS)

    assert report.conforms
    assert [(each.target, each.count) for each in report.dangling] == [(gone, 2), (f"{ID}/service/x", 1)]
    assert report.dangling[0].path == f"{NAMESPACE}managedBy"


def test_a_graph_whose_name_is_none_is_told_and_the_rest_is_audited() -> None:
    """One unreadable graph does not end the audit."""
    report = audit([(f"{ID}/pod/a/run/x", frozenset()), pod("b")], IRIS)

    assert report.rules == {"readable-graph": 1}
    assert report.graphs == 2


def test_a_long_report_is_cut_and_counts_all() -> None:
    """The number of violations is told even where not all are listed."""
    graphs = [pod(str(number), phase="Odd") for number in range(MAX_REPORTED + 5)]

    report = audit(graphs, IRIS)

    assert len(report.violations) == MAX_REPORTED
    assert sum(report.rules.values()) == MAX_REPORTED + 5


def test_the_report_is_one_of_shacl() -> None:
    """Another tool reads it: results with focus, path, message, severity, source; nothing when all is well."""
    report = audit([fixture(FIXTURES / "phase.fail.jsonld")], IRIS)
    graph = rdflib.Graph().parse(data=rdf.serialize(shacl_report(report), rdf.TURTLE), format="turtle")

    (head,) = graph.subjects(rdflib.RDF.type, SH.ValidationReport)
    (result,) = graph.objects(head, SH.result)
    assert graph.value(head, SH.conforms) == rdflib.Literal(False)
    for needed in (
        SH.focusNode,
        SH.resultPath,
        SH.resultSeverity,
        SH.sourceConstraintComponent,
        SH.sourceShape,
        SH.resultMessage,
    ):
        assert len(list(graph.objects(result, needed))) == 1, needed
    empty = rdflib.Graph().parse(data=rdf.serialize(shacl_report(audit([], IRIS)), rdf.TURTLE), format="turtle")
    assert list(empty.objects(None, SH.conforms)) == [rdflib.Literal(True)]


def test_progress_is_told_up_to_the_last_graph() -> None:
    """A person sees how far it is; foreign graphs are passed too."""
    told: list[int] = []
    graphs = [pod(str(number)) for number in range(150)]
    audit([*graphs, ("http://elsewhere.example/g", frozenset())], IRIS, told.append)

    assert told == sorted(told)
    assert len(set(told)) >= 3
    assert told[-1] == 151


# -- many graphs at one time ----------------------------------------------------------------------------------------------


def test_one_wrong_graph_is_found_wherever_it_stands_among_right_ones() -> None:
    """Graphs are taken some at a time; the verdict of each is its own."""
    wrong = pod("wrong", phase="Odd")
    for place in (0, 63, 64, 100):
        graphs = [pod(f"p{number}") for number in range(100)]
        graphs.insert(place, wrong)

        report = audit(graphs, IRIS)

        assert [each.focus for each in report.violations] == [wrong[0]]
        assert report.graphs == 101


def test_no_graph_lends_another_a_part() -> None:
    """A container that stands in another graph is no container of this one, although it has the right class there."""
    container = {"id": f"{ID}/pod/a/container/c", "type": "Container", "name": "c"}
    graphs = [pod("a", container=[container]), pod("b", container=[container["id"]])]

    report = audit(graphs, IRIS)

    assert report.rules == {"container-described": 1}
    assert report.violations[0].focus == f"{ID}/pod/b"


def test_no_graph_makes_another_right_by_declaring_a_class() -> None:
    """SHACL reads rdfs:subClassOf from what it judges; a graph's own class counts in that graph only."""
    kind = f"{ID}/pod/a/kind"
    subclass = f"<{kind}> <http://www.w3.org/2000/01/rdf-schema#subClassOf> <{NAMESPACE}Container> ."
    other = pod("b", container=[{"id": f"{ID}/pod/b/container/c", "name": "c"}])
    typed = f"<{ID}/pod/b/container/c> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <{kind}> ."
    graphs = [(pod("a")[0], pod("a")[1] | {subclass}), (other[0], other[1] | {typed})]

    assert audit(graphs, IRIS).rules == {"container-described": 1}


def test_the_work_of_an_audit_grows_with_the_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit's work is proportional to the number of graphs; those that conform are judged without the SHACL engine."""

    def work(count: int) -> int:
        graphs = [
            pod(f"p{number}", label=[f"k{key}=v" for key in range(20)], phase="Running") for number in range(count)
        ]
        with counted_calls() as calls:
            assert audit(graphs, IRIS).conforms
        return calls.count

    monkeypatch.setattr("drumlin.kg.validation.validate._shapes", None)
    work(1)
    assert work(200) < 2.5 * work(100)
