"""What remains of a deleted entity: its graph reduced to who it was and when it ran, so that the past still resolves.

Apart from ``subgraphs`` because both deleters need it: the exporters' pipeline (gone at the source) and the REST API
(deleted by a user). The shape is the contract's ``graphs/tombstone.jsonld``.
"""

from __future__ import annotations

from collections.abc import Container
from datetime import UTC, datetime

from drumlin.kg.rdf.jsonld import NAMESPACE
from drumlin.kg.rdf.syntax import Lines, Values, facts_of, lines_of
from drumlin.ontology.vocabulary import ENTITY_CLASSES

_TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
_TOMBSTONE = f"<{NAMESPACE}Tombstone>"
_RUN_OF = f"<{NAMESPACE}runOf>"
_PARTS_OF_RUNS = (f"<{NAMESPACE}transition>", f"<{NAMESPACE}containerRun>")
_OUTCOME = f"<{NAMESPACE}outcome>"
_FORMER_TYPE = f"<{NAMESPACE}formerType>"
_ENDED = "<http://www.w3.org/ns/prov#endedAtTime>"
_INVALIDATED = "<http://www.w3.org/ns/prov#invalidatedAtTime>"
_DATE_TIME = "http://www.w3.org/2001/XMLSchema#dateTime"
_FORMER = frozenset(f"<{NAMESPACE}{name}>" for name in ENTITY_CLASSES)
# Where it stood, and whose it was; everything else about it ended with it.
KEPT = ("name", "namespace", "cluster", "managedBy", "applicationGroup", "label")
"""The properties that a tombstone keeps, as terms of the context."""
_KEPT = frozenset(f"<{NAMESPACE}{name}>" for name in KEPT)


def is_tombstone(lines: Container[str], graph: str) -> bool:
    """Return whether ``lines``, or the stored graph that has them, are the graph of a deleted entity."""
    return f"<{graph}> {_TYPE} {_TOMBSTONE} ." in lines


def tombstone(lines: Lines, graph: str, at: datetime) -> Lines | None:
    """Reduce the graph of an entity to its tombstone; ``at`` (aware) is when it was deleted.

    None when the graph states no class of an entity, as notes do: nothing is left of it.

    Kept are ``KEPT``, the former class, and its runs with all their statements, transitions and restarts. A run
    that is still open ends at ``at`` with outcome Deleted; a run that ended before keeps its end and its outcome. A
    tombstone stays as it is, so deleting twice changes nothing.
    """
    if is_tombstone(lines, graph):
        return lines
    facts, entity, moment = facts_of(lines), f"<{graph}>", f'"{_text(at)}"^^<{_DATE_TIME}>'
    own = facts.get(entity, {})
    former = [kind for kind in own.get(_TYPE, ()) if kind in _FORMER]
    if not former:
        return None
    remains = {predicate: values for predicate, values in own.items() if predicate in _KEPT}
    remains |= {_TYPE: [_TOMBSTONE], _FORMER_TYPE: former, _INVALIDATED: [moment]}
    runs = {subject: _ended(said, moment) for subject, said in facts.items() if entity in said.get(_RUN_OF, ())}
    parts = {each for said in runs.values() for part in _PARTS_OF_RUNS for each in said.get(part, ())}
    runs |= {subject: said for subject, said in facts.items() if subject in parts}
    return lines_of(runs | {entity: remains})


def _ended(run: Values, moment: str) -> Values:
    return run if _ENDED in run else {**run, _ENDED: [moment], _OUTCOME: [f"<{NAMESPACE}Deleted>"]}


def _text(at: datetime) -> str:
    """Write a moment in the form that the engine keeps: UTC, no zeros at the end of the fraction."""
    text = at.astimezone(UTC).isoformat().removesuffix("+00:00")
    return (text.rstrip("0") if "." in text else text) + "Z"
