"""What holds for all tests."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _collected() -> Iterator[None]:
    """Collect garbage between modules, in the main thread.

    A result of the engine may only be dropped by the thread that made it. A test that provokes an error leaves one in a cycle with its
    traceback; collected later, by chance in a thread of another test, it would be that test's failure.
    """
    yield
    gc.collect()
