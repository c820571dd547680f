"""What it costs that callers are limited to domains: the first question of a large set, queries against unlimited ones, fifty sets in turn."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import httpx

from drumlin.api.access.callers import Role
from drumlin.api.access.tokens import TokenFile
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import NAMESPACE
from drumlin.kg.store.content import GraphContent
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite
from tests.bench.running import Row, phase, sized, wait_for
from tests.bench.scale import memory
from tests.service.conftest import Service, serving

LARGE, SMALL, DOMAINS = sized((31_000, 600, 50), (300, 20, 4))
QUERIES = sized(300, 10)
_TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
_TOGETHER = 2_000


def run() -> list[Row]:
    """Measure the service with one large domain and many small ones."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        phase("filling the store")
        names = [f"d{number}" for number in range(DOMAINS)]
        _fill(folder / "store", names)
        file = TokenFile(folder / "store" / "tokens.json")
        tokens = {each: file.create(each, Role.reader, domains=[each])[1] for each in ("large", *names)}
        free = file.create("free", Role.reader)[1]
        service = opened.enter_context(serving("--store", str(folder / "store")))
        phase("waiting for the service's own search index, which a store has that a service filled")
        http = opened.enter_context(httpx.Client(base_url=service.url, timeout=300))
        wait_for(lambda: http.get("/readyz").is_success, "the search index", 300)
        return _rows(http, service, tokens, free, names)


def _rows(http: httpx.Client, service: Service, tokens: dict[str, str], free: str, names: Sequence[str]) -> list[Row]:
    _time(http, free, "ASK { ?s ?p ?o }")
    before = memory(service.process.pid)
    phase("the first question of a large set")
    first = _time(http, tokens["large"], "ASK { ?s ?p ?o }")
    phase("queries")
    queries = list(_queries())
    limited, unlimited = list[float](), list[float]()
    for query in queries:
        limited.append(_time(http, tokens["large"], query))
        unlimited.append(_time(http, free, query))
    ours, theirs = (1000 * statistics.median(each[len(each) // 5 :]) for each in (limited, unlimited))
    phase("many sets in turn")
    fresh = [_time(http, tokens[each], "ASK { ?s ?p ?o }") for each in names]
    again = [_time(http, tokens[each], "ASK { ?s ?p ?o }") for each in names]
    after = memory(service.process.pid)
    return [
        (f"first question of a set of {LARGE:,} graphs", f"{first:.1f} s", "", "", "≤ 5 s"),
        ("the same query, limited and not: median", f"{ours:.1f} ms", f"{theirs:.1f} ms", f"{ours / theirs:.2f}", "≤ 1.5"),
        (f"first question of each of {DOMAINS} sets of {SMALL:,}", f"{statistics.median(fresh):.2f} s", "", "", ""),
        ("  once more, in the same order", f"{statistics.median(again):.2f} s", "", "", ""),
        ("memory of all processes: before, and with the sets that are open", f"{before:.0f} MB", f"{after:.0f} MB", "", "≤ 2,048 MB"),
    ]  # fmt: skip


def _fill(directory: Path, names: Sequence[str]) -> None:
    store = EmbeddedStore(directory)
    store.made_under("https://kg.example")
    graphs = list(_graphs(names))
    for start in range(0, len(graphs), _TOGETHER):
        store.apply([GraphWrite(graph, content, "user") for graph, content in graphs[start : start + _TOGETHER]])
    store.close()


def _graphs(names: Sequence[str]) -> Iterator[tuple[str, GraphContent]]:
    iris = Iris("https://kg.example")
    sizes = {"large": LARGE, **dict.fromkeys(names, SMALL)}
    for domain, size in sizes.items():
        for number in range(size):
            graph = f"{iris.root}main/{domain}/pod/p{number}"
            said = [f"<{graph}> <{NAMESPACE}domain> <{iris.domain(domain)}> .", f"<{graph}> {_TYPE} <{NAMESPACE}Pod> ."]
            # as of a pod: some of its statements are its own, most have values that others have too
            said += [
                f'<{graph}> <{NAMESPACE}label> "key{each}=value{number if each < 8 else number % 40}" .'
                for each in range(30)
            ]
            yield graph, GraphContent.of_text("\n".join(sorted(said)))


def _queries() -> Iterator[str]:
    for number in range(QUERIES):
        yield (
            f'PREFIX : <{NAMESPACE}> SELECT ?pod ?label {{ ?pod :label "key1=value{number}", ?label ;'
            f" :domain <https://kg.example/id/domain/large> }}"
        )


def _time(http: httpx.Client, token: str, query: str) -> float:
    began = time.perf_counter()
    answer = http.get(
        f"/sparql?query={quote(query)}", headers={"Authorization": f"Bearer {token}", "Accept": "text/csv, */*;q=0.1"}
    )
    answer.raise_for_status()
    return time.perf_counter() - began
