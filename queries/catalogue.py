"""Saved queries: the ``*.rq`` files here and in a user's directory, each with a header that says what it is and takes.

A header is comment lines before the query::

    # title: Which pods ran on a node?
    # description: All runs on one node, past and present.
    # param node id: the node
    # param limit integer 10: a type, and a default when it may be left out
    # column pod: the pod
    # fetch: alerts

A parameter is a variable of the query. Its value is checked against its type, made a term, and bound by ``VALUES`` in every group
that names the variable; a value is never text of the query. What is not declared cannot be bound. What is fetched (``FETCHED``) comes when
the query is asked, as ``VALUES`` of its first group.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import partial
from importlib.resources import files
from pathlib import Path

import structlog

from drumlin.kg import rdf
from drumlin.kg.errors import (
    DrumlinError,
    InvalidDocument,
    InvalidInput,
    InvalidSettings,
    QueryRejected,
    ResourceNotFound,
)
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import NAMESPACE
from drumlin.kg.sparql import gate
from drumlin.kg.sparql.lexer import tokens
from drumlin.ontology.vocabulary import CLASSES, CONCEPTS

MAX_BYTES = 64 * 1024
"""Longest query file, in bytes."""

_XSD = "http://www.w3.org/2001/XMLSchema#"
_LINE = re.compile(r"#\s*(title|description|param|column|fetch)\b\s*(.*)")
_PARAM = re.compile(r"([A-Za-z_]\w*)\s+(\w+)(?:\s+([^:\s]\S*?))?\s*:\s+(.+)")
_COLUMN = re.compile(r"([A-Za-z_]\w*)\s*:\s+(.+)")
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_TAKEN = frozenset({"format", "explain"})  # what every end point takes
_ESCAPES = {0x22: '\\"', 0x5C: "\\\\", 0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t", 0x08: "\\b", 0x0C: "\\f"}

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter; without a default it must be given."""

    name: str
    type: str
    default: str | None
    description: str


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the result."""

    name: str
    description: str


@dataclass(frozen=True, slots=True)
class SavedQuery:
    """One saved query. ``text`` is the file as it is."""

    name: str
    title: str
    description: str
    parameters: tuple[Parameter, ...]
    columns: tuple[Column, ...]
    text: str
    fetches: str | None = None

    def bound(self, values: Mapping[str, str], iris: Iris, fetched: Iterable[Sequence[str | None]] = ()) -> str:
        """Return the query with its parameters bound; raises ``InvalidInput`` for one that is unknown, missing or of another type.

        ``fetched`` are the rows of what it fetches, in the order of ``FETCHED``.
        """
        known = {each.name: each for each in self.parameters}
        for name in values:
            if name not in known:
                raise InvalidInput(
                    f"{self.name} has no parameter {name[:64]!r}", hint=f"it takes {', '.join(known) or 'none'}"
                )
        terms = {name: _term(self.name, each, values.get(name, each.default), iris) for name, each in known.items()}
        return _bind(_with_fetched(self.text, self.fetches, fetched, iris), terms)

    def named(self, values: Mapping[str, str], iris: Iris) -> frozenset[str]:
        """Return the IRIs that values name; raises as ``bound`` does."""
        given = ((each, values[each.name]) for each in self.parameters if each.name in values)
        return frozenset(
            _term(self.name, each, value, iris)[1:-1] for each, value in given if each.type in ("id", "concept")
        )


# -- values → terms ---------------------------------------------------------------------------------------------------------


def _string(text: str, _: Iris) -> str:
    return f'"{text.translate(_ESCAPES)}"'


def _integer(text: str, _: Iris) -> str:
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise ValueError("a whole number")
    return f'"{int(text)}"^^<{_XSD}integer>'


def _decimal(text: str, _: Iris) -> str:
    if not re.fullmatch(r"[+-]?[0-9]{1,18}(?:\.[0-9]{1,18})?", text):
        raise ValueError("a decimal number")
    return f'"{text}"^^<{_XSD}decimal>'


def _boolean(text: str, _: Iris) -> str:
    if text not in ("true", "false"):
        raise ValueError("true or false")
    return f'"{text}"^^<{_XSD}boolean>'


def _date_time(text: str, _: Iris) -> str:
    try:
        moment = datetime.fromisoformat(text)
        written = moment.astimezone(UTC).isoformat().removesuffix("+00:00")
    except (ValueError, OverflowError):
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError("a time with a zone, such as 2026-11-28T00:00:00Z")
    return f'"{written}Z"^^<{_XSD}dateTime>'


def _id(text: str, iris: Iris) -> str:
    return f"<{iris.expand(text)}>"


def _concept(text: str, _: Iris) -> str:
    name = text.removeprefix(NAMESPACE)
    if name not in CONCEPTS | CLASSES:
        close = get_close_matches(name[:64], CONCEPTS | CLASSES, n=1)
        raise ValueError(f"a term of the vocabulary{f' (did you mean {close[0]}?)' if close else ''}")
    return f"<{NAMESPACE}{name}>"


TYPES: Mapping[str, Callable[[str, Iris], str]] = {
    "string": _string,
    "integer": _integer,
    "decimal": _decimal,
    "boolean": _boolean,
    "dateTime": _date_time,
    "id": _id,
    "concept": _concept,
}
"""Types of parameters: ``id`` is an entity's short id or IRI, ``concept`` a class or concept of the vocabulary by its name."""


