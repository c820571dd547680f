"""A writer that is killed amid batches, bulk loads, checkpoints and pruning; backups and restores that are killed: all is checked each time."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.bench.running import phase, sized
from tests.killing import kill_often
from tests.killing_backups import kill_backups

WRITERS, BACKUPS = sized((140, 64), (3, 4))


def run() -> list[tuple[str, str, str, str, str]]:
    """Kill; any loss raises."""
    phase("killing writers")
    with tempfile.TemporaryDirectory() as name:
        acknowledged, oldest, generation, slowest = kill_often(Path(name) / "store", WRITERS, seed=2)
    phase("killing backups and restores")
    with tempfile.TemporaryDirectory() as name:
        found = kill_backups(Path(name) / "store", BACKUPS, seed=2)
    left = ", ".join(f"{kind} {count}" for kind, count in sorted(found.items()))
    return [
        (f"kill -9 of a writer, {WRITERS} times", f"{acknowledged:,} acknowledged", "", "0 lost", "0 lost"),
        ("  longest opening afterwards", f"{slowest:.2f} s", f"log from {oldest:,} to {generation:,}", "", "≤ 2 s"),
        (f"kill -9 of backup, restore, service, {BACKUPS} times", left, "", "0 taken for whole", "0"),
    ]
