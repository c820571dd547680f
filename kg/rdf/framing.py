"""Framing: graphs as JSON documents of a shape that the reader chooses (https://www.w3.org/TR/json-ld11-framing/).

Apart from ``kg.rdf.jsonld`` because it alone needs pyld (``kg.rdf.pyld_framer``), which is slow and can be made to work for ever: a frame
that embeds always can unfold a dense graph exponentially. So statements, frames and time are bounded. The frame of each class follows
from what is a part and what is a link (``ontology/frames/entity.jsonld``).
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from difflib import get_close_matches
from importlib.resources import files
from typing import Any, NoReturn

from drumlin.kg.errors import InvalidDocument, ResourceNotFound, TooLarge
from drumlin.kg.rdf.jsonld import CONTEXT_IRI, NodeDocument, context_value, native
from drumlin.kg.rdf.jsonld_loader import MAX_DEPTH, inline, nesting
from drumlin.kg.rdf.syntax import Term, terms
from drumlin.ontology.vocabulary import CLASSES

MAX_LINES = 20_000
"""Statements that may be framed at one time."""

MAX_FRAME_BYTES = 64 * 1024
MAX_SECONDS = 5.0
"""Longer work is given up: pyld frames about 10,000 statements in a second."""

_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_TYPE, _FIRST, _REST, _NIL, _LIST, _JSON = (
    f"{_RDF}{name}" for name in ("type", "first", "rest", "nil", "List", "JSON")
)
_OPAQUE = f"{uuid.uuid4()}:"  # before a JSON literal while pyld has it, which would take nulls out of it
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
    framed = _opened(framed_within(seconds, _expanded(statements), asked))
    return (
        {"@context": context, **{key: value for key, value in framed.items() if key != "@context"}} if ours else framed
    )


_Said = Mapping[str, Mapping[str, Sequence[Term]]]
"""What is said of each node: predicate → objects."""


def _expanded(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Write statements as expanded JSON-LD (pyld's own way from RDF takes time quadratic in them)."""
    said: dict[str, dict[str, list[Term]]] = {}
    for line in sorted(set(lines)):
        subject, predicate, value = terms(line)
        said.setdefault(_name(subject), {}).setdefault(predicate.value, []).append(value)
    lists = _Lists(said)
    return [_node(name, about, lists) for name, about in said.items() if name not in lists.cells]


def _node(name: str, about: Mapping[str, Sequence[Term]], lists: _Lists) -> dict[str, Any]:
    node: dict[str, Any] = {"@id": name}
    for predicate, values in about.items():
        for value in values:
            if predicate == _TYPE and value.kind != "literal":
                node.setdefault("@type", []).append(_name(value))
            else:
                node.setdefault(predicate, []).append(_object(value, lists if predicate != _REST else None))
    return node


class _Lists:
    """The RDF collections among statements that JSON-LD writes as lists: https://www.w3.org/TR/json-ld11-api/#list-conversion.

    A cell is a blank node that one statement leads to, with one item and one rest and nothing else. ``cells`` are the names of them all.
    """

    def __init__(self, said: _Said) -> None:
        self._said = said
        every = [
            (predicate, value) for about in said.values() for predicate, values in about.items() for value in values
        ]
        self._uses = Counter(_name(value) for _, value in every if value.kind == "blank")
        self._items: dict[str, Sequence[Term]] = {_NIL: ()}
        self.cells: set[str] = set()
        for predicate, value in every:
            if value.kind == "blank" and predicate != _REST and (found := self._followed(_name(value))):
                self._items[_name(value)] = [self._said[cell][_FIRST][0] for cell in found]
                self.cells |= found.keys()

    def items(self, head: str) -> Sequence[Term] | None:
        """Return the items of the list that a node is the head of, None for every other node."""
        return self._items.get(head)

    def _followed(self, name: str) -> dict[str, None]:
        """Return the cells from a node to the end of its list, none where they make no list."""
        found: dict[str, None] = {}
        while name != _NIL:
            about = self._said.get(name, {})
            if name in found or self._uses[name] != 1 or not _is_cell(about):
                return {}
            found[name] = None
            name = _name(about[_REST][0])
        return found


def _is_cell(about: Mapping[str, Sequence[Term]]) -> bool:
    if about.keys() - {_TYPE} != {_FIRST, _REST} or any(_name(each) != _LIST for each in about.get(_TYPE, ())):
        return False
    return len(about[_FIRST]) == len(about[_REST]) == 1 and about[_REST][0].kind != "literal"


def _name(term: Term) -> str:
    return f"_:{term.value}" if term.kind == "blank" else term.value


def _object(value: Term, lists: _Lists | None, depth: int = 0) -> dict[str, Any]:
    if value.kind != "literal":
        items = None if lists is None else lists.items(_name(value))
        if items is None:
            return {"@id": _name(value)}
        if depth > MAX_DEPTH:
            raise TooLarge(f"lists are nested more than {MAX_DEPTH} levels deep, the limit of a document")
        return {"@list": [_object(each, lists, depth + 1) for each in items]}
    if value.language:
        return {"@value": value.value, "@language": value.language}
    if value.datatype in (None, _XSD_STRING):
        return {"@value": value.value}
    if value.datatype == _JSON and nesting(value.value.encode()) <= MAX_DEPTH:
        with suppress(ValueError):  # what is no JSON stays a text
            _json(value.value)
            return {"@value": f"{_OPAQUE}{value.value}", "@type": "@json"}
    return {"@value": native(value), "@type": value.datatype}


def _json(text: str) -> Any:
    return json.loads(text, parse_constant=_no_number)


def _opened(framed: Any) -> Any:
    """Return a framed document with the JSON literals in it."""
    if isinstance(framed, dict):
        return {key: _opened(value) for key, value in framed.items()}
    if isinstance(framed, list):
        return [_opened(value) for value in framed]
    is_json = isinstance(framed, str) and framed.startswith(_OPAQUE)
    return _json(framed.removeprefix(_OPAQUE)) if is_json else framed


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")
