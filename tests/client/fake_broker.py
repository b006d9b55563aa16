"""A broker that keeps nothing: it answers what a consumer asks as a test says, and remembers what it was asked."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from halfmoon.remoting.command import Command
from halfmoon.remoting.message import Host, StoredMessage, encode_stored
from tests.client.world import World, names

PULL, QUERY_OFFSET, UPDATE_OFFSET, HEARTBEAT, SEND_BACK, MEMBERS, LOCK, UNLOCK = 11, 14, 15, 34, 36, 38, 41, 42
SEND, SEND_BATCH, UNREGISTER, END, CHECK = 310, 320, 35, 37, 39
NO_NEW, RETRY, MOVED = 19, 20, 21
NODE = Host(bytes(4), 10_911)


def stored(offset: int, body: bytes = b"x", queue: int = 0, topic: str = "t", **properties: str) -> bytes:
    """A message as it stands in an answer."""
    text = "".join([f"{name}\1{value}\2" for name, value in properties.items()])
    message = StoredMessage(
        queue, 0, offset, 1_000 + offset, 0, 0, NODE, 0, NODE, 0, 0, body, topic.encode(), text.encode()
    )
    return encode_stored(message)


def pulled(code: int, next_offset: int, body: bytes = b"", *, low: int = 0, high: int = 1_000, node: int = 0) -> Any:
    """The answer to a pull."""
    fields = {
        "nextBeginOffset": str(next_offset), "minOffset": str(low), "maxOffset": str(high),
        "suggestWhichBrokerId": str(node),
    }  # fmt: skip
    return code, fields, body


class FakeBroker:
    """Put it into a World: `FakeBroker(world)` is the only broker, with `queues` queues of every topic."""

    def __init__(self, world: World, queues: int = 1, slave: bool = False) -> None:
        self.nodes = {0: "127.0.0.1:1", **({1: "127.0.0.1:2"} if slave else {})}
        self.asked: list[tuple[float, Command]] = []
        self.pulls: list[Any] = []
        """Answers to pulls of topic t, in turn; then they are held for ever."""
        self.progress: int | None = 0
        """Answer to QUERY_CONSUMER_OFFSET; None: not found."""
        self.members: list[str] | None = None
        """None: whoever asks is alone."""
        self.locked = True
        self.send_back_code = 0
        self.answers: dict[int, Any] = {}
        """More, by code."""
        self.world = world
        world.script("127.0.0.1:9876", names(("b", self.nodes, queues)))
        self.master = world.script("127.0.0.1:1", self.answer)
        if slave:
            self.slave = world.script("127.0.0.1:2", self.answer)

    def answer(self, command: Command) -> Any:
        self.asked.append((self.world.now_ms, command))
        code = command.code
        if code in self.answers:
            return self.answers[code]
        if code == PULL:
            if command.fields["topic"] != "t" or not self.pulls:
                return None
            return self.pulls.pop(0)
        if code == QUERY_OFFSET:
            return (22, {}, b"") if self.progress is None else (0, {"offset": str(self.progress)}, b"")
        if code == MEMBERS:
            members = self.members
            if members is None:
                members = [client.instance.client_id for client in self.world.clients if client.is_alive]
            return 0, {}, json.dumps({"consumerIdList": members}).encode()
        if code == LOCK:
            return (
                0,
                {},
                json.dumps({"lockOKMQSet": json.loads(bytes(command.body))["mqSet"] if self.locked else []}).encode(),
            )
        if code == SEND_BACK:
            return self.send_back_code, {}, b""
        if code == SEND:
            return 0, {"msgId": "0" * 32, "queueId": command.fields["e"], "queueOffset": "0"}, b""
        return 0, {"offset": "0"}, b""

    def of(self, code: int, topic: str | None = "t") -> list[tuple[float, Command]]:
        """When, and what, it was asked of this code; of this topic, where the request names one."""
        return [
            (at_ms, command)
            for at_ms, command in self.asked
            if command.code == code and command.fields.get("topic", topic) == topic
        ]

    def fields(self, code: int, topic: str | None = "t") -> list[dict[str, str]]:
        return [command.fields for _, command in self.of(code, topic)]

    def times(self, code: int, topic: str | None = "t") -> list[float]:
        return [at_ms for at_ms, _ in self.of(code, topic)]


def many(offsets: Iterable[int], **more: Any) -> bytes:
    return b"".join([stored(offset, b"%d" % offset, **more) for offset in offsets])
