"""Send the suites of clones to a service: ``python -m tests.w3c FOLDER…``; ends with 1 for what the engine passes alone and nobody has listed."""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from fnmatch import fnmatch
from itertools import chain
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


class Tally:
    """Counts what the engine and the service pass, by suite, and keeps what differs and is not listed."""

    def __init__(self) -> None:
        self.differing: list[str] = []
        self._count: dict[str, Counter[str]] = defaultdict(Counter)
        self._reasons: Counter[str] = Counter()

    def add(self, case: SuiteCase, theirs: str, ours: str) -> None:
        """Count a case that failed so, or passed (no text); print one that only the engine passes."""
        name = case.name.removeprefix(case.web)
        reason = reason_of(name, ours) if ours and not theirs else None
        self._count[case.folder].update(cases=1, engine=not theirs, service=not ours, listed=reason is not None)
        if reason is not None:
            self._reasons[reason] += 1
        elif ours and not theirs:
            self.differing.append(name)
            say(f"differs: {name}: {ours[:300]!r}")

    def report(self) -> None:
        """Print a row for each suite, and the reasons of what is listed."""
        columns = ("cases", "engine", "service", "listed")
        say(f"{'suite':<55}" + "".join(f"{each:>9}" for each in columns))
        total: Counter[str] = Counter()
        for counted in self._count.values():
            total.update(counted)
        for name, counted in (*sorted(self._count.items()), ("all", total)):
            say(f"{name:<55}" + "".join(f"{counted[each]:>9}" for each in columns))
        for reason, number in self._reasons.most_common():
            say(f"listed: {number}: {reason}")


def main() -> int:
    """Run the suites; return 1 when something differs that is not listed."""
    options = argparse.ArgumentParser(prog="python -m tests.w3c", description=__doc__)
    options.add_argument("folders", nargs="+", type=Path, help="clones of w3c/rdf-tests and w3c/json-ld-api")
    options.add_argument("--only", default="*", help="pattern of the names of cases")
    given = options.parse_args()
    tally = Tally()
    with ExitStack() as held:
        running = held.enter_context(serving("--store", held.enter_context(tempfile.TemporaryDirectory())))
        service = ServiceTarget(held.enter_context(httpx.Client(base_url=running.url, timeout=60)), BASE)
        for case in chain.from_iterable(map(cases, given.folders)):
            if fnmatch(case.name.removeprefix(case.web), given.only):
                tally.add(case, outcome(case, Engine()), outcome(case, service))
    tally.report()
    return 1 if tally.differing else 0


if __name__ == "__main__":
    raise SystemExit(main())
