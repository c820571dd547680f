"""Documents of forms that are known: what is said of one is what reading and validating it whole says, or nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kg import documents, forms, inlining, rdf
from kg.errors import DrumlinError
from kg.forms import Forms
from kg.iris import Iris
from kg.validation import validate
from tests.unit.test_documents import STRANGE

GOLDEN = Path(__file__).parents[1] / "golden"
IRIS = Iris("https://kg.example")


def tight(document: Any) -> bytes:
    """Write a document as exporters do."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def whole(data: bytes, graph: str) -> str | None:
    """Read a document with the processor and validate it; its text, None when it is refused."""
    try:
        graphs = rdf.parse(inlining.inline(data), rdf.JSONLD, base=graph)
        lines = graphs.get(None, frozenset())
        validate(lines, graph, IRIS)
    except DrumlinError:
        return None
    return rdf.text_of(lines) if set(graphs) <= {None} else None


def named(document: dict[str, Any]) -> str:
    """Return the name of the graph that a document is of."""
    return IRIS.entity(document["id"])


def renamed(document: dict[str, Any], number: int) -> dict[str, Any]:
    """Return the same of another entity."""
    graph = named(document)
    found: dict[str, Any] = json.loads(json.dumps(document).replace(graph, f"{graph}-{number}"))
    return found


PASSING = {path.name: json.loads(path.read_bytes()) for path in sorted((GOLDEN / "shapes").glob("*.pass.jsonld"))}
RENDERED = {path.name: json.loads(path.read_bytes())["document"] for path in sorted((GOLDEN / "render").glob("*.json"))}
FAILING = [json.loads(path.read_bytes()) for path in sorted((GOLDEN / "shapes").glob("*.fail.jsonld"))]
GOOD = {
    name: each
    for name, each in (PASSING | RENDERED).items()
    if documents.lines(tight(each)) is not None and whole(tight(each), named(each)) is not None
}


def learnt(*known: dict[str, Any]) -> Forms:
    """Return forms that have seen documents twice."""
    made = Forms(IRIS)
    for _ in range(2):
        for each in known:
            if (text := whole(tight(each), named(each))) is not None:
                made.learn(tight(each), named(each), rdf.lines_in(text))
    return made


KNOWN = learnt(*GOOD.values())


def patterned(*known: dict[str, Any]) -> Forms:
    """Return forms that are known by patterns alone, as those are that were met often."""
    made = learnt(*known)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(forms, "_OFTEN", 1)
        patched.setattr(forms, "_MANY", 10_000)
        patched.setattr(forms, "_PATTERNS", len(known))
        for each in known:
            made.text(tight(each), named(each))
    made._known.clear()
    return made


PATTERNS = patterned(*GOOD.values())


def agree(made: Forms, data: bytes, graph: str) -> bool:
    """Hold what is said of a document against what is said of it whole; tells whether anything was said."""
    said = made.text(data, graph)
    assert said is None or said == whole(data, graph)
    return said is not None


BOTH = pytest.mark.parametrize("made", [KNOWN, PATTERNS], ids=["parts", "patterns"])


@BOTH
def test_the_usual_document_has_a_form(made: Forms) -> None:
    """Nearly every good document is made a form, and another of its kind is known by it."""
    unknown = {name for name, each in GOOD.items() if not agree(made, tight(renamed(each, 7)), named(renamed(each, 7)))}

    assert len(unknown) < len(GOOD) / 4, sorted(unknown)


@BOTH
@pytest.mark.parametrize("document", FAILING, ids=lambda each: each.get("id", "-"))
def test_a_bad_document_has_no_form(document: dict[str, Any], made: Forms) -> None:
    """What the shapes refuse is not taken for one like those that passed."""
    try:
        graph = named(document)
    except (DrumlinError, KeyError):
        graph = "https://kg.example/id/prod/a/pod/b"
    assert made.text(tight(document), graph) is None


VALUES = [each for each in STRANGE if type(each) in (str, int, bool)] + [
    "%",
    "counter",
    "logs",
    "Failed",
    "https://kg.example/id/prod/-/node/n",
    "file:///x",
]


def strings(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths to everything in a document that is neither an object nor a list."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return [found for key, each in items for found in strings(each, (*at, key))]
    return [at]


@st.composite
def others(draw: st.DrawFn) -> tuple[bytes, str]:
    """Take a good document and put other values in it, or other text."""
    document = renamed(GOOD[draw(st.sampled_from(sorted(GOOD)))], draw(st.integers(0, 3)))
    graph = named(document)
    for _ in range(draw(st.integers(0, 3))):
        *path, last = draw(st.sampled_from(strings(document)))
        place: Any = document
        for key in path:
            place = place[key]
        same = place[last]
        value = draw(
            st.sampled_from(VALUES) | st.text(max_size=4) | st.integers() | st.just(f"{same}x") | st.just(graph)
        )
        place[last] = value
    text = tight(document)
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(text)))
        piece = draw(st.sampled_from([b'"', b"\\", b'\\"', b"\\\\", b"\\u0041", b",", b":", b"{", b"}", b"[", b"]", b"0", b"12", b"-", b".5", b"e1",
            b" ", b"\n", b"\0", b"\x7f", b"\xc3\xa9", b"\xff", b"/", b"#", b"?", b"%", b"true", b'"name":"x",', "\u0663".encode()]))  # fmt: skip
        text = text[:at] + piece + text[at + draw(st.integers(0, 3)) :]
    return text, graph


@settings(max_examples=1000)
@given(others())
def test_what_has_a_known_form_is_what_it_is_read_as_whole(other: tuple[bytes, str]) -> None:
    """Whatever stands in a document, its text by a form is the one that processor and validation come to, or there is none.

    What a pattern says the form says, too: it is only quicker.
    """
    agree(KNOWN, *other)
    assert PATTERNS.text(*other) in (None, KNOWN.text(*other))