def _term(query: str, parameter: Parameter, value: str | None, iris: Iris) -> str:
    if value is None:
        raise InvalidInput(f"{query} needs the parameter {parameter.name}: {parameter.description}")
    if len(value) > 4096:
        raise InvalidInput(f"{parameter.name} has {len(value):,} characters; the limit is 4,096")
    try:
        return TYPES[parameter.type](value, iris)
    except ValueError as error:
        raise InvalidInput(f"{parameter.name} is not {error}: {value[:64]!r}") from error


# -- what is fetched -------------------------------------------------------------------------------------------------------

FETCHED: Mapping[str, Mapping[str, str]] = {
    "alerts": {"entity": "id", "alert": "string", "state": "string", "severity": "string", "since": "dateTime"}
}
"""What a query may fetch: the variables that a ``VALUES`` at its beginning binds, and their types."""


def _with_fetched(text: str, fetches: str | None, rows: Iterable[Sequence[str | None]], iris: Iris) -> str:
    """Put what was fetched at the beginning of the first group; a value that is missing or not of its type is unbound."""
    if fetches is None:
        return text
    types = FETCHED[fetches]
    written = (
        " ".join(_cell(cell, kind, iris) for cell, kind in zip(row, types.values(), strict=True)) for row in rows
    )
    block = f" VALUES ({' '.join(f'?{each}' for each in types)}) {{ {' '.join(f'({row})' for row in written)} }}"
    start = min(group.start for group in _groups(text, frozenset()) if group.pattern)
    return text[:start] + block + text[start:]


def _cell(value: str | None, kind: str, iris: Iris) -> str:
    try:
        return "UNDEF" if value is None else TYPES[kind](value, iris)
    except (ValueError, InvalidInput):
        return "UNDEF"


# -- binding ----------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Group:
    """One open brace: where its content begins, whether it may begin with ``VALUES``, and which parameters it names."""

    start: int
    pattern: bool
    named: set[str] = field(default_factory=set)


def _bind(text: str, terms: Mapping[str, str]) -> str:
    """Put ``VALUES ?name { term }`` at the beginning of every group that names a parameter; the first one has those that none names."""
    places = sorted((group.start, group.named) for group in _groups(text, frozenset(terms)) if group.pattern)
    for _, named in places[:1]:
        named.update(terms.keys() - set().union(*(each for _, each in places)))
    parts: list[str] = []
    position = 0
    for start, named in places:
        parts.append(text[position:start])
        parts += [f" VALUES ?{name} {{ {terms[name]} }}" for name in sorted(named)]
        position = start
    return "".join([*parts, text[position:]])


def _groups(text: str, names: frozenset[str]) -> Iterator[_Group]:
    """Yield the braces of a query that passed the gate; those of ``VALUES`` and around a sub-select are no patterns."""
    opened: list[_Group] = []
    values = False
    after_brace = False
    for token in tokens(text):
        if token.text == "VALUES":
            values = True
        elif token.text == "SELECT" and after_brace:
            opened[-1].pattern = False
        elif token.text == "{":
            opened.append(_Group(token.start + 1, not values))
            values = False
        elif token.text == "}":
            yield opened.pop()
        elif token.kind == "variable" and opened and token.text[1:] in names:
            opened[-1].named.add(token.text[1:])
        after_brace = token.text == "{"


# -- files ------------------------------------------------------------------------------------------------------------------


