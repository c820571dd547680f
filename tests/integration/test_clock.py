"""A machine whose clock is wrong: the real command line, under libfaketime."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.conftest import need
from tests.service.conftest import ROOT, SAMPLE


@pytest.mark.parametrize(
    "command",
    [("serve", "--port", "0", "--base", "http://localhost", "--source", f"dump:{SAMPLE}"), ("load", str(SAMPLE))],
    ids=lambda each: each[0],
)
def test_nothing_begins_in_1960(tmp_path: Path, command: tuple[str, ...]) -> None:
    """One line says what is wrong, one what to do, the exit code is 1, and no store is made."""
    clock = [str(need("faketime", "faketime")), "1960-01-01 00:00:00"]
    drumlin = [sys.executable, "-m", "drumlin.api.cli.main", *command, "--store", str(tmp_path / "store")]
    done = subprocess.run([*clock, *drumlin], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr.strip().splitlines() == [
        "drumlin: the clock of this machine says 1960-01-01 00:00, which cannot be right",
        "  hint: set the clock, for example by a time service (NTP); a service that runs goes on by itself then, else start again",
    ]
    assert (done.returncode, (tmp_path / "store").exists()) == (1, False)
