"""How current the graph of a cluster is: what is followed may be out of sight for a while, and answers say so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

_JUST = timedelta(minutes=1)  # ends of windows are rounded down


@dataclass(frozen=True, slots=True)
class Staleness:
    """Since when (UTC) changes of some kinds of a cluster may have gone unseen, and why; ``kinds`` are names as in manifests."""

    cluster: str
    since: datetime
    reason: str
    kinds: tuple[str, ...]

    @property
    def warning(self) -> str:
        """Say it in one line."""
        since = self.since.isoformat(timespec="seconds").replace("+00:00", "Z")
        return f"cluster {self.cluster} has not been followed in full since {since}, so changes may be missing: {self.reason}"


Freshness = Callable[[str], Staleness | None]
"""Cluster (its name) → how it is stale; None while it is followed, or where nobody follows it."""


def always_fresh(cluster: str) -> None:
    """Return that nothing is known to be stale: without exporters nobody knows."""
    del cluster


def warnings_of(clusters: Iterable[str | None], until: datetime, freshness: Freshness) -> tuple[str, ...]:
    """Return a warning for each of the clusters that were out of sight before ``until``, the end of what is asked for, or just then."""
    found = (freshness(each) for each in dict.fromkeys(filter(None, clusters)))
    return tuple(each.warning for each in found if each and each.since - _JUST < until)
