"""PromQL: templates filled in safely, and queries taken apart. The only module that knows promql-parser.

A template is PromQL with holes: ``{{namespace}}`` and ``{{node}}`` stand for a quoted value, ``{{pods}}`` for a quoted regular
expression, ``{{window}}`` and ``{{lookback}}`` for a duration, and ``{{once}} by (…)`` makes one of what is scraped several times.
Holes, label names and job names are replaced token by token, never by searching text, so a string that looks like a label is left
alone. A compiled template is kept, so filling it is one join.

``rate`` and ``increase`` over ``{{window}}`` are written so that points add up to what was counted (``_counting``): as Prometheus has them,
windows that follow each other leave out what was counted between the last sample of one and the first of the next, and VictoriaMetrics
adds what was counted in a gap before the window.

Language: https://prometheus.io/docs/prometheus/latest/querying/basics/.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import promql_parser

from drumlin.kg.errors import InvalidDocument, InvalidInput
from drumlin.kg.telemetry.datasources import Datasource, Language
from drumlin.kg.telemetry.durations import promql_duration
from drumlin.kg.telemetry.quoting import quote
from drumlin.kg.telemetry.series import counted_range, longest_gap, lookback

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
_EQUALITY = frozenset(
    {"namespace", "node", "remote", "machine", "function", "qualified"}
)  # holes that stand after = or !=
_PATTERN = frozenset({"pods", "clusters"})  # holes that stand after =~ or !~
WINDOW_HOLE, LOOKBACK_HOLE = "{{window}}", "{{lookback}}"
_DURATIONS = frozenset({WINDOW_HOLE[2:-2], LOOKBACK_HOLE[2:-2]})  # holes that stand inside [ ]
_RANGE, _SAME_RANGE, _WINDOW, _SAME_WINDOW, _BEFORE, _SECONDS, _PER_STEP, _SHARE = (
    "+range",
    "+same_range",
    "+window",
    "+same_window",
    "+before",
    "+seconds",
    "+per_step",
    "+share",
)  # holes of ours: no template can write a +
_ONCE = "once"
_RANGES = (_RANGE, _SAME_RANGE, _WINDOW, _SAME_WINDOW, _BEFORE)
_OWN = frozenset({*_DURATIONS, *_RANGES, _SECONDS, _PER_STEP, _SHARE})
_SAMPLE = {
    **dict.fromkeys(_EQUALITY, '"n"'),
    **dict.fromkeys(_PATTERN, '"p"'),
    _SECONDS: "300",
    _PER_STEP: "300",
    _SHARE: " * 2",
}
_SAMPLE |= dict.fromkeys((*_DURATIONS, *_RANGES), "5m")


class PromqlToken(NamedTuple):
    """A piece of a template: its kind (hole, text, name, number, space, mark) and how it is written."""

    kind: str
    text: str


_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_FOREIGN = {"bytes_over_time": "count_over_time", "increase_prometheus": "increase"}
"""Functions of LogQL and MetricsQL: of the same shape as PromQL's, and unknown to its parser."""
MAX_TOKENS = 2000
MAX_DEPTH = 50


def tokens_of(query: str) -> list[PromqlToken]:
    """Return the tokens of a template or query, without comments; raises ``InvalidDocument`` for what is no token."""
    return list(_tokens(query))


Compiled = tuple[str, ...]
"""Text and names of holes in turn, text first."""


