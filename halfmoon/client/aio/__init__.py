"""halfmoon.client for asyncio: the same names, and what waits is awaited.

from halfmoon.client.aio import Message, Producer, PushConsumer, Status
"""

from __future__ import annotations

from halfmoon.client.aio.clients import (
    LitePullConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
    TransactionListener,
    TransactionProducer,
)
from halfmoon.client.base import TransactionResult
from halfmoon.client.engine.group_queries import ConsumeFrom
from halfmoon.client.engine.listening import Context, Status
from halfmoon.client.engine.pulling import PullResult, PullStatus
from halfmoon.client.engine.transactions import TransactionState
from halfmoon.client.errors import (
    BrokerRefusedError,
    ClientError,
    ConfigError,
    ConnectionFailedError,
    MessageError,
    NotRunningError,
    RequestTimeoutError,
    RouteError,
    StorageError,
    TopicUnknownError,
)
from halfmoon.client.messages import Message, ReceivedMessage, SendResult, SendStatus
from halfmoon.client.selectors import Selector, at_random, by_hash, by_machine_room
from halfmoon.plugin import Queue

__all__ = [
    "BrokerRefusedError",
    "ClientError",
    "ConfigError",
    "ConnectionFailedError",
    "ConsumeFrom",
    "Context",
    "LitePullConsumer",
    "Message",
    "MessageError",
    "NotRunningError",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "Queue",
    "ReceivedMessage",
    "RequestTimeoutError",
    "RouteError",
    "Selector",
    "SendResult",
    "SendStatus",
    "Status",
    "StorageError",
    "TopicUnknownError",
    "TransactionListener",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "at_random",
    "by_hash",
    "by_machine_room",
]
