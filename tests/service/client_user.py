"""What a user of the client would write, with the types that come of it: ``make check`` holds mypy to them, a test runs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, closing
from typing import Any, assert_type

import pyarrow
import rdflib

import drumlin
from drumlin.kg.client import (
    AsyncSubgraph,
    AsyncWorkload,
    GraphSummary,
    Metric,
    RdfText,
    Resolved,
    Rows,
    Subgraph,
    Workload,
)
from drumlin.kg.client.series import Series
from drumlin.kg.telemetry.measures import Backtest

CHECKOUT = "prod/payments/deployment/checkout"
Object = dict[str, Any]


def ask(url: str) -> list[str]:
    """Ask with the blocking client; return the ids that were seen."""
    with drumlin.connect(url, timeout=30.0, retries=1) as client:
        workload = assert_type(client.workload(CHECKOUT), Workload)
        assert_type(client.workloads(kind="Deployment"), list[Workload])
        assert_type(workload.document, Object)
        assert_type(workload.metrics["cpu_usage"], Metric)
        subgraph = assert_type(client.subgraph(workload.id), Subgraph)
        assert_type(subgraph.text("turtle"), RdfText)
        assert_type(subgraph.to_rdflib(), rdflib.Graph)
        assert_type(subgraph.around(1, include="partOf"), list[Object])
        assert_type(client.search("checkout", type=["Deployment"], limit=5), Object)
        assert_type(client.query("classes"), Rows)
        listed = assert_type(client.subgraphs(namespace="payments"), Generator[GraphSummary, None, None])
        with closing(assert_type(client.changes(since=0), Generator[Object, None, None])) as changes:
            return [*(each.id for each in listed), next(changes)["subject"]]


async def ask_awaiting(url: str) -> list[str]:
    """Ask the same with the other client, much of it at the same time."""
    async with drumlin.connect_async(url, timeout=30.0, retries=1) as client:
        workload = assert_type(await client.workload(CHECKOUT), AsyncWorkload)
        assert_type(await client.workloads(kind="Deployment"), list[AsyncWorkload])
        assert_type((await workload.metrics())["cpu_usage"], Metric)
        subgraph = assert_type(client.subgraph(workload.id), AsyncSubgraph)
        async with asyncio.TaskGroup() as group:
            text = group.create_task(subgraph.text("turtle"))
            graph = group.create_task(subgraph.to_rdflib())
            around = group.create_task(subgraph.around(1, include="partOf"))
            found = group.create_task(client.search("checkout", type=["Deployment"], limit=5))
            rows = group.create_task(client.query("classes"))
        assert_type(text.result(), RdfText)
        assert_type(graph.result(), rdflib.Graph)
        assert_type(around.result(), list[Object])
        assert_type(found.result(), Object)
        assert_type(rows.result(), Rows)
        listed = assert_type(client.subgraphs(namespace="payments"), AsyncGenerator[GraphSummary, None])
        async with aclosing(assert_type(client.changes(since=0), AsyncGenerator[Object, None])) as changes:
            return [*[each.id async for each in listed], (await anext(changes))["subject"]]


def forecast(client: drumlin.Client) -> Series:
    """Fetch a history and forecast what follows; needs a datasource, so only the types of it are checked here."""
    assert_type(client.resolve(CHECKOUT, "cpu_usage", last="1h"), Resolved)
    assert_type(client.workload(CHECKOUT).resolve("cpu_usage"), Resolved)
    assert_type(client.workload(CHECKOUT).history("cpu_usage", last="1d"), Series)
    made = assert_type(client.forecasts.seasonal((CHECKOUT, "cpu_usage"), horizon="1d"), Object)
    assert_type(client.forecasts.list(CHECKOUT), list[Object])
    assert_type(client.forecasts.points((CHECKOUT, "cpu_usage"), made["id"]), pyarrow.Table)
    assert_type(client.forecasts.value((CHECKOUT, "cpu_usage"), ahead="15m"), Object)
    measured = assert_type(client.forecasts.backtest((CHECKOUT, "cpu_usage"), origins=3), Backtest)
    client.forecasts.save(measured.table, metric="cpu_usage", model="mine", horizon="1d", step="5m")
    return client.history(CHECKOUT, ["cpu_usage"], last="30d", step="5m", via="direct")


def wrong(client: drumlin.Client) -> None:
    """Show mistakes that a type checker finds: each line would be an unused ignore if it were none."""
    client.search("x", limit="5")  # type: ignore[arg-type]
    client.resolve(CHECKOUT)  # type: ignore[call-arg]
    client.history(CHECKOUT, "cpu_usage", via="satellite")  # type: ignore[arg-type]
    client.subgraph("x").put(1)  # type: ignore[arg-type]
    client.graph("x").post("", syntax=1)  # type: ignore[arg-type]
    client.changes(sinc=0)  # type: ignore[call-arg]
