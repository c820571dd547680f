"""The reference of the ontology as one HTML page, made from its Turtle: nothing here knows a term by name.

Each term has its own anchor, so that its IRI, followed in a browser, ends at it. No script, no style sheet or picture from elsewhere.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files

from kg.rdf import TURTLE, Term, parse, terms
from ontology.vocabulary import NAMESPACE

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


@cache
def page() -> str:
    """Return the page (made once per process)."""
    about = _statements()
    head = about[NAMESPACE]
    version = _text(head, f"{_OWL}versionInfo")
    sections = "".join(_section(title, kinds, about) for title, kinds in _SECTIONS)
    contents = " · ".join(f'<a href="#{_anchor(title)}">{title}</a>' for title, _ in _SECTIONS)
    return _PAGE.format(
        contents=contents,
        title=html.escape(_text(head, f"{_DCTERMS}title")),
        description=html.escape(_text(head, f"{_DCTERMS}description")),
        version=html.escape(version),
        namespace=NAMESPACE,
        picture=files("ontology").joinpath("classes.svg").read_text(encoding="utf-8"),
        sections=sections,
    )


def _statements() -> Statements:
    found: dict[str, dict[str, list[Term]]] = {}
    for line in sorted(parse(files("ontology").joinpath("drumlin.ttl").read_bytes(), TURTLE)[None]):
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
    found: dict[str, dict[str, str]] = json.loads(files("ontology").joinpath("examples.json").read_bytes())
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


_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }}
body {{ max-width: 56rem; margin: 2rem auto; padding: 0 1rem }}
svg {{ max-width: 100%; height: auto }}
article {{ border-top: 1px solid color-mix(in srgb, currentColor 20%, transparent); padding: .5rem 0 }}
article:target {{ background: color-mix(in srgb, Highlight 20%, transparent) }}
h3 {{ margin: .25rem 0; font-family: ui-monospace, monospace }} h3 small {{ font-weight: normal; font-family: system-ui }}
p {{ margin: .25rem 0 }} .example, .recorded, .written {{ font-size: 14px; opacity: .8; overflow-wrap: anywhere }}
.example::before {{ content: "e.g. " }} .recorded::before {{ content: "in the sample cluster: " }}
.written::before {{ content: "as a statement: " }}
.recorded, .written {{ font-family: ui-monospace, monospace }} .recorded::before, .written::before {{ font-family: system-ui }}
dl {{ display: grid; grid-template-columns: 8rem 1fr; gap: 0 .5rem; margin: .25rem 0; font-size: 14px }} dd {{ margin: 0 }}
</style>
<h1>{title}</h1>
<p>{description}</p>
<p>Version {version} · namespace <code>{namespace}</code> · also as <a href="?format=turtle">Turtle</a>,
<a href="?format=jsonld">JSON-LD</a>, <a href="?format=ntriples">N-Triples</a></p>
<nav>{contents}</nav>
{picture}
{sections}
</html>"""
