"""Source: what ``kubectl get … -o json|yaml`` printed, from files, directories or standard input.

Read are Lists, typed lists (``PodList``, whose items name no kind), single objects, several JSON values in a row and multi-document YAML.
What is good is taken; what is broken is rejected with file, position and reason, and never with a value of it.

A dump is a full picture of the kinds that occur in it, so each of them is synced at the end, unless something could not be
read: then nobody can tell what is missing from what is broken, and nothing is taken for gone.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from exporters.printout import Item, Unreadable, items
from exporters.protocol import Change, Clock, Kind, Manifest, Metadata, Rejected, Synced, Upserted
from kg.errors import SourceUnavailable

STDIN = "-"
MAX_BYTES = 1 << 30
"""Largest file that is read; a cluster of 30,000 pods prints about 200 MB."""
_SUFFIXES = frozenset({".json", ".yaml", ".yml"})


class DumpSource:
    """The objects in ``paths`` (files, directories, ``-`` for standard input), one file in memory at a time.

    ``skipped`` counts the objects of kinds that are not in the table of kinds.
    """

    def __init__(self, paths: Sequence[Path | str], kinds: Sequence[Kind], *, clock: Clock) -> None:
        self.name = "dump"
        self.skipped: Counter[str] = Counter()
        self._paths = tuple(str(path) for path in paths)
        self._kinds = {(kind.group, kind.name): kind for kind in kinds}
        self._clock = clock

    def changes(self, stop: threading.Event) -> Iterator[Change]:
        """Yield each object, then ``Synced`` for the kinds that occurred; raises ``SourceUnavailable`` for a missing path."""
        for path in self._paths:
            if path != STDIN and not Path(path).exists():
                raise SourceUnavailable(
                    f"{path} does not exist", hint="give a file, a directory, or - for standard input"
                )
        seen: dict[str, Kind] = {}
        whole = True
        for change in self._objects():
            if stop.is_set():
                return
            if isinstance(change, Rejected):
                whole = False
            else:
                seen[change.kind.name] = change.kind
            yield change
        if whole:
            observed = self._clock()
            yield from (Synced(kind, observed) for kind in seen.values())

    def _objects(self) -> Iterator[Upserted | Rejected]:
        for name, content in self._files():
            if isinstance(content, Rejected):
                yield content
                continue
            for item in items(content):
                change = self._read(name, item)
                if change:
                    yield change

    def _files(self) -> Iterator[tuple[str, bytes | Rejected]]:
        for path in self._paths:
            if path == STDIN:
                yield "standard input", _limited("standard input", sys.stdin.buffer.read(MAX_BYTES + 1))
                continue
            for file in _expanded(Path(path)):
                try:
                    with file.open("rb") as opened:
                        yield str(file), _limited(str(file), opened.read(MAX_BYTES + 1))
                except OSError as error:
                    yield str(file), Rejected(str(file), f"cannot be read: {error.strerror}")

    def _read(self, file: str, item: Item | Unreadable) -> Upserted | Rejected | None:
        if isinstance(item, Unreadable):
            return Rejected(f"{file}: {item.where}", item.reason)
        where = f"{file}: {item.where} ({item.identity})"
        if not item.kind or not item.api_version:
            return Rejected(f"{file}: {item.where}", "is not a Kubernetes object: it has no kind or no apiVersion")
        kind = self._kinds.get((item.api_version.rpartition("/")[0], item.kind))
        if kind is None:
            self.skipped[item.kind] += 1
            return None
        try:
            manifest: Manifest = item.read(kind.projection)
        except msgspec.ValidationError as error:
            return Rejected(where, safe_reason(error))
        except UnicodeDecodeError:
            return Rejected(where, "is not UTF-8 text")
        return _checked(kind, manifest, where)


def _checked(kind: Kind, manifest: Any, where: str) -> Upserted | Rejected:
    metadata: Metadata = manifest.metadata
    if not metadata.name:
        return Rejected(where, "has an empty metadata.name")
    namespace = (metadata.namespace or "default") if kind.namespaced else None
    if namespace == metadata.namespace:
        return Upserted(kind, manifest)
    placed = msgspec.structs.replace(metadata, namespace=namespace)
    return Upserted(kind, msgspec.structs.replace(manifest, metadata=placed))


def safe_reason(error: msgspec.ValidationError) -> str:
    """Return where an object does not fit and which types met; msgspec's message is cut where it could quote a value."""
    said, _, place = str(error).rpartition(" - at `")
    said = said or str(error)
    if said.startswith(("Expected `", "Object missing required field `")):
        return f"{said} at {place.rstrip('`')}" if place else said
    return f"does not fit the kind at {place.rstrip('`')}" if place else "does not fit the kind"


def _expanded(path: Path) -> Iterable[Path]:
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES and file.is_file())
    return (path,)


def _limited(name: str, content: bytes) -> bytes | Rejected:
    if len(content) > MAX_BYTES:
        return Rejected(name, f"is larger than {MAX_BYTES:,} bytes; split it, for instance by kind")
    return content
