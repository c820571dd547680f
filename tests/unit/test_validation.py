"""What may be stored: each rule with its fixture, and an independent SHACL engine as the oracle."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyshacl
import pytest
import rdflib
import shacl
from hypothesis import given
from hypothesis import strategies as st

from drumlin.kg import rdf
from drumlin.kg.errors import InvalidDocument, InvalidIdentifier, ShapeViolation, Violation
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf import jsonld_loader
from drumlin.kg.validation.validate import MAX_LITERAL_BYTES, MAX_VIOLATIONS, validate
from drumlin.ontology.vocabulary import CLASSES, CONCEPTS, PROPERTIES

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests" / "golden" / "shapes"
SHAPES = ROOT / "ontology" / "shapes.ttl"
PASSING = sorted(FIXTURES.glob("*.pass.jsonld"))
FAILING = sorted(FIXTURES.glob("*.fail.jsonld"))

SH = rdflib.SH
IRIS = Iris("https://kg.example")
POD = "https://kg.example/id/prod/payments/pod/orders-db-0"
POD_LINES = frozenset(
    {
        f"<{POD}> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <https://w3id.org/drumlin/ns#Pod> .",
        f'<{POD}> <https://w3id.org/drumlin/ns#name> "orders-db-0" .',
        f'<{POD}> <https://w3id.org/drumlin/ns#namespace> "payments" .',
    }
)
CONSTRAINTS = {
    SH.minCount, SH.maxCount, SH.datatype, SH.nodeKind, SH.pattern, SH["in"], SH["class"], SH["or"], SH["not"],
    SH.minInclusive, SH.lessThanOrEquals, SH.qualifiedMaxCount, SH.targetClass, SH.targetSubjectsOf,
}  # fmt: skip


def rule_of(path: Path) -> str:
    """Return the rule that a fixture is named for."""
    return path.name.split(".")[0]


def read(content: bytes) -> tuple[rdf.Lines, str]:
    """Read a JSON-LD document as its lines and the name of its graph."""
    return rdf.parse(jsonld_loader.inline(content), rdf.JSONLD)[None], IRIS.entity(json.loads(content)["id"])


def load(path: Path) -> tuple[rdf.Lines, str]:
    """Read a fixture as its lines and the name of its graph."""
    return read(path.read_bytes())


def violations(lines: rdf.Lines, graph: str) -> tuple[Violation, ...]:
    """Validate and return what was found, nothing when all is well."""
    try:
        validate(lines, graph, IRIS)
    except ShapeViolation as error:
        return error.violations
    return ()


def pod_with(predicate: str, obj: str) -> rdf.Lines:
    """Return a well-shaped pod with one statement more; ``obj`` is an N-Triples term."""
    return POD_LINES | {f"<{POD}> <{predicate}> {obj} ."}


def test_lines_that_no_reader_vouches_for_are_looked_at_iri_by_iri() -> None:
    """A store may hold what was written before a rule: an ill-formed IRI is no proof of anything, whichever term it is."""
    for lines in (
        pod_with("https://schema.org/about", "<http://x/[>"),
        pod_with("https://schema.org/[", "<http://x/>"),
        POD_LINES | {f'<{POD}/[> <https://schema.org/name> "x" .'},
    ):
        with pytest.raises(InvalidDocument, match="not a set of RDF"):
            validate(lines, POD, IRIS)


@pytest.mark.parametrize("path", FAILING, ids=rule_of)
def test_a_failing_fixture_breaks_exactly_the_rule_it_is_named_for(path: Path) -> None:
    """Each rule has a document that breaks it and no other."""
    found = violations(*load(path))

    assert {each.rule for each in found} == {rule_of(path)}
    assert all(each.message and "\n" not in each.message for each in found)


@pytest.mark.parametrize("path", PASSING, ids=rule_of)
def test_a_passing_fixture_breaks_no_rule(path: Path) -> None:
    """Beside each failing document stands one that is right."""
    assert violations(*load(path)) == ()


def test_the_graphs_of_the_contract_are_accepted(contract: dict[str, bytes]) -> None:
    """What the contract shows can be stored."""
    assert {name: violations(*read(content)) for name, content in contract.items()} == dict.fromkeys(contract, ())


def test_every_rule_has_a_failing_and_a_passing_fixture() -> None:
    """A shape without a document that breaks it is not known to work; a document of no rule is left over."""
    shapes = rdflib.Graph().parse(SHAPES)
    checks = {subject for subject, predicate in shapes.subject_predicates() if predicate in CONSTRAINTS}
    targets = {SH.targetClass, SH.targetSubjectsOf}
    named = {
        str(shape).rpartition("#")[2]
        for shape in shapes.subjects(SH.message)
        if isinstance(shape, rdflib.URIRef) and shape in checks
    }
    anonymous = {
        str(parent).rpartition("#")[2]
        for parent, child in shapes.subject_objects(SH.property)
        if isinstance(child, rdflib.BNode) and isinstance(parent, rdflib.URIRef)
    }
    own = set(re.findall(r'"([a-z]+(?:-[a-z]+)+)"', (ROOT / "kg" / "validation" / "validate.py").read_text()))

    assert targets < CONSTRAINTS
    assert {rule_of(path) for path in FAILING} == named | anonymous | own - {
        "no-triple-term",
        "literal-too-long",
        "too-many-values",
    }
    assert {rule_of(path) for path in PASSING} == {rule_of(path) for path in FAILING}


# -- an independent oracle; mutants of the shapes are in test_ontology_mutants.py ------------------------------------------


@pytest.fixture
def quiet_rdflib() -> Iterator[None]:
    """Rdflib logs a traceback for each ill-typed literal; here they are meant."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def assert_same_results(documents: dict[str, bytes]) -> None:
    """Hold our SHACL engine to what pyshacl finds, result by result; each document gets a host of its own, so none lends another."""
    texts = [
        line.replace("https://kg.example/", f"https://{name.replace('.', '-')}.example/")
        for name, content in documents.items()
        for line in read(content)[0]
    ]
    data = rdflib.Graph().parse(data="\n".join(texts), format="nt")
    _, report, _ = pyshacl.validate(data, shacl_graph=rdflib.Graph().parse(SHAPES))
    results = report.subjects(rdflib.RDF.type, SH.ValidationResult)
    expected = {(str(report.value(each, SH.focusNode)), str(report.value(each, SH.resultMessage))) for each in results}

    found = shacl.Shapes.from_turtle(SHAPES.read_text()).validate_text("\n".join(texts), format="ntriples").results

    assert {(each.focus_node.strip("<>"), each.message) for each in found} == expected


