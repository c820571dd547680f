"""What a source has reported is kept for as long as it is followed: why the garbage collector need not go through it again and again.

A cluster of 30,000 pods is a million objects of Python, none of them garbage. Looking through them costs a sixth of a first
synchronisation, and later a pause of a tenth of a second now and then.
"""

from __future__ import annotations

import gc

_EVERY = 5_000  # changes and graphs


class GcFreezer:
    """Sets aside what has been kept so far while a source is gathered. What is garbage by then is collected at the end."""

    def __init__(self) -> None:
        self._since = 0
        self._frozen = False

    def took(self, count: int) -> None:
        """Note that so many more changes were taken in, or graphs rendered."""
        self._since += count
        if self._since >= _EVERY:
            self._since, self._frozen = 0, True
            gc.freeze()

    def gathered(self) -> None:
        """Collect what is garbage, once, and let the collector look only at what comes from now on; a small source needs neither."""
        if self._frozen:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
