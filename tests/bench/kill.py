"""A writer that is killed 200 times amid batches, bulk loads and checkpoints: everything is checked after each kill."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.killing import kill_often

KILLS = 200


def run() -> list[tuple[str, str, str, str, str]]:
    """Kill; any loss raises."""
    with tempfile.TemporaryDirectory() as name:
        acknowledged, generation, slowest = kill_often(Path(name) / "store", KILLS, seed=2)
    return [
        (f"kill -9, {KILLS} times", f"{acknowledged:,} acknowledged", "", "0 lost", "0 lost"),
        ("  longest opening afterwards", f"{slowest:.2f} s", f"generation {generation:,}", "", "≤ 2 s"),
    ]