@pytest.mark.usefixtures("quiet_rdflib")
def test_pyshacl_finds_the_same_in_every_fixture() -> None:
    """Two engines agree on our shapes, so they mean what SHACL says and not what one engine makes of them."""
    assert_same_results({path.name: path.read_bytes() for path in [*PASSING, *FAILING]})


def test_pyshacl_finds_the_same_in_the_contract(contract: dict[str, bytes]) -> None:
    """The oracle too accepts what the contract shows."""
    assert_same_results(contract)


# -- what SHACL cannot say ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "meant"), [("aplication", "application"), ("cpuRequests", "cpuRequest"), ("Name", "name")]
)
def test_a_misspelt_property_is_refused_with_a_suggestion_and_without_its_value(written: str, meant: str) -> None:
    """The value beside an unknown key may be anything, a password too, so it is never repeated."""
    (found,) = violations(pod_with(f"https://w3id.org/drumlin/ns#{written}", '"hunter2"'), POD)

    assert (found.rule, found.suggestion) == ("undeclared-term", meant)
    assert "hunter2" not in repr(found)


def test_a_concept_that_is_no_concept_of_ours_is_reported_once() -> None:
    """The closed list would refuse it too; one mistake is one violation."""
    lines = pod_with("https://w3id.org/drumlin/ns#phase", "<https://w3id.org/drumlin/ns#Runing>")

    (found,) = violations(lines, POD)

    assert (found.rule, found.suggestion) == ("undeclared-term", "Running")


@pytest.mark.parametrize("name", ["url", "datasource-endpoint"])
def test_credentials_inside_a_url_are_not_repeated(name: str) -> None:
    """A refused address must not carry its password into errors and logs."""
    found = violations(*load(FIXTURES / f"{name}.fail.jsonld"))

    assert any("…@" in (each.value or "") for each in found)
    assert "pass" not in repr(found)


