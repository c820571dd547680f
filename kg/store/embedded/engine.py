"""The engine of the embedded store: Oxigraph in one folder, its write-ahead log synced from here, its errors translated.

After a failed write (a full disk, say) RocksDB refuses all later ones until it is opened again, although it can still be read. So
an engine knows whether it has ``failed``; ``reopen`` makes it whole once there is room, and writes its log anew as tables,
which also makes durable whatever the disk refused to sync.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyoxigraph as ox

from drumlin.kg.errors import InvalidDocument, StoreDamaged, StoreUnavailable
from drumlin.kg.rdf.syntax import Lines, digest
from drumlin.kg.store import blank_nodes
from drumlin.kg.store.delta import New
from drumlin.kg.store.embedded.bulk_load_pipe import piped
from drumlin.kg.store.embedded.engine_folder import HELD
from drumlin.kg.store.embedded.marks import MarkFile, StoreMark, read_mark
from drumlin.kg.store.embedded.wal import Wal, unavailable

ANEW = "stop the service and have quads/ built anew from the change log: drumlin repair STORE"
"""What to do about damage to the engine's files that a start does not find."""
APART = 1000
"""Graphs from which on a bulk load is two at once: each keeps one processor busy."""
_LETTING_GO = 5.0  # seconds that a look-up under way is given to end before the engine is opened again


class EmbeddedEngine:
    """The quads in ``folder``, which follow the change log of the store with the id ``store``.

    Any thread may use it while one writes; it may go on with other files (``exchange``), which nobody who uses it notices.
    Raises ``StoreFull``, ``StoreDamaged`` and ``StoreUnavailable``; ``InvalidDocument`` for text that is not legal.
    """

    def __init__(self, folder: Path, store: str = "") -> None:
        self.folder = folder
        self.failed = False
        self._store_id = store
        self._wal = Wal(folder)
        self._use = _Use()
        self._opened: ox.Store | None = None
        with translated("opened"):
            try:
                self._open()
            except RuntimeError as error:  # whatever it is, these are not the files of an engine of this version
                raise StoreDamaged(f"{folder} cannot be opened: {error}", hint=ANEW) from error

    def _open(self) -> None:
        self._opened = ox.Store(str(self.folder))
        self._mark = MarkFile(self.folder / HELD, self._store_id)
        self._wal.forget()
        self.failed = False

    @property
    def store(self) -> ox.Store:
        """The open engine; raises ``StoreUnavailable`` when it is closed, or could not be opened again after a failure."""
        if self._opened is None:
            raise StoreUnavailable("the store is closed" + (": its disk failed" if self.failed else ""))
        return self._opened

    @contextmanager
    def using(self) -> Iterator[None]:
        """Have the files of ``store``, as it is now, kept while they are used.

        What uses it keeps no reference: an error that is kept keeps its frames, and what they refer to is not closed.
        """
        with self._use.counted():
            yield

    @property
    def wal_bytes(self) -> int:
        """Size of the write-ahead log after the last sync."""
        return self._wal.size

    def free_bytes(self) -> int:
        """Return the room that is left on its disk."""
        with translated("written"):
            found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize

    # -- writing ------------------------------------------------------------------------------------------------------
    def update(self, text: str) -> None:
        """Run a ground update as one transaction; ``sync`` makes it durable."""
        with self._writing():
            blank_nodes.replay(self.store, text)

    def load(self, new: Sequence[New]) -> None:
        """Bulk-load new graphs, many in two parts at once: as tables of their own, durable and visible when this returns.

        After a failure it may hold one of the parts.
        """
        with self._writing():
            if len(new) < APART:
                self._load(new)
                return
            half = len(new) // 2
            with ThreadPoolExecutor(1, thread_name_prefix="loading") as beside:
                other = beside.submit(self._load, new[half:])
                self._load(new[:half])
            other.result()

    def _load(self, new: Sequence[New]) -> None:
        with piped(each.nquads() for each in new) as path:
            self.store.bulk_load(path=path, format=ox.RdfFormat.N_QUADS)

    def sync(self) -> None:
        """Wait until all that was committed is on disk."""
        with self._writing():
            self._wal.sync()

    def flush(self) -> None:
        """Write the memory out as tables, so that the log begins anew."""
        with self._writing():
            self.store.flush()
            self._wal.forget()  # its files are gone, so it is small again

    def optimize(self) -> None:
        """Merge the tables: about a second for a million quads; others read and write meanwhile."""
        with self._writing():
            self.store.optimize()

    def hold(self, generation: int) -> None:
        """Note durably that it holds all of the change log up to a generation."""
        with translated("written"):
            self._mark.write(generation, durable=True)

    @contextmanager
    def _writing(self, what: str = "written") -> Iterator[None]:
        try:
            with translated(what), self.using():
                yield
        except StoreUnavailable:
            self.failed = True
            raise

    # -- reading ------------------------------------------------------------------------------------------------------
    def lines(self, graph: str) -> Lines:
        """Return what a graph holds (nothing when it does not exist)."""
        with translated("read"), self.using():
            return lines_of(self.store, graph)

    def digest(self, graph: str) -> str | None:
        """Return the digest of a graph, None when it does not exist."""
        with translated("read"), self.using():
            return digest(lines_of(self.store, graph)) if self.store.contains_named_graph(ox.NamedNode(graph)) else None

    def names(self) -> tuple[int, int]:
        """Return the number of graphs, and the sum of the hashes of their names: 0.15 s for 30,000."""
        graphs = names = 0
        with translated("read"), self.using():
            for each in self.store.named_graphs():
                graphs += 1
                names += hash(each.value)
        return graphs, names

    def quads(self) -> int:
        """Count the quads: 0.2 s for a million."""
        with translated("read"), self.using():
            return len(self.store)

    def backup(self, folder: Path) -> None:
        """Make ``folder`` a copy (hard links where it is on the same file system); others read and write meanwhile."""
        with self._writing("copied"):  # what is in memory is written out first
            self.store.backup(str(folder))

    # -- life ---------------------------------------------------------------------------------------------------------
    def reopen(self) -> None:
        """Open the engine again after a failure. Raises while there is no room, and stays readable then."""
        if self._opened is not None:
            with translated("written"):
                self._make_sure_of_room()
        self._let_go()
        deadline = time.monotonic() + _LETTING_GO
        while self._opened is None:
            try:
                with translated("opened"):
                    self._open()
            except StoreUnavailable:  # a running read still holds it
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def exchange(self, other: EmbeddedEngine) -> None:
        """Go on with the files of ``other``, which hold as much and which nobody uses yet, and leave it one's own.

        Nothing may be written meanwhile.
        """
        self._opened, other._opened = other._opened, self._opened
        self._use, other._use = (
            other._use,
            self._use,
        )  # afterwards: who counts as a user of some files finds those, or newer ones
        self.folder, other.folder = other.folder, self.folder
        self._wal, other._wal = other._wal, self._wal
        self._mark, other._mark = other._mark, self._mark
        self.failed, other.failed = other.failed, self.failed

    def remove(self) -> None:
        """Close the engine and remove its files, once nobody uses them any more."""
        self._use.wait_until_over()
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _make_sure_of_room(self) -> None:
        """Reserve, for a moment, what opening will write: the log's content as tables, and a new log."""
        with tempfile.TemporaryFile(dir=self.folder.parent) as probe:
            os.posix_fallocate(probe.fileno(), 0, self._wal.measure() + (1 << 20))

    def close(self) -> None:
        """Let go of the engine."""
        self._let_go()

    def _let_go(self) -> None:
        self._opened = None
        self._wal.close()
        self._mark.close()


