"""Clients and a broker in virtual time: the client's engine on one side, Halfmoon's broker with its RocketMQ adapter on
the other, bytes in between, and hours that pass in milliseconds.

Nodes that are not Halfmoon (`Scripted`) answer what a test says, for what Halfmoon cannot show: slow brokers, several
of them, slaves.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from halfmoon.adapters.rocketmq.connection import Connection as ServerConnection
from halfmoon.adapters.rocketmq.registry import Port
from halfmoon.client.engine.concurrent import ConcurrentService
from halfmoon.client.engine.consumer_settings import ConsumerSettings
from halfmoon.client.engine.consuming import PushConsuming
from halfmoon.client.engine.group_queries import ConsumeFrom
from halfmoon.client.engine.instance import Instance
from halfmoon.client.engine.kernel import Kernel, Pending
from halfmoon.client.engine.listening import Context, Status, Work
from halfmoon.client.engine.network import Connection
from halfmoon.client.engine.offsets import BrokerOffsets, FileOffsets, OffsetFile
from halfmoon.client.engine.ordered import OrderedService
from halfmoon.client.engine.producer_settings import ProducerSettings
from halfmoon.client.engine.producing import Producing
from halfmoon.client.engine.subscriptions import by_sql, by_tags
from halfmoon.client.engine.unique_keys import UniqueKeys
from halfmoon.client.messages import Message, ReceivedMessage, SendResult
from halfmoon.plugin import AnyAllocator, Queue
from halfmoon.plugins.allocate import find_allocator
from halfmoon.remoting import command as wire
from halfmoon.remoting.command import Command
from tests.adapters.rig import FakeTransport
from tests.adapters.rocketmq.rocketmq_rig import Rig

BROKER, NAMES = "127.0.0.1:10911", "127.0.0.1:9876"
HALFMOON = "halfmoon"
"""The broker's name."""


class Takes:
    """A listener's answer after a while."""

    def __init__(self, ms: float, status: Status | None) -> None:
        self.ms = ms
        self.status = status


class Scripted:
    """A node that answers as it is told. `answer(command)` → (code, fields, body), None for no answer ever, or a
    Takes-like number of ms before each, as (ms, code, fields, body)."""

    def __init__(self, answer: Callable[[Command], Any]) -> None:
        self.answer = answer
        self.asked: list[Command] = []
        self.links: list[Link] = []

    def codes(self) -> list[int]:
        return [command.code for command in self.asked]

    def count(self, code: int) -> int:
        return self.codes().count(code)


class Link:
    """One connection of a client."""

    def __init__(self, client: Client, connection: Connection, node: Rig | Scripted) -> None:
        self.client = client
        self.connection = connection
        self.node = node
        self.to_server: list[bytes] = []
        self.is_closed = False
        self.transport: FakeTransport | None = None
        self.server: ServerConnection | None = None
        if isinstance(node, Rig):
            port = Port.NAMES if connection.address == NAMES else Port.BROKER
            self.transport = FakeTransport((client.address, 40_000), ("127.0.0.1", 10_911))
            self.server = node.server.connection(port)
            self.transport.protocol = self.server
            self.server.connection_made(self.transport)  # type: ignore[arg-type]

    def carry(self) -> bool:
        """Bytes from one side to the other; whether there were any."""
        moved = False
        while self.to_server:
            data = self.to_server.pop(0)
            moved = True
            if isinstance(self.node, Rig):
                self._feed(data)
            else:
                self._script(data)
        if self.transport is not None and self.transport.received:
            data, self.transport.received = self.transport.received, b""
            self.client.engine(lambda: self.client.network.received(self.connection, data))
            moved = True
        if self.transport is not None and self.transport.closed and not self.is_closed:
            self.cut("closed by the server")
            moved = True
        return moved

    def end_at_server(self) -> bool:
        """The client does nothing; the server may close the connection all the same, and the client hears of it when
        it wakes."""
        if self.transport is None or not self.transport.closed or self.is_closed or self.server is None:
            return False
        self.is_closed = True
        self.server.connection_lost(None)
        network, connection = self.client.network, self.connection
        self.client.kernel.call_after(0, lambda: network.closed(connection, "closed by the server"))
        return True

    def _feed(self, data: bytes) -> None:
        assert self.server is not None
        assert self.transport is not None
        while data and not self.transport.closed:
            buffer = self.server.get_buffer(-1)
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            self.server.buffer_updated(size)
            data = data[size:]

    def _script(self, data: bytes) -> None:
        assert isinstance(self.node, Scripted)
        while data:
            (size,) = struct.unpack_from(">i", data)
            command = wire.decode(memoryview(data)[4 : 4 + size])
            data = data[4 + size :]
            self.node.asked.append(command)
            said = self.node.answer(command)
            if said is None or command.is_oneway:
                continue
            delay_ms, code, fields, body = (0, *said) if len(said) == 3 else said
            answer = wire.encode(Command(code, command.opaque, wire.RESPONSE, fields=fields, body=body))
            self.client.kernel.call_after(delay_ms, lambda answer=answer: self.say(answer))

    def say(self, data: bytes) -> None:
        """To the client."""
        if not self.is_closed:
            self.client.network.received(self.connection, data)

    def cut(self, why: str = "cut") -> None:
        """The connection ends, and both sides notice."""
        if self.is_closed:
            return
        self.is_closed = True
        if self.server is not None:
            self.server.connection_lost(None)
        self.client.engine(lambda: self.client.network.closed(self.connection, why))


