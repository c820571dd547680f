"""What agents may read whole: the terms of the ontology and the cookbook of saved queries, as compact text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from drumlin.api.mcp.answers import printable, spoken
from drumlin.kg.client import AsyncClient
from drumlin.kg.errors import ResourceNotFound
from drumlin.kg.rdf.syntax import terms
from drumlin.ontology.vocabulary import NAMESPACE

_RDF, _RDFS, _OWL = (
    "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "http://www.w3.org/2000/01/rdf-schema#",
    "http://www.w3.org/2002/07/owl#",
)
_KINDS = {f"{_OWL}Class": "classes", f"{_OWL}ObjectProperty": "relations", f"{_OWL}DatatypeProperty": "properties"}


@dataclass(frozen=True, slots=True)
class AgentResource:
    """A text that an agent may read: its address, what it says of itself, and how it is read."""

    uri: str
    title: str
    description: str
    media_type: str
    read: Callable[[AsyncClient], Awaitable[str]]


async def _ontology(client: AsyncClient) -> str:
    return ontology_text(await client.ontology("ntriples"))


def ontology_text(triples: str) -> str:
    """Return the terms of an ontology in N-Triples, a line each: its name and what it means, by kind."""
    said: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for line in triples.splitlines():
        subject, predicate, value = terms(line)
        if subject.value.startswith(NAMESPACE):
            said[subject.value.removeprefix(NAMESPACE)][predicate.value].append(value.value)
    lines = [f"PREFIX : <{NAMESPACE}>"]
    for kind, title in _KINDS.items():
        named = sorted(name for name, about in said.items() if kind in about[f"{_RDF}type"])
        lines += ["", f"# {title}", *(f":{name} {_comment(said[name])}" for name in named)]
    return "\n".join(lines)


def _comment(about: Mapping[str, list[str]]) -> str:
    return " ".join(about.get(f"{_RDFS}comment", [])[:1])


async def _turtle(client: AsyncClient) -> str:
    return await client.ontology("turtle")


async def _cookbook(client: AsyncClient) -> str:
    lines = ["# Saved queries: ask one with the tool saved_query"]
    for each in await client.queries():
        lines += ["", f"## {each['name']}: {each['title']}", each["description"]]
        lines += [f"* parameter {p['name']} ({p['type']}): {p['description']}" for p in each["parameters"]]
        lines += [f"* column {column['name']}: {column['description']}" for column in each["columns"]]
    return "\n".join(map(printable, lines))


RESOURCES: tuple[AgentResource, ...] = (
    AgentResource(
        "drumlin://ontology",
        "Terms of the graph",
        "Classes, relations and properties, a line each: what to write in a SPARQL query.",
        "text/plain",
        _ontology,
    ),
    AgentResource(
        "drumlin://ontology/turtle",
        "The ontology in full",
        "The same with examples, domains and ranges, in Turtle (some 90 KB).",
        "text/turtle",
        _turtle,
    ),
    AgentResource(
        "drumlin://cookbook",
        "The cookbook",
        "The saved queries: what each answers, its parameters and columns.",
        "text/markdown",
        _cookbook,
    ),
)


def resource_at(uri: str) -> AgentResource:
    """Return the resource at an address; raises ``ResourceNotFound``."""
    found = next((each for each in RESOURCES if each.uri == uri.rstrip("/")), None)
    if found is None:
        known = ", ".join(each.uri for each in RESOURCES)
        raise ResourceNotFound(f"there is no resource {spoken(uri, 200)}", hint=f"there are {known}")
    return found
