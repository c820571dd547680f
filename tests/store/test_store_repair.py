"""Every file of a store damaged in every way: it is as it was, or refused; repaired, it holds what was whole and lists the rest."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from drumlin.api.access.tokens import TokenFile
from drumlin.kg.errors import EventsGone, InvalidInput, InvalidSettings, StoreDamaged, StoreUnavailable
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.syntax import Lines
from drumlin.kg.search.index import Index
from drumlin.kg.search.schema import recorded
from drumlin.kg.store.embedded.pages import rows
from drumlin.kg.store.embedded.repairing import RepairReport, _Repair, repair
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphEntry, GraphWrite, LogEntry
from tests.store_behaviours import NOON, answered

ROOT = Path(__file__).parents[2]
BASE = "https://kg.example"
GRAPHS = 24
RUNS = 60
PARTS = (
    "changes.sqlite", "changes.sqlite-wal", "quads/CURRENT", "quads/MANIFEST-*", "quads/*.sst", "quads/*.log", "quads/held", "witness",
    "base", "search.sqlite", "search.sqlite-wal", "runs.sqlite", "runs.sqlite-wal", "runs.mark", "tokens.json",
)  # fmt: skip
INDIFFERENT = ("changes.sqlite-shm", "quads/OPTIONS-*", "quads/IDENTITY", "quads/LOG", "lock", "tokens.json.lock")
"""Parts that hold nothing of their own."""
CLOSED = ("changes.sqlite", "quads/*.sst", "quads/*.log", "runs.sqlite")
"""Parts that are other ones when a store was closed, and not killed."""
DAMAGES = ("truncate", "flip", "delete", "zero", "older")
FLIPS = 4  # places in one file
QUERIES = (  # one for each order in which the engine keeps quads
    "SELECT ?s ?p ?o ?g { GRAPH ?g { ?s ?p ?o } }",
    f"SELECT ?p ?o ?g {{ GRAPH ?g {{ <{BASE}/id/domain/d3> ?p ?o }} }}",
    "SELECT ?s ?o ?g { GRAPH ?g { ?s <http://p/0> ?o } }",
    "SELECT ?s ?p ?g { GRAPH ?g { ?s ?p <http://o> } }",
    "SELECT (count(*) AS ?n) { ?s ?p ?o }",
)


class Told(NamedTuple):
    """All that a store tells: graphs with their records, changes, what queries answer, its base."""

    graphs: dict[str, tuple[GraphEntry, Lines]]
    changes: list[LogEntry]
    answers: list[str]
    base: str | None


class Images(NamedTuple):
    """Directories of one store: as its first life left it (``older``), and as a kill (``killed``) or its end (``closed``) left the second."""

    older: Path
    killed: Path
    closed: Path
    told: dict[str, Told]


def graph(number: int) -> str:
    """Name the graph of a domain."""
    return f"{BASE}/id/domain/d{number}"


def write(number: int, value: str) -> GraphWrite:
    """Make a write; every seventh graph is so large that its text has overflow pages."""
    name, count = graph(number), 400 if number % 7 == 0 else 3
    texts = random.Random(value + name)
    lines = {f'<{name}> <http://p/{n}> "{value} {texts.getrandbits(128):x}" .' for n in range(count)}
    return GraphWrite.of(name, frozenset({*lines, f"<{name}> <http://p/node> <http://o> ."}), f"owner{number % 3}")


LIFE = """
import os, signal, sys
from pathlib import Path
from drumlin.api.access.callers import Role
from drumlin.api.access.tokens import TokenFile
from drumlin.kg.model.iris import Iris
from drumlin.kg.search.index import Index
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite
from drumlin.kg.store.run_archive import ArchivedRun
from tests.store.test_store_repair import BASE, GRAPHS, graph, write

directory, life, end = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
store = EmbeddedStore(directory)
store.made_under(BASE)
index = Index(store, Iris(BASE), directory / "search.sqlite")
if life == "1":
    store.apply([write(number, "first") for number in range(GRAPHS)])
    store.apply([write(number, "second") for number in range(0, GRAPHS, 2)])
    TokenFile(directory / "tokens.json").create("grafana", Role.reader)
else:
    for number in (2, 3, 4, 5):
        store.apply([write(number, "third")])
    store.apply([GraphWrite.of(graph(11), None, "owner2"), write(GRAPHS, "new")])
    TokenFile(directory / "tokens.json").create("boss", Role.admin)
