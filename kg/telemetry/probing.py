"""What is wrong with a datasource: is it there, which version, since when has it samples, and which templates find their series in it.

Only index look-ups and one look at the version, so a probe costs a server little. It never raises: an error is its answer.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from kg.errors import DrumlinError, MetricMissing
from kg.telemetry import lacking, promql
from kg.telemetry.datasources import Datasource
from kg.telemetry.fetch.grafana import Grafana
from kg.telemetry.fetch.influxdb import InfluxDB
from kg.telemetry.fetch.loki import Loki
from kg.telemetry.fetch.parquet import Parquet
from kg.telemetry.fetch.prometheus import Prometheus
from kg.telemetry.missing import explain_absence
from kg.telemetry.promql import Selector
from kg.telemetry.resolution import iso
from kg.telemetry.series import moment
from kg.telemetry.templates import Catalogue, Template, did_you_mean

LOOKED_AT = timedelta(days=1)
"""How far back a template's series are looked for."""
_OLDEST = datetime(2010, 1, 1, tzinfo=UTC)  # no server of this kind existed before
_HOLE = "\ufffe"  # stands for an entity's value: no server has a series with it


def describe(datasource: Datasource) -> dict[str, Any]:
    """Return what is known of a datasource without asking it; how to get in is not part of it."""
    found: dict[str, Any] = {
        "name": datasource.name,
        "id": datasource.iri,
        "type": datasource.kind,
        "url": datasource.url,
        "configured": datasource.access is not None,
    }
    return found | ({"domain": datasource.domain} if datasource.domain else {})


def probe(datasource: Datasource, catalogue: Catalogue, now: datetime) -> dict[str, Any]:
    """Return what is known, and what asking it showed: ``reachable``, ``version``, ``oldest`` and, per template, what is missing."""
    found = describe(datasource)
    ask = _PROBES.get(datasource.kind)
    if ask is None or datasource.access is None:
        return found  # a link only, or nothing to get in with
    try:
        return found | {"reachable": True} | ask(datasource, catalogue, now)
    except DrumlinError as error:
        return found | {"reachable": False, "error": str(error), "hint": error.hint}


def _prometheus(datasource: Datasource, catalogue: Catalogue, now: datetime) -> dict[str, Any]:
    with Prometheus(datasource) as client:
        version = client.probe()
        oldest = _since(client, now)
        templates = [
            _template(client, template, now)
            for template in catalogue.templates
            if template.datasource_type == datasource.kind
        ]
    return {"version": version, "oldest": iso(oldest) if oldest else None, "templates": templates}


def _since(client: Prometheus, now: datetime) -> datetime | None:
    """Find the time of the oldest sample, to an hour, by halving: the server tells its oldest block at best."""
    if not client.label_names_of_all(_OLDEST, now):
        return None
    early, late = int(_OLDEST.timestamp()), int(now.timestamp())
    while late - early > 3600:
        middle = (early + late) // 2
        if client.label_names_of_all(_OLDEST, moment(middle)):
            late = middle
        else:
            early = middle
    return moment(late)


def _template(client: Prometheus, template: Template, now: datetime) -> dict[str, Any]:
    """Look for a template's series, whichever entity they are of, and for the labels that it needs."""
    found: dict[str, Any] = {"template": template.name, "found": True}
    try:
        for selector in promql.selectors(_sample(template, client.datasource)):
            _look(client, selector, now)
    except MetricMissing as error:
        found = _lacking(template.name, error)
    except DrumlinError as error:  # the template itself, or the server's refusal
        found |= {"found": False, "detail": str(error), "hint": error.hint}
    return found


def _sample(template: Template, datasource: Datasource) -> str:
    holes = dict.fromkeys(("namespace", "node", "pods", "domain"), _HOLE)
    return promql.render(template.query, holes, window=timedelta(minutes=5), datasource=datasource)


def _look(client: Prometheus, selector: Selector, now: datetime) -> None:
    """Raise ``MetricMissing`` when there is no series, or none with the labels by which entities are told apart."""
    fixed = tuple(each for each in selector.matchers if each.value != _HOLE)
    query = promql.select(selector, fixed)
    names = client.label_names(query, now - LOOKED_AT, now)
    if not names:
        raise explain_absence(client, query, now - LOOKED_AT, now)
    for matcher in selector.matchers:
        if matcher.value == _HOLE and matcher.label not in names:
            raise explain_absence(client, promql.select(selector, (*fixed, matcher)), now - LOOKED_AT, now)


