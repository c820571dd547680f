"""The engine of the embedded store: Oxigraph in one folder, its write-ahead log synced from here, its errors translated.

After a failed write (a full disk, say) RocksDB refuses all later ones until it is opened again, although it can still be read. So
an engine knows whether it has ``failed``; ``reopen`` makes it whole once there is room, and writes its log anew as tables,
which also makes durable whatever the disk refused to sync.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyoxigraph as ox

from drumlin.kg.errors import InvalidDocument, StoreDamaged, StoreUnavailable
from drumlin.kg.rdf.syntax import Lines, digest
from drumlin.kg.store import blank_nodes
from drumlin.kg.store.delta import New
from drumlin.kg.store.embedded.bulk_load_pipe import piped
from drumlin.kg.store.embedded.engine_folder import HELD, put_in_place, restore
from drumlin.kg.store.embedded.marks import MarkFile, StoreMark, read_mark
from drumlin.kg.store.embedded.wal import Wal, unavailable

ANEW = "stop the service and have quads/ built anew from the change log: drumlin repair STORE"
"""What to do about damage to the engine's files that a start does not find."""
_LETTING_GO = 5.0  # seconds that a look-up under way is given to end before the engine is opened again
_PATIENCE = 0.5  # seconds that work under way is given to end before the engine is replaced; new work waits meanwhile


class EmbeddedEngine:
    """The quads in ``folder``, which follow the change log of the store with the id ``store``.

    Any thread may use it while one writes; another engine may take its place (``replace``), which nobody who uses it notices.
    Raises ``StoreFull``, ``StoreDamaged`` and ``StoreUnavailable``; ``InvalidDocument`` for text that is not legal.
    """

    def __init__(self, folder: Path, store: str = "") -> None:
        self.folder = folder
        self.failed = False
        self._store_id = store
        self._wal = Wal(folder)
        self._gate = threading.Condition()
        self._users = 0
        self._replacing = False
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
    def using(self) -> Iterator[ox.Store]:
        """Have the open engine for work that is not cut off when another engine takes its place. Raises as ``store`` does."""
        with self._gate:
            self._gate.wait_for(lambda: not self._replacing)
            found = self.store
            self._users += 1
        try:
            yield found
        finally:
            del found
            with self._gate:
                self._users -= 1
                self._gate.notify_all()

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
        with self._writing() as store:
            blank_nodes.replay(store, text)

    def load(self, new: Sequence[New]) -> None:
        """Bulk-load new graphs: at once as tables of their own, durable and visible when this returns."""
        with self._writing() as store, piped(each.nquads() for each in new) as path:
            store.bulk_load(path=path, format=ox.RdfFormat.N_QUADS)

    def sync(self) -> None:
        """Wait until all that was committed is on disk."""
        with self._writing():
            self._wal.sync()

    def flush(self) -> None:
        """Write the memory out as tables, so that the log begins anew."""
        with self._writing() as store:
            store.flush()
            self._wal.forget()  # its files are gone, so it is small again

    def optimize(self) -> None:
        """Merge the tables: about a second for a million quads; others read and write meanwhile."""
        with self._writing() as store:
            store.optimize()

    def hold(self, generation: int) -> None:
        """Note durably that it holds all of the change log up to a generation."""
        with translated("written"):
            self._mark.write(generation, durable=True)

    @contextmanager
    def _writing(self, what: str = "written") -> Iterator[ox.Store]:
        try:
            with translated(what), self.using() as store:
                yield store
        except StoreUnavailable:
            self.failed = True
            raise

    # -- reading ------------------------------------------------------------------------------------------------------
    def lines(self, graph: str) -> Lines:
        """Return what a graph holds (nothing when it does not exist)."""
        with translated("read"), self.using() as store:
            return lines_of(store, graph)

    def digest(self, graph: str) -> str | None:
        """Return the digest of a graph, None when it does not exist."""
        with translated("read"), self.using() as store:
            return digest(lines_of(store, graph)) if store.contains_named_graph(ox.NamedNode(graph)) else None

    def names(self) -> tuple[int, int]:
        """Return the number of graphs, and the sum of the hashes of their names: 0.15 s for 30,000."""
        graphs = names = 0
        with translated("read"), self.using() as store:
            for each in store.named_graphs():
                graphs += 1
                names += hash(each.value)
        return graphs, names

    def quads(self) -> int:
        """Count the quads: 0.2 s for a million."""
        with translated("read"), self.using() as store:
            return len(store)

    def backup(self, folder: Path) -> None:
        """Make ``folder`` a copy (hard links where it is on the same file system); others read and write meanwhile."""
        with self._writing("copied") as store:  # what is in memory is written out first
            store.backup(str(folder))

    # -- life ---------------------------------------------------------------------------------------------------------
    def reopen(self) -> None:
        """Open the engine again after a failure. Raises while there is no room, and stays readable then."""
        with translated("written"):
            if self._opened is not None:
                self._make_sure_of_room()
            restore(self.folder)  # else a new one would begin
        self._let_go()
        self._open_again()

    def replace(self) -> bool:
        """Have the engine that was built beside this one, which nobody may have open, take its place (``kg.store.embedded.engine_folder``).

        Returns False, and leaves all as it is, when work under way does not end soon. When it raises, this one counts as failed:
        ``reopen`` opens what is in its place then.
        """
        with self._gate:
            self._replacing = True
            try:
                if not self._gate.wait_for(lambda: not self._users, _PATIENCE):
                    return False
                self._let_go()
                self.failed = True  # until it is open again
                with translated("replaced"):
                    put_in_place(self.folder)
                self._open_again()
            finally:
                self._replacing = False
                self._gate.notify_all()
        return True

    def _open_again(self) -> None:
        deadline = time.monotonic() + _LETTING_GO
        while self._opened is None:
            try:
                with translated("opened"):
                    self._open()
            except StoreUnavailable:  # a read that is about to end still holds it
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

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
