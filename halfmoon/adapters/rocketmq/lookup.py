"""Single messages: by the number in their id, and as RocketMQ writes them."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.store_times import frame_at
from halfmoon.adapters.rocketmq.to_messages import MessageWriter, Sheet
from halfmoon.adapters.tcp.core import Core
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.records.batches import HEADER_BYTES, build_batch, iter_records, parse_header
from halfmoon.core.records.record_codec import Record
from halfmoon.core.steps import Steps
from halfmoon.remoting.codes import Code
from halfmoon.remoting.message import place_of
from halfmoon.services.keyindex.questions import Found


class Standing(NamedTuple):
    """A message and where it stands."""

    partition: Partition
    offset: int
    record: Record
    store_ms: int


class Asker(Protocol):
    """Who asks for a message (registry.Call)."""

    @property
    def core(self) -> Core: ...

    def check(self, operation: str, resource_type: str, resource: str) -> None:
        """Raises BrokerError where it is refused."""


def find(asker: Asker, physical: int) -> Steps[Standing]:
    """The message that a physical offset leads to, for who may read its topic: nobody else is told whether it is there.
    Raises BrokerError at once where that is refused; else as `_find`."""
    partition = asker.core.catalog.by_queue_number.get(place_of(physical)[0])
    if partition is not None:
        asker.check("read", "topic", partition.topic.name)
    return _find(asker.core, physical)


def _find(core: Core, physical: int) -> Steps[Standing]:
    """Raises Refused(QUERY_NOT_FOUND), BrokerError."""
    number, offset = place_of(physical)
    partition = core.catalog.by_queue_number.get(number)
    if partition is not None and partition.start_offset <= offset < partition.stable_offset:
        whole = yield from frame_at(core.frames, partition, offset)
        if whole is not None and not partition.shows(parse_header(whole.payload), offset, whole.frame.position):
            whole = None
        for record in iter_records(whole.payload, created=True) if whole is not None else ():
            if whole is not None and whole.frame.base_offset + record.offset_delta == offset:
                return Standing(partition, offset, record, whole.frame.store_ms)
    raise Refused(Code.QUERY_NOT_FOUND, f"can not find message by the offset, {physical}")


def written(writer: MessageWriter, standing: Standing) -> bytes:
    record = standing.record
    row = record.key, record.value, record.timestamp, record.headers
    batch = build_batch([row], base_offset=standing.offset)
    sheet = Sheet()
    writer.write(sheet, standing.partition, parse_header(batch), batch[HEADER_BYTES:], standing.store_ms)
    return b"".join(sheet.parts)


def found_again(partition: Partition, message: Found) -> Standing:
    """What a search by key has found."""
    record = Record(0, message.timestamp, message.key, message.value, message.headers, 0, 0)
    return Standing(partition, message.offset, record, message.store_ms)
