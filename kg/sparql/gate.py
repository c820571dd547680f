"""The gate: what a SPARQL text must satisfy before the engine sees it.

The engine is killed by deep nesting and long operator chains (stack overflow), spends seconds planning many joined patterns,
and fetches URLs for SERVICE and LOAD. So its input is cut into tokens first (``kg.sparql.lexer``) and counted. The limits
are measured on pyoxigraph 0.5.13: at ``MAX_PATTERNS`` a star join plans in 0.7 s (150: 3.4 s, 300: 56 s), a collection at its
limits in 0.1 s. Syntax itself stays the engine's business; what is found here on the way is reported with its place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from drumlin.kg.errors import QueryRejected
from drumlin.kg.rdf.syntax import PREFIXES
from drumlin.kg.sparql.lexer import BRACKETS, WORDS, Token, outermost, rejected, tokens
from drumlin.kg.sparql.skeleton import skeleton

Form = Literal["select", "ask", "construct", "describe", "update"]

MAX_NESTING = 100
"""Brackets inside one another."""
MAX_COLLECTIONS = 16
"""Collections ``( … )`` of RDF terms inside one another."""
MAX_OPERATORS = 1000
"""Operators and pattern keywords in the whole text."""
MAX_PATTERNS = 100
"""Parts that the planner joins: triple patterns, groups, steps of property paths, twice the elements of collections."""

_QUERIES = {"SELECT": "select", "ASK": "ask", "CONSTRUCT": "construct", "DESCRIBE": "describe"}
_UPDATES = frozenset({"LOAD", "CLEAR", "DROP", "CREATE", "ADD", "MOVE", "COPY", "INSERT", "DELETE", "WITH"})
_SIGNS = "+ - * / | ^ ! = != < > <= >= && || ?"
_PATTERNS = "UNION OPTIONAL LATERAL MINUS FILTER BIND GRAPH EXISTS NOT IN AS VALUES"
_OPERATORS = frozenset(_SIGNS.split()) | frozenset(_PATTERNS.split())
_TERMS = frozenset({"variable", "iri", "name", "blank", "string", "number", "tag"})
_VALUES = frozenset({"TRUE", "FALSE", "UNDEF"})
# A prefix that the engine could read as keywords: the last of them takes an IRI, which ``:local`` would be.
_GLUED = re.compile(rf"(?:{'|'.join(sorted(WORDS, key=len, reverse=True))})*?(?:SERVICE|LOAD|FROM)(?:SILENT|NAMED)?")
_HIDING = re.compile(r"[^A-Za-z0-9:/._~%\-<>\u0080-\U0010ffff]")


_VOLATILE = frozenset({"NOW", "RAND", "UUID", "STRUUID", "BNODE"})
_KNOWN = 4096  # skeletons that are remembered


class Gated(NamedTuple):
    """A text that may be given to the engine, as it was sent, and what it is; ``volatile`` when its result changes by itself."""

    form: Form
    text: str
    volatile: bool = False


_known: dict[str, tuple[Form | None, bool]] = {}


def check(text: str, *, max_bytes: int, expect: Literal["query", "update"] = "query") -> Gated:
    """Pass a text, or raise ``QueryRejected``: reason ``too_large`` (413), ``forbidden`` (403), ``complexity`` or ``syntax`` (400).

    ``detail`` has line, column and token where there is a place. Takes about 20 microseconds per 100 bytes, for a
    text whose skeleton was passed before 3 in all.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise QueryRejected("the text is not valid Unicode") from error
    if size > max_bytes:
        raise QueryRejected(
            f"the text has {size:,} bytes; the limit is {max_bytes:,}", reason="too_large", detail={"limit": max_bytes}
        )
    found, volatile = _scanned(text)
    form = found or "update"
    if found is None and expect == "query":
        raise QueryRejected("the query is empty", hint="write SELECT, ASK, CONSTRUCT or DESCRIBE")
    if (form == "update") != (expect == "update"):
        if form == "update":
            raise QueryRejected("this is an update, not a query", hint="send updates to /sparql/update")
        raise QueryRejected("this is a query, not an update", hint="send queries to /sparql")
    return Gated(form, text, volatile)


def _scanned(text: str) -> tuple[Form | None, bool]:
    """Scan a text, or remember what was found in another one with the same skeleton."""
    bare = skeleton(text)
    if bare is not None and (known := _known.get(bare)):
        return known
    scan = _Scan(text)
    scan.run()
    if bare is not None and not scan.hiding:
        if len(_known) >= _KNOWN:
            _known.clear()
        _known[bare] = scan.form, scan.volatile
    return scan.form, scan.volatile