def render(
    query: str,
    values: Mapping[str, str],
    *,
    window: timedelta,
    datasource: Datasource,
    matchers: tuple[Matcher, ...],
    step: timedelta | None = None,
    precise: bool = False,
) -> str:
    """Fill a template's holes for one datasource and return a runnable query in which every selector has ``matchers`` too.

    ``window`` is what a rate is taken over, and ``step`` (as long, when left out) what an increase is counted for. ``precise``: exactly
    what the samples show counts, at five times the price for the server (``_counting``).
    ``values`` are plain: ``namespace`` and ``node`` are names, ``pods`` is a regular expression (RE2), and so are ``namespaces`` and
    ``nodes``, which fill the holes of one namespace or node for several; each is quoted here.
    Raises ``InvalidDocument`` when the template is not PromQL, ``InvalidInput`` when a value is missing.
    """
    several = frozenset(hole for hole in _EQUALITY if f"{hole}s" in values)
    labels, jobs = tuple(datasource.labels.items()), tuple(datasource.jobs.items())
    parts = _compiled(
        query, labels, jobs, matchers, several, _Dialect(datasource.language, datasource.doubled, precise)
    )
    filled = dict(_durations(window, step or window, datasource.scrape_interval))
    for hole in set(parts[1::2]) - _OWN:
        value = values.get(f"{hole}s" if hole in several else hole)
        if value is None:
            raise InvalidInput(f"the template needs a {hole}, which this entity does not have")
        filled[hole] = quote(value)
    return "".join(filled[part] if position % 2 else part for position, part in enumerate(parts))


@lru_cache(maxsize=256)
def _durations(window: timedelta, step: timedelta, scrape_interval: timedelta) -> Mapping[str, str]:
    """Return what fills the holes of durations, and of numbers made of them."""
    seconds, per_step = window.total_seconds(), step.total_seconds()
    return {
        "window": promql_duration(window),
        "lookback": promql_duration(lookback(scrape_interval)),
        **dict.fromkeys((_RANGE, _SAME_RANGE), promql_duration(counted_range(window, scrape_interval))),
        **dict.fromkeys((_WINDOW, _SAME_WINDOW), promql_duration(window)),
        _BEFORE: promql_duration(longest_gap(scrape_interval)),
        _SECONDS: f"{seconds:.15g}",
        _PER_STEP: f"{per_step:.15g}",
        _SHARE: "" if per_step == seconds else f" * {per_step / seconds:.15g}",
    }


def holes(query: str) -> frozenset[str]:
    """Return what a template must be filled with, beside durations; raises ``InvalidDocument`` when it is not PromQL."""
    return frozenset(_compiled(query, (), (), (), frozenset(), _Dialect("promql"))[1::2]) - _OWN


@lru_cache(maxsize=256)
def counts_of_things(
    query: str, labels: tuple[tuple[str, str], ...], jobs: tuple[tuple[str, str], ...], matchers: tuple[Matcher, ...]
) -> tuple[str, ...]:
    """Return queries for the most series that any one thing has: of what stands in each ``{{once}}`` of a template, for all entities.

    ``labels`` and ``jobs`` are a datasource's.
    """
    tokens = list(_rewritten(tokens_of(query), dict(labels), dict(jobs), frozenset()))
    found: dict[str, None] = {}
    for position, token in enumerate(tokens):
        if token == _hole(_ONCE):
            start, end = parentheses(tokens, position)
            grouping = "".join(each.text for each in tokens[start : end + 1])
            opening = next((at for at in range(end, len(tokens)) if tokens[at].text == "{"), None)
            if opening is None:  # a bare name; taken for doubled
                return ("vector(2)",)
            closing = next(at for at in range(opening, len(tokens)) if tokens[at].text == "}")
            fixed = _without_holes(tokens[opening + 1 : closing])
            selector = f"{_before(tokens, opening).text}{{{','.join([*map(str, matchers), *fixed])}}}"
            found[f"max(count by {grouping} ({selector}))"] = None
    return tuple(found)


def _without_holes(inner: list[PromqlToken]) -> list[str]:
    """Return the matchers between braces that name no entity."""
    written = "".join("\0" if token.text == "," else token.text for token in inner).split("\0")
    return [each for each in written if each and "{{" not in each]


class _Dialect(NamedTuple):
    """How a template's functions are written: the server's language, whether things are doubled there, whether precisely."""

    language: Language
    doubled: bool | None = None
    precise: bool = False


