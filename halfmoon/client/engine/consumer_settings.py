"""How a consumer consumes. The names and numbers are DefaultMQPushConsumer's, with units."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from halfmoon.client.engine.group_queries import ConsumeFrom
from halfmoon.client.errors import ConfigError

MIN_SUSPEND_MS, MAX_SUSPEND_MS = 10, 30_000
MOST_HOLD_MS = 60_000
"""A queue that was not pulled for two minutes counts as forgotten."""


def check_limits(settings: Struct, *limits: tuple[str, int, int]) -> None:
    """Raises ConfigError unless each number lies within its bounds."""
    for name, low, high in limits:
        value = getattr(settings, name)
        if not low <= value <= high:
            raise ConfigError(f"{name} is {value}, expected {low} to {high}")


class ConsumerSettings(Struct, frozen=True, kw_only=True):
    """Of a push consumer."""

    model: Literal["clustering", "broadcasting"] = "clustering"
    """The members of a group share a topic's messages, or each gets all of them."""
    consume_from: ConsumeFrom = ConsumeFrom.LAST
    """Where a group begins without progress. A broker that still has all of a small topic in memory says 0 in any
    case."""
    consume_from_ms: int = 0
    """Unix ms, for ConsumeFrom.TIMESTAMP."""
    strategy: str = "averagely"
    """The allocation strategy, by name. One that wants to know who had what before (`sticky`) is asked of the broker,
    since members know different things; a broker without it leaves them to share as `averagely` does."""
    threads: int = 20
    """Listeners at a time."""
    batch_size: int = 1
    """Messages that a listener is given at a time, at most (consumeMessageBatchMaxSize)."""
    pull_batch_size: int = 32
    most_cached: int = 1_000
    """Messages of a queue that are not dealt with, above which it is not pulled (pullThresholdForQueue)."""
    most_cached_bytes: int = 100 << 20
    most_span: int = 2_000
    """Offsets from a queue's first such message to its last (consumeConcurrentlyMaxSpan)."""
    hold_ms: int = 15_000
    """How long a broker may hold a pull that finds nothing."""
    pull_timeout_ms: int = 30_000
    pull_interval_ms: int = 0
    """Pause between two pulls of a queue that found something."""
    max_reconsume_times: int = -1
    """After so many a message is a dead letter; −1: 16, and in order consumption never."""
    consume_timeout_ms: int = 15 * 60_000
    """Messages that a listener has for longer are handed back."""
    suspend_ms: int = 1_000
    """Ordered: pause before messages come again (suspendCurrentQueueTimeMillis)."""
    persist_ms: int = 5_000
    rebalance_ms: int = 20_000
    shutdown_ms: int = 10_000
    """How long running listeners are waited for at the end."""

    def __post_init__(self) -> None:
        check_limits(
            self, ("threads", 1, 10_000), ("batch_size", 1, 1_024), ("pull_batch_size", 1, 1_024),
            ("most_cached", 1, 65_535), ("most_span", 1, 65_535), ("most_cached_bytes", 1, 1 << 40),
            ("max_reconsume_times", -1, 1 << 30), ("pull_interval_ms", 0, 65_535), ("hold_ms", 1, MOST_HOLD_MS),
            ("suspend_ms", MIN_SUSPEND_MS, MAX_SUSPEND_MS), ("persist_ms", 100, 3_600_000),
            ("rebalance_ms", 100, 3_600_000), ("consume_timeout_ms", 1_000, 1 << 31), ("shutdown_ms", 0, 3_600_000),
        )  # fmt: skip
        if self.pull_timeout_ms <= self.hold_ms:
            raise ConfigError(f"pull_timeout_ms is {self.pull_timeout_ms}, expected more than hold_ms ({self.hold_ms})")
        if self.model not in ("clustering", "broadcasting"):
            raise ConfigError(f"model is {self.model!r}, expected 'clustering' or 'broadcasting'")

    @property
    def is_broadcasting(self) -> bool:
        return self.model == "broadcasting"
