"""What is wrong with a datasource: is it there, which version, since when has it samples, and which templates find their series in it.

Only index look-ups and one look at the version, so a probe costs a server little. It never raises: an error is its answer.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from drumlin.kg.errors import DrumlinError, MetricMissing
from drumlin.kg.telemetry import binding, lacking, naming_report, promql, renaming
from drumlin.kg.telemetry.binding import Place
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.fetch.alertmanager import Alertmanager
from drumlin.kg.telemetry.fetch.grafana import Grafana
from drumlin.kg.telemetry.fetch.influxdb import InfluxDB
from drumlin.kg.telemetry.fetch.loki import Loki
from drumlin.kg.telemetry.fetch.parquet import Parquet
from drumlin.kg.telemetry.fetch.prometheus import Prometheus
from drumlin.kg.telemetry.missing import explain_absence
from drumlin.kg.telemetry.profiles import PROFILES
from drumlin.kg.telemetry.promql import Selector
from drumlin.kg.telemetry.resolution import iso
from drumlin.kg.telemetry.series import moment
from drumlin.kg.telemetry.templates import Template, TemplateCatalogue, did_you_mean

LOOKED_AT = timedelta(days=1)
"""How far back a template's series are looked for."""
_OLDEST = datetime(2010, 1, 1, tzinfo=UTC)  # no server of this kind existed before
_MONTH = timedelta(days=30)
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
    bound = {"clusters": datasource.clusters, "domains": datasource.domains, "matchers": datasource.matchers}
    return found | {key: value for key, value in ({"domain": datasource.domain} | bound).items() if value}


def probe(
    datasource: Datasource, catalogue: TemplateCatalogue, now: datetime, clusters: Collection[str] = ()
) -> dict[str, Any]:
    """Return what is known, and what asking it showed: ``reachable``, ``version``, ``oldest`` and, per template, what is missing.

    Of a Prometheus also the ``profile`` that its series fit, with the evidence; of it and of a Loki the label that tells ``clusters``
    (those that are known) apart, and the ``configuration`` to paste.
    """
    found = describe(datasource)
    ask = _PROBES.get(datasource.kind)
    if ask is None or datasource.access is None:
        return found  # a link only, or nothing to get in with
    try:
        shown = naming_report.report(datasource, now, clusters)
        return found | {"reachable": True} | ask(shown.datasource, catalogue, now) | shown.told
    except DrumlinError as error:
        return found | {"reachable": False, "error": str(error), "hint": error.hint}


def _prometheus(datasource: Datasource, catalogue: TemplateCatalogue, now: datetime) -> dict[str, Any]:
    with Prometheus(datasource) as client:
        version = client.probe()
        language = client.language()
        oldest = _first_day(client, now) if language == "metricsql" else _since(client, now)
        templates = [
            _template(client, template, now)
            for template in catalogue.templates
            if template.datasource_type == datasource.kind
        ]
    found = {"version": version, "language": language, "oldest": iso(oldest) if oldest else None}
    return found | {"templates": templates}


def _first_day(client: Prometheus, now: datetime) -> datetime | None:
    """Find the day of the oldest sample of a VictoriaMetrics, whose index knows days, and of more than 40 at once none at all.

    Looked for backwards, and no further than the first month without anything.
    """
    end, found = now, None
    while end > _OLDEST and (found is None or found == end):
        start = max(end - _MONTH, _OLDEST)
        if client.label_names_of_all(start, end):
            found = start
        end = start
    if found is None:
        return None
    early, late = found, min(found + _MONTH, now)
    while late - early > timedelta(hours=1):
        middle = early + (late - early) / 2
        if client.label_names_of_all(found, middle):
            late = middle
        else:
            early = middle
    return late.replace(hour=0, minute=0, second=0, microsecond=0)