def names_dataset(text: str) -> bool:
    """Return whether a query that passed the gate chooses its graphs itself (FROM)."""
    if "FROM" not in text.upper():
        return False
    return any(token.kind == "word" and token.text == "FROM" for token in outermost(text))


@dataclass(slots=True)
class _Frame:
    """One open bracket. ``role``: group, template, data, values, list (of RDF terms), path, triple (term), props, expression.

    ``place`` is what comes next among triples: their subject, verb or object.
    """

    token: Token
    role: str
    place: int = 0


_SUBJECT, _VERB, _OBJECT = range(3)
_NOTHING = Token("start", "", 0)


@dataclass(slots=True)
class _Scan:
    text: str
    form: Form | None = None
    open: list[_Frame] = field(default_factory=list)
    declared: set[str] = field(default_factory=set)
    previous: Token = _NOTHING
    before: Token = _NOTHING  # the one before the previous
    awaiting: str = "group"  # the role of the next brace
    operators: int = 0
    patterns: int = 0
    lists: int = 0
    volatile: bool = False
    hiding: bool = False  # what stands in an IRI decides
    ended_term: bool = False  # the last bracket closed what is a term, or a path

    def run(self) -> None:
        for token in tokens(self.text):
            self._glued(token)
            if token.kind == "word":
                self._word(token)
            elif token.kind == "name":
                self._name(token)
            elif token.kind == "iri":
                self._iri(token)
            elif token.kind == "sign":
                self._sign(token)
            self._element(token)
            self._advance(token)
            self._limit(token)
            self.before, self.previous = self.previous, token
        if self.open:
            token = self.open[-1].token
            raise self._rejected(f"{token.text!r} is not closed; it was opened", token)

    @property
    def role(self) -> str:
        return self.open[-1].role if self.open else ""

    # -- words and names ----------------------------------------------------------------------------------------------
    def _word(self, token: Token) -> None:
        word = token.text
        if word not in WORDS:
            if "SERVICE" in word or "LOAD" in word:
                raise self._forbidden(token)
            raise self._rejected(
                f"{word!r} is not a word of SPARQL",
                token,
                hint="write blanks between words, and a colon after a prefix",
            )
        if word in ("SERVICE", "LOAD"):
            raise self._forbidden(token)
        if self.form is None and not self.open and word not in ("BASE", "PREFIX", "VERSION"):
            self.form = self._begins(token)
        if word in ("CONSTRUCT", "INSERT", "DELETE"):
            self.awaiting = "template"
        elif word in ("DATA", "VALUES"):
            self.awaiting = word.lower()
        elif word in ("WHERE", "FROM"):
            self.awaiting = "group"
        self.volatile |= word in _VOLATILE
        self._count(word)

    def _begins(self, token: Token) -> Form:
        if token.text in _UPDATES:
            return "update"
        found = _QUERIES.get(token.text)
        if found is None:
            raise self._rejected(
                f"{token.text} cannot begin a query",
                token,
                hint="write SELECT, ASK, CONSTRUCT or DESCRIBE",
            )
        return found  # type: ignore[return-value]  # the values of _QUERIES are forms

    def _name(self, token: Token) -> None:
        if self.previous.kind == "word" and self.previous.text == "PREFIX":
            self.declared.add(token.prefix)
        elif self.form is None and not self.open:
            raise self._rejected(f"{token.text!r} cannot begin a query", token, hint="write a blank after PREFIX")
        elif token.prefix not in self.declared:
            known = PREFIXES.get(token.prefix)
            hint = f"PREFIX {token.prefix}: <{known or '…'}>"
            raise self._rejected(f"the prefix {token.prefix}: is not declared", token, hint=f"begin with {hint}")
        elif not self.open and _GLUED.fullmatch(token.prefix.upper()):
            raise self._ambiguous(token)

    def _glued(self, token: Token) -> None:
        """Refuse ``service:x {``, which the engine may read as ``SERVICE :x {``."""
        name = self.previous
        if token.text != "{" or name.kind != "name" or self.before.text == "GRAPH":
            return
        if _GLUED.fullmatch(name.prefix.upper()):
            raise self._ambiguous(name)

    def _iri(self, token: Token) -> None:
        """Refuse what could be ``?a < …`` in an expression, when it matters what stands in it."""
        ends = self.previous.kind in _TERMS or self.previous.text in (")", *_VALUES)
        if not ends or self.role not in ("expression", "list", "path", "triple"):
            return
        self.hiding = True
        if _HIDING.search(token.text):
            raise self._rejected(
                "it is not clear whether < compares or begins an IRI",
                token,
                hint="write a blank after <, or a prefixed name for the IRI",
            )
        self.operators += token.text.count("-") + token.text.count("/")

    # -- brackets and operators -----------------------------------------------------------------------------------------
    def _sign(self, token: Token) -> None:
        sign = token.text
        if sign in BRACKETS:
            self._opens(token)
        elif sign in BRACKETS.values():
            self._closes(token)
        elif sign in (".", ";", ",") or (sign == "/" and self.role != "expression"):
            self.patterns += self.role in ("group", "props", "list", "path")
        self._count(sign)

    def _count(self, sign: str) -> None:
        inverses = sign == "^^" and self.previous.kind != "string"  # else it stands before a literal's datatype
        if (sign in _OPERATORS or inverses) and self.role not in ("data", "values"):
            self.operators += 1

    def _opens(self, token: Token) -> None:
        role = self._role_of(token)
        self.open.append(_Frame(token, role, _VERB if token.text in ("[", "{|") else _SUBJECT))
        self.lists += role == "list"
        self.patterns += role in ("group", "props")
        if token.text == "{":
            self.awaiting = "group"
        if len(self.open) > MAX_NESTING:
            raise self._too_complex(token, "brackets are nested", MAX_NESTING)
        if self.lists > MAX_COLLECTIONS:
            raise self._too_complex(token, "collections are nested", MAX_COLLECTIONS)

    def _role_of(self, token: Token) -> str:
        outer = self.role
        if outer in ("data", "values", "template"):
            return outer
        if token.text == "{":
            return self.awaiting
        if token.text != "(":
            return "props"
        if self.previous.text == "<<":
            return "triple"
        keyword = self.previous.kind == "word" and self.previous.text != "A"
        if keyword or outer in ("", "expression"):
            return "expression"
        return "path" if outer == "path" or (outer in ("group", "props") and self.open[-1].place == _VERB) else "list"

    def _advance(self, token: Token) -> None:
        """Follow what comes next among triples. Never a verb where a subject or an object is: a list would be taken for a path."""
        if not self.open:
            return
        frame, text = self.open[-1], token.text
        is_term = token.kind in _TERMS or text in (*_VALUES, "A") or (text in (")", "]", ">>") and self.ended_term)
        if text in (".", "}") or (token.kind == "word" and not is_term):
            frame.place = _SUBJECT
        elif text == ";" or (text in ("/", "|", "^", "!") and frame.place == _OBJECT):
            frame.place = _VERB
        elif is_term:
            frame.place = min(frame.place + 1, _OBJECT)

    def _closes(self, token: Token) -> None:
        if not self.open or BRACKETS[self.open[-1].token.text] != token.text:
            raise self._rejected(f"{token.text!r} closes nothing", token)
        closed = self.open.pop().role
        self.lists -= closed == "list"
        self.ended_term = closed != "expression"

    def _element(self, token: Token) -> None:
        """Count the terms in a collection: each is two triple patterns. So is what no path has, two terms with no sign between."""
        is_term = token.kind in _TERMS or token.text in _VALUES
        beside = is_term and (self.previous.kind in _TERMS or self.previous.text in (")", *_VALUES))
        if (self.role == "list" and is_term) or (
            self.role == "path" and (beside or (self.previous.text, token.text) == (")", "("))
        ):
            self.patterns += 2

    # -- refusals -----------------------------------------------------------------------------------------------------
    def _limit(self, token: Token) -> None:
        if self.operators > MAX_OPERATORS:
            raise self._too_complex(token, "operators and pattern keywords: there are", MAX_OPERATORS)
        if self.patterns > MAX_PATTERNS:
            raise self._too_complex(token, "parts to join: there are", MAX_PATTERNS)

    def _rejected(
        self, message: str, token: Token, *, reason: str = "syntax", hint: str | None = None
    ) -> QueryRejected:
        return rejected(message, self.text, token.start, token.text, reason=reason, hint=hint)

    def _forbidden(self, token: Token) -> QueryRejected:
        return self._rejected(
            f"{'SERVICE' if 'SERVICE' in token.text else 'LOAD'} is not allowed: nothing is fetched because a query says so;"
            " it stands",
            token,
            reason="forbidden",
            hint="ask the other endpoint yourself and join the results",
        )

    def _ambiguous(self, token: Token) -> QueryRejected:
        return self._rejected(
            f"{token.text!r} could be read as a keyword", token, hint=f"rename the prefix {token.prefix}:"
        )

    def _too_complex(self, token: Token, what: str, limit: int) -> QueryRejected:
        return self._rejected(
            f"the query is too complex: {what} more than {limit:,}",
            token,
            reason="complexity",
            hint="split the query, or list constants in VALUES",
        )
