"""A store whose process is killed at any moment: nothing acknowledged is lost, nothing is half there. The bench kills more often."""

from __future__ import annotations

from pathlib import Path

from tests.killing import kill_often

KILLS = 20


def test_a_killed_writer_loses_nothing_acknowledged(tmp_path: Path) -> None:
    """After each of many kills amid batches, bulk loads and checkpoints, log, entries and engine agree and every acknowledgement holds."""
    acknowledged, _, _ = kill_often(tmp_path / "store", KILLS, seed=1)

    assert acknowledged > KILLS
