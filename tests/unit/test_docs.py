"""The documentation says what the code does: settings, commands, modules."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from drumlin.api.cli.main import app
from drumlin.kg.store.remote.engine import ENGINES, Capability

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
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


def test_every_command_of_the_readme_exists() -> None:
    """Each ``drumlin …`` command that the README shows is one."""
    commands = {command.callback.__name__ for command in app.registered_commands if command.callback}
    commands |= {str(group.name) for group in app.registered_groups}
    shown = set(re.findall(r"drumlin (\w+)", (ROOT / "README.md").read_text()))
    assert shown <= commands | {"serve"}


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
    """Each relative link of the README and of docs/ points at a file."""
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_remote_stores_tells_what_each_engine_lacks() -> None:
    """Every capability that an engine may lack has a row in docs/remote-stores.md, with the engines that lack it."""
    text = (ROOT / "docs" / "remote-stores.md").read_text()
    for each in Capability:
        lacking = [engine.name for engine in ENGINES.values() if each in engine.lacks]
        told = "both" if len(lacking) == len(ENGINES) else ", ".join(lacking)
        assert f"| `{each.name}` | {told} |" in text, each.name


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
