"""What holds for all tests."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import hypothesis
import pytest

if os.environ.get("CI") != "true":  # where hypothesis does so by itself
    hypothesis.settings.register_profile("unhurried", deadline=None)  # on a busy machine any example may take a second
    hypothesis.settings.load_profile("unhurried")


@pytest.fixture(autouse=True, scope="module")
def _collected() -> Iterator[None]:
    """Collect garbage between modules, in the main thread.

    A result of the engine may only be dropped by the thread that made it. A test that provokes an error leaves one in a cycle with its
    traceback; collected later, by chance in a thread of another test, it would be that test's failure. What is left is imported modules
    and collected tests, which go nowhere: no later collection looks at them again.
    """
    yield
    gc.collect()
    gc.freeze()
