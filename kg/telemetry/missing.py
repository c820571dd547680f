"""Why an answer is empty: which metric, label or value the server does not have, and what it has instead.

Only the index is asked (label names and values), so this costs the server little however long the window is.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from datetime import datetime

from drumlin.kg.errors import MetricMissing
from drumlin.kg.telemetry.fetch.prometheus import Prometheus
from drumlin.kg.telemetry.profiles import exporter_of
from drumlin.kg.telemetry.promql import Matcher, Selector, select, ways

_SIMILAR = 5
_OF_PROFILES = frozenset({"job", "metrics_path", "instance", "node"})  # labels in which installations differ


def explain_absence(client: Prometheus, query: str, start: datetime, end: datetime) -> MetricMissing:
    """Find out why ``query`` has no point in the window and return it as an error; never returns a guess.

    Raises what the client raises when the server does not answer this.
    """
    if client.datasource.shared:
        return _missing(
            client,
            query,
            "there are no samples in the window",
            missing="samples",
            hint="take a longer window, or ask an operator of the datasource what it holds",
        )
    lacking = [_first(client, query, way, start, end) for way in ways(query)]
    if lacking and all(lacking):
        return next(each for each in lacking if each)
    return _missing(
        client,
        query,
        "there are series, but no point of the query in the window",
        missing="samples",
        hint="take a longer window or step: a rate needs two scrapes in its range, and both sides of an operator must match",
    )


def _first(
    client: Prometheus, query: str, way: Iterable[Selector], start: datetime, end: datetime
) -> MetricMissing | None:
    """Return what is missing of the first selector of a way to ask that has no series."""
    searches = (_Search(client, query, selector, start, end).run() for selector in way)
    return next((found for found in searches if found), None)


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
            hint=(
                f"similar there: {', '.join(similar)}"
                if similar
                else "check that its exporter is scraped by this server"
            )
            + (self._profile("job") if exporter_of(metric) else ""),
        )

    def _label(self, matcher: Matcher, known: list[str]) -> MetricMissing:
        similar = _renamed(matcher.label, known) or _similar(matcher.label, known)
        rename = ""
        if matcher.label in self.client.datasource.matchers:
            rename = "; correct matchers"
        elif similar:
            rename = f"; if it is {similar[0]}, set {self._rename(matcher.label, similar[0])}"
        return _missing(
            self.client,
            self.query,
            f"{self.selector.metric} has no label {matcher.label}",
            missing=matcher.label,
            similar=similar,
            hint=f"its labels are {', '.join(sorted(set(known) - {'__name__'}))}{rename} for this datasource in drumlin.toml"
            + self._profile(matcher.label),
        )

    def _profile(self, label: str) -> str:
        """Name the command that guesses the profile, where one may mend a label that installations name otherwise."""
        datasource = self.client.datasource
        if datasource.profile or label not in _OF_PROFILES:
            return ""
        return f"; `drumlin datasources {datasource.name}` guesses its profile"

    def _rename(self, label: str, own: str) -> str:
        """Write the setting that renames a label; what a target's own label displaced is renamed for its exporter alone."""
        exporter = exporter_of(self.selector.metric)
        if exporter and own.startswith("exported_"):
            return f'labels = {{{exporter} = {{{label} = "{own}"}}}}'
        return f'labels = {{{label} = "{own}"}}'

    def _value(self) -> MetricMissing:
        """Add matcher after matcher and name the first that leaves nothing."""
        known = self._labels(())
        for count in range(1, len(self.selector.matchers) + 1):
            if names := self._labels(self.selector.matchers[:count]):
                known = names
                continue
            matcher = self.selector.matchers[count - 1]
            displaced = _renamed(matcher.label, known)
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
                hint=(
                    f"there is {', '.join(similar)}"
                    if similar
                    else "check that it is scraped, and that the window is right"
                )
                + (
                    f"; its own {matcher.label} is in {displaced[0]}: set {self._rename(matcher.label, displaced[0])}"
                    if displaced
                    else ""
                )
                + self._profile(matcher.label),
            )
        return _missing(
            self.client, self.query, f"no series of {self.selector.metric} is left", missing=self.selector.metric
        )


def _matches_nothing(matcher: Matcher) -> bool:
    """Return whether a series without the label would match (PromQL: an absent label is an empty one)."""
    operator, value = matcher.operator, matcher.value
    if operator in ("=", "!="):
        return (value == "") == (operator == "=")
    return bool(re.fullmatch(value, "")) == (operator == "=~")


def _renamed(label: str, known: Iterable[str]) -> list[str]:
    """Return the name that a label gets where the target of a scrape has one of that name too."""
    return [each for each in known if each == f"exported_{label}"]


def _similar(word: str, known: Iterable[str]) -> list[str]:
    return difflib.get_close_matches(word, list(known), n=_SIMILAR, cutoff=0.5)


def _missing(
    client: Prometheus, query: str, what: str, *, missing: str, similar: Iterable[str] = (), hint: str | None = None
) -> MetricMissing:
    name = client.datasource.name
    detail = {"datasource": name, "query": query, "missing": missing, "similar": list(similar)}
    return MetricMissing(f"datasource {name}: {what}", hint=hint, detail=detail)
