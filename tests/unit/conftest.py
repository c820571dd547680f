"""What the unit tests share: the contract's graphs, read from beside the repository."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.pure import held_pure

SHARED = Path(__file__).parents[2].parent / "shared"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    """Hold the fixtures of a unit test to purity."""
    with held_pure():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Hold a unit test to purity."""
    with held_pure():
        return (yield)


@pytest.fixture(scope="session")
def contract() -> dict[str, bytes]:
    """Give the contract's graphs by file name, as JSON-LD; skip where the shared folder is absent (never in CI)."""
    folder = SHARED / "contract" / "graphs"
    if not folder.is_dir() and os.environ.get("CI") != "true":
        pytest.skip(f"the contract's graphs are not at ../shared/{folder.relative_to(SHARED)}")
    return {path.stem: path.read_bytes() for path in sorted(folder.glob("*.jsonld"))}
