"""Processes of our own modules that serve this one: they talk to it through their standard input, a socket, and end with it."""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

_ROOT = str(Path(__file__).parents[1])
ENVIRONMENT = {"PYTHONPATH": _ROOT, "PYTHONUTF8": "1", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=500"}
"""Nothing of ours: credentials may be in it. The engine frees and takes many small pieces of memory at a time: without room for them in
the allocator's fast lists a query takes half as long again."""
_PR_SET_PDEATHSIG = 1


def start(module: str, *arguments: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a module, which is told our pid as ``--parent``, and return its process and what to talk to it through."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process = subprocess.Popen(  # noqa: S603 - our own module, no caller's text
                [sys.executable, "-P", "-m", module, f"--parent={os.getpid()}", *arguments],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env=ENVIRONMENT,
            )
        except BaseException:
            ours.close()
            raise
    return process, ours


def begun(options: argparse.ArgumentParser) -> tuple[argparse.Namespace, socket.socket]:
    """Begin as what ``start`` has started: returns the arguments, and what to talk to the service through, with which this process ends."""
    options.add_argument("--parent", type=int, required=True)
    given = options.parse_args()
    _end_with(given.parent)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return given, socket.socket(fileno=0)


def _end_with(parent: int) -> None:
    """Have this process killed when the thread that started it ends, and now if that is so already; leave Ctrl-C to ``parent``."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the service that started this process is gone")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
