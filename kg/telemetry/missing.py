"""Why an answer is empty: which metric, label or value the server does not have, and what it has instead.

Only the index is asked (label names and values), so this costs the server little however long the window is.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from datetime import datetime

from kg.errors import MetricMissing
from kg.telemetry.fetch.prometheus import Prometheus
from kg.telemetry.promql import Matcher, Selector, select, selectors

_SIMILAR = 5


def explain_absence(client: Prometheus, query: str, start: datetime, end: datetime) -> MetricMissing:
    """Find out why ``query`` has no point in the window and return it as an error; never returns a guess.

    Raises what the client raises when the server does not answer this.
    """
    for selector in selectors(query):
        if found := _Search(client, query, selector, start, end).run():
            return found
    return _missing(
        client,
        query,
        "there are series, but no point of the query in the window",
        missing="samples",
        hint="take a longer window or step: a rate needs two scrapes in its range, and both sides of an operator must match",
    )


class _Search:
    """The search for what is missing of one selector."""

    def __init__(self, client: Prometheus, query: str, selector: Selector, start: datetime, end: datetime) -> None:
        self.client, self.query, self.selector = client, query, selector
        self.span = (start, end)

    def run(self) -> MetricMissing | None:
        """Return the error, or None when the server has series for the selector."""
        metric = self.selector.metric
        if self._labels(self.selector.matchers):
            return None
        known = self._labels(())
        if not known:
            return self._metric(metric)
        for matcher in self.selector.matchers:
            if matcher.label not in known and not _matches_nothing(matcher):
                return self._label(matcher, known)
        return self._value()

    def _labels(self, matchers: tuple[Matcher, ...]) -> list[str]:
        return self.client.label_names(select(self.selector, matchers), *self.span)

    def _metric(self, metric: str) -> MetricMissing:
        similar = _similar(metric, self.client.label_values("__name__", *self.span))
        return _missing(
            self.client,
            self.query,
            f"there is no metric {metric} in the window",
            missing=metric,
            similar=similar,
            hint=f"similar there: {', '.join(similar)}"
            if similar
            else "check that its exporter is scraped by this server",
        )

    def _label(self, matcher: Matcher, known: list[str]) -> MetricMissing:
        similar = _similar(matcher.label, known)
        rename = f'; if it is {similar[0]}, set labels = {{{matcher.label} = "{similar[0]}"}}' if similar else ""
        return _missing(
            self.client,
            self.query,
            f"{self.selector.metric} has no label {matcher.label}",
            missing=matcher.label,
            similar=similar,
            hint=f"its labels are {', '.join(sorted(set(known) - {'__name__'}))}{rename} for this datasource in drumlin.toml",
        )

    def _value(self) -> MetricMissing:
        """Add matcher after matcher and name the first that leaves nothing."""
        for count in range(1, len(self.selector.matchers) + 1):
            if self._labels(self.selector.matchers[:count]):
                continue
            matcher = self.selector.matchers[count - 1]
            others = select(self.selector, self.selector.matchers[: count - 1])
            values = self.client.label_values(matcher.label, *self.span, match=others) if len(others) < 4000 else []
            similar = _similar(matcher.value, values)
            if matcher.label == "job" and values:
                similar = values[:_SIMILAR]
            return _missing(
                self.client,
                self.query,
                f"no series of {self.selector.metric} has {str(matcher)[:200]}",
                missing=matcher.label,
                similar=similar,
                hint=f"there is {', '.join(similar)}"
                if similar
                else "check that it is scraped, and that the window is right",
            )
        return _missing(
            self.client, self.query, f"no series of {self.selector.metric} is left", missing=self.selector.metric
        )


def _matches_nothing(matcher: Matcher) -> bool:
    """Tell whether a series without the label would match (PromQL: an absent label is an empty one)."""
    operator, value = matcher.operator, matcher.value
    if operator in ("=", "!="):
        return (value == "") == (operator == "=")
    return bool(re.fullmatch(value, "")) == (operator == "=~")


def _similar(word: str, known: Iterable[str]) -> list[str]:
    return difflib.get_close_matches(word, list(known), n=_SIMILAR, cutoff=0.5)


def _missing(
    client: Prometheus, query: str, what: str, *, missing: str, similar: Iterable[str] = (), hint: str | None = None
) -> MetricMissing:
    name = client.datasource.name
    detail = {"datasource": name, "query": query, "missing": missing, "similar": list(similar)}
    return MetricMissing(f"datasource {name}: {what}", hint=hint, detail=detail)
