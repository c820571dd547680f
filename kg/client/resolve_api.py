"""What resolving answers: a JSON object that also knows how to ask, for jobs that use prometheus-api-client already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumlin.kg.client import notebook
from drumlin.kg.errors import InvalidInput

if TYPE_CHECKING:
    from prometheus_api_client import PrometheusConnect


class Resolved(dict[str, Any]):
    """The answer of ``/resolve`` as it came: ``query``, ``endpoint``, ``unit``, ``start``, ``end``, ``step``, ``curl`` and so on."""

    def _repr_html_(self) -> str:
        shown = ("query", "unit", "datasource", "endpoint", "start", "end", "step")
        pairs = [(name, self[name]) for name in shown if self.get(name) is not None]
        return notebook.facts(f"{self.get('metric', '')} of {self.get('entity', '')}", "", "", "", pairs)

    def prometheus(self, **options: Any) -> tuple[PrometheusConnect, dict[str, Any]]:
        """Return prometheus-api-client's connection to the endpoint, and the arguments of its ``custom_query_range``.

        ``options`` go to ``PrometheusConnect``: ``headers`` with a credential, ``session`` and so on. Raises ``InvalidInput`` for what
        one query does not have: a resolution in several parts, or of another kind of server.
        """
        from prometheus_api_client import PrometheusConnect  # heavy, as are the others: only who asks pays

        from drumlin.kg.telemetry.fetch.prometheus import RANGE_PATH
        from drumlin.kg.telemetry.resolution import Resolution

        found = Resolution.from_dict(self)
        if len(found.parts) > 1:
            raise InvalidInput(
                "the resolution is in several parts, so one query does not have it all",
                hint="use history",
            )
        if not found.endpoint.endswith(RANGE_PATH) or "/loki/" in found.endpoint:
            raise InvalidInput(f"{found.endpoint} is not Prometheus' API", hint="use history")
        arguments = {
            "query": found.query,
            "start_time": found.start,
            "end_time": found.end,
            "step": str(int(found.step.total_seconds())),
        }
        return PrometheusConnect(url=found.endpoint.removesuffix(RANGE_PATH), **options), arguments
