"""Cases of the W3C's suites: manifests of w3c/rdf-tests (Turtle) and of w3c/json-ld-api (JSON-LD), as clones have them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyoxigraph as ox

RDF_TESTS, JSON_LD_API = "https://w3c.github.io/rdf-tests/", "https://w3c.github.io/json-ld-api/tests/"
_LEFT_OUT = ("Entailment", "ProtocolTest", "GraphStoreProtocolTest", "ServiceDescriptionTest", "C14N")
"""Parts of the names of kinds that are left out: no inference is promised, and test_w3c_protocol.py sends the requests of the protocols."""
_CASES = """
PREFIX mf: <http://www.w3.org/2001/sw/DataAccess/tests/test-manifest#>
PREFIX rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#>
SELECT ?test ?kind ?action ?result {
  ?manifest mf:entries/rdf:rest*/rdf:first ?test . ?test a ?kind . OPTIONAL { ?test mf:action ?action } OPTIONAL { ?test mf:result ?result }
}"""
_QT, _UT = "http://www.w3.org/2001/sw/DataAccess/tests/test-query#", "http://www.w3.org/2009/sparql/tests/test-update#"
_LABEL = ox.NamedNode("http://www.w3.org/2000/01/rdf-schema#label")


@dataclass(frozen=True, slots=True)
class Sources:
    """Graphs: files of the default graph, and of named graphs by their names."""

    default: tuple[str, ...] = ()
    named: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SuiteCase:
    """One case. ``text`` is the IRI of the file that is tested, ``root`` the folder that ``web`` stands for."""

    name: str
    kind: str
    root: Path
    web: str
    text: str
    given: Sources = field(default_factory=Sources)
    expected: str | Sources | None = None
    base: str = ""

    def file(self, iri: str) -> Path:
        """Return the file of an IRI."""
        return self.root / iri.removeprefix(self.web)

    @property
    def folder(self) -> str:
        """The suite that it belongs to."""
        return self.name.removeprefix(self.web).rpartition("/")[0] or self.name.rpartition("/")[2].partition("-")[0]


def cases(folder: Path) -> Iterator[SuiteCase]:
    """Read all manifests of a clone."""
    if (folder / "tests" / "toRdf-manifest.jsonld").is_file():
        yield from _jsonld(folder / "tests")
        return
    for manifest in sorted(folder.rglob("manifest*.ttl")):
        yield from _turtle(folder, manifest)


def _turtle(folder: Path, manifest: Path) -> Iterator[SuiteCase]:
    store = ox.Store()
    base = RDF_TESTS + manifest.relative_to(folder).as_posix()
    store.load(path=str(manifest), format=ox.RdfFormat.TURTLE, base_iri=base)
    solutions = store.query(_CASES)
    assert isinstance(solutions, ox.QuerySolutions)
    for row in solutions:
        kind = row["kind"].value.rpartition("#")[2]
        if row["action"] is None or any(part in kind for part in _LEFT_OUT):
            continue
        action, result = row["action"], row["result"]
        name = f"{base.rpartition('/')[0]}/{row['test'].value.rpartition('#')[2] or row['test'].value}"
        if isinstance(action, ox.NamedNode):
            expected = result.value if result is not None else None
            yield SuiteCase(name, kind, folder, RDF_TESTS, action.value, Sources(), expected, action.value)
            continue
        of = _QT if (text := _one(store, action, f"{_QT}query")) else _UT
        text = text or _one(store, action, f"{_UT}request") or ""
        told = result.value if isinstance(result, ox.NamedNode) else _sources(store, result, _UT) if result else None
        yield SuiteCase(name, kind, folder, RDF_TESTS, text, _sources(store, action, of), told, text)


def _one(store: ox.Store, subject: Any, predicate: str) -> str | None:
    return next((quad.object.value for quad in store.quads_for_pattern(subject, ox.NamedNode(predicate), None)), None)


def _sources(store: ox.Store, subject: Any, of: str) -> Sources:
    named = []
    for quad in store.quads_for_pattern(subject, ox.NamedNode(f"{of}graphData"), None):
        if isinstance(quad.object, ox.NamedNode):
            named.append((quad.object.value, quad.object.value))
        else:
            label = next(each.object.value for each in store.quads_for_pattern(quad.object, _LABEL, None))
            named.append((label, _one(store, quad.object, f"{of}graph") or ""))
    default = (quad.object.value for quad in store.quads_for_pattern(subject, ox.NamedNode(f"{of}data"), None))
    return Sources(tuple(default), tuple(named))


def _jsonld(folder: Path) -> Iterator[SuiteCase]:
    for each in json.loads((folder / "toRdf-manifest.jsonld").read_bytes())["sequence"]:
        option: Mapping[str, Any] = each.get("option", {})
        text = JSON_LD_API + each["input"]
        expected = JSON_LD_API + each["expect"] if "expect" in each else None
        kind = "JsonLdNegative" if "expectErrorCode" in each else "JsonLd"
        name = f"{JSON_LD_API}toRdf/{each['@id'].lstrip('#')}"
        yield SuiteCase(name, kind, folder, JSON_LD_API, text, Sources(), expected, option.get("base", text))
