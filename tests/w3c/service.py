"""The service over HTTP: graphs go in by the Graph Store Protocol, texts by SPARQL 1.1 Protocol."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import httpx
import pyoxigraph as ox

from tests.w3c import comparing
from tests.w3c.comparing import Compared, form_of
from tests.w3c.engine import DEFAULT, from_clauses, quads_of
from tests.w3c.manifests import Sources, SuiteCase

_GENID = re.compile(rb"<[^<>]*/\.well-known/genid/([A-Za-z0-9]+)>")
_PREFIX, _NAME = re.compile(r"PREFIX\s+(\w*):\s*<([^>]*)>"), re.compile(r"GRAPH\s+(\w*):(\w+)")
_EMPTY = "urn:drumlin:empty"


class Refused(Exception):
    """An answer that is no success."""

    def __init__(self, answer: httpx.Response) -> None:
        super().__init__(f"{answer.status_code} {answer.text[:300]}")
        self.status = answer.status_code


class ServiceTarget:
    """Runs cases against a service of ``base`` that ``http`` asks; what it raises is the case's failure."""

    def __init__(self, http: httpx.Client, base: str) -> None:
        self._http = http
        self._base = base
        self._there: dict[str, str] = {}  # graphs that were put, and the names under which they can be read

    # -- graphs -------------------------------------------------------------------------------------------------------
    def _send(self, method: str, address: str, **given: Any) -> httpx.Response:
        answer = self._http.request(method, address, **given)
        if not answer.is_success:
            raise Refused(answer)
        return answer

    def _graph(self, name: str, quads: Iterable[ox.Quad]) -> str:
        """Put a graph; one with triple terms is kept as a foreign document, and read by that name."""
        if name not in self._there:
            content = ox.serialize((each.triple for each in quads), format=ox.RdfFormat.N_TRIPLES) or b""
            headers = {"Content-Type": "application/n-triples"}
            if b"<<(" in content:
                path = f"x/{re.sub(r'[^A-Za-z0-9]+', '-', name)}"
                self._send("PUT", f"/subgraph/{path}", content=content, headers=headers)
                self._there[name] = f"{self._base}/{path}"
            else:
                self._send("PUT", "/store", params={"graph": name}, content=content, headers=headers)
                self._there[name] = name
        return self._there[name]

    def _dataset(self, case: SuiteCase, sources: Sources) -> tuple[list[str], list[str]]:
        default: list[str] = []
        named: list[str] = []
        for iri in sources.default:
            by_graph: dict[Any, list[ox.Quad]] = {DEFAULT: []}
            for quad in quads_of(case, Sources((iri,))):
                by_graph.setdefault(quad.graph_name, []).append(quad)
            for graph, quads in by_graph.items():
                if graph == DEFAULT:
                    default.append(self._graph(iri, quads))
                else:
                    named.append(self._graph(graph.value, quads))
        named += [self._graph(name, quads_of(case, Sources((), ((name, iri),)))) for name, iri in sources.named]
        return default, named

    # -- cases --------------------------------------------------------------------------------------------------------
    def query(self, case: SuiteCase) -> Compared:
        """Evaluate a query."""
        text = case.file(case.text).read_text(encoding="utf-8")
        form: dict[str, Any] = {"query": f"BASE <{case.text}>\n{text}"}
        listed = from_clauses(text, case.text)
        for iri in listed:
            self._dataset(case, Sources((), ((iri, iri),)))
        default, named = self._dataset(case, case.given)
        if not listed:
            form |= {"default-graph-uri": default or [_EMPTY], "named-graph-uri": named}
        accept = "text/csv" if "CSV" in case.kind else "application/sparql-results+json, application/n-triples"
        answer = self._send("POST", "/sparql", data=form, headers={"Accept": accept})
        body = answer.content
        for name, read_as in self._there.items():
            if name != read_as:
                body = body.replace(read_as.encode(), name.encode())
        if "CSV" in case.kind:
            return comparing.of_csv(body)
        if answer.headers["Content-Type"].startswith("application/n-triples"):
            return comparing.of_quads(ox.parse(body, format=ox.RdfFormat.N_TRIPLES))
        return comparing.of_solutions(ox.parse_query_results(body, format=ox.QueryResultsFormat.JSON))

    def update(self, case: SuiteCase) -> Compared:
        """Evaluate an update on a store that holds nothing else, and return all graphs after it."""
        text = case.file(case.text).read_text(encoding="utf-8")
        self._there.clear()
        quads = list(quads_of(case, case.given))
        content = ox.serialize(quads, format=ox.RdfFormat.N_QUADS) or b""
        self._send("PUT", "/store", content=content, headers={"Content-Type": "application/n-quads"})
        form: dict[str, Any] = {"update": f"BASE <{case.text}>\n{text}"}
        if not re.search(r"\b(?:USING|WITH)\b", text):
            form["using-graph-uri"] = f"{self._base}/store/default"
            form["using-named-graph-uri"] = sorted(
                {each.graph_name.value for each in quads if each.graph_name != DEFAULT} | _written(text)
            )
        self._send("POST", "/sparql/update", data=form)
        return self._everything()

    def _everything(self) -> Compared:
        content = self._send("GET", "/store", headers={"Accept": "application/n-quads"}).content
        quads = ox.parse(_GENID.sub(rb"_:\1", content), format=ox.RdfFormat.N_QUADS)
        others = tuple(
            f"<{self._base}/{part}/" for part in ("id", "x")
        )  # of the service, and documents of earlier cases
        return comparing.of_quads(each for each in quads if not str(each.graph_name).startswith(others))

    def parse(self, case: SuiteCase) -> Compared:
        """Write a document, as one graph where it names none, and read it back."""
        self._there.clear()
        content = case.file(case.text).read_bytes()
        jsonld = case.kind.startswith("JsonLd")
        media_type = "application/ld+json" if jsonld else form_of(case.file(case.text)).media_type
        headers = {"Content-Type": media_type}
        if form_of(case.file(case.text)).supports_datasets and not (jsonld and self._names_no_graph(case)):
            based = _with_base(content, case.base) if jsonld else content
            if media_type == "application/trig":
                based = f"@base <{case.base}> .\n".encode() + content
            self._send("PUT", "/store", content=based, headers=headers)
            return self._everything()
        self._send("PUT", "/store", params={"graph": case.base}, content=content, headers=headers)
        answer = self._send("GET", "/store", params={"graph": case.base}, headers={"Accept": "application/n-triples"})
        return comparing.of_quads(ox.parse(answer.content, format=ox.RdfFormat.N_TRIPLES))

    def _names_no_graph(self, case: SuiteCase) -> bool:
        if not isinstance(case.expected, str):
            return True
        quads = ox.parse(path=str(case.file(case.expected)), format=ox.RdfFormat.N_QUADS)
        return all(quad.graph_name == DEFAULT for quad in quads)

    def accepts(self, case: SuiteCase) -> bool:
        """Return whether a query or an update parses: a refusal for another reason than its syntax says so too."""
        body = case.file(case.text).read_bytes()
        update = "Update" in case.kind
        address, kind = ("/sparql/update", "update") if update else ("/sparql", "query")
        answer = self._http.post(address, content=body, headers={"Content-Type": f"application/sparql-{kind}"})
        if answer.is_success or answer.status_code in (409, 422):
            return True
        if answer.status_code == 400 and answer.json().get("reason") == "syntax":
            return False
        raise Refused(answer)


def _written(text: str) -> set[str]:
    """Return the graphs that an update of the suites may make: its prefixed names behind GRAPH."""
    prefixes = dict(_PREFIX.findall(text))
    return {prefixes[prefix] + local for prefix, local in _NAME.findall(text) if prefix in prefixes}


def _with_base(content: bytes, base: str) -> bytes:
    """Say the base of a JSON-LD document in its context: what is sent to the whole dataset has the service's."""
    document = json.loads(content)
    whole = document if isinstance(document, list) else [document]
    for each in whole:
        if isinstance(each, dict):
            context = each.get("@context", [])
            each["@context"] = [{"@base": base}, *(context if isinstance(context, list) else [context])]
    return json.dumps(document).encode()
