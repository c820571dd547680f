"""What the last release of the ontology promised, read from the repository's own history."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from tests.unit.test_ontology_gates import NS, ROOT, baseline, major


def test_nothing_that_was_released_is_broken() -> None:
    """Data and clients of the last version stay right; a change that breaks them needs a new major version."""
    before, now = baseline().released(), baseline().now()

    assert baseline().broken(before, now) == [] or major(now) > major(before)


def test_the_last_tag_is_what_is_promised(tmp_path: Path) -> None:
    """In a repository with tags the last one counts, whatever released.json says; without a tag that file does."""
    shutil.copytree(ROOT / "ontology", tmp_path / "ontology", ignore=shutil.ignore_patterns("__pycache__"))
    turtle = tmp_path / "ontology" / "drumlin.ttl"

    def git(*arguments: str) -> None:
        who = (
            "-c",
            "user.name=x",
            "-c",
            "user.email=x@example.org",
            "-c",
            "commit.gpgsign=false",
            "-c",
            "tag.gpgsign=false",
        )
        subprocess.run(["git", "-C", str(tmp_path), *who, *arguments], check=True, capture_output=True)

    git("init", "--quiet")
    turtle.write_text(turtle.read_text() + "drumlin:Bakery a owl:Class .")
    git("add", ".")
    git("commit", "--quiet", "--message", "one")
    assert baseline().released(tmp_path) == json.loads((tmp_path / "ontology" / "released.json").read_bytes())
    git("tag", "v0.9.0")
    turtle.write_bytes((ROOT / "ontology" / "drumlin.ttl").read_bytes())

    assert baseline().broken(baseline().released(tmp_path), baseline().now(tmp_path)) == [f"{NS}Bakery is gone"]
