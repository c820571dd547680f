"""Servers of the standard library in a thread, for tests that need one which misbehaves, or looks at what passes."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

Server = TypeVar("Server", bound=socketserver.BaseServer)


@contextmanager
def listening(server: Server) -> Iterator[Server]:
    """Let a server answer until the block is left; then it is closed."""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    with server:
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