class Client:
    """An engine, and the Driver that a test is for it."""

    def __init__(self, world: World, name: str, name_servers: Sequence[str] = (NAMES,)) -> None:
        self.world = world
        self.name = name
        self.address = f"10.0.0.{len(world.clients) + 1}"
        self.kernel = Kernel(world.now_ms, lambda: int(world.rig.clock.now_ms))
        self.instance = Instance(self.kernel, self, f"{self.address}@{name}", name_servers)
        self.network = self.instance.network
        self.keys = UniqueKeys(bytes(4), len(world.clients), self.kernel.wall_ms, random.Random(len(world.clients)))
        self.links: list[Link] = []
        self.is_alive = True
        self.submitted: list[Work] = []
        """What no listener was called with yet: `World.listen` is off."""
        self.consuming: PushConsuming
        world.clients.append(self)

    def engine(self, call: Callable[[], Any]) -> Any:
        """Have the engine do something, now."""
        self.kernel.now_ms = max(self.kernel.now_ms, self.world.now_ms)
        result = call()
        self.kernel.run_ready()
        return result

    # -- Driver ------------------------------------------------------------------------------------------------------

    def connect(self, connection: Connection) -> None:
        def open_() -> None:
            node = self.world.nodes.get(connection.address)
            if node is None or not self.is_alive:
                self.network.closed(connection, "connection refused")
                return
            link = Link(self, connection, node)
            connection.handle = link
            self.links.append(link)
            if isinstance(node, Scripted):
                node.links.append(link)
            self.network.connected(connection)

        self.kernel.call_after(0, open_)

    def write(self, connection: Connection, data: bytes) -> None:
        link = connection.handle
        if self.is_alive and isinstance(link, Link) and not link.is_closed:
            link.to_server.append(data)

    def close(self, connection: Connection) -> None:
        link = connection.handle
        if isinstance(link, Link):
            while link.to_server:
                link.carry()
            link.is_closed = True
            if link.server is not None:
                link.server.connection_lost(None)

    def submit(self, works: Sequence[Work]) -> None:
        for work in works:
            if self.world.is_listening:
                self.kernel.call_after(0, lambda work=work: self.listen(work))
            else:
                self.submitted.append(work)

    def listen(self, work: Work) -> None:
        if work.is_over or not self.is_alive:
            return
        work.began_ms = self.kernel.now_ms
        status: Any = None
        error: BaseException | None = None
        try:
            status = work.listener(work.messages, work.context)
        except Exception as failure:
            error = failure
        if isinstance(status, Takes):
            said = status.status
            self.kernel.call_after(status.ms, lambda: self.is_alive and work.finished(work, said, None))
        else:
            work.finished(work, status, error)

    # -- life --------------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """The process is gone: connections end, nothing was said."""
        self.is_alive = False
        for link in self.links:
            if not link.is_closed:
                link.is_closed = True
                if link.server is not None:
                    link.server.connection_lost(None)

    def freeze(self) -> None:
        """It does nothing any more, and its connections stay."""
        self.is_alive = False

    # -- what a test wants -------------------------------------------------------------------------------------------

    def producing(self, group: str = "producers", **settings: Any) -> Producing:
        producing = Producing(
            self.instance, group, ProducerSettings(**settings), self.keys, random.Random(1)
        )  # fmt: skip
        if group not in self.instance.producer_groups:
            self.engine(producing.begin)
        return producing

    def consumer(
        self, group: str, listener: Callable[[Sequence[ReceivedMessage], Context], Any],
        topics: Mapping[str, str] | str, *, ordered: bool = False, sql: bool = False, file: OffsetFile | None = None,
        allocator: AnyAllocator | None = None, start: bool = True, **settings: Any,
    ) -> PushConsuming:  # fmt: skip
        """A push consumer that reads from the beginning."""
        named = {"strategy": ""} if allocator is not None else {}
        made = ConsumerSettings(**({"consume_from": ConsumeFrom.FIRST} | named | settings))
        store = BrokerOffsets(self.instance, group) if file is None else FileOffsets(file)
        consuming = PushConsuming(
            self.instance, group, made, allocator or find_allocator(made.strategy), store
        )  # fmt: skip
        inner = Producing(self.instance, "CLIENT_INNER_PRODUCER", ProducerSettings(), self.keys)
        service = OrderedService if ordered else ConcurrentService
        consuming.service = service(consuming, inner, listener)
        self.consuming = consuming
        wanted = {topics: "*"} if isinstance(topics, str) else topics
        for topic, expression in wanted.items():
            consuming.subscribe((by_sql if sql else by_tags)(topic, expression, self.kernel.wall_ms()))
        if start:
            self.world.wait(self.run(consuming.start()))
        return consuming

    def run(self, flow: Any) -> Pending[Any]:
        """Begin a flow of the engine."""
        return self.engine(lambda: self.kernel.spawn(flow, "test"))

    def do(self, flow: Any) -> Any:
        """And wait for what comes of it."""
        return self.world.wait(self.run(flow))


