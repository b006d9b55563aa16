"""Ordered consumption, and members that are killed, in real time: a killed client's locks live a minute.

In virtual time, with fifty kills, it is in tests/client/test_ordered.py.
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import pytest

from halfmoon.client import ConsumeFrom, Context, Message, Producer, PushConsumer, ReceivedMessage, Status, by_hash
from halfmoon.testing import Broker

KILLS, KEYS, PER_KEY = 3, 8, 60
LIMIT_S = 200.0

pytestmark = pytest.mark.interop


class Member:
    """A consumer that may be killed: then it consumes nothing more, and has not said goodbye."""

    def __init__(self, namesrv: str, consumed: dict[str, list[int]]) -> None:
        self._consumed = consumed
        self._dead = threading.Event()
        self.consumer = PushConsumer(
            "g", self.listen, "steps", ordered=True, namesrv=namesrv, consume_from=ConsumeFrom.FIRST
        )
        self.consumer.start()

    def listen(self, messages: Sequence[ReceivedMessage], context: Context) -> Status:
        if self._dead.is_set():
            time.sleep(3_600)
        for message in messages:
            key, number = message.body.decode().split()
            self._consumed[key].append(int(number))
        time.sleep(0.01)
        return Status.SUCCESS

    @property
    def queues(self) -> list[int]:
        return [queue.queue_id for queue in self.consumer.queues if queue.topic == "steps"]

    def kill(self) -> None:
        self._dead.set()
        self.consumer._shell.stop()


@pytest.mark.timeout(300)
def test_order_survives_three_kills() -> None:
    dice = random.Random(7)
    consumed: dict[str, list[int]] = defaultdict(list)
    listeners = {"rocketmq": {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0"}}
    with Broker(config={"listeners": listeners, "topics": {"partitions": 8}}) as broker:
        with Producer("p", namesrv=broker.namesrv, default_queues=8) as producer:
            producer.send(Message("steps", b"made -1"))
            members = [Member(broker.namesrv, consumed) for _ in range(4)]
            while sorted(len(member.queues) for member in members) != [2, 2, 2, 2]:
                time.sleep(0.1)
            for number in range(PER_KEY):
                for key in range(KEYS):
                    producer.send(Message("steps", f"k{key} {number}".encode()), select=by_hash, key=key)
                if number % (PER_KEY // KILLS) == PER_KEY // KILLS - 1:
                    killed = members.pop(dice.randrange(len(members)))
                    assert killed.queues
                    killed.kill()
                time.sleep(0.05)
        begun = time.monotonic()
        assert not all(len(consumed[f"k{key}"]) >= PER_KEY for key in range(KEYS)), "nobody was missed"
        wanted = set(range(PER_KEY))
        while any(set(consumed[f"k{key}"]) != wanted for key in range(KEYS)):
            assert time.monotonic() - begun < LIMIT_S, {key: len(set(numbers)) for key, numbers in consumed.items()}
            time.sleep(0.2)
        print(f"everything was consumed {time.monotonic() - begun:.1f} s after the last kill")
        for member in members:
            member.consumer.close()
    for key, numbers in consumed.items():
        assert all(after <= before + 1 for before, after in pairwise(numbers)), key