store.archive.add([ArchivedRun("w", f"{life}{n}", "pod", None, n, n + 5) for n in range(30)])
index.catch_up()
store._applied()
if end == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
index.close()
store.close()
"""


def live(directory: Path, life: int, end: str) -> None:
    """Live one life of a store in a process of its own."""
    run = subprocess.run([sys.executable, "-c", LIFE, directory, str(life), end], cwd=ROOT, check=False, stdout=subprocess.DEVNULL)  # fmt: skip
    assert run.returncode in (0, -signal.SIGKILL)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Images:
    """Make the store, and hear all that it tells."""
    folder = tmp_path_factory.mktemp("images")
    older, killed, closed = (folder / name for name in Images._fields[:3])
    live(older, 1, "kill")
    heard = {}
    for each, end in ((killed, "kill"), (closed, "close")):
        shutil.copytree(older, each)
        live(each, 2, end)
        shutil.copytree(each, folder / "read")
        with closing(EmbeddedStore(folder / "read")) as store:
            heard[each.name] = told(store)
        shutil.rmtree(folder / "read")
    return Images(older, killed, closed, heard)


def told(store: EmbeddedStore) -> Told:
    """Ask a store for everything, in every way."""
    graphs = {each.graph: (each, found.lines) for each in store.entries() if (found := store.read(each.graph))}
    return Told(
        graphs, store.log(store.oldest - 1, 10_000), sorted(answered(store, each) for each in QUERIES), store.base
    )


def damaged(directory: Path, part: str, how: str, images: Images) -> Iterator[str]:
    """Damage a part, of several the largest one; yields once for each way, with the file as it was before each but the first."""
    found = sorted(directory.glob(part))
    if not found:
        return
    victim = max(found, key=lambda each: each.stat().st_size)
    before = victim.read_bytes()
    size = len(before)
    if how == "older":
        source = max(images.older.glob(part), key=lambda each: each.stat().st_size, default=None)
        if source:
            shutil.copy2(source, victim)
            yield how
    elif how == "delete":
        victim.unlink()
        yield how
    elif how in ("truncate", "zero") and size:
        victim.write_bytes(before[: size // 2] if how == "truncate" else bytes(size))
        yield how
    elif how == "flip" and size:
        places = random.Random(f"{part} {size}")
        for place in sorted(places.sample(range(size), min(FLIPS, size))):
            changed = bytearray(before)
            changed[place] ^= 1 << places.randrange(8)
            victim.write_bytes(changed)
            yield f"bit at {place} of {victim.name}"


def repaired(directory: Path) -> RepairReport:
    """Repair as the command does."""
    return repair(directory, lambda: NOON, lambda *_: None, lambda: recorded(directory / "search.sqlite"))


def opened(directory: Path) -> Told | StoreUnavailable:
    """Open a store with its index and ask for everything; or return why it is not opened, or did not answer."""
    try:
        with closing(EmbeddedStore(directory)) as store:
            assert indexed(store, directory / "search.sqlite") == indexed(store, None)
            return told(store)
    except StoreUnavailable as refusal:
        return refusal


def indexed(store: EmbeddedStore, path: Path | None) -> list[tuple[object, ...]]:
    """Return what the search index of a store says of entities; None: an index that is made anew."""
    with closing(Index(store, Iris(BASE), path)) as index:
        index.catch_up()
        with index.reading() as reading:
            query = "SELECT id, name, type, owner, words, facets, digest, generation FROM entity WHERE NOT removed ORDER BY id"
            return reading.execute(query).fetchall()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: hundreds of stores are synced in this module, and nobody cuts the power."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


CASES = [
    *(("killed", part, how) for part in PARTS for how in DAMAGES),
    *(("killed", part, "zero") for part in INDIFFERENT),
    *(("closed", part, how) for part in CLOSED for how in DAMAGES),
]


@pytest.mark.parametrize(("kind", "part", "how"), CASES)
def test_a_damaged_file_is_made_good_or_refused_and_repaired(
    images: Images, folder: Path, kind: str, part: str, how: str
) -> None:
    """Whatever file is damaged in whatever way, a store is as it was, or refused in words; then a repair keeps or lists each of its graphs."""
    image, whole = getattr(images, kind), images.told[kind]
    copy, directory = folder / "damaged", folder / "store"
    shutil.copytree(image, copy)
    for way in damaged(copy, part, how, images):
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(copy, directory)
        found = opened(directory)
        if isinstance(found, Told):
            assert found == whole, way
            continue
        assert "drumlin repair STORE" in (found.hint or ""), (way, found)
        shutil.rmtree(directory)
        shutil.copytree(copy, directory)
        report = repaired(directory)
        after = opened(directory)
        assert isinstance(after, Told), (way, after)
        assert_kept_or_listed(whole, after, report)
        if how == "flip":
            assert not report.missing, way
            assert len(report.lost) <= 1, way
        assert report.runs_lost or report.runs == RUNS


def assert_kept_or_listed(whole: Told, after: Told, report: RepairReport) -> None:
    """Each graph is as it was, or listed; nothing else is there; all ways to read agree."""
    listed = {each.graph for each in report.lost} | report.unsure.keys()
    for name, (entry, lines) in whole.graphs.items():
        if name not in listed:
            kept, held = after.graphs[name]
            assert (held, kept.digest, kept.owner) == (lines, entry.digest, entry.owner)
    assert after.graphs.keys() - listed <= whole.graphs.keys()
    assert after.base == whole.base


def files(directory: Path) -> dict[str, bytes]:
    """Return what the files of a store hold, but for the lock."""
    found = (
        each for each in directory.rglob("*") if each.is_file() and each.name not in ("lock", "changes.sqlite-shm")
    )
    return {each.relative_to(directory).as_posix(): content for each in found if (content := each.read_bytes())}


def cut(directory: Path) -> None:
    """Damage the change log of a store that was closed, so that it is refused, and nothing of what it says is lost."""
    with (directory / "changes.sqlite").open("r+b") as file:
        file.write(b"not a database")


def test_a_whole_store_keeps_its_history(images: Images, folder: Path) -> None:
    """Its log is not touched, its engine is built anew, and nothing is listed; what was replaced is in a folder of its own."""
    shutil.copytree(images.closed, folder / "store")
    log = (folder / "store" / "changes.sqlite").read_bytes()
    report = repaired(folder / "store")

    assert report.whole
    assert (report.damage, report.graphs, report.first, report.runs) == ({}, GRAPHS, 1, RUNS)
    assert report.aside is not None
    assert sorted(each.name for each in Path(report.aside).iterdir()) == ["quads", "search.sqlite"]
    assert opened(folder / "store") == images.told["closed"]
    assert len(log) == (folder / "store" / "changes.sqlite").stat().st_size


def test_a_log_that_was_made_anew_begins_a_history_of_its_own(images: Images, folder: Path) -> None:
    """Whoever followed reads everything anew; writes go on above all generations there were; the archived runs are the store's still."""
    directory = folder / "store"
    shutil.copytree(images.closed, directory)
    cut(directory)
    report = repaired(directory)

    assert report.whole
    assert "not a database" in report.damage["changes.sqlite"]
    assert {"changes.sqlite", "quads", "witness"} <= {each.name for each in Path(report.aside or "").iterdir()}
    with closing(EmbeddedStore(directory, rebuild=False)) as store:
        before = images.told["closed"]
        assert told(store).graphs == before.graphs
        assert store.archive.counts() == (RUNS, 0)
        with pytest.raises(EventsGone):
            store.log(before.changes[-1].generation)
        assert store.apply([write(1, "after")])[0].generation == report.last + 1 > before.changes[-1].generation + 1
    again = repaired(directory)
    assert again.whole
    assert {each.name for each in directory.glob("damaged-*")} == {
        Path(each.aside or "").name for each in (report, again)
    }
    assert report.aside != again.aside