def test_a_violation_tells_where_it_is() -> None:
    """Focus, path, value and rule name one statement, also where one shape watches many properties."""
    (found,) = violations(
        pod_with("https://w3id.org/drumlin/ns#cpuRequest", '"-1"^^<http://www.w3.org/2001/XMLSchema#decimal>'), POD
    )

    assert found == Violation(
        focus=POD,
        path="https://w3id.org/drumlin/ns#cpuRequest",
        value="-1",
        rule="cores",
        message='prod/payments/pod/orders-db-0: a number of cores is a decimal of 0 or more, written as text ("0.25")',
    )


def test_a_blank_node_is_told_as_such_and_by_nothing_else() -> None:
    """Whatever else is wrong with a blank node can only be told once it has an id."""
    lines = pod_with("https://w3id.org/drumlin/ns#telemetry", "_:b0")

    assert [each.rule for each in violations(lines, POD)] == ["no-blank-node"]


@pytest.mark.parametrize("value", ['"x"', "<https://schema.org/x>"])
def test_a_triple_term_is_refused(value: str) -> None:
    """RDF 1.2 lets a triple stand as an object; no graph of ours needs it and SPARQL 1.1 clients cannot read it."""
    lines = pod_with("https://schema.org/about", f"<<( <{POD}> <https://schema.org/name> {value} )>>")

    assert [each.rule for each in violations(lines, POD)] == ["no-triple-term"]


