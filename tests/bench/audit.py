"""An audit of a million statements: the sample cluster under a hundred names, read from a store on disk and held to every rule.

The peer is pyshacl on the same graphs, which holds them to the shapes alone; it takes a few hundred of them, and its time is scaled.
"""

from __future__ import annotations

import resource
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pyshacl
import rdflib

from drumlin.api.bootstrap import configured, now
from drumlin.exporters.kubectl.dump import DumpSource
from drumlin.exporters.kubernetes.kinds import KINDS
from drumlin.exporters.pipeline.pipeline import Pipeline
from drumlin.kg.config.settings import Settings
from drumlin.kg.model.iris import Iris
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite
from drumlin.kg.telemetry.templates import TemplateCatalogue
from drumlin.kg.validation.audit import audit
from tests.bench.load import SAMPLE
from tests.bench.running import phase, sized

STATEMENTS = sized(1_000_000, 20_000)
SOME = sized(300, 4)
BASE = "https://kg.example"
SHAPES = Path(__file__).resolve().parents[2] / "ontology" / "shapes.ttl"


def run() -> list[tuple[str, str, str, str, str]]:
    """Measure wall clock, processor time and what memory it adds."""
    iris = Iris(BASE)
    with tempfile.TemporaryDirectory() as name:
        store = EmbeddedStore(Path(name) / "store")
        try:
            phase("filling the store")
            _fill(store, list(_sample(Path(name) / "sample")))
            phase("audit")
            before, began, cpu = _rss(), time.perf_counter(), time.process_time()
            report = audit(store.export(), iris)
            wall, cpu = time.perf_counter() - began, time.process_time() - cpu
            grown = _rss() - before
            phase("pyshacl")
            peer = _pyshacl(store)
        finally:
            store.close()
    assert report.conforms
    millions = report.statements / 1e6
    return [
        (
            f"audit of {report.statements:,} statements in {report.graphs:,} graphs",
            f"{wall:.1f} s",
            f"{peer * millions:.0f} s pyshacl, shapes only (scaled)",
            f"{wall / (peer * millions):.3f}",
            "≤ 60 s",
        ),
        ("  processor time, and memory that it added", f"{cpu:.1f} s, {grown:.0f} MB", "", "", ""),
    ]


def _sample(directory: Path) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the graphs of the sample cluster, as the exporter makes them."""
    settings = Settings(base=BASE, cluster="prod")
    iris, store = Iris(BASE), EmbeddedStore(directory)
    catalogue = TemplateCatalogue.shipped(frozenset(settings.exporters))
    pipeline = Pipeline(store, KINDS, settings, iris, catalogue, configured(settings, iris), clock=now)
    pipeline.run(DumpSource([SAMPLE], KINDS, clock=now), threading.Event())
    yield from store.export()
    store.close()


def _fill(store: EmbeddedStore, sample: list[tuple[str, frozenset[str]]]) -> None:
    """Write the sample under other names of its cluster until there are enough statements."""
    written, number = 0, 0
    while written < STATEMENTS:
        old, new = f"{BASE}/id/prod/", f"{BASE}/id/c{number}/"
        writes = [
            GraphWrite.of(graph.replace(old, new), frozenset(line.replace(old, new) for line in lines), "user")
            for graph, lines in sample
            if number == 0 or graph.startswith(old)
        ]
        store.apply(writes)
        written += sum(len(each.lines) for each in writes)
        number += 1


def _pyshacl(store: EmbeddedStore) -> float:
    """Return the processor time of pyshacl for a million statements."""
    shapes = rdflib.Graph().parse(SHAPES)
    graphs = list(islice(store.export(), SOME))
    began = time.process_time()
    for _, lines in graphs:
        pyshacl.validate(rdflib.Graph().parse(data="\n".join(lines), format="nt"), shacl_graph=shapes)
    return (time.process_time() - began) / sum(len(lines) for _, lines in graphs) * 1e6


def _rss() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
