"""What a graph is found and counted by: its words, and the values of the fields that people filter by. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from urllib.parse import unquote

from drumlin.kg import rdf
from drumlin.kg.rdf.jsonld import NAMESPACE
from drumlin.kg.rdf.syntax import Lines
from drumlin.kg.remembering import remembered
from drumlin.kg.search.tokenizer import words
from drumlin.ontology.vocabulary import WORKLOAD_KINDS

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
}
_SCHEDULED, _ENDED = f"<{NAMESPACE}scheduledOn>", "<http://www.w3.org/ns/prov#endedAtTime>"
_OF_ENTITY = _OWN | _PARTS
_READ = frozenset({*_OF_ENTITY, _SCHEDULED, _ENDED})
_SPOKEN = ("name", "title", "application", "version", "label", "tag", "image")

Facets = tuple[tuple[str, ...], ...]
"""The values of one entity, in the order of ``FIELDS``."""


@dataclass(frozen=True, slots=True)
class IndexRecord:
    """What the index keeps of one graph; ``facets`` in the order of ``FIELDS``."""

    name: str
    type: str
    namespace: str | None
    phase: str | None
    tombstone: bool
    facets: Facets
    words: str


@remembered(16_384)
def token(field: str, value: str) -> str:
    """Return the word that stands for a value of a filter; no text gives such a word, which begins with one of 6,400 private characters."""
    digest = blake2b(f"{field} {value}".encode(), digest_size=8).digest()
    return chr(0xE000 + int.from_bytes(digest[:2]) % 0x1900) + digest[2:].hex()


LIVE = token("live", "")


def same_facts(before: Lines, after: Lines) -> bool:
    """Return whether two states of one graph differ in nothing that is read here: most changes are of a number or a time."""
    return all(rdf.parts(line)[1] not in _READ for line in before ^ after)


def facts_of(lines: Lines, graph: str, id: str, owner: str) -> IndexRecord:
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
    return IndexRecord(
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


@remembered(16_384)  # the same few values again and again: kept once
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


@remembered(16_384)
def _words(text: str) -> tuple[str, ...]:
    return tuple(words(text))


def _told(lines: Lines, entity: str) -> dict[str, list[str]]:
    """Sort the values that matter: about the entity itself, about its parts, and the nodes that its open runs are on."""
    told: dict[str, list[str]] = {"type": []}
    for subject, said in rdf.facts_of(lines).items():
        names = _OF_ENTITY if subject == entity else _PARTS
        for predicate, values in said.items():
            if name := names.get(predicate):
                told.setdefault(name, []).extend([rdf.term(value).value for value in values])
        if _ENDED not in said:
            told.setdefault("node", []).extend([rdf.term(value).value for value in said.get(_SCHEDULED, ())])
    return told


def _wider(kind: str) -> str | None:
    if kind in WORKLOAD_KINDS:
        return "Workload"
    return "Domain" if kind == "GlaciationNode" else None


def _local(value: str) -> str:
    return value.rpartition("#")[2]


def _last(value: str) -> str:
    return value.rpartition("/")[2]
