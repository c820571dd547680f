"""A template's query for many entities at once: the same expression for each value of the labels that tell entities apart.

Every aggregation gets the labels, and so does every ``on``; then the series of one entity meet no other's. This holds only where each
selector names the entity by the same labels, and where nothing makes series of its own; for other templates there is no such query. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from drumlin.kg.errors import DrumlinError
from drumlin.kg.telemetry import promql

_AGGREGATIONS = frozenset(
    {"sum", "min", "max", "avg", "group", "count", "stddev", "stdvar", "topk", "bottomk", "quantile"}
)
_MAKING_SERIES = frozenset(
    {"vector", "absent", "absent_over_time", "scalar", "time", "label_replace", "label_join", "count_values"}
)
_MARK = "\ufffe"  # stands for an entity's value


class ByLabel(NamedTuple):
    """A template's text for many entities, the labels (the template's names) in the order of its holes, and its first selector."""

    query: str
    labels: tuple[str, ...]
    selector: str


@lru_cache(maxsize=1024)
def by_label(query: str, holes: tuple[str, ...]) -> ByLabel | None:
    """Return a template's query for many entities, whose values fill ``holes`` (``node``; ``namespace`` and ``pods``).

    None when there is no such query.
    """
    tokens = promql.tokens_of(query)
    if any(kind == "name" and text in _MAKING_SERIES for kind, text in tokens):
        return None
    labels = _labels(query, holes)
    if labels is None:
        return None
    written = _rewritten(tokens, labels)
    return None if written is None else ByLabel(written, labels, _selector(tokens))


def _labels(query: str, holes: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the labels that the holes stand behind, when they are the same in every selector."""
    sample = query.replace("{{window}}", "5m").replace("{{lookback}}", "5m").replace("{{once}}", "max")
    for hole in holes:
        sample = sample.replace(f"{{{{{hole}}}}}", f'"{_MARK}{hole}"')
    try:
        selectors = promql.selectors(sample)
    except DrumlinError:  # another hole is left: it is no template for such entities
        return None
    found = {
        tuple(next((m.label for m in each.matchers if m.value == f"{_MARK}{hole}"), "") for hole in holes)
        for each in selectors
    }
    labels = found.pop() if len(found) == 1 else ("",)
    return labels if all(labels) else None


def _rewritten(tokens: Sequence[tuple[str, str]], labels: tuple[str, ...]) -> str | None:
    """Write the tokens with the labels in every aggregation and ``on``; None where one is taken away by ``without`` or ``ignoring``."""
    written = [text for _, text in tokens]
    braces = 0
    for at, (kind, text) in enumerate(tokens):
        braces += (text == "{") - (text == "}")
        if kind != "name" or braces:
            continue
        word = text.lower()
        if word in _AGGREGATIONS:
            if not _grouped(tokens, at):
                written[at] = f"{text} by ({','.join(labels)}) "
        elif word in ("by", "on", "without", "ignoring"):
            opening = _next(tokens, at)
            named = _listed(tokens, opening)
            if word in ("without", "ignoring"):
                if named & set(labels):
                    return None
            elif missing := [each for each in labels if each not in named]:
                written[opening] = "(" + ",".join(missing) + ("," if named else "")
    return "".join(written)


def _grouped(tokens: Sequence[tuple[str, str]], at: int) -> bool:
    """Return whether an aggregation has a ``by`` or ``without``, before or after what it aggregates."""
    following = _next(tokens, at)
    if following < len(tokens) and tokens[following][1].lower() in ("by", "without"):
        return True
    depth = 0
    for position in range(following, len(tokens)):
        depth += (tokens[position][1] == "(") - (tokens[position][1] == ")")
        if depth == 0:
            after = _next(tokens, position)
            return after < len(tokens) and tokens[after][1].lower() in ("by", "without")
    return False


def _next(tokens: Sequence[tuple[str, str]], at: int) -> int:
    """Return where the next token that is not space stands."""
    return next((n for n in range(at + 1, len(tokens)) if tokens[n][0] != "space"), len(tokens))


def _listed(tokens: Sequence[tuple[str, str]], opening: int) -> set[str]:
    found: set[str] = set()
    for kind, text in tokens[opening + 1 :]:
        if text == ")":
            break
        if kind == "name":
            found.add(text)
    return found


def _selector(tokens: Sequence[tuple[str, str]]) -> str:
    """Return the first selector as it stands in the template, without a range."""
    opening = next(at for at, (_, text) in enumerate(tokens) if text == "{")
    closing = next(at for at in range(opening, len(tokens)) if tokens[at][1] == "}")
    begins = opening - 1 if opening and tokens[opening - 1][0] == "name" else opening
    return "".join(text for _, text in tokens[begins : closing + 1])
