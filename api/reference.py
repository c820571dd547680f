"""The reference of the ontology as a page, made from its Turtle: nothing here knows a term by name.

Each term has its own anchor, so that its IRI, followed in a browser, ends at it. No script, no style sheet or picture from elsewhere.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from markupsafe import Markup

from drumlin.kg.rdf.syntax import TURTLE, Term, parse, terms
from drumlin.ontology.vocabulary import NAMESPACE

_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_RDFS = "http://www.w3.org/2000/01/rdf-schema#"
_OWL = "http://www.w3.org/2002/07/owl#"
_SKOS = "http://www.w3.org/2004/02/skos/core#"
_SCHEMA = "https://schema.org/"
_DCTERMS = "http://purl.org/dc/terms/"

_SECTIONS = (
    ("Classes", (f"{_OWL}Class",)),
    ("Properties", (f"{_OWL}ObjectProperty", f"{_OWL}DatatypeProperty")),
    ("Closed lists", (f"{_SKOS}ConceptScheme",)),
    ("Concepts", (f"{_SKOS}Concept",)),
)
_ROWS = (
    ("subclass of", f"{_RDFS}subClassOf"),
    ("disjoint with", f"{_OWL}disjointWith"),
    ("used on", f"{_SCHEMA}domainIncludes"),
    ("value", f"{_SCHEMA}rangeIncludes"),
    ("in list", f"{_SKOS}inScheme"),
)
_BACK = (
    ("subclasses", f"{_RDFS}subClassOf"),
    ("properties", f"{_SCHEMA}domainIncludes"),
    ("values", f"{_SKOS}inScheme"),
)

Statements = Mapping[str, Mapping[str, list[Term]]]


@dataclass(frozen=True, slots=True)
class OntologyView:
    """What the page shows; ``sections`` and ``picture`` are HTML of ours, in which every text of the ontology is escaped."""

    title: str
    description: str
    version: str
    namespace: str
    contents: tuple[tuple[str, str], ...]
    picture: Markup
    sections: Markup


@dataclass(frozen=True, slots=True)
class TermView:
    """One term; ``article`` is HTML of ours, in which every text of the ontology is escaped, with links to pages of other terms."""

    name: str
    iri: str
    comment: str
    is_class: bool
    article: Markup


@cache
def term_page(name: str) -> TermView:
    """Return the page of a term of the ontology."""
    iri, about = f"{NAMESPACE}{name}", _statements()
    article = re.sub(r"<h3>.*?</h3>", "", _term(iri, about)).replace('href="#', 'href="./')
    kinds = {each.value for each in about[iri].get(f"{_RDF}type", ())}
    return TermView(name, iri, _text(about[iri], f"{_RDFS}comment"), f"{_OWL}Class" in kinds, Markup(article))  # noqa: S704


@cache
def page() -> OntologyView:
    """Return what the page shows (made once per process)."""
    about = _statements()
    head = about[NAMESPACE]
    version = _text(head, f"{_OWL}versionInfo")
    sections = "".join(_section(title, kinds, about) for title, kinds in _SECTIONS)
    return OntologyView(
        title=_text(head, f"{_DCTERMS}title"),
        description=_text(head, f"{_DCTERMS}description"),
        version=version,
        namespace=NAMESPACE,
        contents=tuple((_anchor(title), title) for title, _ in _SECTIONS),
        picture=Markup(_picture()),  # noqa: S704 - ours
        sections=Markup(sections),  # noqa: S704 - each text in it was escaped
    )


def _picture() -> str:
    """Return the picture of the classes as a group of links, without its own styles: a page may not have any, ``style.css`` has them."""
    drawn = files("drumlin.ontology").joinpath("classes.svg").read_text(encoding="utf-8")
    return re.sub(r"<style>.*?</style>", "", drawn, flags=re.DOTALL).replace('role="img"', 'role="group"', 1)


def _statements() -> Statements:
    found: dict[str, dict[str, list[Term]]] = {}
    for line in sorted(parse(files("drumlin.ontology").joinpath("drumlin.ttl").read_bytes(), TURTLE)[None]):
        subject, predicate, value = terms(line)
        found.setdefault(subject.value, {}).setdefault(predicate.value, []).append(value)
    return found


def _section(title: str, kinds: tuple[str, ...], about: Statements) -> str:
    names = [
        iri
        for iri, said in about.items()
        if iri.startswith(NAMESPACE) and any(each.value in kinds for each in said.get(f"{_RDF}type", ()))
    ]
    listed = " · ".join(_link(name) for name in names)
    described = "".join(_term(name, about) for name in names)
    return f'<section id="{_anchor(title)}"><h2>{title} ({len(names)})</h2><p class="list">{listed}</p>{described}</section>'


def _anchor(title: str) -> str:
    return f"-{title.lower().replace(' ', '-')}"  # no term begins so


def _term(iri: str, about: Statements) -> str:
    said, name = about[iri], html.escape(iri.removeprefix(NAMESPACE))
    kinds = {each.value for each in said.get(f"{_RDF}type", ())}
    notes = "one value at most" if f"{_OWL}FunctionalProperty" in kinds else ""
    rows = [_row(title, (each.value for each in said.get(predicate, ()))) for title, predicate in _ROWS]
    rows += [_row(title, _pointing(iri, predicate, about)) for title, predicate in _BACK]
    return (
        f'<article id="{name}"><h3><a href="#{name}">{name}</a> <small>{notes}</small></h3>'
        f"<p>{html.escape(_text(said, f'{_RDFS}comment'))}</p>"
        f'<p class="example">{html.escape(_text(said, f"{_SKOS}example"))}</p>{_sample(iri)}'
        f"<dl>{''.join(rows)}</dl></article>"
    )


@cache
def _samples() -> Mapping[str, Mapping[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(files("drumlin.ontology").joinpath("examples.json").read_bytes())
    return found


def _sample(iri: str) -> str:
    """Show a statement that uses the term: of the sample cluster, or, where nothing there has it, one as it is written."""
    name = iri.removeprefix(NAMESPACE)
    shown = (f'<p class="{kind}">{html.escape(of[name])}</p>' for kind, of in _samples().items() if name in of)
    return next(shown, "")


def _pointing(iri: str, predicate: str, about: Statements) -> Iterable[str]:
    return (other for other, said in about.items() if any(each.value == iri for each in said.get(predicate, ())))


def _row(title: str, iris: Iterable[str]) -> str:
    links = ", ".join(map(_link, iris))
    return f"<dt>{title}</dt><dd>{links}</dd>" if links else ""


def _link(iri: str) -> str:
    if iri.startswith(NAMESPACE):
        name = html.escape(iri.removeprefix(NAMESPACE))
        return f'<a href="#{name}">{name}</a>'
    words = html.escape(iri.rpartition("#")[2] if "#" in iri else iri.rpartition("/")[2])
    return f'<a href="{html.escape(iri)}" rel="noreferrer">{words}</a>'


def _text(said: Mapping[str, list[Term]], predicate: str) -> str:
    return next((each.value for each in said.get(predicate, ())), "")
