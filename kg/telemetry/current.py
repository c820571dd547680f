"""What is asked for the current values of many entities: as few queries as can be, each with a way from its series back to entities.

Entities of one datasource, one expression and one unit are asked for together: by the label that tells them apart (``by_label``), or, where
there is none, by a query of each that bears its number. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from fractions import Fraction
from typing import NamedTuple

from drumlin.kg.telemetry import dialects, renaming
from drumlin.kg.telemetry.by_label import ByLabel, by_label
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.group_queries import adds_up_over_pods
from drumlin.kg.telemetry.promql import Matcher
from drumlin.kg.telemetry.quoting import any_of
from drumlin.kg.telemetry.templates import Template

NUMBER, SAID = "drumlin_entity", "drumlin_said"
"""Labels of our own: which entity of a query a series is of; whether it says a value or the time of the newest sample."""
VALUE, TIME = "value", "time"
_MOST_NAMES = 2000
_MOST_QUERIES = 50  # of entities that are asked for in one, each by itself
EVERY_POD = ".+"

Sample = Mapping[str, str]
"""Labels of a series."""


@dataclass(frozen=True, slots=True)
class Current:
    """One metric of one entity as it is to be asked for now.

    ``names`` are what the series are told apart by: the node's name, or pairs of namespace and pod; of a namespace ``(namespace, "")``.
    ``query`` gives the value alone, for what cannot be asked for together with others.
    """

    entity: str
    metric: str
    unit: str
    server: Datasource
    query: Callable[[], str]
    template: Template | None = None
    factor: Fraction = dialects.ONE
    matchers: tuple[Matcher, ...] = ()
    window: timedelta = timedelta(minutes=5)
    names: tuple[tuple[str, ...], ...] = ()
    holes: tuple[str, ...] = ()


class Asked(NamedTuple):
    """One query to one server, and what its series are of: the number of a ``Current`` in ``of`` by labels or by number.

    ``about_all`` is a query whose lack of series has one reason for all of them, where there is one.
    """

    server: Datasource
    query: str
    of: tuple[Current, ...]
    owner: Callable[[Sample], Iterable[int]]
    about_all: str | None = None


@dataclass(slots=True)
class _Together:
    form: ByLabel
    members: list[Current] = field(default_factory=list)


def queries(wanted: Iterable[Current]) -> Iterator[Asked]:
    """Yield the queries that together ask for all of ``wanted``."""
    together: dict[tuple[object, ...], _Together] = {}
    alone: defaultdict[tuple[object, ...], list[Current]] = defaultdict(list)
    for each in wanted:
        form = _form(each)
        if form is None or each.template is None:
            alone[each.server.iri, each.metric].append(each)
        else:
            key = (each.server.iri, each.matchers, form, each.factor, each.window, each.template.name)
            together.setdefault(key, _Together(form)).members.append(each)
    for found in together.values():
        for some in _limited(found.members):
            yield _by_label(found.form, some)
    for members in alone.values():
        for first in range(0, len(members), _MOST_QUERIES):
            yield _by_number(members[first : first + _MOST_QUERIES])


def can_be_asked_together(current: Current) -> bool:
    """Return whether there is one query for it and others."""
    return _form(current) is not None


def _form(current: Current) -> ByLabel | None:
    if current.template is None or current.server.kind != "prometheus" or not current.names:
        return None
    if len(current.names) > _MOST_NAMES or (current.holes != ("node",) and not _sums(current)):
        return None
    return by_label(renaming.written(current.template, current.server), current.holes)


def _sums(current: Current) -> bool:
    """Return whether the values of an entity's pods add up to its own; those of a single pod are."""
    template = current.template
    return template is not None and (
        adds_up_over_pods(template) or (len(current.names) == 1 and current.names[0][-1] != "")
    )


def _limited(members: Sequence[Current]) -> Iterator[list[Current]]:
    """Yield the members so many at a time that their names fit into a query."""
    some: list[Current] = []
    count = 0
    for each in members:
        if some and count + len(each.names) > _MOST_NAMES:
            yield some
            some, count = [], 0
        some.append(each)
        count += len(each.names)
    yield some


def _by_label(form: ByLabel, members: Sequence[Current]) -> Asked:
    first = members[0]
    template = first.template
    assert template is not None
    owners: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, each in enumerate(members):
        for name in each.names:
            owners[name].append(number)
    labels = tuple(first.server.labels.get(each, each) for each in form.labels)
    values = _values(first.holes, owners)

    def write(query: str, factor: Fraction = dialects.ONE) -> str:
        return dialects.write(
            _with(template, query),
            values,
            "",
            window=first.window,
            step=first.window,
            datasource=first.server,
            matchers=first.matchers,
            factor=factor,
        )

    wanted = write(form.query, first.factor)
    newest = f"max by ({','.join(form.labels)}) (timestamp({form.selector}))"
    query = " or ".join((_said(wanted, VALUE), _said(write(newest), TIME)))

    def owner(sample: Sample) -> Iterable[int]:
        name = tuple(sample.get(label, "") for label in labels)
        return [*owners.get(name, ()), *(owners.get((name[0], ""), ()) if len(name) == 2 else ())]

    return Asked(first.server, query, tuple(members), owner, wanted)


def _values(holes: tuple[str, ...], names: Iterable[tuple[str, ...]]) -> dict[str, str]:
    found = sorted(names)
    if holes == ("node",):
        return {"nodes": any_of(name for (name,) in found)}
    whole = any(pod == "" for _, pod in found)
    pods = EVERY_POD if whole else any_of(pod for _, pod in found)
    return {"namespaces": any_of(namespace for namespace, _ in found), "pods": pods}


def _by_number(members: Sequence[Current]) -> Asked:
    """Ask for each member by its own query; of other servers than Prometheus there is one member at a time."""
    numbered = (f'label_replace({each.query()}, "{NUMBER}", "{number}", "", "")' for number, each in enumerate(members))
    query = _said(" or ".join(numbered), VALUE)
    alone = members[0].query() if len(members) == 1 else None
    return Asked(members[0].server, query, tuple(members), lambda sample: [int(sample[NUMBER])], alone)


def _said(query: str, what: str) -> str:
    return f'label_replace({query}, "{SAID}", "{what}", "", "")'


def _with(template: Template, query: str) -> Template:
    return replace(template, query=query)
