"""A store on a disk that fills up or turns read-only: it says so, loses nothing, goes on reading, and mends by itself."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kg.errors import StoreFull
from kg.store.embedded import EmbeddedStore
from kg.store.protocol import GraphWrite
from tests.disks import small_disk
from tests.killing import agree

ROOT = Path(__file__).parents[2]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 MB."""
    with small_disk(tmp_path / "disk", 16) as disk:
        yield disk


def write(number: int, value: object = "x") -> GraphWrite:
    """Make a write of a few kilobytes."""
    graph = f"http://g/{number}"
    return GraphWrite(graph, frozenset(f'<{graph}> <http://p/{n}> "{value} {number} {n}" .' for n in range(40)), "user")


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
        "import sys, os; from pathlib import Path; from kg.store.embedded import EmbeddedStore\n"
        "from tests.unit.test_store_disk import filled\n"
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
from kg.store.embedded import EmbeddedStore
from tests.killing import agree
from tests.unit.test_store_disk import filled, whole, write

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
from kg.errors import StoreUnavailable
from kg.store import applying
from kg.store.embedded import EmbeddedStore
from tests.killing import agree
from tests.unit.test_store_disk import whole, write

if os.geteuid() == 0:  # root may write anywhere
    os.setgid(65534), os.setuid(65534)
applying.FLUSH_BYTES = 256 * 1024
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
