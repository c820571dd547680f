"""Why a server cannot listen, and what to do: for the service and for the small server of ``drumlin follow``."""

from __future__ import annotations

import errno
import socket

from kg.errors import InvalidSettings


def cannot_listen(host: str, port: int, error: OSError, option: str) -> InvalidSettings:
    """Return the error of an address that cannot be listened on; its options are ``option`` with ``host`` and ``port`` after it."""
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        hint = f"this machine has no such address; choose one of its own: {option}host 127.0.0.1"
    elif error.errno == errno.EACCES:
        hint = f"a port below 1024 needs rights that this process has not; choose a higher one: {option}port 8080"
    else:
        hint = f"choose another port: {option}port 0 takes a free one"
    return InvalidSettings(f"cannot listen on {host}:{port}: {error.strerror}", hint=hint)
