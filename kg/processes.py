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
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_ROOT = str(Path(__file__).parents[2])  # the folder that holds the package
ENVIRONMENT = {"PYTHONPATH": _ROOT, "PYTHONUTF8": "1", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=500"}
"""Nothing of ours: credentials may be in it. The engine frees and takes many small pieces of memory at a time: without room for them in
the allocator's fast lists a query takes half as long again."""
BUSY_FOR_LONG = 0.1
"""Seconds of work for one client after which a process lets other work go first."""
_PR_SET_PDEATHSIG = 1
_M_ARENA_MAX = -8  # malloc.h


def start(
    module: str, *arguments: str, descriptors: Sequence[int] = (), stderr: int | None = None
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a module, which gets our pid as ``--parent``, and return its process and what to talk to it through.

    ``descriptors`` are the open files that it inherits, under their numbers; ``stderr`` is the one that its errors go to, ours by default.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process = subprocess.Popen(  # noqa: S603 - our own module, no caller's text
                [sys.executable, "-P", "-m", module, f"--parent={os.getpid()}", *arguments],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                pass_fds=descriptors,
                env=ENVIRONMENT,
            )
        except BaseException:
            ours.close()
            raise
    return process, ours


def limit_arenas(count: int) -> None:
    """Have the allocator serve all threads of this process from so many arenas; each keeps to itself what its threads freed."""
    ctypes.CDLL(None).mallopt(_M_ARENA_MAX, count)


def give_memory_back() -> None:
    """Have the allocator give the system what it keeps of memory that was freed: some milliseconds for 100 MB."""
    ctypes.CDLL(None).malloc_trim(0)


def lower_priority(pid: int) -> None:
    """Let other work go before that of a process which is busy for long."""
    with suppress(ProcessLookupError):
        os.setpriority(os.PRIO_PROCESS, pid, 19)


def restore_priority(pid: int) -> bool:
    """Give a process this one's priority back; False when the system does not allow that."""
    try:
        os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, 0))
    except (PermissionError, ProcessLookupError):
        return False
    return True


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
