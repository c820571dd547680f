"""Mutants of documents in every syntax and of Arrow streams against a listening service: ``python -m tests.bench bodies 1000000 --minutes 90``.

20,000 when no count is said; a second number is the seed. The workers that parse them may end; the service may not, and nothing is answered 500.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import httpx

from tests.bench.running import Row, phase, sized
from tests.fuzzing import ENTITY, bodies, send_bodies
from tests.service.conftest import OWN_DOCUMENT, serving

COUNT, SEED = sized(20_000, 300), 1


def run() -> list[Row]:
    """Send the bodies; fails when the service ends or answers 500."""
    numbers = [int(each) for each in sys.argv if each.isdigit()]
    count, seed = (*numbers, *(COUNT, SEED)[len(numbers) :])[:2]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "drumlin.toml")
        config.write_text(f'[[datasource]]\nname = "files"\nkind = "parquet"\nurl = "{Path(folder, "f").as_uri()}"\n')
        with serving("--store", f"{folder}/store", "--config", str(config)) as service:
            httpx.put(service.url + ENTITY, content=OWN_DOCUMENT, headers={"Content-Type": "text/turtle"})
            phase(f"{count:,} bodies")
            began = time.perf_counter()
            outcomes, crashed = send_bodies(service.url, bodies(seed, count))
            seconds = time.perf_counter() - began
            ended = service.process.poll()
            if ended is not None or crashed or httpx.get(service.url + "/livez").status_code != 200:
                raise AssertionError((ended, crashed[:3], service.log[-5:]))
            died = sum("job_failed" in each for each in service.log)
    by_status: dict[str, int] = {}
    for outcome, found in outcomes.items():
        by_status[outcome.split()[-1]] = by_status.get(outcome.split()[-1], 0) + found
    said = ", ".join(f"{found} {status}" for status, found in sorted(by_status.items()))
    return [
        (
            f"bodies: {count:,} ({said}; {died} exceeded a limit or ended a worker)",
            f"{count / seconds:.0f}/s",
            "",
            "0 exits, no 500",
            "0, 0",
        )
    ]
