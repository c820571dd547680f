"""Unit tests cannot touch the world: what ``tests/unit/pure.py`` refuses, and what it lets pass."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.pure import ROOT, Impure


def _bind() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))


def _connect() -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.connect("/nobody/listens")


REFUSED: dict[str, Callable[[], object]] = {
    "bind": _bind,
    "connect": _connect,
    "look up a name": lambda: socket.getaddrinfo("localhost", 80),
    "start a process": lambda: subprocess.run([sys.executable, "-V"], check=False),
    "run a shell": lambda: os.system("true"),
    "fork": os.fork,
    "open a database file": lambda: sqlite3.connect("impure.sqlite"),
    "write a file": lambda: (ROOT / "impure.txt").write_text("x"),
    "append to a file": lambda: (ROOT / "impure.txt").open("a"),
    "create a file by its descriptor": lambda: os.open(ROOT / "impure.txt", os.O_CREAT | os.O_WRONLY),
}


@pytest.mark.parametrize("act", REFUSED)
def test_an_impure_act_is_refused(act: str) -> None:
    """Sockets, processes, database files and writes beside the temporary folders are errors before they happen."""
    with pytest.raises(Impure, match="move it to tests/store"):
        REFUSED[act]()

    assert not (ROOT / "impure.txt").exists()


def test_a_thread_of_the_test_is_held_to_it_too() -> None:
    """What a unit test starts may not do what it may not do itself."""
    seen: list[BaseException] = []

    def run() -> None:
        try:
            _bind()
        except Impure as error:
            seen.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()

    assert len(seen) == 1


def test_reading_and_temporary_files_are_pure(tmp_path: Path) -> None:
    """Tests read the repository, write into their temporary folder, and use databases in memory."""
    assert (ROOT / "README.md").read_text()
    (tmp_path / "a.txt").write_text("x")
    with (tmp_path / "a.txt").open("r+") as file:
        assert file.read() == "x"
    sqlite3.connect(":memory:").close()
