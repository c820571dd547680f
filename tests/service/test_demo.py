"""The demo does the main job for real: ``make demo ONCE=1`` exits 0 only if every step gave real results."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from api.demo import prometheus
from tests.service.conftest import ROOT

IN_CI = os.environ.get("CI") == "true"


def _needs_prometheus() -> None:
    missing = [
        name for name in ("prometheus", "promtool", "prometheus-node-exporter") if not prometheus.find_binary(name)
    ]
    if missing and IN_CI:
        pytest.fail(f"{missing[0]} is not installed; scripts/servers should have seen to it")
    if missing:
        pytest.skip(f"{missing[0]} is not installed: apt-get install {prometheus.PACKAGES[missing[0]]}")


def test_make_demo_once() -> None:
    """The README's command shows real results at each step; CI runs it in the clean checkout that it has made itself."""
    _needs_prometheus()
    command = ["make", "demo", "ONCE=1", "ARGS=--port 0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Pod +38", done.stdout)
    assert "sum(rate(container_cpu_usage_seconds_total{" in done.stdout
    assert re.search(r"sample/payments/deployment/checkout +20\d\d-.* cpu_usage +\{cpu\}", done.stdout)
    assert "And live, from this machine's node-exporter" in done.stdout
    assert "every step gave real results" in done.stdout


def test_without_prometheus_the_demo_shows_what_it_can(tmp_path: Path) -> None:
    """Where Prometheus cannot be had, the graph and the resolved query are shown, the rest names what to install, and --once fails."""
    environment = {**os.environ, "PATH": str(tmp_path)}
    command = [sys.executable, "-m", "api.cli.main", "demo", "--once", "--port", "0"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert re.search(r"Pod +38", done.stdout)
    assert "sum(rate(container_cpu_usage_seconds_total{" in done.stdout
    assert "apt-get install prometheus" in done.stdout


def test_the_demo_keeps_serving_and_ends_cleanly() -> None:
    """Without --once the service stays until it is interrupted, and takes its servers and files with it."""
    _needs_prometheus()
    command = [sys.executable, "-m", "api.cli.main", "demo", "--port", "0", "--days", "1"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
    ) as process:
        assert process.stdout is not None
        url = server = ""
        for line in process.stdout:
            if found := re.search(r"Prometheus runs at (\S+)", line):
                server = found[1]
            if found := re.search(r"Open (\S+),", line):
                url = found[1]
                break
        assert "Deployment" in httpx.get(url).text
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    with pytest.raises(httpx.TransportError):
        httpx.get(server, timeout=2)
