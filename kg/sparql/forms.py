"""SPARQL Update text → its operations, their templates taken apart. Grammar: https://www.w3.org/TR/sparql11-query/#rUpdateUnit.

The engine runs updates only as a whole and tells neither what changed nor lets itself be stopped, so the service evaluates
them itself (``kg.sparql.update``). The gate must have passed the text, and the engine's parser must accept it; what is read here is
only where its parts are. Terms stay as they are written, to be read by the engine under the prologue that stands before them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from drumlin.kg.errors import QueryRejected
from drumlin.kg.sparql.lexer import Token, rejected, tokens

MAX_OPERATIONS = 1000
"""Operations in one request."""

_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_NIL, _FIRST, _REST, _TYPE, _REIFIES = (f"<{_RDF}{name}>" for name in ("nil", "first", "rest", "type", "reifies"))


class Slot(NamedTuple):
    """One place of a template: a term as it is written, a variable's name, or the label of a blank node."""

    kind: Literal["term", "variable", "blank"]
    text: str


class TripleSlot(NamedTuple):
    """One place of a template that a triple term takes (RDF 1.2)."""

    subject: TemplateTerm
    predicate: TemplateTerm
    object: TemplateTerm


TemplateTerm = Slot | TripleSlot


class Pattern(NamedTuple):
    """One statement of a template; ``graph`` is None outside GRAPH."""

    graph: TemplateTerm | None
    subject: TemplateTerm
    predicate: TemplateTerm
    object: TemplateTerm


@dataclass(frozen=True, slots=True)
class Ground:
    """INSERT DATA or DELETE DATA; ``quads`` is the text between and with the braces."""

    prologue: str
    insert: bool
    quads: str


@dataclass(frozen=True, slots=True)
class Modify:
    """DELETE/INSERT … WHERE, or DELETE WHERE. ``using`` is None where the operation names no dataset (USING)."""

    prologue: str
    deletes: tuple[Pattern, ...]
    inserts: tuple[Pattern, ...]
    where: str
    scope: str | None = None  # WITH
    using: tuple[str, ...] | None = None
    using_named: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Empty:
    """CLEAR, or DROP when ``drop``; ``target`` is a graph as it is written, or DEFAULT, NAMED, ALL."""

    prologue: str
    target: str
    drop: bool
    silent: bool


@dataclass(frozen=True, slots=True)
class Create:
    """CREATE GRAPH."""

    prologue: str
    graph: str
    silent: bool


@dataclass(frozen=True, slots=True)
class Transfer:
    """ADD, MOVE or COPY between two graphs; each is a graph as it is written, or DEFAULT."""

    prologue: str
    verb: str
    source: str
    target: str
    silent: bool


Operation = Ground | Modify | Empty | Create | Transfer


class ParsedOperation(NamedTuple):
    """An operation as it is written: its text, where that begins, and the prologue that stands before it."""

    prologue: str
    text: str
    start: int
    operation: Operation


def operations(text: str) -> list[ParsedOperation]:
    """Cut an update into its operations; raises ``QueryRejected`` where it is none."""
    found: list[ParsedOperation] = []
    labels: dict[type[Operation], set[str]] = {Ground: set(), Modify: set()}
    reader = _UpdateParser(text, list(tokens(text)))
    while True:
        reader.declarations()
        if reader.at_end:
            return found
        if len(found) == MAX_OPERATIONS:
            raise QueryRejected(f"an update has at most {MAX_OPERATIONS:,} operations", reason="complexity")
        start = reader.tokens[reader.position].start
        operation = reader.operation()
        if (earlier := labels.get(type(operation))) is not None:
            _refuse_shared(reader.labels, earlier, text)
        last = reader.tokens[reader.position - 1]
        found.append(ParsedOperation(reader.prologue, text[start : last.start + len(last.text)], start, operation))
        if not reader.at_end:
            reader.expect(";")


def _refuse_shared(labels: Iterable[Token], earlier: set[str], text: str) -> None:
    """Refuse a label that two INSERT DATA have, or two WHERE: https://www.w3.org/TR/sparql11-query/#grammarBNodes."""
    for each in labels:
        if each.text in earlier:
            raise rejected(
                f"the label {each.text} belongs to an earlier operation: it is used again",
                text,
                each.start,
                each.text,
                hint="give each operation labels of its own, or name the node with an IRI",
            )
    earlier.update(each.text for each in labels)


