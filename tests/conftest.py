"""What holds for all tests."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import structlog

from tests.thoroughness import register_profiles

register_profiles()


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


@pytest.fixture(autouse=True)
def _own_log() -> Iterator[None]:
    """Give each test the log as it was: a command that runs in the tests' process has it go to a stderr that ends with the test."""
    configured = structlog.get_config()
    yield
    structlog.configure(**configured)
