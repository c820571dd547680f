"""What differs between engines that speak SPARQL 1.1: what each can do, and how a text must be put so that it does it.

Two are proven in the tests: Oxigraph's own server and Virtuoso. The facts behind the rules here stand in ``docs/remote-stores.md``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from drumlin.kg.errors import CapabilityMissing, InvalidDocument
from drumlin.kg.rdf.syntax import Lines
from drumlin.kg.sparql.dataset import Chosen
from drumlin.kg.sparql.from_clauses import from_clauses
from drumlin.kg.sparql.lexer import Token, tokens

RESERVED = "urn:drumlin:"
"""Graphs and datatypes below this are Drumlin's own; queries over all graphs do not see them."""
NOTHING = RESERVED + "nothing"
"""A graph that never exists: an empty choice of graphs is spelled so, as the protocol knows none."""
BOOKS = RESERVED + "books"
LOG = RESERVED + "log"


class Capability(Enum):
    """What the ``Store`` protocol promises and an engine may be unable to do. The value says what happens without it."""

    ISOLATION = (
        "while a write runs, a query may see some of its graphs and not yet others; a graph itself is read whole"
    )
    EXACT_LITERALS = (
        "values that the engine would change are kept under a datatype of Drumlin's own; filters do not see their value"
    )
    UNLIMITED_ROWS = "an answer of more rows than the engine gives is refused, and so is a graph of more statements"
    BLANK_NODES = "a graph with blank nodes is refused: the protocol cannot name one twice"
    FSYNC = "an acknowledged write survives the loss of the engine's process, not surely that of its machine"
    CHECKPOINT = (
        "an update with several WHERE parts, or with one after other operations, is refused, and so are backup, check and"
        " optimize: they need a copy of the quads"
    )
    SNAPSHOT = "an export waits for running writes and holds new ones back until it has read everything"


@dataclass(frozen=True, slots=True)
class RemoteEngine:
    """One engine's habits. ``rows`` is the most rows it answers, ``statements`` the most that one operation may hold (None: any).

    ``acknowledges`` is the media type of its answer to an update that is done (None: it has no content).
    """

    name: str
    lacks: frozenset[Capability]
    query_path: str
    update_path: str
    rows: int | None
    statements: int | None
    default_graph_is_union: bool
    scheme: str = "basic"
    acknowledges: str | None = None

    def has_done(self, media_type: str, content: bytes) -> bool:
        """Return whether a successful answer to an update is the engine's own; anything else may be a page of a proxy."""
        return media_type.startswith(self.acknowledges) if self.acknowledges else not content

    def lacking(self, capability: Capability, what: str) -> CapabilityMissing:
        """Make the error for what this engine cannot do."""
        return CapabilityMissing(
            f"{self.name} {what}",
            hint="see docs/remote-stores.md; the embedded store has no such limit",
            detail={"capability": capability.name, "engine": self.name},
        )

    def stored(self, lines: Lines) -> Lines:
        """Return the statements as this engine is given them."""
        return _exact(lines) if Capability.EXACT_LITERALS in self.lacks else lines

    def put(self, chosen: Chosen, base: str | None) -> tuple[str, Mapping[str, list[str]]]:
        """Put a query so that it reads the graphs chosen for it: the text, and the parameters to send with it."""
        text, given = chosen.text, dict[str, list[str]]()
        head = f"BASE <{base}> " if base else ""
        if self.default_graph_is_union and not chosen.union:
            text, chosen = _without_from(text), _spelled_out(chosen, base)
        if chosen.default is not None or chosen.named is not None:
            given["default-graph-uri"] = list(chosen.default or (NOTHING,))
            given["named-graph-uri"] = list(chosen.named or (NOTHING,))
        if self.default_graph_is_union:
            return _CBD + (_HIDDEN if chosen.union else "") + head + text, given
        return head + without_reserved(text), given


_VIRTUOSOS_OWN = (
    "http://www.openlinksw.com/schemas/virtrdf#",
    "http://www.w3.org/ns/ldp#",
    "http://localuriqaserver/sparql",
    "http://www.w3.org/2002/07/owl#",
    "urn:activitystreams-owl:map",
    "urn:core:services:sparql",
)

OXIGRAPH = RemoteEngine(
    name="Oxigraph",
    lacks=frozenset({Capability.BLANK_NODES, Capability.FSYNC, Capability.CHECKPOINT, Capability.SNAPSHOT}),
    query_path="/query",
    update_path="/update",
    rows=None,
    statements=None,
    default_graph_is_union=False,
)
VIRTUOSO = RemoteEngine(
    name="Virtuoso",
    lacks=frozenset(Capability),
    query_path="/sparql-auth",
    update_path="/sparql-auth",
    rows=10_000,
    statements=1000,
    default_graph_is_union=True,
    scheme="digest",
    acknowledges="application/sparql-results+xml",
)
ENGINES: Mapping[str, RemoteEngine] = {"oxigraph": OXIGRAPH, "virtuoso": VIRTUOSO}


# -- queries --------------------------------------------------------------------------------------------------------------


def without_reserved(query: str) -> str:
    """Make ``GRAPH ?g {…}`` pass over our own graphs, by a filter around it; all else stays as it is, on the same lines.

    ``GRAPH ?g {P}`` and ``{ GRAPH ?g {P} FILTER(…) }`` stand in the same places of the grammar, and binding ?g is what the first
    does, so the filter can see it.
    """
    found = list(tokens(query))
    edits: list[tuple[int, str]] = []
    for at, token in enumerate(found[:-2]):
        if token.text == "GRAPH" and token.kind == "word" and found[at + 1].kind == "variable":
            variable = found[at + 1].text
            end = _closing(found, at + 2)
            edits.append((token.start, "{ "))
            edits.append((end + 1, f' FILTER(!BOUND({variable}) || !STRSTARTS(STR({variable}), "{RESERVED}")) }}'))
    for position, text in sorted(edits, reverse=True):
        query = query[:position] + text + query[position:]
    return query


