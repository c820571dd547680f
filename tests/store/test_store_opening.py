"""What a start makes of a damaged store: it is as it was, or it is refused by name and left alone; never something in between."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from drumlin.kg.errors import StoreDamaged, StoreFull, StoreUnavailable
from drumlin.kg.model.iris import Iris
from drumlin.kg.store.embedded import backups
from drumlin.kg.store.embedded.consistency import check
from drumlin.kg.store.embedded.marks import read_mark
from drumlin.kg.store.embedded.rebuilding import Progress
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite
from tests.store_behaviours import NOON, answered

ROOT = Path(__file__).parents[2]
BASE = "https://kg.example"
GRAPHS = 40
PARTS = (
    "changes.sqlite", "changes.sqlite-wal", "changes.sqlite-shm", "quads", "quads/CURRENT", "quads/MANIFEST-*", "quads/*.sst",
    "quads/*.log", "quads/held", "quads/IDENTITY", "witness", "base", "lock",
)  # fmt: skip
TAKEN = ("older", "foreign")
DAMAGES = ("missing", "empty", "half", "zeroed", "garbage", *TAKEN)


class Content(NamedTuple):
    """What a store says, asked graph by graph and asked by SPARQL."""

    rest: dict[str, frozenset[str]]
    sparql: list[str]


def graph(number: int) -> str:
    """Name a graph; every fifth one is not an entity's."""
    return f"{BASE}/id/prod/shop/pod/p{number}" if number % 5 else f"http://foreign/{number}"


def write(number: int, value: str) -> GraphWrite:
    """Make a write of a graph of four statements; every seventh one has a blank node."""
    name = graph(number)
    lines = {f'<{name}> <http://p/{n}> "{value}" .' for n in range(3)}
    node = "_:b" if number % 7 == 0 else "<http://o>"
    return GraphWrite.of(name, frozenset({*lines, f"<{name}> <http://p/node> {node} ."}), "user")


def content(store: EmbeddedStore) -> Content:
    """Read a store in both ways."""
    rest = {each.graph: found.lines for each in store.entries() if (found := store.read(each.graph))}
    query = "SELECT ?g ?s ?p ?o { GRAPH ?g { ?s ?p ?o } }"
    rows = json.loads(answered(store, query))["results"]["bindings"]
    return Content(rest, sorted(json.dumps(each, sort_keys=True) for each in rows))


class Images(NamedTuple):
    """Directories of one store as it was left by a kill early (``older``) and late (``newest``), or ``closed`` late, and of another one.

    ``content`` is that of the late ones.
    """

    older: Path
    newest: Path
    closed: Path
    foreign: Path
    content: Content


def live(directory: Path, name: str, life: int, end: str) -> None:
    """Write the first or second half of a store's history in a process of its own, which is killed or closes the store."""
    command = [sys.executable, "-c", LIFE, str(directory), name, str(life), end]
    assert subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL).returncode in (0, -signal.SIGKILL)


LIFE = """
import os, signal, sys
from pathlib import Path
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite
from drumlin.kg.store.embedded.rebuilding import Progress
from tests.store.test_store_opening import BASE, GRAPHS, graph, write

directory, name, life, end = sys.argv[1:]
store = EmbeddedStore(Path(directory))
if life == "1":
    store.made_under(BASE)
    store.apply([write(number, f"{name} first") for number in range(GRAPHS)])
    store.optimize()
    store._changes._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.apply([write(number, f"{name} second") for number in range(0, GRAPHS, 2)])
else:
    for number in range(10):
        store.apply([write(number, f"{name} third")])
    store.apply([GraphWrite.of(graph(11), None, "user"), write(GRAPHS, f"{name} new")])
    store._applied()
    store.apply([write(12, f"{name} last")])
store._applied()
if end == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
store.close()
"""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Images:
    """Make two stores of as many graphs and generations, whose logs and engines were partly merged into their files."""
    older, newest, closed, foreign = (tmp_path_factory.mktemp("images") / name for name in Images._fields[:4])
    live(older, "own", 1, "kill")
    for each, end in ((newest, "kill"), (closed, "close")):
        shutil.copytree(older, each)
        live(each, "own", 2, end)
    live(foreign, "foreign", 1, "kill")
    live(foreign, "foreign", 2, "kill")
    shutil.copytree(closed, closed.with_name("read"))
    with closing(EmbeddedStore(closed.with_name("read"))) as store:
        return Images(older, newest, closed, foreign, content(store))


