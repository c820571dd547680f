"""JSONPath in typed projections: paths → the structs that hold exactly what they name, and the values found in them.

The part of RFC 9535 that mappings need: ``$``, ``.name``, ``['name']``, ``[*]``, ``[?@.name=='text']``; and ``| $…``, which goes on
inside a text that is JSON itself. Such a text is replaced, when it is read, by what the paths name in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from drumlin.exporters.kubernetes.selectors import LabelSelector
from drumlin.exporters.protocol import Metadata
from drumlin.kg.errors import InvalidSettings

Scalar = str | int | float | bool | None
_STEP = re.compile(
    r"\.(?P<dotted>[A-Za-z_][A-Za-z0-9_-]*)|\['(?P<quoted>[^']+)'\]|(?P<all>\[\*\])"
    r"|\[\?\s*@\.(?P<key>[A-Za-z_][A-Za-z0-9_-]*)\s*==\s*'(?P<text>[^']*)'\s*\]|(?P<inside>\s*\|\s*\$)"
)


@dataclass(frozen=True, slots=True)
class MemberStep:
    """Go to the member ``name``."""

    name: str


@dataclass(frozen=True, slots=True)
class Elements:
    """Go to the elements of an array or an object; with ``key``, to those whose member ``key`` is ``text``."""

    key: str | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Inside:
    """Go on inside a text that is JSON."""


Step = MemberStep | Elements | Inside
Path = tuple[Step, ...]


@lru_cache(maxsize=4096)  # the same few, for every object
def path(text: str) -> Path:
    """Read a path; raises ``InvalidSettings`` that says where it stops being one."""
    steps: list[Step] = []
    position = 1
    while position < len(text):
        found = _STEP.match(text, position)
        if not found:
            raise InvalidSettings(
                f"{text!r} is not a path from character {position + 1} on",
                hint="write $.spec.name, $.spec.items[*].name, ['a.b'] or [?@.type=='Ready']",
            )
        steps.append(_step(found))
        position = found.end()
    return tuple(steps)


def _step(found: re.Match[str]) -> Step:
    if found["inside"]:
        return Inside()
    if found["all"]:
        return Elements()
    return Elements(found["key"], found["text"]) if found["key"] else MemberStep(found["dotted"] or found["quoted"])


# -- paths → structs ------------------------------------------------------------------------------------------------------


@dataclass
class _Shape:
    """What is named at one place of the resource."""

    members: dict[str, _Shape] = field(default_factory=dict)
    elements: _Shape | None = None
    inside: _Shape | None = None
    leaf: Any = None

    def add(self, steps: Path, leaf: Any) -> None:
        match steps:
            case ():
                self.leaf = leaf
            case (MemberStep(name), *rest):
                self.members.setdefault(name, _Shape()).add(tuple(rest), leaf)
            case (Elements(key), *rest):
                self.elements = self.elements or _Shape()
                if key:
                    self.elements.add((MemberStep(key),), Scalar)
                self.elements.add(tuple(rest), leaf)
            case (Inside(), *rest):
                self.inside = self.inside or _Shape()
                self.inside.add(tuple(rest), leaf)

    def annotation(self, name: str) -> Any:
        if [bool(self.members), self.elements is not None, self.inside is not None, self.leaf is not None].count(
            True
        ) > 1:
            raise InvalidSettings(f"the paths of {name} take one field both for a value and for what holds values")
        if self.members:
            return self.struct(name)
        if self.elements:
            element = self.elements.annotation(name)
            return tuple[element, ...] | dict[str, element] | None  # type: ignore[valid-type]  # a type made at run time
        return str if self.inside else self.leaf

    def struct(
        self, name: str, base: type[msgspec.Struct] = msgspec.Struct, taken: frozenset[str] = frozenset()
    ) -> Any:
        fields = [
            (_attribute(member), shape.annotation(name) | None, msgspec.field(default=None, name=member))
            for member, shape in self.members.items()
            if member not in taken
        ]
        inner = {
            _attribute(member): msgspec.json.Decoder(shape.inside.struct(name))
            for member, shape in self.members.items()
            if shape.inside
        }
        space = {"__post_init__": _looking_inside(inner)} if inner else {}
        return msgspec.defstruct(name, fields, bases=(base,), frozen=True, gc=False, kw_only=True, namespace=space)


def _attribute(member: str) -> str:
    return f"f_{member.encode().hex()}"


def _looking_inside(inner: dict[str, msgspec.json.Decoder[Any]]) -> Any:
    def replaced(self: msgspec.Struct) -> None:
        for attribute, decoder in inner.items():
            text = getattr(self, attribute)
            if isinstance(text, str):
                msgspec.structs.force_setattr(self, attribute, _decoded(decoder, text))

    return replaced


def _decoded(decoder: msgspec.json.Decoder[Any], text: str) -> Any:
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, RecursionError):  # the field may hold any text; what is no such JSON names nothing
        return None


def projection(name: str, paths: Sequence[Path], selectors: Sequence[Path] = ()) -> Any:
    """Return the struct ``name`` that takes what ``paths`` name (single values) and ``selectors`` (LabelSelectors)."""
    whole = _Shape()
    for each in paths:
        whole.add(each, Scalar)
    for each in selectors:
        whole.add(each, LabelSelector)
    metadata = whole.members.pop("metadata", _Shape()).struct(f"{name}Metadata", Metadata, _METADATA)
    made = whole.struct(name)
    return msgspec.defstruct(name, [("metadata", metadata)], bases=(made,), frozen=True, gc=False, kw_only=True)


def extended(part: str, name: str, paths: Sequence[Path], base: type[Any]) -> Any:
    """Return a struct below ``base``, that of a kind's ``part``, that also takes what ``paths`` name there.

    Raises ``InvalidSettings`` for a field that is read already.
    """
    whole = _Shape()
    for each in paths:
        whole.add(each, Scalar)
    members = whole.members.get(part, _Shape())
    taken = frozenset(field.encode_name for field in msgspec.structs.fields(base))
    if again := sorted((members.members.keys() & taken) - (_METADATA if part == "metadata" else frozenset())):
        raise InvalidSettings(f"{again[0]} of this kind are read already; only labels can be named")
    return members.struct(name, base, taken)


_METADATA = frozenset(Metadata.__struct_fields__)


# -- values ---------------------------------------------------------------------------------------------------------------


def found(value: Any, steps: Path) -> Iterator[Any]:
    """Yield what a path finds in a projection, or below one of its elements; nothing for what is absent."""
    if value is None:
        return
    if not steps:
        yield value
        return
    first, rest = steps[0], steps[1:]
    match first:
        case MemberStep(name):
            yield from found(_member(value, name), rest)
        case Elements(key, text):
            for each in value.values() if isinstance(value, dict) else value:
                if key is None or _member(each, key) == text:
                    yield from found(each, rest)
        case Inside():
            yield from found(value, rest)


def _member(value: Any, name: str) -> Any:
    if isinstance(value, dict):  # labels
        return value.get(name)
    if name in ("metadata", "status") and hasattr(value, name):  # the object's own
        return getattr(value, name)
    if isinstance(value, Metadata) and name in _METADATA:
        return getattr(value, name)
    return getattr(value, _attribute(name), None)


def texts(value: Any, steps: Path) -> Iterator[str]:
    """Yield what a path finds, as text; empty texts name nothing."""
    for each in found(value, steps):
        text = str(each).lower() if isinstance(each, bool) else str(each)
        if text:
            yield text
