"""Text of manifests → single objects with their positions: the grammar of what kubectl prints, in JSON and in YAML.

JSON is cut into raw objects by msgspec without building them; only a broken file is read again, slowly, to save what stands before
the break. YAML is read document by document, so that one broken document costs only itself. YAML 1.2: https://yaml.org/spec/1.2.2/
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

import msgspec
import yaml

T = TypeVar("T")

MOST_ALIASES = 100
"""Aliases in one YAML document: kubectl prints none, people a few, and nested ones multiply."""


class _Names(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str | None = None


class _Header(msgspec.Struct, frozen=True):
    """What says which object it is, or that it is a list of objects."""

    kind: str = ""
    apiVersion: str = ""
    metadata: _Names | None = None


class _RawEvent(msgspec.Struct, frozen=True):
    """What ``kubectl get -w --output-watch-events`` prints around each object."""

    type: str = ""
    object: msgspec.Raw = msgspec.Raw()  # empty where there is none


class _Event(msgspec.Struct, frozen=True):
    """The same of YAML."""

    type: str = ""
    object: Any = None


class _RawList(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw] | None = None


class _List(msgspec.Struct, frozen=True):
    items: list[Any] | None = None


@dataclass(frozen=True, slots=True)
class UnreadablePart:
    """A part of a file that is no object: where it stands and why, without any of its text."""

    where: str
    reason: str


@dataclass(frozen=True, slots=True)
class EmptyList:
    """A list without an object: where it stands. It does not say of which kind the objects would be."""

    where: str


@dataclass(frozen=True, slots=True)
class Item:
    """One object: its position in the file, what it is called, and its content, not yet looked into."""

    where: str
    kind: str
    api_version: str
    names: _Names
    content: msgspec.Raw | Any
    deleted: bool = False  # whether an event reports its end

    @property
    def identity(self) -> str:
        """Kind, namespace and name, as kubectl writes them."""
        place = f"{self.names.namespace}/" if self.names.namespace else ""
        return f"{self.kind} {place}{self.names.name or '?'}"

    def read(self, projection: type[T]) -> T:
        """Take from the object what ``projection`` names; raises ``msgspec.ValidationError``."""
        return _taken(self.content, projection)


def items(content: bytes) -> Iterator[Item | EmptyList | UnreadablePart]:
    """Yield the objects in one file's ``content``, those of lists one by one."""
    start = content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if not start:
        yield UnreadablePart("the whole of it", "is empty")
    elif start in b"{[":
        yield from _json(content)
    else:
        yield from _yaml(content)


# -- JSON -----------------------------------------------------------------------------------------------------------------


