"""``drumlin backup`` and ``restore``, killed at any moment, and the service that is backed up too: for the suite and the bench.

What a kill leaves must not be taken for a backup or a store; the store that was backed up is as before.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Literal

import pytest

from drumlin.kg.errors import InvalidInput, StoreUnavailable
from drumlin.kg.store.embedded import backups
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite
from tests.killing import ROOT, agree
from tests.service.conftest import BASE, Service, serving

GRAPHS = 200
Kind = Literal["offline", "restore", "client", "service"]
KINDS: tuple[Kind, ...] = ("offline", "restore", "client", "service")


def made(directory: Path) -> None:
    """Make a store that takes a moment to be copied and read, and a backup beside it."""
    directory.mkdir()
    (directory / "base").write_text(BASE)
    names = [f"{BASE}/id/domain/d{number}" for number in range(GRAPHS)]
    with closing(EmbeddedStore(directory)) as store:
        store.apply([GraphWrite.of(each, lines(each), "user") for each in names])
    with backups.filling(directory.with_name("whole")) as folder, closing(EmbeddedStore(directory)) as store:
        backups.take(store, BASE, folder, store._clock())


def lines(graph: str) -> frozenset[str]:
    """Give a graph a hundred statements."""
    return frozenset(f'<{graph}> <http://p/{number}> "{number}" .' for number in range(100))


def kill_backups(directory: Path, kills: int, seed: int, kinds: Sequence[Kind] = KINDS) -> Counter[str]:
    """Kill ``kills`` times, each kind in turn, and check each time; returns how often what was left was what.

    ``directory`` must be new. ``whole``: the kill came too late.
    """
    made(directory)
    moments = random.Random(seed)
    found: Counter[str] = Counter()
    for number in range(kills):
        kind = kinds[number % len(kinds)]
        target = directory.with_name(f"target{number}")
        served = serving("--store", str(directory)) if kind in ("client", "service") else nullcontext()
        with served as service:
            _cut(kind, directory, target, service, moments.uniform(0, 0.5))
        found[f"{kind} {left(target, restored=kind == 'restore')}"] += 1
        with closing(EmbeddedStore(directory)) as store:
            agree(store)
            assert not any((directory / "checkpoints").glob("*"))
    return found


def _cut(kind: Kind, directory: Path, target: Path, service: Service | None, seconds: float) -> None:
    """Run the command, and kill it, or the service, some time after it has begun to write."""
    options = {
        "offline": ("backup", str(target), "--store", str(directory)),
        "restore": ("restore", str(directory.with_name("whole")), "--store", str(target)),
    }
    command = options.get(kind) or ("backup", str(target), "--url", service.url if service else "")
    process = subprocess.Popen([sys.executable, "-m", "drumlin.api.cli.main", *command], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # fmt: skip
    while not target.exists() and process.poll() is None:
        time.sleep(0.001)
    time.sleep(seconds)
    victim = service.process if service and kind == "service" else process
    victim.kill()
    _, said = process.communicate(timeout=60)
    assert process.returncode >= 0 if kind == "service" else process.returncode in (0, -9), said
    assert service is None or kind == "service" or service.process.poll() is None


def left(target: Path, *, restored: bool) -> str:
    """Say what a kill left: ``absent``, ``refused`` or ``whole``; fails when it is taken for what it is not."""
    if not target.exists() or not any(target.iterdir()):
        return "absent"
    if (target / "unfinished").exists():
        for attempt in (lambda: backups.restore(target, target / "x"), lambda: EmbeddedStore(target)):
            with pytest.raises((InvalidInput, StoreUnavailable)):
                attempt()
        return "refused"
    if not restored:
        backups.verify(target)
    with closing(EmbeddedStore(target)) as store:
        agree(store)
        assert len(store.entries()) >= GRAPHS
    return "whole"
