"""Source: what ``kubectl get … -o json|yaml`` printed, from files, directories or standard input.

Read are Lists, typed lists (``PodList``, whose items name no kind), single objects, several JSON values in a row, multi-document YAML,
and the events of ``kubectl get -w --output-watch-events``; each plain, compressed or in a tar archive.
What is good is taken; what is broken is rejected with file, position and reason, and never with a value of it.

A dump may be any part of a cluster: objects that it does not hold are not taken for gone, unless it is said for which kinds and
namespaces it is complete (``completeness``). These are synced at the end, unless something could not be read: then nobody can tell
what is missing from what is broken.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from drumlin.exporters.kubectl import packed_files
from drumlin.exporters.kubectl.kubectl_output import EmptyList, Item, UnreadablePart, items
from drumlin.exporters.pipeline.completeness import NOTHING, Completeness, scopes_of
from drumlin.exporters.protocol import Change, Clock, Gone, Kind, Manifest, Metadata, Rejected, Synced, Upserted
from drumlin.kg.errors import InvalidInput, SourceUnavailable
from drumlin.kg.telemetry.graph import time_of

STDIN = "-"
MAX_BYTES = 1 << 30
"""Largest file that is read; a cluster of 30,000 pods prints about 200 MB."""
_Version = tuple[str, int, int, int]


class DumpSource:
    """The objects in ``paths`` (files, directories, ``-`` for standard input), one file in memory at a time.

    Of the last reading, ``skipped`` counts the objects of kinds that are not in the table of kinds, ``empty`` says where lists without
    objects stand, ``whole`` is False when something could not be read.
    """

    def __init__(
        self, paths: Sequence[Path | str], kinds: Sequence[Kind], *, clock: Clock, complete: Completeness = NOTHING
    ) -> None:
        self.name = "dump"
        self.skipped: Counter[str] = Counter()
        self.empty: list[str] = []
        self.whole = True
        self._paths = tuple(str(path) for path in paths)
        self._kinds = {(kind.group, kind.name): kind for kind in kinds}
        self._clock = clock
        self._complete = complete
        self._read_last: tuple[_Version, ...] | None = None
        self._read_at: datetime | None = None
        self._newest = ""  # when the youngest object was made, as manifests write it

    @property
    def has_changed(self) -> bool:
        """Whether the files are others than those that were read last, or have been written since. Standard input never changes."""
        return self._read_last != self._versions()

    @property
    def as_of(self) -> datetime | None:
        """When all of it was so, as far as is known: when the newest file was written, but no object is younger; None before it is read.

        Standard input is of the time at which it was read.
        """
        if self._read_at is None or not self.is_readable_again or not self._read_last:
            return self._read_at
        written = datetime.fromtimestamp(max(each[3] for each in self._read_last) / 1e9, UTC)
        with suppress(ValueError):  # somebody wrote another time than Kubernetes does
            written = max(written, time_of(self._newest))
        return min(written, self._read_at)

    @property
    def is_readable_again(self) -> bool:
        """Whether the same can be read a second time: files can, standard input cannot."""
        return STDIN not in self._paths

    def changes(self, stop: threading.Event) -> Iterator[Change]:
        """Yield each object, then ``Synced`` for what is complete.

        Raises ``SourceUnavailable`` for a missing path, and ``InvalidInput`` when the dump is to be complete and it cannot be told for
        which kinds: it holds no object, or nothing at all.
        """
        self._read_last, self._read_at = self._versions(), self._clock()
        self.skipped.clear()
        self.empty.clear()
        self.whole = True
        self.check_paths()
        kinds: dict[str, Kind] = {}  # by segment
        namespaces: set[str] = set()
        for change in self._objects():
            if stop.is_set():
                return
            if isinstance(change, Rejected):
                self.whole = False
            else:
                kinds[change.kind.segment] = change.kind
                namespaces.update(filter(None, [change.manifest.metadata.namespace]))
                self._newest = max(self._newest, change.manifest.metadata.creationTimestamp or "")
            yield change
        if self.whole and self._complete:
            observed = self._clock()
            seen = scopes_of(kinds.values(), namespaces) if self._complete.seen else ()
            scopes = dict.fromkeys((*self._complete.listed, *seen))
            self._check(scopes, something=bool(kinds or self.empty or self.skipped))
            yield from (Synced(kind, observed, namespace) for kind, namespace in scopes)

    def check_paths(self) -> None:
        """Raise ``SourceUnavailable`` for a path that does not exist."""
        for path in self._paths:
            if path != STDIN and not Path(path).exists():
                raise SourceUnavailable(
                    f"{path} does not exist", hint="give a file, a directory, or - for standard input"
                )

    def _check(self, scopes: Collection[object], *, something: bool) -> None:
        if not something:
            raise InvalidInput(f"{', '.join(self._paths)} holds nothing, so that it cannot be complete for anything")
        if not scopes:
            raise InvalidInput(
                f"{', '.join(self._paths)} holds no object, so that it does not say for which kinds it is complete",
                hint="name them: --complete=pods, or --complete=pods/NAMESPACE",
            )

    def _versions(self) -> tuple[_Version, ...]:
        """Return what distinguishes the present files from others: path, identity, size and time of writing of each."""
        files = [file for path in self._paths if path != STDIN for file in _expanded(Path(path))]
        return tuple(each for file in files if (each := _version(file)))

    def _objects(self) -> Iterator[Upserted | Gone | Rejected]:
        for name, content in self._files():
            if isinstance(content, Rejected):
                yield content
                continue
            for item in items(content):
                if isinstance(item, EmptyList):
                    self.empty.append(f"{name}: {item.where}")
                    continue
                change = self._read(name, item)
                if change:
                    yield change
                if isinstance(change, Upserted) and isinstance(item, Item) and item.deleted:
                    yield Gone(change.kind, change.manifest, self._clock())

    def _files(self) -> Iterator[tuple[str, bytes | Rejected]]:
        for path in self._paths:
            if path == STDIN:
                yield from _unpacked("standard input", sys.stdin.buffer.read(MAX_BYTES + 1))
                continue
            for file in _expanded(Path(path)):
                try:
                    with file.open("rb") as opened:
                        content = opened.read(MAX_BYTES + 1)
                except OSError as error:
                    yield str(file), Rejected(str(file), f"cannot be read: {error.strerror}")
                else:
                    yield from _unpacked(str(file), content)

    def _read(self, file: str, item: Item | UnreadablePart) -> Upserted | Rejected | None:
        if isinstance(item, UnreadablePart):
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


def _version(file: Path) -> _Version | None:
    try:
        found = file.stat()
    except OSError:
        return None  # it is reported when it is read
    return str(file), found.st_ino, found.st_size, found.st_mtime_ns


def _expanded(path: Path) -> Iterable[Path]:
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if packed_files.is_meant(file.name) and file.is_file())
    return (path,)


def _unpacked(name: str, content: bytes) -> Iterator[tuple[str, bytes | Rejected]]:
    """Yield what a file holds, or why that cannot be read."""
    try:
        yield from packed_files.unpacked(name, content, MAX_BYTES)
    except packed_files.TooMuch:
        yield name, Rejected(name, f"is larger than {MAX_BYTES:,} bytes; split it, for instance by kind")
    except packed_files.Damaged:
        yield name, Rejected(name, "is compressed or an archive, and breaks off or is damaged")