def _since(client: Prometheus, now: datetime) -> datetime | None:
    """Find the time of the oldest sample, to an hour, by halving: the server reports its oldest block at best."""
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
        if lacking_all := _lacking_ways(client, promql.ways(_sample(template, client.datasource)), now):
            found = _lacking(template.name, lacking_all[0])
            if (profile := client.datasource.profile) and template.name in PROFILES[profile].lacks:
                found["hint"] = f"{PROFILES[profile].title} does not keep this metric, unless that was changed"
    except DrumlinError as error:  # the template itself, or the server's refusal
        found |= {"found": False, "detail": str(error), "hint": error.hint}
    return found


def _lacking_ways(client: Prometheus, ways: Iterable[Iterable[Selector]], now: datetime) -> list[MetricMissing]:
    """Return what each way to ask lacks; nothing when one of them finds its series."""
    found: list[MetricMissing] = []
    for way in ways:
        try:
            for selector in way:
                _look(client, selector, now)
        except MetricMissing as error:
            found.append(error)
        else:
            return []
    return found


def _sample(template: Template, datasource: Datasource) -> str:
    holes = dict.fromkeys(("namespace", "node", "pods", "domain"), _HOLE)
    matchers = binding.matchers(datasource, Place((_HOLE,), _HOLE))
    query = renaming.written(template, datasource)
    return promql.render(query, holes, window=timedelta(minutes=5), datasource=datasource, matchers=matchers)


def _look(client: Prometheus, selector: Selector, now: datetime) -> None:
    """Raise ``MetricMissing`` when there is no series, or none with the labels by which entities are told apart."""
    fixed = tuple(each for each in selector.matchers if _HOLE not in each.value)
    query = promql.select(selector, fixed)
    names = client.label_names(query, now - LOOKED_AT, now)
    if not names:
        raise explain_absence(client, query, now - LOOKED_AT, now)
    for matcher in selector.matchers:
        if _HOLE in matcher.value and matcher.label not in names:
            raise explain_absence(client, promql.select(selector, (*fixed, matcher)), now - LOOKED_AT, now)


def _grafana(datasource: Datasource, _catalogue: TemplateCatalogue, _now: datetime) -> dict[str, Any]:
    with Grafana(datasource) as client:
        found: dict[str, Any] = {"version": client.version()}
        listed = datasource.access is not None and datasource.access.credential is not None
        return found | ({"datasources": len(client.datasources())} if listed else {})


def _alertmanager(datasource: Datasource, _catalogue: TemplateCatalogue, _now: datetime) -> dict[str, Any]:
    with Alertmanager(datasource) as client:
        return {"version": client.version(), "alerts": len(client.alerts())}


def _loki(datasource: Datasource, catalogue: TemplateCatalogue, now: datetime) -> dict[str, Any]:
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


def _influxdb(datasource: Datasource, catalogue: TemplateCatalogue, _now: datetime) -> dict[str, Any]:
    with InfluxDB(datasource) as client:
        found: dict[str, Any] = {"version": client.version(), "measurements": len(client.measurements())}
        templates = [_place(client, name, catalogue) for name in datasource.series]
        places = [datasource.series[each["template"]] for each in templates if each["found"]]
        times = [at for place in places if (at := client.oldest(place.measurement, place.field))]
    return found | {"oldest": iso(min(times)) if times else None, "templates": templates}


def _place(client: InfluxDB, name: str, catalogue: TemplateCatalogue) -> dict[str, Any]:
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


def _parquet(datasource: Datasource, _catalogue: TemplateCatalogue, _now: datetime) -> dict[str, Any]:
    with Parquet(datasource) as client:
        seen = client.look()
    found: dict[str, Any] = {"files": seen.files, "series": seen.usable, "forecasts": seen.forecasts}
    if seen.oldest and seen.newest:
        found |= {"oldest": iso(seen.oldest), "newest": iso(seen.newest)}
    if seen.lacking:
        found |= {"detail": str(seen.lacking), "hint": seen.lacking.hint, **seen.lacking.detail}
    return found


_PROBES: Mapping[str, Callable[[Datasource, TemplateCatalogue, datetime], dict[str, Any]]] = {
    "prometheus": _prometheus,
    "loki": _loki,
    "grafana": _grafana,
    "alertmanager": _alertmanager,
    "influxdb": _influxdb,
    "parquet": _parquet,
}
