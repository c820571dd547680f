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


WITHOUT_SERVICE = frozenset({"serve", "load", "rbac", "demo", "restore", "repair", "version", "token", "follow"})


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


@pytest.mark.parametrize("name", sorted(name for name in COMMANDS if name not in WITHOUT_SERVICE))
def test_every_command_that_asks_a_service_has_its_options(name: str) -> None:
    """``--url``, ``--token-file`` and ``--timeout`` are where a service is asked."""
    options = {option for each in COMMANDS[name].params for option in each.opts}
    assert {"--url", "--token-file", "--timeout"} <= options


@pytest.mark.parametrize("name", WITH_OUTPUT)
def test_the_help_lists_the_forms(name: str) -> None:
    """What ``--output`` takes stands in the help, and every row can be had as a table and as JSON."""
    option = next(each for each in COMMANDS[name].params if "--output" in each.opts)
    assert option.default == "table"
    assert {"table", "json"} <= set(option.help.rstrip(".").replace(" or ", ", ").split(", "))


def test_the_version_is_an_option_too(capsys: pytest.CaptureFixture[str]) -> None:
    """``--version`` prints what ``version`` prints."""
    shown = [CliRunner().invoke(app, [each]).output for each in ("--version", "version")]
    assert shown[0] == shown[1] != ""


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
        (("events", "-o", "csv"), "table, json, name"),
        (("get", "x", "-o", "wide"), "table, json, jsonld, yaml, csv, tsv, name"),
        (("search", "-o", "jsonld"), "table, wide, json, yaml, csv, tsv, name"),
        (("query", "-o", "jsonld"), "table, json, yaml, csv, tsv, name"),
        (("query", "x", "-o", "name"), "take csv or json"),
        (("history", "x", "y", "-o", "jsonld"), "table, json, yaml, csv, tsv"),
        (("load", "x", "--store", "/nowhere", "-o", "csv"), "table, json, yaml"),
        (("check", "-o", "csv"), "table, json, yaml"),
        (("dag", "x", "-o", "png"), "mermaid, dot, svg"),
        (("demo", "--system", "edeg"), "'edge', 'kuscia'"),
    ],
)
def test_the_legal_values_are_named(arguments: tuple[str, ...], legal: str, tmp_path: Path) -> None:
    """Whatever is wrong with an option of a few values, the answer lists them."""
    del tmp_path
    assert legal in refused(*arguments)
