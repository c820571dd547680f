"""``/admin/backup``, ``/admin/check``, ``/admin/optimize``: what an operator does to a store while it serves."""

from __future__ import annotations

import shutil
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends
from starlette.responses import Response

from drumlin.api.bootstrap import Services, now, parts
from drumlin.api.http.streaming import BodyStream
from drumlin.kg.errors import CapabilityMissing, Conflict
from drumlin.kg.store.embedded import backups
from drumlin.kg.store.embedded.consistency import check
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.remote.engine import Capability

router = APIRouter(tags=["operations"], prefix="/admin")
Service = Annotated[Services, Depends(parts)]
_ONE = threading.Lock()
_CHUNK = 256 * 1024


def _store(service: Services) -> EmbeddedStore:
    if not isinstance(service.store, EmbeddedStore):
        raise CapabilityMissing(
            "this service keeps its graphs in an engine elsewhere",
            hint="back up, check and optimize it with its own tools",
            detail={"capability": Capability.CHECKPOINT.name},
        )
    return service.store


@contextmanager
def _alone() -> Iterator[None]:
    """Let one operation run at a time: each reads or writes the whole store."""
    if not _ONE.acquire(blocking=False):
        raise Conflict("another operation on the store is running", hint="wait for it to end")
    try:
        yield
    finally:
        _ONE.release()


@router.post("/backup", summary="Take a backup", response_class=Response)
def backup(service: Service) -> BodyStream:
    """Stream one generation of the store as a tar of a store directory, while others write; `drumlin backup DIR` unpacks and proves it."""
    return BodyStream(_backup(_store(service), service.settings.base), "application/x-tar")


def _backup(store: EmbeddedStore, base: str) -> Iterator[bytes]:
    folder = store.scratch("backup-")
    try:
        with _alone():
            backups.take(store, base, folder, now())
        yield from _tar(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _tar(folder: Path) -> Iterator[bytes]:
    """Write the files of a folder as a tar, in bounded memory (``tarfile`` writes into files only)."""
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        header = tarfile.TarInfo(path.relative_to(folder).as_posix())
        header.size, header.mtime = path.stat().st_size, int(path.stat().st_mtime)
        yield header.tobuf()
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk
        yield bytes(-header.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


@router.get("/check", summary="Check the store")
def checked(service: Service) -> dict[str, Any]:
    """Read the whole store and hold quads, entries and change log against each other; ``whole`` is false when there is a fault."""
    with _alone(), _store(service).snapshot() as snapshot:
        report = check(snapshot, service.iris)
    return {"whole": report.whole, **msgspec.to_builtins(report)}


@router.post("/optimize", summary="Merge the store's files")
def optimize(service: Service) -> dict[str, Any]:
    """Merge the engine's files, which makes queries faster after many writes, and say how many bytes there were and are.

    Where they have outgrown the graphs they are built anew.
    """
    store = _store(service)
    began = time.perf_counter()
    before = store.stored_bytes()
    with _alone():
        store.optimize()
    return {"before": before, "after": store.stored_bytes(), "seconds": round(time.perf_counter() - began, 3)}
