"""Latency fault tolerance: a broker that was slow, or failed, is left alone for a while (B26).

(org.apache.rocketmq.client.latency.MQFaultStrategy, LatencyFaultToleranceImpl.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

LATENCY_MS = (50, 100, 550, 1_800, 3_000, 5_000, 15_000)
AWAY_MS = (0, 0, 2_000, 5_000, 6_000, 10_000, 30_000)
"""A broker that took at least so long is avoided for …"""
FAILED_COUNTS_AS_MS = 10_000


def away_ms(latency_ms: float) -> int:
    """For how long a broker is avoided that took so long."""
    at = bisect_right(LATENCY_MS, latency_ms)
    return AWAY_MS[at - 1] if at else 0


class Faults:
    """What is remembered of brokers."""

    def __init__(self) -> None:
        self._until_ms: dict[str, float] = {}

    def took(self, broker: str, latency_ms: float, now_ms: float) -> None:
        """It has answered after so long."""
        pause_ms = away_ms(latency_ms)
        if pause_ms:
            self._until_ms[broker] = now_ms + pause_ms
        else:
            self._until_ms.pop(broker, None)

    def failed(self, broker: str, now_ms: float) -> None:
        self._until_ms[broker] = now_ms + away_ms(FAILED_COUNTS_AS_MS)

    def is_available(self, broker: str, now_ms: float) -> bool:
        return self._until_ms.get(broker, 0.0) <= now_ms

    def least_bad(self, brokers: Iterable[str]) -> str | None:
        """The one that is back first."""
        return min(brokers, key=lambda broker: self._until_ms.get(broker, 0.0), default=None)