@lru_cache(maxsize=4096)
def _compiled(
    query: str,
    labels: tuple[tuple[str, str], ...],
    jobs: tuple[tuple[str, str], ...],
    matchers: tuple[Matcher, ...],
    several: frozenset[str],
    dialect: _Dialect,
) -> Compiled:
    tokens = list(_rewritten(tokens_of(query), dict(labels), dict(jobs), several))
    tokens = list(_limited(tokens, ",".join(map(str, matchers))))
    tokens = list(_counting(tokens, dialect.language, precise=dialect.precise))
    parts = [""]
    for token in _once(tokens, doubled=dialect.doubled):
        if token.kind == "hole":
            parts += [token.text[2:-2], ""]
        else:
            parts[-1] += token.text
    sample = "".join(_SAMPLE[part] if position % 2 else part for position, part in enumerate(parts))
    parse(sample)
    if matchers and lacking(sample, matchers):
        raise InvalidDocument("the query template has a selector that cannot be given the datasource's matchers")
    return tuple(parts)


def _tokens(query: str) -> Iterator[PromqlToken]:
    position = 0
    while position < len(query):
        match = _TOKEN.match(query, position)
        if match is None:
            raise InvalidDocument(f"the query template cannot be read at position {position}")
        if match.lastgroup != "comment":
            yield PromqlToken(str(match.lastgroup), match[0])
        position = match.end()


def _rewritten(
    tokens: list[PromqlToken], labels: Mapping[str, str], jobs: Mapping[str, str], several: frozenset[str]
) -> Iterator[PromqlToken]:
    """Yield the tokens with this server's label and job names; holes of which there are ``several`` stand after =~ or !~."""
    position, grouping = 0, False
    while position < len(tokens):
        token = tokens[position]
        if token.text == "{":
            end = next((at for at in range(position, len(tokens)) if tokens[at].text == "}"), len(tokens))
            yield from _selector(tokens[position + 1 : end], labels, jobs, several)
            position = end + 1
            continue
        if token.kind == "hole" and token.text[2:-2] not in {*_DURATIONS, _ONCE}:
            raise InvalidDocument(f"{token.text} stands outside a label matcher")
        yield PromqlToken("name", labels.get(token.text) or token.text) if grouping and token.kind == "name" else token
        if token.text == "(" and _before(tokens, position).text in _GROUPING:
            grouping = True
        elif token.text == ")":
            grouping = False
        position += 1


def _before(tokens: list[PromqlToken], position: int) -> PromqlToken:
    """Return the last token before ``position`` that is not space."""
    return next((token for token in reversed(tokens[:position]) if token.kind != "space"), PromqlToken("space", ""))


def _selector(
    inner: list[PromqlToken], labels: Mapping[str, str], jobs: Mapping[str, str], several: frozenset[str]
) -> Iterator[PromqlToken]:
    """Rewrite what stands between the braces of one vector selector."""
    matchers: list[list[PromqlToken]] = [[]]
    for token in inner:
        if token.text == ",":
            matchers.append([])
        elif token.kind != "space":
            matchers[-1].append(token)
    kept = [found for matcher in matchers if matcher and (found := _matcher(matcher, labels, jobs, several))]
    yield PromqlToken("mark", "{")
    for number, matcher in enumerate(kept):
        if number:
            yield PromqlToken("mark", ",")
        yield from matcher
    yield PromqlToken("mark", "}")


def _matcher(
    matcher: list[PromqlToken], labels: Mapping[str, str], jobs: Mapping[str, str], several: frozenset[str]
) -> list[PromqlToken]:
    """Rewrite one label matcher; an empty list drops it."""
    if len(matcher) != 3:
        return matcher  # a quoted metric name, or something the parser will refuse
    label, operator, value = matcher
    if value.kind == "hole":
        allowed = _EQUALITY if operator.text in ("=", "!=") else _PATTERN
        if value.text[2:-2] not in allowed:
            raise InvalidDocument(f"{value.text} cannot stand after {label.text}{operator.text}")
        if value.text[2:-2] in several:
            operator = PromqlToken("mark", "=~" if operator.text == "=" else "!~")
    elif label.text == "job" and operator.text == "=" and (job := value.text[1:-1]) in jobs:
        if not jobs[job]:
            return []
        operator, value = (
            PromqlToken("mark", operator_of(jobs[job])),
            PromqlToken("text", quote(jobs[job].removeprefix("=~"))),
        )
    own = labels.get(label.text, label.text)
    return [PromqlToken("name", own), operator, value] if own else []


