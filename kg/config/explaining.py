"""What is wrong with a value, in our own words: the validation library's speak of its types and inputs.

Apart because settings, parameters of requests and files of custom resources are validated by the same library. A wrong value is never
shown: it may be a secret. Kinds of error: https://docs.pydantic.dev/latest/errors/validation_errors/
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel

_SAID: Mapping[str, str] = {
    "missing": "is missing",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be {ge} or more",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be {le} or less",
    "multiple_of": "must be a multiple of {multiple_of}",
    "string_too_short": "must have {min_length} or more characters",
    "string_too_long": "must have {max_length} characters at most",
    "string_pattern_mismatch": "must fit the pattern {pattern}",
    "too_short": "must have {min_length} or more items",
    "too_long": "must have {max_length} items at most",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "union_tag_invalid": "must have one of {expected_tags} as {discriminator}",
    "union_tag_not_found": "must have {discriminator}",
    "finite_number": "must be a finite number",
    "extra_forbidden": "is not known here",
    "json_invalid": "must be valid JSON",
    "url_scheme": "must begin with {expected_schemes}",
}
_BEGINNINGS: Sequence[tuple[str, str]] = (
    ("int_", "must be a whole number"),
    ("float_", "must be a number"),
    ("decimal_", "must be a number"),
    ("complex_", "must be a number"),
    ("bool_", "must be true or false"),
    ("string_", "must be a text"),
    ("bytes_", "must be a text"),
    ("url_", "must be the address of a server, with http:// or https://"),
    ("datetime_", "must be a time, such as 2026-11-28T00:00:00Z"),
    ("date_", "must be a date, such as 2026-11-28"),
    ("timezone_", "must be a time with a zone, such as 2026-11-28T00:00:00Z"),
    ("time_", "must be a length of time"),
    ("path_", "must be a path"),
    ("json_", "must be valid JSON"),
    ("dict_", "must be a table of names and values"),
    ("mapping_", "must be a table of names and values"),
    ("model_", "must be a table of names and values"),
    ("dataclass_", "must be a table of names and values"),
    ("list_", "must be a list"),
    ("tuple_", "must be a list"),
    ("set_", "must be a list"),
    ("frozen_set_", "must be a list"),
    ("iter", "must be a list"),
)
_OWN = frozenset({"value_error", "assertion_error"})


def explained(error: Mapping[str, Any]) -> str:
    """Return what is wrong with a value, of one error of the library's list (``type``, ``ctx``, ``msg``, and its ``input`` if known).

    The input only serves to find which of a few values may have been meant.
    """
    kind, context = str(error["type"]), error.get("ctx") or {}
    if kind in _OWN:  # raised by a validator of ours
        return str(error["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if kind == "string_too_short" and context.get("min_length") == 1:
        return "must not be empty"
    if said := _SAID.get(kind):
        return said.format_map(_ErrorContext(context)) + _choice(context.get("expected"), error.get("input"))
    return next(
        (text for beginning, text in _BEGINNINGS if kind.startswith(beginning)), "has a value that does not fit"
    )


def _choice(expected: Any, given: Any) -> str:
    """Return which of the values that are ``expected`` may have been meant."""
    if not isinstance(expected, str) or not isinstance(given, str):
        return ""
    near = get_close_matches(given[:64], re.findall("'([^']*)'", expected), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


class _ErrorContext(dict[str, Any]):
    """What an error says of itself; what it does not is left out."""

    def __missing__(self, key: str) -> str:
        return "another value"


def place(error: Mapping[str, Any]) -> list[str]:
    """Return where the value stands, as its writer knows it: without the types that the library tried."""
    return [str(part) for part in error["loc"] if not any(sign in str(part) for sign in "[(")]


def meant(parts: Sequence[str], root: type[BaseModel]) -> str | None:
    """Return the setting that may have been meant: one of this name in another table, else a similar one in the same.

    ``parts`` is the place of what there is not, below the model ``root``.
    """
    *path, name = parts
    model: type[BaseModel] | None = root
    for each in path:
        if model is not None and not each.isdigit():
            field = model.model_fields.get(each)
            model = model_in(field.annotation) if field else None
    if path and name in root.model_fields:
        return name
    for group, field in root.model_fields.items():
        inner = model_in(field.annotation)
        if inner is not None and inner is not model and name in inner.model_fields:
            return f"{group}.{name}"
    return next(iter(get_close_matches(name[:64], list(model.model_fields) if model else (), n=1)), None)


def model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model that a field holds, alone or in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for each in get_args(annotation) if (found := model_in(each))), None)
