"""The arguments of tools: their JSON schema, and the check of what a model sends, with errors that it can act on. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

from drumlin.kg.errors import InvalidInput

_TYPES: Mapping[str, type] = {"string": str, "integer": int, "object": dict}
_LONGEST = 20_000  # characters of a text: longer than any query a model writes


@dataclass(frozen=True, slots=True)
class ToolArgument:
    """One argument of a tool; without ``default`` it must be given."""

    name: str
    description: str
    type: Literal["string", "integer", "object"] = "string"
    default: Any = None
    required: bool = False
    least: int = 1
    most: int = 100

    @property
    def schema(self) -> dict[str, Any]:
        """Its JSON schema."""
        found: dict[str, Any] = {"type": self.type, "description": self.description}
        if self.type == "integer":
            found |= {"minimum": self.least, "maximum": self.most}
        if self.type == "object":
            found["additionalProperties"] = {"type": ["string", "number", "boolean"]}
        if self.default is not None:
            found["default"] = self.default
        return found


def schema_of(arguments: Sequence[ToolArgument]) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments."""
    return {
        "type": "object",
        "properties": {each.name: each.schema for each in arguments},
        "required": [each.name for each in arguments if each.required],
        "additionalProperties": False,
    }


def checked(tool: str, arguments: Sequence[ToolArgument], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call with their defaults; raises ``InvalidInput`` for one that is unknown, missing or wrong.

    A number that is sent as text is taken, as models do that.
    """
    known = {each.name: each for each in arguments}
    for name in given:
        if name not in known:
            near = get_close_matches(str(name)[:64], known, n=1)
            raise InvalidInput(
                f"{tool} has no argument {str(name)[:64]!r}",
                hint=f"did you mean {near[0]}?" if near else f"it takes {', '.join(known) or 'none'}",
            )
    for each in arguments:
        if each.required and given.get(each.name) in (None, ""):
            raise InvalidInput(f"{tool} needs the argument {each.name}", hint=each.description)
    found = {each.name: each.default for each in arguments}
    return found | {name: _value(known[name], value) for name, value in given.items() if value is not None}


def _value(argument: ToolArgument, value: Any) -> Any:
    if argument.type == "integer":
        return _number(argument, value)
    if not isinstance(value, _TYPES[argument.type]):
        what = "a text" if argument.type == "string" else "an object of names and values"
        raise InvalidInput(f"{argument.name} must be {what}", hint=argument.description)
    if isinstance(value, str) and len(value) > _LONGEST:
        raise InvalidInput(f"{argument.name} has {len(value):,} characters; the limit is {_LONGEST:,}")
    if isinstance(value, dict) and not all(isinstance(each, str | int | float | bool) for each in value.values()):
        raise InvalidInput(f"the values of {argument.name} must be texts, numbers, true or false")
    return value


def _number(argument: ToolArgument, value: Any) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not text.isascii() or not text.isdigit() or len(text) > 9:
        raise InvalidInput(f"{argument.name} must be a whole number", hint=argument.description)
    if not argument.least <= int(text) <= argument.most:
        raise InvalidInput(f"{argument.name} must be from {argument.least} to {argument.most:,}")
    return int(text)