class World:
    """One Halfmoon, any number of clients, one time."""

    def __init__(self, **settings: Any) -> None:
        self.rig = Rig(**settings)
        self.clients: list[Client] = []
        self.nodes: dict[str, Rig | Scripted] = {BROKER: self.rig, NAMES: self.rig}
        self.is_listening = True
        self._began_ms = self.rig.clock.now_ms

    @property
    def now_ms(self) -> float:
        """Since the beginning."""
        return float(self.rig.clock.now_ms - self._began_ms)

    def client(self, name: str = "", **options: Any) -> Client:
        return Client(self, name or f"c{len(self.clients) + 1}", **options)

    def script(self, address: str, answer: Callable[[Command], Any]) -> Scripted:
        node = self.nodes[address] = Scripted(answer)
        return node

    # -- time --------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Everything that happens now."""
        is_moving = True
        while is_moving:
            is_moving = False
            for client in self.clients:
                if client.is_alive:
                    client.kernel.advance(self.now_ms)
                for link in list(client.links):
                    is_moving |= link.carry() if client.is_alive else link.end_at_server()
            self.rig.turns()
            for client in self.clients:
                for link in client.links:
                    is_moving |= client.is_alive and link.transport is not None and bool(link.transport.received)

    def _next_ms(self) -> float:
        """When something happens next, since the beginning."""
        deadlines = [client.kernel.next_deadline_ms() for client in self.clients if client.is_alive]
        rig = self.rig
        server = [rig.broker.hold.next_deadline(), rig.broker.relays.next_deadline(), *(at for at, _ in rig.loop.later)]
        deadlines += [at - self._began_ms for at in server if at is not None]
        return min((each for each in deadlines if each is not None), default=float("inf"))

    def _step(self, until_ms: float) -> None:
        to_ms = min(until_ms, max(self._next_ms(), self.now_ms + 1))
        self.rig.pass_time(max(1, int(-(-to_ms // 1) - self.now_ms)))
        self.settle()

    def run_ms(self, ms: float) -> None:
        """Let so much time pass."""
        until_ms = self.now_ms + ms
        self.settle()
        while self.now_ms < until_ms:
            self._step(until_ms)

    def wait(self, pending: Pending[Any], limit_ms: float = 600_000) -> Any:
        """Until it is done; what comes of it."""
        self.until(lambda: pending.is_done, limit_ms)
        return pending.result()

    def until(self, condition: Callable[[], Any], limit_ms: float = 600_000) -> float:
        """Let time pass until it is so; how much that was, ms."""
        began_ms = self.now_ms
        self.settle()
        while not condition():
            assert self.now_ms - began_ms < limit_ms, f"not within {limit_ms / 1e3:.0f} s of virtual time"
            self._step(began_ms + limit_ms)
        return self.now_ms - began_ms

    # -- what tests do most ------------------------------------------------------------------------------------------

    def topic(self, name: str, queues: int = 1, **configs: str) -> None:
        self.rig.topic(name, queues, **configs)

    def send(self, client: Client, *messages: Message, queue: int | None = None, **settings: Any) -> list[SendResult]:
        """One after the other."""
        producing = client.producing(**settings)
        return [
            self.wait(
                client.engine(
                    lambda message=message: producing.send(
                        message, None if queue is None else Queue(message.topic, HALFMOON, queue)
                    )
                )
            )
            for message in messages
        ]


def route(*brokers: tuple[str, Mapping[int, str], int]) -> bytes:
    """What a name server says: (broker, node's id → address, queues)."""
    return msgspec.json.encode(
        {
            "brokerDatas": [
                {"brokerName": name, "cluster": "c", "brokerAddrs": {str(node): at for node, at in nodes.items()}}
                for name, nodes, _ in brokers
            ],
            "queueDatas": [
                {"brokerName": name, "perm": 6, "readQueueNums": queues, "writeQueueNums": queues}
                for name, _, queues in brokers
            ],
        }
    )


def names(*brokers: tuple[str, Mapping[int, str], int]) -> Callable[[Command], Any]:
    """The answers of a name server that has these brokers for every topic."""
    return lambda command: (0, {}, route(*brokers)) if command.code == 105 else (3, {}, b"")


def bodies(messages: Iterable[ReceivedMessage]) -> list[bytes]:
    return [message.body for message in messages]
