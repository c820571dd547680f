"""Wait for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 30.0
"""Seconds within which something must have come to be."""


def until(true: Callable[[], object], within: float = PATIENCE) -> None:
    """Wait until something is so; fails when it is not within that many seconds."""
    ends = time.monotonic() + within
    while not true():
        assert time.monotonic() < ends, "it did not come to be"
        time.sleep(0.005)
