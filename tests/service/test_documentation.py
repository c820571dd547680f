"""The documentation runs as it is written: each block of each page, in order, and each notebook, against one demo.

What a block needs that is not here is given by stand-ins or is listed with its reason in this file; everything else runs.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import nbclient
import nbformat
import pytest
import yaml

import drumlin
from drumlin.api.demo import prometheus
from drumlin.kg.client import Client
from drumlin.kg.config.settings import Settings
from tests.service.conftest import ROOT, SAMPLE

QUICK_STARTS = sorted((ROOT / "docs" / "quickstart").glob("*.md"))
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
REPLAYED = ROOT / "docs" / "rest-reference.md"
"""Its examples are recorded from a service and replayed by ``test_openapi_conformance``."""
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *(each for each in sorted((ROOT / "docs").rglob("*.md")) if each != REPLAYED),
]
LANGUAGES = "sh, console, python, toml, json, yaml, sparql, or text for the rest"
LINES = 80
"""A screen and a half."""

STAND_INS = {
    "make": ("the demo runs already, and the suite is what runs this", ":"),
    "kubectl": ("there is no cluster", f'case "$1" in get) cat {SAMPLE / "pods.json"};; esac'),
    "pytest": ("the suite is what runs this", ":"),
    "helm": ("there is no cluster", ":"),
    "skopeo": ("there is no registry", ":"),
}
"""Commands that a block of a shell gets something else for: why, and what."""
DRUMLIN = 'case "$1" in serve|follow|agent|demo|mcp) ;; *) command drumlin "$@" || [[ "$*" == *chekout* ]];; esac'
"""Commands that run until they are ended; their options are checked by ``tests/unit/test_docs.py``."""
CURL = 'case "$*" in *chekout*|*" -f "*) command curl "$@";; *) command curl -sS --fail-with-body --max-time 30 "$@";; esac'
"""An error fails a block, but where it is what the page shows."""
ELSEWHERE = {
    ("docs/forecasts.md", "from statsforecast import StatsForecast"): "statsforecast is none of our packages",
}
"""Blocks that are only parsed, by page and first line, with the reason."""
ANSWER = "y\n"


class Block(NamedTuple):
    """A block of code of a page: its language and its text."""

    language: str
    text: str


class Demo(NamedTuple):
    """A running ``make demo``: its address, what it has shown so far, and when it was ready."""

    url: str
    shown: str
    ready: str

    def here(self, text: str) -> str:
        """Return a text of the documentation with the names and addresses of this demo."""
        text = (
            re.sub(r"\bprod/", "sample/", text).replace("cluster/prod", "cluster/sample").replace("edge-lab", "sample")
        )
        text = text.replace("2026-11-27T12:00:00Z", self.ready)
        text = text.replace("https://kg.example", self.url.replace("127.0.0.1", "localhost"))
        return text.replace("http://localhost:8080", self.url).replace(
            "localhost:8080", self.url.removeprefix("http://")
        )


@pytest.fixture(scope="module")
def demo() -> Iterator[Demo]:
    """``make demo``; skip, except in CI, where Prometheus is not installed."""
    if not prometheus.find_binary("prometheus") or not prometheus.find_binary("promtool"):
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("prometheus is not installed: make servers")
    command = ["make", "demo", "ARGS=--port 0"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        shown = ""
        for line in process.stdout:
            shown += line
            if found := re.search(r"Open http://127\.0\.0\.1:(\d+),", line):
                break
        else:
            raise AssertionError(shown)
        yield Demo(f"http://localhost:{found[1]}", shown, f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
        os.killpg(process.pid, signal.SIGINT)


def blocks(page: Path) -> list[Block]:
    """Return the blocks of code of a page, in order."""
    found = re.findall(r"^( *)```(\S*)\n(.*?)^ *```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [
        Block(language, "".join(line.removeprefix(indent) for line in text.splitlines(keepends=True)))
        for indent, language, text in found
    ]


def shell_of(block: Block) -> str:
    """Return the commands of a block: all of ``sh``, what follows ``$`` of ``console``, whose other lines are output."""
    if block.language == "sh":
        return block.text
    commands: list[str] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            commands.append(line[2:])
        elif commands and not _whole(commands[-1]):
            commands[-1] += f"\n{line}"
    return "\n".join(commands)


def _whole(command: str) -> bool:
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return False
    return not command.endswith("\\")


def name_of(page: Path) -> str:
    """Return the path of a page in the repository."""
    return page.relative_to(ROOT).as_posix()


class Reader:
    """Somebody who reads a page and runs what stands there."""

    def __init__(self, demo: Demo, home: Path, client: Client) -> None:
        self.demo, self.home = demo, home
        self.client = client
        self.names: dict[str, Any] = {}
        functions = {name: text for name, (_, text) in STAND_INS.items()} | {"drumlin": DRUMLIN, "curl": CURL}
        self._prelude = "".join(f"{name}() {{ {text}; }}\n" for name, text in functions.items())
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("DRUMLIN_")},
            "DRUMLIN_URL": demo.url,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        }

    def run(self, block: Block, *, shows: bool) -> None:
        """Run a block; one that ``shows`` must print something."""
        text = self.demo.here(block.text)
        if block.language == "python":
            self.names["client"] = self.client  # a block before may have closed its own
            code = compile(text, "a block of the documentation", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if waits := eval(code, self.names):
                asyncio.run(waits)
        elif block.language in ("sh", "console"):
            self._shell(self.demo.here(shell_of(block)), shows=shows)
        elif block.language == "toml":
            (self.home / "drumlin.toml").write_text(text)
            if "mcp_servers" not in tomllib.loads(text):  # which is a file of an agent's
                Settings.load(self.home / "drumlin.toml")
        elif block.language == "json":
            document = json.loads(text)
            if "type" in document and "id" in document:
                self.client.subgraph(document["id"]).put(document)
        elif block.language == "yaml":
            assert all(yaml.safe_load_all(text))
        elif block.language == "sparql":
            list(self.client.sparql(text))
        else:
            assert block.language in ("text", "{toctree}"), f"a block names its language ({LANGUAGES}): {block}"

    def _shell(self, text: str, *, shows: bool) -> None:
        for own in ("/var/lib/drumlin", "/backups"):
            text = text.replace(own, f"{self.home}{own.replace('/', '-')}")
        command = ["bash", "-euc", self._prelude + text]
        done = subprocess.run(
            command,
            cwd=self.home,
            env=self._environment,
            input=ANSWER,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        assert done.stdout.strip() or not shows, text


def test_make_demo_shows_the_main_job(demo: Demo) -> None:
    """The README's command shows real results at each step: the graph, the resolved query, its history, live values."""
    assert re.search(r"Pod +38", demo.shown)
    assert "(rate(container_cpu_usage_seconds_total{" in demo.shown
    assert re.search(r"sample/payments/deployment/checkout +20\d\d-.* cpu_usage +\{cpu\}", demo.shown)
    if prometheus.find_binary("prometheus-node-exporter"):
        assert "And live, from this machine's node-exporter" in demo.shown
        assert "not shown:" not in demo.shown


