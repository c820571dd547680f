"""Listening: why a server cannot, and what to do (for the service and for the small server of ``drumlin follow``); what its connections do.

The server that holds the connections says nothing of them, so they are looked up among the descriptors of this process (Linux).
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from drumlin.kg.errors import InvalidSettings

STALLED = 30.0
"""Seconds that a client may take nothing of what it was sent, or send nothing of a body that it has begun."""
UNHURRIED, SLOWEST = 20.0, 500
"""Seconds of waiting for a body after which it must have come at this rate, in bytes a second, or faster."""
_ACKED = struct.Struct("120x Q")  # tcpi_bytes_acked of struct tcp_info (linux/tcp.h, since 4.1)
_RECEIVED = struct.Struct("128x Q")  # tcpi_bytes_received
_AT_ONCE = struct.pack("ii", 1, 0)


def cannot_listen(host: str, port: int, error: OSError, option: str) -> InvalidSettings:
    """Return the error of an address that cannot be listened on; its options are ``option`` with ``host`` and ``port`` after it."""
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        hint = f"this machine has no such address; choose one of its own: {option}host 127.0.0.1"
    elif error.errno == errno.EACCES:
        hint = f"a port below 1024 needs rights that this process has not; choose a higher one: {option}port 8080"
    else:
        hint = f"choose another port: {option}port 0 takes a free one"
    return InvalidSettings(f"cannot listen on {host}:{port}: {error.strerror}", hint=hint)


def connections() -> dict[tuple[str, int], int]:
    """Return the open connections of this process: their descriptors by the address at the other end."""
    found = {}
    descriptors = Path("/proc/self/fd")
    for each in descriptors.iterdir() if descriptors.is_dir() else ():  # elsewhere than on Linux nobody can be cut
        with suppress(OSError), _borrowed(int(each.name)) as connection:
            if connection.family in (socket.AF_INET, socket.AF_INET6):
                found[connection.getpeername()[:2]] = int(each.name)
    return found


def acknowledged(descriptor: int) -> int:
    """Return how many bytes the other side of a connection has acknowledged: what it has taken, however slowly; 0 when it is closed."""
    with suppress(OSError), _borrowed(descriptor) as connection:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKED.size)
        return int(_ACKED.unpack(info)[0]) if len(info) == _ACKED.size else 0
    return 0


def received(descriptor: int) -> int:
    """Return how many bytes have come over a connection; 0 when it is closed."""
    with suppress(OSError), _borrowed(descriptor) as connection:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED.size)
        return int(_RECEIVED.unpack(info)[0]) if len(info) == _RECEIVED.size else 0
    return 0


def cut(descriptor: int) -> None:
    """End a connection at once, with all that is on its way (RST); its owner closes it."""
    with suppress(OSError), _borrowed(descriptor) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """Yield the socket of a descriptor that belongs to somebody else: it is never closed here. Raises ``OSError`` for no socket."""
    found = socket.socket(fileno=descriptor)
    try:
        yield found
    finally:
        found.detach()
