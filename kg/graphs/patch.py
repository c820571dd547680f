"""Partial changes of one graph: JSON merge-patch (RFC 7396) on its compacted document, and ground SPARQL Update.

What they break is found when the whole is validated, like any other write.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from drumlin.kg.errors import InvalidDocument, QueryRejected
from drumlin.kg.parsers import HERE, Parsers
from drumlin.kg.rdf import jsonld, jsonld_loader
from drumlin.kg.rdf.syntax import Lines, parts
from drumlin.kg.sparql import gate
from drumlin.kg.sparql.lexer import Token, rejected, tokens

MERGE_PATCH = "application/merge-patch+json"
SPARQL_UPDATE = "application/sparql-update"
MEDIA_TYPES = (MERGE_PATCH, SPARQL_UPDATE)


def merge(document: Any, patch: Any) -> Any:
    """Apply a merge-patch: null removes a key, an object is merged, everything else (arrays too) replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def merged(lines: Lines, graph: str, patch: bytes, served: str = jsonld.CONTEXT_IRI) -> bytes:
    """Return the compacted document of ``graph`` after a merge-patch; raises ``InvalidDocument`` and ``TooLarge``.

    ``served`` is the address of our context (``Iris.context``), which the patch may name.
    """
    checked = json.loads(jsonld_loader.inline(patch, served=served))
    if not isinstance(checked, dict):
        raise InvalidDocument("a merge-patch of a graph is a JSON object", hint='for example {"phase": "Running"}')
    if checked.pop("@context") not in (jsonld.context_value(), [jsonld.context_value()]):
        raise InvalidDocument("a merge-patch is written in the project's context", hint="leave @context out")
    if checked.get("id", graph) != graph:
        raise InvalidDocument("a patch cannot change the id of an entity", hint="create another, then delete this one")
    return msgspec.json.encode(merge(jsonld.compact(lines, graph), checked))


def updated(
    lines: Lines, graph: str, text: str, *, max_bytes: int = jsonld_loader.MAX_BYTES, parsers: Parsers = HERE
) -> Lines:
    """Apply ``INSERT DATA`` and ``DELETE DATA`` operations, in order, to ``graph``: its triples, or quads of that graph only.

    Raises ``QueryRejected`` for any other operation or a syntax error, ``InvalidDocument`` for another graph.
    """
    gate.check(text, max_bytes=max_bytes, expect="update")
    for operation in _operations(text):
        stated = parsers.ground(f"{operation.prologue}\n", operation.block, graph)
        if other := next((name for name in stated if name not in (None, graph)), None):
            raise InvalidDocument(f"the patch has statements in the graph {other}; this one is {graph}")
        found = stated.get(None, frozenset()) | stated.get(graph, frozenset())
        if operation.inserts:
            lines = lines | found
        elif any(term.startswith("_:") for line in found for term in parts(line)):
            raise InvalidDocument("DELETE DATA cannot name a blank node", hint="name each node by its id")
        else:
            lines = lines - found
    return lines


class _Operation(NamedTuple):
    inserts: bool
    prologue: str
    block: str


def _operations(text: str) -> Iterator[_Operation]:
    """Cut an update that passed the gate into its operations, each with every prefix declared before it."""
    stream = tokens(text)
    prologue = ""
    begin = 0
    for token in stream:
        if token.text == ";":
            begin = token.start + 1
            continue
        if token.text not in ("INSERT", "DELETE"):
            if token.kind == "word" and token.text not in ("BASE", "PREFIX", "VERSION"):
                raise _not_ground(text, token)
            continue
        prologue += text[begin : token.start]
        data = next(stream, token)
        if data.text != "DATA":
            raise _not_ground(text, token)
        end = _closing(stream)
        yield _Operation(token.text == "INSERT", prologue, text[data.start + 4 : end])
        begin = end


def _closing(stream: Iterator[Token]) -> int:
    depth = 0
    end = 0
    for token in stream:
        if token.kind == "sign":
            depth += (token.text == "{") - (token.text == "}")
        end = token.start + len(token.text)
        if not depth:
            break
    return end


def _not_ground(text: str, token: Token) -> QueryRejected:
    return rejected(
        "a patch takes only INSERT DATA and DELETE DATA",
        text,
        token.start,
        token.text,
        reason="forbidden",
        hint="use /sparql/update for other updates",
    )
