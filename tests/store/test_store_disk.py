"""A store on a disk that fills up or turns read-only: it says so, loses nothing, goes on reading, and mends by itself."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from drumlin.exporters.kubectl.files import Files
from drumlin.kg.errors import StoreDamaged, StoreFull, StoreUnavailable
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.syntax import NQUADS
from drumlin.kg.store.embedded import backups
from drumlin.kg.store.embedded.repairing import repair
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite
from tests.disks import fill, small_disk
from tests.killing import agree
from tests.store_behaviours import NOON

ROOT = Path(__file__).parents[2]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 MB."""
    with small_disk(tmp_path / "disk", 16) as disk:
        yield disk


def write(number: int, value: object = "x") -> GraphWrite:
    """Make a write of a few kilobytes that do not compress, so that a disk is full after some thousand of them."""
    graph = f"http://g/{number}"
    noise = [hashlib.sha256(f"{value} {number} {n}".encode()).hexdigest() for n in range(40)]
    return GraphWrite.of(
        graph, frozenset(f'<{graph}> <http://p/{n}> "{each}" .' for n, each in enumerate(noise)), "user"
    )


def filled(store: EmbeddedStore, start: int = 0) -> int:
    """Write until there is no room, and return the number of the write that was refused."""
    number = start
    with pytest.raises(StoreFull):  # noqa: PT012 - which write fails is not known before
        while True:
            store.apply([write(number)])
            number += 1
    return number


def whole(store: EmbeddedStore, count: int) -> None:
    """Check that the first ``count`` graphs are there as written, and none more."""
    assert {each.graph for each in store.entries()} == {f"http://g/{n}" for n in range(count)}
    assert all(store.read(f"http://g/{n}").lines == write(n).lines for n in range(count))


def test_a_full_disk_refuses_writes_until_there_is_room(small: Path) -> None:
    """Refused writes are not there, what was acknowledged can be read all the time, and room alone lets writing go on."""
    store = EmbeddedStore(small / "store")
    ballast = small / "ballast"
    ballast.write_bytes(bytes(9 << 20))
    count = filled(store)
    for _ in range(3):  # opened again, the engine may have found room by merging its log
        count = filled(store, count)
    assert store.generation == count
    whole(store, count)

    ballast.unlink()
    assert store.apply([write(count)])[0].generation == count + 1
    whole(store, count + 1)
    agree(store)
    store.close()

    again = EmbeddedStore(small / "store")
    whole(again, count + 1)
    agree(again)
    again.close()


def test_a_process_that_ends_on_a_full_disk_lost_nothing(small: Path) -> None:
    """Opened again once there is room, the store holds what was acknowledged and nothing else."""
    ballast = small / "ballast"
    ballast.write_bytes(bytes(9 << 20))
    code = (
        "import sys, os; from pathlib import Path; from drumlin.kg.store.embedded.store import EmbeddedStore\n"
        "from tests.store.test_store_disk import filled\n"
        "count = filled(EmbeddedStore(Path(sys.argv[1]))); print(count, flush=True); os._exit(1)"
    )
    run = subprocess.run([sys.executable, "-c", code, str(small / "store")], cwd=ROOT, capture_output=True, text=True, check=False)  # fmt: skip
    count = int(run.stdout.split()[-1])
    ballast.unlink()
    store = EmbeddedStore(small / "store")

    whole(store, count)
    agree(store)
    store.close()


LIMITED = """
import resource, sys
from pathlib import Path
from drumlin.kg.store.embedded.store import EmbeddedStore
from tests.killing import agree
from tests.store_behaviours import NOON
from tests.store.test_store_disk import filled, whole, write

store = EmbeddedStore(Path(sys.argv[1]))
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (5 << 20, hard))
count = filled(store)
count = filled(store, count)
whole(store, count)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
store.apply([write(count)])
whole(store, count + 1)
agree(store)
store.close()
print("mended")
"""


