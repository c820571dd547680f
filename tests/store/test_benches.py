"""The runner of benches: none runs for ever, none fails unseen, and all of them are listed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bench import __main__ as command
from tests.bench import running
from tests.bench.running import BenchFailed, run_apart, wait_for
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
ROWS = '[["a rate", "1/s", "", "", ""], ["another", "", "", "skipped: no server", ""]]'


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have a script in the place of a bench's process; ``folder`` is where it leaves its rows."""

    def become(script: str) -> None:
        text = f"import sys\nfrom pathlib import Path\nfolder = Path(sys.argv[2])\n{script}"
        monkeypatch.setattr(running, "COMMAND", (sys.executable, "-c", text))

    return become


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_bench_that_does_not_end_is_ended_with_all_that_it_started(
    bench: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the bench, its limit and its phase; no process and no file of it is left."""
    started = tmp_path / "started"
    bench(
        "import os, subprocess, tempfile, time\nfrom tests.bench.running import phase\nphase('runaway queries')\n"
        "child = subprocess.Popen(['sleep', '1000'])\nplace = tempfile.mkdtemp()\n"
        f"Path({str(started)!r} + '.new').write_text(f'{{os.getpid()}} {{child.pid}} {{place}}')\n"
        f"os.rename({str(started)!r} + '.new', {str(started)!r})\ntime.sleep(1000)"
    )

    class Late(subprocess.Popen[bytes]):
        def wait(self, timeout: float | None = None) -> int:
            if timeout is None:
                return super().wait()
            until(started.exists)
            raise subprocess.TimeoutExpired(self.args, timeout)

    monkeypatch.setattr(running.subprocess, "Popen", Late)

    with pytest.raises(BenchFailed, match="bench sparql: not done after 20 minutes, in the phase 'runaway queries'"):
        run_apart("sparql", 1200)
    bench_pid, child_pid, place = started.read_text().split(" ")
    until(lambda: _gone(int(bench_pid)) and _gone(int(child_pid)))
    assert not Path(place).exists()


def test_a_bench_that_fails_is_said_with_its_phase(bench: Callable[[str], None]) -> None:
    """Its exit code is not taken for a result, whatever it left."""
    bench(f"(folder / 'rows').write_text({ROWS!r})\n(folder / 'phase').write_text('GET')\nsys.exit(3)")

    with pytest.raises(BenchFailed, match="bench rest: failed with exit code 3 in the phase 'GET'"):
        run_apart("rest", 60)


@pytest.mark.parametrize("rows", ["[]", '[["a rate", "", "2/s", "", ""]]', '[["", "1/s", "", "", ""]]'])
def test_a_row_without_a_figure_is_a_failure(bench: Callable[[str], None], rows: str) -> None:
    """Each row says what was measured and what it came to, or why it was skipped."""
    bench(f"(folder / 'rows').write_text({rows!r})")
    with pytest.raises(BenchFailed, match="without a figure"):
        run_apart("rest", 60)

    bench(f"(folder / 'rows').write_text({ROWS!r})")
    assert [row[0] for row in run_apart("rest", 60)] == ["a rate", "another"]


def test_nothing_is_waited_for_without_end() -> None:
    """A condition that never holds raises with its name."""
    with pytest.raises(BenchFailed, match=r"waited 0\.01 s in vain for the moon"):
        wait_for(lambda: False, "the moon", 0.01, every=0.001)


def test_every_bench_is_listed_with_what_it_measures_and_its_limit() -> None:
    """The help and the documentation name all modules that can be run."""
    found = {
        each.stem
        for each in (ROOT / "tests/bench").glob("*.py")
        if re.search(r"^def run\(", each.read_text(), re.MULTILINE)
    }
    said = subprocess.run(
        [sys.executable, "-m", "tests.bench", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout

    assert command.BENCHES.keys() == found
    for name, each in command.BENCHES.items():
        assert re.search(rf"^  {name} +{re.escape(each.what)}\n +at most {each.minutes:g} minutes", said, re.MULTILINE)
    text = " ".join((ROOT / "docs/benchmarks.md").read_text().split())
    assert "--smoke" in text
    assert all(f"`{name}` ({each.minutes:g})" in text for name, each in command.BENCHES.items())


def test_a_smoke_run_comes_to_its_figures() -> None:
    """One bench, as CI runs all of them, prints a table and ends with 0; an unknown name is an error that lists those there are."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench", "--smoke", "search"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "search of 2,000 entities: index made" in done.stdout
    unknown = subprocess.run(
        [sys.executable, "-m", "tests.bench", "no-such"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert unknown.returncode == 2
    assert "there are fuzz, bodies, load" in unknown.stderr


def test_a_bench_that_needs_what_is_missing_says_so(tmp_path: Path) -> None:
    """By name it is a failure, which names the program and what to do."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench", "--smoke", "sparql"],
        cwd=ROOT,
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert "skipped: wrk is not installed (make servers)" in done.stdout
    assert "bench sparql: wrk is not installed" in done.stderr


def test_ci_runs_all_of_them() -> None:
    """The gate of the repository has a smoke run of every bench."""
    assert "make bench ARGS=--smoke\n" in (ROOT / ".ci/run").read_text()
