"""The layout of the code: a class name means one thing, and the map of modules is complete."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("api", "exporters", "kg", "ontology", "queries")

CLASS = r"^[ ]*class (\w+)[:(\[]"

STILL_DOUBLE: frozenset[str] = frozenset()
"""The class names that are still defined more than once. The list may only become shorter."""


def modules() -> list[Path]:
    """Return all modules of the product, relative to the root of the repository."""
    found = [path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    found = [
        path for path in found if "built_guide" not in path.parts
    ]  # files of the repository that its pages lead to
    assert len(found) > 200
    return sorted(found)


def listed() -> set[str]:
    """Return the modules and folders that docs/architecture.md lists, each in a table row of its own."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    return set(re.findall(rf"^\| `((?:{'|'.join(PACKAGES)})/[^`]*)` \|", text, re.MULTILINE))


def test_a_class_name_means_one_thing() -> None:
    """No class name is defined twice in the product, except those on the list, which are all still double."""
    names = Counter(
        name for module in modules() for name in re.findall(CLASS, (ROOT / module).read_text(), re.MULTILINE)
    )
    double = {name for name, count in names.items() if count > 1}

    assert not double - STILL_DOUBLE, "these names are taken: give the new class another one"
    assert not STILL_DOUBLE - double, "these names are unique now: remove them from STILL_DOUBLE"


def test_the_map_lists_every_module() -> None:
    """Every module of a package has a row in docs/architecture.md, by itself or by its folder."""
    rows = listed()
    folders = tuple(row for row in rows if row.endswith("/") and row.removesuffix("/") not in PACKAGES)
    missing = [
        module.as_posix()
        for module in modules()
        if module.name != "__init__.py" and module.as_posix() not in rows and not module.as_posix().startswith(folders)
    ]

    assert not missing, "add a row to docs/architecture.md"


def test_the_map_lists_only_what_exists() -> None:
    """Every module and folder that docs/architecture.md lists exists."""
    assert [row for row in sorted(listed()) if not (ROOT / row).exists()] == []


def test_every_test_has_a_limit(pytestconfig: pytest.Config) -> None:
    """A test that hangs fails by itself, with its stacks; none of the limits is longer than ten minutes."""
    limits = [
        float(limit)
        for path in (ROOT / "tests").rglob("*.py")
        for limit in re.findall(r"mark\.timeout\((\d+)", path.read_text())
    ]

    assert 0 < max(*limits, float(pytestconfig.getini("timeout"))) <= 600


def test_no_test_measures_a_duration() -> None:
    """No assertion compares a difference of clock readings: clocks are injected, work is counted."""
    clocks = r"assert [^\n]*(?:monotonic|perf_counter|process_time|thread_time|time\.time)\(\) *- "
    found = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(clocks, path.read_text())
    ]

    assert found == []
