"""What RDF text may ask of the engine's parsers: how deeply it is nested, and no document types; brackets in texts are no brackets."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumlin.kg import rdf
from drumlin.kg.errors import InvalidDocument
from drumlin.kg.rdf import nesting
from drumlin.kg.rdf.nesting import MAX_NESTING
from drumlin.kg.rdf.syntax import N3, NQUADS, NTRIPLES, RDFXML, TRIG, TURTLE, Syntax
from drumlin.kg.store import sandbox
from tests import hostile

NESTED: list[tuple[Callable[[int], bytes], tuple[Syntax, ...]]] = [
    (hostile.triple_terms, (NTRIPLES, NQUADS, TURTLE, TRIG)),
    (hostile.reified_triples, (TURTLE, TRIG)),
    (hostile.collections, (TURTLE, TRIG, N3)),
    (hostile.blank_nodes, (TURTLE, TRIG, N3)),
    (hostile.annotations, (TURTLE, TRIG)),
    (hostile.formulas, (N3,)),
    (hostile.elements, (RDFXML,)),
]
CASES = [pytest.param(make, each, id=f"{make.__name__}-{each.name}") for make, several in NESTED for each in several]


@pytest.mark.parametrize(("make", "syntax"), CASES)
def test_a_document_is_read_up_to_the_limit_and_refused_beyond(make: Callable[[int], bytes], syntax: Syntax) -> None:
    """As many levels as the limit are read; a hundred thousand are refused by a message that names the limit and the line."""
    assert rdf.parse(make(MAX_NESTING), syntax, base="http://b/")[None]
    for depth in (MAX_NESTING + 1, 12_000, 100_000):
        with pytest.raises(InvalidDocument, match=rf"nested more than {MAX_NESTING} levels deep at line 3") as refused:
            rdf.parse(b"\n\n" + make(depth), syntax, base="http://b/")
        assert refused.value.detail == {"line": 3, "limit": MAX_NESTING}


@pytest.mark.parametrize("syntax", [NQUADS, TRIG])
def test_a_stream_is_refused_where_it_is_too_deep(syntax: Syntax) -> None:
    """What stands before is read; no parser gets the statement that is too deep, in however many pieces it comes."""
    sound = b"<x:s> <x:p> <x:o> <x:g> .\n" if syntax is NQUADS else b"<x:g> { <x:s> <x:p> <x:o> }\n"
    deep = hostile.triple_terms(100_000, "<x:g> " if syntax is NQUADS else "")
    statements = rdf.statements(io.BytesIO(sound * 20_000 + deep), syntax)

    assert next(statements) == ("x:g", "<x:s> <x:p> <x:o> .")
    with pytest.raises(InvalidDocument, match="levels deep at line 20001"):
        list(statements)


@pytest.mark.parametrize("syntax", [TURTLE, TRIG, N3])
@pytest.mark.parametrize(
    "harmless",
    [
        '"((((" ',
        "'[[[[' ",
        '"""\n"([{""\\"""" ',
        "'''{{''<<''' ",
        "<x:((((> ",
        "<x:it's(> ",
        "1 # ((( <<<( '\n",
        "a:l\\(\\#\\' ",
        '"\\\\" ',
        '"\\"((" ',
        '"" ',
        '"a"@en ',
    ],
)
def test_brackets_in_texts_do_not_count(harmless: str, syntax: Syntax) -> None:
    """Strings, IRIs, comments and escaped names may hold any number of brackets; what comes behind them is still seen."""
    document = "@prefix a: <x:a> .\n" + "".join(f"<x:s> <x:p{n}> {harmless}.\n" for n in range(200))

    assert len(rdf.parse(document.encode(), syntax)[None]) == 200
    with pytest.raises(InvalidDocument, match="line"):
        rdf.parse(document.encode() + hostile.collections(101), syntax)


def test_levels_that_are_closed_do_not_add_up() -> None:
    """A document with any number of brackets beside one another is read."""
    beside = hostile.collections(90) * 50 + hostile.blank_nodes(90) * 50

    assert rdf.parse(beside, TURTLE)[None]
    assert rdf.parse(hostile.triple_terms(90) * 50, NTRIPLES)[None]


# -- against a plain loop -------------------------------------------------------------------------------------------------
def _depth(text: str) -> int:
    """Return how deeply a text is nested, one token after the other."""
    rules = (
        ("long", r'"""(?:[^"\\]|\\.|"(?!""))*"""|' + r"'''(?:[^'\\]|\\.|'(?!''))*'''"),
        ("short", r'"(?!"")(?:[^"\\]|\\.)*"|' + r"'(?!'')(?:[^'\\]|\\.)*'"),
        ("unclosed", r"[\"'].*"),
        ("opens", r"<<\(|<<|\{\||[({\[]"),
        ("iri", r'<(?![=-])[^<>"{}|^`\x00-\x20]*>'),
        ("comment", r"#[^\r\n]*"),
        ("closes", r"\)>>|>>|\|\}|[)}\]]"),
        ("escape", r"\\."),
        ("other", "."),
    )
    at = depth = deepest = 0
    while at < len(text):
        kind, found = next(
            (kind, match) for kind, rule in rules if (match := re.compile(rule, re.DOTALL).match(text, at))
        )
        at = found.end()
        depth = depth + 1 if kind == "opens" else max(0, depth - 1) if kind == "closes" else depth
        deepest = max(deepest, depth)
    return deepest


TOKENS = st.sampled_from(
    [
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "{|",
        "|}",
        "<<",
        ">>",
        "<<(",
        ")>>",
        '"',
        "'",
        '"""',
        "'''",
        "#",
        "\\",
        "<",
        ">",
        "<x:a>",
        "<x:(",
        "1",
        "a:b",
        ".",
        ";",
        "!",
        "^",
        "~",
        "=>",
        "<=",
        "\n",
        "\r",
    ]
)


