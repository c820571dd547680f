"""What the unit tests share: the contract's graphs, read from beside the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[2].parent / "shared"


@pytest.fixture(scope="session")
def contract() -> dict[str, bytes]:
    """Give the contract's graphs by file name, as JSON-LD; skip where the shared folder is absent (never in CI)."""
    folder = SHARED / "contract" / "graphs"
    if not folder.is_dir() and os.environ.get("CI") != "true":
        pytest.skip(f"the contract's graphs are not at ../shared/{folder.relative_to(SHARED)}")
    return {path.stem: path.read_bytes() for path in sorted(folder.glob("*.jsonld"))}
