"""Bytes of the API server → typed projections: pages of a list, lines of a watch.

msgspec parses only the fields that a kind's projection names. One object that does not fit its projection is set aside with
its identity; the rest of the page is read. Watch lines: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from drumlin.exporters.kubernetes.access import StreamBroken
from drumlin.exporters.protocol import Kind, Manifest

MAX_LINE = 32 * 1024 * 1024
"""Longest watch line in bytes; the server's own limit for an object is a tenth of it."""

INITIAL_EVENTS_END = "k8s.io/initial-events-end"

# The safe part of msgspec's message: types and the path, never a value.
_MISFIT = re.compile(r"(?:Expected `[^`]*`, got `[^`]*`|Object missing required field `[^`]*`)")
_PLACE = re.compile(r" - at `[^`]*`$")

T = TypeVar("T")


class _ListMeta(msgspec.Struct, frozen=True):
    resourceVersion: str = ""
    token: str = msgspec.field(default="", name="continue")
    remainingItemCount: int = 0


class _Page(msgspec.Struct, Generic[T], frozen=True):
    metadata: _ListMeta
    items: list[T] | None = None  # Go writes an empty list as null


class _ManifestNames(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str | None = None
    uid: str = ""
    resourceVersion: str = ""


class _Identity(msgspec.Struct, frozen=True):
    metadata: _ManifestNames = _ManifestNames()


class Bookmark(msgspec.Struct, frozen=True):
    """A BOOKMARK's metadata; all else in it is a zero value (``spec.containers: null``) and is not read."""

    resourceVersion: str = ""
    annotations: dict[str, str] | None = None

    @property
    def ends_initial_events(self) -> bool:
        """Whether everything that existed when the watch-list began has been sent."""
        return (self.annotations or {}).get(INITIAL_EVENTS_END) == "true"


class _Bookmark(msgspec.Struct, frozen=True):
    metadata: Bookmark


class _Details(msgspec.Struct, frozen=True):
    retryAfterSeconds: int = 0


class WatchFailure(msgspec.Struct, frozen=True):
    """The Status inside an ERROR event."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None

    @property
    def retry_after(self) -> float | None:
        """Seconds the server asks to wait, if it does."""
        return float(self.details.retryAfterSeconds) or None if self.details else None


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch; ``object`` is decoded by what ``type`` says it is."""

    type: str
    object: msgspec.Raw


@dataclass(frozen=True, slots=True)
class UnreadableObject:
    """An object that does not fit its projection: its identity as far as it can be read, and why (never a value)."""

    name: str
    namespace: str | None
    uid: str
    version: str
    reason: str


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of a list; ``token`` is empty on the last, ``remaining`` is what the server says is left after it."""

    objects: list[Manifest | UnreadableObject]
    version: str
    token: str
    remaining: int


class ManifestDecoder:
    """Decodes what the API server sends about one kind."""

    def __init__(self, kind: Kind) -> None:
        self._typed = msgspec.json.Decoder(_Page[kind.projection])  # type: ignore[name-defined]  # a type made at run time
        self._loose = msgspec.json.Decoder(_Page[msgspec.Raw])
        self._object = msgspec.json.Decoder(kind.projection)
        self._identity = msgspec.json.Decoder(_Identity)
        self._event = msgspec.json.Decoder(WatchEvent)
        self._bookmark = msgspec.json.Decoder(_Bookmark)
        self._failure = msgspec.json.Decoder(WatchFailure)

    def page(self, body: bytes) -> ListPage:
        """Decode one page. Raises ``StreamBroken`` when it is not a whole list."""
        objects: list[Manifest | UnreadableObject]
        try:
            page: _Page[Any] = self._typed.decode(body)
            objects = [each if each.metadata.uid else _nameless() for each in page.items or ()]
        except msgspec.ValidationError:  # some object does not fit: take the others
            page = _decoded(self._loose, body)
            objects = [self.object(each) for each in page.items or ()]
        except msgspec.DecodeError as error:
            raise StreamBroken("a page of the list is not whole JSON") from error
        meta = page.metadata
        return ListPage(objects, meta.resourceVersion, meta.token, meta.remainingItemCount)

    def object(self, raw: msgspec.Raw) -> Manifest | UnreadableObject:
        """Decode one object; one that does not fit comes back as ``UnreadableObject``."""
        try:
            manifest: Manifest = self._object.decode(raw)
        except msgspec.ValidationError as error:
            return self._unreadable(raw, error)
        except msgspec.DecodeError as error:
            raise StreamBroken("an object is not whole JSON") from error
        return manifest if manifest.metadata.uid else _nameless(manifest.metadata.name, manifest.metadata.namespace)

    def _unreadable(self, raw: msgspec.Raw, error: msgspec.ValidationError) -> UnreadableObject:
        said = str(error)
        what, place = _MISFIT.match(said), _PLACE.search(said)
        reason = f"{what[0] if what else 'does not fit the kind'}{place[0] if place else ''}"
        try:
            names = self._identity.decode(raw).metadata
        except msgspec.ValidationError:
            names = _ManifestNames()  # even its metadata is not what Kubernetes writes
        return UnreadableObject(names.name, names.namespace, names.uid, names.resourceVersion, reason)

    def event(self, line: bytes) -> WatchEvent:
        """Decode one line of a watch. Raises ``StreamBroken`` for what is not an event."""
        return _decoded(self._event, line)

    def bookmark(self, event: WatchEvent) -> Bookmark:
        """Return the metadata of a BOOKMARK."""
        return _decoded(self._bookmark, event.object).metadata

    def failure(self, event: WatchEvent) -> WatchFailure:
        """Return the Status of an ERROR event."""
        return _decoded(self._failure, event.object)


def _decoded(decoder: msgspec.json.Decoder[T], content: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(content)
    except msgspec.DecodeError as error:
        raise StreamBroken("the API server sent what is not Kubernetes' JSON") from error


def _nameless(name: str = "", namespace: str | None = None) -> UnreadableObject:
    return UnreadableObject(name, namespace, "", "", "Object missing required field `uid` - at `$.metadata`")


def lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Cut ``chunks`` into lines without their ends. Raises ``StreamBroken`` for an unended last or an endless line."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from filter(None, whole)
        if len(rest) > MAX_LINE:
            raise StreamBroken(f"a line of the watch is longer than {MAX_LINE} bytes")
    if rest:
        raise StreamBroken("the watch ended in the middle of a line")
