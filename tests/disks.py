"""A small disk for tests: a tmpfs, which root may mount, and who may become root without a password."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """Mount a disk of some megabytes in ``folder``, which is made. Skips where that is not allowed; in CI it must be."""
    folder.mkdir()
    root = ["sudo", "-n"] if os.geteuid() and shutil.which("sudo") else []
    command = [*root, "mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=1777", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        reason = f"a tmpfs cannot be mounted here, run as root: {mounted.stderr.strip()}"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    try:
        yield folder
    finally:
        subprocess.run([*root, "umount", str(folder)], check=True)