@dataclass(slots=True)
class _UpdateParser:
    text: str
    tokens: list[Token]
    position: int = 0
    prologue: str = ""
    blanks: int = 0
    patterns: list[Pattern] = field(default_factory=list)
    graph: TemplateTerm | None = None
    labels: list[Token] = field(default_factory=list)
    """The labels of blank nodes in the braces that were skipped last."""

    # -- tokens -------------------------------------------------------------------------------------------------------
    @property
    def at_end(self) -> bool:
        return self.position == len(self.tokens)

    def sees(self, *texts: str) -> bool:
        """Return whether the next token is one of ``texts`` (words in upper case, or signs)."""
        if self.at_end:
            return False
        token = self.tokens[self.position]
        return token.kind in ("word", "sign") and token.text in texts

    def take(self) -> Token:
        if self.at_end:
            raise QueryRejected("the update ends too early")
        self.position += 1
        return self.tokens[self.position - 1]

    def accept(self, *texts: str) -> bool:
        found = self.sees(*texts)
        self.position += found
        return found

    def expect(self, *texts: str) -> Token:
        if not self.sees(*texts):
            raise self.unexpected(" or ".join(texts))
        return self.take()

    def unexpected(self, wanted: str) -> QueryRejected:
        if self.at_end:
            return QueryRejected(f"the update ends where {wanted} is expected")
        token = self.tokens[self.position]
        return rejected(f"{wanted} is expected", self.text, token.start, token.text)

    # -- operations ---------------------------------------------------------------------------------------------------
    def declarations(self) -> None:
        while self.sees("PREFIX", "BASE", "VERSION"):
            word = self.take()
            last = self.take() if word.text != "PREFIX" else (self.take(), self.take())[1]
            self.prologue += self.text[word.start : last.start + len(last.text)] + "\n"

    def operation(self) -> Operation:
        verb = self.expect(
            "INSERT", "DELETE", "WITH", "CLEAR", "DROP", "CREATE", "ADD", "MOVE", "COPY"
        ).text  # LOAD does not pass the gate
        if verb in ("CLEAR", "DROP"):
            silent = self.accept("SILENT")
            target = self.take().text if self.sees("DEFAULT", "NAMED", "ALL") else self.graph_name()
            return Empty(self.prologue, target, verb == "DROP", silent)
        if verb == "CREATE":
            silent = self.accept("SILENT")
            return Create(self.prologue, self.graph_name(), silent)
        if verb in ("ADD", "MOVE", "COPY"):
            silent, source = self.accept("SILENT"), self.graph_or_default()
            self.expect("TO")
            return Transfer(self.prologue, verb, source, self.graph_or_default(), silent)
        if verb != "WITH" and self.accept("DATA"):
            return Ground(self.prologue, verb == "INSERT", self.braces())
        return self.modification(verb)

    def modification(self, verb: str) -> Modify:
        scope: str | None = None
        if verb == "WITH":
            scope = self.iri()
            verb = self.expect("INSERT", "DELETE").text
        elif verb == "DELETE" and self.accept("WHERE"):
            start = self.position
            where = self.braces()
            self.position = start
            return Modify(self.prologue, self.template(), (), where)
        deletes = self.template() if verb == "DELETE" else ()
        inserts = self.template() if verb == "INSERT" or self.accept("INSERT") else ()
        using: list[str] = []
        named: list[str] = []
        chosen = False
        while self.accept("USING"):
            chosen = True
            (named if self.accept("NAMED") else using).append(self.iri())
        self.expect("WHERE")
        dataset = tuple(using) if chosen else None
        return Modify(self.prologue, deletes, inserts, self.braces(), scope, dataset, tuple(named))

    def graph_name(self) -> str:
        self.expect("GRAPH")
        return self.iri()

    def graph_or_default(self) -> str:
        if self.accept("DEFAULT"):
            return "DEFAULT"
        self.accept("GRAPH")
        return self.iri()

    def iri(self) -> str:
        if self.at_end or self.tokens[self.position].kind not in ("iri", "name"):
            raise self.unexpected("an IRI")
        return self.take().text

    def braces(self) -> str:
        """Skip a bracketed part and return its text."""
        first = self.expect("{")
        depth, self.labels = 1, []
        while depth:
            last = self.take()
            if last.kind == "sign":
                depth += (last.text == "{") - (last.text == "}")
            elif last.kind == "blank":
                self.labels.append(last)
        return self.text[first.start : last.start + 1]

    # -- templates ----------------------------------------------------------------------------------------------------
    def template(self) -> tuple[Pattern, ...]:
        self.patterns = []
        self.expect("{")
        while not self.accept("}"):
            if self.accept("GRAPH"):
                self.graph = self.term()
                self.expect("{")
                while not self.accept("}"):
                    self.statements()
                self.graph = None
                self.accept(".")
            else:
                self.statements()
        return tuple(self.patterns)

    def statements(self) -> None:
        """Read one subject with all that is said of it."""
        alone = self.sees("[", "<<")  # ``[ :p 1 ] .`` says enough
        subject = self.node()
        if not (alone and self.sees(".", "}")):
            self.properties(subject)
        self.accept(".")

    def properties(self, subject: TemplateTerm) -> None:
        while True:
            predicate = self.verb()
            while True:
                value = self.node()
                self.state(subject, predicate, value)
                self.annotations(TripleSlot(subject, predicate, value))
                if not self.accept(","):
                    break
            if not self.accept(";"):
                return
            while self.accept(";"):
                pass
            if self.sees(".", "}", "]", "|}"):
                return

    def verb(self) -> TemplateTerm:
        return Slot("term", _TYPE) if self.accept("A") else self.term()

    def annotations(self, about: TripleSlot) -> None:
        """Read what is said of a statement: https://www.w3.org/TR/sparql12-query/#rAnnotation."""
        while True:
            reifier = self.reifier(about) if self.sees("~") else None
            if self.accept("{|"):
                self.properties(self.reified(about) if reifier is None else reifier)
                self.expect("|}")
            elif reifier is None:
                return

    def reifier(self, about: TripleSlot) -> TemplateTerm:
        self.expect("~")
        named = not self.at_end and self.tokens[self.position].kind in ("variable", "blank", "iri", "name")
        return self.reified(about, self.term() if named else None)

    def reified(self, about: TripleSlot, by: TemplateTerm | None = None) -> TemplateTerm:
        node = self.fresh() if by is None else by
        self.state(node, Slot("term", _REIFIES), about)
        return node

    def state(self, subject: TemplateTerm, predicate: TemplateTerm, value: TemplateTerm) -> None:
        self.patterns.append(Pattern(self.graph, subject, predicate, value))

    def node(self) -> TemplateTerm:
        if self.accept("<<"):
            return self.triple()
        if self.accept("["):
            node = self.fresh()
            if not self.accept("]"):
                self.properties(node)
                self.expect("]")
            return node
        if self.accept("("):
            return self.collection()
        return self.term()

    def triple(self) -> TemplateTerm:
        """Read a triple term, or a reified triple, which is its reifier."""
        is_term = self.accept("(")
        found = TripleSlot(self.node(), self.verb(), self.node())
        if is_term:
            self.expect(")")
            self.expect(">>")
            return found
        node = self.reifier(found) if self.sees("~") else self.reified(found)
        self.expect(">>")
        return node

    def collection(self) -> TemplateTerm:
        items: list[TemplateTerm] = []
        while not self.accept(")"):
            items.append(self.node())
        rest: TemplateTerm = Slot("term", _NIL)
        for item in reversed(items):
            cell = self.fresh()
            self.state(cell, Slot("term", _FIRST), item)
            self.state(cell, Slot("term", _REST), rest)
            rest = cell
        return rest

    def fresh(self) -> Slot:
        self.blanks += 1
        return Slot("blank", f" {self.blanks}")  # no label that is written has a blank

    def term(self) -> Slot:
        """Read one term: a literal may be several tokens."""
        if self.at_end:
            raise self.unexpected("a term")
        token = self.tokens[self.position]
        if token.kind == "variable":
            return Slot("variable", self.take().text[1:])
        if token.kind == "blank":
            return Slot("blank", self.take().text[2:])
        if token.kind in ("iri", "name", "number"):
            return Slot("term", self.take().text)
        if token.kind == "string":
            return Slot("term", "".join(self.literal()))
        if self.sees("TRUE", "FALSE"):
            return Slot("term", self.take().text.lower())
        if self.sees("+", "-"):
            return Slot("term", self.take().text + self.take().text)
        raise self.unexpected("a term")

    def literal(self) -> Iterator[str]:
        yield self.take().text
        if self.accept("^^"):
            yield "^^" + self.iri()
        elif not self.at_end and self.tokens[self.position].kind == "tag":
            yield self.take().text
