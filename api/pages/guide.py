"""The guide: the documentation as pages (``make docs``), where it was built into the package; else it has no files."""

from __future__ import annotations

from functools import cache
from mimetypes import guess_type
from pathlib import Path

FOLDER = Path(__file__).parent / "built_guide"
FIRST = "docs/index.html"
_TEXTS = (".yaml", ".toml", ".md", ".py", ".service", ".rq", ".ttl")  # files of the repository that pages lead to


@cache
def files() -> frozenset[str]:
    """Return the paths of all files, listed once: no other path of the machine can be asked for."""
    return frozenset(each.relative_to(FOLDER).as_posix() for each in FOLDER.rglob("*") if each.is_file())


def media_type(path: str) -> str:
    """Return what a browser is to take a file for."""
    if path.endswith(_TEXTS):
        return "text/plain"
    return guess_type(path)[0] or "application/octet-stream"