def read(name: str, text: str, iris: Iris) -> SavedQuery:
    """Read one file; raises ``InvalidDocument`` or ``QueryRejected`` with what is wrong with it."""
    if not _NAME.fullmatch(name):
        raise InvalidDocument(f"{name!r} is not a name of a query", hint="lower-case words with hyphens")
    told: dict[str, list[str]] = {"title": [], "description": [], "param": [], "column": [], "fetch": []}
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            break
        if match := _LINE.match(line.strip()):
            told[match[1]].append(match[2].strip())
    if len(told["title"]) != 1:
        raise InvalidDocument("the header has no title, or several", hint="# title: What does it answer?")
    found = SavedQuery(
        name,
        told["title"][0].removeprefix(":").strip(),
        " ".join(each.removeprefix(":").strip() for each in told["description"]),
        tuple(map(_parameter, told["param"])),
        tuple(map(_column, told["column"])),
        text,
        _fetch(told["fetch"]),
    )
    names = [each.name for each in found.parameters]
    if double := next((each for each in names if names.count(each) > 1), None):
        raise InvalidDocument(f"the header has the parameter {double} twice")
    _check(found, iris)
    return found


def _fetch(told: list[str]) -> str | None:
    found = [each.removeprefix(":").strip() for each in told]
    if len(found) > 1 or not set(found) <= FETCHED.keys():
        raise InvalidDocument("the header fetches something unknown", hint=f"# fetch: {' or '.join(FETCHED)}, once")
    return found[0] if found else None


def _parameter(line: str) -> Parameter:
    match = _PARAM.fullmatch(line)
    if match is None or match[2] not in TYPES or match[1] in _TAKEN:
        raise InvalidDocument(
            f"{line[:80]!r} is not a parameter", hint=f"# param name type [default]: text, of {', '.join(TYPES)}"
        )
    return Parameter(match[1], match[2], match[3], match[4])


def _column(line: str) -> Column:
    match = _COLUMN.fullmatch(line)
    if match is None:
        raise InvalidDocument(f"{line[:80]!r} is not a column", hint="# column name: text")
    return Column(match[1], match[2])


_SAMPLES = {"string": "x", "integer": "1", "decimal": "1.5", "boolean": "true", "dateTime": "2026-11-28T00:00:00Z",
            "id": "domain/x", "concept": "Deployment"}  # fmt: skip


def _check(query: SavedQuery, iris: Iris) -> None:
    """Bind sample values and have the engine read the result, so that a mistake is reported at the start and not to a user."""
    if gate.check(query.text, max_bytes=MAX_BYTES).form != "select":
        raise QueryRejected("a saved query is a SELECT")
    named = {token.text[1:] for token in tokens(query.text) if token.kind == "variable"}
    if unused := [each.name for each in query.parameters if each.name not in named]:
        raise InvalidDocument(f"the query does not use its parameter {unused[0]}")
    samples = {each.name: each.default or _SAMPLES[each.type] for each in query.parameters}
    projected = rdf.projected(query.bound(samples, iris))
    if missing := [each.name for each in query.columns if each.name not in projected]:
        raise InvalidDocument(f"the query does not select its column {missing[0]}")


class QueryCatalogue:
    """The saved queries by name."""

    def __init__(self, queries: Iterable[SavedQuery]) -> None:
        self.queries: Mapping[str, SavedQuery] = {
            each.name: each for each in sorted(queries, key=lambda each: each.name)
        }

    @classmethod
    def load(cls, iris: Iris, directory: Path | None = None) -> QueryCatalogue:
        """Read the shipped files, then those of ``directory``, which win; a bad file is reported in the log and left out.

        Raises ``InvalidSettings`` when there is no such directory.
        """
        sources: list[tuple[str, Callable[[], str]]] = [
            (each.name, partial(each.read_text, encoding="utf-8"))
            for each in files("drumlin.queries").iterdir()
            if each.name.endswith(".rq")
        ]
        if directory is not None:
            if not directory.is_dir():
                raise InvalidSettings(f"there is no directory {directory}", hint="queries names one of *.rq files")
            sources += [(path.name, partial(_text, path)) for path in sorted(directory.glob("*.rq"))]
        found: dict[str, SavedQuery] = {}
        for file, source in sources:
            name = file.removesuffix(".rq")
            try:
                query = read(name, source(), iris)
                if name in found:
                    log.info("saved_query_replaced", name=name)
                found[name] = query
            except (DrumlinError, OSError, UnicodeDecodeError) as error:
                log.warning("saved_query_skipped", file=file, reason=str(error))
        return cls(found.values())

    def get(self, name: str) -> SavedQuery:
        """Return one by name; raises ``ResourceNotFound`` with what may have been meant."""
        if name in self.queries:
            return self.queries[name]
        close = get_close_matches(name[:64], self.queries, n=1)
        raise ResourceNotFound(
            f"there is no saved query {name[:64]!r}", hint=f"did you mean {close[0]}?" if close else "see /queries"
        )


def _text(path: Path) -> str:
    if path.stat().st_size > MAX_BYTES:
        raise InvalidDocument(f"the file has {path.stat().st_size:,} bytes; the limit is {MAX_BYTES:,}")
    return path.read_text(encoding="utf-8")
