"""How many examples a property gets. The quick count holds in each run; ``--hypothesis-profile=thorough`` is for the long one."""

from __future__ import annotations

import os

from hypothesis import settings

QUICK, THOROUGH = 40, 1000


def register_profiles() -> None:
    """Register the profiles, and load the quick one; no example has a deadline, as on a busy machine any may take a second."""
    parent = settings.get_profile("ci" if os.environ.get("CI") == "true" else "default")
    settings.register_profile("quick", parent, deadline=None, max_examples=QUICK)
    settings.register_profile("thorough", settings.get_profile("default"), deadline=None, max_examples=THOROUGH)
    settings.load_profile("quick")


def examples(quick: int) -> int:
    """Return the number of examples of a property that is dearer, or needs more of them, than most."""
    return quick * (THOROUGH // QUICK) if settings.get_current_profile_name() == "thorough" else quick
