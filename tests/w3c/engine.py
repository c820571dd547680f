"""The engine in this process: what the service is measured by."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urljoin

import pyoxigraph as ox

from tests.w3c import comparing
from tests.w3c.comparing import Compared, form_of
from tests.w3c.manifests import Sources, SuiteCase

_FROM = re.compile(r"\bFROM\s+(?:NAMED\s+)?<([^>]*)>", re.IGNORECASE)
DEFAULT = ox.DefaultGraph()


def from_clauses(text: str, base: str) -> list[str]:
    """Return the graphs that a query of the suites names in FROM."""
    return [urljoin(base, each) for each in _FROM.findall(text)]


def quads_of(case: SuiteCase, sources: Sources) -> Iterator[ox.Quad]:
    """Read the graphs of a case; a file of the default graph may name graphs itself."""
    for iri in sources.default:
        yield from ox.parse(path=str(case.file(iri)), format=form_of(case.file(iri)), base_iri=iri)
    for name, iri in sources.named:
        for quad in ox.parse(path=str(case.file(iri)), format=form_of(case.file(iri)), base_iri=iri):
            yield ox.Quad(quad.subject, quad.predicate, quad.object, ox.NamedNode(name))


def store_of(case: SuiteCase, sources: Sources) -> ox.Store:
    """Return a store with the graphs of a case; nodes of two files are different ones."""
    store = ox.Store()
    for part in (*(Sources((each,)) for each in sources.default), *(Sources((), (each,)) for each in sources.named)):
        store.extend(ox.parse(_nquads(quads_of(case, part)), format=ox.RdfFormat.N_QUADS, rename_blank_nodes=True))
    return store


def _nquads(quads: Iterator[ox.Quad]) -> bytes:
    return ox.serialize(quads, format=ox.RdfFormat.N_QUADS) or b""


class Engine:
    """Runs cases in the engine; what it raises is the case's failure."""

    def query(self, case: SuiteCase) -> Compared:
        """Evaluate a query."""
        store = store_of(case, case.given)
        text = case.file(case.text).read_text(encoding="utf-8")
        for iri in from_clauses(text, case.text):
            store.load(
                path=str(case.file(iri)), format=form_of(case.file(iri)), base_iri=iri, to_graph=ox.NamedNode(iri)
            )
        found = store.query(text, base_iri=case.text)
        if isinstance(found, ox.QuerySolutions) and "CSV" in case.kind:
            return comparing.of_csv(found.serialize(format=ox.QueryResultsFormat.CSV) or b"")
        return comparing.of_solutions(found)

    def update(self, case: SuiteCase) -> Compared:
        """Evaluate an update, and return all graphs after it."""
        store = store_of(case, case.given)
        store.update(case.file(case.text).read_text(encoding="utf-8"), base_iri=case.text)
        return comparing.of_quads(store)

    def parse(self, case: SuiteCase) -> Compared:
        """Read a document."""
        form = ox.RdfFormat.JSON_LD if case.kind.startswith("JsonLd") else form_of(case.file(case.text))
        return comparing.of_quads(list(ox.parse(case.file(case.text).read_bytes(), format=form, base_iri=case.base)))

    def accepts(self, case: SuiteCase) -> bool:
        """Return whether a query or an update parses."""
        text = _text(case.file(case.text))
        try:
            if "Update" in case.kind:
                ox.Store().update(text, base_iri=case.text)
            else:
                ox.Store().query(text, base_iri=case.text)
        except SyntaxError:
            return False
        except (RuntimeError, OSError):  # it parses: a graph is absent, a function unknown, an endpoint not there
            return True
        return True


def _text(file: Path) -> str:
    return file.read_bytes().decode("utf-8", "surrogateescape")
