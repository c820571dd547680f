"""Which datasource holds an entity's telemetry: by name, by the rules of the configuration, by what the graph says of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from drumlin.kg.errors import InvalidInput, ResourceNotFound
from drumlin.kg.model.iris import Iris
from drumlin.kg.telemetry import binding, dialects, signals
from drumlin.kg.telemetry.binding import Place
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.graph import Entity, TelemetryGraph
from drumlin.kg.telemetry.inventory import Inventory
from drumlin.kg.telemetry.templates import Template, did_you_mean


class DatasourceSelector:
    """The datasources that are known: the ``configured`` ones, and those of the graph.

    Where none holds an entity's telemetry: ``ResourceNotFound``. Where one does that cannot tell it from other clusters': ``InvalidInput``.
    """

    def __init__(self, graph: TelemetryGraph, iris: Iris, configured: Sequence[Datasource]) -> None:
        self._graph = graph
        self._iris = iris
        self._configured = tuple(configured)

    def known(self) -> list[Datasource]:
        """Return all datasources that are known: the configured ones, then those of the graph."""
        known = {each.iri: each for each in chain(self._graph.datasources(), self._configured)}
        return sorted(known.values(), key=lambda each: (each.access is None, each.name))

    def of_metric(self, entity: Entity, template: Template, wanted: str | None, inventory: Inventory) -> Datasource:
        """Return the datasource to ask: one of the template's kind, else (or when it is named) one that holds what is no PromQL."""
        others = [each for each in self._configured if each.kind in ("influxdb", "parquet")]
        named = [each for each in others if wanted in (each.name, each.iri)]
        if named:
            return self._bound(entity, named, inventory)[0]
        if template.datasource_type == "loki":
            return self.of_logs(entity, wanted, inventory)[1]
        speaking = [each for each in others if dialects.speaks(each, template)]
        ranked = binding.preferred(speaking, template.datasource_type, _home(entity))
        try:
            found = self.candidates(entity, template.datasource_type, wanted, inventory)[0]
        except ResourceNotFound:
            if wanted is not None or not ranked:
                raise
            return self._bound(entity, ranked, inventory)[0]
        if (
            wanted is None and found.access is None
        ):  # only resolved against: one that says where it has the metric is fetched from
            place = self.place(entity, inventory)
            told = (each for each in ranked if each.kind != "parquet" and self._tells(each, place, inventory))
            return next(told, found)
        return found

    def of_logs(self, entity: Entity, wanted: str | None, inventory: Inventory) -> tuple[str, Datasource]:
        """Return the namespace of a workload or pod and the datasource that holds its logs."""
        if entity.scope not in ("Workload", "Pod") or entity.namespace is None:
            raise ResourceNotFound(
                f"{self._iris.short(entity.iri)} is a {entity.kind}, which has no logs",
                hint="ask for a workload's or a pod's",
            )
        described = self._graph.log_datasources(entity.describer)
        candidates = self.candidates(entity, "loki", wanted, inventory)
        for server in candidates:
            if server.logs == "all" or server.iri in described:
                return entity.namespace, server
        raise ResourceNotFound(
            f"no datasource holds the logs of {self._iris.short(entity.iri)}: no logging sidecar is injected into its pods",
            hint="annotate its pods with fluentd-sidecar-injector.h3poteto.dev/injection, or name another datasource",
        )

    def of_signal(self, entity: Entity, signal: str, wanted: str | None, inventory: Inventory) -> Datasource:
        """Return the datasource that holds the traces or profiles of a service."""
        if entity.scope not in signals.SCOPES:
            raise ResourceNotFound(
                f"{self._iris.short(entity.iri)} is a {entity.kind}, which has no {signal}",
                hint="ask for a workload's or a container's",
            )
        kinds = signals.KINDS[signal]
        failure: ResourceNotFound | None = None
        for kind in kinds:
            try:
                return self.candidates(entity, kind, wanted, inventory)[0]
            except ResourceNotFound as error:
                failure = failure or error
        raise ResourceNotFound(
            f"no datasource holds the {signal} of {self._iris.short(entity.iri)}",
            hint=f'add [[datasource]] with name, url and kind = "{kinds[0]}" to drumlin.toml',
        ) from failure

    def candidates(
        self, entity: Entity, kind: str, wanted: str | None, inventory: Inventory, *, by_hand: bool = False
    ) -> list[Datasource]:
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
            return self._bound(entity, named, inventory)
        if not known:
            raise ResourceNotFound(
                f"no {kind} datasource is known",
                hint=f'add [[datasource]] with name, kind = "{kind}" and url to drumlin.toml',
            )
        holding = known if by_hand else self._holding(entity, self._bound(entity, known, inventory))
        if not holding:
            raise ResourceNotFound(
                f"no {kind} datasource holds telemetry of {self._iris.short(entity.iri)}",
                hint="`metrics` and `namespaces` of [[datasource]] say whose they hold; or name one (datasource=)",
            )
        bound = self._bound(entity, holding, inventory) if by_hand else holding
        ranked = binding.preferred(bound, kind, _home(entity))
        if (
            len(ranked) > 1 and ranked[0].access is None
        ):  # of several that were found, one that the entity is described in
            described = self._described(entity, kind)
            ranked.sort(key=lambda each: each.iri not in described)
        return ranked

    def _described(self, entity: Entity, kind: str) -> set[str]:
        """Return the IRIs of the datasources of a kind in which an entity's graph describes its telemetry."""
        graph = self._graph
        return (graph.log_datasources if kind == "loki" else graph.metric_datasources)(entity.describer)

    def _bound(self, entity: Entity, known: list[Datasource], inventory: Inventory) -> list[Datasource]:
        """Return the datasources that hold an entity's cluster and domain, and distinguish its series from other clusters'."""
        place = self.place(entity, inventory)
        holding = [each for each in known if binding.holds(each, place)]
        if not holding:
            raise self._elsewhere(entity, place, known)
        found = [each for each in holding if self._tells(each, place, inventory)]
        if not found:
            raise binding.clusters_added_together(holding[0], inventory.clusters)
        return found

    @staticmethod
    def _tells(datasource: Datasource, place: Place, inventory: Inventory) -> bool:
        """Return whether a datasource holds what is in a place, and distinguishes it from other clusters'."""
        of_domain = inventory.clusters_of(place.domain) if place.domain else ()
        apart = binding.is_told_apart(datasource, place, inventory.clusters, of_domain)
        return binding.holds(datasource, place) and apart

    def place(self, entity: Entity, inventory: Inventory) -> Place:
        """Return where an entity is: its cluster and domain, or the clusters in which a domain has something."""
        if entity.scope == "Domain":
            return Place(tuple(sorted(inventory.clusters_of(entity.name))), entity.name)
        if entity.clusters:
            return Place(entity.clusters)
        named = entity.domain and self._iris.parse(entity.domain).name.name
        return Place((entity.cluster,) if entity.cluster else (), named or None)

    def _elsewhere(self, entity: Entity, place: Place, known: list[Datasource]) -> ResourceNotFound | InvalidInput:
        """Return why no datasource holds what is in a place."""
        held = "; ".join(
            f"{each.name} holds {', '.join((*each.clusters, *(f'the domain {domain}' for domain in each.domains)))}"
            for each in known[:5]
        )
        if len(place.clusters) > 1:
            return InvalidInput(
                f"{self._iris.short(entity.iri)} spans the clusters {', '.join(place.clusters)}, which no datasource holds all ({held})",
                hint=f"ask for each of them: {', '.join(f'cluster/{each}' for each in place.clusters[:5])}",
            )
        return ResourceNotFound(
            f"no datasource holds the telemetry of {self._iris.short(entity.iri)}: {held}",
            hint="`clusters` and `domains` of [[datasource]] say whose telemetry it holds",
        )

    def _holding(self, entity: Entity, known: list[Datasource]) -> list[Datasource]:
        """Leave out the datasources that by their rules hold nothing of an entity: not its namespace, or not what is not scraped."""
        if entity.namespace is None:
            return known
        covering = [each for each in known if each.covers(entity.namespace)]
        if all(each.metrics == "all" for each in covering):
            return covering
        described = self._graph.metric_datasources(entity.describer)
        return [each for each in covering if each.metrics == "all" or each.iri in described]


def _home(entity: Entity) -> str | None:
    """Return the domain (IRI) whose datasources come first for an entity: its own, or itself."""
    return entity.iri if entity.scope == "Domain" else entity.domain