def operator_of(job: str) -> str:
    """Return the operator by which a job that is configured is matched: ``=~`` begins a regular expression."""
    return "=~" if job.startswith("=~") else "="


_COUNTED: Mapping[tuple[str, Language], tuple[str, tuple[str, ...]]] = {
    ("rate", "promql"): ("rate", ()),
    ("increase", "promql"): ("rate", (" * ", _PER_STEP)),
    ("rate", "metricsql"): ("increase_prometheus", (" / ", _SECONDS)),
    ("increase", "metricsql"): ("increase_prometheus", (_SHARE,)),
}
"""Function and language → the function that counts the same, and text and holes after its call."""


_PRECISE: Mapping[str, tuple[str, ...]] = {"rate": (" / ", _SECONDS), "increase": (_SHARE,)}
"""Function of PromQL → text and holes after what its samples show."""


def _counting(tokens: list[PromqlToken], language: Language, *, precise: bool) -> Iterator[PromqlToken]:
    """Write each ``rate`` and ``increase`` over ``{{window}}`` so that each pair of samples counts in one window, and only there.

    The range of Prometheus' ``rate`` reaches a scrape further back, so it begins with the sample that ended the window before. It then
    extrapolates by as much as the range is longer, which cancels. MetricsQL's ``increase`` begins with that sample wherever it is; where
    there is none for a while before the window, ``increase_prometheus`` counts from the first sample inside it.

    Where a series begins or ends within the range, ``rate`` extrapolates by half a scrape and more beyond its samples, and where a scrape
    failed at its edge, it counts too little. ``precise`` takes last - first instead: five functions instead of one, so for few points only.
    """
    found = [[token] for token in tokens]
    for position, token in enumerate(tokens):
        counted = _COUNTED.get((token.text, language)) if token.kind == "name" else None
        places = _windowed(tokens, position) if counted else None
        if counted and places:
            hole, end = places
            function, after = counted
            found[position], found[hole] = [PromqlToken("name", function)], [_hole(_RANGE)]
            call = tokens[position + 1 : end + 1]
            stays = all(each.kind == "space" for each in tokens[hole + 2 : end])  # the range is not moved by an offset
            if precise and stays and language == "promql":
                after = _PRECISE[token.text]
                found[position] = [PromqlToken("mark", "("), PromqlToken("name", "last_over_time")]
                found[hole] = [_hole(_WINDOW)]
                found[end] += _last_minus_first(call)
            elif stays and language == "metricsql":
                found[position], found[hole] = (
                    [PromqlToken("mark", "("), PromqlToken("name", "increase")],
                    [_hole(_WINDOW)],
                )
                found[end] += _since_the_last_before(call)
            if after:
                found[position].insert(0, PromqlToken("mark", "("))
                tail = [_hole(each) if each in _OWN else PromqlToken("text", each) for each in after]
                found[end] += [*tail, PromqlToken("mark", ")")]
    return chain.from_iterable(found)


def _last_minus_first(range_: list[PromqlToken]) -> list[PromqlToken]:
    """Return what makes last - first of ``(last_over_time(x)``, of a counter that began again its rate.

    The first is the sample before the window, wherever that is, or where there is none for a while the first one inside it.
    """
    before, window = _over(range_, _BEFORE)[:-1], _over(range_, _SAME_WINDOW)
    same = _over(range_, _SAME_RANGE)
    words: tuple[str | list[PromqlToken], ...] = (
        *(" - (last_over_time", before, " offset ", [_hole(_SAME_WINDOW)], ") or min_over_time", window, ") >= 0"),
        *(" unless resets", same, " > 0 or rate", same, " * ", [_hole(_SECONDS)], ")"),
    )
    return _written(words)


