"""The garbage collector leaves alone what is kept, and still finds what is garbage."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from drumlin.exporters.pipeline.gc_tuning import GcFreezer


class Knot:
    """Something that only the collector can free: it holds itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def unfrozen() -> Iterator[None]:
    """Leave the collector as it was."""
    yield
    gc.unfreeze()


def test_what_was_kept_is_set_aside_and_garbage_is_collected_nevertheless() -> None:
    """A garbage cycle that was set aside with the rest is gone when gathering ends; what is kept is not looked at again."""
    keeping, knot = GcFreezer(), Knot()
    garbage = weakref.ref(knot)
    del knot
    keeping.took(5_000)
    assert garbage() is not None

    keeping.gathered()

    assert garbage() is None
    assert gc.get_freeze_count() > 0


def test_a_small_source_is_no_business_of_the_collector() -> None:
    """A few objects change nothing."""
    gc.unfreeze()
    keeping = GcFreezer()
    keeping.took(100)
    keeping.gathered()

    assert gc.get_freeze_count() == 0