class _Use:
    """Counts who uses the files of an engine."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._users = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        with self._changed:
            self._users += 1
        try:
            yield
        except BaseException as error:
            traceback.clear_frames(error.__traceback__)  # they hold what was used
            raise
        finally:
            with self._changed:
                self._users -= 1
                self._changed.notify_all()

    def wait_until_over(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._users)


def held_by(folder: Path) -> StoreMark | None:
    """Return which store's quads are in ``folder`` and up to which generation; None when that is not noted."""
    return read_mark(folder / HELD)


def lines_of(store: ox.Store, graph: str) -> Lines:
    """Read one graph as lines."""
    content = store.dump(from_graph=ox.NamedNode(graph), format=ox.RdfFormat.N_TRIPLES) or b""
    return frozenset(content.decode().split("\n")) - {""}


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn the engine's and the system's errors into ours; ``what`` completes "the store cannot be …"."""
    try:
        yield
    except SyntaxError as error:
        raise InvalidDocument("a statement is not legal RDF: one of its IRIs is malformed") from error
    except OSError as error:
        # A kept error keeps its frames, and one that holds the engine would keep it from being opened again.
        traceback.clear_frames(error.__traceback__)
        if isinstance(error, (FileNotFoundError, NotADirectoryError, IsADirectoryError, FileExistsError)):
            raise StoreDamaged(f"the store cannot be {what}: {error}", hint=ANEW) from error
        raise unavailable(f"the store cannot be {what}", error) from error
    except RuntimeError as error:
        if "orruption" not in str(error):
            raise
        traceback.clear_frames(error.__traceback__)
        raise StoreDamaged(f"the store cannot be {what}: {error}", hint=ANEW) from error
