"""Listening: why a server cannot, and what to do (for the service and for the small server of ``drumlin follow``); and how patient it is.

Patience is a matter of the system's (``TCP_USER_TIMEOUT``, tcp(7)): it alone sees whether a client takes anything, however slowly, also of
an answer that was handed over whole.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kg.errors import InvalidSettings

STALLED = 30.0
"""Seconds that a client may take nothing of what it was sent."""


def cannot_listen(host: str, port: int, error: OSError, option: str) -> InvalidSettings:
    """Return the error of an address that cannot be listened on; its options are ``option`` with ``host`` and ``port`` after it."""
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        hint = f"this machine has no such address; choose one of its own: {option}host 127.0.0.1"
    elif error.errno == errno.EACCES:
        hint = f"a port below 1024 needs rights that this process has not; choose a higher one: {option}port 8080"
    else:
        hint = f"choose another port: {option}port 0 takes a free one"
    return InvalidSettings(f"cannot listen on {host}:{port}: {error.strerror}", hint=hint)


def cut_stalled(port: int) -> None:
    """Have the system end each connection to ``port`` of whose answer nothing was taken, or acknowledged, for ``STALLED`` seconds."""
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError), _borrowed(int(each.name)) as found:
            if found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and found.getsockname()[1] == port:
                found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(STALLED * 1000))


@contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """Yield the socket of a descriptor that belongs to somebody else: it is never closed here. Raises ``OSError`` for no socket."""
    found = socket.socket(fileno=descriptor)
    try:
        yield found
    finally:
        found.detach()