def damage(directory: Path, part: str, how: str, images: Images) -> None:
    """Damage a part: of those that a pattern names the largest one, or the log that is in use."""
    found = sorted(directory.glob(part))
    if how in TAKEN:
        source = max((images.older if how == "older" else images.foreign).glob(part))
        for each in found:
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        copy = shutil.copytree if source.is_dir() else shutil.copy2
        copy(source, directory / Path(part).parent / (found[0].name if found else source.name))
        return
    victim = found[-1] if part.endswith(".log") else max(found, key=lambda each: each.stat().st_size)
    if victim.is_dir():
        shutil.rmtree(victim)
        if how == "empty":
            victim.mkdir()
        return
    before = victim.read_bytes()
    if how == "missing":
        victim.unlink()
    else:
        size = len(before)
        after = {"empty": b"", "half": before[: size // 2], "zeroed": bytes(size), "garbage": os.urandom(size)}
        victim.write_bytes(after[how])


def outcome(part: str, how: str, kind: str) -> str | None:
    """Return what must become of a store, None for any that is as it was: ``refused``, ``rebuilt`` or ``whole``."""
    if part in ("changes.sqlite", "changes.sqlite-wal"):
        whole = part == "changes.sqlite" and how == "older" and kind == "newest"  # the -wal has all that it lacks
        return "whole" if whole else "refused"
    if part in ("quads", "quads/*.sst") or (part == "quads/*.log" and kind == "closed"):
        return "rebuilt"
    if part == "witness":
        return "refused" if how == "foreign" else "whole"
    return None if part.startswith("quads/") else "whole"


def opened(directory: Path, progress: Progress) -> EmbeddedStore | StoreDamaged:
    """Open a store, or return why it is damaged."""
    try:
        return EmbeddedStore(directory, progress=progress)
    except StoreDamaged as error:
        return error


def files(directory: Path) -> dict[str, bytes]:
    """Return what the files of a store are, but for those that hold nothing of their own."""
    found = {each.relative_to(directory).as_posix(): each for each in directory.rglob("*") if each.is_file()}
    return {
        name: content
        for name, each in found.items()
        if name not in ("lock", "changes.sqlite-shm") and (content := each.read_bytes())
    }


CASES = [
    (kind, part, how)
    for kind in ("newest", "closed")
    for part in PARTS
    for how in DAMAGES
    if (part != "quads" or how in ("missing", "empty", *TAKEN))
    and (kind != "closed" or part not in ("changes.sqlite-wal", "changes.sqlite-shm") or how in TAKEN)
]


@pytest.mark.parametrize(("kind", "part", "how"), CASES)
def test_a_damaged_store_is_as_it_was_or_refused(
    images: Images, tmp_path: Path, kind: str, part: str, how: str
) -> None:
    """Whatever part is lost, cut, overwritten, or taken from an earlier day or another store: both ways to read it agree, or it is refused by name."""
    directory = tmp_path / "store"
    shutil.copytree(getattr(images, kind), directory)
    damage(directory, part, how, images)
    expected = outcome(part, how, kind)
    rebuilt: list[tuple[int, int]] = []
    before = files(directory)
    store = opened(directory, lambda *counts: rebuilt.append(counts))
    if isinstance(store, StoreDamaged):
        assert expected == "refused", store
        assert "changes.sqlite" in str(store)
        assert "drumlin restore" in (store.hint or "")
        assert files(directory) == before
        return
    with closing(store):
        assert content(store) == images.content
        with store.snapshot() as snapshot:
            assert check(snapshot, Iris(BASE)).whole
        assert store.made_under("https://other.example") == BASE
        assert store.apply([write(1, "after")])[0].outcome == "replaced"
    assert expected in (None, "rebuilt" if rebuilt else "whole")
    if rebuilt:
        assert rebuilt[-1][0] == rebuilt[-1][1] == len(images.content.rest)
    with closing(EmbeddedStore(directory, rebuild=False)) as again:
        assert again.read(graph(1)).lines == write(1, "after").lines


@pytest.mark.parametrize("left", ["quads", "witness", "search.sqlite", "changes.sqlite-wal", "runs.sqlite"])
def test_no_store_is_begun_over_what_is_left_of_one(images: Images, tmp_path: Path, left: str) -> None:
    """A directory with one file of a store and no change log holds a damaged store, not a new one."""
    source = images.newest / left
    if left in ("search.sqlite", "runs.sqlite"):
        (tmp_path / left).write_bytes(b"anything")
    elif source.is_dir():
        shutil.copytree(source, tmp_path / left)
    else:
        shutil.copy2(source, tmp_path / left)
    before = files(tmp_path)

    with pytest.raises(StoreDamaged, match=rf"changes.sqlite is missing, and {left}"):
        EmbeddedStore(tmp_path)
    assert files(tmp_path) == before


def test_an_operator_may_go_on_with_what_the_log_has(images: Images, tmp_path: Path) -> None:
    """Without the witness and the engine's files nothing testifies against an older log: it is opened, and all agrees."""
    directory = tmp_path / "store"
    shutil.copytree(images.newest, directory)
    (directory / "changes.sqlite-wal").unlink()
    (directory / "witness").unlink()
    with pytest.raises(StoreDamaged, match=r"quads/held"):
        EmbeddedStore(directory)
    shutil.rmtree(directory / "quads")

    with closing(EmbeddedStore(directory)) as store:
        assert store.generation == 1
        assert content(store).rest.keys() == {graph(number) for number in range(GRAPHS)}
        with store.snapshot() as snapshot:
            assert check(snapshot, Iris(BASE)).whole


def test_an_empty_directory_becomes_a_store(tmp_path: Path) -> None:
    """So does one that holds nothing but empty directories, and what a kill left of the very first start."""
    (tmp_path / "quads").mkdir()
    (tmp_path / "changes.sqlite").touch()
    with closing(EmbeddedStore(tmp_path, rebuild=False)) as store:
        assert (store.generation, store.base) == (0, None)
        store.apply([write(1, "x")])


def test_a_store_of_an_earlier_version_gets_an_id_and_a_witness(images: Images, tmp_path: Path) -> None:
    """Without id, witness and mark it is opened as ever, not built anew, and bears witness from then on."""
    as_before(images.closed, tmp_path / "store")
    with closing(EmbeddedStore(tmp_path / "store", rebuild=False)) as store:
        assert content(store) == images.content
        assert store.made_under(BASE) == BASE
        store.apply([write(1, "x")])
        generation = store.generation
    mark = read_mark(tmp_path / "store" / "witness")
    assert mark == (store_id(tmp_path / "store"), generation)
    assert read_mark(tmp_path / "store" / "quads" / "held") == mark


def as_before(image: Path, directory: Path) -> None:
    """Make a store as the version left it that had no ids."""
    shutil.copytree(image, directory)
    for each in ("witness", "quads/held"):
        (directory / each).unlink()
    with closing(sqlite3.connect(directory / "changes.sqlite")) as log, log:
        log.execute("DROP TABLE store")


def store_id(directory: Path) -> str:
    """Return the id that a change log records."""
    with closing(sqlite3.connect(directory / "changes.sqlite")) as log:
        (found,) = log.execute("SELECT id FROM store").fetchone()
        return str(found)


@pytest.mark.parametrize("lost", ["quads", "witness"])
def test_a_log_of_before_beside_marks_of_now_is_refused(images: Images, tmp_path: Path, lost: str) -> None:
    """An old copy of the log, from before stores had ids, does not pass for the log: either mark gives it away."""
    shutil.copytree(images.closed, tmp_path / "store")
    as_before(images.closed, tmp_path / "before")
    shutil.copy2(tmp_path / "before" / "changes.sqlite", tmp_path / "store" / "changes.sqlite")
    shutil.rmtree(tmp_path / "store" / lost) if lost == "quads" else (tmp_path / "store" / lost).unlink()

    with pytest.raises(StoreDamaged, match="changes.sqlite is an older copy"):
        EmbeddedStore(tmp_path / "store")


def test_an_engine_of_before_is_judged_by_its_content(images: Images, tmp_path: Path) -> None:
    """A store of an earlier version whose ``quads`` are lost or older is built anew as well."""
    for number, source in enumerate((None, images.older, images.foreign)):
        directory = tmp_path / str(number)
        as_before(images.closed, directory)
        shutil.rmtree(directory / "quads")
        if source:
            shutil.copytree(source / "quads", directory / "quads", ignore=shutil.ignore_patterns("held"))
        with closing(EmbeddedStore(directory)) as store:
            assert content(store) == images.content


def test_graphs_that_only_the_engine_holds_are_not_built_anew(images: Images, tmp_path: Path) -> None:
    """A log of an earlier version may lack texts: with the engine damaged that is a restore, and the engine's files are left."""
    as_before(images.closed, tmp_path / "store")
    with closing(sqlite3.connect(tmp_path / "store" / "changes.sqlite")) as log, log:
        log.execute("DELETE FROM texts WHERE graph = ?", (graph(3),))
    with closing(EmbeddedStore(tmp_path / "store")) as store:
        assert content(store) == images.content
    damage(tmp_path / "store", "quads/*.sst", "half", images)

    with pytest.raises(StoreDamaged, match="cannot be built anew") as refused:
        EmbeddedStore(tmp_path / "store")
    assert "drumlin restore" in (refused.value.hint or "")
    assert list((tmp_path / "store" / "quads").glob("*.sst"))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE texts SET packed = zeroblob(50) WHERE rowid = 3",
        "UPDATE texts SET packed = (SELECT packed FROM texts WHERE rowid = 4) WHERE rowid = 3",
        "DELETE FROM log WHERE generation = 4",
        "DELETE FROM graphs WHERE graph LIKE '%p3'",
        "UPDATE graphs SET digest = 'other' WHERE graph LIKE '%p3'",
        "UPDATE graphs SET generation = 1 WHERE graph LIKE '%p4'",
        "DROP TABLE texts",
    ],
)
def test_a_log_that_contradicts_itself_is_refused(images: Images, tmp_path: Path, statement: str) -> None:
    """What SQLite can read need not be what was written: rows are compared with one another, texts with their digests."""
    shutil.copytree(images.closed, tmp_path / "store")
    with closing(sqlite3.connect(tmp_path / "store" / "changes.sqlite")) as log, log:
        log.execute(statement)

    with pytest.raises(StoreUnavailable, match="changes.sqlite"):
        EmbeddedStore(tmp_path / "store")