def test_files_that_may_not_grow_refuse_writes_until_they_may(tmp_path: Path) -> None:
    """A limit of the size of files (EFBIG), which needs no root, is a full disk too: nothing is lost, and it mends by itself."""
    assert last_line(LIMITED, tmp_path / "store") == "mended"


def last_line(code: str, directory: Path) -> str:
    """Run ``code`` in a process of its own and return the last line that it printed, or what went wrong."""
    run = subprocess.run([sys.executable, "-c", code, str(directory)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)  # fmt: skip
    return next(iter(run.stdout.splitlines()[-1:]), "") if run.returncode == 0 else run.stdout + run.stderr


READ_ONLY = """
import os, sys
from pathlib import Path
from drumlin.kg.errors import StoreUnavailable
from drumlin.kg.store.embedded import engine_applier
from drumlin.kg.store.embedded.store import EmbeddedStore
from tests.killing import agree
from tests.store_behaviours import NOON
from tests.store.test_store_disk import whole, write

if os.geteuid() == 0:  # root may write anywhere
    os.setgid(65534), os.setuid(65534)
engine_applier.FLUSH_BYTES = 256 * 1024
directory = Path(sys.argv[1])
store = EmbeddedStore(directory / "store")
folders = [directory / "store", directory / "store" / "quads"]
for each in folders:
    each.chmod(0o555)
count = 0
try:
    while True:
        store.apply([write(count)])
        count += 1
except StoreUnavailable as error:
    print(type(error).__name__, error)
try:
    store.apply([write(count)])
    sys.exit("a write went through")
except StoreUnavailable as error:
    print(type(error).__name__, error)
whole(store, count)
for each in folders:
    each.chmod(0o755)
store.apply([write(count)])
whole(store, count + 1)
agree(store)
store.close()
print("mended")
"""


def test_a_directory_that_turns_read_only_refuses_writes_until_it_is_mended() -> None:
    """What can still be written into open files is; then writes are refused, reads go on, and permissions alone mend it."""
    with tempfile.TemporaryDirectory() as directory:  # not pytest's, which belongs to root alone
        if os.geteuid() == 0:
            os.chown(directory, 65534, 65534)
        assert last_line(READ_ONLY, Path(directory)) == "mended"


def everything(directory: Path) -> dict[str, bytes]:
    """Return all files below a directory."""
    return {
        str(each): each.read_bytes() for each in sorted(directory.rglob("*")) if each.is_file() and each.name != "lock"
    }


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_a_store_on_a_full_disk_opens_for_reading(small: Path, tmp_path: Path, end: str) -> None:
    """All that was acknowledged is read, also what the engine did not hold yet; a write is refused in words; no file of the store changes."""
    code = (
        "import os, sys; from pathlib import Path; from drumlin.kg.store.embedded.store import EmbeddedStore\n"
        "from tests.store.test_store_disk import write\n"
        "store = EmbeddedStore(Path(sys.argv[1])); store.made_under('https://kg.example')\n"
        "store.apply([write(n) for n in range(40)]); store._applied(); store.apply([write(n) for n in range(40, 44)])\n"
        "store.close() if sys.argv[2] == 'closed' else os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", code, str(small / "store"), end], cwd=ROOT, capture_output=True, check=False)
    ballast = fill(small)
    before = everything(small / "store")

    with closing(EmbeddedStore(small / "store")) as store:
        whole(store, 44)
        assert len(store.look_up("SELECT ?s ?v { ?s <http://p/1> ?v }")) == 44
        agree(store)
        assert store.apply([write(1)])[0].outcome == "unchanged"
        with pytest.raises(StoreFull, match="open for reading only") as refused:
            store.apply([write(1, "other")])
        assert "restart" in (refused.value.hint or "")
        with pytest.raises(StoreFull):
            store.archive.note("known", "c", ["p"], 1, 2)
        with pytest.raises(StoreFull):
            store.optimize()
        with backups.filling(tmp_path / "backup") as made:
            backups.take(store, "https://kg.example", made, NOON)
            backups.verify(made)
        assert not any(each.is_symlink() for each in (tmp_path / "backup").rglob("*"))
        with pytest.raises(StoreUnavailable, match="in use by"):
            EmbeddedStore(small / "store")
        place = store.files
    assert everything(small / "store") == before
    assert not place.exists()

    ballast.unlink()
    with closing(EmbeddedStore(small / "store")) as store:
        whole(store, 44)
        assert store.apply([write(44)])[0].generation == store.generation