def _grafana(datasource: Datasource, _catalogue: Catalogue, _now: datetime) -> dict[str, Any]:
    with Grafana(datasource) as client:
        found: dict[str, Any] = {"version": client.version()}
        listed = datasource.access is not None and datasource.access.credential is not None
        return found | ({"datasources": len(client.datasources())} if listed else {})


def _loki(datasource: Datasource, catalogue: Catalogue, now: datetime) -> dict[str, Any]:
    with Loki(datasource) as client:
        version = client.probe()
        names = client.label_names(now - LOOKED_AT, now)
        namespace = datasource.labels.get("namespace", "namespace")
        oldest = client.oldest(namespace, now) if namespace in names else None
        wanted = ["logs", *(each.name for each in catalogue.templates if each.datasource_type == "loki")]
        templates = [_streams(datasource, name, names) for name in wanted]
    return {"version": version, "oldest": iso(oldest) if oldest else None, "templates": templates}


def _streams(datasource: Datasource, name: str, known: list[str]) -> dict[str, Any]:
    """Look for the labels by which streams are told apart; all log templates need the same."""
    for label in (datasource.labels.get(each, each) for each in ("namespace", "pod")):
        if not known:
            return {
                "template": name,
                "found": False,
                "missing": "lines",
                "similar": [],
                "detail": "no line of the last day",
            }
        if label not in known:
            similar = difflib.get_close_matches(label, known, n=5, cutoff=0.4)
            return {
                "template": name,
                "found": False,
                "missing": label,
                "similar": similar,
                "detail": f"no stream has a label {label}",
                "hint": f"its labels are {', '.join(known[:20])}; set labels of {datasource.name} in drumlin.toml",
            }
    return {"template": name, "found": True}


def _influxdb(datasource: Datasource, catalogue: Catalogue, _now: datetime) -> dict[str, Any]:
    with InfluxDB(datasource) as client:
        found: dict[str, Any] = {"version": client.version(), "measurements": len(client.measurements())}
        templates = [_place(client, name, catalogue) for name in datasource.series]
        places = [datasource.series[each["template"]] for each in templates if each["found"]]
        times = [at for place in places if (at := client.oldest(place.measurement, place.field))]
    return found | {"oldest": iso(min(times)) if times else None, "templates": templates}


def _place(client: InfluxDB, name: str, catalogue: Catalogue) -> dict[str, Any]:
    template = next((each for each in catalogue.templates if each.name == name), None)
    if template is None:
        near = did_you_mean(name, [each.name for each in catalogue.templates])
        return {"template": name, "found": False, "detail": f"there is no template {name}", "hint": near}
    tags = {"Workload": ("namespace", "pod"), "Node": ("node",)}.get(template.scope, ())
    error = lacking.look(client, client.datasource.series[name], lacking.tags_of(client, tags))
    return {"template": name, "found": True} if error is None else _lacking(name, error)


def _lacking(name: str, error: MetricMissing) -> dict[str, Any]:
    missing, similar = error.detail["missing"], error.detail["similar"]
    told = {"missing": missing, "similar": similar, "detail": str(error), "hint": error.hint}
    return {"template": name, "found": False, **told}


def _parquet(datasource: Datasource, _catalogue: Catalogue, _now: datetime) -> dict[str, Any]:
    with Parquet(datasource) as client:
        seen = client.look()
    found: dict[str, Any] = {"files": seen.files, "series": seen.usable, "forecasts": seen.forecasts}
    if seen.oldest and seen.newest:
        found |= {"oldest": iso(seen.oldest), "newest": iso(seen.newest)}
    if seen.lacking:
        found |= {"detail": str(seen.lacking), "hint": seen.lacking.hint, **seen.lacking.detail}
    return found


_PROBES: Mapping[str, Callable[[Datasource, Catalogue, datetime], dict[str, Any]]] = {
    "prometheus": _prometheus,
    "loki": _loki,
    "grafana": _grafana,
    "influxdb": _influxdb,
    "parquet": _parquet,
}
