"""The reader of event streams: whatever way a stream is cut into chunks and connections, each event comes once."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from drumlin.kg.client.events_api import Events

EVENTS = [
    {"id": f"{number}.0", "subject": f"prod/x/pod/ü{number}\u2028", "data": {"n": number}} for number in range(1, 7)
]


def said(after: int, ends: bytes) -> bytes:
    """Return what a service says to who has seen so many events: its place, heartbeats, an event of two lines of data, the events."""
    lines = [b"retry: 2000", f"id: {after}.0".encode(), b": from here on", b""]
    for event in EVENTS[after:]:
        data = (
            msgspec.json.format(msgspec.json.encode(event)).split(b"\n")
            if event["id"] == "3.0"
            else [msgspec.json.encode(event)]
        )
        lines += [f"id: {event['id']}".encode(), *(b"data: " + line for line in data), b"", b": nothing new", b""]
    return b"".join(line + ends for line in lines)


@given(
    cuts=st.lists(st.integers(0, 900), max_size=12),
    sizes=st.lists(st.integers(1, 90), min_size=1, max_size=8),
    ends=st.sampled_from([b"\n", b"\r\n"]),
)
def test_no_cut_loses_or_repeats_an_event(cuts: list[int], sizes: list[int], ends: bytes) -> None:
    """Connections that break at any byte, and chunks of any size: the events come once each, in order, whole."""
    events, found = Events(None), list[dict[str, Any]]()
    for cut in [*cuts, None]:
        stream = said(int((events.last or "0").partition(".")[0]), ends)[:cut]
        place = turn = 0
        while place < len(stream):
            size = sizes[turn % len(sizes)]
            found += events.fed(stream[place : place + size])
            place, turn = place + size, turn + 1
        events = events.anew()
    assert found == EVENTS
    assert events.last == "6.0"
