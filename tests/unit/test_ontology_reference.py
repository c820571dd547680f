"""The reference of the ontology: a page that names every term, points only at itself and at known vocabularies, and loads nothing."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import rdflib
from rdflib import RDFS, SKOS

from drumlin.api import reference
from drumlin.ontology import vocabulary

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
        self.feed("".join(f'<a href="#{anchor}">{title}</a>' for anchor, title in PAGE.contents))
        self.feed(f"{PAGE.picture}{PAGE.sections}")

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


SVG = "{http://www.w3.org/2000/svg}"


def boxes() -> dict[str, tuple[float, float, float, float]]:
    """Return the boxes of the drawing: name → left, top, right, bottom."""
    found = {}
    for link in ET.parse(ROOT / "classes.svg").iter(f"{SVG}a"):
        left, top, width, height = (float(link.find(f"{SVG}rect").get(each)) for each in ("x", "y", "width", "height"))
        found[link.get("href", "").removeprefix("#")] = (left, top, left + width, top + height)
    return found


def within(x: float, y: float, box: tuple[float, float, float, float]) -> bool:
    """Return whether a point is inside a box."""
    return box[0] < x < box[2] and box[1] < y < box[3]


def test_nothing_in_the_picture_lies_over_anything_else() -> None:
    """Boxes are apart, each text fits into its box, and no arrow or its word runs through a box."""
    drawn, tree = boxes(), ET.parse(ROOT / "classes.svg")
    crossed: list[object] = []
    for name, (left, top, right, bottom) in drawn.items():
        others = [box for other, box in drawn.items() if other != name]
        crossed += [name for box in others if left < box[2] and box[0] < right and top < box[3] and box[1] < bottom]
    for link in tree.iter(f"{SVG}a"):
        left, _, right, _ = drawn[link.get("href", "").removeprefix("#")]
        room = right - left - 10
        wide = {"n": 9.0, "s": 5.6}
        crossed += [
            each.text for each in link.iter(f"{SVG}text") if len(each.text or "") * wide[each.get("class", "")] > room
        ]
    for line in tree.iter(f"{SVG}line"):
        x1, y1, x2, y2 = (float(line.get(each, "nan")) for each in ("x1", "y1", "x2", "y2"))
        points = [(x1 + (x2 - x1) * step / 50, y1 + (y2 - y1) * step / 50) for step in range(1, 50)]
        crossed += [(name, x, y) for name, box in drawn.items() for x, y in points if within(x, y, box)]
    for text in tree.iter(f"{SVG}text"):
        if text.get("class") == "e":
            x, y, half = float(text.get("x", "nan")), float(text.get("y", "nan")) - 3, len(text.text or "") * 2.9
            crossed += [
                (text.text, name) for name, box in drawn.items() if within(x - half, y, box) or within(x + half, y, box)
            ]

    assert len(drawn) > 15
    assert crossed == []


def test_terms_are_shown_in_a_statement() -> None:
    """Each statement uses the term it stands for, by its name, and is on the page; what is gone from the ontology is not there."""
    samples = json.loads((ROOT / "examples.json").read_bytes())
    text = "".join(FOUND.text)

    assert samples.keys() == {"recorded", "written"}
    assert samples["recorded"].keys().isdisjoint(samples["written"])
    shown = samples["recorded"] | samples["written"]
    assert shown.keys() <= TERMS
    assert len(samples["recorded"]) > 120
    assert TERMS - vocabulary.SCHEMES.keys() - shown.keys() <= UNSHOWN
    for name, statement in shown.items():
        subject, path, value = statement.split(" ", 2)
        assert name in (path, value), statement
        assert "/" in subject
        assert statement in text
        assert "canary" not in statement.lower()


UNSHOWN = {
    "Available",
    "Lost",
    "Released",
    "Workload",
    "alertmanager",
    "histogram",
    "influxdb",
    "jaeger",
    "maxUnavailable",
    "parquet",
    "profiles",
    "pyroscope",
    "tempo",
    "traces",
}
"""Abstract, or in no recording, template or document of an example."""
