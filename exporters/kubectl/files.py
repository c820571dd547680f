"""Periodic exports into a directory: one file, replaced whole, so that a reader sees one generation.

The new file is written beside the old one, synced, and renamed over it. When nothing has been written to the store since, nothing is done.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import structlog

from drumlin.exporters.jobs import PeriodicJob
from drumlin.kg.disk import sync
from drumlin.kg.errors import InvalidSettings, StoreUnavailable
from drumlin.kg.graphs import dump
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.syntax import Syntax
from drumlin.kg.store.protocol import Store

log = structlog.get_logger(__name__)


def write_file(path: Path, chunks: Iterable[bytes]) -> int:
    """Replace ``path`` by what ``chunks`` are, atomically and durably, and return its size; after an error the old file is there.

    Raises ``StoreUnavailable`` when the disk does.
    """
    try:
        return _replace(path, chunks)
    except OSError as error:
        raise StoreUnavailable(
            f"{path} cannot be written: {error.strerror}",
            hint=f"make room on the disk of {path.parent}, and let the service write there",
        ) from error


def _replace(path: Path, chunks: Iterable[bytes]) -> int:
    file, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(file, "wb") as out:
            for chunk in chunks:
                out.write(chunk)
            out.flush()
            os.fsync(out.fileno())
            size = out.tell()
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    sync(path.parent)
    return size


class Files(PeriodicJob):
    """Writes ``drumlin.{suffix}.gz`` into ``directory`` every ``every``, until stopped; a failure is logged and tried again."""

    def __init__(self, store: Store, iris: Iris, directory: Path, syntax: Syntax, every: timedelta) -> None:
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidSettings(f"{directory} cannot be exported to: {error.strerror}") from error
        self.path = directory / f"drumlin{syntax.suffix}.gz"
        for unfinished in directory.glob(f".{self.path.name}-*"):  # of a life that was killed
            unfinished.unlink(missing_ok=True)
        super().__init__("files", every.total_seconds())
        self._store = store
        self._iris = iris
        self._syntax = syntax
        self._written: int | None = None

    def write(self) -> bool:
        """Write the file now, unless the store is as it was; return whether it was written."""
        generation = self._store.generation
        if generation == self._written and self.path.exists():
            return False
        graphs = dump.select(self._store, dump.ALL, self._iris)
        size = write_file(self.path, dump.gzipped(dump.written(graphs, self._syntax)))
        self._written = generation
        log.info("file_exported", path=str(self.path), generation=generation, bytes=size)
        return True

    def turn(self) -> bool:
        """Write the file when there is something new; there is always more to come."""
        self.write()
        return False
