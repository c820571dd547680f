"""Search over many entities: p50 and p99 of a mix of questions, each distinct, beside nothing else; in processor and in wall time.

Questions whose matches are many and stand together at the end of the order, the worst for an index, have rows of their own; so has
what a write costs the index.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf import jsonld
from drumlin.kg.search.index import Index
from drumlin.kg.search.query import Search, SearchQuery, Sort
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite
from tests.bench.running import Row, phase, sized

FACETS = ("type", "domain", "cluster", "namespace", "node", "phase", "quantity", "datasource")
ENTITIES = sized(200_000, 2_000)
TOGETHER = sized(5_000, 200)
"""Entities that stand together."""
_IRIS = Iris("https://kg.example")
_WORDS = ("checkout", "orders", "cart", "billing", "gateway", "训练数据")
_KINDS = ["Pod"] * 15 + ["Deployment"] * 3 + ["Service", "Job"]


def run(entities: int = ENTITIES, questions: int = sized(400, 20)) -> list[Row]:
    """Fill a store, build its index, ask; rows of the table."""
    phase("filling the store")
    chance = random.Random(7)  # the same every time
    store = EmbeddedStore()
    for start in range(0, entities, 5_000):
        store.apply([_entity(chance, number) for number in range(start, min(start + 5_000, entities))])
    phase("making the index")
    began = time.perf_counter()
    index = Index(store, _IRIS, None)
    index.catch_up()
    built = time.perf_counter() - began
    search = Search(index)
    what = f"search of {entities:,} entities"
    rows = [
        (f"{what}: index made", f"{built:.1f} s", "", "", ""),
        *_asked(search, what, list(_questions(chance, questions))),
        *_asked(search, f"{what}, {TOGETHER:,} together", list(_together(questions // 4))),
        *_written(store, index),
    ]
    index.close()
    store.close()
    return rows


def _asked(search: Search, what: str, questions: list[SearchQuery]) -> Iterator[Row]:
    phase(what)
    wall, processor = [], []
    for question in questions:
        begun, used = time.perf_counter(), time.thread_time()
        search.find(question)
        wall.append((time.perf_counter() - begun) * 1e3)
        processor.append((time.thread_time() - used) * 1e3)
    for name, times in (("wall", wall), ("processor", processor)):
        yield f"{what}, p50 ({name})", f"{_at(times, 0.5):.1f} ms", "", "", ""
        yield f"{what}, p99 ({name})", f"{_at(times, 0.99):.1f} ms", "", "", "≤ 20 ms"


def _written(store: EmbeddedStore, index: Index, writes: int = sized(3_000, 120), chunk: int = 120) -> Iterator[Row]:
    """Write over entities, changing what they are found by, or only what they are not; take them in as the feed does."""
    phase("writing")
    index.lines_of = store.recent_lines
    chance = random.Random(7)
    graphs = [_entity(chance, number) for number in range(writes)]
    for what, line in (("not found by", '"2"^^<http://www.w3.org/2001/XMLSchema#integer>'), ("found by", '"Pending"')):
        name = "name" if what == "found by" else "generation"
        used = 0.0
        for start in range(0, writes, chunk):
            for each in graphs[start : start + chunk]:
                more = frozenset({f"<{each.graph}> <{jsonld.NAMESPACE}{name}> {line} ."})
                store.apply([GraphWrite.of(each.graph, (each.lines or frozenset()) | more, "bench")])
            begun = time.thread_time()
            index.catch_up()
            used += time.thread_time() - begun
        yield f"index: processor time of a change of what it is {what}", f"{used / writes * 1e3:.3f} ms", "", "", ""


def _at(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]


def _entity(chance: random.Random, number: int) -> GraphWrite:
    kind, namespace = chance.choice(_KINDS), f"team-{chance.randrange(500)}"
    if number >= ENTITIES - TOGETHER:
        kind, namespace = "Pod", "zzz-batch"
    name = f"{chance.choice(_WORDS)}-{chance.choice(['api', 'web', 'db'])}-{number:x}"
    iri = _IRIS.object("prod", namespace, kind, name)
    document = {
        "id": iri,
        "type": kind,
        "name": name,
        "namespace": namespace,
        "cluster": _IRIS.cluster("prod"),
        "domain": _IRIS.domain(f"d{chance.randrange(5)}"),
        "phase": chance.choice(["Running", "Failed"]),
        "label": [f"team=t{chance.randrange(50)}"],
    }
    return GraphWrite.of(iri, jsonld.lines(document), "bench")


def _questions(chance: random.Random, count: int) -> Iterator[SearchQuery]:
    for _ in range(count):
        word, namespace = chance.choice(_WORDS), f"team-{chance.randrange(500)}"
        yield chance.choice(
            [
                SearchQuery(f"{word}-{chance.choice('awd')}", facets=FACETS),
                SearchQuery(word[: chance.randrange(1, 5)], {"namespace": [namespace]}, facets=FACETS),
                SearchQuery(f"{chance.randrange(ENTITIES):x}", facets=FACETS),
                SearchQuery(filters={"type": [chance.choice(_KINDS)]}, facets=FACETS),
                SearchQuery(filters={"type": ["Workload"], "namespace": [namespace]}, facets=FACETS, sort="name"),
            ]
        )


def _together(count: int) -> Iterator[SearchQuery]:
    sorts: tuple[Sort, ...] = ("relevance", "id", "name", "-changed")
    for number in range(count):
        text = _WORDS[number % len(_WORDS)][: number % 4]
        yield SearchQuery(text, {"namespace": ["zzz-batch"]}, facets=FACETS, sort=sorts[number % 4])
