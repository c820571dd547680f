"""Names and labels of others on a real terminal: shown, never obeyed."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import httpx
import pytest

from tests.service.conftest import BASE, ROOT, Service

TITLE = "\x1b]0;owned\x07\x9b31m"


@pytest.mark.parametrize(
    "command",
    [["get", "domain/hostile"], ["get", "domain/hostile", "-o", "json"], ["search", "hostile"], ["sparql", 'SELECT ?o { ?s <https://w3id.org/drumlin/ns#name> ?o FILTER(CONTAINS(?o, "hostile")) }']],
    ids=["get", "json", "search", "sparql"],
)  # fmt: skip
def test_a_name_cannot_command_a_terminal(service: Service, http: httpx.Client, command: list[str]) -> None:
    """An escape sequence in a name is written out in every form on a terminal, and left as it is in a pipe."""
    document = {"id": f"{BASE}/id/domain/hostile", "type": "Domain", "name": f"hostile {TITLE}"}
    http.put(
        "/subgraph/domain/hostile", json=document, headers={"Content-Type": "application/ld+json"}
    ).raise_for_status()
    line = [sys.executable, "-m", "drumlin.api.cli.main", *command, "-u", service.url]
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            line, cwd=ROOT, stdout=theirs, stderr=theirs, env={**os.environ, "COLUMNS": "200"}
        ) as process:
            os.close(theirs)
            shown = b""
            try:
                while piece := os.read(ours, 65536):
                    shown += piece
            except OSError:  # the other side was closed
                pass
        assert process.returncode == 0, shown
    finally:
        os.close(ours)
    text = shown.decode()
    assert "\\u001b]0;owned\\u0007" in text
    assert "\x1b]0" not in text
    assert "\x9b" not in text
