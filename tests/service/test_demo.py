"""The demos of other systems do their jobs for real: with ``--once`` they exit 0 only if every step gave real results.

``make demo`` itself is what the documentation runs against (``test_documentation``).
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from drumlin.api.demo import kuscia_network, prometheus
from tests.service.conftest import ROOT, serving

IN_CI = os.environ.get("CI") == "true"


def _needs_prometheus() -> None:
    missing = [
        name for name in ("prometheus", "promtool", "prometheus-node-exporter") if not prometheus.find_binary(name)
    ]
    if missing and IN_CI:
        pytest.fail(f"{missing[0]} is not installed; scripts/servers should have seen to it")
    if missing:
        pytest.skip(f"{missing[0]} is not installed: apt-get install {prometheus.PACKAGES[missing[0]]}")


def test_the_demo_of_agents() -> None:
    """This machine with the series of its node-exporter, the chain of agents, and one that falls silent and comes back."""
    _needs_prometheus()
    command = [sys.executable, "-m", "drumlin.api.cli.main", "demo", "--system", "agents", "--once", "--port", "0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=170)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"hypervisor-agent +kvm +eu/lab/rack-3 +this-machine-agent", done.stdout)
    assert re.search(r"agent/hypervisor-agent +agent of the hypervisor", done.stdout)
    assert "And live, from this machine's node-exporter" in done.stdout
    assert "CANARY" not in done.stdout


def test_the_demo_of_functions_and_calls() -> None:
    """A function and its pods, the calls of a service graph with exactly the generated figures, and what a failure reaches."""
    _needs_prometheus()
    command = [sys.executable, "-m", "drumlin.api.cli.main", "demo", "--system", "functions", "--once", "--port", "0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=170)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"checkout +api\.payments\.example +1\.0 +0\.2 +0\.5", done.stdout)
    assert "n2 -->|calls| n1" in done.stdout
    assert re.search(r"frontend +2 +8 +up: 4 pods in 60 s", done.stdout)


def test_the_demo_of_a_kuscia_network() -> None:
    """Two domains: their board, the figures of both routes from a real Prometheus, and the cause of a failed job."""
    _needs_prometheus()
    command = [sys.executable, "-m", "drumlin.api.cli.main", "demo", "--system", "kuscia", "--once", "--port", "0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=170)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Tombstone +10", done.stdout)  # the pods of ended tasks, rebuilt
    assert re.search(r"alice-bob +2\.5 +4", done.stdout)
    assert re.search(r"bob-alice +41", done.stdout)
    assert re.search(r"predict +never began +train", done.stdout)
    assert re.search(r"bob +guest +OOMKilled +137", done.stdout)
    assert "CANARY" not in done.stdout


def test_a_served_network_gives_open_lineage_events(tmp_path: Path) -> None:
    """The command asks a running service and prints an event a line."""
    settings = kuscia_network.settings(None, 0)
    (tmp_path / "drumlin.toml").write_text('cluster = "kuscia"\nmappings = ["kuscia"]\n')
    kuscia_network.source(tmp_path / "cluster", settings)
    arguments = ["--source", f"dump:{tmp_path / 'cluster'}", "--config", str(tmp_path / "drumlin.toml")]
    with serving("--store", str(tmp_path / "store"), *arguments) as service:
        command = [sys.executable, "-m", "drumlin.api.cli.main", "lineage", "-u", service.url]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert Counter(each["eventType"] for each in events) == {"START": 6, "COMPLETE": 5, "FAIL": 1}


def test_without_prometheus_the_demo_shows_what_it_can(tmp_path: Path) -> None:
    """Where Prometheus cannot be had, the graph and the resolved query are shown, the rest names what to install, and --once fails."""
    environment = {**os.environ, "PATH": str(tmp_path)}
    command = [sys.executable, "-m", "drumlin.api.cli.main", "demo", "--once", "--port", "0"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert re.search(r"Pod +38", done.stdout)
    assert "(rate(container_cpu_usage_seconds_total{" in done.stdout
    assert "apt-get install prometheus" in done.stdout


def test_the_demo_keeps_serving_and_ends_cleanly() -> None:
    """Without --once the service stays until it is interrupted, and takes its servers and files with it."""
    _needs_prometheus()
    command = [sys.executable, "-m", "drumlin.api.cli.main", "demo", "--port", "0", "--days", "1"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
    ) as process:
        assert process.stdout is not None
        url = server = page = ""
        for line in process.stdout:
            if found := re.search(r"Prometheus runs at (\S+)", line):
                server = found[1]
            if found := re.search(r"Open (\S+),", line):
                url = found[1]
            if found := re.search(r"The page that shows the most: (\S+)", line):
                page = found[1]
                break
        shown = httpx.get(page, headers={"Accept": "text/html"}).text
        assert "What is measured" in shown
        recent = {"entity": page.partition("/doc/")[2], "metric": "mem_usage", "last": "1h", "format": "json"}
        series = httpx.get(f"{url}/history", params=recent).json()["series"]
        assert series[0]["coverage"] > 0.8  # it ends now
        assert "Deployment" in httpx.get(url).text
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    with pytest.raises(httpx.TransportError):
        httpx.get(server, timeout=2)
