"""The quick starts run as they are written: each block of each page, in order, against the demo that they begin with."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumlin.api.demo import prometheus
from tests.service.conftest import ROOT

PAGES = sorted((ROOT / "docs" / "quickstart").glob("*.md"))
WRITTEN = "http://localhost:8080"
LINES = 80
"""A screen and a half."""


@pytest.fixture(scope="module")
def demo() -> Iterator[str]:
    """The address of a running ``drumlin demo``; skip, except in CI, where Prometheus is not installed."""
    if not prometheus.find_binary("prometheus") or not prometheus.find_binary("promtool"):
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("prometheus is not installed: make servers")
    command = [sys.executable, "-m", "drumlin.api.cli.main", "demo", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        shown = []
        for line in process.stdout:
            shown.append(line)
            if found := re.search(r"Open http://127\.0\.0\.1:(\d+),", line):
                break
        else:
            raise AssertionError("".join(shown))
        yield f"http://localhost:{found[1]}"
        process.send_signal(signal.SIGINT)


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the code that a reader runs: language and text."""
    return re.findall(r"^```(sh|python)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def test_each_kind_of_user_has_a_page() -> None:
    """There are four pages, each begins with the demo, and none is longer than a screen and a half."""
    assert [page.stem for page in PAGES] == ["data-scientist", "rdf-engineer", "rest-integrator", "sre"]
    for page in PAGES:
        assert "$ make demo\n" in page.read_text()
        assert len(page.read_text().splitlines()) <= LINES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_quick_start_runs_as_written(page: Path, demo: str, tmp_path: Path) -> None:
    """Every block ends without an error and shows something; only the address of the demo differs."""
    found = blocks(page)
    assert len(found) >= 4
    environment = {
        **os.environ,
        "DRUMLIN_URL": demo,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    for language, text in found:
        command = ["bash", "-euc", text] if language == "sh" else [sys.executable, "-c", text]
        done = subprocess.run(
            [part.replace(WRITTEN, demo) for part in command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        assert done.stdout.strip(), text
