"""Run the benches named on the command line (all when none is) and print one table; a number is the count of ``fuzz``."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

from tests.bench import (
    audit,
    conformance,
    events,
    fuzz,
    history,
    kill,
    kubernetes,
    load,
    rest,
    search,
    sparql,
    telemetry,
    writes,
)

BENCHES = {
    "fuzz": fuzz.run,
    "load": load.run,
    "rest": rest.run,
    "history": history.run,
    "telemetry": telemetry.run,
    "kill": kill.run,
    "kubernetes": kubernetes.run,
    "writes": writes.run,
    "sparql": sparql.run,
    "search": search.run,
    "audit": audit.run,
    "conformance": conformance.run,
    "events": events.run,
}


def main() -> None:
    """Run and print."""
    wanted = [each for each in sys.argv[1:] if not each.isdigit()] or list(BENCHES)
    if unknown := [name for name in wanted if name not in BENCHES]:
        sys.exit(f"no bench {unknown[0]!r}; there are {', '.join(BENCHES)}")
    table = Table("bench", "ours", "peer", "ratio", "target", box=None)
    for name in wanted:
        for row in BENCHES[name]():
            table.add_row(*row)
    Console().print(table)


main()
