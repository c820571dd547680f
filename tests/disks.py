"""Small disks for tests, which root may mount, and who may become root without a password: one that fills up, one that fails."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """Mount a disk of some megabytes in ``folder``, which is made. Skips where that is not allowed; in CI it must be."""
    folder.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={megabytes}m,mode=1777", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        _as_root("umount", str(folder), check=True)


def fill(disk: Path) -> Path:
    """Take all room of a disk, to the last byte, and return the file that has it."""
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with suppress(OSError):
                while file.write(bytes(size)):
                    pass
    assert os.statvfs(disk).f_bavail == 0
    return ballast


class FailingDisk:
    """A disk with a file system of its own (ext4), mounted in ``folder``."""

    def __init__(self, image: Path, folder: Path) -> None:
        self._image, self.folder = image, folder
        folder.mkdir()

    def fail(self) -> None:
        """Turn read-only under whoever has files open, as ext4 does after an error of the device."""
        _as_root("mount", "-o", "remount,abort", str(self.folder), check=True)

    def mount(self, options: str = "rw") -> None:
        """Mount it, mended if need be."""
        _as_root("fsck.ext4", "-fy", str(self._image), check=False)
        _mount("-o", f"loop,{options}", str(self._image), str(self.folder))

    def unmount(self) -> None:
        """Unmount it; nobody may have a file open."""
        _as_root("umount", str(self.folder), check=True)


@contextmanager
def failing_disk(folder: Path, megabytes: int) -> Iterator[FailingDisk]:
    """Make and mount a disk that can fail in ``folder``, which is made. Skips where that is not allowed; in CI it must be."""
    image = folder.with_name(f"{folder.name}.ext4")
    with image.open("wb") as file:
        file.truncate(megabytes << 20)
    made = _as_root("mkfs.ext4", "-q", "-F", "-m0", str(image))
    if made.returncode:
        _not_here(made.stderr)
    disk = FailingDisk(image, folder)
    disk.mount()
    try:
        yield disk
    finally:
        _as_root("umount", str(folder))


def _mount(*options: str) -> None:
    mounted = _as_root("mount", *options)
    if mounted.returncode:
        _not_here(mounted.stderr)


def _not_here(why: str) -> None:
    reason = f"a disk cannot be mounted here, run as root: {why.strip()}"
    (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)


def _as_root(*command: str, check: bool = False) -> subprocess.CompletedProcess[str]:
    root = ["sudo", "-n"] if os.geteuid() and shutil.which("sudo") else []
    try:
        return subprocess.run([*root, *command], capture_output=True, text=True, check=check)
    except FileNotFoundError as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))
