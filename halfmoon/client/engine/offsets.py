"""How far a group is (B18): kept by brokers, or, where every member reads everything, by the member itself.

(org.apache.rocketmq.client.consumer.store.RemoteBrokerOffsetStore, LocalFileOffsetStore.)
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Protocol

from halfmoon.client.engine.instance import Instance
from halfmoon.client.errors import BrokerRefusedError, ClientError, RouteError, StorageError
from halfmoon.plugin import Queue
from halfmoon.remoting.codes import Code, RequestCode
from halfmoon.remoting.command import Command

TIMEOUT_MS = 3_000

log = logging.getLogger("halfmoon.client.consumer")


def offset_in(answer: Command, broker: str) -> int:
    """The offset that a broker says. Raises BrokerRefusedError."""
    if answer.code != Code.SUCCESS:
        raise BrokerRefusedError(answer.code, answer.remark, broker)
    try:
        return int(answer.fields["offset"])
    except (KeyError, ValueError):
        raise BrokerRefusedError(answer.code, f"an invalid offset: {answer.fields}", broker) from None


class OffsetFile(Protocol):
    """Where a broadcasting consumer's progress stands."""

    def load(self) -> Mapping[Queue, int]: ...

    def save(self, offsets: Mapping[Queue, int]) -> None: ...


class OffsetStore(Protocol):
    """The progress of one group, as this member sees it."""

    def update(self, queue: Queue, offset: int, *, only_forward: bool) -> None: ...

    def known(self, queue: Queue) -> int: ...

    async def read(self, queue: Queue) -> int: ...

    async def persist(
        self, queues: Iterable[Queue], *, surely: bool = False, again: bool = False
    ) -> ClientError | None: ...

    def forget(self, queue: Queue) -> None: ...


class Table:
    """Offsets in memory, and which of them nobody was told of yet."""

    def __init__(self) -> None:
        self.offsets: dict[Queue, int] = {}
        self.changed: set[Queue] = set()

    def update(self, queue: Queue, offset: int, *, only_forward: bool) -> None:
        """`only_forward`: progress that is behind what is known changes nothing."""
        known = self.offsets.get(queue)
        if known is None or (offset > known if only_forward else offset != known):
            self.offsets[queue] = offset
            self.changed.add(queue)

    def known(self, queue: Queue) -> int:
        """−1: not known."""
        return self.offsets.get(queue, -1)

    def forget(self, queue: Queue) -> None:
        self.offsets.pop(queue, None)
        self.changed.discard(queue)


class BrokerOffsets(Table):
    """Kept by the brokers: one table for all members of the group."""

    def __init__(self, instance: Instance, group: str) -> None:
        super().__init__()
        self._instance = instance
        self._group = group
        instance.when_lost.append(self._lost)

    def _lost(self) -> None:
        """With a connection, what was said over it last may be."""
        self.changed.update(self.offsets)

    async def read(self, queue: Queue) -> int:
        """What the broker knows; −1: nothing. Raises ClientError."""
        found = self._instance.routes.readable(queue.broker)
        if found is None:
            raise RouteError(f"no route names broker {queue.broker}")
        address, _ = found
        answer = await self._instance.network.request(
            address, RequestCode.QUERY_CONSUMER_OFFSET, self._fields(queue), timeout_ms=TIMEOUT_MS
        )
        if answer.code == Code.QUERY_NOT_FOUND:
            return -1
        return offset_in(answer, queue.broker)

    async def persist(
        self, queues: Iterable[Queue], *, surely: bool = False, again: bool = False
    ) -> ClientError | None:
        """Tell the brokers of these, as far as it is new to them, or `again`. `surely`: and wait until they have it.
        Gives back what went wrong first; that is logged, and tried again the next time."""
        failure: ClientError | None = None
        waiting = []
        for queue in queues:
            if queue not in self.changed and not (again and queue in self.offsets):
                continue
            found = self._instance.routes.readable(queue.broker)
            if found is None:
                continue
            address, _ = found
            fields = {**self._fields(queue), "commitOffset": str(self.offsets[queue])}
            code = RequestCode.UPDATE_CONSUMER_OFFSET
            if surely:
                self.changed.discard(queue)
                waiting.append((queue, self._instance.network.request(address, code, fields, timeout_ms=TIMEOUT_MS)))
            elif self._instance.network.oneway(address, code, fields):
                self.changed.discard(queue)
        for queue, pending in waiting:
            try:
                answer = await pending
                if answer.code != Code.SUCCESS:
                    raise BrokerRefusedError(answer.code, answer.remark, queue.broker)
            except ClientError as error:
                failure = failure or error
                if queue in self.offsets:
                    self.changed.add(queue)
                log.warning("event=offset_commit_failed group=%s queue=%s error=%s", self._group, queue, error)
        return failure

    def _fields(self, queue: Queue) -> dict[str, str]:
        return {
            "consumerGroup": self._group, "topic": queue.topic, "queueId": str(queue.queue_id), "bname": queue.broker,
        }  # fmt: skip


class FileOffsets(Table):
    """Kept in a file here."""

    def __init__(self, file: OffsetFile) -> None:
        super().__init__()
        self._file = file
        self._loaded: dict[Queue, int] | None = None

    async def read(self, queue: Queue) -> int:
        if self._loaded is None:
            self._loaded = dict(self._file.load())
        return self.offsets.get(queue, self._loaded.get(queue, -1))

    async def persist(
        self, queues: Iterable[Queue], *, surely: bool = False, again: bool = False
    ) -> ClientError | None:
        """All that is known, whichever was asked for: it is one file."""
        if not self.changed:
            return None
        try:
            self._loaded = {**(self._loaded or self._file.load()), **self.offsets}
            self._file.save(self._loaded)
        except (OSError, ClientError) as error:
            log.error("event=offset_commit_failed error=%s", error)
            return error if isinstance(error, ClientError) else StorageError(str(error))
        self.changed.clear()
        return None
