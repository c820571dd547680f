"""What remains of a deleted entity: its graph reduced to who it was and when it ran, so that the past still resolves.

Apart from ``subgraphs`` because both deleters need it: the exporters' pipeline (gone at the source) and the REST API
(deleted by a user). The shape is the contract's ``graphs/tombstone.jsonld``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container
from datetime import UTC, datetime

from kg.jsonld import NAMESPACE
from kg.rdf import Lines

_TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
_TOMBSTONE = f"<{NAMESPACE}Tombstone>"
_RUN_OF = f"<{NAMESPACE}runOf>"
_OUTCOME = f"<{NAMESPACE}outcome>"
_ENDED = "<http://www.w3.org/ns/prov#endedAtTime>"
_INVALIDATED = "<http://www.w3.org/ns/prov#invalidatedAtTime>"
_DATE_TIME = "http://www.w3.org/2001/XMLSchema#dateTime"
# Where it stood; everything else about it ended with it.
_KEPT = frozenset(f"<{NAMESPACE}{name}>" for name in ("name", "namespace", "cluster", "managedBy"))


def is_tombstone(lines: Container[str], graph: str) -> bool:
    """Tell whether ``lines``, or the stored graph that has them, are the graph of a deleted entity."""
    return f"<{graph}> {_TYPE} {_TOMBSTONE} ." in lines


def tombstone(lines: Lines, graph: str, at: datetime) -> Lines:
    """Reduce the graph of an entity to its tombstone; ``at`` (aware) is when it was deleted.

    Kept are name, namespace, cluster and manager, the former class, and its runs with all their statements. A run
    that is still open ends at ``at`` with outcome Deleted; a run that ended before keeps its end and its outcome. A
    tombstone stays as it is, so deleting twice changes nothing.
    """
    if is_tombstone(lines, graph):
        return lines
    statements: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for line in lines:
        subject, predicate, value = line.split(" ", 2)
        statements[subject].append((predicate, value[:-2]))
    entity, moment = f"<{graph}>", f'"{_text(at)}"^^<{_DATE_TIME}>'
    kept = {f"{entity} {_TYPE} {_TOMBSTONE} .", f"{entity} {_INVALIDATED} {moment} ."}
    for predicate, value in statements[entity]:
        if predicate in _KEPT:
            kept.add(f"{entity} {predicate} {value} .")
        elif predicate == _TYPE:
            kept.add(f"{entity} <{NAMESPACE}formerType> {value} .")
    for subject, facts in statements.items():
        if (_RUN_OF, entity) in facts:
            kept.update(f"{subject} {predicate} {value} ." for predicate, value in _ended(facts, moment))
    return frozenset(kept)


def _ended(facts: list[tuple[str, str]], moment: str) -> list[tuple[str, str]]:
    if any(predicate == _ENDED for predicate, _ in facts):
        return facts
    known = [fact for fact in facts if fact[0] != _OUTCOME]
    return [*known, (_ENDED, moment), (_OUTCOME, f"<{NAMESPACE}Deleted>")]


def _text(at: datetime) -> str:
    """Write a moment in the form that the engine keeps: UTC, no zeros at the end of the fraction."""
    text = at.astimezone(UTC).isoformat().removesuffix("+00:00")
    return (text.rstrip("0") if "." in text else text) + "Z"
