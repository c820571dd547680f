"""The documentation says what the code does: settings, commands, modules."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path

import click
import pytest
import typer
from typer.main import get_command

from drumlin.api.cli.main import app
from drumlin.kg.store.remote.engine import ENGINES, Capability

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)


def test_the_page_of_settings_lists_every_one() -> None:
    """The table of docs/settings.md is the one that the settings' own descriptions give."""
    loader = SourceFileLoader("settings_table", str(ROOT / "scripts" / "settings-table"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module
    loader.exec_module(module)
    assert module.table() in (ROOT / "docs" / "settings.md").read_text(), "run scripts/settings-table --write"


def test_every_command_teaches_with_an_example() -> None:
    """The help of each command, but for those without anything to say, shows one in use."""
    for command in app.registered_commands:
        assert command.callback
        name = command.name or command.callback.__name__
        shown = (command.callback.__doc__ or "").partition("**Example")[2]
        assert name in ("demo", "version") or f"drumlin {name}" in shown, name
    for group in app.registered_groups:
        assert group.typer_instance
        for command in group.typer_instance.registered_commands:
            assert command.callback
            name = command.name or command.callback.__name__
            shown = (command.callback.__doc__ or "").partition("**Example")[2]
            assert f"drumlin {group.name} {name}" in shown, name


def shown_commands(page: Path) -> Iterator[str]:
    """Yield the commands that a page shows, in its text or in its blocks; those with holes (``…``, ``a|b``) are left out."""
    text = page.read_text()
    inline = re.findall(r"(?<!`)`(drumlin [^`]+)`(?!`)", text)
    blocks = re.findall(r"^ *```(?:sh|console)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    lines = re.findall(r"^ *(?:\$ )?(?:[A-Z_]+=\S+ )*(drumlin .+)$", "\n".join(blocks), re.MULTILINE)
    for each in (*inline, *lines):
        command = re.split(r" [|>&#]|\s#", each.replace("\n", " "))[0].strip()
        if not re.search(r"…|\w\|\w|\.\.\.|--install-completion", command) and command.count("'") % 2 == 0:
            yield command


def parse(command: click.Command, words: list[str]) -> None:
    """Parse the words of a command line; raises ``click.UsageError`` for an option or a command that there is not."""
    with contextlib.suppress(click.MissingParameter, click.BadParameter, click.exceptions.Exit, typer.Exit):
        context = command.make_context(command.name, words)
        if isinstance(command, click.Group):
            _, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
            assert found
            parse(found, rest)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_that_is_shown_can_be_given(page: Path) -> None:
    """Each ``drumlin …`` of a page is a command that exists, with options that it has."""
    for each in shown_commands(page):
        try:
            parse(get_command(app), shlex.split(each)[1:])
        except click.UsageError as error:
            pytest.fail(f"{each}: {error.message}")


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page with their numbers, without tables and code."""
    code = False
    for number, line in enumerate(page.read_text().split("\n"), 1):
        fence = line.lstrip().startswith("```")
        code ^= fence
        if not (code or fence or line.startswith("|")):
            yield number, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_prose_is_wrapped(page: Path) -> None:
    """No line of prose is longer than 120 columns."""
    assert [number for number, line in prose(page) if len(line) > 120] == []


def test_links_of_the_documents_lead_somewhere() -> None:
    """Each relative link points at a file, and at a heading of it; the build of the guide says so of docs/, and nothing of the README."""
    for page in PAGES:
        for target, anchor in re.findall(r"\]\((?!https?://)([^)#]*)#?([^)]*)\)", page.read_text()):
            found = page.parent / target if target else page
            assert found.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in slugs(found), f"{page.name}: {target}#{anchor}"


def slugs(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as forges make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def test_remote_stores_tells_what_each_engine_lacks() -> None:
    """Every capability that an engine may lack has a row in docs/remote-stores.md, with the engines that lack it."""
    text = (ROOT / "docs" / "remote-stores.md").read_text()
    for each in Capability:
        lacking = [engine.name for engine in ENGINES.values() if each in engine.lacks]
        told = "both" if len(lacking) == len(ENGINES) else ", ".join(lacking)
        assert f"| `{each.name}` | {told} |" in text, each.name


def test_what_is_lost_beside_the_embedded_store_is_shown_by_tests() -> None:
    """Each row of the table of guarantees names tests that there are, or says that there is none."""
    text = (ROOT / "docs" / "remote-stores.md").read_text()
    table = text.partition("## What is lost beside the embedded store")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    files = (*(ROOT / "tests").glob("*/test_*.py"), ROOT / "tests" / "store_behaviours.py")
    functions = set(re.findall(r"^def (\w+)", "\n".join(each.read_text() for each in files), re.MULTILINE))
    assert len(rows) > 10
    for row in rows:
        assert len(row) == 5, row[0]
        named = set(re.findall(r"`(\w+)`", row[-1]))
        assert named <= functions
        assert named or row[-1].startswith("none"), row[0]


def test_every_dependency_is_justified_and_used() -> None:
    """Each dependency of an installation has a row in decision 2, and the product imports it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [re.split(r"[<>=[]", each)[0] for each in project["dependencies"]]
    rows = re.findall(
        r"^\| ([^|]+) \|", (ROOT / "docs" / "decisions" / "0002-dependencies.md").read_text(), re.MULTILINE
    )
    justified = {name.split(" ")[0] for row in rows for name in row.split(", ")}
    imported = {
        name
        for package in ("api", "exporters", "kg", "queries")
        for path in (ROOT / package).rglob("*.py")
        for name in re.findall(r"^\s*(?:import|from) (\w+)", path.read_text(), re.MULTILINE)
    }

    assert not {*names} - justified
    assert not {name.replace("-", "_").replace("pyyaml", "yaml").replace("pyjwt", "jwt") for name in names} - imported
