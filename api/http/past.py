"""``at``: the moment of the past that a read is about, as a generation or a time."""

from __future__ import annotations

from drumlin.kg.errors import InvalidInput
from drumlin.kg.store.protocol import Store
from drumlin.kg.telemetry.durations import parse_moment

_DIGITS = 18  # of a generation at most


def generation_of(store: Store, at: str) -> int:
    """Read ``at``: digits are a generation, else it is an RFC 3339 time, as of which that is meant which was written last.

    Raises ``InvalidInput``, ``EventsGone`` for a time before the change log, ``CapabilityMissing`` where the store keeps no past.
    """
    text = at.strip()
    if text.isascii() and text.isdigit():
        if len(text) > _DIGITS:
            raise InvalidInput(f"there is no generation {text[:40]}", hint="take one from /changes or /events")
        return int(text)
    try:
        moment = parse_moment(text)
    except InvalidInput as error:
        raise InvalidInput(f"at: {error}", hint="write a generation, such as 41, or 2026-11-27T00:00:00Z") from error
    return store.generation_at(moment)
