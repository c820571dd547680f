"""The pages over a large cluster: how long a search and an entity take in a browser's terms, and how much they send.

Each page is asked for once by another address, so that no answer comes from a memory of it; a node of 5,000 pods is the hub.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

import httpx

from tests.bench.load import write_cluster
from tests.bench.running import Row, phase, sized
from tests.service.conftest import serving, until_ready

PODS, WORKLOADS, NODES = sized((30_000, 3_000, 6), (600, 60, 6))
PAGES = sized(300, 10)
WORDS = ("web", "api", "team-1", "node-12", "running", "worker", "0001")
BROWSER = {"Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}


def run() -> list[Row]:
    """Load the cluster, ask for pages; rows of the table."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        phase("generating the cluster")
        write_cluster(folder / "cluster", PODS, WORKLOADS, NODES)
        phase("loading it")
        with (
            serving("--store", str(folder / "store"), "--source", f"dump:{folder / 'cluster'}") as service,
            httpx.Client(base_url=service.url, headers=BROWSER, timeout=60) as browser,
        ):
            until_ready(service, 300)
            return _measured(browser)


def _measured(browser: httpx.Client) -> list[Row]:
    chance = random.Random(7)
    ids = [each["id"] for kind in ("Deployment", "Pod", "Namespace") for each in _listed(browser, kind)]
    chance.shuffle(ids)
    pages = {
        f"search page, {PODS:,} pods": [f"/search?q={chance.choice(WORDS)}+{number % 97}" for number in range(PAGES)],
        "search page by facets": [
            f"/search?type=Pod&phase=Running&sort=name&q={number % 50}" for number in range(PAGES)
        ],
        "entity page": [f"/doc/{id}" for id in ids[:PAGES]],
    }
    hub = max(_listed(browser, "Node"), key=lambda each: each["id"])["id"]
    pages["entity page of a hub"] = [f"/doc/{hub}"] * (PAGES // 10)
    pages[f"neighbourhood of a hub of {PODS // NODES:,} pods"] = [f"/doc/{hub}.html?part=around"] * (PAGES // 10)
    cluster = _listed(browser, "Cluster")[0]["id"]
    pages[f"neighbourhood of the cluster, {PODS:,} links"] = [f"/doc/{cluster}.html?part=around"] * (PAGES // 10)
    targets = {"search page": "≤ 200 ms", "entity page": "≤ 100 ms, ≤ 60 KB"}
    rows: list[Row] = []
    for what, addresses in pages.items():
        phase(what)
        times, sizes = zip(*(_asked(browser, each) for each in addresses), strict=True)
        half, most = (sorted(times)[min(len(times) - 1, int(len(times) * share))] for share in (0.5, 0.95))
        target = next((each for name, each in targets.items() if what.startswith(name)), "")
        figures = f"{half * 1e3:.0f} and {most * 1e3:.0f} ms, {max(sizes) / 1024:.0f} KB"
        rows.append((f"{what}, p50 and p95, most bytes", figures, "", "", target))
    return rows


def _listed(browser: httpx.Client, kind: str) -> list[dict[str, str]]:
    answer = browser.get("/search", params={"type": kind, "limit": 200}, headers={"Accept": "application/json"})
    found: list[dict[str, str]] = answer.raise_for_status().json()["items"]
    return found


def _asked(browser: httpx.Client, address: str) -> tuple[float, int]:
    began = time.perf_counter()
    answer = browser.get(address)
    took = time.perf_counter() - began
    answer.raise_for_status()
    return took, len(answer.content)
