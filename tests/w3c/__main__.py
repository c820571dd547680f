"""Send the suites of clones to a service: ``python -m tests.w3c FOLDER…``; ends with 1 for what the engine passes alone and nobody has listed."""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path

import httpx
import pyoxigraph as ox
from rich.console import Console

from drumlin.kg.errors import DrumlinError
from tests.service.conftest import BASE, serving
from tests.w3c import comparing
from tests.w3c.comparing import Compared
from tests.w3c.engine import Engine, store_of
from tests.w3c.exceptions import reason_of
from tests.w3c.manifests import Sources, SuiteCase, cases
from tests.w3c.service import Refused, ServiceTarget

Target = Engine | ServiceTarget
_FAILURES = (SyntaxError, ValueError, RuntimeError, OSError, KeyError, Refused, DrumlinError, httpx.HTTPError)


def say(line: str) -> None:
    """Print a line as it is."""
    Console(width=400, highlight=False, markup=False, soft_wrap=True).print(line)


def outcome(case: SuiteCase, target: Target) -> str:
    """Run a case; return nothing when it passes, else why it does not."""
    try:
        if "Syntax" in case.kind and not case.kind.startswith("Test"):
            accepted = target.accepts(case)
            return "" if accepted == ("Positive" in case.kind) else f"{'accepted' if accepted else 'refused'}"
        run: Callable[[SuiteCase], Compared] = (
            target.query
            if "Query" in case.kind or "CSV" in case.kind
            else target.update
            if "Update" in case.kind
            else target.parse
        )
        if "Negative" in case.kind:
            return _refusal(case, run)
        found = run(case)
        if case.expected is None:
            return ""
        return "" if found == _expected(case) else "another result"
    except _FAILURES as error:
        return f"{type(error).__name__}: {error}"


def _refusal(case: SuiteCase, run: Callable[[SuiteCase], Compared]) -> str:
    try:
        run(case)
    except Refused as error:
        return "" if 400 <= error.status < 500 else str(error)
    except (SyntaxError, ValueError):
        return ""
    return "accepted"


def _expected(case: SuiteCase) -> Compared:
    if isinstance(case.expected, Sources):
        return comparing.of_quads(store_of(case, case.expected))
    assert case.expected is not None
    file = case.file(case.expected)
    if case.kind.startswith(("Test", "JsonLd")):
        form = comparing.form_of(file)
        return comparing.of_quads(ox.parse(path=str(file), format=form, base_iri=case.base))
    return comparing.of_file(file, case.expected)


def main() -> int:
    """Run the suites, print a row for each folder and what differs."""
    options = argparse.ArgumentParser(prog="python -m tests.w3c", description=__doc__)
    options.add_argument(
        "folders", nargs="+", type=Path, help="clones of w3c/rdf-tests and w3c/json-ld-api, or folders of them"
    )
    options.add_argument("--only", default="*", help="pattern of the names of cases")
    options.add_argument("--verbose", action="store_true", help="also print what both fail")
    given = options.parse_args()
    count: dict[str, Counter[str]] = defaultdict(Counter)
    reasons: Counter[str] = Counter()
    differ: list[str] = []
    with tempfile.TemporaryDirectory() as store, serving("--store", store) as running:
        with httpx.Client(base_url=running.url, timeout=60) as http:
            service = ServiceTarget(http, BASE)
            for case in (each for folder in given.folders for each in cases(folder)):
                name = case.name.removeprefix(case.web)
                if not fnmatch(name, given.only):
                    continue
                theirs, ours = outcome(case, Engine()), outcome(case, service)
                count[case.folder].update({"cases": 1, "engine": not theirs, "service": not ours})
                if theirs and ours and given.verbose:
                    say(f"both      {name}: {ours[:160]!r} (engine: {theirs[:80]!r})")
                elif ours and not theirs and (reason := reason_of(name, ours)):
                    count[case.folder].update(listed=1)
                    reasons[reason] += 1
                elif ours and not theirs:
                    differ.append(name)
                    say(f"DIFFERS   {name}: {ours[:300]!r}")
    say(f"{'suite':<55}{'cases':>7}{'engine':>8}{'service':>9}{'listed':>8}")
    total: Counter[str] = Counter()
    for folder, found in sorted(count.items()):
        total += found
        say(f"{folder:<55}{found['cases']:>7}{found['engine']:>8}{found['service']:>9}{found['listed']:>8}")
    say(f"{'all':<55}{total['cases']:>7}{total['engine']:>8}{total['service']:>9}{total['listed']:>8}")
    for reason, cases_of in reasons.most_common():
        say(f"listed    {cases_of:>5} {reason}")
    return 1 if differ else 0


if __name__ == "__main__":
    raise SystemExit(main())
