"""What graphs were rendered from, so that a process that begins anew need not render again those that would come out the same.

A document follows from the manifest, the runs, the facts that other objects publish, and the surroundings: settings, templates,
datasources, the code. Of each graph its runs are kept, a fingerprint of the manifest, and the topics that were read with a
fingerprint of their facts, all under one fingerprint of the surroundings. The file proves nothing about the store: it is
believed of a graph whose digest in the store is the one that it names. A file that is absent, damaged or of another format
costs the time to render everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import structlog
from pydantic import BaseModel

import drumlin
from drumlin.exporters.pipeline.runs import Run
from drumlin.exporters.protocol import Topic

log = structlog.get_logger()

_FORMAT = 1
_SIZE = 16  # bytes of a fingerprint
_PARTS = ("exporters", "kg", "ontology")  # of the code: what a document and its statements come from


class Rendering(NamedTuple):
    """What a graph with a ``digest`` was rendered from: fingerprints of the manifest and of the facts on ``topics``; and its runs."""

    digest: str
    runs: tuple[Run, ...]
    manifest: bytes
    topics: tuple[Topic, ...]
    facts: bytes


class _File(msgspec.Struct, array_like=True):
    format: int
    surroundings: bytes
    reads: list[tuple[tuple[Topic, ...], bytes]]  # topics that were read together, and their facts
    graphs: dict[str, tuple[str, tuple[Run, ...], bytes, int]]  # digest, runs, manifest, place in ``reads``


class Renderings:
    """What an earlier process noted in a ``file``, in the same ``surroundings``; without a file (None), nothing."""

    def __init__(self, file: Path | None, surroundings: bytes | None = None) -> None:
        self._file = file
        held = _read(file) if file else None
        self._held = held if held and held.surroundings == surroundings else None

    def __len__(self) -> int:
        """Return of how many graphs it is known."""
        return len(self._held.graphs) if self._held else 0

    @property
    def are_kept(self) -> bool:
        """Whether there is a file to note them in."""
        return self._file is not None

    def of(self, graph: str, digest: str) -> Rendering | None:
        """Return what a graph that has a digest now was rendered from; None when that is not known."""
        found = self._held.graphs.get(graph) if self._held else None
        if self._held is None or found is None or found[0] != digest:
            return None
        return Rendering(*found[:-1], *self._held.reads[found[-1]])

    def forget(self) -> None:
        """Free the memory; the file stays."""
        self._held = None

    def write(self, surroundings: bytes | None, found: Iterable[tuple[str, Rendering]]) -> None:
        """Replace the file; where the disk does not take it, the old one stays, and it is logged."""
        if self._file is None or surroundings is None:
            return
        reads: dict[tuple[tuple[Topic, ...], bytes], int] = {}
        graphs = {
            graph: (each.digest, each.runs, each.manifest, reads.setdefault((each.topics, each.facts), len(reads)))
            for graph, each in found
        }
        content = msgspec.msgpack.encode(_File(_FORMAT, surroundings, list(reads), graphs))
        beside = self._file.with_name(self._file.name + ".new")
        try:
            beside.write_bytes(_check(content) + content)
            beside.replace(self._file)
        except OSError as error:
            log.warning("renderings_not_kept", file=str(self._file), reason=str(error))
            beside.unlink(missing_ok=True)


NO_RENDERINGS = Renderings(None)


def _read(file: Path) -> _File | None:
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("renderings_not_read", file=str(file), reason=str(error))
        return None
    if _check(content[_SIZE:]) != content[:_SIZE]:
        log.warning("renderings_not_read", file=str(file), reason="it is damaged")
        return None
    try:
        held = msgspec.msgpack.decode(memoryview(content)[_SIZE:], type=_File)
    except msgspec.DecodeError:
        return None  # of another format
    return held if held.format == _FORMAT else None


def _check(content: bytes) -> bytes:
    return blake2b(content, digest_size=_SIZE).digest()


def fingerprint(*values: object) -> bytes | None:
    """Return what distinguishes these values from others, the same in every process; None for what cannot be told so."""
    try:
        return blake2b(_ENCODER.encode(values), digest_size=_SIZE).digest()
    except (TypeError, ValueError, OverflowError):
        return None


def _plain(value: Any) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_plain, order="deterministic")


@cache
def fingerprint_of_code() -> bytes:
    """Return what distinguishes the code and data that documents come from: another version may say the same thing otherwise."""
    found = blake2b(digest_size=_SIZE)
    for file in sorted(_files()):
        found.update(f"{file.name} {file.stat().st_size} ".encode())
        found.update(file.read_bytes())
    return found.digest()


def _files() -> Iterator[Path]:
    for root in drumlin.__path__:
        for part in _PARTS:
            folder = (Path(root) / part).resolve()
            yield from (each for each in folder.rglob("*") if each.is_file() and each.suffix != ".pyc")
