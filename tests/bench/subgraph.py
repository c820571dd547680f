"""PUT and GET of one entity's graph over HTTP, against ``oxigraph serve`` doing the same bytes without validation or fsync."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx

from api.demo.prometheus import free_port
from kg import jsonld, rdf
from tests.service.conftest import serving

NTRIPLES = {"Accept": "application/n-triples"}
CONNECTIONS, REQUESTS, ROUNDS = 16, 1500, 3
GRAPH = Path(__file__).resolve().parents[2].parent / "shared" / "contract" / "graphs" / "node.jsonld"


def run() -> list[tuple[str, str, str, str, str]]:
    """Alternate both servers, three rounds, distinct 33-quad graphs, 16 connections."""
    with (
        tempfile.TemporaryDirectory() as name,
        serving("--store", f"{name}/ours") as ours,
        _oxigraph(Path(name) / "peer") as peer,
    ):
        figures: dict[str, list[float]] = {"our PUT": [], "peer PUT": [], "our GET": [], "peer GET": []}
        for turn in range(ROUNDS):
            figures["our PUT"].append(
                _rate(lambda n, http, t=turn: _put(http, f"{ours.url}/subgraph/{_id(t, n)}", t, n))
            )
            figures["peer PUT"].append(
                _rate(lambda n, http, t=turn: _put(http, f"{peer}/store?graph=https://kg.example/id/{_id(t, n)}", t, n))
            )
            figures["our GET"].append(
                _rate(lambda n, http, t=turn: http.get(f"{ours.url}/subgraph/{_id(t, n)}", headers=NTRIPLES))
            )
            figures["peer GET"].append(
                _rate(
                    lambda n, http, t=turn: http.get(
                        f"{peer}/store?graph=https://kg.example/id/{_id(t, n)}", headers=NTRIPLES
                    )
                )
            )
    best = {name: statistics.median(values) for name, values in figures.items()}
    return [
        (
            f"{what} of a 33-quad graph, 16 connections",
            f"{best[f'our {what}']:.0f}/s",
            f"{best[f'peer {what}']:.0f}/s",
            f"{best[f'our {what}'] / best[f'peer {what}']:.2f}",
            target,
        )
        for what, target in (("PUT", "≥ 0.8"), ("GET", "≥ 0.5"))
    ]


def _id(turn: int, number: int) -> str:
    return f"prod/-/node/n{turn}-{number}"


def _put(http: httpx.Client, url: str, turn: int, number: int) -> httpx.Response:
    return http.put(url, content=_body(turn, number), headers={"Content-Type": "application/n-triples"})


def _body(turn: int, number: int) -> bytes:
    return _TEMPLATE.replace(b"prod/-/node/edge-a-gpu-1", _id(turn, number).encode())


_TEMPLATE = rdf.serialize(jsonld.lines(json.loads(GRAPH.read_text())), rdf.NTRIPLES) if GRAPH.exists() else b""


def _rate(send: Callable[[int, httpx.Client], httpx.Response]) -> float:
    local = threading.local()

    def one(number: int) -> None:
        if not hasattr(local, "http"):
            local.http = httpx.Client(timeout=30)
        send(number, local.http).raise_for_status()

    began = time.perf_counter()
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(one, range(REQUESTS)))
    return REQUESTS / (time.perf_counter() - began)


@contextmanager
def _oxigraph(directory: Path) -> Iterator[str]:
    port = free_port()
    binary = Path(sys.executable).parent / "oxigraph"
    process = subprocess.Popen(
        [str(binary), "serve", "--location", str(directory), "--bind", f"127.0.0.1:{port}"], stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(100):
            try:
                httpx.get(f"http://127.0.0.1:{port}/")
                break
            except httpx.TransportError:
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()
