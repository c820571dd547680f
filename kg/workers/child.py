"""The main program of a worker: it runs named jobs, one at a time, until the service is gone.

A job is a function from the bytes it is sent to the parts of its result. Its module is imported with the first job of its kind, so that a
worker that only parses Turtle knows no Arrow. A job may take so much address space beyond what the process has when it begins; beyond
that an allocation fails, which ends some native code and with it the process. Errors of ours go back as such. Any other exception is a
fault that ends the process: its last words are on stderr, which the service reads.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal

import msgspec

from drumlin.kg.errors import DrumlinError
from drumlin.kg.processes import begun, limit_arenas
from drumlin.kg.workers.frames import Frames, JobHeader, Limits, Refusal, frame

_PAGE = os.sysconf("SC_PAGE_SIZE")
_BYTES_AT_ONCE = 1 << 18
_STATM = Path("/proc/self/statm")
_UNLIMITED = resource.getrlimit(resource.RLIMIT_AS)

Work = Callable[[bytes], Iterator[bytes]]
Lane = Literal["bulk", "update", "parse"]
"""Jobs of one lane share its processes; a lane that is full makes no other lane wait."""


@dataclass(frozen=True, slots=True)
class JobKind:
    """What a job runs (module and function), in which lane, and its limits unless the caller sets others."""

    target: str
    lane: Lane
    limits: Limits

    def run(self, payload: bytes) -> Iterator[bytes]:
        """Run it in this process."""
        return _work(self.target)(payload)


def _work(target: str) -> Work:
    """Return a function by its module and name."""
    module, _, name = target.partition(":")
    found: Work = getattr(import_module(module), name)
    return found


_PARSING = Limits(seconds=10.0, memory=768 << 20, output=256 << 20)
_TABLE = Limits(seconds=20.0, memory=1 << 30, output=256 << 20)
JOBS: Mapping[str, JobKind] = {
    "validate": JobKind("drumlin.kg.graphs.bulk:validate_job", "bulk", Limits(20.0, 768 << 20, 256 << 20)),
    "update": JobKind("drumlin.kg.store.sandbox:update_job", "update", Limits(30.0, 2 << 30, 512 << 20)),
    "documents": JobKind("drumlin.kg.store.documents:documents_job", "update", Limits(30.0, 2 << 30, 256 << 20)),
    "sparql": JobKind("drumlin.kg.parsers:sparql_job", "parse", _PARSING),
    "rdf": JobKind("drumlin.kg.parsers:rdf_job", "parse", _PARSING),
    "points": JobKind("drumlin.kg.telemetry.forecast_points:points_job", "parse", _TABLE),
    "frame": JobKind("drumlin.kg.telemetry.forecast_points:frame_job", "parse", _TABLE),
    "points_file": JobKind("drumlin.kg.telemetry.forecast_points:points_file_job", "parse", _TABLE),
}


def main() -> None:
    """Serve on standard input until the other side is gone."""
    _, channel = begun(argparse.ArgumentParser())
    _reserve_little()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)  # there are no cycles to speak of
    calls = msgspec.msgpack.Decoder(JobHeader)
    arrived = Frames()
    while found := arrived.wait(channel, _BYTES_AT_ONCE):
        call = calls.decode(found[1])
        if (sent := arrived.wait(channel, _BYTES_AT_ONCE)) is None or not _run(call, sent[1], channel):
            return


def _reserve_little() -> None:
    """Have allocators reserve no address space ahead, which would count as a job's: one arena, and no pool of Arrow's own."""
    limit_arenas(1)
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"


def _run(call: JobHeader, payload: bytes, channel: socket.socket) -> bool:
    """Run one job; returns False when the process is not to be used again."""
    work = _work(call.target)
    channel.sendall(frame(b"B"))
    _limit_memory(_pages(0) * _PAGE + call.memory)
    try:
        left = call.output
        for part in work(payload):
            left -= len(part)
            if left < 0:
                channel.sendall(frame(b"L", b"output"))
                break
            channel.sendall(frame(b"D", part))
    except DrumlinError as error:
        channel.sendall(frame(b"X", msgspec.msgpack.encode(Refusal.of(error), enc_hook=str)))
    except MemoryError:
        channel.sendall(frame(b"L", b"memory"))
        return False
    finally:
        resource.setrlimit(resource.RLIMIT_AS, _UNLIMITED)
    channel.sendall(frame(b"E", str(_pages(1) * _PAGE).encode()))
    return True


def _limit_memory(limit: int) -> None:
    most = _UNLIMITED[1]
    resource.setrlimit(resource.RLIMIT_AS, (limit if most == resource.RLIM_INFINITY else min(limit, most), most))


def _pages(field: int) -> int:
    """Return the pages of address space (0) or of memory (1) that this process has."""
    return int(_STATM.read_bytes().split()[field])


if __name__ == "__main__":
    main()