def test_a_build_that_was_killed_begins_again(images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it left, the next start builds all of it; one that fails for want of room says so and leaves nothing of its own."""
    directory = tmp_path / "store"
    shutil.copytree(images.newest, directory)
    shutil.rmtree(directory / "quads")
    shutil.copytree(images.foreign / "quads", directory / "quads.new")
    shutil.copytree(images.foreign / "quads", directory / "quads.old")
    with monkeypatch.context() as patched:
        patched.setattr("drumlin.kg.store.embedded.rebuilding._fill", no_room)
        with pytest.raises(StoreFull, match="cannot be built anew") as refused:
            EmbeddedStore(directory)
        assert "make room" in (refused.value.hint or "")
    assert not list(directory.glob("quads*"))

    with closing(EmbeddedStore(directory)) as store:
        assert content(store) == images.content
    assert [each.name for each in directory.glob("quads*")] == ["quads"]


def no_room(*_: object) -> None:
    """Fail as a full disk does."""
    raise StoreFull("no room")


def test_a_restored_store_is_another_one(images: Images, tmp_path: Path) -> None:
    """It goes its own way: the engine of the store that was backed up is not taken for its own, even at the same generation."""
    shutil.copytree(images.closed, tmp_path / "store")
    with closing(EmbeddedStore(tmp_path / "store")) as store, backups.filling(tmp_path / "backup") as made:
        backups.take(store, BASE, made, NOON)
    backups.restore(tmp_path / "backup", tmp_path / "restored")
    assert store_id(tmp_path / "restored") != store_id(tmp_path / "store")
    for name, value in (("store", "one way"), ("restored", "another way")):
        with closing(EmbeddedStore(tmp_path / name, rebuild=False)) as store:
            store.apply([write(1, value)])
    shutil.rmtree(tmp_path / "restored" / "quads")
    shutil.copytree(tmp_path / "store" / "quads", tmp_path / "restored" / "quads")

    with closing(EmbeddedStore(tmp_path / "restored")) as store:
        assert content(store).rest[graph(1)] == write(1, "another way").lines
        assert "another way" in str(content(store).sparql)
        assert "one way" not in str(content(store).sparql)


def test_a_write_outlives_a_witness_that_fails(images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is done once it is in the log: a witness that stays behind accuses nobody at the next start."""
    shutil.copytree(images.closed, tmp_path / "store")
    with closing(EmbeddedStore(tmp_path / "store")) as store:
        with monkeypatch.context() as patched:
            patched.setattr(store._witness, "write", broken)
            store.apply([write(1, "x")])
        generation = store.generation
    assert generation > read_mark(tmp_path / "store" / "witness").generation
    with closing(EmbeddedStore(tmp_path / "store", rebuild=False)) as store:
        assert store.read(graph(1)).lines == write(1, "x").lines


def broken(*_: object) -> None:
    """Fail as a broken disk does."""
    raise OSError(5, "Input/output error")


def test_a_log_that_breaks_while_it_is_used_is_said_to_be_damaged(images: Images, tmp_path: Path) -> None:
    """Its pages overwritten under an open store: what is read then is refused in words."""
    shutil.copytree(images.closed, tmp_path / "store")
    with closing(EmbeddedStore(tmp_path / "store")) as store:
        with (tmp_path / "store" / "changes.sqlite").open("r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * (1 << 20))
        store._changes._first.execute("PRAGMA cache_size = 0")
        with pytest.raises(StoreDamaged, match="malformed|not a database"):
            store.entries()
