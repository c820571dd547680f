"""Forecasts in a client's hands: saved beside the graph, read back, and compared with what came; one definition, two clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import httpx
import msgspec

from drumlin.kg.client.calls import Call
from drumlin.kg.client.endpoint import Awaiting, Blocking, composed, operation
from drumlin.kg.client.notebook import Records
from drumlin.kg.client.transport import ClientTransport
from drumlin.kg.errors import InvalidDocument, InvalidInput, MetricMissing

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

    from drumlin.kg.client.series import Series
    from drumlin.kg.telemetry.measures import Backtest, Model

    Table: TypeAlias = pyarrow.Table | pandas.DataFrame | polars.DataFrame

Of = tuple[str, str]
"""An entity (short id or IRI) and one of its metrics."""


Listed = list[dict[str, Any]]


class _Points(NamedTuple):
    table: pyarrow.Table
    step: int  # seconds
    trained: str | None  # its history, as start/end


def _saving(
    table: pyarrow.Table,
    of: Of | None,
    metric: str | None,
    *,
    model: str,
    horizon: str,
    step: str,
    trained: tuple[str, str] | None = None,
    query: str | None = None,
    datasource: str | None = None,
) -> Call[dict[str, Any]]:
    params: dict[str, Any] = {"model": model, "horizon": horizon, "step": step}
    if of:
        params |= {"entity": of[0], "metric": of[1]}
    if trained:
        params |= {"trainedFrom": trained[0], "trainedTo": trained[1]}
    more = (("metric", metric), ("query", query), ("datasource", datasource))
    params |= {name: value for name, value in more if value}
    return Call(
        "POST", "/forecasts", _json, params=params, content=_written(table), repeatable=False, seconds=_SAVE_SECONDS
    )


def _list(of: Of | str) -> Call[Listed]:
    """Return the forecasts of a metric, or of all metrics of an entity (its id alone), the newest first.

    ``revisionOf`` names the one that each follows. Raises ``ResourceNotFound`` for an unknown entity.
    """
    params = {"entity": of} if isinstance(of, str) else {"entity": of[0], "metric": of[1]}
    return Call(
        "GET", "/forecasts", lambda response: Records(_json(response)["items"]), params={**params, "limit": "1000"}
    )


def _value(of: Of, *, ahead: str = "15m", quantile: str = "y", unit: str | Sequence[str] = ()) -> Call[dict[str, Any]]:
    """Return what is predicted for the moment so far ``ahead``: ``value``, ``unit``, ``at``, ``forecast``.

    ``quantile`` (``q0.9``) returns that instead of ``y``; the value is in the first unit of ``unit`` that fits. Raises
    ``ResourceNotFound`` when no forecast reaches so far, ``InvalidInput`` when no unit fits.
    """
    params: dict[str, Any] = {"entity": of[0], "metric": of[1], "ahead": ahead, "quantile": quantile}
    params |= {"unit": [unit] if isinstance(unit, str) else list(unit)} if unit else {}
    return Call("GET", "/forecasts/value", _json, params=params)


def _delete(of: Of, id: str) -> Call[dict[str, Any]]:
    """Delete a forecast with its points in Parquet; returns what it was. Raises ``ResourceNotFound``."""
    return Call("DELETE", "/forecasts", _json, params={"entity": of[0], "metric": of[1], "id": id}, repeatable=False)


def _points(of: Of, id: str | None = None) -> Call[pyarrow.Table]:
    """Return the points of a forecast (the newest when none is named); raises ``ResourceNotFound``."""
    return replace(_predicted(of, id), read=lambda response: _read(response).table)


def _predicted(of: Of, id: str | None) -> Call[_Points]:
    params: Mapping[str, Any] = {"entity": of[0], "metric": of[1], **({"id": id} if id else {})}
    return Call("GET", "/forecasts/points", _read, params=params)


class _ForecastOperations:
    _carrier: ClientTransport
    list = operation(_list)
    value = operation(_value)
    delete = operation(_delete)
    points = operation(_points)

    @composed
    async def save(
        self,
        table: Table,
        of: Of | None = None,
        *,
        metric: str | None = None,
        model: str,
        horizon: str,
        step: str,
        trained: tuple[str, str] | None = None,
        query: str | None = None,
        datasource: str | None = None,
    ) -> dict[str, Any]:
        """Store the points of a forecast and register it; returns ``id``, ``path`` and what the graph says.

        ``table`` has ``ds`` (UTC), ``y`` and optionally quantiles ``q0.1`` …, or is what Nixtla's libraries or Prophet return; ``trained``
        is the window of its history, ``query`` what that was asked with. Without ``of`` it is a long frame of many series: ``unique_id``
        names the entities, ``metric`` (one for all, or a column) the metrics; then ``items`` has one object a series, with ``problem``
        where it was not saved. Raises ``InvalidDocument`` for other tables, ``ResourceNotFound`` for an unknown entity or metric. It is
        not repeated by itself.
        """
        from drumlin.kg.telemetry.frames import as_forecast

        found = as_forecast(table, model)
        how: dict[str, Any] = {"model": model, "horizon": horizon, "step": step, "trained": trained}
        how |= {"query": query, "datasource": datasource}
        if of:
            return await self._carrier.run(_saving(found, of, None, **how))
        items: list[dict[str, Any]] = []
        for part in _parts(found, metric or ""):
            items += (await self._carrier.run(_saving(part, None, metric, **how)))["items"]
        return {"items": items}

    @composed
    async def compare(self, of: Of, id: str | None = None) -> dict[str, Any]:
        """Compare a forecast with what came since: ``points``, ``mae`` (in the metric's unit), ``mape`` (%), ``mase``, ``unit``, ``table``.

        ``quantileLoss`` and ``intervalCoverage`` measure its quantiles; ``mase`` is against repeating the day before. Raises
        ``ResourceNotFound`` when there is no such forecast, ``MetricMissing`` when nothing of its time has come yet.
        """
        from drumlin.kg.telemetry import measures

        predicted = await self._carrier.run(_predicted(of, id))
        actual = await _history(self._carrier, of, **_window(predicted, of, datetime.now(UTC)))
        scale = None
        if predicted.trained:
            start, end = predicted.trained.split("/")
            try:
                before = await _history(self._carrier, of, start=start, end=end, step=f"{predicted.step}s")
                scale = measures.naive_error(before.table)
            except MetricMissing:  # its history is beyond the server's retention by now
                scale = None
        table, measured = measures.compare(predicted.table, actual.table, scale)
        return {**measured, "unit": actual.unit, "table": table}

    @composed
    async def backtest(
        self,
        of: Of,
        *,
        model: Model | None = None,
        horizon: str = "1d",
        step: str = "5m",
        origins: int = 7,
        every: str | None = None,
        learn: str = "28d",
        end: str | None = None,
    ) -> Backtest:
        """Measure a model on the past: it predicts ``horizon`` from each of so many ``origins``, and is compared with what came.

        ``model`` is a function of history (an Arrow table of ``ds`` and ``y``), horizon and step (timedeltas) that returns a table of
        ``ds``, ``y`` and quantiles, or a frame of Nixtla's or Prophet's; without one, the built-in baseline. Origins are ``every`` so much
        (the horizon) apart, the last one a horizon before ``end`` (now); each sees the ``learn`` before it and nothing after. ``overall``
        and each of ``origins`` have what ``compare`` returns, ``table`` all points. Raises what ``Client.history`` raises, and
        ``InvalidInput`` when nothing could be measured.
        """
        from drumlin.kg.telemetry import baseline, measures
        from drumlin.kg.telemetry.durations import parse_duration, parse_moment
        from drumlin.kg.telemetry.forecast_points import checked
        from drumlin.kg.telemetry.frames import as_forecast

        ahead, stride = parse_duration(horizon), parse_duration(step)
        apart, known = parse_duration(every or horizon), parse_duration(learn)
        if not 1 <= origins <= measures.MAX_ORIGINS:
            raise InvalidInput(f"{origins} starting points", hint=f"1 to {measures.MAX_ORIGINS:,}")
        until = parse_moment(end) if end else datetime.now(UTC)
        until -= (until - datetime(1970, 1, 1, tzinfo=UTC)) % stride
        first = until - ahead - (origins - 1) * apart
        window = {"start": (first - known).isoformat(), "end": until.isoformat(), "step": step}
        history = await _history(self._carrier, of, **window)
        predict = model or (lambda past, ahead, stride: baseline.predict(past, ahead, stride).table)
        return await self._carrier.aside(
            lambda _: measures.backtest(
                history.table,
                predict,
                [first + n * apart for n in range(origins)],
                horizon=ahead,
                step=stride,
                learn=known,
                tabled=lambda frame: checked(as_forecast(frame)),
            )
        )

    @composed
    async def seasonal(
        self, of: Of, *, last: str = "28d", end: str | None = None, horizon: str = "1d", step: str = "5m"
    ) -> dict[str, Any]:
        """Forecast a metric by the same times of earlier weeks or days at today's level, and save it: a baseline to beat.

        It learns from the ``last`` so much before ``end`` (now), and predicts what follows. Returns what ``save`` returns, ``coverage``
        (the share of the window that has values) and ``warnings``. Raises what ``Client.history`` raises, and ``InvalidInput`` for too
        short a history.
        """
        from drumlin.kg.telemetry import baseline
        from drumlin.kg.telemetry.durations import parse_duration

        history = await _history(self._carrier, of, last=last, end=end, step=step)
        ahead, stride = parse_duration(horizon), parse_duration(step)
        made = await self._carrier.aside(lambda _: baseline.predict(history.table, ahead, stride))
        saved = await self._carrier.run(_saving(made.table, of, None, **_described(history, made, horizon, step)))
        coverage = next(iter(history.coverage.values()))
        return {**saved, "coverage": coverage, "warnings": [*history.warnings, *_doubts(made, coverage, last)]}


class Forecasts(Blocking, _ForecastOperations):
    """The forecasts of a service: ``client.forecasts``."""


class AsyncForecasts(Awaiting, _ForecastOperations):
    """The asynchronous twin of ``Forecasts``."""


async def _history(carrier: ClientTransport, of: Of, **window: str | None) -> Series:
    from drumlin.kg.client import telemetry

    return await telemetry.history(carrier, [of[0]], [of[1]], window)


def _window(predicted: _Points, of: Of, now: datetime) -> dict[str, Any]:
    """Return the window of what has come of a forecast's time; raises ``MetricMissing`` before its first point is over."""
    import pyarrow.compute as pc

    first, last = (pick(predicted.table["ds"]).as_py() for pick in (pc.min, pc.max))
    if first > now:
        raise MetricMissing(
            f"it is too early: the forecast of {of[1]} of {of[0]} begins at {first:%Y-%m-%dT%H:%M:%SZ}, and nothing of its time has come",
            hint=f"compare it in {_rounded(first - now)}, or an earlier one by its id",
        )
    return {"start": first.isoformat(), "end": min(last, now).isoformat(), "step": f"{predicted.step}s"}


def _rounded(length: timedelta) -> str:
    minutes = -(-length // timedelta(minutes=1))
    return f"{minutes} min" if minutes < 120 else f"{-(-minutes // 60)} h"


def _described(history: Series, made: Any, horizon: str, step: str) -> dict[str, Any]:
    """Return what ``save`` is given for the built-in forecast. A query too long for an address is left to the metric to tell."""
    asked = history.resolutions[0]
    query = asked["query"] if len(asked["query"]) <= _LONGEST_QUERY else None
    trained = tuple(each.isoformat() for each in made.trained)
    return {"model": made.model, "horizon": horizon, "step": step, "trained": trained, "query": query}


def _doubts(made: Any, coverage: float, last: str) -> list[str]:
    if coverage >= _ENOUGH:
        return []
    first, until = (f"{each:%Y-%m-%dT%H:%MZ}" for each in made.trained)
    return [f"only {coverage:.1%} of the {last} asked for has values: it learnt from {first} to {until}"]


_ENOUGH = 0.8  # of the history; below it a forecast is doubtful
_SAVE_SECONDS = 900.0
_MOST_ROWS = 500_000  # of one request; a series is never cut
_LONGEST_QUERY = 2000  # characters


def _json(response: httpx.Response) -> Any:
    return msgspec.json.decode(response.content)


def _parts(table: pyarrow.Table, metric: str) -> list[pyarrow.Table]:
    """Return a long frame in parts that one request takes."""
    import pyarrow

    from drumlin.kg.telemetry.forecast_points import split

    if table.num_rows <= _MOST_ROWS or "unique_id" not in table.column_names:
        return [table]
    parts: list[list[pyarrow.Table]] = [[]]
    rows = 0
    for (id, name), each in split(table, metric).items():
        if rows and rows + each.num_rows > _MOST_ROWS:
            parts.append([])
            rows = 0
        columns = {"unique_id": [id] * each.num_rows, "metric": [name] * each.num_rows}
        parts[-1].append(pyarrow.table({**columns, **dict(zip(each.column_names, each.columns, strict=True))}))
        rows += each.num_rows
    return [pyarrow.concat_tables(part) for part in parts]


def _written(table: pyarrow.Table) -> bytes:
    import pyarrow

    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _read(response: httpx.Response) -> _Points:
    from drumlin.kg.telemetry.arrow_input import read_stream
    from drumlin.kg.telemetry.forecast_points import MAX_POINTS

    try:
        table = read_stream(response.content, max_rows=MAX_POINTS)
    except InvalidDocument as error:
        raise InvalidDocument("the answer is not a whole Arrow stream", hint="ask again") from error
    return _Points(table, int(response.headers["X-Drumlin-Step"]), response.headers.get("X-Drumlin-Trained"))
