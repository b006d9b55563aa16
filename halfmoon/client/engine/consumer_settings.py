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
    """Where a group begins without committed offsets. A broker that still has all of a small topic in memory answers 0
    in any case."""
    consume_from_ms: int = 0
    """Unix ms, for ConsumeFrom.TIMESTAMP."""
    strategy: str = "averagely"
    """The allocation strategy, by name. The broker computes one that needs the previous assignment (`sticky`),
    since members know different ones; with a broker that lacks it, members use `averagely`."""
    threads: int = 20
    """Listeners at a time."""
    batch_size: int = 1
    """Messages per call of a listener, at most (consumeMessageBatchMaxSize)."""
    pull_batch_size: int = 32
    most_cached: int = 1_000
    """Unacknowledged messages of a queue above which it is not pulled (pullThresholdForQueue)."""
    most_cached_bytes: int = 100 << 20
    most_span: int = 2_000
    """Offsets from a queue's first such message to its last (consumeConcurrentlyMaxSpan)."""
    hold_ms: int = 15_000
    """How long a broker may hold a pull that finds nothing."""
    pull_timeout_ms: int = 30_000
    pull_interval_ms: int = 0
    """Pause between two pulls of a queue that found something."""
    max_reconsume_times: int = -1
    """Attempts after which a message is dead-lettered; −1: 16, and in order consumption never."""
    consume_timeout_ms: int = 15 * 60_000
    """Messages that a listener has for longer are negatively acknowledged."""
    suspend_ms: int = 1_000
    """Ordered: time until messages are redelivered (suspendCurrentQueueTimeMillis)."""
    persist_ms: int = 5_000
    rebalance_ms: int = 20_000
    shutdown_ms: int = 10_000
    """How long `close` waits for running listeners."""
    most_expired: int = 16
    """Messages of a queue that are negatively acknowledged in one pass because a listener has had them for too long."""
    consume_again_ms: int = 5_000
    """Until messages whose negative acknowledgement failed are consumed here again."""
    flow_control_ms: int = 50
    """Until a full queue is checked again."""
    paused_ms: int = 1_000
    """Until a queue is checked again while the consumer is paused."""
    pull_failed_ms: int = 3_000
    """Until a queue is pulled again after a pull that failed (pullTimeDelayMillsWhenException)."""
    moved_ms: int = 10_000
    """Until a queue restarts at the broker's offset after it has moved."""
    lock_renew_ms: int = 20_000
    """Ordered: between two renewals of the locks (rocketmq.client.rebalance.lockInterval)."""
    lock_trusted_ms: int = 30_000
    """Ordered: a lock that was not renewed for so long counts as lost; the broker has to keep it longer
    (rocketmq.client.rebalance.lockMaxLiveTime)."""
    lock_again_ms: int = 3_000
    """Ordered: until the consumer requests a queue again that another member has."""
    longest_run_ms: int = 60_000
    """Ordered: how long a queue is consumed without a break (rocketmq.client.maxTimeConsumeContinuously)."""
    handover_ms: int = 1_000
    """Ordered: how long rebalancing waits for a running listener before it retries later."""
    heartbeat_ms: int = HEARTBEAT_MS
    """Between two heartbeats to the brokers (heartbeatBrokerInterval)."""
    route_refresh_ms: int = REFRESH_MS
    """Interval at which routes of topics are refreshed (pollNameServerInterval)."""

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
