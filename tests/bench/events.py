"""The change feed beside writing: what 200 subscribers, who take every event, cost the writers. Rounds with and without them alternate.

Whichever of a pair comes first is quicker by some per cent, so what is told is the mean of pairs in which either does. Throughput on a
shared machine scatters, so the cost is told by the processor time of the service per write too; the subscribers are in a
process of their own, as they would be. They decode when the round has ended, since they would do that elsewhere; every subscriber must
have got every event then, once and in order.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import multiprocessing
import os
import re
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import urlsplit

from drumlin.kg.store.embedded.engine_applier import LINGER
from tests.bench.running import phase, sized, wait_for
from tests.service.conftest import serving
from tests.service.test_subgraph import JSONLD, forecast

SUBSCRIBERS = sized(200, 4)
ROUNDS = sized(8, 1)
SECONDS = sized(3.0, 0.5)
WRITERS = 8
_TICKS = os.sysconf("SC_CLK_TCK")


def run(subscribers: int = SUBSCRIBERS, rounds: int = ROUNDS) -> list[tuple[str, str, str, str, str]]:
    """Measure pairs of rounds; rows of the table."""
    with tempfile.TemporaryDirectory() as store, serving("--store", store) as service:
        _write(service.url, 1.0, "warm")
        alone, followed = [], []
        for number in range(rounds):
            # The first of both changes, since a store that has grown costs more.
            phase(f"round {number + 1} of {rounds}")
            for which in (alone, followed) if number % 2 else (followed, alone):
                with _subscribed(service.url, subscribers if which is followed else 0) as counted:
                    which.append(_round(service.url, service.process.pid, f"{len(which)}-{which is followed}"))
                    if which is followed:
                        taken = counted(which[-1][0])
    what = f"writes beside {subscribers} subscribers"
    pairs = list(zip(alone, followed, strict=True))
    speed = statistics.geometric_mean(b[0] / a[0] for a, b in pairs)
    cost = statistics.geometric_mean(b[1] / a[1] for a, b in pairs)
    ms = [statistics.median(each[1] for each in which) * 1e3 for which in (followed, alone)]
    writes = [statistics.median(each[0] for each in which) / SECONDS for which in (followed, alone)]
    return [
        (
            what,
            f"{writes[0]:,.0f}/s",
            f"{writes[1]:,.0f}/s without",
            f"{speed:.2f}",
            "≥ 0.95",
        ),
        (
            f"{what}: processor time a write",
            f"{ms[0]:.2f} ms",
            f"{ms[1]:.2f} ms without",
            f"{cost:.2f}",
            "≤ 1.05",
        ),
        (
            "  events that each subscriber got in the last round",
            f"{taken:,}",
            f"{followed[-1][0]:,} written",
            "",
            "all",
        ),
    ]


def _round(url: str, pid: int, name: str) -> tuple[int, float]:
    """Write as fast as it goes, once nothing is left to do of before; returns how many writes, and the service's processor seconds for one."""
    idle, last = 0, _cpu(pid)

    def quiet() -> bool:
        nonlocal idle, last
        idle, last = (idle + 1 if _cpu(pid) - last < 0.02 else 0), _cpu(pid)
        return idle > sized(2 * LINGER, 0)  # the engine takes new graphs over after a while

    wait_for(quiet, "the service to be idle", every=0.5)
    before = _cpu(pid)
    written = _write(url, SECONDS, name)
    return written, (_cpu(pid) - before) / written


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _write(url: str, seconds: float, name: str) -> int:
    counts = [0] * WRITERS
    ends = time.monotonic() + seconds

    def work(which: int) -> None:
        connection = http.client.HTTPConnection(urlsplit(url).netloc)
        while time.monotonic() < ends:
            id = f"{name}-{which}-{counts[which]}"
            connection.request("PUT", f"/subgraph/forecast/{id}", json.dumps(forecast(id)), JSONLD)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 201
            counts[which] += 1

    threads = [threading.Thread(target=work, args=(which,)) for which in range(WRITERS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return sum(counts)


@contextmanager
def _subscribed(url: str, subscribers: int) -> Iterator[Callable[[int], int]]:
    """Have subscribers take events in a process of their own; gives what waits until all have got so many, and counts."""
    forking = multiprocessing.get_context("fork")  # a spawned one would run the benches anew
    here, there = forking.Pipe()
    process = forking.Process(target=_follow, args=(url, subscribers, there))
    process.start()
    try:
        assert here.poll(60), "the subscribers are not connected"
        assert here.recv() == "connected"

        def counted(expected: int) -> int:
            here.send(expected)
            return int(here.recv())

        yield counted
    finally:
        process.kill()
        process.join()


def _follow(url: str, subscribers: int, told: Connection) -> None:
    asyncio.run(_follow_all(url, subscribers, told))


async def _follow_all(url: str, subscribers: int, told: Connection) -> None:
    got = [bytearray() for _ in range(subscribers)]
    ready = asyncio.Semaphore(0)
    address = urlsplit(url)
    ask = f"GET /events HTTP/1.1\r\nHost: {address.netloc}\r\nAccept: text/event-stream\r\n\r\n"

    async def one(which: int) -> None:
        reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=1 << 22)
        writer.write(ask.encode())
        await reader.readuntil(b"\r\n\r\n")
        ready.release()
        while chunk := await reader.read(1 << 20):
            got[which] += chunk

    tasks = [asyncio.create_task(one(which)) for which in range(subscribers)]
    for _ in range(subscribers):
        await ready.acquire()
    told.send("connected")
    expected = await asyncio.to_thread(told.recv)
    ends = time.monotonic() + 60
    counts = [0]
    while min(counts) < expected and time.monotonic() < ends:
        await asyncio.sleep(1.0)
        counts = [len(_ids(bytes(each))) for each in got]
    in_order = all(ids == sorted(set(ids)) for ids in (_ids(bytes(each)) for each in got))
    told.send(min(counts) if min(counts) == max(counts) and in_order else -1)
    for each in tasks:
        each.cancel()


def _ids(chunked: bytes) -> list[tuple[int, int]]:
    """Read the ids of the events that a stream has told so far, out of a body in chunks (RFC 9112 §7.1)."""
    body, at = bytearray(), 0
    while (end := chunked.find(b"\r\n", at)) >= 0:
        size = int(chunked[at:end], 16)
        body += chunked[end + 2 : end + 2 + size]
        at = end + 2 + size + 2
    found = re.findall(rb"id: ([0-9]+)\.([0-9]+)\ndata: ", body)
    return [(int(generation), int(place)) for generation, place in found]