def test_a_store_that_is_open_is_not_repaired(images: Images, folder: Path) -> None:
    """The message names the process; nothing is touched."""
    shutil.copytree(images.closed, folder / "store")
    with closing(EmbeddedStore(folder / "store")):
        before = files(folder / "store")
        with pytest.raises(StoreUnavailable, match=f"in use by process {os.getpid()}"):
            repaired(folder / "store")
        assert files(folder / "store") == before


@pytest.mark.parametrize("moves", range(4))
def test_a_repair_that_was_killed_goes_on(
    images: Images, folder: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    """Meanwhile the directory is no store; the next repair ends what the first one began, whatever that had moved."""
    directory = folder / "store"
    shutil.copytree(images.closed, directory)
    cut(directory)
    left = iter(range(moves))
    move = _Repair._move

    def killed(self: _Repair, *names: str) -> None:
        for name in names:
            if next(left, None) is None:
                raise KeyboardInterrupt
            move(self, name)

    with monkeypatch.context() as patched:
        patched.setattr(_Repair, "_move", killed)
        with pytest.raises(KeyboardInterrupt):
            repaired(directory)
    with pytest.raises(StoreUnavailable, match="not repaired to its end") as refused:
        EmbeddedStore(directory)
    assert refused.value.hint == f"drumlin repair {directory}"

    report = repaired(directory)
    assert report.whole
    found = opened(directory)
    assert isinstance(found, Told)
    assert found.graphs == images.told["closed"].graphs
    assert (Path(report.aside or "") / "changes.sqlite").read_bytes().startswith(b"not a database")


def test_a_store_of_which_nothing_can_be_kept_is_left_alone(images: Images, folder: Path) -> None:
    """Without any record of a graph there is no repair; a directory without a store is no store either."""
    directory = folder / "store"
    shutil.copytree(images.closed, directory)
    for name in ("changes.sqlite", "search.sqlite"):
        (directory / name).write_bytes(bytes(8192))
    before = files(directory)
    with pytest.raises(StoreDamaged, match="nothing of the store") as refused:
        repaired(directory)
    assert "drumlin restore" in (refused.value.hint or "")
    assert files(directory) == before
    (folder / "empty").mkdir()
    with pytest.raises(InvalidInput, match="holds no store"):
        repaired(folder / "empty")


def test_the_log_of_another_store_is_not_taken_for_a_damaged_one(images: Images, folder: Path) -> None:
    """What stands beside it says which store this is: repairing would make another store of it."""
    directory = folder / "store"
    shutil.copytree(images.closed, directory)
    with closing(EmbeddedStore(folder / "other")) as other:
        other.apply([write(1, "other")])
    shutil.copy2(folder / "other" / "changes.sqlite", directory / "changes.sqlite")
    before = files(directory)

    with pytest.raises(StoreDamaged, match="is of another store"):
        repaired(directory)
    assert files(directory) == before


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("UPDATE store SET base = 'https://kg.fxample'", ""),
        ("UPDATE log SET owner = 'somebody' WHERE generation = 4", ""),
        (f"UPDATE graphs SET owner = 'somebody' WHERE graph = '{graph(3)}'", "owner"),
        (f"UPDATE graphs SET changed = '2020-01-01T00:00:00+00:00' WHERE graph = '{graph(3)}'", "time"),
        (f"UPDATE texts SET packed = zeroblob(9) WHERE graph = '{graph(3)}'", ""),
        (f"DELETE FROM graphs WHERE graph = '{graph(3)}'", ""),
    ],
)
def test_rows_that_contradict_one_another_are_refused_and_repaired(
    images: Images, folder: Path, statement: str, found: str
) -> None:
    """Each graph has the content that was written; where only a majority tells owner or time, the report says so."""
    directory = folder / "store"
    shutil.copytree(images.closed, directory)
    with closing(sqlite3.connect(directory / "changes.sqlite")) as log, log:
        log.execute(statement)
    with pytest.raises(StoreDamaged) as refused, closing(EmbeddedStore(directory)) as store:
        store.log(0)
    assert "drumlin repair" in (refused.value.hint or "")

    report = repaired(directory)
    with closing(EmbeddedStore(directory)) as store:
        after = told(store)
    whole = images.told["closed"]
    assert {name: lines for name, (_, lines) in after.graphs.items()} == {
        name: lines for name, (_, lines) in whole.graphs.items()
    }
    assert {name: entry.owner for name, (entry, _) in after.graphs.items()} == {
        name: entry.owner for name, (entry, _) in whole.graphs.items()
    }
    assert after.base == BASE
    assert not report.lost
    assert all(found in doubt for doubt in report.unsure.values())