@settings(deadline=None)
@given(st.lists(TOKENS, max_size=60).map("".join), st.integers(1, 9), st.integers(1, 50))
def test_any_cut_of_a_stream_finds_the_depth_that_a_loop_finds(text: str, limit: int, piece: int) -> None:
    """Whatever tokens stand in a text and however it is cut into pieces, it is refused exactly when it is too deep."""

    class Pieces(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(min(piece, len(self.getbuffer())) if size else 0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "MAX_NESTING", limit)
        refused = []
        for read in (
            lambda: nesting.check(text.encode(), "turtle"),
            lambda: b"".join(iter(nesting.checked(Pieces(text.encode()), "turtle").read, b"")),
        ):
            try:
                found = read()
                assert found is None or found == text.encode()
                refused.append(False)
            except InvalidDocument:
                refused.append(True)

    assert refused == [_depth(text) > limit] * 2


def test_a_literal_without_end_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream is not held beyond the longest token that the engine reads."""
    monkeypatch.setattr(nesting, "LONGEST_TOKEN", 1 << 20)

    class Endless(io.RawIOBase):
        given = 0

        def read(self, size: int = -1) -> bytes:
            self.given += size
            return b'"' + b"a" * (size - 1) if self.given == size else b"a" * size

    endless = Endless()
    with pytest.raises(InvalidDocument, match="longer than 1 MB"):
        list(rdf.statements(endless, TRIG))  # type: ignore[arg-type]  # read() is all it needs
    assert endless.given < 8 << 20


# -- XML ------------------------------------------------------------------------------------------------------------------
XML = f'<r:RDF xmlns:r="{hostile.RDF}" xmlns:a="x:a#"><r:Description r:about="x:s"><a:p>é</a:p></r:Description></r:RDF>'


@pytest.mark.parametrize(
    "before",
    [
        "<!DOCTYPE r:RDF>",
        '<!DOCTYPE r:RDF SYSTEM "file:///etc/passwd">',
        '\n <!DOCTYPE r:RDF [<!ENTITY a "b">]>',
        '<?xml version="1.0" encoding="utf-8"?><!-- a --><?pi b?>\n<!DOCTYPE r:RDF [<!ENTITY % a "b">]>',
        "\ufeff<!DOCTYPE r:RDF [<!ELEMENT r:RDF ANY>]>",
        "<!doctype r:RDF>",
    ],
)
def test_a_document_type_is_refused_wherever_it_stands(before: str) -> None:
    """With or without entities, behind blanks, comments and instructions, in either case."""
    with pytest.raises(InvalidDocument, match="document type|does not parse"):
        rdf.parse((before + XML).encode(), RDFXML)


def test_entities_that_expand_are_refused_by_what_they_are() -> None:
    """The message says that it is the document type, and what to do."""
    for levels in (1, 6, 25):
        with pytest.raises(InvalidDocument, match=r"document type \(DOCTYPE\) at line 1") as refused:
            rdf.parse(hostile.entities(levels), RDFXML)
        assert refused.value.hint


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("declared", ["", '<?xml version="1.0" encoding="utf-8"?>', '<?xml version="1.0"?>'])
def test_no_other_encoding_hides_a_document_type(encoding: str, declared: str) -> None:
    """UTF-16 and UTF-32 are refused by their first bytes, whatever the document declares."""
    for text in (XML, "<!DOCTYPE r:RDF>" + XML):
        with pytest.raises(InvalidDocument, match="UTF-8 only"):
            rdf.parse((declared + text).encode(encoding), RDFXML)


@pytest.mark.parametrize("declared", ["ISO-8859-1", "utf-16", "utf-7", "cp037", "unicode20utf8", "no-such"])
def test_a_declared_encoding_other_than_utf8_is_refused(declared: str) -> None:
    """The engine reads UTF-8 only, so that a declaration cannot make two readers of one document."""
    with pytest.raises(InvalidDocument, match="UTF-8 only"):
        rdf.parse(f'<?xml version="1.0" encoding="{declared}"?>{XML}'.encode(), RDFXML)


@pytest.mark.parametrize(
    "document",
    [
        XML,
        "\ufeff" + XML,
        '<?xml version="1.0" encoding="UTF-8"?>\n' + XML,
        '<?xml version="1.0" standalone="yes"?>' + XML,
        "<!-- <!DOCTYPE r> -->" + XML,
        XML.replace("é", "<![CDATA[<!DOCTYPE x><!ENTITY y 'z'>]]>"),
        XML.replace("é", "&lt;!DOCTYPE x>"),
    ],
)
def test_sound_rdfxml_is_read_as_before(document: str) -> None:
    """A byte order mark, declarations of UTF-8, comments and texts that speak of document types are no obstacle."""
    assert len(rdf.parse(document.encode(), RDFXML)[None]) == 1


def test_an_element_of_very_many_attributes_is_refused() -> None:
    """Properties or namespaces, of which the engine would look at each for each other one."""
    for name in ("a:b", "xmlns:b"):
        attributes = " ".join(f'{name}{n}="x:1"' for n in range(1001))
        many = XML.replace("<r:Description ", f"<r:Description {attributes} ")
        with pytest.raises(InvalidDocument, match="more than 1,000 attributes at line 1"):
            rdf.parse(many.encode(), RDFXML)


def test_an_empty_document_has_no_statements() -> None:
    """In RDF/XML as in any syntax."""
    assert rdf.parse(b" \n", RDFXML) == {}


# -- results of queries ---------------------------------------------------------------------------------------------------
def test_solutions_are_read_up_to_the_limit_and_refused_beyond() -> None:
    """Triple terms of a result are held to the same limit, however they are written."""
    assert len(list(sandbox.solutions(hostile.solutions(MAX_NESTING)))) == 1
    for depth in (MAX_NESTING + 1, 12_000, 100_000):
        deep = hostile.solutions(depth)
        for each in (deep, deep.replace(b'"triple"', b'"\\u0074riple"')):
            with pytest.raises(InvalidDocument, match=f"more than {MAX_NESTING} levels"):
                list(sandbox.solutions(each))
            with pytest.raises(InvalidDocument, match=f"more than {MAX_NESTING} levels"):
                nesting.checked_results(io.BytesIO(each)).read()
