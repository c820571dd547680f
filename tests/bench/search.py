"""Search over many entities: p50 and p99 of a mix of questions, each distinct, beside nothing else; in processor and in wall time."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from kg import jsonld
from kg.indexing import Index
from kg.iris import Iris
from kg.search import Question, Search
from kg.store.embedded import EmbeddedStore
from kg.store.protocol import GraphWrite

FACETS = ("type", "domain", "cluster", "namespace", "node", "phase", "quantity", "datasource")
ENTITIES = 200_000
_IRIS = Iris("https://kg.example")
_WORDS = ("checkout", "orders", "cart", "billing", "gateway", "训练数据")
_KINDS = ["Pod"] * 15 + ["Deployment"] * 3 + ["Service", "Job"]


def run(entities: int = ENTITIES, questions: int = 400) -> list[tuple[str, str, str, str, str]]:
    """Fill a store, build its index, ask; rows of the table."""
    chance = random.Random(7)  # the same every time
    store = EmbeddedStore()
    for start in range(0, entities, 5_000):
        store.apply([_entity(chance, number) for number in range(start, min(start + 5_000, entities))])
    began = time.perf_counter()
    index = Index(store, _IRIS, None)
    index.catch_up()
    built = time.perf_counter() - began
    search = Search(index)
    wall, processor = [], []
    for question in _questions(chance, questions):
        begun, used = time.perf_counter(), time.thread_time()
        search.find(question)
        wall.append((time.perf_counter() - begun) * 1e3)
        processor.append((time.thread_time() - used) * 1e3)
    index.close()
    store.close()
    what = f"search of {entities:,} entities"
    rows = [(f"{what}: index made", f"{built:.1f} s", "", "", "")]
    for name, times in (("wall", wall), ("processor", processor)):
        rows.append((f"{what}, p50 ({name})", f"{_at(times, 0.5):.1f} ms", "", "", ""))
        rows.append((f"{what}, p99 ({name})", f"{_at(times, 0.99):.1f} ms", "", "", "≤ 20 ms"))
    return rows


def _at(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]


def _entity(chance: random.Random, number: int) -> GraphWrite:
    kind, namespace = chance.choice(_KINDS), f"team-{chance.randrange(500)}"
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
    return GraphWrite(iri, jsonld.lines(document), "bench")


def _questions(chance: random.Random, count: int) -> Iterator[Question]:
    for _ in range(count):
        word, namespace = chance.choice(_WORDS), f"team-{chance.randrange(500)}"
        yield chance.choice(
            [
                Question(f"{word}-{chance.choice('awd')}", facets=FACETS),
                Question(word[: chance.randrange(1, 5)], {"namespace": [namespace]}, facets=FACETS),
                Question(f"{chance.randrange(ENTITIES):x}", facets=FACETS),
                Question(filters={"type": [chance.choice(_KINDS)]}, facets=FACETS),
                Question(filters={"type": ["Workload"], "namespace": [namespace]}, facets=FACETS, sort="name"),
            ]
        )