def _over(range_: list[PromqlToken], hole: str) -> list[PromqlToken]:
    """Return the parentheses of a call with another range."""
    return [_hole(hole) if token.text == WINDOW_HOLE else token for token in range_]


def _written(words: tuple[str | list[PromqlToken], ...]) -> list[PromqlToken]:
    return list(chain.from_iterable(_tokens(each) if isinstance(each, str) else each for each in words))


def _since_the_last_before(range_: list[PromqlToken]) -> list[PromqlToken]:
    """Return what keeps ``(increase(x)`` where a sample is known shortly before the window, and counts from the first one elsewhere."""
    before, window = _over(range_, _BEFORE)[:-1], _over(range_, _SAME_WINDOW)
    offset = [PromqlToken("text", " offset "), _hole(_SAME_WINDOW)]
    return _written((" and last_over_time", before, offset, ") or increase_prometheus", window, ")"))


def _windowed(tokens: list[PromqlToken], position: int) -> tuple[int, int] | None:
    """Return where the ``{{window}}`` and the closing parenthesis of a call stand; None when its range is another one, or a subquery."""
    depth, hole = 0, None
    for at in range(position + 1, len(tokens)):
        token = tokens[at]
        depth += (token.text == "(") - (token.text == ")")
        if depth <= 0 and token.kind != "space":
            return (hole, at) if hole else None
        if depth == 1 and token.text == WINDOW_HOLE and tokens[at - 1].text == "[" and tokens[at + 1].text == "]":
            hole = at
    return None


def _once(tokens: list[PromqlToken], *, doubled: bool | None) -> Iterator[PromqlToken]:
    """Write each ``{{once}} by (…) (x)`` as one of what has these labels, or as x where nothing is ``doubled``: half of the work.

    One of several is their mean. Where there are some for sure, a counter's is the one that has most samples in the range, at twice the
    price again: the mean is too small where one scraper was down for a part of it.
    """
    found = [[token] for token in tokens]
    for position, token in enumerate(tokens):
        if token != _hole(_ONCE):
            continue
        if _after(tokens, position).text != "by":
            raise InvalidDocument("after {{once}} stands by (labels) and what is measured, in parentheses")
        labels = parentheses(tokens, position)
        start, end = parentheses(tokens, labels[1])
        ranged = [at for at in range(start, end) if tokens[at] in (_hole(_RANGE), _hole(_WINDOW))]
        if doubled is False or (doubled and len(ranged) == 1):
            found[position:start] = [[] for _ in range(position, start)]
        else:
            found[position] = [PromqlToken("name", "avg")]
        if doubled is False and _before(tokens, position).text == "(" and _after(tokens, end).text == ")":
            found[start], found[end] = [], []
        elif doubled and len(ranged) == 1:
            grouping = "".join(each.text for each in tokens[labels[0] : labels[1] + 1])
            before, after = f" and topk by {grouping} (1, count_over_time(", "]))"
            samples = tokens[_opening(tokens, ranged[0]) + 1 : ranged[0] + 1]
            found[end] = [PromqlToken("text", before), *samples, PromqlToken("text", after), tokens[end]]
    return chain.from_iterable(found)


def _opening(tokens: list[PromqlToken], position: int) -> int:
    """Return where the parenthesis opens in which a position is."""
    depth = 0
    for at in range(position, -1, -1):
        depth += (tokens[at].text == ")") - (tokens[at].text == "(")
        if depth < 0:
            return at
    raise InvalidDocument("a parenthesis of the query template is not opened")


