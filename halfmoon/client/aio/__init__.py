"""halfmoon.client for asyncio: the same names, and what waits is awaited.

from halfmoon.client.aio import Message, Producer, PushConsumer, Status
"""

from __future__ import annotations

from halfmoon.client import common
from halfmoon.client.aio.consumers import LitePullConsumer, PullConsumer, PushConsumer
from halfmoon.client.aio.delays import Delays
from halfmoon.client.aio.producers import Producer, TransactionListener, TransactionProducer
from halfmoon.client.common import *  # noqa: F403

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
