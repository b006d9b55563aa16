"""A broker with RocketMQ's listeners; or the real RocketMQ, where ROCKETMQ_NAMESRV says where it is (make interop)."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from halfmoon.client import ConsumeFrom, Context, Message, ReceivedMessage, Status
from halfmoon.testing import Broker
from tests.client.live.shells import Aio, Threads

NAMESRV = os.environ.get("ROCKETMQ_NAMESRV")
_numbers = itertools.count(int(time.time()) % 1_000_000)


@pytest.fixture(scope="session")
def namesrv() -> Iterator[str]:
    if NAMESRV:
        yield NAMESRV
        return
    config = {
        "listeners": {"rocketmq": {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0"}},
        "topics": {"partitions": 4},
        "plugins": {"transaction": {"timeout": "1s", "check_interval": "1s"}},
    }
    with Broker(config=config) as broker:
        yield broker.namesrv


@pytest.fixture(params=[Threads, Aio], ids=["threads", "aio"])
def shell(request: pytest.FixtureRequest) -> Iterator[Any]:
    made = request.param()
    yield made
    made.stop()


class Live:
    """What a test starts, which is closed when it ends."""

    def __init__(self, shell: Any, namesrv: str) -> None:
        self.shell = shell
        self.namesrv = namesrv
        self.run = f"{shell.name}-{next(_numbers)}"
        self._open: list[Any] = []

    def name(self, what: str) -> str:
        return f"{what}-{self.run}"

    def start(self, kind: str, *args: Any, **options: Any) -> Any:
        client = self.shell.make(kind, *args, namesrv=self.namesrv, **options)
        client.start()
        self._open.append(client)
        return client

    def close(self) -> None:
        for client in reversed(self._open):
            client.close()

    def topic(self, what: str = "t") -> str:
        """A topic that exists: made by sending to it, with four queues."""
        topic = self.name(what)
        with_one = self.shell.make("Producer", self.name("maker"), namesrv=self.namesrv)
        with_one.start()
        with_one.send(Message(topic, b"made", tags="made"))
        with_one.close()
        return topic

    def producer(self, **options: Any) -> Any:
        return self.start("Producer", self.name("producers"), **options)

    def consume(self, topics: Any, group: str = "g", listener: Any = None, **options: Any) -> tuple[Any, Got]:
        """A push consumer that reads from the beginning, but for what made the topic."""
        got = Got()
        options = {"consume_from": ConsumeFrom.FIRST} | options
        consumer = self.start("PushConsumer", self.name(group), got.listening(listener), topics, **options)
        return consumer, got


class Got:
    """What a listener was given."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self.at_s: list[float] = []
        self._lock = threading.Lock()

    def listening(self, listener: Any) -> Callable[[Sequence[ReceivedMessage], Context], Status | None]:
        def listen(messages: Sequence[ReceivedMessage], context: Context) -> Status | None:
            if messages[0].tags == "made":
                return Status.SUCCESS
            with self._lock:
                self.messages.extend(messages)
                self.at_s.append(time.monotonic())
            said: Status | None = Status.SUCCESS if listener is None else listener(messages, context)
            return said

        return listen

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in list(self.messages)]

    def wait(self, count: int, timeout_s: float = 20) -> list[bytes]:
        until(lambda: len(self) >= count, timeout_s, lambda: f"{len(self)} of {count}: {self.bodies[:20]}")
        return self.bodies


def until(met: Callable[[], Any], timeout_s: float = 20, why: Callable[[], str] = lambda: "") -> None:
    limit = time.monotonic() + timeout_s
    while not met():
        assert time.monotonic() < limit, why()
        time.sleep(0.01)


@pytest.fixture
def live(shell: Any, namesrv: str) -> Iterator[Live]:
    made = Live(shell, namesrv)
    yield made
    made.close()


@pytest.fixture
def topic(live: Live) -> str:
    return live.topic()


@pytest.fixture
def producer(live: Live) -> Any:
    return live.producer()
