"""The documentation says what the code does: settings, commands, modules."""

from __future__ import annotations

import importlib.util
import re
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

from api.cli.main import app
from kg.store.remote_engine import ENGINES, Capability

ROOT = Path(__file__).resolve().parents[2]


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
    shown = set(re.findall(r"drumlin (\w+)", (ROOT / "README.md").read_text()))
    assert shown <= commands | {"serve"}


def test_every_command_teaches_with_an_example() -> None:
    """The help of each command, but for those without anything to say, shows one in use."""
    for command in app.registered_commands:
        assert command.callback
        name = command.name or command.callback.__name__
        shown = (command.callback.__doc__ or "").partition("**Example")[2]
        assert name in ("demo", "version") or f"drumlin {name}" in shown, name


def test_every_module_of_the_map_exists() -> None:
    """Each module that docs/architecture.md lists is there."""
    for name in re.findall(r"^\| `([a-z/_.]+)`", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE):
        assert (ROOT / name).exists(), name


def test_links_of_the_documents_lead_somewhere() -> None:
    """Each relative link of the README and of docs/ points at a file."""
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_remote_stores_tells_what_each_engine_lacks() -> None:
    """Every capability that an engine may lack has a row in docs/remote-stores.md, with the engines that lack it."""
    text = (ROOT / "docs" / "remote-stores.md").read_text()
    for each in Capability:
        lacking = [engine.name for engine in ENGINES.values() if each in engine.lacks]
        told = "both" if len(lacking) == len(ENGINES) else ", ".join(lacking)
        assert f"| `{each.name}` | {told} |" in text, each.name
