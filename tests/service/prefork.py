"""Starts ``drumlin`` as a copy (fork) of a process that has imported it: importing takes most of a start, and happens once for all tests.

``python -m tests.service.prefork FD`` is that process. It has one thread, reads requests from a socket (SOCK_SEQPACKET, JSON, file descriptors
beside it), and ends with the tests' process. A copy is a process of its own in every other way: arguments, environment, files, signals, exit.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parents[2]
_LARGE = 1 << 18


class Forked:
    """A running copy, as ``subprocess.Popen`` shows one; the pipe ``alive`` ends with it."""

    def __init__(self, parent: Prefork, pid: int, stderr: TextIO, alive: int) -> None:
        self.pid, self.stderr = pid, stderr
        self.returncode: int | None = None
        self._parent, self._alive = parent, alive
        self._ending = threading.Lock()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code; raises ``subprocess.TimeoutExpired``."""
        with self._ending:
            if self.returncode is None:
                if not select.select([self._alive], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired("drumlin", timeout or 0)
                os.close(self._alive)
                self.returncode = self._parent.ask({"ended": self.pid})
            return self.returncode

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


class Prefork:
    """The process that is copied, one for each process of the tests."""

    def __init__(self) -> None:
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._turn = threading.Lock()
        with other:
            command = [sys.executable, "-m", "tests.service.prefork", str(other.fileno())]
            self._process = subprocess.Popen(
                command, cwd=ROOT, pass_fds=[other.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
        atexit.register(self._close)

    def _close(self) -> None:
        self._socket.close()
        self._process.wait()

    def ask(self, request: Mapping[str, object], files: Sequence[int] = ()) -> int:
        """Send a request and return its answer."""
        with self._turn:
            socket.send_fds(self._socket, [json.dumps(request).encode()], files)
            return int(self._socket.recv(_LARGE))

    def start(self, arguments: Sequence[str], environment: Mapping[str, str]) -> Forked:
        """Run ``drumlin`` with these arguments and this environment."""
        (stderr, stderr_end), (alive, alive_end) = os.pipe(), os.pipe()
        try:
            request = {"arguments": list(arguments), "environment": dict(environment)}
            pid = self.ask(request, [stderr_end, alive_end])
        finally:
            os.close(stderr_end)
            os.close(alive_end)
        return Forked(self, pid, os.fdopen(stderr, encoding="utf-8", errors="replace"), alive)


@cache
def prefork() -> Prefork:
    """Return the process that is copied, started with the first request."""
    return Prefork()


def _main(door: socket.socket) -> None:
    """Answer requests until the tests end; in a copy, run what was asked for."""
    for each in ("drumlin.api.app", "drumlin.api.cli.serving"):
        import_module(each)
    from drumlin.api.cli.main import main

    while True:
        message, files, _, _ = socket.recv_fds(door, _LARGE, 2)
        if not message:
            return
        request = json.loads(message)
        if "ended" in request:
            _, status = os.waitpid(request["ended"], 0)
            door.send(str(os.waitstatus_to_exitcode(status)).encode())
        elif pid := os.fork():
            for each in files:
                os.close(each)
            door.send(str(pid).encode())
        else:
            stderr, alive = files
            os.dup2(stderr, 2)
            os.close(stderr)
            # The old object remembers whether it could seek: what the tests write may go into a file.
            sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
            os.set_inheritable(alive, False)
            door.close()
            os.environ.clear()
            os.environ.update(request["environment"])
            sys.argv = ["drumlin", *request["arguments"]]
            main()
            return


if __name__ == "__main__":
    _main(socket.socket(fileno=int(sys.argv[1])))
