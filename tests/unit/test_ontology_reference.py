"""The reference of the ontology: a page that names every term, points only at itself and at known vocabularies, and loads nothing."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import rdflib
from rdflib import RDFS, SKOS

from api import reference
from ontology import vocabulary

ROOT = Path(__file__).parents[2] / "ontology"
PAGE = reference.page()
NS = rdflib.Namespace(vocabulary.NAMESPACE)
ONTOLOGY = rdflib.Graph().parse(ROOT / "drumlin.ttl")
TERMS = vocabulary.CLASSES | vocabulary.PROPERTIES | vocabulary.CONCEPTS | vocabulary.SCHEMES.keys()


class Anchors(HTMLParser):
    """Collects ids, links and what a browser would load."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text: list[str] = []
        self.loaded: list[str] = []
        self.feed(PAGE)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag names."""
        given = {name: value or "" for name, value in attrs}
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if tag == "a" and "href" in given else []
        self.loaded += [given[name] for name in ("src", "data") if name in given]
        if tag in ("script", "link", "img", "iframe"):
            self.loaded.append(tag)

    def handle_data(self, data: str) -> None:
        """Note text."""
        self.text.append(data)


FOUND = Anchors()


def test_every_term_has_its_anchor_once() -> None:
    """An IRI of the namespace, followed in a browser, ends at its term."""
    assert len(FOUND.ids) == len(set(FOUND.ids))
    assert set(FOUND.ids) >= TERMS


def test_every_term_is_explained_with_an_example() -> None:
    """Comment and example stand on the page as the Turtle has them."""
    text = "".join(FOUND.text)
    for name in TERMS:
        for predicate in (RDFS.comment, SKOS.example):
            assert str(ONTOLOGY.value(NS[name], predicate)) in text, name


def test_links_lead_to_terms_or_known_vocabularies() -> None:
    """No link within the page is dead."""
    inner = {link.removeprefix("#") for link in FOUND.links if link.startswith("#")}

    assert inner <= set(FOUND.ids)
    assert {link for link in FOUND.links if not re.match(r"#|\?|https?://", link)} == set()


def test_the_page_loads_nothing() -> None:
    """It works without a network, and tells nobody who reads it."""
    assert FOUND.loaded == []


def test_the_picture_shows_declared_classes_and_properties() -> None:
    """Each box and arrow of the drawing is a term, and the drawing is well-formed."""
    tree = ET.parse(ROOT / "classes.svg")
    texts = [(each.get("class"), each.text) for each in tree.iter("{http://www.w3.org/2000/svg}text")]
    boxes = {text for kind, text in texts if kind == "n"}
    arrows = {text for kind, text in texts if kind == "e"}

    assert len(boxes) > 15
    assert boxes <= vocabulary.CLASSES
    assert arrows <= vocabulary.PROPERTIES | {"partOf", "hasPart", "distribution", "accessService", "derivedFrom"}


def test_most_terms_are_shown_in_a_statement_of_the_sample_cluster() -> None:
    """Each statement uses the term it stands for, by its name, and is on the page; what is gone from the ontology is not there."""
    samples = json.loads((ROOT / "examples.json").read_bytes())
    text = "".join(FOUND.text)

    assert samples.keys() <= TERMS
    assert len(samples) > 100
    for name, statement in samples.items():
        subject, path, value = statement.split(" ", 2)
        assert name in (path, value), statement
        assert "/" in subject
        assert statement in text
        assert "canary" not in statement.lower()
