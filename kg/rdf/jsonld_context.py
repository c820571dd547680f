"""The project's JSON-LD context, compiled once: the one table of its terms, for reading and for writing documents.

The context is data (``ontology/context.jsonld``). Terms: https://www.w3.org/TR/json-ld11/#dfn-term-definition.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import msgspec

from drumlin.kg.remembering import remembered


@dataclass(frozen=True, slots=True)
class TermDefinition:
    """One term: its predicate, and how its values are read."""

    predicate: str
    coercion: str | None = None  # "@id", "@vocab", a datatype IRI or None
    is_set: bool = False
    reverse: bool = False
    order: int = 0


class CompiledContext:
    """The terms of a context, by name and by predicate. It is shared, so it must not be changed."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self.vocab: str = document["@vocab"]
        self.prefixes = {key: value for key, value in document.items() if isinstance(value, str) and value[-1:] in "#/"}
        self.terms: dict[str, TermDefinition] = {}
        for order, (term, meaning) in enumerate(document.items()):
            if term.startswith("@") or term in self.prefixes or meaning in ("@id", "@type"):
                continue
            self.terms[term] = self._defined(term, {"@id": meaning} if isinstance(meaning, str) else meaning, order)
        self.by_predicate = {(each.predicate, each.reverse): term for term, each in reversed(self.terms.items())}
        self.sets = frozenset(term for term, each in self.terms.items() if each.is_set)
        self.reversed = frozenset(f"<{each.predicate}>" for each in self.terms.values() if each.reverse)
        # The same few names again and again, in every graph that is written.
        self.compact_iri = remembered(4096)(self._compact_iri)
        self.vocabulary_name = remembered(4096)(self._vocabulary_name)
        self.term_of = remembered(4096)(self._term_of)
        self._known_order = lru_cache(1024)(self._ordered)

    def _defined(self, term: str, meaning: Mapping[str, Any], order: int) -> TermDefinition:
        reverse = "@reverse" in meaning
        predicate = self.expand(meaning.get("@reverse") or meaning.get("@id") or term)
        coercion = meaning.get("@type")
        if coercion is not None and not coercion.startswith("@"):
            coercion = self.expand(coercion)
        return TermDefinition(predicate, coercion, meaning.get("@container") == "@set", reverse, order)

    def expand(self, name: str) -> str:
        """Expand a compact IRI or a vocabulary-relative name."""
        prefix, colon, local = name.partition(":")
        if colon:
            return self.prefixes[prefix] + local if prefix in self.prefixes else name
        return self.vocab + name

    def definition(self, term: str) -> TermDefinition:
        """Return a term's definition; a name that is not a term is relative to the vocabulary."""
        return self.terms.get(term) or TermDefinition(self.expand(term))

    def _term_of(self, predicate: str) -> tuple[str, str | None]:
        """Return the term that a predicate (``<…>``) is written as, and the coercion of its values."""
        name = predicate[1:-1]
        if term := self.by_predicate.get((name, False)):
            return term, self.terms[term].coercion
        return self.compact_iri(name) if name.startswith(self.vocab) else name, None

    def order(self, terms: Iterable[str]) -> Sequence[tuple[str, str, bool]]:
        """Put terms into the context's order, names first among those that it does not have.

        Returns each with the text that begins its member of an object, and whether its values are a list even when there is one.
        """
        given = tuple(terms)
        return self._known_order(given) if len(given) <= _USUAL else self._ordered(given)

    def _ordered(self, terms: tuple[str, ...]) -> Sequence[tuple[str, str, bool]]:
        ordered = sorted(terms, key=lambda term: (term != "type", self.definition(term).order, term != "name", term))
        return [(term, f"{json_text(term)}:", term in self.sets) for term in ordered]

    def _vocabulary_name(self, iri: str) -> str:
        """Write the value of a term of type ``@vocab``: without the vocabulary's IRI where that means the same."""
        short = self.compact_iri(iri)
        return short if self.expand(short) == iri and ":" not in short else iri

    def _compact_iri(self, iri: str) -> str:
        """Write a predicate or class as shortly as the context allows without changing its meaning."""
        if iri.startswith(self.vocab):
            local = iri[len(self.vocab) :]
            taken = self.terms.get(local)
            if local and (taken is None or taken.predicate == iri) and local not in self.prefixes and ":" not in local:
                return local
        for prefix, namespace in self.prefixes.items():
            if iri.startswith(namespace) and not iri[len(namespace) :].startswith("//"):
                return f"{prefix}:{iri[len(namespace) :]}"
        return iri


_USUAL = 64  # terms of one node


@cache
def compiled() -> CompiledContext:
    """Return the context of the project."""
    return CompiledContext(json.loads(files("drumlin.ontology").joinpath("context.jsonld").read_bytes())["@context"])


def json_text(value: Any) -> str:
    """Write a value as JSON."""
    return msgspec.json.encode(value).decode()
