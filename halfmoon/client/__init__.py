"""A client for RocketMQ's protocol: against Halfmoon, and against RocketMQ itself.

    from halfmoon.client import Message, Producer, PushConsumer, Status

The same names stand in halfmoon.client.aio, for asyncio. It imports neither the broker's core nor its adapters.
"""

from __future__ import annotations

from halfmoon.client import common
from halfmoon.client.common import *  # noqa: F403
from halfmoon.client.threads.consumers import LitePullConsumer, PullConsumer, PushConsumer
from halfmoon.client.threads.delays import Delays
from halfmoon.client.threads.producers import Producer, TransactionListener, TransactionProducer

__all__ = [
    "Delays",
    "LitePullConsumer",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "TransactionListener",
    "TransactionProducer",
]
__all__ += common.__all__