def test_a_restore_or_export_onto_a_disk_without_room_leaves_nothing_half(small: Path, tmp_path: Path) -> None:
    """A directory that could not be filled is gone; a file that could not be replaced is the old one; the store that was read is well."""
    with closing(EmbeddedStore(tmp_path / "store")) as store:
        store.apply([write(n) for n in range(40)])
        with backups.filling(tmp_path / "backup") as made:
            backups.take(store, "https://kg.example", made, NOON)
        files = Files(store, Iris("https://kg.example"), small / "exported", NQUADS, timedelta(hours=1))
        assert files.write()
        before = files.path.read_bytes()
        store.apply([write(n) for n in range(40, 80)])
        ballast = fill(small)
        with pytest.raises(
            StoreUnavailable, match=r"exported/drumlin.nq.gz cannot be written: No space left"
        ) as refused:
            files.write()
        assert "make room" in (refused.value.hint or "")
        assert {each.name: each.read_bytes() for each in files.path.parent.iterdir()} == {files.path.name: before}
        for attempt in (
            lambda: backups.restore(tmp_path / "backup", small / "restored"),
            lambda: taken(store, small / "taken"),
        ):
            ballast.write_bytes(bytes(15 << 20))
            with pytest.raises(StoreFull, match="cannot be written"):
                attempt()
            assert [each.name for each in small.iterdir() if each.is_dir()] == ["exported"]
            fill(small)
            with pytest.raises(StoreFull, match="cannot be written"):
                attempt()
            assert [each.name for each in small.iterdir() if each.is_dir()] == ["exported"]
        store.apply([write(80)])
        whole(store, 81)
        ballast.unlink()
        assert files.write()
        backups.restore(tmp_path / "backup", small / "restored")
        taken(store, small / "taken")


def taken(store: EmbeddedStore, folder: Path) -> None:
    """Take a backup."""
    with backups.filling(folder) as made:
        backups.take(store, "https://kg.example", made, NOON)
        backups.verify(made)


def test_a_store_on_a_full_disk_is_not_repaired(small: Path) -> None:
    """It is left as it was, and opens as it did; with room it is repaired."""
    with closing(EmbeddedStore(small / "store")) as store:
        store.apply([write(n) for n in range(10)])
    with (small / "store" / "changes.sqlite").open("r+b") as file:
        file.write(b"not a database")
    ballast = fill(small)
    before = everything(small / "store")
    with pytest.raises(StoreFull, match="cannot be repaired"):
        repair(small / "store", lambda: NOON, lambda *_: None)
    with pytest.raises(StoreDamaged, match="not a database"):
        EmbeddedStore(small / "store")
    assert everything(small / "store") == before

    ballast.unlink()
    assert repair(small / "store", lambda: NOON, lambda *_: None).whole
    with closing(EmbeddedStore(small / "store")) as store:
        whole(store, 10)


def test_a_store_on_a_full_disk_says_where_it_needs_room(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no other disk to be read from, it is refused in words, and nothing is left behind."""
    with closing(EmbeddedStore(small / "store")) as store:
        store.apply([write(n) for n in range(10)])
    (small / "tmp").mkdir()
    fill(small)
    monkeypatch.setattr(tempfile, "tempdir", str(small / "tmp"))
    with pytest.raises(StoreFull, match="cannot be opened: its disk takes no writes") as refused:
        EmbeddedStore(small / "store")
    assert "TMPDIR" in (refused.value.hint or "")
    assert not [*(small / "tmp").iterdir()]
