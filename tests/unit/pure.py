"""Unit tests are pure: while one runs, its threads may open no socket, process or database file, and write only to temporary files.

An audit hook (PEP 578) sees every such act, whatever code performs it. Tests that need them belong to tests/store, tests/service or
tests/integration.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_REFUSED = frozenset(
    {
        "socket.connect",
        "socket.bind",
        "socket.sendto",
        "socket.getaddrinfo",
        "socket.gethostbyname",
        "subprocess.Popen",
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.system",
    }
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC
_OWN = (tempfile.gettempdir(), "/dev/", str(ROOT / ".hypothesis"))
_bystanders: frozenset[int] | None = None
"""The threads that ran before the test, which are not its own; None while no unit test runs."""
_installed = False


class Impure(AssertionError):
    """A unit test touched the world."""


@contextmanager
def held_pure() -> Iterator[None]:
    """Refuse the acts of this thread, and of those that it starts, that no unit test may perform."""
    global _bystanders, _installed  # noqa: PLW0603 - audit hooks cannot be removed, so there is one for the process
    if not _installed:
        sys.addaudithook(_hook)
        _installed = True
    own = threading.get_ident()
    _bystanders = frozenset(each.ident for each in threading.enumerate() if each.ident and each.ident != own)
    try:
        yield
    finally:
        _bystanders = None


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _bystanders is None or (event != "open" and event not in _REFUSED and event != "sqlite3.connect"):
        return
    if not _is_refused(event, arguments) or threading.get_ident() in _bystanders:
        return
    raise Impure(f"a unit test may not {event} {arguments[:2]!r:.200}: move it to tests/store")


def _is_refused(event: str, arguments: tuple[Any, ...]) -> bool:
    if event == "sqlite3.connect":
        return arguments[0] not in (":memory:", "") and "mode=memory" not in str(arguments[0])
    return event != "open" or _writes_elsewhere(*arguments)


def _writes_elsewhere(path: Any, mode: str | None, flags: int) -> bool:
    if isinstance(path, int) or not (flags & _WRITING if mode is None else set(mode) & set("wax+")):
        return False
    name = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - called often
    return not name.startswith(_OWN) and "__pycache__" not in name
