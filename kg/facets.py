"""What a graph is found and counted by: its words, and the values of the fields that people filter by. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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

_OWN = {
    f"<{NAMESPACE}{name}>": name
    for name in (
        "name",
        "namespace",
        "phase",
        "domain",
        "cluster",
        "label",
        "tag",
        "formerType",
        "application",
        "version",
    )
} | {"<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>": "type", "<http://purl.org/dc/terms/title>": "title"}
_PARTS = {
    f"<{NAMESPACE}image>": "image",
    f"<{NAMESPACE}quantity>": "quantity",
    "<http://www.w3.org/ns/dcat#accessService>": "datasource",
    f"<{NAMESPACE}scheduledOn>": "scheduled",
    "<http://www.w3.org/ns/prov#endedAtTime>": "ended",
}
_TOLD = _OWN | _PARTS
_OF_PARTS = frozenset(_PARTS.values())
_SHORT = 256  # characters of what a line says that are remembered
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
    """Return the word that stands for a value of a filter; no text gives such a word, which begins with one of 6,400 private characters."""
    digest = blake2b(f"{field} {value}".encode(), digest_size=8).digest()
    return chr(0xE000 + int.from_bytes(digest[:2]) % 0x1900) + digest[2:].hex()


LIVE = token("live", "")


def same_facts(before: Lines, after: Lines) -> bool:
    """Tell whether two states of one graph differ in nothing that is read here: most changes are of a number or a time."""
    return all(line.split(" ", 2)[1] not in _TOLD for line in before ^ after)


def facts_of(lines: Lines, graph: str, id: str, owner: str) -> Facts:
    """Read out of a graph what it is found and counted by."""
    told = _told(lines, f"<{graph}>")
    types = told["type"]
    if tombstone := f"{NAMESPACE}Tombstone" in types:
        types = told.get("formerType", [])
    kinds = _each(_local, types)
    facets: Facets = (
        kinds,
        _each(_last, told.get("domain")),
        _each(_last, told.get("cluster")),
        _each(None, told.get("namespace")),
        _each(_last, told.get("node")),
        _each(_local, told.get("phase")),
        _each(_local, told.get("quantity")),
        _each(_last, told.get("datasource")),
        _each(None, told.get("tag")),
        _one(owner),
    )
    words_ = _spoken(told, unquote(id))
    words_.update([token(field, value) for field, values in zip(FIELDS, facets, strict=True) for value in values])
    words_.update([token("type", wider) for kind in kinds if (wider := _wider(kind))])
    if not tombstone:
        words_.add(LIVE)
    name, namespace, phase = min(told.get("name", ("",))), facets[3], facets[5]
    return Facts(
        name,
        kinds[0] if kinds else "",
        namespace[0] if namespace else None,
        phase[0] if phase else None,
        tombstone,
        facets,
        f" {' '.join(sorted(words_))} ",
    )


def _each(part: Callable[[str], str] | None, values: Sequence[str] | None) -> tuple[str, ...]:
    """Return a part of each value, sorted, each once."""
    if not values:
        return ()
    if len(values) == 1:
        return _one(part(values[0]) if part else values[0])
    return tuple(sorted(set(map(part, values) if part else values)))


@lru_cache(maxsize=16_384)  # the same few values again and again: kept once
def _one(value: str) -> tuple[str, ...]:
    return (value,)


def _spoken(told: Mapping[str, Sequence[str]], id: str) -> set[str]:
    """Return the words that an entity is found by: those of its id, and of what it says."""
    found: set[str] = set()
    for segment in id.split("/"):
        found.update(_words(segment))
    for name in _SPOKEN:
        for text in told.get(name, ()):
            found.update(_words(text))
    return found


@lru_cache(maxsize=16_384)
def _words(text: str) -> tuple[str, ...]:
    return tuple(words(text))


def _told(lines: Lines, entity: str) -> dict[str, list[str]]:
    """Sort the values that matter: about the entity itself, about its parts, and the nodes that its open runs are on."""
    told: dict[str, list[str]] = {"type": []}
    scheduled: list[tuple[str, str]] = []
    ended: set[str] = set()
    for line in lines:
        subject, _, rest = line.partition(" ")
        found = (_known_saying if len(rest) <= _SHORT else _saying)(rest)
        if found is None:
            continue
        name, value = found
        if name == "scheduled":
            scheduled.append((subject, value))
        elif name == "ended":
            ended.add(subject)
        elif subject == entity or name in _OF_PARTS:
            told.setdefault(name, []).append(value)
    if scheduled:
        told["node"] = [node for subject, node in scheduled if subject not in ended]
    return told


def _saying(rest: str) -> tuple[str, str] | None:
    """Return what a line says after its subject, if it matters: the name of its predicate, and an IRI or lexical form."""
    predicate, _, text = rest.partition(" ")
    name = _TOLD.get(predicate)
    if name is None:
        return None
    if text[0] == "<":
        return name, text[1:-3]
    if text[0] == '"' and "\\" not in text:
        return name, text[1 : text.rindex('"')]
    return name, terms(f"{predicate} {rest}")[2].value  # any subject will do


_known_saying = lru_cache(maxsize=16_384)(_saying)  # what graphs say of their things is much the same


def _wider(kind: str) -> str | None:
    if kind in WORKLOAD_KINDS:
        return "Workload"
    return "Domain" if kind == "GlaciationNode" else None


def _local(value: str) -> str:
    return value.rpartition("#")[2]


def _last(value: str) -> str:
    return value.rpartition("/")[2]