def test_a_literal_is_bounded_in_utf8_bytes() -> None:
    """One byte less than the limit passes; the limit itself does not, whichever characters make it up."""
    comment = "http://purl.org/dc/terms/description"

    assert violations(pod_with(comment, f'"{"a" * (MAX_LITERAL_BYTES - 1)}"'), POD) == ()
    for text in ("a" * MAX_LITERAL_BYTES, "ü" * (MAX_LITERAL_BYTES // 2)):
        assert [each.rule for each in violations(pod_with(comment, f'"{text}"'), POD)] == ["literal-too-long"]


def test_a_report_is_bounded() -> None:
    """A document that is wrong everywhere gets a short report, fast."""
    lines = POD_LINES | {f'<{POD}> <https://w3id.org/drumlin/ns#wrong{i}> "x" .' for i in range(20_000)}

    assert len(violations(lines, POD)) == MAX_VIOLATIONS


def test_thousands_of_starts_and_ends_are_not_compared_with_each_other() -> None:
    """The SHACL engine would compare each with each for seconds; one line says what is wrong."""
    prov, moment = "http://www.w3.org/ns/prov#", "http://www.w3.org/2001/XMLSchema#dateTime"
    ends = {
        f'<{POD}/run/1> <{prov}{edge}> "2026-11-{1 + i // 24:02}T{i % 24:02}:00:00Z"^^<{moment}> .'
        for i in range(240)
        for edge in ("startedAtTime", "endedAtTime")
    }

    run = {
        f"<{POD}/run/1> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <https://w3id.org/drumlin/ns#Run> .",
        f"<{POD}/run/1> <https://w3id.org/drumlin/ns#runOf> <{POD}> .",
    }

    found = violations(POD_LINES | run | ends, POD)

    assert [(each.rule, each.path) for each in found] == [
        ("too-many-values", f"{prov}endedAtTime"),
        ("too-many-values", f"{prov}startedAtTime"),
    ]


def test_a_report_repeats_no_long_name() -> None:
    """A name of half a megabyte in a hundred violations would make a report of fifty."""
    lines = POD_LINES | {f'<{POD}/{"x" * 100_000}> <https://w3id.org/drumlin/ns#wrong{i}> "x" .' for i in range(10)}

    assert len(repr(violations(lines, POD))) < 20_000


@pytest.mark.parametrize("graph", [f"{POD}/run/1", f"{POD}/container/a"])
def test_a_part_of_an_entity_has_no_graph(graph: str) -> None:
    """Graphs are named by entities; what lies below one belongs into its graph."""
    with pytest.raises(InvalidDocument, match="has no graph") as caught:
        validate(POD_LINES, graph, IRIS)
    assert POD in str(caught.value.hint)


def test_a_graph_of_another_base_is_no_identifier_here() -> None:
    """Identity is checked before anything else."""
    with pytest.raises(InvalidIdentifier):
        validate(POD_LINES, "https://elsewhere.example/id/prod/payments/pod/orders-db-0", IRIS)


def test_lines_that_are_no_statements_are_an_invalid_document() -> None:
    """What the SHACL engine cannot read is the document's fault and told as ours, without its text."""
    lines = pod_with("not an iri", '"hunter2"')

    with pytest.raises(InvalidDocument) as caught:
        validate(lines, POD, IRIS)
    assert "hunter2" not in str(caught.value)


def test_an_empty_graph_is_refused() -> None:
    """A graph says at least what its entity is; to remove one is another request."""
    assert [each.rule for each in violations(frozenset(), POD)] == ["root-described"]


def test_a_document_without_an_id_is_told_which_to_give() -> None:
    """That comes before the blank nodes that follow from it."""
    nameless = rdf.parse(
        b'[ a <https://w3id.org/drumlin/ns#Pod> ] <https://w3id.org/drumlin/ns#name> "a" .', rdf.TURTLE
    )
    first, *others = violations(nameless[None], POD)
    assert (first.rule, POD in first.message) == ("root-described", True)
    assert {each.rule for each in others} == {"no-blank-node"}


def test_a_notes_graph_speaks_about_itself_only_and_needs_no_class() -> None:
    """Users' remarks stand beside an exporter's entity, never as statements about it."""
    notes = IRIS.notes(POD)
    remark = f'<{notes}> <https://w3id.org/drumlin/ns#tag> "gold" .'

    assert violations(frozenset({remark}), notes) == ()
    (found,) = violations(frozenset({remark, f'<{POD}> <https://w3id.org/drumlin/ns#tag> "gold" .'}), notes)
    assert found.rule == "subject-outside-graph"


def test_a_name_that_merely_begins_like_the_graph_stands_outside() -> None:
    """``…/orders-db-01`` is not below ``…/orders-db-0``."""
    lines = POD_LINES | {f'<{POD}1> <https://w3id.org/drumlin/ns#tag> "gold" .'}

    assert [each.rule for each in violations(lines, POD)] == ["subject-outside-graph"]


def test_threads_share_the_shapes() -> None:
    """Many writers validate at one time and all come to the same verdict."""
    verdicts: list[int] = []
    wrong = load(FIXTURES / "name.fail.jsonld")
    threads = [threading.Thread(target=lambda: verdicts.append(len(violations(*wrong)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(verdicts) == 8
    assert len(set(verdicts)) == 1


# -- literals -----------------------------------------------------------------------------------------------------------


def well_formed(text: str, datatype: str) -> bool:
    """Return whether a literal passes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    lines = pod_with("https://schema.org/value", f'"{escaped}"^^<http://www.w3.org/2001/XMLSchema#{datatype}>')
    return "ill-typed-literal" not in {each.rule for each in violations(lines, POD)}


@pytest.mark.parametrize(
    ("datatype", "right", "wrong"),
    [
        ("integer", ["0", "-0", "+7", "00012", "9" * 40], ["", "1.0", "1e3", " 1", "٣", "0x1", "1\n"]),
        ("decimal", ["1", ".5", "5.", "-0.250", "+1.0"], ["", ".", "1e3", "1,0", "INF", "NaN"]),
        ("double", ["1", "1e3", "-1.5E-7", "INF", "-INF", "NaN"], ["", "e3", "inf", "-NaN", "1e", "1e3.5"]),
        ("boolean", ["true", "false", "1", "0"], ["", "True", "yes", "TRUE", "2"]),
        (
            "dateTime",
            ["2026-11-27T21:49:43Z", "2024-02-29T00:00:00.123+14:00", "2026-01-01T24:00:00Z", "12026-01-01T00:00:00Z"],
            [
                "2026-11-27T21:49:43",
                "2026-02-29T00:00:00Z",
                "2026-11-27 21:49:43Z",
                "2026-11-27",
                "26-11-27T00:00:00Z",
                "2026-11-27T21:49Z",
                "2026-11-27T25:00:00Z",
                "2026-11-27T24:00:01Z",
                "2026-11-27T21:49:43+15:00",
                "2026-13-01T00:00:00Z",
                "2026-04-31T00:00:00Z",
            ],
        ),
        (
            "date",
            ["2026-11-27", "2024-02-29Z", "-0044-03-15"],
            ["2026-1-1", "2100-02-29", "27.11.2026", "2026-00-10", "9" * 40, f"{'9' * 40}-01-01"],
        ),
        (
            "duration",
            ["P1D", "PT5M", "-P1Y2M3DT4H5M6.7S", "PT0S"],
            ["", "P", "PT", "P1DT", "5m", "P1S", "PT1.5M", "p1d"],
        ),
        ("anyURI", ["", "a/b", "https://kg.example/ü#x"], ["a b", "<x>", 'a"b', "a\\b"]),
        ("string", ["", "anything\n at all"], []),
    ],
)
def test_literals_are_held_to_the_lexical_forms_of_xsd(datatype: str, right: list[str], wrong: list[str]) -> None:
    """What another engine would read differently, or not at all, is not stored."""
    assert [text for text in right if not well_formed(text, datatype)] == []
    assert [text for text in wrong if well_formed(text, datatype)] == []


@given(st.datetimes(timezones=st.just(UTC)))
def test_every_moment_that_python_writes_in_utc_is_a_date_time(moment: datetime) -> None:
    """Renderers write times with ``isoformat``; none of them may be refused."""
    assert well_formed(moment.isoformat(), "dateTime")


@given(
    st.text("0123456789+-.eEINFaZT:truefals", max_size=15),
    st.sampled_from(["integer", "decimal", "double", "boolean", "date"]),
)
def test_what_passes_is_well_formed_for_the_engine_too(text: str, datatype: str) -> None:
    """Whatever the text is: what our rule accepts, the SHACL engine accepts as that datatype."""
    shape = (
        "@prefix sh: <http://www.w3.org/ns/shacl#> . <x:s> sh:targetNode <x:a> ; a sh:NodeShape ; sh:property "
        f"[ sh:path <x:p> ; sh:datatype <http://www.w3.org/2001/XMLSchema#{datatype}> ] ."
    )
    literal = f'"{text}"^^<http://www.w3.org/2001/XMLSchema#{datatype}>'
    if well_formed(text, datatype):  # only then: the engine panics on some that are not
        assert shacl.Shapes.from_turtle(shape).validate_turtle(f"<x:a> <x:p> {literal} .").conforms


def test_a_date_that_would_crash_the_engine_does_not_reach_it() -> None:
    """The SHACL engine panics on a year of forty digits, also in a statement that is wrong otherwise."""
    date = f'"{"9" * 40}-01-01"^^<http://www.w3.org/2001/XMLSchema#date>'
    blank = POD_LINES | {f"_:b0 <https://schema.org/date> {date} ."}

    assert "ill-typed-literal" in {each.rule for each in violations(pod_with("https://schema.org/date", date), POD)}
    assert {each.rule for each in violations(blank, POD)} == {"ill-typed-literal", "no-blank-node"}


TERMS = st.one_of(
    st.sampled_from([f"<{POD}>", f"<{POD}/run/1>", "_:b0", "<https://kg.example/id/domain/alice>", "<http://a:b@c/>"]),
    st.builds(
        '"{}"^^<http://www.w3.org/2001/XMLSchema#{}>'.format,
        st.text("0123456789-+:.TZPYMDHSeINFa", max_size=40),
        st.sampled_from(
            ["string", "integer", "decimal", "double", "boolean", "date", "dateTime", "duration", "time", "gYear"]
        ),
    ),
    st.sampled_from(sorted(CLASSES | CONCEPTS)).map("<https://w3id.org/drumlin/ns#{}>".format),
)
PREDICATES = st.one_of(
    st.sampled_from(sorted(PROPERTIES)).map("https://w3id.org/drumlin/ns#{}".format),
    st.sampled_from(["startedAtTime", "endedAtTime", "wasDerivedFrom"]).map("http://www.w3.org/ns/prov#{}".format),
    st.sampled_from(["http://www.w3.org/1999/02/22-rdf-syntax-ns#type", "http://xmlns.com/foaf/0.1/page"]),
)
SUBJECTS = st.sampled_from(
    [f"<{POD}>", f"<{POD}/run/1>", f"<{POD}/container/a>", "_:b0", "<https://kg.example/id/domain/alice>"]
)
STATEMENTS = st.builds("{} <{}> {} .".format, SUBJECTS, PREDICATES, TERMS)


@given(st.frozensets(STATEMENTS, max_size=20))
def test_whatever_the_statements_are_the_answer_is_a_verdict(lines: frozenset[str]) -> None:
    """No statements, however odd, make validation raise anything but a report, and the report is the same each time."""
    found = violations(lines, POD)

    assert violations(lines, POD) == found
    assert all(each.rule and each.message and "a:b@" not in each.message for each in found)
    assert {each.value for each in found if each.value and "b@c" in each.value} == set()


UNITS_RIGHT = [
    "1", "%", "{cpu}", "By", "MBy", "KiBy", "By/s", "J", "kJ", "W", "s", "ms", "Cel", "{requests}/s", "1/s", "m/s2", "kW.h", "bit/s",
    "Hz", "V", "10*3", "/s", "[degF]", "By{compressed}",
]  # fmt: skip
UNITS_WRONG = [
    "",
    "mb",
    "MB",
    "bytes",
    "cores",
    "percent",
    "seconds",
    "By s",
    "By\n",
    "cpu",
    "joules",
    "B",
    "s/",
    "{cpu",
    "byte/s",
]


@pytest.mark.parametrize(("unit", "right"), [*((u, True) for u in UNITS_RIGHT), *((u, False) for u in UNITS_WRONG)])
def test_units_are_ucum_codes(unit: str, right: bool) -> None:
    """The codes that telemetry uses pass; the words and wrong capitals that people write instead do not."""
    lines = pod_with("https://w3id.org/drumlin/ns#unit", json.dumps(unit))

    assert ("unit" not in {each.rule for each in violations(lines, POD)}) is right


@pytest.mark.parametrize(
    ("step", "horizon", "wrong"),
    [
        ("PT5M", "P1D", False),
        ("P2D", "P1D", True),
        ("PT25H", "P1D", True),
        ("P1M", "P30D", False),  # a month may be shorter
        ("P1M", "P27D", True),
        ("P1Y", "P12M", False),
        ("PT0.5S", "PT0.4S", True),
    ],
)
def test_steps_and_horizons_are_compared_where_they_can_be(step: str, horizon: str, *, wrong: bool) -> None:
    """A step that is certainly longer than the horizon is refused; a month is 28 to 31 days."""
    path = FIXTURES / "forecast-order.pass.jsonld"
    document = {**json.loads(path.read_bytes()), "step": step, "horizon": horizon}

    found = violations(*read(json.dumps(document).encode()))

    assert [each.rule for each in found] == (["forecast-order"] if wrong else [])


NOTES = "https://kg.example/id/notes/prod/payments/pod/orders-db-0"


@pytest.mark.parametrize(
    ("line", "rules"),
    [
        (f"<{POD}> <https://w3id.org/drumlin/ns#dependsOn> <https://kg.example/id/external/s3~orders> .", set()),
        (f'<{NOTES}> <https://w3id.org/drumlin/ns#tag> "gold" .', set()),
        (f'<{POD}> <https://w3id.org/drumlin/ns#dependsOn> "s3://orders" .', {"reference"}),
        (f"<{POD}> <https://w3id.org/drumlin/ns#phase> <https://w3id.org/drumlin/ns#Failed> .", {"subject-outside-graph"}),
        (f"<{POD}> <{rdflib.RDF.type}> <https://w3id.org/drumlin/ns#Pod> .", {"subject-outside-graph", "name", "namespace"}),
        (f"<{POD}-1> <https://w3id.org/drumlin/ns#dependsOn> <https://kg.example/id/external/s3~orders> .",
         {"subject-outside-graph", "root-described"}),
    ],
)  # fmt: skip
def test_notes_say_of_their_entity_what_it_depends_on_and_nothing_else(line: str, rules: set[str]) -> None:
    """Users know of data that no source does; the entity's class, phase and telemetry are its source's, and other entities are others'."""
    assert {each.rule for each in violations(frozenset({line}), NOTES)} == rules


def test_only_notes_speak_of_an_entity_beside_its_graph() -> None:
    """The graph of the metrics that pods expose is the service's own, and says nothing of the workload itself."""
    scraped = NOTES.replace("/notes/", "/scraped/")
    line = f"<{POD}> <https://w3id.org/drumlin/ns#dependsOn> <https://kg.example/id/external/s3~orders> ."

    assert {each.rule for each in violations(frozenset({line}), scraped)} == {"subject-outside-graph", "root-described"}
