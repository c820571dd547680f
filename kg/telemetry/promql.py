"""PromQL: templates filled in safely, and queries taken apart. The only module that knows promql-parser.

A template is PromQL with holes: ``{{namespace}}`` and ``{{node}}`` stand for a quoted value, ``{{pods}}`` for a quoted
regular expression, ``{{window}}`` for a duration. Holes, label names and job names are replaced token by token, never by
searching text, so a string that looks like a label is left alone. A compiled template is kept, so filling it is one join.

Language: https://prometheus.io/docs/prometheus/latest/querying/basics/.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import NamedTuple

import promql_parser

from kg.errors import InvalidDocument, InvalidInput
from kg.telemetry.datasources import Datasource
from kg.telemetry.durations import promql_duration
from kg.telemetry.quoting import quote

_TOKEN = re.compile(
    r"""(?P<hole>\{\{[a-z_]+\}\})
      | (?P<text>"(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' | `[^`]*`)
      | (?P<comment>\#[^\n]*)
      | (?P<name>[A-Za-z_:][A-Za-z0-9_:]*)
      | (?P<number>[0-9.][0-9A-Za-z_.]*)
      | (?P<space>\s+)
      | (?P<mark>=~|!~|!=|[^\w\s"'`#])""",
    re.VERBOSE,
)
_GROUPING = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})
_EQUALITY = frozenset({"namespace", "node"})  # holes that stand after = or !=
_PATTERN = frozenset({"pods"})  # holes that stand after =~ or !~
_WINDOW = "window"
_SAMPLE = {"namespace": '"n"', "node": '"n"', "pods": '"p"', _WINDOW: "5m"}


class _Token(NamedTuple):
    kind: str
    text: str


_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_OF_LOGS = "bytes_over_time"
MAX_TOKENS = 2000
MAX_DEPTH = 50

Compiled = tuple[str, ...]
"""Text and names of holes in turn, text first."""


def render(query: str, values: Mapping[str, str], *, window: timedelta, datasource: Datasource) -> str:
    """Fill a template's holes for one datasource and return a runnable query.

    ``values`` are plain: ``namespace`` and ``node`` are names, ``pods`` is a regular expression (RE2); each is quoted here.
    Raises ``InvalidDocument`` when the template is not PromQL, ``InvalidInput`` when a value is missing.
    """
    parts = _compiled(query, tuple(datasource.labels.items()), tuple(datasource.jobs.items()))
    filled = {_WINDOW: promql_duration(window)}
    for hole in set(parts[1::2]) - {_WINDOW}:
        if hole not in values:
            raise InvalidInput(f"the template needs a {hole}, which this entity does not have")
        filled[hole] = quote(values[hole])
    return "".join(filled[part] if position % 2 else part for position, part in enumerate(parts))


def holes(query: str) -> frozenset[str]:
    """Return what a template must be filled with, beside the window; raises ``InvalidDocument`` when it is none of PromQL."""
    return frozenset(_compiled(query, (), ())[1::2]) - {_WINDOW}


@lru_cache(maxsize=1024)
def _compiled(query: str, labels: tuple[tuple[str, str], ...], jobs: tuple[tuple[str, str], ...]) -> Compiled:
    tokens = _rewritten(list(_tokens(query)), dict(labels), dict(jobs))
    parts = [""]
    for token in tokens:
        if token.kind == "hole":
            parts += [token.text[2:-2], ""]
        else:
            parts[-1] += token.text
    parse("".join(_SAMPLE[part] if position % 2 else part for position, part in enumerate(parts)))
    return tuple(parts)


def _tokens(query: str) -> Iterator[_Token]:
    position = 0
    while position < len(query):
        match = _TOKEN.match(query, position)
        if match is None:
            raise InvalidDocument(f"the query template cannot be read at position {position}")
        if match.lastgroup != "comment":
            yield _Token(str(match.lastgroup), match[0])
        position = match.end()


def _rewritten(tokens: list[_Token], labels: Mapping[str, str], jobs: Mapping[str, str]) -> Iterator[_Token]:
    """Yield the tokens with this server's label and job names."""
    position, grouping = 0, False
    while position < len(tokens):
        token = tokens[position]
        if token.text == "{":
            end = next((at for at in range(position, len(tokens)) if tokens[at].text == "}"), len(tokens))
            yield from _selector(tokens[position + 1 : end], labels, jobs)
            position = end + 1
            continue
        if token.kind == "hole" and token.text[2:-2] != _WINDOW:
            raise InvalidDocument(f"{token.text} stands outside a label matcher")
        yield _Token("name", labels.get(token.text, token.text)) if grouping and token.kind == "name" else token
        if token.text == "(" and _before(tokens, position).text in _GROUPING:
            grouping = True
        elif token.text == ")":
            grouping = False
        position += 1


def _before(tokens: list[_Token], position: int) -> _Token:
    """Return the last token before ``position`` that is not space."""
    return next((token for token in reversed(tokens[:position]) if token.kind != "space"), _Token("space", ""))


def _selector(inner: list[_Token], labels: Mapping[str, str], jobs: Mapping[str, str]) -> Iterator[_Token]:
    """Rewrite what stands between the braces of one vector selector."""
    matchers: list[list[_Token]] = [[]]
    for token in inner:
        if token.text == ",":
            matchers.append([])
        elif token.kind != "space":
            matchers[-1].append(token)
    kept = [found for matcher in matchers if matcher and (found := _matcher(matcher, labels, jobs))]
    yield _Token("mark", "{")
    for number, matcher in enumerate(kept):
        if number:
            yield _Token("mark", ",")
        yield from matcher
    yield _Token("mark", "}")


def _matcher(matcher: list[_Token], labels: Mapping[str, str], jobs: Mapping[str, str]) -> list[_Token]:
    """Rewrite one label matcher; an empty list drops it."""
    if len(matcher) != 3:
        return matcher  # a quoted metric name, or something the parser will refuse
    label, operator, value = matcher
    if value.kind == "hole":
        allowed = _EQUALITY if operator.text in ("=", "!=") else _PATTERN
        if value.text[2:-2] not in allowed:
            raise InvalidDocument(f"{value.text} cannot stand after {label.text}{operator.text}")
    elif label.text == "job" and operator.text == "=" and (job := value.text[1:-1]) in jobs:
        if not jobs[job]:
            return []
        value = _Token("text", quote(jobs[job]))
    return [_Token("name", labels.get(label.text, label.text)), operator, value]


def parse(query: str) -> promql_parser.Expr:
    """Parse a query; raises ``InvalidDocument`` with the parser's reason.

    The parser recurses and can be crashed by a deep query, so size and depth are limited before it sees one.
    """
    depth = deepest = tokens = 0
    for token in _tokens(query):
        tokens += 1
        depth += (token.text in _OPENING) - (token.text in _CLOSING)
        deepest = max(deepest, depth)
    if tokens > MAX_TOKENS or deepest > MAX_DEPTH:
        raise InvalidDocument(
            f"the query has {tokens:,} tokens, {deepest} levels deep; the limits are {MAX_TOKENS:,} and {MAX_DEPTH}"
        )
    if _OF_LOGS in query:  # LogQL's own function: of the same shape as PromQL's, and unknown to its parser
        query = "".join("count_over_time" if each == ("name", _OF_LOGS) else each.text for each in _tokens(query))
    try:
        return promql_parser.parse(query)
    except ValueError as error:
        raise InvalidDocument(f"the query is not PromQL: {str(error)[:200]}", detail={"query": query}) from error


class Matcher(NamedTuple):
    """One label matcher; ``operator`` is one of = != =~ !~, ``value`` is unquoted."""

    label: str
    operator: str
    value: str

    def __str__(self) -> str:
        return f"{self.label}{self.operator}{quote(self.value)}"


@dataclass(frozen=True, slots=True)
class Selector:
    """One vector selector of a query: the metric's name and its matchers, in order of their labels."""

    metric: str
    matchers: tuple[Matcher, ...]


_OPERATORS = (  # pairs: the parser's operators are not hashable
    (promql_parser.MatchOp.Equal, "="),
    (promql_parser.MatchOp.NotEqual, "!="),
    (promql_parser.MatchOp.Re, "=~"),
    (promql_parser.MatchOp.NotRe, "!~"),
)


def _matchers(expression: promql_parser.VectorSelector) -> list[Matcher]:
    written = expression.matchers.matchers
    return [Matcher(each.name, next(text for op, text in _OPERATORS if op == each.op), each.value) for each in written]


def jobs(query: str, label: str = "job") -> frozenset[str]:
    """Return the jobs that a template or query names in ``job="…"``, under the label's name there."""
    found: set[str] = set()
    tokens = [token for token in _tokens(query) if token.kind != "space"]
    for name, operator, value in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if name.text in ("job", label) and operator.text == "=" and value.kind == "text":
            found.add(value.text[1:-1])
    return frozenset(found)


def selectors(query: str) -> list[Selector]:
    """Return the vector selectors of a query, each once, in the order in which they are evaluated."""
    found: dict[Selector, None] = {}

    def visit(expression: promql_parser.Expr) -> None:
        if isinstance(expression, promql_parser.MatrixSelector):
            expression = expression.vector_selector
        if isinstance(expression, promql_parser.VectorSelector):
            if expression.matchers.or_matchers:
                raise InvalidDocument("matchers joined by or are not supported")
            matchers = _matchers(expression)
            named = [each.value for each in matchers if each.label == "__name__" and each.operator == "="]
            metric = expression.name or (named[0] if named else "")
            rest = tuple(sorted(each for each in matchers if each.label != "__name__"))
            found[Selector(metric, rest)] = None

    promql_parser.walk(parse(query), visit)
    return list(found)


_WORDS = frozenset({"bool", "offset", "and", "or", "unless", "atan2", "inf", "nan"}) | _GROUPING


def enforce(query: str, matchers: tuple[Matcher, ...]) -> str:
    """Return a query of a caller's in which every selector has ``matchers`` too, so that it can only see their series.

    The text of the query is kept, the matchers are put into it token by token, and what comes out is parsed and checked.
    Raises ``InvalidInput`` for what is not PromQL or cannot be limited.
    """
    try:
        parse(query)
        limited = "".join(_limited(list(_tokens(query)), ",".join(map(str, matchers))))
        found = selectors(limited)
    except InvalidDocument as error:
        raise InvalidInput(str(error), hint="write PromQL without the entity's own matchers") from error
    wanted = set(matchers)
    if not found or any(wanted - set(each.matchers) for each in found):
        raise InvalidInput(
            "the query cannot be limited to the entity", hint='write plain selectors: metric{label="value"}'
        )
    return limited


def _limited(tokens: list[_Token], matchers: str) -> Iterator[str]:
    """Yield the texts of the tokens, with the matchers in every selector."""
    grouping = enclosed = False  # inside by (…), inside {…} or […]
    for position, token in enumerate(tokens):
        after = next((each for each in tokens[position + 1 :] if each.kind != "space"), _Token("space", ""))
        yield token.text
        if token.text in ("{", "["):
            enclosed = True
            if token.text == "{":
                yield matchers if after.text == "}" or not matchers else matchers + ","
        elif token.text in ("}", "]"):
            enclosed = False
        elif token.text == "(" and _before(tokens, position).text.lower() in _GROUPING:
            grouping = True
        elif token.text == ")":
            grouping = False
        elif matchers and not (grouping or enclosed) and _is_metric(token, after) and after.text != "{":
            yield f"{{{matchers}}}"


def _is_metric(token: _Token, after: _Token) -> bool:
    """Tell whether a name outside braces and groupings is a metric's: no function, no aggregation, no keyword."""
    aggregates = after.text == "(" or after.text.lower() in ("by", "without")
    return token.kind == "name" and not aggregates and token.text.lower() not in _WORDS


def select(selector: Selector, matchers: tuple[Matcher, ...]) -> str:
    """Write the selector's metric with only these matchers."""
    return f"{{{','.join([f'__name__={quote(selector.metric)}', *map(str, matchers)])}}}"
