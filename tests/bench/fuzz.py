"""Texts that are nearly SPARQL against a listening service: ``python -m tests.bench fuzz 1000000`` (100,000 when no count is said)."""

from __future__ import annotations

import sys
import tempfile
import time

from tests.bench.running import phase, sized
from tests.fuzzing import canary, cases, send
from tests.service.conftest import serving

COUNT, SEED = sized(100_000, 300), 1


def run() -> list[tuple[str, str, str, str, str]]:
    """Send the cases; fails when the service ends, fetches, or answers 500."""
    count = next((int(each) for each in sys.argv if each.isdigit()), COUNT)
    with (
        tempfile.TemporaryDirectory() as folder,
        serving("--store", f"{folder}/store", environment={"DRUMLIN_QUERY_TIMEOUT": "2"}) as service,
        canary() as (address, heard),
    ):
        phase(f"{count:,} texts")
        began = time.perf_counter()
        outcomes, crashed = send(service.url, cases(SEED, count, updates=0.02), address)
        seconds = time.perf_counter() - began
        if service.process.poll() is not None or heard or crashed:
            raise AssertionError((service.process.poll(), heard[:1], crashed[:3], service.log[-5:]))
    said = ", ".join(f"{found} {outcome}" for outcome, found in outcomes.most_common())
    return [(f"fuzz: {count:,} texts ({said})", f"{count / seconds:.0f}/s", "", "0 crashes, 0 fetches", "0, 0")]