def test_each_kind_of_user_has_a_page() -> None:
    """There are four pages, each begins with the demo, and none is longer than a screen and a half."""
    assert [page.stem for page in QUICK_STARTS] == ["data-scientist", "rdf-engineer", "rest-integrator", "sre"]
    for page in QUICK_STARTS:
        assert "$ make demo\n" in page.read_text()
        assert len(page.read_text().splitlines()) <= LINES
        assert len(blocks(page)) > 4


@pytest.mark.filterwarnings("ignore:The inplace keyword in MetricRangeDataFrame")  # prometheus-api-client's own
@pytest.mark.parametrize("page", [each for each in PAGES if blocks(each)], ids=name_of)
def test_a_page_runs_as_written(
    page: Path, demo: Demo, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every block of a page ends without an error; those of a quick start show something."""
    quick = page in QUICK_STARTS
    monkeypatch.chdir(tmp_path)
    with drumlin.connect(demo.url) as client:
        reader = Reader(demo, tmp_path, client)
        for block in blocks(page):
            if (name_of(page), block.text.partition("\n")[0]) in ELSEWHERE:
                compile(block.text, name_of(page), "exec")
                continue
            reader.run(block, shows=quick and block.language == "sh")
            assert not (quick and block.language == "python") or capsys.readouterr().out.strip(), block.text


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, demo: Demo, tmp_path: Path) -> None:
    """Every cell runs in a kernel of Jupyter, and the last one shows something; it is stored without outputs."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)
    for cell in code:
        cell.source = demo.here(cell.source)
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert code[-1].outputs


def test_only_what_has_to_be_is_not_run() -> None:
    """Each block that is only parsed is there, and so is each command with a stand-in: else the lists of exceptions would grow old."""
    first = {(name_of(page), block.text.partition("\n")[0]) for page in PAGES for block in blocks(page)}
    assert set(ELSEWHERE) <= first
    shells = "\n".join(shell_of(each) for page in PAGES for each in blocks(page) if each.language in ("sh", "console"))
    assert {name for name in STAND_INS if re.search(rf"^{name} |\| {name} ", shells, re.MULTILINE)} == set(STAND_INS)
    assert len(ELSEWHERE) <= 1


def test_the_lines_of_the_rest_reference_are_commands_of_a_shell() -> None:
    """They are made from examples that are replayed elsewhere; here bash reads them."""
    lines = "\n".join(each.text for each in blocks(REPLAYED) if each.language == "sh")
    assert lines.count("curl ") > 50
    subprocess.run(["bash", "-n"], input=lines, text=True, check=True)
