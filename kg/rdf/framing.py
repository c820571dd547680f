"""Framing: graphs as JSON documents of a shape that the reader chooses (https://www.w3.org/TR/json-ld11-framing/).

Apart from ``kg.rdf.jsonld`` because it alone needs pyld (``kg.rdf.pyld_framer``), which is slow and can be made to work for ever: a frame
that embeds always can unfold a dense graph exponentially. So statements, frames and time are bounded. The frame of each class follows
from what is a part and what is a link (``ontology/frames/entity.jsonld``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from copy import deepcopy
from difflib import get_close_matches
from importlib.resources import files
from typing import Any

from drumlin.kg.errors import InvalidDocument, ResourceNotFound, TooLarge
from drumlin.kg.rdf.jsonld import CONTEXT_IRI, NodeDocument, context_value, native
from drumlin.kg.rdf.jsonld_loader import inline
from drumlin.kg.rdf.syntax import Term, terms
from drumlin.ontology.vocabulary import CLASSES

MAX_LINES = 20_000
"""Statements that may be framed at one time."""

MAX_FRAME_BYTES = 64 * 1024
MAX_SECONDS = 5.0
"""Longer work is given up: pyld frames about 10,000 statements in a second."""

_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
_XSD_STRING = "http://www.w3.org/2001/XMLSchema#string"


def frame_of(kind: str) -> NodeDocument:
    """Return the frame of a class (``Deployment``); raises ``ResourceNotFound`` with what may have been meant.

    Parts (containers, runs, telemetry down to its datasources) are nested; whatever else is linked stays a link, also
    when it is among the statements.
    """
    if kind not in CLASSES:
        close = get_close_matches(kind[:64], CLASSES, n=1)
        raise ResourceNotFound(
            f"there is no frame for {kind[:64]!r}", hint=f"did you mean {close[0]}?" if close else None
        )
    links = (
        key for key, meaning in context_value().items() if isinstance(meaning, dict) and meaning.get("@type") == "@id"
    )
    parts = json.loads(files("drumlin.ontology").joinpath("frames", "entity.jsonld").read_bytes())
    return {**{key: {"@embed": "@never", "@omitDefault": True} for key in links}, **parts, "type": kind}


def read_frame(data: bytes, served: str = CONTEXT_IRI) -> NodeDocument:
    """Read a caller's frame: bounded, with our context where it names none or its address (``served``), and no remote one.

    Raises ``TooLarge`` and ``InvalidDocument``.
    """
    frame = json.loads(inline(data, served=served, max_bytes=MAX_FRAME_BYTES))
    if not isinstance(frame, dict):
        raise InvalidDocument("a frame is a JSON object")
    return frame


def frame(
    lines: Iterable[str], wanted: NodeDocument, *, context: Any = CONTEXT_IRI, seconds: float = MAX_SECONDS
) -> dict[str, Any]:
    """Return the things among ``lines`` that match the frame ``wanted``, each as the frame asks; blocks up to ``seconds``.

    ``lines`` may be those of several graphs. One match is the document itself, several stand under ``@graph``. The document's
    ``@context`` is ``context`` where the frame is written in ours, else the frame's own, whole.

    Raises ``TooLarge`` when there are more than ``MAX_LINES`` or it takes longer, ``InvalidDocument`` when the frame is not one.
    """
    from drumlin.kg.rdf.pyld_framer import framed_within

    statements = list(lines)
    if len(statements) > MAX_LINES:
        raise TooLarge(f"{len(statements):,} statements are too many to frame; the limit is {MAX_LINES:,}")
    ours = wanted.get("@context", CONTEXT_IRI) in (CONTEXT_IRI, context_value())
    asked = {**deepcopy(dict(wanted)), **({"@context": context_value()} if ours else {})}
    framed = framed_within(seconds, _expanded(statements), asked)
    return (
        {"@context": context, **{key: value for key, value in framed.items() if key != "@context"}} if ours else framed
    )


def _expanded(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Write statements as expanded JSON-LD (pyld's own way from RDF takes time quadratic in them)."""
    nodes: dict[str, dict[str, Any]] = {}
    for line in sorted(set(lines)):
        subject, predicate, value = terms(line)
        node = nodes.setdefault(_name(subject), {"@id": _name(subject)})
        if predicate.value == _TYPE and value.kind != "literal":
            node.setdefault("@type", []).append(_name(value))
        else:
            node.setdefault(predicate.value, []).append(_object(value))
    return list(nodes.values())


def _name(term: Term) -> str:
    return f"_:{term.value}" if term.kind == "blank" else term.value


def _object(value: Term) -> dict[str, Any]:
    if value.kind != "literal":
        return {"@id": _name(value)}
    if value.language:
        return {"@value": value.value, "@language": value.language}
    if value.datatype in (None, _XSD_STRING):
        return {"@value": value.value}
    return {"@value": native(value), "@type": value.datatype}
