"""Forecasts in a client's hands: saved beside the graph, read back, and compared with what came; one definition, two clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import httpx
import msgspec

from kg.client.calls import Call
from kg.client.carrying import Carrier
from kg.client.operation import Awaiting, Blocking, composed, operation
from kg.errors import InvalidDocument

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

    from kg.client.series import Series

    Table: TypeAlias = pyarrow.Table | pandas.DataFrame | polars.DataFrame

Of = tuple[str, str]
"""An entity (short id or IRI) and one of its metrics."""


Listed = list[dict[str, Any]]


class _Points(NamedTuple):
    table: pyarrow.Table
    step: int  # seconds


def _save(
    table: Table,
    *,
    of: Of,
    model: str,
    horizon: str,
    step: str,
    trained: tuple[str, str] | None = None,
    query: str | None = None,
    datasource: str | None = None,
) -> Call[dict[str, Any]]:
    """Store the points of a forecast and register it; returns ``id``, ``path`` and what the graph says.

    ``table`` has ``ds`` (UTC), ``y`` and optionally quantiles ``q0.1`` …; ``trained`` is the window of its history, ``query`` what
    that was asked with. Raises ``InvalidDocument`` for other tables, ``ResourceNotFound`` for an unknown entity or metric. It is not
    repeated by itself.
    """
    params: dict[str, Any] = {"entity": of[0], "metric": of[1], "model": model, "horizon": horizon, "step": step}
    if trained:
        params |= {"trainedFrom": trained[0], "trainedTo": trained[1]}
    params |= {name: value for name, value in (("query", query), ("datasource", datasource)) if value}
    return Call("POST", "/forecasts", _json, params=params, content=_written(table), repeatable=False)


def _list(of: Of) -> Call[Listed]:
    """Return the forecasts of a metric, the newest first; ``revisionOf`` names the one that each follows.

    Raises ``ResourceNotFound`` for an unknown entity.
    """
    params = {"entity": of[0], "metric": of[1], "limit": "1000"}
    return Call("GET", "/forecasts", lambda response: _json(response)["items"], params=params)


def _delete(of: Of, id: str) -> Call[dict[str, Any]]:
    """Delete a forecast with its points in Parquet; returns what it was. Raises ``ResourceNotFound``."""
    return Call("DELETE", "/forecasts", _json, params={"entity": of[0], "metric": of[1], "id": id}, repeatable=False)


def _points(of: Of, id: str | None = None) -> Call[pyarrow.Table]:
    """Return the points of a forecast (the newest when none is named); raises ``ResourceNotFound``."""
    return replace(_predicted(of, id), read=lambda response: _read(response).table)


def _predicted(of: Of, id: str | None) -> Call[_Points]:
    params: Mapping[str, Any] = {"entity": of[0], "metric": of[1], **({"id": id} if id else {})}
    return Call("GET", "/forecasts/points", _read, params=params)


class _Operations:
    _carrier: Carrier
    save = operation(_save)
    list = operation(_list)
    delete = operation(_delete)
    points = operation(_points)

    @composed
    async def compare(self, of: Of, id: str | None = None) -> dict[str, Any]:
        """Compare a forecast with what came since: ``points``, ``mae`` (in the metric's unit), ``mape`` (%), and the joined ``table``.

        Raises ``ResourceNotFound`` when there is no such forecast, ``MetricMissing`` when nothing of its time has come yet.
        """
        predicted = await self._carrier.run(_predicted(of, id))
        return _compared(predicted, await _history(self._carrier, of, **_window(predicted)))

    @composed
    async def seasonal(
        self, of: Of, *, last: str = "28d", end: str | None = None, horizon: str = "1d", step: str = "5m"
    ) -> dict[str, Any]:
        """Forecast a metric by its values at the same time of earlier weeks (or days), and save it: a baseline to beat.

        It learns from the ``last`` so much before ``end`` (now), and predicts what follows. Raises what ``Client.history`` raises, and
        ``InvalidInput`` for too short a history.
        """
        history = await _history(self._carrier, of, last=last, end=end, step=step)
        return await self._carrier.run(_save(**_baseline(of, history, horizon, step)))


class Forecasts(Blocking, _Operations):
    """The forecasts of a service: ``client.forecasts``."""


class AsyncForecasts(Awaiting, _Operations):
    """The asynchronous twin of ``Forecasts``."""


async def _history(carrier: Carrier, of: Of, **window: str | None) -> Series:
    from kg.client import telemetry

    return await telemetry.history(carrier, [of[0]], [of[1]], window)


def _window(predicted: _Points) -> dict[str, Any]:
    import pyarrow.compute as pc

    first, last = (pick(predicted.table["ds"]).as_py() for pick in (pc.min, pc.max))
    return {"start": first.isoformat(), "end": last.isoformat(), "step": f"{predicted.step}s"}


def _compared(predicted: _Points, actual: Series) -> dict[str, Any]:
    from kg.telemetry.baseline import compare

    table, measured = compare(predicted.table, actual.table)
    return {**measured, "unit": actual.unit, "table": table}


def _baseline(of: Of, history: Series, horizon: str, step: str) -> dict[str, Any]:
    """Return what ``save`` is given for the built-in forecast. A query too long for an address is left to the metric to tell."""
    from kg.telemetry import baseline
    from kg.telemetry.durations import parse_duration

    table = baseline.seasonal(history.table, parse_duration(horizon), parse_duration(step))
    asked = history.resolutions[0]
    query = asked["query"] if len(asked["query"]) <= _LONGEST_QUERY else None
    trained = (asked["start"], asked["end"])
    return {
        "table": table,
        "of": of,
        "model": baseline.NAME,
        "horizon": horizon,
        "step": step,
        "trained": trained,
        "query": query,
    }


_LONGEST_QUERY = 2000  # characters


def _json(response: httpx.Response) -> Any:
    return msgspec.json.decode(response.content)


def _written(table: Table) -> bytes:
    import pyarrow

    if isinstance(table, pyarrow.Table):
        found = table
    else:  # polars has to_arrow, pandas is read by Arrow
        found = (
            table.to_arrow() if hasattr(table, "to_arrow") else pyarrow.Table.from_pandas(table, preserve_index=False)
        )
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, found.schema) as stream:
        stream.write_table(found)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _read(response: httpx.Response) -> _Points:
    import pyarrow

    try:
        with pyarrow.ipc.open_stream(response.content) as stream:
            return _Points(stream.read_all(), int(response.headers["X-Drumlin-Step"]))
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise InvalidDocument("the answer is not a whole Arrow stream", hint="ask again") from error
