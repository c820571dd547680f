"""Framing: each class has a frame that loses nothing; a caller's frame is bounded in size, time and reach."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumlin.kg import rdf
from drumlin.kg.errors import DrumlinError, InvalidDocument, ResourceNotFound, TooLarge
from drumlin.kg.rdf import framing, jsonld, jsonld_loader
from drumlin.kg.rdf.jsonld import CONTEXT_IRI, NAMESPACE
from drumlin.kg.rdf.syntax import JSONLD
from drumlin.ontology.vocabulary import CLASSES

GOLDEN = Path(__file__).parents[1] / "golden" / "render"


def read_back(document: Any) -> rdf.Lines:
    """Read a framed document as a caller's is read."""
    return rdf.parse(jsonld_loader.inline(json.dumps(document).encode()), JSONLD).get(None, frozenset())


@pytest.mark.parametrize("kind", sorted(CLASSES))
def test_every_class_has_a_frame_that_keeps_its_links(kind: str) -> None:
    """A thing of any class comes back with its neighbours as links, even when they are there to be nested."""
    thing = {
        "id": "https://kg.example/id/a/b/c/d",
        "type": kind,
        "name": "d",
        "domain": "https://kg.example/id/domain/x",
        "dependsOn": ["https://kg.example/id/a/b/c/e"],
    }
    other = {"id": "https://kg.example/id/domain/x", "type": "Domain" if kind != "Domain" else "Cluster", "name": "x"}

    framed = framing.frame(jsonld.lines(thing) | jsonld.lines(other), framing.frame_of(kind))

    assert framed == {"@context": CONTEXT_IRI, **thing}


def test_a_framed_graph_of_the_contract_loses_nothing(contract: dict[str, bytes]) -> None:
    """The frame of its class gives back every statement of each graph that the contract shows."""
    for name, content in contract.items():
        document = json.loads(content)
        lines = jsonld.lines(document)

        framed = framing.frame(lines, framing.frame_of(document["type"]))

        assert framed["id"] == document["id"], name
        assert read_back(framed) == lines, name


@pytest.mark.parametrize("case", sorted(GOLDEN.glob("kuscia-*.json")), ids=lambda path: path.stem)
def test_a_framed_graph_keeps_its_parts(case: Path) -> None:
    """Steps, parties and columns stand where they are linked, with all that is said of them."""
    document = json.loads(case.read_text())["document"]
    lines = read_back(document)

    framed = framing.frame(lines, framing.frame_of(document["type"]))

    assert framed["id"] == document["id"]
    assert read_back(framed) == lines


def test_numbers_and_truths_are_json_numbers_and_truths(contract: dict[str, bytes]) -> None:
    """A framed document has the same values as the plain one, so a client needs one way to read both."""
    document = json.loads(contract["deployment"])
    framed = framing.frame(jsonld.lines(document), framing.frame_of("Deployment"))

    assert framed["replicas"] == document["replicas"]
    assert framed["container"][0]["memoryLimit"] == document["container"][0]["memoryLimit"]
    assert framed["container"][0]["cpuLimit"] == "1"


def test_a_workload_brings_its_datasources_but_not_its_neighbours(contract: dict[str, bytes]) -> None:
    """Telemetry leads to the datasource in full, each time; the cluster and domain stay links."""
    names = ("deployment", "datasource", "glaciation-node", "pod", "node")
    lines = frozenset().union(*(jsonld.lines(json.loads(contract[name])) for name in names))

    framed = framing.frame(lines, framing.frame_of("Deployment"))

    (metrics,) = (each for each in framed["telemetry"] if each["signal"] == "metrics")
    services = [metric["distribution"][0]["accessService"] for metric in metrics["hasPart"]]
    assert [each["endpointURL"] for each in services] == ["http://prometheus.monitoring.svc:9090"] * 2
    assert isinstance(framed["domain"], str)
    assert framed["runs"][0]["startedAt"]


def test_several_matches_stand_in_one_graph(contract: dict[str, bytes]) -> None:
    """A document of two things of a class lists both; a class that does not occur gives none."""
    other = {"id": "https://kg.example/id/prod/-/node/other", "type": "Node", "name": "other"}
    lines = jsonld.lines(json.loads(contract["node"])) | jsonld.lines(other)

    framed = framing.frame(lines, framing.frame_of("Node"))

    assert len(framed["@graph"]) == 2
    assert framing.frame(lines, framing.frame_of("Pod")) == {"@context": CONTEXT_IRI}


def test_an_unknown_class_is_told_with_what_may_be_meant() -> None:
    """The hint names the class that is nearest."""
    with pytest.raises(ResourceNotFound) as told:
        framing.frame_of("Deploymnt")

    assert told.value.hint == "did you mean Deployment?"