def test_a_form_takes_another_value_and_number() -> None:
    """Names, labels with quotes, moments and numbers differ among documents of one form."""
    document = {"id": "https://kg.example/id/prod/-/node/b", "type": "Node", "name": "b", "partOf": "https://kg.example/id/cluster/prod",
                "description": 'a "b" é', "gpuCapacity": 5, "generatedAt": "2026-11-27T21:49:38Z"}  # fmt: skip
    made = learnt(document)

    assert agree(made, tight(renamed(document, 1)), named(renamed(document, 1)))
    assert agree(made, tight({**document, "description": '"c"', "gpuCapacity": 1234}), named(document))
    assert agree(made, tight({**document, "description": "x" * 1000}), named(document))
    assert not agree(made, tight({**document, "gpuCapacity": 10**15}), named(document))
    assert not agree(made, tight({**document, "gpuCapacity": -5}), named(document))
    assert not agree(made, tight(document).replace(b'"gpuCapacity":5', b'"gpuCapacity":05'), named(document))
    assert not agree(made, tight({**document, "generatedAt": "2026-11-27"}), named(document))
    assert not agree(made, tight({**document, "type": "Pod"}), named(document))
    assert not agree(made, tight(document), f"{named(document)}/run/x")
    assert not agree(made, tight(document), "https://kg.example/id/notes/prod/-/node/b")


def test_what_decides_about_other_values_belongs_to_the_form() -> None:
    """A counter may have any unit but a share in percent, so its unit is no value like others."""
    document = PASSING["metric-unit.pass.jsonld"]
    assert agree(learnt(document), tight(renamed(document, 1)), named(renamed(document, 1)))

    text = tight(document)
    for unit in (b"%", b"J", b"s"):
        agree(learnt(document), text.replace(b'"unit":"By"', b'"unit":"%s"' % unit), named(document))


def test_values_that_are_compared_are_compared_in_every_document() -> None:
    """A run ends after it has begun; no value alone tells."""
    document = GOOD["run-order.pass.jsonld"]
    made, text = learnt(document), tight(document)

    assert agree(made, text.replace(b'"startedAt":"2026', b'"startedAt":"2025'), named(document))
    assert not agree(made, text.replace(b'"startedAt":"2026', b'"startedAt":"2027'), named(document))


@pytest.mark.parametrize("end", [b'"', b'""', b",", b"}", b" ", b"\n", b"0"])
def test_what_stands_behind_a_document_is_none_of_its_form(end: bytes) -> None:
    """A quote too many stands between no strings."""
    document = GOOD["name.pass.jsonld"]

    agree(learnt(document), tight(document) + end, named(document))


def test_a_document_is_made_a_form_when_a_second_one_comes() -> None:
    """Of documents that are all different nothing is kept but a mark."""
    document = GOOD["name.pass.jsonld"]
    made = Forms(IRIS)
    text = whole(tight(document), named(document))
    assert text is not None

    made.learn(tight(document), named(document), rdf.lines_in(text))
    assert made.text(tight(document), named(document)) is None
    for _ in range(2):
        made.learn(tight(document), named(document), rdf.lines_in(text))
        assert made.text(tight(document), named(document)) == text
    (known,) = made._known.values()
    assert len(known.forms) == 1


def test_forms_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """When there are very many, it begins anew; a very long document is none."""
    monkeypatch.setattr(forms, "_ROOM", 2000)
    documents = [GOOD["name.pass.jsonld"] | {"label": [f"a{at}=b" for at in range(count)]} for count in range(1, 30)]
    made = Forms(IRIS)
    for each in documents:
        text = whole(tight(each), named(each))
        assert text is not None
        for _ in range(2):
            made.learn(tight(each), named(each), rdf.lines_in(text))
            assert sum(len(skeleton) for skeleton in made._known) < 2000

    monkeypatch.undo()
    long = GOOD["name.pass.jsonld"] | {"label": [f"a{at}=b" for at in range(5000)]}
    assert not agree(learnt(long), tight(long), named(long))


def test_a_form_that_is_met_often_becomes_a_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many uses make one, and so many more another one in place of the oldest."""
    monkeypatch.setattr(forms, "_PATTERNS", 2)
    known = [GOOD[name] for name in ("name.pass.jsonld", "run-order.pass.jsonld", "metric-unit.pass.jsonld")]
    made = learnt(*known)
    for count, each in enumerate(known, 1):
        for _ in range(forms._OFTEN):
            assert len(made._patterns) == min(count - 1, 2)
            made.text(tight(each), named(each))
        assert len(made._patterns) == min(count, 2)
        assert made.text(tight(each), named(each)) == whole(tight(each), named(each))


def test_a_form_with_very_many_values_becomes_no_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    """To make one of a thousand strings holds everybody up for a fifth of a second."""
    monkeypatch.setattr(forms, "_OFTEN", 1)
    document = GOOD["name.pass.jsonld"] | {"label": [f"a{at}=b" for at in range(forms._MANY)]}
    made = learnt(document)

    assert agree(made, tight(document), named(document))
    assert made._patterns == ()


def test_documents_that_are_not_sure_are_not_tried_for_ever() -> None:
    """A forecast has rules that no form can hold: after some, no other one is made a form."""
    document = PASSING["forecast-order.pass.jsonld"]
    made = Forms(IRIS)
    text = whole(tight(document), named(document))
    assert text is not None
    for _ in range(50):
        made.learn(tight(document), named(document), rdf.lines_in(text))

    (known,) = made._known.values()
    assert (known.forms, known.tried) == ([], forms._ALIKE)
