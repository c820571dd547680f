"""Values of the graph as a page shows them: text, and where it leads. What a value says is never trusted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from drumlin.api.pages.wording import amount, moment, name_of
from drumlin.kg.errors import InvalidIdentifier
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import NAMESPACE

MAX_TEXT = 2_000
"""Characters of one value that are shown; the rest is in the data."""
BAD = frozenset({"Failed", "NotReady", "Lost", "Unknown", "Pending", "Suspended", "Terminating"})
"""Phases that somebody may want to look into."""
_FAILED = frozenset({"Failed", "NotReady", "Lost", "Unknown"})
_XSD = "http://www.w3.org/2001/XMLSchema#"


class ShownValue(NamedTuple):
    """A value: its text; ``href`` relative to the root for what has a page here, absolute when ``away``; ``title`` says more."""

    text: str
    href: str = ""
    title: str = ""
    away: bool = False


def shown_iri(iri: str, iris: Iris) -> ShownValue:
    """Show an IRI: an entity by its name, a term by its own, anything else as it is."""
    if iris.knows(iri):
        try:
            short = iris.short(iris.entity(iri))
        except InvalidIdentifier:
            return ShownValue(cut(iri))
        return ShownValue(cut(name_of(iris.short(iri))), f"doc/{short}", iris.short(iri))
    if iri.startswith(NAMESPACE):
        term = iri.removeprefix(NAMESPACE)
        return ShownValue(cut(term), f"ns#{term}", iri)
    if iri.startswith(("http://", "https://")):
        return ShownValue(cut(iri), iri, away=True)
    return ShownValue(cut(iri))


def shown(term: str, value: Any, iris: Iris) -> ShownValue:
    """Show a value of a JSON-LD document."""
    if isinstance(value, Mapping):
        if isinstance(inner := value.get("id") or value.get("@id"), str):
            return shown_iri(inner, iris)
        value = value.get("@value", value)
    if isinstance(value, bool):
        return ShownValue("yes" if value else "no")
    if isinstance(value, str):
        if value.startswith(("http://", "https://")):
            return shown_iri(value, iris)
        return ShownValue(cut(moment(value) if _is_time(value) else amount(term, value)))
    return ShownValue(cut(amount(term, str(value))))


def term_of(predicate: str) -> str:
    """Return the name of a property: what stands behind the # or the last / of its IRI."""
    return re.split("[#/]", predicate)[-1] or predicate


def _is_time(text: str) -> bool:
    return len(text) >= 20 and text[4] == text[7] == "-" and text[10] == "T"


def cut(text: str) -> str:
    """Return a text that is not too long to be shown."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"


def listed(value: Any) -> Iterable[Any]:
    """Return the values of a key, of which a document writes one as itself and several as a list."""
    return value if isinstance(value, list) else [value]


def shown_binding(binding: Mapping[str, Any] | None, iris: Iris) -> ShownValue:
    """Show a term of a query's solution (SPARQL 1.1 Query Results JSON); nothing for an unbound variable."""
    if binding is None:
        return ShownValue("")
    if binding["type"] == "triple":
        parts = (shown_binding(each, iris).text for each in binding["value"].values())
        return ShownValue(cut(f"<<( {' '.join(parts)} )>>"))
    text = binding["value"]
    if binding["type"] == "uri":
        return shown_iri(text, iris)
    datatype = binding.get("datatype", "").removeprefix(_XSD)
    title = binding.get("xml:lang", "") or datatype
    return ShownValue(cut(moment(text) if datatype == "dateTime" else text), title=title)


def is_number(binding: Mapping[str, Any] | None) -> bool:
    """Return whether a term is a number."""
    kind = "" if binding is None else binding.get("datatype", "").removeprefix(_XSD)
    return kind in ("integer", "decimal", "double", "float")


def entities_in(value: Any, iris: Iris) -> Iterator[str]:
    """Yield the IRIs of entities that a value of a document names, wherever they stand in it."""
    if isinstance(value, str):
        if iris.knows(value):
            yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            if key not in ("id", "@id", "@context"):
                yield from entities_in(each, iris)
    elif isinstance(value, list):
        for each in value:
            yield from entities_in(each, iris)


def state_of_phase(phase: str) -> str:
    """Return how a phase is to be coloured: bad, waiting, good, or nothing."""
    if not phase:
        return ""
    return "bad" if phase in _FAILED else "waiting" if phase in BAD else "good"