# -- a caller's frame -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "frame",
    [
        {"@context": "https://evil.example/c.jsonld", "type": "Node"},
        {"@context": {"@import": "http://evil.example/"}, "type": "Node"},
        {"@context": CONTEXT_IRI, "runs": {"@context": "http://127.0.0.1/"}},
    ],
)
def test_a_frame_never_makes_the_service_fetch(frame: Any) -> None:
    """A remote context is refused when the frame is read, and by pyld's loader if it ever came that far."""
    with pytest.raises(InvalidDocument, match="not allowed"):
        framing.read_frame(json.dumps(frame).encode())
    with pytest.raises(InvalidDocument, match="nothing is|not a frame"):
        framing.frame(frozenset(), frame)


def test_a_large_frame_or_graph_is_refused_with_numbers() -> None:
    """Limit and size stand in the message."""
    with pytest.raises(TooLarge, match=r"65,536"):
        framing.read_frame(b'{"type": "' + b"a" * 70_000 + b'"}')
    with pytest.raises(TooLarge, match=r"20,001 statements"):
        framing.frame((f'<urn:a> <urn:p> "{number}" .' for number in range(20_001)), {"type": "Node"})


def test_a_frame_that_unfolds_without_end_is_given_up_in_time() -> None:
    """Embedding always in a dense graph grows exponentially; the deadline ends it."""
    nodes = [f"<https://kg.example/id/domain/{number}>" for number in range(40)]
    lines = [f"{one} <{NAMESPACE}dependsOn> {other} ." for one in nodes for other in nodes if one != other]

    with pytest.raises(TooLarge, match=r"longer than 0\.3 s"):
        framing.frame(lines, {"@embed": "@always"}, seconds=0.3)


KEYS = st.sampled_from(
    ["@embed", "@explicit", "@id", "@type", "@context", "@reverse", "@default", "type", "runs", "name", "@list"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["@always", "@never", "Node", "", "_:b", "http://x/"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(KEYS, VALUES, max_size=4))
@settings(deadline=None)
@pytest.mark.filterwarnings("ignore:values beginning with:SyntaxWarning")  # pyld's own word
def test_any_frame_gives_a_document_or_an_error_of_ours(frame: dict[str, Any]) -> None:
    """However odd a frame is, the caller is told in our words."""
    lines = jsonld.lines({"id": "https://kg.example/id/prod/-/node/a", "type": "Node", "name": "a", "label": ["a=b"]})
    try:
        framed = framing.frame(lines, framing.read_frame(json.dumps(frame).encode()))
    except DrumlinError:
        return
    assert isinstance(framed, dict)


FIRST, REST, NIL = (f"<http://www.w3.org/1999/02/22-rdf-syntax-ns#{name}>" for name in ("first", "rest", "nil"))
PLAIN = {"@context": {}, "@id": "urn:s"}


def framed_of(*lines: str) -> Any:
    """Frame statements about urn:s without any context."""
    return framing.frame(lines, PLAIN)["urn:p"]


def test_a_frame_keeps_lists() -> None:
    """A collection is a list, one in another too, and an empty one; what is more than its cells stays nodes."""
    two = [f"_:a {FIRST} <urn:x> .", f"_:a {REST} _:b .", f'_:b {FIRST} "y" .', f"_:b {REST} {NIL} ."]
    items = [{"@id": "urn:x"}, "y"]
    assert framed_of("<urn:s> <urn:p> _:a .", *two) == {"@list": items}
    outer = [f"_:o {FIRST} _:a .", f"_:o {REST} {NIL} ."]
    assert framed_of("<urn:s> <urn:p> _:o .", *outer, *two) == {"@list": [{"@list": items}]}
    assert framed_of(f"<urn:s> <urn:p> {NIL} .") == {"@list": []}
    for more in ("_:b <urn:q> 1 .", "<urn:t> <urn:p> _:a .", f"_:b {REST} _:a .", f'_:b {REST} "z" .'):
        assert "@list" not in json.dumps(framed_of("<urn:s> <urn:p> _:a .", *two, more)), more


def test_a_frame_keeps_json() -> None:
    """A JSON literal comes back as the JSON that it is; a text that is none stays a literal."""
    kind = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#JSON>"
    assert framed_of(f'<urn:s> <urn:p> "{{\\"a\\":[1,null]}}"^^{kind} .') == {
        "@type": "@json",
        "@value": {"a": [1, None]},
    }
    for text in ("nothing", "NaN", "[" * 40 + "]" * 40):
        assert framed_of(f'<urn:s> <urn:p> "{text}"^^{kind} .')["@value"] == text


def test_lists_in_one_another_are_bounded() -> None:
    """More levels than a document may have are refused, not dropped."""
    deep = [f"_:c{each} {FIRST} _:c{each + 1} ." for each in range(60)]
    deep += [f"_:c{each} {REST} {NIL} ." for each in range(61)] + [f"_:c60 {FIRST} <urn:x> ."]
    with pytest.raises(TooLarge):
        framed_of("<urn:s> <urn:p> _:c0 .", *deep)
