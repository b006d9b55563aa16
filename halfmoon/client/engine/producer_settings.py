"""What a producer is set to, and what it counts."""

from __future__ import annotations

from msgspec import Struct

from halfmoon.client.engine.consumer_settings import check_limits
from halfmoon.client.engine.instance import CLIENT_LIMITS, HEARTBEAT_MS
from halfmoon.client.engine.routes import REFRESH_MS
from halfmoon.client.messages import MAX_BODY_BYTES

DEFAULT_QUEUES = 4
"""Of a topic that is made by sending to it (DefaultMQProducer.defaultTopicQueueNums)."""


class ProducerSettings(Struct, frozen=True, kw_only=True):
    """How a producer sends."""

    timeout_ms: int = 3_000
    """For one send, with all its attempts."""
    retries: int = 2
    """Attempts after the first one."""
    compress_over_bytes: int = 4_096
    """Bodies of more are compressed (zlib); 0: never."""
    compress_level: int = 5
    max_body_bytes: int = MAX_BODY_BYTES
    latency_fault_tolerance: bool = False
    """Avoid slow and failed brokers for a while."""
    default_queues: int = DEFAULT_QUEUES
    """Queues of an automatically created topic."""
    topics: tuple[str, ...] = ()
    """Register this producer with the brokers of these topics when it starts, and not only when it sends: they can
    check back with it about half messages of a producer that has crashed."""
    heartbeat_ms: int = HEARTBEAT_MS
    """Between two heartbeats to the brokers (heartbeatBrokerInterval)."""
    route_refresh_ms: int = REFRESH_MS
    """Interval at which routes of topics are refreshed (pollNameServerInterval)."""

    def __post_init__(self) -> None:
        check_limits(
            self, ("timeout_ms", 1, 3_600_000), ("retries", 0, 100), ("compress_over_bytes", 0, 1 << 30),
            ("compress_level", 0, 9), ("max_body_bytes", 1, 1 << 30), ("default_queues", 1, 1_024), *CLIENT_LIMITS,
        )  # fmt: skip


class Counters(Struct):
    """What a producer has done since it was made."""

    sent: int = 0
    """Messages that a broker has acknowledged."""
    failed: int = 0
    """Messages that could not be sent."""
    retried: int = 0
    """Attempts after the first one."""
