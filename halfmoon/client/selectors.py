"""Which queue a message goes to, where its producer says so (B27).

A selector is a function (queues, message, key) → one of the queues. They are given all queues that can be written to,
sorted by broker and number; the same key always goes to the same queue as long as these stay the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from typing import Any

from halfmoon.client.errors import ConfigError
from halfmoon.client.messages import Message
from halfmoon.plugin import Queue, string_hash

Selector = Callable[[Sequence[Queue], Message, Any], Queue]


def by_hash(queues: Sequence[Queue], message: Message, key: Any) -> Queue:
    """Where Java's SelectMessageQueueByHash sends the same text: |hash| mod queues, of `String.hashCode`. An int is its
    own hash, as in Java, where it is a 32-bit one."""
    if isinstance(key, int) and not isinstance(key, bool) and -(1 << 31) <= key < 1 << 31:
        value = key
    else:
        value = string_hash(str(key))
    return queues[abs(value) % len(queues)]


def at_random(queues: Sequence[Queue], message: Message, key: Any) -> Queue:
    """Any (SelectMessageQueueByRandom)."""
    return random.choice(queues)


def by_machine_room(rooms: Collection[str]) -> Selector:
    """By hash among the queues of brokers in these rooms: a broker called `ROOM@NAME` stands in ROOM
    (SelectMessageQueueByMachineRoom, which RocketMQ ships without a body). Where none is there, among all."""
    if not rooms:
        raise ConfigError("name a machine room")

    def select(queues: Sequence[Queue], message: Message, key: Any) -> Queue:
        near = [queue for queue in queues if queue.broker.partition("@")[0] in rooms and "@" in queue.broker]
        chosen = near or queues
        return at_random(chosen, message, key) if key is None else by_hash(chosen, message, key)

    return select