def _json(content: bytes) -> Iterator[Item | EmptyList | UnreadablePart]:
    body = content.removeprefix(b"\xef\xbb\xbf")
    try:
        whole = msgspec.json.decode(body, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        yield from _salvaged(body)
    else:
        yield from _objects(whole, "document 1")


def _salvaged(body: bytes) -> Iterator[Item | EmptyList | UnreadablePart]:
    """Read value after value; of the one that breaks off, yield the list items before the break."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        yield UnreadablePart(f"byte {error.start + 1}", "is not UTF-8 text")
        return
    decoder = json.JSONDecoder()
    position, document = _skip(text, 0), 0
    while position < len(text):
        document += 1
        try:
            _, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            yield from _items_before_break(text, position, document)
            yield _broken(text, error)
            return
        yield from _objects(msgspec.Raw(text[position:end].encode()), f"document {document}")
        position = _skip(text, end)


_ITEMS = re.compile(r'"items"\s*:\s*\[')
_LIST_KIND = re.compile(r'"kind"\s*:\s*"([A-Za-z]+)List"')
_LIST_VERSION = re.compile(r'"apiVersion"\s*:\s*"([^"\\]+)"')


def _items_before_break(text: str, start: int, document: int) -> Iterator[Item | UnreadablePart]:
    opening = _ITEMS.search(text, start)
    if not opening:
        return
    head = text[start : opening.start()]
    kind, version = _LIST_KIND.search(head), _LIST_VERSION.search(head)
    parent = _Header(f"{kind[1]}List" if kind else "", version[1] if version else "")
    decoder = json.JSONDecoder()
    position, number = _skip(text, opening.end()), 0
    while position < len(text) and text[position] == "{":
        try:
            _, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            return
        number += 1
        raw = msgspec.Raw(text[position:end].encode())
        yield _item(raw, f"document {document}, item {number}", parent)
        position = _skip(text, end)
        if text[position : position + 1] == ",":
            position = _skip(text, position + 1)


_SPACE = re.compile(r"[ \t\r\n]*")


def _skip(text: str, position: int) -> int:
    return _SPACE.match(text, position).end()  # type: ignore[union-attr]  # matches the empty text, too


def _broken(text: str, error: Exception) -> UnreadablePart:
    if not isinstance(error, json.JSONDecodeError):
        return UnreadablePart("the whole of it", "is nested too deeply to be JSON of Kubernetes")
    where = f"line {error.lineno}, column {error.colno}"
    # An unterminated string is reported where it begins, which may be far from the end of a file that was cut.
    cut = not text[error.pos :].strip() or "Unterminated" in error.msg
    return UnreadablePart(where, "the JSON breaks off here" if cut else "is not JSON from here on")


# -- YAML -----------------------------------------------------------------------------------------------------------------


class _Loader(yaml.CSafeLoader):
    """The safe loader without the types that JSON does not have: a time or a date stays the text that it is."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":value", ":merge"))]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}

_MARK = re.compile(rb"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
_ALIAS = re.compile(rb"[\s\[,{:]\*[^\s\[\],{}*]")


def _yaml(content: bytes) -> Iterator[Item | EmptyList | UnreadablePart]:
    number = 0
    for line, text in _documents(content):
        if not _says_anything(text):
            continue
        number += 1
        if too_many := _too_many_aliases(text):
            yield UnreadablePart(f"document {number}", f"has {too_many} YAML aliases; the limit is {MOST_ALIASES}")
            continue
        try:
            loaded = yaml.load(text, Loader=_Loader)  # noqa: S506  a subclass of the safe loader
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            where = f", line {line + mark.line + 1}, column {mark.column + 1}" if mark else ""
            yield UnreadablePart(f"document {number}{where}", "is not YAML from here on")
        except (yaml.YAMLError, ValueError, RecursionError):
            yield UnreadablePart(f"document {number}, from line {line + 1}", "is not YAML text")
        else:
            if loaded is not None:
                yield from _objects(loaded, f"document {number}")


def _documents(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Cut a stream at its document marks; with each part comes how many lines stand before it.

    ``---`` at the start of a line is a mark wherever it stands (YAML 1.2 §9.1.2), even inside a quoted text.
    """
    starts = [0, *(match.start() for match in _MARK.finditer(content)), len(content)]
    line = 0
    for start, end in pairwise(starts):
        yield line, content[start:end]
        line += content.count(b"\n", start, end)


def _says_anything(text: bytes) -> bool:
    lines = text.removeprefix(b"---").splitlines()
    return any(line.strip() and not line.lstrip().startswith(b"#") for line in lines)


def _too_many_aliases(text: bytes) -> int:
    if len(_ALIAS.findall(text)) <= MOST_ALIASES:  # what looks like one is often a part of a text
        return 0
    try:
        aliases = sum(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=_Loader))
    except (yaml.YAMLError, ValueError):
        return 0  # reported when it is loaded
    return aliases if aliases > MOST_ALIASES else 0


# -- objects --------------------------------------------------------------------------------------------------------------


def _objects(content: msgspec.Raw | Any, where: str) -> Iterator[Item | EmptyList | UnreadablePart]:
    try:
        header = _taken(content, _Header)
        found = _listed(content, header) if header.kind.endswith("List") else None
        event = None if header.kind else _event(content)
    except (msgspec.ValidationError, UnicodeDecodeError):
        yield UnreadablePart(where, "is not a Kubernetes object")
        return
    if event is not None:
        yield from _of_event(event, where)
        return
    if found is None:
        yield _item(content, where, None)
        return
    if not found:
        yield EmptyList(where)
    for number, each in enumerate(found, 1):
        yield _item(each, f"{where}, item {number}", header)


_PRESENT, _GONE, _ERROR = frozenset({"ADDED", "MODIFIED"}), "DELETED", "ERROR"


def _event(content: msgspec.Raw | Any) -> _RawEvent | _Event | None:
    """Return a watch event; None for anything else."""
    event: _RawEvent | _Event
    event = _taken(content, _RawEvent) if isinstance(content, msgspec.Raw) else _taken(content, _Event)
    present = len(bytes(event.object)) if isinstance(event, _RawEvent) else event.object
    return event if present and event.type in {*_PRESENT, _GONE, _ERROR, "BOOKMARK"} else None


def _of_event(event: _RawEvent | _Event, where: str) -> Iterator[Item | UnreadablePart]:
    """Yield the object of an event; a bookmark has none."""
    if event.type == _ERROR:
        yield UnreadablePart(where, "is an error of the API server, which ended the watch")
    elif event.type in _PRESENT:
        yield _item(event.object, where, None)
    elif event.type == _GONE:
        item = _item(event.object, where, None)
        yield replace(item, deleted=True) if isinstance(item, Item) else item


def _listed(content: msgspec.Raw | Any, header: _Header) -> Sequence[msgspec.Raw | Any] | None:
    """Return a list's items; None for an object with a name, whose kind only ends in List."""
    found = _taken(content, _RawList if isinstance(content, msgspec.Raw) else _List).items  # type: ignore[attr-defined]  # both have items
    return None if found is None and header.metadata and header.metadata.name else found or ()


def _item(content: msgspec.Raw | Any, where: str, parent: _Header | None) -> Item | UnreadablePart:
    try:
        header = _taken(content, _Header)
    except (msgspec.ValidationError, UnicodeDecodeError):
        return UnreadablePart(where, "is not a Kubernetes object")
    kind, version = header.kind, header.apiVersion
    if parent and parent.kind != "List":  # items of a typed list leave out what the list says
        kind, version = kind or parent.kind.removesuffix("List"), version or parent.apiVersion
    return Item(where, kind, version, header.metadata or _Names(), content)


def _taken(content: msgspec.Raw | Any, projection: type[T]) -> T:
    if isinstance(content, msgspec.Raw):
        return msgspec.json.decode(content, type=projection)
    return msgspec.convert(content, type=projection)
