"""A cache of results whose memory is bounded also where its keys are clients' texts.

``functools.lru_cache`` bounds the number of results, not their size: 16,384 keys of a megabyte each are 16 GB.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
LONGEST = 512
"""Characters of a text up to which a result is remembered."""


def remembered(maxsize: int) -> Callable[[F], F]:
    """Remember up to ``maxsize`` results of a function of texts and tuples of texts; those of long ones are computed each time."""

    def decorate(function: F) -> F:
        known = lru_cache(maxsize)(function)

        @wraps(function)
        def call(*given: Any) -> Any:
            for each in given:
                kind = type(each)
                if (kind is str and len(each) > LONGEST) or (kind is tuple and sum(map(len, each)) > LONGEST):
                    return function(*given)
            return known(*given)

        return cast("F", call)

    return decorate
