"""Forecasts in a client's hands: saved beside the graph, read back, and compared with what came."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import httpx
import msgspec

from kg.client.calls import Call
from kg.errors import InvalidDocument

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from kg.client import Client

Of = tuple[str, str]
"""An entity (short id or IRI) and one of its metrics."""


class Forecasts:
    """The forecasts of a service: ``client.forecasts``."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def save(
        self,
        table: pyarrow.Table | pandas.DataFrame,
        *,
        of: Of,
        model: str,
        horizon: str,
        step: str,
        trained: tuple[str, str] | None = None,
        datasource: str | None = None,
    ) -> dict[str, Any]:
        """Store the points of a forecast and register it; returns ``id``, ``path`` and what the graph says.

        ``table`` has ``ds`` (UTC), ``y`` and optionally quantiles ``q0.1`` …; ``trained`` is the window of its history. Raises
        ``InvalidDocument`` for other tables.
        """
        params: dict[str, Any] = {"entity": of[0], "metric": of[1], "model": model, "horizon": horizon, "step": step}
        if trained:
            params |= {"trainedFrom": trained[0], "trainedTo": trained[1]}
        if datasource:
            params["datasource"] = datasource
        content = _written(table)
        call = Call("POST", "/forecasts", _json, params=params, content=content, repeatable=False)
        found: dict[str, Any] = self._client.run(call)
        return found

    def list(self, of: Of) -> list[dict[str, Any]]:
        """Return the forecasts of a metric, the newest first."""
        items: list[dict[str, Any]] = self._client.run(
            Call("GET", "/forecasts", _json, params={"entity": of[0], "metric": of[1]})
        )["items"]
        return items

    def points(self, of: Of, id: str | None = None) -> pyarrow.Table:
        """Return the points of a forecast (the newest when none is named); raises ``ResourceNotFound``."""
        params: Mapping[str, Any] = {"entity": of[0], "metric": of[1], **({"id": id} if id else {})}
        return self._client.run(Call("GET", "/forecasts/points", _read, params=params))

    def compare(self, of: Of, id: str | None = None) -> dict[str, Any]:
        """Compare a forecast with what came since: ``points``, ``mae`` (in the metric's unit), ``mape`` (%), and the joined ``table``.

        Raises ``MetricMissing`` when nothing of its time has come yet.
        """
        import pyarrow.compute as pc

        from kg.telemetry.forecasts import compare

        predicted = self.points(of, id)
        known = [each for each in self.list(of) if id in (None, each["id"])]
        first, last = (pick(predicted["ds"]).as_py() for pick in (pc.min, pc.max))
        actual = self._client.history(
            *of, start=first.isoformat(), end=last.isoformat(), step=_seconds(known[0]["step"])
        )
        table, measured = compare(predicted, actual.table)
        return {**measured, "unit": actual.unit, "table": table}

    def seasonal(self, of: Of, *, last: str = "28d", horizon: str = "1d", step: str = "5m") -> dict[str, Any]:
        """Forecast a metric by its values at the same time of earlier weeks (or days), and save it: a baseline to beat."""
        from kg.telemetry.durations import parse_duration
        from kg.telemetry.forecasts import seasonal

        history = self._client.history(*of, last=last, step=step)
        table = seasonal(history.table, parse_duration(horizon), parse_duration(step))
        query = history.resolutions[0]
        window = (query["start"], query["end"])
        return self.save(table, of=of, model="seasonal-mean", horizon=horizon, step=step, trained=window)


def _json(response: httpx.Response) -> Any:
    return msgspec.json.decode(response.content)


def _seconds(duration: str) -> str:
    from kg.telemetry.durations import parse_duration

    return f"{int(parse_duration(duration).total_seconds())}s"


def _written(table: pyarrow.Table | pandas.DataFrame) -> bytes:
    import pyarrow

    found = table if isinstance(table, pyarrow.Table) else pyarrow.Table.from_pandas(table, preserve_index=False)
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, found.schema) as stream:
        stream.write_table(found)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _read(response: httpx.Response) -> pyarrow.Table:
    import pyarrow

    try:
        with pyarrow.ipc.open_stream(response.content) as stream:
            return stream.read_all()
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise InvalidDocument("the answer is not a whole Arrow stream", hint="ask again") from error
