"""The channel that fits a producer."""

from __future__ import annotations

import inspect
from typing import Any

from halfmoon.outbox.channel import Channel, KafkaChannel


def channel_of(group: str, producer: Any, timeout_s: float) -> Channel:
    """For a confluent_kafka.Producer, a kafka.KafkaProducer, or an OutboxProducer. Raises TypeError, ValueError."""
    made = getattr(producer, "outbox_channel", None)
    if made is not None:
        channel: Channel = made(group)
        return channel
    if inspect.iscoroutinefunction(getattr(producer, "send", None)):
        raise TypeError("this producer is awaited: use halfmoon.outbox.aio")
    return KafkaChannel(group, producer, timeout_s)
