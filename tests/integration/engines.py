"""Engines behind a remote store, started on loopback: Oxigraph's server (from PyPI, always there) and Virtuoso (Debian)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from drumlin.api.demo.prometheus import free_port
from drumlin.kg.config.datasources import Credential, StoreSettings

ENGINES = ("oxigraph", "virtuoso")
READY_SECONDS = 60
_STARTS = 3  # another process may take the free port first


@dataclass(frozen=True)
class RunningEngine:
    """One server: how a store finds it, and its process."""

    name: str
    url: str
    settings: StoreSettings
    process: subprocess.Popen[bytes]


@contextmanager
def engine(name: str, directory: Path, *, bounded: bool = False) -> Iterator[RunningEngine]:
    """Start an engine on data in ``directory``; skip, except in CI, where it is not installed.

    ``bounded``: a limit on the size of its files (RLIMIT_FSIZE) is an error of a write to it, as a full disk is, and not its end.
    """
    directory.mkdir(parents=True, exist_ok=True)
    running = next(filter(None, (_started(name, directory, bounded=bounded) for _ in range(_STARTS))), None)
    assert running is not None, (directory / "out").read_text(errors="replace")[-2000:]
    try:
        yield running
    finally:
        running.process.terminate()
        try:
            running.process.wait(20)
        except subprocess.TimeoutExpired:
            running.process.kill()
            running.process.wait()


def _started(name: str, directory: Path, *, bounded: bool) -> RunningEngine | None:
    port = free_port()
    command, settings, probe = {"oxigraph": _oxigraph, "virtuoso": _virtuoso}[name](directory, port)
    if bounded:  # what it prints is a file, too
        command = ["sh", "-c", "trap '' XFSZ; exec \"$@\" >/dev/null 2>&1", "sh", *command]
    with (directory / "out").open("ab") as out:
        process = subprocess.Popen(command, cwd=directory, stdout=out, stderr=out, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + READY_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if httpx.get(url + probe, params={"query": "ASK {}"}, trust_env=False, timeout=5).is_success:
                return RunningEngine(name, f"sparql+{url}", settings, process)
        except httpx.HTTPError:
            time.sleep(0.05)
    if process.poll() is None:
        process.kill()
    process.wait()
    return None


def _oxigraph(directory: Path, port: int) -> tuple[list[str], StoreSettings, str]:
    binary = str(Path(sys.executable).with_name("oxigraph"))
    return (
        [binary, "serve", "--location", str(directory / "data"), "--bind", f"127.0.0.1:{port}"],
        StoreSettings(),
        "/query",
    )


def _virtuoso(directory: Path, port: int) -> tuple[list[str], StoreSettings, str]:
    binary = shutil.which("virtuoso-t")
    if binary is None:
        reason = "virtuoso-t is not installed: apt-get install virtuoso-opensource"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    (directory / "virtuoso.ini").write_text(_INI.format(d=directory, sql=free_port(), http=port))
    (directory / "secret").write_text("dba\n")
    credential = Credential(username="dba", secret=f"file:{directory / 'secret'}")
    (directory / "virtuoso.lck").unlink(missing_ok=True)  # of one that was killed; its pid may be anybody's now
    command = [binary, "+foreground", "+configfile", str(directory / "virtuoso.ini")]
    return command, StoreSettings(credential=credential), "/sparql"


_INI = """
[Database]
DatabaseFile = {d}/virtuoso.db
ErrorLogFile = {d}/virtuoso.log
LockFile = {d}/virtuoso.lck
TransactionFile = {d}/virtuoso.trx
xa_persistent_file = {d}/virtuoso.pxa
FileExtend = 200
[TempDatabase]
DatabaseFile = {d}/temporary.db
TransactionFile = {d}/temporary.trx
[Parameters]
ServerPort = 127.0.0.1:{sql}
DisableUnixSocket = 1
NumberOfBuffers = 4000
MaxDirtyBuffers = 2000
MaxClientConnections = 20
CaseMode = 2
DirsAllowed = {d}
[HTTPServer]
ServerPort = 127.0.0.1:{http}
ServerRoot = {d}
ServerThreads = 20
MaxKeepAlives = 20
KeepAliveTimeout = 10
Charset = UTF-8
[SPARQL]
ResultSetMaxRows = 10000
"""