def parentheses(tokens: list[PromqlToken], position: int) -> tuple[int, int]:
    """Return where the first parenthesis after a position opens and closes."""
    depth = start = 0
    for at in range(position + 1, len(tokens)):
        if tokens[at].text == "(":
            start, depth = (at, 1) if not depth else (start, depth + 1)
        elif tokens[at].text == ")" and depth:
            depth -= 1
            if not depth:
                return start, at
    raise InvalidDocument("a parenthesis of the query template is not closed")


def _after(tokens: list[PromqlToken], position: int) -> PromqlToken:
    """Return the first token after ``position`` that is not space."""
    return next((token for token in tokens[position + 1 :] if token.kind != "space"), PromqlToken("space", ""))


def _hole(name: str) -> PromqlToken:
    return PromqlToken("hole", f"{{{{{name}}}}}")


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
    if any(each in query for each in _FOREIGN):
        query = "".join(
            _FOREIGN.get(each.text, each.text) if each.kind == "name" else each.text for each in _tokens(query)
        )
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
    """Return the jobs that a template or query names, under the label's name there; ``=~`` begins a regular expression."""
    found: set[str] = set()
    tokens = [token for token in _tokens(query) if token.kind != "space"]
    for name, operator, value in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if name.text in ("job", label) and operator.text in ("=", "=~") and value.kind == "text":
            found.add(("=~" if operator.text == "=~" else "") + value.text[1:-1])
    return frozenset(found)


def selectors(query: str) -> list[Selector]:
    """Return the vector selectors of a query, each once, in the order in which they are evaluated."""
    return list(dict.fromkeys(parts_of(query)))


def parts_of(query: str) -> list[Selector]:
    """Return the vector selectors of a query, each as often as it stands there."""
    found: list[Selector] = []

    def visit(expression: promql_parser.Expr) -> None:
        selector = None if isinstance(expression, promql_parser.MatrixSelector) else _selected(expression)
        if selector is not None:  # a range is visited too, and then what it is a range of
            found.append(selector)

    promql_parser.walk(parse(query), visit)
    return found


def _selected(expression: promql_parser.Expr) -> Selector | None:
    """Return the selector that an expression is, with a range or without."""
    if isinstance(expression, promql_parser.MatrixSelector):
        expression = expression.vector_selector
    if not isinstance(expression, promql_parser.VectorSelector):
        return None
    if expression.matchers.or_matchers:
        raise InvalidDocument("matchers joined by or are not supported")
    matchers = _matchers(expression)
    named = [each.value for each in matchers if each.label == "__name__" and each.operator == "="]
    metric = expression.name or (named[0] if named else "")
    return Selector(metric, tuple(sorted(each for each in matchers if each.label != "__name__")))


_MOST_WAYS = 32


def ways(query: str) -> list[tuple[Selector, ...]]:
    """Return the selectors of which a query needs series: all of one of these lists.

    ``a or b`` needs either, ``a unless b`` needs no ``b``. Beyond some ways the rest is left out.
    """
    return [tuple(dict.fromkeys(way)) for way in _ways(parse(query))]


def _ways(expression: promql_parser.Expr) -> list[list[Selector]]:
    if (selector := _selected(expression)) is not None:
        return [[selector]]
    if isinstance(expression, promql_parser.BinaryExpr):
        either, operator = _ways(expression.lhs), str(expression.op)
        if operator == "unless":
            return either
        other = _ways(expression.rhs)
        return (either + other if operator == "or" else _both(either, other))[:_MOST_WAYS]
    found: list[list[Selector]] = [[]]
    for part in _parts(expression):
        found = _both(found, _ways(part))[:_MOST_WAYS]
    return found


def _both(some: list[list[Selector]], others: list[list[Selector]]) -> list[list[Selector]]:
    return [[*one, *other] for one in some for other in others]


