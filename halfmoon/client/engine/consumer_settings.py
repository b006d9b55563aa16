"""How a consumer consumes. The names and numbers are DefaultMQPushConsumer's, with units."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from halfmoon.client.engine.group_queries import ConsumeFrom
from halfmoon.client.engine.instance import CLIENT_LIMITS, HEARTBEAT_MS
from halfmoon.client.engine.routes import REFRESH_MS
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
    most_expired: int = 16
    """Messages of a queue that are handed back in one pass because a listener has had them for too long."""
    consume_again_ms: int = 5_000
    """Until messages that could not be handed back are consumed here again."""
    flow_control_ms: int = 50
    """Until a queue that has enough is looked at again."""
    paused_ms: int = 1_000
    """Until a queue is looked at again while the consumer is paused."""
    pull_failed_ms: int = 3_000
    """Until a queue is pulled again after a pull that failed (pullTimeDelayMillsWhenException)."""
    moved_ms: int = 10_000
    """Until a queue begins anew of which the broker has other offsets than we thought."""
    lock_renew_ms: int = 20_000
    """Ordered: between two renewals of the locks (rocketmq.client.rebalance.lockInterval)."""
    lock_trusted_ms: int = 30_000
    """Ordered: a lock that was not renewed for so long counts as lost; the broker has to keep it longer
    (rocketmq.client.rebalance.lockMaxLiveTime)."""
    lock_again_ms: int = 3_000
    """Ordered: until the broker is asked again for a queue that somebody else has."""
    longest_run_ms: int = 60_000
    """Ordered: a queue is consumed for so long without a pause (rocketmq.client.maxTimeConsumeContinuously)."""
    handover_ms: int = 1_000
    """Ordered: rebalancing waits so long for a listener to end before it takes the queue away, or tries again later."""
    heartbeat_ms: int = HEARTBEAT_MS
    """Between two heartbeats to the brokers (heartbeatBrokerInterval)."""
    route_refresh_ms: int = REFRESH_MS
    """Between two looks at the routes of the topics (pollNameServerInterval)."""

    def __post_init__(self) -> None:
        check_limits(
            self, ("threads", 1, 10_000), ("batch_size", 1, 1_024), ("pull_batch_size", 1, 1_024),
            ("most_cached", 1, 65_535), ("most_span", 1, 65_535), ("most_cached_bytes", 1, 1 << 40),
            ("max_reconsume_times", -1, 1 << 30), ("pull_interval_ms", 0, 65_535), ("hold_ms", 1, MOST_HOLD_MS),
            ("suspend_ms", MIN_SUSPEND_MS, MAX_SUSPEND_MS), ("persist_ms", 100, 3_600_000),
            ("rebalance_ms", 100, 3_600_000), ("consume_timeout_ms", 1_000, 1 << 31), ("shutdown_ms", 0, 3_600_000),
            ("most_expired", 1, 1_024), ("consume_again_ms", 1, 3_600_000), ("flow_control_ms", 1, 60_000),
            ("paused_ms", 1, 60_000), ("pull_failed_ms", 1, 60_000), ("moved_ms", 1, 60_000),
            ("lock_renew_ms", 100, 3_600_000), ("lock_trusted_ms", 100, 3_600_000), ("lock_again_ms", 1, 60_000),
            ("longest_run_ms", 100, 3_600_000), ("handover_ms", 0, 60_000), *CLIENT_LIMITS,
        )  # fmt: skip
        if self.pull_timeout_ms <= self.hold_ms:
            raise ConfigError(f"pull_timeout_ms is {self.pull_timeout_ms}, expected more than hold_ms ({self.hold_ms})")
        if self.lock_trusted_ms <= self.lock_renew_ms:
            raise ConfigError(
                f"lock_trusted_ms is {self.lock_trusted_ms}, expected more than lock_renew_ms ({self.lock_renew_ms})"
            )
        if self.model not in ("clustering", "broadcasting"):
            raise ConfigError(f"model is {self.model!r}, expected 'clustering' or 'broadcasting'")

    @property
    def is_broadcasting(self) -> bool:
        return self.model == "broadcasting"
