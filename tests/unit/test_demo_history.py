"""The generated series of the demo: a past to backfill, and an exporter that goes on where it ends."""

from __future__ import annotations

import re
from pathlib import Path

from drumlin.api.demo.history import STEP, GeneratedHistory

START = 1_700_000_100
END = START + 10 * STEP
CPU = re.compile(r'^(container_cpu_usage_seconds_total\{[^}]*pod="checkout[^}]*\}) ([0-9.]+)', re.MULTILINE)


def test_what_is_scraped_goes_on_where_the_history_ends(tmp_path: Path) -> None:
    """Each counter has the same name and labels, and grows by about as much a second as before."""
    generated = GeneratedHistory(START)
    place = tmp_path / "history.om"
    count = generated.write(place, END)
    text = place.read_text()
    before = {name: float(value) for name, value in CPU.findall(text)}  # the last of each
    first = {name: float(value) for name, value in reversed(CPU.findall(text))}
    assert count == 10 * len({line.split(" ")[0] for line in text.splitlines() if not line.startswith("#")})

    after = {name: float(value) for name, value in CPU.findall(generated.text(END))}

    assert after.keys() == before.keys()
    for name, value in after.items():
        rate = (before[name] - first[name]) / (9 * STEP)
        assert 0.5 * rate < (value - before[name]) / STEP < 2 * rate


def test_the_same_history_is_generated_each_time(tmp_path: Path) -> None:
    """Pictures of the demo are alike from run to run."""
    for name in ("one", "two"):
        GeneratedHistory(START).write(tmp_path / name, END)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