def _closing(found: list[Token], at: int) -> int:
    """Return where the brace that opens at token ``at`` is closed; the gate has made sure that it is."""
    depth = 0
    for token in found[at:]:
        if token.kind == "sign" and token.text in ("{", "}"):
            depth += 1 if token.text == "{" else -1
            if depth == 0:
                return token.start
    raise ValueError("a brace is not closed")


def _spelled_out(chosen: Chosen, base: str | None) -> Chosen:
    """List the graphs of a query's FROM clauses; Virtuoso adds those to the protocol's, and without FROM NAMED shows all as named."""
    if chosen.default is not None or chosen.named is not None:
        return chosen
    default, named = from_clauses(chosen.text, base)
    return Chosen(chosen.text, union=False, default=default, named=named)


def _without_from(query: str) -> str:
    """Blank the FROM clauses out; lines stay where they are."""
    found = list(tokens(query))
    end = next((at for at, token in enumerate(found) if token.text == "{"), 0)
    for at in range(end - 1, -1, -1):
        if found[at].kind == "word" and found[at].text == "FROM":
            graph = found[at + 1 + (found[at + 1].text == "NAMED")]
            begin, stop = found[at].start, graph.start + len(graph.text)
            query = query[:begin] + re.sub(r"[^\r\n]", " ", query[begin:stop]) + query[stop:]
    return query


_HIDDEN = "".join(
    f"define input:{kind}-graph-exclude <{graph}> "
    for graph in (BOOKS, LOG, *_VIRTUOSOS_OWN)
    for kind in ("default", "named")
)
"""Virtuoso reads every graph it has, its own too, unless a query names graphs."""
_CBD = 'define sql:describe-mode "CBD" '  # its usual DESCRIBE finds nothing


# -- literals -------------------------------------------------------------------------------------------------------------

_XSD = "http://www.w3.org/2001/XMLSchema#"
_OURS = RESERVED + "xsd:"
_TYPED = re.compile(rf'\A(\S+ \S+) ("(?:[^"\\]|\\.)*+")\^\^<{re.escape(_XSD)}([A-Za-z]+)> \.\Z', re.DOTALL)
_NUMBERS = frozenset({"integer", "decimal", "boolean"})
_KEPT: Mapping[str, Callable[[str], object]] = {
    "integer": re.compile(r'"-?(?:0|[1-9][0-9]{0,17})"').fullmatch,
    "decimal": re.compile(r'"(?=.{1,17}\Z)-?(?:0|[1-9][0-9]*)(?:\.[0-9]*[1-9])?"').fullmatch,
    "boolean": re.compile(r'"(?:true|false)"').fullmatch,
    "dateTime": re.compile(r'"[12][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"').fullmatch,
}
_LANGUAGE = re.compile(r'"@[a-z]{1,8}(?:-[a-z0-9]{1,8})* \.\Z')


def _exact(lines: Lines) -> Lines:
    """Move literals that Virtuoso would change or merge to a datatype that it does not know, where it keeps them as they are.

    It rewrites durations (300.0 for PT5M), long numbers and most other types, and takes 1, 1.0 and true for one value of a
    property. ``given_back`` is the way back.
    """
    typed = {line: match for line in lines if f"^^<{_XSD}" in line and (match := _TYPED.fullmatch(line))}
    numbers: dict[str, int] = {}
    for match in typed.values():
        numbers[match[1]] = numbers.get(match[1], 0) + (match[3] in _NUMBERS)
    moved: dict[str, str] = {}
    for line, (subject, literal, name) in ((line, match.groups()) for line, match in typed.items()):
        kept = _KEPT.get(name)
        if kept is None or not kept(literal) or (name in _NUMBERS and numbers[subject] > 1):
            moved[line] = f"{subject} {literal}^^<{_OURS}{name}> ."
    for line in lines:
        if '"@' in line and not line.endswith(("> .", '" .')) and not _LANGUAGE.search(line):
            raise InvalidDocument("Virtuoso cannot keep a text with this language tag", hint="use a tag such as de-at")
    return (lines - moved.keys()) | frozenset(moved.values()) if moved else lines


_IN_JSON = (
    (f'"datatype": "{_OURS}'.encode(), f'"datatype": "{_XSD}'.encode()),
    (f'"{_XSD}boolean", "value": "1"'.encode(), f'"{_XSD}boolean", "value": "true"'.encode()),
    (f'"{_XSD}boolean", "value": "0"'.encode(), f'"{_XSD}boolean", "value": "false"'.encode()),
)


def given_back(answer: bytes) -> bytes:
    """Undo ``RemoteEngine.stored`` in a JSON answer of Virtuoso, which also writes booleans as numbers there.

    What is looked for holds quotes, and these stand escaped inside a string: so it is found between terms only.
    """
    for theirs, ours in _IN_JSON:
        answer = answer.replace(theirs, ours)
    return answer


def datatype_given_back(datatype: str) -> str:
    """Undo ``RemoteEngine.stored`` for the datatype of one literal."""
    return _XSD + datatype.removeprefix(_OURS) if datatype.startswith(_OURS) else datatype
