"""Which representation a client gets of those that it accepts."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.api.http.header_lists import elements, parameters
from drumlin.api.http.negotiation import ContextChoice, ContextStyle, Reply, choose, rdf_syntax
from drumlin.kg.rdf.syntax import JSONLD, NQUADS, NTRIPLES, TRIG, TURTLE, Syntax

RDFLIB = (
    "application/rdf+xml, text/n3, text/turtle, application/n-triples, application/ld+json, application/n-quads, "
    "application/trix, application/trig"
)
COMUNICA = (
    "application/n-quads,application/trig;q=0.95,application/ld+json;q=0.9,application/n-triples;q=0.8,text/turtle;q=0.6,"
    "application/rdf+xml;q=0.5,text/n3;q=0.35,text/html;q=0.2,application/json;q=0.135"
)


@pytest.mark.parametrize(
    ("accept", "syntax"),
    [
        (None, JSONLD),
        ("*/*", JSONLD),
        ("*/*;q=1", JSONLD),
        ("text/html, application/xhtml+xml, application/xml;q=0.9, */*;q=0.8", JSONLD),  # a browser
        (RDFLIB, TURTLE),
        (f"{RDFLIB}, */*", TURTLE),
        (f"*/*, {RDFLIB}", TURTLE),
        (RDFLIB.replace(",", ";q=0.7,") + ";q=0.7", TURTLE),
        ("application/ld+json, text/turtle", TURTLE),
        ("application/ld+json, text/turtle;q=0.9", JSONLD),
        ("application/ld+json, */*", JSONLD),
        ("text/turtle, */*", TURTLE),
        ("application/n-triples, */*", NTRIPLES),
        ("application/ld+json, application/json;q=0.9, */*;q=0.1", JSONLD),  # rdflib, with format="json-ld"
        ("application/ld+json, application/json", JSONLD),  # jsonld.js
        ("application/ld+json;profile=http://www.w3.org/ns/json-ld#context, application/ld+json, application/json", JSONLD),
        (COMUNICA, JSONLD),
        ("application/n-quads", NQUADS),
        ("application/n-quads, */*;q=0.1", NQUADS),
        ("application/trig, application/ld+json;q=0.5", TRIG),
        ("application/n-quads, application/trig", NQUADS),
    ],
)  # fmt: skip
def test_a_client_gets_the_syntax_that_it_reads_best(accept: str | None, syntax: Syntax) -> None:
    """Wildcards give JSON-LD, a list of syntaxes liked alike Turtle, a near preference of named graphs a form without them."""
    assert rdf_syntax(accept)[0] is syntax


def test_plain_json_stays_plain() -> None:
    """A client of JSON that also names an RDF syntax still gets JSON."""
    assert rdf_syntax("application/json, text/turtle") == (JSONLD, "application/json")
    assert rdf_syntax("application/json, text/plain, */*") == (JSONLD, "application/json")


def test_a_type_that_is_named_comes_before_a_wildcard() -> None:
    """Among types that are liked alike the one that the client named is taken, whatever is offered first."""
    offered = ("text/html", "text/turtle", "application/ld+json")

    assert choose("*/*", offered) == "text/html"
    assert choose("application/ld+json, */*", offered) == "application/ld+json"
    assert choose("text/turtle, text/html", offered) == "text/html"
    assert choose("text/*", offered) == "text/html"


@pytest.mark.parametrize(
    ("asked", "prefer", "form", "preferred"),
    [
        (None, None, ContextStyle.link, False),
        (None, "context=inline", ContextStyle.inline, True),
        (None, 'respond-async, Context = "INLINE"; x=1', ContextStyle.inline, True),
        (None, "context=link", ContextStyle.link, True),
        (None, "context=other", ContextStyle.link, False),
        (None, "context", ContextStyle.link, False),
        (None, "context=inline, context=link", ContextStyle.inline, True),
        (ContextStyle.link, "context=inline", ContextStyle.link, False),
        (ContextStyle.inline, None, ContextStyle.inline, False),
    ],
)
def test_the_form_of_the_context(
    asked: ContextStyle | None, prefer: str | None, form: ContextStyle, preferred: bool
) -> None:
    """The parameter wins over Prefer, the first preference over a second, and a value that is not known is passed over."""
    assert ContextChoice.of(asked, prefer) == ContextChoice(form, preferred=preferred)


def test_a_write_may_prefer_both() -> None:
    """The preferences of what is returned and of its context are independent."""
    reply = Reply.of("return=representation, context=inline", None, TURTLE)

    assert (reply.wish, reply.syntax, reply.context.form) == ("representation", JSONLD, ContextStyle.inline)


@pytest.mark.parametrize(
    ("header", "parts"),
    [
        ("a, b ,,c", ["a", "b", "c"]),
        ('a;x="b, c;d", e', ['a;x="b, c;d"', "e"]),
        (r'"a\",b", c', [r'"a\",b"', "c"]),
        ('"open, b', ['"open, b']),
        ("", []),
    ],
)
def test_a_list_is_parted_outside_of_quotes_only(header: str, parts: list[str]) -> None:
    """A comma within quotes is a part of its element, one behind a backslash too; a quote that never closes ends with the header."""
    assert elements(header) == parts
    assert [parameters(each)[0] for each in parts[:1]] == [each.partition(";")[0] for each in parts[:1]]


@given(header=st.text('a,;"\\ =', max_size=200))
def test_any_header_is_parted(header: str) -> None:
    """Nothing but blanks and the signs between is lost, and no element is empty."""
    found = elements(header)

    assert all(found)
    assert re.sub("[ ,]", "", "".join(found)) == re.sub("[ ,]", "", header)
