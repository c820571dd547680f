"""Fair turns: who has used least comes next, and use fades."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from drumlin.kg import fairness
from drumlin.kg.fairness import HALF_LIFE, PRESENT, FairQueue, Usage

CLIENTS = st.sampled_from("abc")


@given(st.lists(st.tuples(CLIENTS, st.integers())), st.dictionaries(CLIENTS, st.floats(0, 100)))
def test_turns_go_round(items: list[tuple[str, int]], used: dict[str, float]) -> None:
    """Every item has a turn; those of one client keep their order; no client has a second before all others had their first."""
    waiting = FairQueue[tuple[str, int, int]](lambda who: used.get(who, 0.0))
    for at, (who, value) in enumerate(items):
        waiting.put(who, (who, value, at))
    order = list(waiting)

    assert Counter((who, value) for who, value, _ in order) == Counter(items)
    for who in {who for who, _ in items}:
        own = [at for each, _, at in order if each == who]
        assert own == sorted(own)
        assert waiting.waiting_for(who) == len(own)
    first = list(dict.fromkeys(who for who, _, _ in order))
    assert [who for who, _, _ in order[: len(first)]] == sorted(first, key=lambda who: used.get(who, 0.0)) or len(
        {used.get(who, 0.0) for who in first}
    ) < len(first)
    assert len(waiting) == len(items)


def test_what_is_taken_out_waits_no_more() -> None:
    """An item is taken out once; what never waited is not."""
    waiting = FairQueue[str](lambda _: 0.0)
    waiting.put("a", "x")
    waiting.put("b", "y")
    assert (waiting.remove("a", "x"), waiting.remove("a", "x"), waiting.remove("b", "x")) == (True, False, False)
    assert (list(waiting), len(waiting)) == (["y"], 1)
    waiting.clear()
    assert (list(waiting), len(waiting)) == ([], 0)


def test_use_fades_and_is_bounded() -> None:
    """What was used counts half after a half-life; the clients that were charged longest ago are forgotten."""
    now = 0.0
    usage = Usage(lambda: now)
    usage.charge("a", 8.0)
    now = HALF_LIFE
    usage.charge("a", 1.0)
    assert (usage.of("a"), usage.of("b")) == (5.0, 0.0)
    for number in range(fairness.MOST_CLIENTS):
        usage.charge(str(number), 1.0)
    assert usage.of("a") == 0.0


def test_a_client_is_present_for_a_while() -> None:
    """Others are there as long as one of them was charged lately, be it with nothing."""
    now = 0.0
    usage = Usage(lambda: now)
    usage.charge("a", 1.0)
    assert not usage.others("a")
    assert usage.others("b")
    usage.charge("b", 0.0)
    usage.charge("a", 1.0)
    assert usage.others("a")
    now = PRESENT
    assert not usage.others("a")
