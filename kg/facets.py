"""What a graph is found and counted by: its words, and the values of the fields that people filter by. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from urllib.parse import unquote

from kg.jsonld import NAMESPACE
from kg.rdf import Lines, terms
from kg.words import words
from ontology.vocabulary import WORKLOAD_KINDS

FIELDS = ("type", "domain", "cluster", "namespace", "node", "phase", "quantity", "datasource", "tag", "owner")
"""What entities are filtered and counted by."""

_TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
_TITLE = "<http://purl.org/dc/terms/title>"
_ENDED = "<http://www.w3.org/ns/prov#endedAtTime>"
_ACCESS = "<http://www.w3.org/ns/dcat#accessService>"
_OWN = {f"<{NAMESPACE}{name}>": name for name in ("name", "namespace", "phase", "domain", "cluster", "label", "tag", "formerType",
    "application", "version")} | {_TYPE: "type", _TITLE: "title"}  # fmt: skip
_PARTS = {f"<{NAMESPACE}image>": "image", f"<{NAMESPACE}quantity>": "quantity", _ACCESS: "datasource"}
_SCHEDULED = f"<{NAMESPACE}scheduledOn>"
_SPOKEN = ("name", "title", "application", "version", "label", "tag", "image")

Facets = tuple[tuple[str, ...], ...]
"""The values of one entity, in the order of ``FIELDS``."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the index keeps of one graph; ``facets`` in the order of ``FIELDS``."""

    name: str
    type: str
    namespace: str | None
    phase: str | None
    tombstone: bool
    facets: Facets
    words: str


@lru_cache(maxsize=16_384)
def token(field: str, value: str) -> str:
    """Return the word that stands for a value of a filter; no text gives such a word."""
    return f"\ue000{blake2b(f'{field} {value}'.encode(), digest_size=6).hexdigest()}"


LIVE = token("live", "")


def facts_of(lines: Lines, graph: str, id: str, owner: str) -> Facts:
    """Read out of a graph what it is found and counted by."""
    own, told, nodes = _told(lines, f"<{graph}>")
    types = sorted(map(_local, own.get("type", ())))
    tombstone = "Tombstone" in types
    if tombstone:
        types = sorted(map(_local, own.get("formerType", ())))
    values: dict[str, set[str]] = {
        "type": set(types),
        "node": {_last(each) for each in nodes},
        "owner": {owner},
        **{name: set(own.get(name, ())) for name in ("tag", "namespace")},
        "phase": {_local(each) for each in own.get("phase", ())},
        **{name: {_last(each) for each in own.get(name, ())} for name in ("domain", "cluster")},
        "quantity": {_local(each) for each in told.get("quantity", ())},
        "datasource": {_last(each) for each in told.get("datasource", ())},
    }
    facets = tuple([tuple(sorted(values[field])) for field in FIELDS])
    plain = unquote(id)
    found: set[str] = set(words(plain))
    for name in _SPOKEN:
        for text in (*own.get(name, ()), *told.get(name, ())):
            if name != "name" or not plain.endswith(f"/{text}"):  # else its words are there
                found.update(_words(text))
    for field, held in zip(FIELDS, facets, strict=True):
        found.update([token(field, value) for value in held])
    found |= {token("type", wider) for kind in types if (wider := _wider(kind))}
    if not tombstone:
        found.add(LIVE)
    first = {name: min(own.get(name, ()), default=None) for name in ("name", "namespace")}
    phase = min(values["phase"], default=None)
    return Facts(
        first["name"] or "",
        types[0] if types else "",
        first["namespace"],
        phase,
        tombstone,
        facets,
        f" {' '.join(sorted(found))} ",
    )


@lru_cache(maxsize=16_384)
def _words(text: str) -> tuple[str, ...]:
    return tuple(words(text))


def _told(lines: Lines, entity: str) -> tuple[dict[str, list[str]], dict[str, list[str]], list[str]]:
    """Sort the values that matter: about the entity itself, about its parts, and the nodes that its open runs are on."""
    own: dict[str, list[str]] = {}
    told: dict[str, list[str]] = {}
    scheduled: list[tuple[str, str]] = []
    ended: set[str] = set()
    for line in lines:
        subject, predicate, value = line.split(" ", 2)
        if predicate == _ENDED:
            ended.add(subject)
        elif predicate == _SCHEDULED:
            scheduled.append((subject, value))
        elif subject == entity and (name := _OWN.get(predicate)):
            own.setdefault(name, []).append(_value(value, line))
        elif name := _PARTS.get(predicate):
            told.setdefault(name, []).append(_value(value, line))
    return own, told, [value[1:-3] for subject, value in scheduled if subject not in ended]


def _value(text: str, line: str) -> str:
    """Return the IRI or lexical form at the end of a line; ``text`` is what follows the predicate."""
    if text[0] == "<":
        return text[1:-3]
    return text[1 : text.rindex('"')] if text[0] == '"' and "\\" not in text else terms(line)[2].value


def _wider(kind: str) -> str | None:
    if kind in WORKLOAD_KINDS:
        return "Workload"
    return "Domain" if kind == "GlaciationNode" else None


def _local(value: str) -> str:
    return value.rpartition("#")[2]


def _last(value: str) -> str:
    return value.rpartition("/")[2]
