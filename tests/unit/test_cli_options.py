"""Options of the command line that take one of a few values: a wrong one is refused at once, and the legal ones are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from drumlin.api.cli.main import app
from drumlin.kg.errors import DrumlinError

COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]  # it is a group
WITH_OUTPUT = sorted(
    name for name, command in COMMANDS.items() if any("--output" in each.opts for each in command.params)
)


def refused(*arguments: str) -> str:
    """Run a command that must fail before it asks anybody, and return what it says."""
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "300", "DRUMLIN_URL": "http://127.0.0.1:9"})
    if isinstance(result.exception, DrumlinError):
        return f"{result.exception} {result.exception.hint}"
    assert result.exit_code == 2, result.output
    return result.output


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_teaches(name: str) -> None:
    """``--help`` explains each command and exits 0."""
    result = CliRunner().invoke(app, [name, "--help"])

    assert result.exit_code == 0
    assert f"Usage: drumlin {name} " in result.output


@pytest.mark.parametrize("name", WITH_OUTPUT)
def test_every_form_of_output_is_checked_first(name: str) -> None:
    """A command that has ``--output`` names its forms when it is given another, before it does anything."""
    required = ["x" for each in COMMANDS[name].params if each.param_type_name == "argument" and each.required]
    store = ["--store", "/nowhere"] if name in ("load", "restore") else []
    told = refused(name, *required, *store, "-o", "foo")
    assert "'foo' is not one of table" in told
    assert "json" in told


@pytest.mark.parametrize(
    ("arguments", "legal"),
    [
        (("dump", "--format", "foo"), "nquads, jsonld, trig, turtle"),
        (("dump", "--format", "rdfxml"), "nquads, jsonld, trig, turtle"),
        (("import", "-", "--format", "foo", "--base", "http://x"), "nquads, jsonld, trig"),
        (("import", "x.foo", "--base", "http://x"), "nquads, jsonld, trig"),
        (("import", "x.ttl.gz", "--base", "http://x"), "nquads, jsonld, trig"),
        (("history", "x", "cpu_usage", "--gaps", "foo"), "null, ffill, linear, drop"),
        (("history", "x", "cpu_usage", "--via", "foo"), "service, direct"),
        (("history", "x", "cpu_usage", "--to", "x.foo"), ".parquet, .pq, .arrow, .csv, .ndjson"),
        (("serve", "--source", "foo"), "none, dump:PATH, kubernetes"),
        (("follow", "foo", "--to", "http://127.0.0.1:9"), "none, dump:PATH, kubernetes"),
        (("events", "-o", "csv"), "table, json"),
    ],
)
def test_the_legal_values_are_named(arguments: tuple[str, ...], legal: str, tmp_path: Path) -> None:
    """Whatever is wrong with an option of a few values, the answer lists them."""
    del tmp_path
    assert legal in refused(*arguments)
