"""Which datasource holds an entity's telemetry: by name, by the rules of the configuration, by what the graph says of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from kg.errors import ResourceNotFound
from kg.iris import Iris
from kg.telemetry import dialects
from kg.telemetry.datasources import Datasource
from kg.telemetry.graph import Entity, TelemetryGraph
from kg.telemetry.templates import Template, did_you_mean


class Holders:
    """The datasources that are known: the ``configured`` ones, and those of the graph. Where there is none: ``ResourceNotFound``."""

    def __init__(self, graph: TelemetryGraph, iris: Iris, configured: Sequence[Datasource]) -> None:
        self._graph = graph
        self._iris = iris
        self._configured = tuple(configured)

    def known(self) -> list[Datasource]:
        """Return all datasources that are known: the configured ones, then those of the graph."""
        known = {each.iri: each for each in chain(self._graph.datasources(), self._configured)}
        return sorted(known.values(), key=lambda each: (each.access is None, each.name))

    def of_metric(self, entity: Entity, template: Template, wanted: str | None) -> Datasource:
        """Return the datasource to ask: one of the template's kind, else (or when it is named) one that holds what is no PromQL."""
        others = [each for each in self._configured if each.kind in ("influxdb", "parquet")]
        named = [each for each in others if wanted in (each.name, each.iri)]
        if named:
            return named[0]
        if template.datasource_type == "loki":
            return self.of_logs(entity, wanted)[1]
        try:
            return self.candidates(entity, template.datasource_type, wanted)[0]
        except ResourceNotFound:
            holders = sorted((each for each in others if dialects.speaks(each, template)), key=lambda each: each.kind)
            if wanted is not None or not holders:
                raise
            return holders[0]

    def of_logs(self, entity: Entity, wanted: str | None) -> tuple[str, Datasource]:
        """Return the namespace of a workload or pod and the datasource that holds its logs."""
        if entity.scope not in ("Workload", "Pod") or entity.namespace is None:
            raise ResourceNotFound(
                f"{self._iris.short(entity.iri)} is a {entity.kind}, which has no logs",
                hint="ask for a workload's or a pod's",
            )
        described = self._graph.log_datasources(entity.describer)
        candidates = self.candidates(entity, "loki", wanted)
        for server in candidates:
            if server.logs == "all" or server.iri in described:
                return entity.namespace, server
        raise ResourceNotFound(
            f"no datasource holds the logs of {self._iris.short(entity.iri)}: no logging sidecar is injected into its pods",
            hint="annotate its pods with fluentd-sidecar-injector.h3poteto.dev/injection, or name another datasource",
        )

    def candidates(self, entity: Entity, kind: str, wanted: str | None, *, by_hand: bool = False) -> list[Datasource]:
        """Return the datasources of a kind, best first: configured, then of the entity's domain, then as they come.

        Those of the graph are looked at when one is ``wanted`` by name, when nothing is configured, or for what was described ``by_hand``.
        """
        known = [each for each in self._configured if each.kind == kind]
        if not known or wanted is not None or by_hand:
            taken = {each.iri for each in self._configured}
            known += [each for each in self._graph.datasources() if each.kind == kind and each.iri not in taken]
        if wanted is not None:
            named = [each for each in known if wanted in (each.name, each.iri)]
            if not named:
                raise ResourceNotFound(
                    f"{wanted[:80]!r} is not a {kind} datasource",
                    hint=did_you_mean(wanted, {each.name for each in (*known, *self._configured)}),
                )
            return named
        if not known:
            raise ResourceNotFound(
                f"no {kind} datasource is known",
                hint=f'add [[datasource]] with name, kind = "{kind}" and url to drumlin.toml',
            )
        holding = known if by_hand else self._holding(entity, known)
        if not holding:
            raise ResourceNotFound(
                f"no {kind} datasource holds telemetry of {self._iris.short(entity.iri)}",
                hint="`metrics` and `namespaces` of [[datasource]] say whose they hold; or name one (datasource=)",
            )
        return sorted(holding, key=lambda each: (each.access is None, each.domain != entity.domain))

    def _holding(self, entity: Entity, known: list[Datasource]) -> list[Datasource]:
        """Leave out the datasources that by their rules hold nothing of an entity: not its namespace, or not what is not scraped."""
        if entity.namespace is None:
            return known
        covering = [each for each in known if each.covers(entity.namespace)]
        if all(each.metrics == "all" for each in covering):
            return covering
        described = self._graph.metric_datasources(entity.describer)
        return [each for each in covering if each.metrics == "all" or each.iri in described]