def test_whole_tokens_survive_in_a_damaged_file(images: Images, folder: Path) -> None:
    """A file of which no token is left stays: without one, the service would ask for none."""
    directory = folder / "store"
    shutil.copytree(images.closed, directory)
    path = directory / "tokens.json"
    tokens, whole = TokenFile(path), path.read_bytes()
    assert tokens.salvage() == (2, False)
    path.write_bytes(whole[: whole.rindex(b"{") + 20])
    assert tokens.salvage() == (1, True)
    assert [each.name for each in tokens.read()] == ["grafana"]
    path.write_bytes(bytes(len(whole)))
    assert tokens.salvage() == (0, True)
    with pytest.raises(InvalidSettings):
        tokens.read()


def test_the_rows_of_pages_are_those_of_sqlite(images: Images, folder: Path) -> None:
    """Read page by page, a whole log has the rows that SQLite reads from it, those with overflow pages too."""
    shutil.copytree(images.closed, folder / "store")
    path = folder / "store" / "changes.sqlite"
    found = {row.values for row in rows(path) if row.current}
    with closing(sqlite3.connect(path)) as log:
        for table in ("graphs", "log", "texts", "store", "pruned", "settled"):
            assert set(log.execute(f"SELECT * FROM {table}")) <= found


def test_reading_pages_ends_whatever_they_hold(images: Images, folder: Path) -> None:
    """Bytes turned over at random, and pages that name one another in a circle, cost rows and neither errors nor time without end."""
    shutil.copytree(images.killed, folder / "store")
    path = folder / "store" / "changes.sqlite"
    chance = random.Random(21)
    for name in ("changes.sqlite", "changes.sqlite-wal"):
        whole = path.with_name(name).read_bytes()
        for _ in range(40):
            content = bytearray(whole)
            for _ in range(chance.choice((1, 30, 3000))):
                content[chance.randrange(len(content))] = chance.randrange(256)
            path.with_name(name).write_bytes(content)
            for row in rows(path):
                assert all(value is None or isinstance(value, int | float | str | bytes) for value in row.values)
        path.with_name(name).write_bytes(whole)
