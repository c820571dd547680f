"""Routes between domains: what names the series of one in the telemetry of its source's gateway.

Socket statistics call the other side ``remote_domain``, which is no domain but the host of the route's endpoint, rewritten; Envoy has a
cluster for each port of a route. Both names are built of what the graph says of the route, and never taken apart. Pure but for the
look-ups of ``read``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from drumlin.kg.errors import InvalidInput, ResourceNotFound
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import NAMESPACE
from drumlin.kg.store.protocol import Row
from drumlin.kg.telemetry import binding
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.quoting import any_of

_ROUTES = """SELECT ?route ?source ?destination ?via ?host ?port WHERE {
  ?route a drumlin:DomainRoute ; drumlin:source ?source ; drumlin:destination ?destination .
  OPTIONAL { ?route drumlin:via ?via } OPTIONAL { ?route drumlin:host ?host } OPTIONAL { ?route drumlin:port ?port } } LIMIT 10000"""


@dataclass(frozen=True, slots=True)
class Route:
    """A route by the ids of its domains; ``hop`` is where its traffic goes first: the transit, else the destination.

    ``host`` and ``ports`` (names) are those of the endpoint that leads to the hop.
    """

    source: str
    hop: str
    host: str | None
    ports: tuple[str, ...]

    @property
    def remote(self) -> str | None:
        """The endpoint's host as socket statistics write it in ``remote_domain``."""
        if self.host is None:
            return None
        host = self.host if self.host.count(":") > 1 else self.host.partition(":")[0]
        return host.lower().replace("-", "_").replace(".", "__")

    @property
    def clusters(self) -> tuple[str, ...]:
        """The names of the route's clusters in its source's Envoy."""
        return tuple(f"{self.source}-to-{self.hop}-{port}" for port in sorted(self.ports))

    @property
    def values(self) -> dict[str, str]:
        """What fills the holes of a template: ``clusters`` is a regular expression of Envoy's names."""
        found = {"remote": self.remote} if self.remote else {}
        if self.ports:
            found["clusters"] = any_of(self.clusters)
        return found


def read(ask: Callable[[str], list[Row]], iris: Iris, iri: str) -> tuple[Route, tuple[str, ...]]:
    """Return a route, and the short ids of others of its source whose endpoint has the same host.

    Raises ``ResourceNotFound`` for a route through a transit to which no route is known.
    """
    rows = ask(_ROUTES)
    found = {each: _route(iris, mine) for each, mine in _by_route(rows).items()}
    own = found[iri]
    if own.host is None and (hop := _to(found.values(), own.source, own.hop)):
        own = hop
    if not own.values:
        raise ResourceNotFound(
            f"{iris.short(iri)} has no endpoint, and no route from {own.source} to {own.hop} with one is known",
            hint="its series are those of the route to its transit; export that route",
        )
    alike = [
        each
        for each, other in found.items()
        if other.source == own.source and other.remote == own.remote and other.hop != own.hop
    ]
    return own, tuple(sorted(map(iris.short, alike)))


def known(ask: Callable[[str], list[Row]], iris: Iris) -> list[tuple[str, Route, str]]:
    """Return all routes of the graph: IRI, route, and the IRI of the destination."""
    by_route = _by_route(ask(f"PREFIX drumlin: <{NAMESPACE}> {_ROUTES}"))
    return [(iri, _route(iris, rows), rows[0]["destination"]) for iri, rows in by_route.items()]


def check(server: Datasource, route: Route) -> None:
    """Raise ``InvalidInput`` unless a datasource is bound to the route's source, whose series it would else add to those of others."""
    if is_bound(server, route.source):
        return
    lines = binding.configuration(
        server, f'domains = ["{route.source}"]', 'matchers = { instance = "{domain}-gateway:9091" }'
    )
    raise InvalidInput(
        f"datasource {server.name} is bound to no domain, and only the scrape target tells which series to {route.hop} are those of"
        f" {route.source}",
        hint="add to drumlin.toml one of the last two lines: the first when the server holds that domain alone, the second with the"
        f" label by which its targets are told apart:\n{lines}",
        detail={"datasource": server.name, "configuration": lines},
    )


def is_bound(server: Datasource, domain: str) -> bool:
    """Return whether a datasource holds nothing but a domain's series, or distinguishes them from others'."""
    return server.domains == (domain,) or binding.names(server, "{domain}")


def _route(iris: Iris, rows: Iterable[Row]) -> Route:
    rows = list(rows)
    first = rows[0]
    source, hop = (iris.parse(each).name.name for each in (first["source"], first.get("via") or first["destination"]))
    hosts = sorted({row["host"] for row in rows if "host" in row})
    return Route(
        source, hop, hosts[0] if hosts else None, tuple(sorted({row["port"] for row in rows if "port" in row}))
    )


def _to(routes: Iterable[Route], source: str, hop: str) -> Route | None:
    return next((each for each in routes if (each.source, each.hop) == (source, hop) and each.host), None)


def _by_route(rows: Iterable[Row]) -> Mapping[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["route"], []).append(row)
    return found
