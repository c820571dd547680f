"""What narrows a request is held against the vocabulary: a class that is none would find nothing, and say nothing of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from drumlin.api.bootstrap import Services
from drumlin.kg.errors import InvalidInput
from drumlin.kg.model.kind_names import kind_named
from drumlin.kg.search.query import SearchQuery
from drumlin.ontology.vocabulary import CLASSES, PHASES, QUANTITIES

_CLOSED = {"type": CLASSES, "phase": PHASES, "quantity": QUANTITIES}


def check(service: Services, filters: Mapping[str, Iterable[str]]) -> None:
    """Raise ``InvalidInput`` for a type, phase or quantity that stands neither in the vocabulary nor in the graph.

    In the graph may be classes of other vocabularies.
    """
    for name, known in _CLOSED.items():
        for value in filters.get(name, ()):
            if value not in known and not _occurs(service, name, value):
                raise _none(name, value, known)


def _occurs(service: Services, name: str, value: str) -> bool:
    question = SearchQuery(filters={name: [value]}, tombstones=True, sort="id", limit=1)
    return bool(service.search.find(question).items)


def _none(name: str, value: str, known: frozenset[str]) -> InvalidInput:
    written = {each.lower(): each for each in sorted(known)}
    kind = kind_named(value[:64]) if name == "type" else None  # deploy, pvc: as kubectl has them
    close = [kind.entity.lower()] if kind else get_close_matches(value[:64].lower(), written, n=1)
    hint = f"did you mean {written[close[0]]}?" if close else f"it is one of {', '.join(sorted(known))}"
    return InvalidInput(f"there is no {name} {value[:64]!r}", hint=hint, detail={"offered": sorted(known)})
