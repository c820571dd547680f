"""What the command line and the service import before anybody has asked for anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("kubernetes", "lxml", "numpy", "pandas", "pyarrow", "pyld", "rdflib", "requests")


@pytest.mark.parametrize(
    "module", ["drumlin.api.cli.main", "drumlin.api.app", "drumlin.kg.client", "drumlin.kg.store.query_workers.main"]
)
def test_what_is_heavy_waits_until_it_is_used(module: str) -> None:
    """Starting costs no package that only some requests need."""
    code = f"import sys, {module}; print(*sorted(set({HEAVY}) & sys.modules.keys()))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert run.stdout.split() == []


def test_a_reader_loads_nothing_that_reads_sparql() -> None:
    """A query waits for a reader that is started, and its text was checked before: a lexer would be a third of the start."""
    module = "drumlin.kg.store.query_workers.main"
    code = (
        f"import sys, {module}; print(*sorted(each for each in sys.modules if each.startswith('drumlin.kg.sparql.')))"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert run.stdout.split() == ["drumlin.kg.sparql.dataset"]


def test_importing_the_vocabulary_loads_nothing_else() -> None:
    """``import drumlin`` and ``drumlin --help`` pay for it, so it is constants only."""
    code = "import sys; before = set(sys.modules); import drumlin.ontology.vocabulary; print([m for m in ('rdflib', 'json', 'pyoxigraph', 'shacl') if m in set(sys.modules) - before])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)

    assert run.stdout.strip() == "[]"
