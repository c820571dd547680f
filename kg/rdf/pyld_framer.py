"""The framer: pyld with a deadline, and without a network. Imported when something is framed: it brings requests and lxml along, 10 MB."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NoReturn

from pyld import jsonld as pyld

from drumlin.kg.errors import InvalidDocument, TooLarge


def deny(url: str, options: Mapping[str, Any]) -> NoReturn:
    """Stand in for pyld's loader, which would fetch."""
    del options
    raise InvalidDocument(f"{url[:200]!r} is not fetched: nothing is because a document says so")


pyld.set_document_loader(deny)


def framed_within(seconds: float, expanded: list[dict[str, Any]], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Frame expanded JSON-LD; blocks up to ``seconds``, then raises ``TooLarge``. ``InvalidDocument`` when ``wanted`` is not a frame."""
    try:
        framed: dict[str, Any] = Bounded(seconds).frame(expanded, wanted, {"documentLoader": deny})
    except (pyld.JsonLdError, TypeError, KeyError, AttributeError, IndexError, ValueError) as error:
        # pyld takes a frame apart before it has checked it: these are what odd ones end in.
        if (late := _cause(error, _TooLong)) is not None:
            raise TooLarge(f"framing takes longer than {seconds:g} s", hint="ask for less with @embed: @once") from late
        raise InvalidDocument(f"the document is not a frame: {_said(error)}") from error
    except _TooLong as late:
        raise TooLarge(f"framing takes longer than {seconds:g} s", hint="ask for less with @embed: @once") from late
    return framed


def _said(error: Exception) -> str:
    return str(error.args[0] if error.args else error).partition("\n")[0][:200]


def _cause(error: BaseException | None, kind: type[Exception]) -> BaseException | None:
    while error is not None and not isinstance(error, kind):
        error = error.__cause__
    return error


class _TooLong(Exception):
    """The deadline has passed."""


class Bounded(pyld.JsonLdProcessor):  # type: ignore[misc]  # pyld has no types
    """Pyld's processor with a deadline, looked at in the three recursions that all work goes through."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._deadline = time.monotonic() + seconds

    def _in_time(self) -> None:
        if time.monotonic() > self._deadline:
            raise _TooLong

    def _match_frame(self, *arguments: Any, **options: Any) -> Any:
        self._in_time()
        return super()._match_frame(*arguments, **options)

    def _expand(self, *arguments: Any, **options: Any) -> Any:
        self._in_time()
        return super()._expand(*arguments, **options)

    def _compact(self, *arguments: Any, **options: Any) -> Any:
        self._in_time()
        return super()._compact(*arguments, **options)
