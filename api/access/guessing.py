"""Guessing of tokens is slowed: an address that tries many wrong ones has to wait.

Distinct wrong tokens are counted, so that a client that keeps sending one old token holds nobody up. From an address that has tried too
many, only tokens are looked at that were accepted from there before; so further guesses teach nothing, and valid tokens keep working.
"""

from __future__ import annotations

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Collection

from drumlin.api.http.problems import GuessesThrottled

GUESSES = 20
"""Distinct wrong tokens of one address within ``WINDOW``."""
WINDOW = 60.0
"""Seconds over which they are counted."""
REMEMBERED = 10_000
"""Addresses whose wrong tokens are remembered, and pairs of an address and a token that was accepted from it."""


class GuessLimiter:
    """The wrong tokens of each address. ``exempt`` are proxies, which bring the clients of many addresses. For one thread."""

    def __init__(self, exempt: Collection[str] = (), clock: Callable[[], float] = time.monotonic) -> None:
        self._exempt, self._clock = frozenset(exempt), clock
        self._wrong: OrderedDict[str, dict[str, float]] = OrderedDict()  # the address with the newest one last
        self._accepted: OrderedDict[tuple[str, str], None] = OrderedDict()

    def check(self, address: str, digest: str) -> None:
        """Raise ``GuessesThrottled`` when the address has to wait before a token with this digest is looked at."""
        if not self._wrong or (tried := self._wrong.get(_network(address))) is None:
            return
        begin = self._clock() - WINDOW
        recent = [each for each in tried.values() if each > begin]
        if len(recent) < GUESSES or (address, digest) in self._accepted:
            return
        seconds = max(1, math.ceil(min(recent) - begin))
        raise GuessesThrottled(
            f"{len(recent)} wrong tokens came from this address within {WINDOW:.0f} s; the limit is {GUESSES}",
            hint=f"try again in {seconds} s; put the addresses of proxies into the setting proxies",
            detail={"limit": GUESSES, "retryAfter": seconds},
        )

    def accepted(self, address: str, digest: str) -> None:
        """Remember that a token was accepted from an address."""
        if (address, digest) in self._accepted:
            return
        self._accepted[address, digest] = None
        if len(self._accepted) > REMEMBERED:
            self._accepted.popitem(last=False)

    def wrong(self, address: str, digest: str) -> None:
        """Remember that a token from an address is invalid."""
        if address in self._exempt:
            return
        network, now = _network(address), self._clock()
        tried = self._wrong.setdefault(network, {})
        tried.pop(digest, None)
        tried[digest] = now
        while len(tried) > GUESSES or next(iter(tried.values())) <= now - WINDOW:
            del tried[next(iter(tried))]
        self._wrong.move_to_end(network)
        if len(self._wrong) > REMEMBERED:
            self._wrong.popitem(last=False)

    def __len__(self) -> int:
        """Return of how many addresses wrong tokens are remembered."""
        return len(self._wrong)


def _network(address: str) -> str:
    """Return an address, or the network of an IPv6 address: one machine has a whole /64."""
    if ":" not in address:
        return address
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(found.ipv4_mapped or ipaddress.IPv6Network((found, 64), strict=False))
