"""The packages of ``tests/javascript``, installed once for all tests that need them."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "javascript"
INSTALL = "npm ci --prefer-offline --ignore-scripts"


def unavailable(reason: str) -> None:
    """Skip what needs Node.js where it cannot be had; in CI that is a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def install() -> None:
    """Install the packages of the lock when they are not there yet; another process that does the same is waited for."""
    lacking = [each for each in ("node", "npm") if shutil.which(each) is None]
    if lacking:
        unavailable(f"{' and '.join(lacking)} not installed: apt-get install nodejs npm")
    lock, mark = FOLDER / "package-lock.json", FOLDER / "node_modules" / ".installed"
    with lock.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if mark.exists() and mark.read_bytes() == lock.read_bytes():
            return
        done = subprocess.run(INSTALL.split(), cwd=FOLDER, capture_output=True, text=True, check=False)
        if done.returncode:
            unavailable(f"the packages could not be installed: cd tests/javascript && {INSTALL}\n{done.stderr[-2000:]}")
        shutil.copyfile(lock, mark)
