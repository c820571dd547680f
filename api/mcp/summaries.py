"""What is left of a document, of links and of a series when a model reads them: facts without what it could not use. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING, Any

from drumlin.kg.client.entities import metrics_of
from drumlin.kg.rdf.syntax import terms
from drumlin.ontology.vocabulary import NAMESPACE

if TYPE_CHECKING:
    from drumlin.kg.client.series import Series

_RUNS = 5
Fact = tuple[str, Any]


def facts(document: Mapping[str, Any]) -> Iterator[Fact]:
    """Yield the properties of an entity's document, each value a fact; of its telemetry the metrics, of its runs the last."""
    root = f"{document['id'].partition('/id/')[0]}/id/"
    yield from _facts(
        {key: value for key, value in document.items() if key not in ("@context", "telemetry", "runs")}, root
    )
    for name, metric in sorted(metrics_of(document).items()):
        yield "metric", f"{name} ({metric.unit}) in {', '.join(sorted(metric.queries))}"
    for telemetry in document.get("telemetry", ()):
        if isinstance(telemetry, Mapping) and telemetry.get("signal") != "metrics":
            yield "telemetry", telemetry.get("signal")
    runs = [each for each in document.get("runs", ()) if isinstance(each, Mapping)]
    runs.sort(key=lambda each: str(each.get("startedAt", "")), reverse=True)
    for run in runs[:_RUNS]:
        said = (f"{name} {run[name]}" for name in ("startedAt", "endedAt", "outcome", "scheduledOn") if run.get(name))
        yield "run", ", ".join(said).replace(root, "")
    if len(runs) > _RUNS:
        yield "runs before", len(runs) - _RUNS


def _facts(document: Mapping[str, Any], root: str, prefix: str = "") -> Iterator[Fact]:
    for key, value in document.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Mapping):
                yield from _facts(each, root, f"{prefix}{key}.")
            else:
                yield f"{prefix}{key}", each.removeprefix(root) if isinstance(each, str) else each


def links(documents: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, str, str]]:
    """Yield the links between the first document and the others: direction, relation, the other's id and class."""
    first, *others = documents
    types = {each["id"]: str(each.get("type", "")) for each in others if each.get("type") != "MetricTemplate"}
    root = f"{first['id'].partition('/id/')[0]}/id/"
    for relation, target in _references(first):
        if target in types:
            yield "to", relation, target.removeprefix(root), types[target]
    for each in others:
        for relation, target in _references(each):
            if target == first["id"]:
                yield "from", relation, each["id"].removeprefix(root), types.get(each["id"], "")


def short(value: Any) -> Any:
    """Write an IRI as queries and tools name it: a short id, a term of the ontology; a time as RFC 3339 has it."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, str) and value.startswith(("http://", "https://")):
        return (
            f":{value.removeprefix(NAMESPACE)}" if value.startswith(NAMESPACE) else value.partition("/id/")[2] or value
        )
    return value


def statement(line: str, *, quad: bool = False) -> tuple[Any, Any, Any]:
    """Return a line of N-Triples, or of N-Quads without its graph (an IRI), as subject, property and value."""
    if quad:
        line = f"{line[: line.rindex(' <')]} ."
    subject, predicate, value = terms(line)
    return short(subject.value), short(predicate.value), short(value.value) if value.kind == "iri" else value.value


def _references(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    seen: dict[tuple[str, str], None] = {}
    for key, value in document.items():
        if key in ("@context", "id"):
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Mapping):
                seen.update(dict.fromkeys(_references(each, f"{prefix}{key}.")))
            elif isinstance(each, str) and "/id/" in each:
                seen[f"{prefix}{key}", each] = None
    yield from seen


def statistics(series: Series) -> list[tuple[str, Any, str]]:
    """Return what is worth knowing of a series: its size and coverage, the distribution of its values, and where it goes."""
    table = series.to_arrow()
    points = [(at, y) for at, y in zip(table["ds"].to_pylist(), table["y"].to_pylist(), strict=True) if y is not None]
    coverage = next(iter(series.coverage.values()), 0.0)
    known: list[tuple[str, Any, str]] = [("unit", series.unit, ""), ("points", len(points), f"every {series.step} s")]
    known.append(("coverage", f"{coverage:.1%}", ""))
    if not points:
        return [*known, ("values", "none in the window", "")]
    values = sorted(y for _, y in points)
    mean = sum(values) / len(values)
    least, most = (choose(points, key=lambda each: each[1]) for choose in (min, max))
    (begin, first), (end, last) = points[0], points[-1]
    known += [("first", first, _moment(begin)), ("last", last, _moment(end))]
    known += [("least", least[1], _moment(least[0])), ("mean", mean, ""), ("median", _quantile(values, 0.5), "")]
    known += [("95th percentile", _quantile(values, 0.95), ""), ("most", most[1], _moment(most[0]))]
    known.append(("largest step", max((abs(b - a) for (_, a), (_, b) in pairwise(points)), default=0.0), ""))
    third = max(1, len(points) // 3)
    before, after = (sum(y for _, y in part) / len(part) for part in (points[:third], points[-third:]))
    known.append(("trend", _trend(before, after), "mean of the last third against the first"))
    gaps = [gap for each in series.gaps.values() for gap in each]
    known += [("gap", f"{begin} to {end}", "") for begin, end in gaps[:5]]
    return [*known, ("more gaps", len(gaps) - 5, "")] if len(gaps) > 5 else known


def _trend(before: float, after: float) -> str:
    if not before:
        return f"{after - before:+.4g}"
    return f"{(after - before) / abs(before):+.1%}"


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return the least value that ``share`` of all do not exceed (the nearest rank)."""
    return ordered[max(0, ceil(share * len(ordered)) - 1)]


def _moment(at: Any) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
