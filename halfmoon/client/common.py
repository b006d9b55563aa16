"""What halfmoon.client and halfmoon.client.aio both offer: all but the producers and consumers themselves."""

from __future__ import annotations

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
from halfmoon.client.recurring import recurring, schedule_change
from halfmoon.client.selectors import Selector, at_random, by_hash, by_machine_room
from halfmoon.plugin import Queue
from halfmoon.services.delays.questions import Changed, ScheduledCount, ScheduledMessage

__all__ = [
    "BrokerRefusedError",
    "Changed",
    "ClientError",
    "ConfigError",
    "ConnectionFailedError",
    "ConsumeFrom",
    "Context",
    "Message",
    "MessageError",
    "NotRunningError",
    "PullResult",
    "PullStatus",
    "Queue",
    "ReceivedMessage",
    "RequestTimeoutError",
    "RouteError",
    "ScheduledCount",
    "ScheduledMessage",
    "Selector",
    "SendResult",
    "SendStatus",
    "Status",
    "StorageError",
    "TopicUnknownError",
    "TransactionResult",
    "TransactionState",
    "at_random",
    "by_hash",
    "by_machine_room",
    "recurring",
    "schedule_change",
]
