"""Asking shards and processes: over one connection to each other process (routes.py).

All numbers are big-endian. A question is `size u32, id u32, [shard, question] as msgpack`, its answer
`size u32, id u32, answer as msgpack`; `size` counts what is behind it. Answers come as they are ready, in any order.

A connection that breaks, or whose other end does not answer a `Ping` for `SILENCE_S`, fails what was asked on it;
whoever asked asks again. It is made anew at once, and then with pauses.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, cast

import msgspec

from halfmoon.cluster.asking import Answering, Told
from halfmoon.cluster.messages import Hello, Ping, Question
from halfmoon.cluster.receiving import PROCESS, Codec, Receiver, encode_question
from halfmoon.errors import BrokerError, Fault
from halfmoon.server.workers.routes import Routes

logger = logging.getLogger("halfmoon.server")

_HEADER: Final = struct.Struct(">II")
"""Size, id."""
_LARGEST: Final = 1 << 30
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.1
SILENCE_S = 30.0


class Frames:
    """Takes bytes as they come, and gives whole frames."""

    __slots__ = ("_read",)

    def __init__(self) -> None:
        self._read = bytearray()

    def take(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """(id, body) of each frame that is whole now. Raises ValueError for what is none."""
        read = self._read
        read += data
        at = 0
        try:
            while len(read) - at >= _HEADER.size:
                size, number = _HEADER.unpack_from(read, at)
                if not 4 <= size <= _LARGEST:
                    raise ValueError(f"a frame of {size} bytes")
                if len(read) - at < 4 + size:
                    break
                yield number, bytes(read[at + _HEADER.size : at + 4 + size])
                at += 4 + size
        finally:
            del read[:at]


def frame(number: int, body: bytes) -> bytes:
    return _HEADER.pack(4 + len(body), number) + body


class Link:
    """To one process."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        me: int,
        other: int,
        routes: Routes,
        codec: Codec,
        on_up: Callable[[], None],
    ) -> None:
        """`on_up`: called each time when it is connected."""
        self._loop = loop
        self._me = me
        self._other = other
        self._routes = routes
        self._codec = codec
        self._on_up = on_up
        self._wire: _Wire | None = None
        """What is connected now."""
        self.up = asyncio.Event()
        """Set while it is connected."""
        self._asked: dict[int, Told] = {}
        """By the question's id, who is told."""
        self._next = 0
        self._frames = Frames()
        self._pinged_s: float | None = None
        """Since when a Ping waits."""
        self._pause_s = 0.0
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._connecting: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._connecting = self._loop.create_task(self._connect())
        self._timer = self._loop.call_later(SILENCE_S / 4, self._look)

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        self._drop()
        self._fail()

    @property
    def is_up(self) -> bool:
        return self._wire is not None

    def ask(self, shard: int, question: Question, told: Told) -> None:
        if self._wire is None:
            told(self._unreachable())
            return
        self._next = (self._next + 1) & 0xFFFF_FFFF
        self._asked[self._next] = told
        self._wire.transport.write(frame(self._next, encode_question(shard, question)))

    async def _connect(self) -> None:
        while not self._stopped and self._wire is None:
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(max(2 * self._pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)
            try:
                await self._routes.connect(self._other, partial(_Wire, self))
            except (OSError, ValueError):  # ValueError: of a host's name
                # The time may be over when the connection has just been made. uvloop closes it then. It may tell the
                # end late, since the other side does not end TLS, or never, since create_connection has not noticed.
                self._drop()

    def made(self, wire: _Wire) -> None:
        """It is connected."""
        if self._stopped:
            wire.transport.abort()
            return
        self._wire = wire
        self._frames, self._pinged_s = Frames(), None
        self.up.set()
        self.ask(PROCESS, Hello(self._me), self._greeted)

    def _greeted(self, answer: object) -> None:
        if not isinstance(answer, BrokerError):
            self._pause_s = 0.0
            self._on_up()

    def lost(self, wire: _Wire) -> None:
        """It has ended. One that was dropped may say so at any time."""
        if wire is not self._wire:
            return
        self._wire = None
        self.up.clear()
        self._fail()
        if not self._stopped and (self._connecting is None or self._connecting.done()):
            self._connecting = self._loop.create_task(self._connect())

    def received(self, wire: _Wire, data: bytes) -> None:
        if wire is not self._wire:
            return
        try:
            for number, body in self._frames.take(data):
                told = self._asked.pop(number, None)
                if told is not None:
                    _tell(told, self._decoded(body))
        except ValueError as error:
            logger.error("event=process_makes_no_sense process=%d error=%s", self._other, error)
            self._drop()

    def _decoded(self, body: bytes) -> object:
        try:
            return self._codec.answer(body)
        except msgspec.DecodeError as error:
            return BrokerError(
                Fault.UNKNOWN_SERVER_ERROR, f"process {self._other} answers what makes no sense: {error}"
            )

    def _drop(self) -> None:
        """Without what is connected, whether its end is told or not."""
        wire = self._wire
        if wire is not None:
            wire.transport.abort()
            self.lost(wire)

    def _fail(self) -> None:
        asked, self._asked = self._asked, {}
        for told in asked.values():
            _tell(told, self._unreachable())

    def _unreachable(self) -> BrokerError:
        return BrokerError(Fault.NOT_LEADER_OR_FOLLOWER, f"process {self._other} cannot be reached now")

    def _look(self) -> None:
        self._timer = self._loop.call_later(SILENCE_S / 4, self._look)
        if self._wire is None:
            return
        if self._pinged_s is None:
            self._pinged_s = self._loop.time()
            self.ask(PROCESS, Ping(), self._alive)
        elif self._loop.time() - self._pinged_s > SILENCE_S:
            logger.warning("event=process_silent process=%d for_s=%g", self._other, SILENCE_S)
            self._drop()

    def _alive(self, _answer: object) -> None:
        self._pinged_s = None


class _Wire(asyncio.Protocol):
    """One connection of a link."""

    transport: asyncio.Transport

    def __init__(self, link: Link) -> None:
        self._link = link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's have another base
        self._link.made(self)

    def data_received(self, data: bytes) -> None:
        self._link.received(self, data)

    def connection_lost(self, error: Exception | None) -> None:
        self._link.lost(self)


def _tell(told: Told, answer: object) -> None:
    try:
        told(answer)
    except Exception:
        logger.exception("event=callback_failed")


class Asked(asyncio.Protocol):
    """A connection of another process, which asks."""

    def __init__(self, receiver: Receiver, there: set[Asked], routes: Routes) -> None:
        """`there`: all of them, while they are connected."""
        self._receiver = receiver
        self._routes = routes
        self._there = there
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._there.add(self)
        if not self._routes.is_welcome(transport):
            logger.error("event=stranger_asks")
            self.close()

    def data_received(self, data: bytes) -> None:
        try:
            for number, body in self._frames.take(data):
                self._receiver.take(self, body, partial(self._answer, number))
                if self._transport is None:
                    return
        except (ValueError, msgspec.DecodeError) as error:
            logger.error("event=question_makes_no_sense error=%s", error)
            self.close()

    def _answer(self, number: int, answer: bytes | None) -> None:
        if answer is None:
            self.close()
        elif self._transport is not None:
            self._transport.write(frame(number, answer))

    def close(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._there.discard(self)
        self._receiver.drop(self)


class Links:
    """As cluster.asking.Asking, of one process."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        me: int,
        processes: Iterable[int],
        routes: Routes,
        owners: Sequence[int],
        inboxes: Mapping[int, Answering],
        on_up: Callable[[int], None],
    ) -> None:
        """`processes`: all that are known; `owners`: by shard, which process has it at each moment; `inboxes`: as of
        Receiver; `on_up` is told of each process that is connected."""
        self._owners = owners
        self._inboxes = inboxes
        self._loop = loop
        self._me = me
        self._routes = routes
        self._codec = Codec()
        self._on_up = on_up
        self._receiver = Receiver(inboxes)
        self._asking: set[Asked] = set()
        self._server: asyncio.Server | None = None
        self._links = {process: self._link(process) for process in processes if process != me}

    def _link(self, process: int) -> Link:
        return Link(self._loop, self._me, process, self._routes, self._codec, partial(self._on_up, process))

    def add(self, process: int) -> None:
        """There is one more; nothing happens where it is known."""
        if process != self._me and process not in self._links:
            self._links[process] = link = self._link(process)
            link.start()

    def remove(self, process: int) -> None:
        """It is gone for good."""
        link = self._links.pop(process, None)
        if link is not None:
            link.stop()

    async def start(self) -> None:
        """Others can ask from now on. Raises OSError."""
        self._server = await self._routes.listen(lambda: Asked(self._receiver, self._asking, self._routes))
        for link in self._links.values():
            link.start()

    async def connected(self, limit_s: float) -> None:
        """Returns when all other processes are connected, or after so long: one may be gone."""
        waiting = [self._loop.create_task(link.up.wait()) for link in self._links.values()]
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=limit_s)
            for task in late:
                task.cancel()

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for asked in list(self._asking):
            asked.close()
        for link in self._links.values():
            link.stop()

    def ask(self, shard: int, question: Question, told: Told) -> None:
        inbox = self._inboxes.get(shard)
        if inbox is not None:
            inbox.answer(question, told)
        else:
            self._ask(self._owners[shard], shard, question, told)

    def ask_process(self, process: int, question: Question, told: Told) -> None:
        """One of the others."""
        self._ask(process, PROCESS, question, told)

    def _ask(self, process: int, shard: int, question: Question, told: Told) -> None:
        link = self._links.get(process)
        if link is None:  # this process, which does not have the shard yet; or one that nobody knows of
            told(BrokerError(Fault.NOT_LEADER_OR_FOLLOWER, f"process {process} cannot be asked now"))
        else:
            link.ask(shard, question, told)

    def others(self) -> dict[int, bool]:
        """The other processes, and whether they are connected."""
        return {process: link.is_up for process, link in self._links.items()}
