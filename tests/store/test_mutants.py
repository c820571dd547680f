"""Some thousand bodies that are nearly sound, read by a process of their own whose memory is capped: none of them ends it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests import hostile

SEED, COUNT = 20261129, 300


@pytest.mark.parametrize("kind", hostile.KINDS)
def test_no_mutant_ends_the_process_that_reads_it(kind: str) -> None:
    """Each gives a result or an error of ours; ``python -m tests.hostile KIND SEED COUNT`` reads more of them."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile", kind, str(SEED), str(COUNT)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert done.returncode == 0, (done.returncode, done.stdout.split()[-1:], done.stderr[-2000:])
    assert done.stdout.split()[-1] == str(COUNT - 1)
