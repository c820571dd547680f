"""A store whose process is killed at any moment: nothing acknowledged is lost, nothing is half there. The bench kills more often."""

from __future__ import annotations

from pathlib import Path

from tests.killing import kill_often
from tests.killing_backups import kill_backups

KILLS = 12


def test_a_killed_writer_loses_nothing_acknowledged(tmp_path: Path) -> None:
    """After each of many kills amid batches, bulk loads, checkpoints and pruning, log, entries and engine agree and every acknowledgement holds."""
    acknowledged, oldest, _, _ = kill_often(tmp_path / "store", KILLS, seed=1)

    assert acknowledged > KILLS
    assert oldest > 1  # the log was shortened meanwhile


def test_a_killed_backup_or_restore_is_taken_for_none(tmp_path: Path) -> None:
    """What is left of it is refused or absent, and the store that was backed up is whole. The bench kills services too."""
    found = kill_backups(tmp_path / "store", 2, seed=1, kinds=("offline", "restore"))

    assert sum(found.values()) == 2
