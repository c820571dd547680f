"""What ``/metrics`` reports of the services that are followed: lag, position, what was taken over and what was refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from drumlin.exporters.peers.follower import PeerFollower


class PeerMetrics(Collector):
    """Reads the state of ``peers`` when asked, so nothing has to be kept up to date."""

    def __init__(self, peers: Sequence[PeerFollower]) -> None:
        self._peers = peers

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield one family for each thing that is known of a peer; what it has not reported yet is absent."""
        of = ["peer"]
        lag = GaugeMetricFamily(
            "drumlin_peer_lag_seconds", "For how long something of the peer may be missing here.", labels=of
        )
        behind = GaugeMetricFamily(
            "drumlin_peer_lag_generations", "Generations of the peer that are not here yet.", labels=of
        )
        position = GaugeMetricFamily("drumlin_peer_position", "Generation of the peer that was reached.", labels=of)
        failing = GaugeMetricFamily("drumlin_peer_failing", "1 while following the peer fails.", labels=of)
        written = CounterMetricFamily("drumlin_peer_written", "Graphs of the peer that were written.", labels=of)
        withdrawn = CounterMetricFamily("drumlin_peer_withdrawn", "Graphs of the peer that were withdrawn.", labels=of)
        compared = CounterMetricFamily("drumlin_peer_comparisons", "Times that all digests were compared.", labels=of)
        refused = CounterMetricFamily(
            "drumlin_peer_refused",
            "Graphs that were refused: foreign (of no domain of the peer), owned (by somebody else), invalid.",
            labels=[*of, "reason"],
        )
        for each in self._peers:
            name, state = each.settings.name, each.state
            lag.add_metric([name], each.lag)
            failing.add_metric([name], float(each.failure is not None))
            written.add_metric([name], state.written)
            withdrawn.add_metric([name], state.withdrawn)
            compared.add_metric([name], state.compared)
            if (generations := state.lag_generations()) is not None:
                behind.add_metric([name], generations)
            if state.reached is not None:
                position.add_metric([name], state.reached)
            for reason, count in tuple(state.refused.items()):
                refused.add_metric([name, reason], count)
        yield from (lag, behind, position, failing, written, withdrawn, compared, refused)
