"""What every bench is run with: a process group of its own, a limit in time, phases that are named, and sizes of a smoke run.

A bench is ``run()`` of its module; it begins each part with ``phase``, takes its sizes from ``sized`` and waits by ``wait_for``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, TypeVar

T = TypeVar("T")
Row = tuple[str, str, str, str, str]
"""What is measured; our figure, the peer's, their ratio, the target."""

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "tests.bench")
SMOKE_SECONDS = 90.0
"""Seconds that a smoke run may take; ten are usual."""
_SMOKE = "DRUMLIN_BENCH_SMOKE"
_FOLDER = "DRUMLIN_BENCH_FOLDER"
SMOKE = os.environ.get(_SMOKE) == "1"


class BenchFailed(Exception):
    """A bench did not come to its end, or has a row without a figure."""


class Bench(NamedTuple):
    """A module of benches: what it measures, the minutes it may take, and the programs that it needs."""

    what: str
    minutes: float
    needs: tuple[str, ...] = ()


def sized(whole: T, smoke: T) -> T:
    """Return a size: of a whole run, or of a smoke run, which does the same with little."""
    return smoke if SMOKE else whole


def phase(name: str) -> None:
    """Say what begins, for whoever watches, and for the message when it does not end."""
    sys.stderr.write(f"  {name}\n")
    sys.stderr.flush()
    if folder := os.environ.get(_FOLDER):
        Path(folder, "phase").write_text(name, encoding="utf-8")


def wait_for(holds: Callable[[], object], what: str, seconds: float = 120.0, every: float = 0.05) -> None:
    """Wait until something holds; raises ``BenchFailed`` with ``what`` was waited for when it does not in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise BenchFailed(f"waited {seconds:g} s in vain for {what}")
        time.sleep(every)


def run_here(name: str, folder: Path) -> None:
    """Run a bench in this process and leave its rows in a folder."""
    rows: list[Row] = import_module(f"tests.bench.{name}").run()
    (folder / "rows").write_text(json.dumps(rows), encoding="utf-8")


def run_apart(name: str, seconds: float, *, smoke: bool = False, arguments: Sequence[str] = ()) -> list[Row]:
    """Run a bench as a process group of its own, and end all of the group after ``seconds``.

    Raises ``BenchFailed``, which names the bench and its phase, when it does not end in time, fails, or has a row without a figure.
    """
    with tempfile.TemporaryDirectory(prefix=f"bench-{name}-") as place:
        folder = Path(place)
        (folder / "tmp").mkdir()
        environment = {**os.environ, _FOLDER: place, "TMPDIR": str(folder / "tmp"), _SMOKE: "1" if smoke else "0"}
        process = subprocess.Popen(
            [*COMMAND, "--in", place, name, *arguments],
            cwd=ROOT,
            env=environment,
            stdout=sys.__stderr__,  # what it logs; the table alone is our output
            start_new_session=True,
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise BenchFailed(
                f"bench {name}: not done after {seconds / 60:.3g} minutes, in the phase {_phase(folder)!r}; it was ended"
            ) from error
        finally:
            with suppress(ProcessLookupError):  # what it started ends with it
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if code != 0:
            raise BenchFailed(f"bench {name}: failed with exit code {code} in the phase {_phase(folder)!r}")
        rows: list[Row] = [tuple(row) for row in json.loads((folder / "rows").read_text(encoding="utf-8"))]
    if not rows or not all(
        what.strip() and (ours.strip() or ratio.startswith("skipped")) for what, ours, _, ratio, _ in rows
    ):
        raise BenchFailed(f"bench {name}: it ended without a figure in each row: {rows}")
    return rows


def _phase(folder: Path) -> str:
    try:
        return (folder / "phase").read_text(encoding="utf-8")
    except FileNotFoundError:
        return "starting"
