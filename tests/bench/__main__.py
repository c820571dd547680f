"""Run benches, each in a process group of its own with a limit in time, and print one table: ``python -m tests.bench --help``."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench.running import SMOKE_SECONDS, Bench, BenchFailed, run_apart, run_here

BENCHES = {
    "fuzz": Bench("texts that are nearly SPARQL against a service; a number is how many (100,000)", 30),
    "bodies": Bench("mutants of documents in every syntax against a service; a number is how many (20,000)", 30),
    "load": Bench("a list of manifests until it can be queried, against a bare decode and load", 15),
    "rest": Bench("PUT and GET of one graph, and many in one request, against oxigraph serve", 20, ("wrk",)),
    "history": Bench("series of 14 days, against prometheus-api-client", 15, ("prometheus", "promtool")),
    "telemetry": Bench("series of 1,000 workloads and 30 days; resolve; decode", 30, ("prometheus", "promtool")),
    "kill": Bench("writers, backups and restores that are killed: nothing may be lost", 30),
    "kubernetes": Bench("live clusters of 5,000 and 30,000 pods, against a typed client", 30),
    "scale": Bench("150,000 pods before one service, 1,000 events/s; a number is for how many seconds (300)", 30),
    "writes": Bench("the writer alone, and what 100,000 writes leave behind", 15),
    "sparql": Bench("queries against oxigraph serve; runaways, clients that leave", 20, ("wrk",)),
    "search": Bench("questions to an index of 200,000 entities", 15),
    "pages": Bench("pages over 30,000 pods: how long they take, and how much they send", 15),
    "audit": Bench("an audit of a million statements, against pyshacl", 30),
    "conformance": Bench("every route as its document says, many requests each", 90),
    "siege": Bench("one good client beside 50 hostile ones of every sort, for ten minutes", 15),
    "endurance": Bench(
        "memory, files and threads between 200,000 and 800,000 writes of mixed load; a number is how many (800,000)", 60
    ),
    "agents": Bench("heartbeats of 1,000 agents, and 10,000 things that are registered", 10),
    "access": Bench("what tokens and the audit log cost", 10),
    "domains": Bench("what it costs that callers are limited to domains", 10),
    "events": Bench("what 200 subscribers of the change feed cost the writers", 20),
}


def main() -> int:
    """Run and print; returns 1 when a bench failed, or needs a program that is missing and was asked for by name (or in CI)."""
    arguments = _parser().parse_args()
    numbers = [each for each in arguments.names if each.isdigit()]
    names = [each for each in arguments.names if not each.isdigit()]
    if unknown := [each for each in names if each not in BENCHES]:
        sys.stderr.write(f"no bench {unknown[0]!r}; there are {', '.join(BENCHES)}\n")
        return 2
    if arguments.folder:
        run_here(names[0], Path(arguments.folder))
        return 0
    table = Table("bench", "ours", "peer", "ratio", "target", box=None)
    failed: list[str] = []
    for name in names or BENCHES:
        bench = BENCHES[name]
        if missing := [each for each in bench.needs if shutil.which(each) is None]:
            table.add_row(name, "", "", f"skipped: {missing[0]} is not installed (make servers)", "")
            if names or os.environ.get("CI"):
                failed.append(f"bench {name}: {missing[0]} is not installed; make servers says how")
            continue
        minutes = arguments.minutes or (SMOKE_SECONDS / 60 if arguments.smoke else bench.minutes)
        sys.stderr.write(f"{name}: {bench.what} (at most {minutes:g} minutes)\n")
        began = time.monotonic()
        try:
            for row in run_apart(name, minutes * 60, smoke=arguments.smoke, arguments=numbers):
                table.add_row(*row)
        except BenchFailed as error:
            failed.append(str(error))
        sys.stderr.write(f"{name}: {time.monotonic() - began:.0f} s\n")
    console = Console()
    (console if console.is_terminal else Console(width=200)).print(table)
    sys.stderr.writelines(f"{each}\n" for each in failed)
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(
        f"  {name:<12} {bench.what}\n{'':15}at most {bench.minutes:g} minutes"
        f"{'; needs ' + ', '.join(bench.needs) if bench.needs else ''}"
        for name, bench in BENCHES.items()
    )
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description="Measure against peers in one run; all benches when none is named.",
        epilog=f"benches:\n{listed}\n\nA bench that takes longer is ended with all its processes; the exit code is 1.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="benches to run, and a number for fuzz")
    parser.add_argument(
        "--smoke", action="store_true", help="tiny sizes: does each bench still come to its figures? A few seconds each"
    )
    parser.add_argument("--minutes", type=float, help="another limit for each bench")
    parser.add_argument("--in", dest="folder", help=argparse.SUPPRESS)  # the process of one bench
    return parser


if __name__ == "__main__":
    sys.exit(main())