def _parts(expression: promql_parser.Expr) -> list[promql_parser.Expr]:
    """Return the expressions below one that is neither a selector nor of two operands."""
    if isinstance(expression, promql_parser.Call):
        return list(expression.args)
    if isinstance(expression, promql_parser.AggregateExpr):
        return [expression.expr, *([expression.param] if expression.param is not None else [])]
    below = promql_parser.ParenExpr | promql_parser.UnaryExpr | promql_parser.SubqueryExpr
    return [expression.expr] if isinstance(expression, below) else []


_WORDS = frozenset({"bool", "offset", "and", "or", "unless", "atan2", "inf", "nan"}) | _GROUPING


def enforce(query: str, matchers: tuple[Matcher, ...]) -> str:
    """Return a query that somebody wrote in which every selector has ``matchers`` too, so that it can only see their series.

    The text of the query is kept, the matchers are put into it token by token, and what comes out is parsed and checked.
    Raises ``InvalidInput`` for what is not PromQL or cannot be limited.
    """
    try:
        parse(query)
        limited = "".join(each.text for each in _limited(tokens_of(query), ",".join(map(str, matchers))))
        left = lacking(limited, matchers)
    except InvalidDocument as error:
        raise InvalidInput(str(error), hint="write PromQL without the entity's own matchers") from error
    if left:
        raise InvalidInput(
            "the query cannot be limited to the entity", hint='write plain selectors: metric{label="value"}'
        )
    return limited


def exclude(query: str, pattern: str, names: str) -> str:
    """Return a query in which what is matched with the regular expression ``pattern`` must not match ``names``, another one.

    Each matcher of that value, whichever its label is, gets a second one beside it; the rest of the text is kept.
    """
    tokens = tokens_of(query)
    told = [token for token in tokens if token.kind != "space"]
    labels = {
        id(value): label.text
        for label, operator, value in zip(told, told[1:], told[2:], strict=False)
        if operator.text == "=~" and value.text == quote(pattern)
    }
    return "".join(
        f"{each.text},{labels[id(each)]}!~{quote(names)}" if id(each) in labels else each.text for each in tokens
    )


def lacking(query: str, matchers: tuple[Matcher, ...]) -> bool:
    """Return whether the parser finds a selector without all of ``matchers`` in a query, or no selector at all."""
    found = selectors(query)
    return not found or any(set(matchers) - set(each.matchers) for each in found)


def _limited(tokens: list[PromqlToken], matchers: str) -> Iterator[PromqlToken]:
    """Yield the tokens with the matchers in every selector."""
    metrics = set(positions_of_metrics(tokens))
    for position, token in enumerate(tokens):
        after = _after(tokens, position)
        yield token
        if matchers and token.text == "{":
            yield PromqlToken("text", matchers if after.text == "}" else matchers + ",")
        elif matchers and position in metrics and after.text != "{":
            yield PromqlToken("text", f"{{{matchers}}}")


def positions_of_metrics(tokens: list[PromqlToken]) -> Iterator[int]:
    """Yield the positions of metrics' names: outside braces, ranges and groupings."""
    grouping = enclosed = False  # inside by (…), inside {…} or […]
    for position, token in enumerate(tokens):
        if token.text in ("{", "["):
            enclosed = True
        elif token.text in ("}", "]"):
            enclosed = False
        elif token.text == "(" and _before(tokens, position).text.lower() in _GROUPING:
            grouping = True
        elif token.text == ")":
            grouping = False
        elif not (grouping or enclosed) and _is_metric(token, _after(tokens, position)):
            yield position


def _is_metric(token: PromqlToken, after: PromqlToken) -> bool:
    """Return whether a name outside braces and groupings is a metric's: no function, no aggregation, no keyword."""
    aggregates = after.text == "(" or after.text.lower() in ("by", "without")
    return token.kind == "name" and not aggregates and token.text.lower() not in _WORDS


def select(selector: Selector, matchers: tuple[Matcher, ...]) -> str:
    """Write the selector's metric with only these matchers."""
    return f"{{{','.join([f'__name__={quote(selector.metric)}', *map(str, matchers)])}}}"
