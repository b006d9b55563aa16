"""Asking shards and processes: over one connection to each other process, through its socket in the file system.

A connection that breaks, or whose other end has not answered for `SILENCE_S`, fails what was asked on it; whoever asked
asks again. It is made anew at once, and then with pauses.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, cast

import msgspec

from halfmoon.adapters.kafka.routes import SHARDS
from halfmoon.cluster.asking import Answering, Told
from halfmoon.cluster.messages import Hello, Question
from halfmoon.cluster.receiving import PROCESS, Codec, encode_question
from halfmoon.errors import BrokerError, Fault

logger = logging.getLogger("halfmoon.server")

_HEADER: Final = struct.Struct(">ihhih")
"""Size, API key, version, correlation id, length of the client id (−1: none)."""
_ANSWER: Final = struct.Struct(">ii")
"""Size, correlation id."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.5
SILENCE_S = 30.0


class Link(asyncio.Protocol):
    """To one process."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, me: int, other: int, path: Path, codec: Codec, on_up: Callable[[], None]
    ) -> None:
        """`on_up`: called each time when it is connected."""
        self._loop = loop
        self._me = me
        self._other = other
        self._path = path
        self._codec = codec
        self._on_up = on_up
        self._transport: asyncio.Transport | None = None
        self._asked: dict[int, tuple[Told, float]] = {}
        """Correlation id → who is told, and since when it waits."""
        self._next = 0
        self._read = bytearray()
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
        if self._transport is not None:
            self._transport.abort()
        self._fail()

    @property
    def is_up(self) -> bool:
        return self._transport is not None

    def ask(self, shard: int, question: Question, told: Told) -> None:
        if self._transport is None:
            told(self._unreachable())
            return
        self._next = (self._next + 1) & 0x7FFF_FFFF
        body = encode_question(shard, question)
        self._asked[self._next] = told, self._loop.time()
        self._transport.write(_HEADER.pack(_HEADER.size - 4 + len(body), SHARDS, 0, self._next, -1) + body)

    async def _connect(self) -> None:
        while not self._stopped:
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(max(2 * self._pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)
            try:
                await self._loop.create_unix_connection(lambda: self, str(self._path))
            except OSError:
                continue
            return

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's have another base
        self._read.clear()
        self.ask(PROCESS, Hello(self._me), self._greeted)

    def _greeted(self, answer: object) -> None:
        if not isinstance(answer, BrokerError):
            self._pause_s = 0.0
            self._on_up()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._fail()
        if not self._stopped:
            self._connecting = self._loop.create_task(self._connect())

    def data_received(self, data: bytes) -> None:
        read = self._read
        read += data
        at = 0
        while len(read) - at >= _ANSWER.size:
            size, correlation_id = _ANSWER.unpack_from(read, at)
            if len(read) - at < 4 + size:
                break
            body = bytes(read[at + _ANSWER.size : at + 4 + size])
            at += 4 + size
            asked = self._asked.pop(correlation_id, None)
            if asked is not None:
                self._tell(asked[0], self._decoded(body))
        del read[:at]

    def _decoded(self, body: bytes) -> object:
        try:
            return self._codec.answer(body)
        except msgspec.DecodeError as error:
            return BrokerError(
                Fault.UNKNOWN_SERVER_ERROR, f"process {self._other} answers what makes no sense: {error}"
            )

    def _tell(self, told: Told, answer: object) -> None:
        try:
            told(answer)
        except Exception:
            logger.exception("event=callback_failed")

    def _fail(self) -> None:
        asked, self._asked = self._asked, {}
        for told, _ in asked.values():
            self._tell(told, self._unreachable())

    def _unreachable(self) -> BrokerError:
        return BrokerError(Fault.NOT_LEADER_OR_FOLLOWER, f"process {self._other} cannot be reached now")

    def _look(self) -> None:
        self._timer = self._loop.call_later(SILENCE_S / 4, self._look)
        oldest = next(iter(self._asked.values()), None)
        if self._transport is not None and oldest is not None and self._loop.time() - oldest[1] > SILENCE_S:
            logger.warning("event=process_silent process=%d for_s=%g", self._other, SILENCE_S)
            self._transport.abort()


class Links:
    """As cluster.asking.Asking, of one process."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        me: int,
        sockets: Sequence[Path],
        owners: Sequence[int],
        inboxes: Mapping[int, Answering],
        on_up: Callable[[int], None],
    ) -> None:
        """`sockets`: of all processes; `owners`: by shard, which process has it; `inboxes`: as of Receiver; `on_up` is
        told of each process that is connected."""
        codec = Codec()
        self._owners = owners
        self._inboxes = inboxes
        self._links = {
            process: Link(loop, me, process, path, codec, lambda process=process: on_up(process))  # type: ignore[misc]
            for process, path in enumerate(sockets)
            if process != me
        }

    def start(self) -> None:
        for link in self._links.values():
            link.start()

    def stop(self) -> None:
        for link in self._links.values():
            link.stop()

    def ask(self, shard: int, question: Question, told: Told) -> None:
        inbox = self._inboxes.get(shard)
        if inbox is not None:
            inbox.answer(question, told)
        else:
            self._links[self._owners[shard]].ask(shard, question, told)

    def ask_process(self, process: int, question: Question, told: Told) -> None:
        """One of the others."""
        self._links[process].ask(PROCESS, question, told)

    def others(self) -> dict[int, bool]:
        """The other processes, and whether they are connected."""
        return {process: link.is_up for process, link in self._links.items()}
