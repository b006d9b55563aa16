"""What an administrator asks of a running push consumer, through a broker (ClientRemotingProcessor)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct

from halfmoon.client.engine.network import Connection
from halfmoon.plugin import Queue
from halfmoon.remoting.codes import Code, RequestCode
from halfmoon.remoting.command import Command
from halfmoon.remoting.errors import MalformedFrame

if TYPE_CHECKING:
    from halfmoon.client.engine.consumer_settings import ConsumerSettings
    from halfmoon.client.engine.instance import Instance
    from halfmoon.client.engine.offsets import OffsetStore
    from halfmoon.client.engine.process_queue import ProcessQueue
    from halfmoon.client.engine.subscriptions import Subscription


class Locking(Protocol):
    needs_lock: bool
    """A queue is pulled only while the broker says that it is ours."""


class Inspected(Protocol):
    """What is looked at of a consumer (consuming.PushConsuming)."""

    @property
    def instance(self) -> Instance: ...
    @property
    def group(self) -> str: ...
    @property
    def settings(self) -> ConsumerSettings: ...
    @property
    def store(self) -> OffsetStore: ...
    @property
    def service(self) -> Locking: ...
    @property
    def subscriptions(self) -> Mapping[str, Subscription]: ...
    @property
    def queues(self) -> Mapping[Queue, ProcessQueue]: ...

    def owned(self, topic: str) -> Sequence[Queue]:
        """Its queues of a topic."""

    async def begin_at(self, queue: Queue, offset: int) -> None:
        """Begin a queue of its own anew at another offset."""


class Inspection:
    """Of one consumer."""

    def __init__(self, consuming: Inspected) -> None:
        self._consuming = consuming
        self._began_ms = 0

    def begin(self) -> None:
        """Such requests are answered from now on."""
        self._began_ms = self._consuming.instance.kernel.wall_ms()
        handlers = self._consuming.instance.handlers
        handlers[RequestCode.RESET_CONSUMER_CLIENT_OFFSET] = self._reset
        handlers[RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT] = self._status
        handlers[RequestCode.GET_CONSUMER_RUNNING_INFO] = self._running_info

    def _reset(self, connection: Connection, command: Command) -> None:
        """RESET_CONSUMER_CLIENT_OFFSET: begin anew at other offsets (brokers before 5.0)."""
        fields = command.fields
        if fields.get("group") != self._consuming.group:
            return
        consuming = self._consuming
        offsets = {
            queue: offset for queue, offset in decode_offset_table(bytes(command.body)) if queue in consuming.queues
        }  # fmt: skip
        for queue, offset in offsets.items():
            consuming.instance.kernel.spawn(consuming.begin_at(queue, offset), "reset")

    def _status(self, connection: Connection, command: Command) -> None:
        """GET_CONSUMER_STATUS_FROM_CLIENT: the progress of each queue of a topic."""
        topic = command.fields.get("topic", "")
        rows = [(queue, max(0, self._consuming.store.known(queue))) for queue in self._consuming.owned(topic)]
        body = b'{"messageQueueTable":' + encode_offset_table(rows) + b"}"
        self._consuming.instance.network.answer(connection, command, Code.SUCCESS, None, body)

    def _running_info(self, connection: Connection, command: Command) -> None:
        """GET_CONSUMER_RUNNING_INFO (ConsumerRunningInfo)."""
        consuming = self._consuming
        rows = []
        for queue, each in consuming.queues.items():
            info = {
                "cachedMsgCount": len(each.messages), "cachedMsgMaxOffset": max(0, each.max_offset),
                "cachedMsgMinOffset": max(0, each.progress), "cachedMsgSizeInMiB": each.bytes >> 20,
                "commitOffset": consuming.store.known(queue), "droped": each.is_dropped, "locked": each.is_locked,
                "lastPullTimestamp": self._wall_ms(each.last_pull_ms),
                "lastConsumeTimestamp": self._wall_ms(each.last_consume_ms),
                "lastLockTimestamp": self._wall_ms(each.last_lock_ms),
                "transactionMsgCount": 0, "transactionMsgMaxOffset": 0, "transactionMsgMinOffset": 0,
                "tryUnlockTimes": 0,
            }  # fmt: skip
            rows.append((queue, info))
        settings = consuming.settings
        properties = {
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY", "PROP_CONSUMEORDERLY": str(consuming.service.needs_lock).lower(),
            "PROP_THREADPOOL_CORE_SIZE": str(settings.threads), "PROP_CLIENT_VERSION": "V5_3_3",
            "PROP_CONSUMER_START_TIMESTAMP": str(self._began_ms),  # mqadmin consumerStatus reads it as a number
            "messageModel": settings.model.upper(), "consumeFromWhere": settings.consume_from.value,
            "consumerGroup": consuming.group, "instanceName": consuming.instance.client_id.rpartition("@")[2],
        }  # fmt: skip
        said: dict[str, bytes] = {
            "properties": msgspec.json.encode(properties),
            "subscriptionSet": msgspec.json.encode([each.said() for each in consuming.subscriptions.values()]),
            "mqTable": encode_offset_table(rows), "mqPopTable": b"{}", "statusTable": b"{}",
        }  # fmt: skip
        body = b"{" + b",".join(msgspec.json.encode(name) + b":" + value for name, value in said.items()) + b"}"
        consuming.instance.network.answer(connection, command, Code.SUCCESS, None, body)

    def _wall_ms(self, at_ms: float) -> int:
        kernel = self._consuming.instance.kernel
        return kernel.wall_ms() - int(kernel.now_ms - at_ms)


class _QueueName(Struct):
    topic: str
    brokerName: str  # noqa: N815 (the wire's names, here and below)
    queueId: int  # noqa: N815


class _OffsetRow(_QueueName):
    offset: int


def encode_offset_table(rows: Sequence[tuple[Queue, Any]]) -> bytes:
    """A map whose keys are queues, as fastjson writes it."""
    encode = msgspec.json.encode
    return (
        b"{"
        + b",".join(
            encode({"brokerName": queue.broker, "queueId": queue.queue_id, "topic": queue.topic}) + b":" + encode(value)
            for queue, value in rows
        )
        + b"}"
    )


def decode_offset_table(body: bytes) -> list[tuple[Queue, int]]:
    """What offsets to reset to look like (ResetOffsetBodyForC, ResetOffsetBody). Raises MalformedFrame."""
    try:
        rows = msgspec.json.decode(body, type=dict[str, list[_OffsetRow]])["offsetTable"]
        return [(Queue(row.topic, row.brokerName, row.queueId), row.offset) for row in rows]
    except (msgspec.MsgspecError, KeyError):
        pass
    found = []
    text = body.strip()
    if not text.startswith(b'{"offsetTable":{') or not text.endswith(b"}}"):
        raise MalformedFrame(f"a table of offsets that cannot be read: {body[:200]!r}")
    for part in text[len(b'{"offsetTable":{') : -2].split(b",{") if len(text) > 18 else []:
        key, _, offset = part.lstrip(b"{").rpartition(b"}:")
        try:
            name = msgspec.json.decode(b"{" + key + b"}", type=_QueueName)
            found.append((Queue(name.topic, name.brokerName, name.queueId), int(offset)))
        except (msgspec.MsgspecError, ValueError) as error:
            raise MalformedFrame(f"a table of offsets that cannot be read: {error}") from None
    return found
