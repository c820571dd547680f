"""JSON-LD documents that hold JSON literals: their contexts are replaced, what stands inside a literal is left as it is.

A JSON literal is opaque (https://www.w3.org/TR/json-ld11/#json-literals), so a key ``@context`` in one means nothing. Which values
are literals follows from the contexts: by an alias of ``@type`` or ``@json``, by a term that is coerced to ``@json``, in a context that a
property or a type brings along. This follows the expansion algorithm (https://www.w3.org/TR/json-ld11-api/#expansion-algorithm) as far
as that needs: no IRI is expanded. Where a document is invalid the engine refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_ALIASES = 32  # steps from a name to the keyword that it stands for
_NO_CONTEXT = object()


@dataclass(frozen=True, slots=True)
class _Term:
    """A term's definition: the keyword that it stands for, whether its values are JSON literals, its own context, its containers."""

    keyword: str | None = None
    is_json: bool = False
    context: Any = _NO_CONTEXT
    containers: frozenset[str] = frozenset()


_UNKNOWN = _Term()


@dataclass(frozen=True, slots=True, eq=False)
class _ActiveContext:
    """An active context: the terms that one value of ``@context`` defines, above those of another one."""

    terms: Mapping[str, _Term]
    below: _ActiveContext | None = None
    previous: _ActiveContext | None = None
    """The one that nodes further in have again, where this is not propagated."""

    def term(self, name: str) -> _Term:
        """Return the definition of a term; one without any meaning when there is none."""
        context: _ActiveContext | None = self
        while context is not None:
            if (found := context.terms.get(name)) is not None:
                return found
            context = context.below
        return _UNKNOWN

    def keyword(self, name: Any) -> str | None:
        """Return the keyword that a key or a type stands for."""
        if not isinstance(name, str):
            return None
        return name if name.startswith("@") else self.term(name).keyword


def replaced(document: Any, replace: Callable[[Any], Any]) -> Any:
    """Return a document with ``replace`` done on each value of ``@context`` that is one."""
    return _Walk(replace).value(document, _ActiveContext({}), _UNKNOWN)


class _Walk:
    def __init__(self, replace: Callable[[Any], Any]) -> None:
        self._replace = replace
        self._made: dict[
            tuple[int, int, bool], tuple[_ActiveContext, Any, _ActiveContext]
        ] = {}  # by its sources, which it keeps alive

    def value(self, value: Any, active: _ActiveContext, term: _Term, *, reverts: bool = True) -> Any:
        """Replace the contexts in a value of ``term``; ``reverts``: a context that is not propagated ends here."""
        if isinstance(value, list):
            return [self.value(each, active, term, reverts=reverts) for each in value]
        if not isinstance(value, dict):
            return value
        if reverts and active.previous is not None and not _stays(value, active):
            active = active.previous
        if term.context is not _NO_CONTEXT:
            active = self._extended(active, term.context)
        found = dict(value)
        if "@context" in value:
            found["@context"] = self._replace(value["@context"])
            active = self._extended(active, found["@context"])
        active, is_json = self._typed(value, active)
        for key, each in value.items():
            if key != "@context" and not (is_json and active.keyword(key) == "@value"):
                found[key] = self._entry(key, each, active, term)
        return found

    def _typed(self, value: Mapping[str, Any], active: _ActiveContext) -> tuple[_ActiveContext, bool]:
        """Return the context with those that the types of an object bring along, and whether it is a JSON literal."""
        scope = active
        last: Any = None
        for key in sorted(key for key in value if scope.keyword(key) == "@type"):
            types = value[key] if isinstance(value[key], list) else [value[key]]
            last = last if last is not None or not types else types[-1]
            for each in sorted(each for each in types if isinstance(each, str)):
                if (context := scope.term(each).context) is not _NO_CONTEXT:
                    active = self._extended(active, context, propagate=False)
        return active, active.keyword(last) == "@json"

    def _entry(self, key: str, value: Any, active: _ActiveContext, term: _Term) -> Any:
        """Replace the contexts in the value of one key of an object, which is itself a value of ``term``."""
        keyword = active.keyword(key)
        if keyword in ("@list", "@set"):
            return self.value(value, active, term)
        own = active.term(key)
        if keyword is not None:
            return self.value(value, active, own, reverts=keyword != "@nest")
        if own.is_json:
            return value
        if isinstance(value, dict) and own.containers & {"@index", "@id", "@type"}:
            return {index: self._indexed(index, each, active, own) for index, each in value.items()}
        if isinstance(value, dict) and "@language" in own.containers:
            return value
        return self.value(value, active, own)

    def _indexed(self, index: str, value: Any, active: _ActiveContext, term: _Term) -> Any:
        """Replace the contexts in one value of a map."""
        if term.containers & {"@id", "@type"} and active.previous is not None:
            active = active.previous
        if "@type" in term.containers and (context := active.term(index).context) is not _NO_CONTEXT:
            active = self._extended(active, context)
        return self.value(value, active, term, reverts=False)

    # -- contexts -----------------------------------------------------------------------------------------------------
    def _extended(self, active: _ActiveContext, local: Any, *, propagate: bool = True) -> _ActiveContext:
        """Return ``active`` with a value of ``@context`` processed, which names no other document any more."""
        made = self._made.get((id(active), id(local), propagate))
        if made is None:
            made = active, local, _processed(active, local, propagate=propagate)
            self._made[id(active), id(local), propagate] = made
        return made[2]


def _stays(value: Mapping[str, Any], active: _ActiveContext) -> bool:
    """Return whether an object is a value or a reference, which is read in the context of the node around it."""
    keywords = [active.keyword(key) for key in value]
    return "@value" in keywords or keywords == ["@id"]


def _processed(active: _ActiveContext, local: Any, *, propagate: bool) -> _ActiveContext:
    terms: dict[str, _Term] = {}
    below: _ActiveContext | None = active
    previous = active.previous
    for context in local if isinstance(local, list) else [local]:
        if context is None:
            terms, below, previous = {}, None, None if propagate else active
        elif isinstance(context, dict):
            if context.get("@propagate", propagate) is False:
                previous = previous or active
            terms |= dict(_defined(context, _ActiveContext(terms, below)))
    return _ActiveContext(terms, below, previous)


def _defined(context: Mapping[str, Any], active: _ActiveContext) -> Iterator[tuple[str, _Term]]:
    for name, meaning in context.items():
        if name.startswith("@"):
            continue
        if isinstance(meaning, dict):
            containers = meaning.get("@container")
            listed = containers if isinstance(containers, list) else [containers]
            yield (
                name,
                _Term(
                    _keyword(meaning.get("@id"), context, active),
                    _keyword(meaning.get("@type"), context, active) == "@json",
                    meaning.get("@context", _NO_CONTEXT),
                    frozenset(each for each in listed if isinstance(each, str)),
                ),
            )
        else:
            yield name, _Term(_keyword(meaning, context, active))


def _keyword(name: Any, context: Mapping[str, Any], active: _ActiveContext) -> str | None:
    """Return the keyword that a name stands for in a context that is being defined."""
    for _ in range(_ALIASES):
        if not isinstance(name, str) or name.startswith("@"):
            return name if isinstance(name, str) else None
        if name not in context:
            return active.term(name).keyword
        meaning = context[name]
        name = meaning.get("@id") if isinstance(meaning, dict) else meaning
    return None
