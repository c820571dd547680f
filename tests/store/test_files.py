"""Exports as documents and as files: order, filters, syntaxes, back again, and whole or not at all."""

from __future__ import annotations

import gzip
import io
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drumlin.exporters.kubectl.files import Files, write_file
from drumlin.kg import rdf
from drumlin.kg.errors import InvalidDocument, InvalidSettings, StoreUnavailable, UnsupportedSyntax
from drumlin.kg.graphs import dump, loader
from drumlin.kg.graphs.dump import GraphSelection
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import NAMESPACE
from drumlin.kg.rdf.syntax import JSONLD, NQUADS, RDFXML, TRIG, TURTLE, Lines, Syntax
from drumlin.kg.store.embedded import snapshots
from drumlin.kg.store.embedded.snapshots import Snapshot
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite
from tests.thoroughness import examples
from tests.waiting import until

IRIS = Iris("https://kg.example")
ROOT = "https://kg.example/id/"
TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
BACK = (NQUADS, TRIG, JSONLD)


def entity(graph: str, kind: str, namespace: str, domain: str) -> Lines:
    """Write a small entity."""
    return frozenset(
        {
            f"<{graph}> <{TYPE}> <{NAMESPACE}{kind}> .",
            f'<{graph}> <{NAMESPACE}namespace> "{namespace}" .',
            f"<{graph}> <{NAMESPACE}domain> <{IRIS.domain(domain)}> .",
            f'<{graph}> <{NAMESPACE}name> "a \\"name\\"\\n@prefix x: <y> ." .',
        }
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """A store of four entities by two owners."""
    opened = EmbeddedStore(tmp_path / "store")
    rows = [
        ("prod/b/deployment/x", "Deployment", "b", "alice", "dump"),
        ("prod/a/statefulset/y", "StatefulSet", "a", "alice", "dump"),
        ("prod/a/pod/z", "Pod", "a", "bob", "dump"),
        ("edge/a/pod/z", "Pod", "a", "bob", "user"),
    ]
    opened.apply([GraphWrite.of(ROOT + i, entity(ROOT + i, k, n, d), o) for i, k, n, d, o in rows])
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (GraphSelection(), ["edge/a/pod/z", "prod/a/pod/z", "prod/a/statefulset/y", "prod/b/deployment/x"]),
        (GraphSelection(type="Workload"), ["prod/a/statefulset/y", "prod/b/deployment/x"]),
        (GraphSelection(type="Pod", owner="dump"), ["prod/a/pod/z"]),
        (GraphSelection(namespace="a", prefix="prod/"), ["prod/a/pod/z", "prod/a/statefulset/y"]),
        (GraphSelection(domain="alice"), ["prod/a/statefulset/y", "prod/b/deployment/x"]),
        (GraphSelection(domain=ROOT + "domain/bob", type="Deployment"), []),
        (GraphSelection(namespace='a" . <x> <y> "'), []),
        (GraphSelection(domain="no iri: <>"), []),
        (GraphSelection(type="Pod", namespace="a", domain="bob", prefix="edge/"), ["edge/a/pod/z"]),
    ],
)
@pytest.mark.parametrize("few", [50_000, 0])
def test_a_selection_is_what_all_of_its_parts_hold_for(
    store: EmbeddedStore, selection: GraphSelection, expected: list[str], few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Filters narrow one another, by the engine's index or (where very many match) graph by graph, in the order of names."""
    monkeypatch.setattr(snapshots, "_FEW", few)
    assert [graph.removeprefix(ROOT) for graph, _ in dump.select(store, selection, IRIS)] == expected


def test_an_export_of_a_part_reads_no_other_graph(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked for by type, namespace or the beginning of its id is looked up; the rest of the store is not read."""
    read: list[str] = []
    whole = Snapshot.lines
    monkeypatch.setattr(Snapshot, "lines", lambda self, graph: (read.append(graph), whole(self, graph))[1])
    for selection in (
        GraphSelection(type="StatefulSet"),
        GraphSelection(prefix="prod/a/s"),
        GraphSelection(type="Pod", prefix="edge/"),
    ):
        assert len(list(dump.select(store, selection, IRIS))) == 1
    assert len(read) == 3


def read_back(data: bytes, syntax: Syntax) -> dict[str, Lines]:
    """Read an export as `drumlin import` does."""
    return dict(loader.graphs(io.BytesIO(data), syntax))


@pytest.mark.parametrize("syntax", BACK)
def test_an_export_is_read_back_as_it_was(store: EmbeddedStore, syntax: Syntax) -> None:
    """N-Quads, TriG and JSON-LD give every graph back; the same store gives the same bytes."""
    graphs = dict(store.export())
    data = b"".join(dump.written(store.export(), syntax))

    assert read_back(data, syntax) == graphs
    assert data == b"".join(dump.written(store.export(), syntax))


def test_turtle_says_the_same_without_graphs(store: EmbeddedStore) -> None:
    """Turtle is one valid document of all statements; it cannot be read back into graphs, and that is said."""
    data = b"".join(dump.written(store.export(), TURTLE))

    assert rdf.parse(data, TURTLE)[None] == frozenset().union(*(lines for _, lines in store.export()))
    with pytest.raises(InvalidDocument, match="no graphs"):
        read_back(data, TURTLE)
    with pytest.raises(UnsupportedSyntax):
        dump.written(store.export(), RDFXML)
    with pytest.raises(InvalidDocument, match="no named graph"):
        read_back(b"<http://s> <http://p> <http://o> .", NQUADS)


TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
GRAPHS = st.dictionaries(
    st.integers(0, 9), st.lists(st.tuples(st.integers(0, 3), TEXT), min_size=1, max_size=5), max_size=6
)


@given(graphs=GRAPHS, syntax=st.sampled_from(BACK))
@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_graphs_come_back(graphs: dict[int, list[tuple[int, str]]], syntax: Syntax) -> None:
    """Whatever the texts, export and import are inverse, compressed or not."""
    wanted: dict[str, Lines] = {}
    for number, facts in sorted(graphs.items()):
        graph = f"{ROOT}prod/-/node/n{number}"
        text = "\n".join(f'<{graph}/c/{part}> <http://p> "{_escaped(value)}" .' for part, value in facts)
        wanted[graph] = rdf.parse(text.encode(), rdf.NTRIPLES)[None]
    packed = b"".join(dump.gzipped(dump.written(wanted.items(), syntax)))

    assert read_back(gzip.decompress(packed), syntax) == wanted
    assert packed == b"".join(dump.gzipped(dump.written(wanted.items(), syntax)))


def _escaped(text: str) -> str:
    return "".join(f"\\u{ord(each):04X}" if each < " " or each in '"\\' else each for each in text)


@given(st.permutations(range(6)), st.sets(st.integers(0, 5)), st.sampled_from([NQUADS, TRIG, TURTLE, JSONLD]))
@settings(max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_equal_stores_give_equal_bytes_however_they_came_about(
    order: list[int], detours: set[int], syntax: Syntax
) -> None:
    """Graphs written in any order, one by one or together, changed and removed in between, blank nodes among them: the document is the same."""
    names = [f"{ROOT}prod/a/pod/p{number}" for number in range(5)] + ["http://elsewhere"]
    graphs = {each: entity(each, "Pod", "a", "alice") for each in names[:5]}
    graphs[names[5]] = frozenset({'_:b <http://p> "1" .', "<http://s> <http://p> _:b ."})
    straight, winding = EmbeddedStore(), EmbeddedStore()
    straight.apply([GraphWrite.of(name, lines, "user") for name, lines in graphs.items()])
    for number in order:
        name = names[number]
        if number in detours:
            winding.apply([GraphWrite.of(name, frozenset({f'<{name}> <http://p> "other" .'}), "user")])
            if number % 2:
                winding.apply([GraphWrite.of(name, None, "user")])
        winding.apply([GraphWrite.of(name, graphs[name], "user")])
    first, second = (b"".join(dump.written(each.export(), syntax)) for each in (straight, winding))
    assert first == second
    back = {} if syntax is TURTLE else read_back(first, syntax)
    one_blank = {name: {re.sub(r"_:\w+", "_:b", line) for line in lines} for name, lines in back.items()}
    assert syntax is TURTLE or one_blank == graphs  # JSON-LD gives blank nodes other labels
    straight.close()
    winding.close()


WRITING = """
import gzip, sys
from pathlib import Path
from drumlin.exporters.kubectl.files import write_file

path, number = Path(sys.argv[1]), 0
while True:
    number += 1
    line = b"%d " % number
    write_file(path, [gzip.compress(line * 50_000, 1)[:40], gzip.compress(line * 50_000, 1)[40:]])
    print(number, flush=True)
"""


def test_a_file_is_whole_whenever_its_writer_is_killed(store: EmbeddedStore, tmp_path: Path) -> None:
    """``kill -9`` at any moment leaves the last file or the one before it, and what was begun is swept by the next life."""
    path = tmp_path / "drumlin.nq.gz"
    chance = random.Random(3)
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITING, str(path)], cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout
        assert process.stdout.readline()
        time.sleep(chance.uniform(0, 0.05))
        process.kill()
        told = process.communicate()[0].split("\n")[:-1]
        (held,) = set(gzip.decompress(path.read_bytes()).split())
        assert int(held) - int(told[-1] if told else 1) in (0, 1)
    (tmp_path / f".{path.name}-left").write_bytes(b"half")
    Files(store, IRIS, tmp_path, NQUADS, timedelta(hours=1))
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == [path.name]


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    """An export that breaks leaves the old file and no other."""
    path = tmp_path / "x.nq"
    assert write_file(path, [b"a", b"b"]) == 2

    def broken() -> Iterator[bytes]:
        yield b"half"
        raise OSError(28, "No space left on device")

    with pytest.raises(StoreUnavailable, match="No space left on device"):
        write_file(path, broken())
    assert [each.name for each in tmp_path.iterdir()] == ["x.nq"]
    assert path.read_bytes() == b"ab"


def test_files_follow_the_store(store: EmbeddedStore, tmp_path: Path) -> None:
    """The file is written at once and after each change, not when nothing has changed, until stopped."""
    files = Files(store, IRIS, tmp_path / "out", NQUADS, timedelta(milliseconds=20))
    files.start()
    try:
        until(files.path.exists)
        first = gzip.decompress(files.path.read_bytes())
        assert read_back(first, NQUADS) == dict(store.export())
        assert not files.write()
        store.apply([GraphWrite.of(ROOT + "prod/a/pod/z", None, "dump")])
        until(lambda: gzip.decompress(files.path.read_bytes()) != first)
    finally:
        files.stop()
    assert ROOT + "prod/a/pod/z" not in read_back(gzip.decompress(files.path.read_bytes()), NQUADS)
    assert [each.name for each in files.path.parent.iterdir()] == ["drumlin.nq.gz"]


def test_a_directory_that_is_none_is_refused(store: EmbeddedStore, tmp_path: Path) -> None:
    """A file in the place of the directory is an error of the settings, at the start."""
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidSettings, match="cannot be exported to"):
        Files(store, IRIS, tmp_path / "file", NQUADS, timedelta(hours=1))
