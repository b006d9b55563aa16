"""Storing what producers send: topics that are made on demand, the limits, the answer (SendMessageProcessor)."""

from __future__ import annotations

import random
import sys
from array import array
from typing import Final, NamedTuple

from stringzilla import find

from halfmoon.adapters.rocketmq import names
from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.drawing import header, record, split_unique
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.registry import Call
from halfmoon.adapters.rocketmq.retry_limit import stated_limit
from halfmoon.adapters.rocketmq.shard_sending import AppendingLater, send_on, when_made
from halfmoon.adapters.rocketmq.shards import Holder, Stored
from halfmoon.adapters.rocketmq.to_messages import PRODUCER_GROUP, RECONSUME_TIMES, RETRY_LIMIT
from halfmoon.adapters.rocketmq.to_records import (
    AT_ONCE,
    DELAYS,
    SYSTEM_FLAGS,
    TIMERS,
    TRANSACTION,
    batched,
    plain_body,
)
from halfmoon.adapters.tcp.access import CLUSTER
from halfmoon.adapters.tcp.appending import append_late
from halfmoon.adapters.tcp.core import Core
from halfmoon.config.units import format_duration
from halfmoon.core.append_types import Produced, Sender
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.records.batch_header import new_batch
from halfmoon.core.steps import Pauses, Slices, finish
from halfmoon.errors import BrokerError, Fault, NotHereYetError, TakesLongError
from halfmoon.remoting import properties
from halfmoon.remoting.codes import DUE, Code
from halfmoon.remoting.message import COMPRESSED, physical_offset
from halfmoon.services.topic_configs import ROCKETMQ_BODY, VERBATIM

MOST_AUTO_QUEUES = 8
"""Queues of TBW102, so the most that a topic gets which is made because somebody sends to it."""
IDS_AT_ONCE = 4_096
"""Message ids that are written in one go: a third of a millisecond."""
_LITTLE_ENDIAN: Final = sys.byteorder == "little"
_ONE_AT_A_TIME = frozenset((*DELAYS, TRANSACTION))
_LOOKED_AT = frozenset((*TIMERS, TRANSACTION))


Made = tuple[bytearray, int]
"""A record batch, and how many messages it has."""


class Sent(NamedTuple):
    """A request to send, as both its headers say it."""

    group: str
    topic: str
    queue_id: int
    system_flags: int
    born_ms: int
    flag: int
    properties: str
    reconsume_times: int
    max_reconsume_times: int
    """−1: it does not say."""
    default_topic: str
    default_queues: int

    @property
    def is_retry(self) -> bool:
        return self.topic.startswith(names.RETRY_PREFIX)


def send(call: Call, sent: Sent, *, batch: bool) -> Answer | None:
    """Store the body of a request."""
    node = call.node
    connection = call.connection
    partition = _queue(call, sent, batch=batch)
    if partition is None:
        return None
    text = sent.properties.encode()
    if len(text) > properties.MAX_BYTES:
        raise Refused(Code.MESSAGE_ILLEGAL, f"the properties take {len(text)} bytes of {properties.MAX_BYTES}")
    unique, rest = split_unique(text)
    rules = partition.topic.rules
    more, more_count = connection.born_header, 1
    is_half = False
    body: bytes | memoryview = call.command.body
    if sent.system_flags & COMPRESSED:
        if rules.of_features.get(ROCKETMQ_BODY) == VERBATIM:
            more += header(SYSTEM_FLAGS, b"%d" % sent.system_flags)
            more_count += 1
        else:
            body = plain_body(body, sent.system_flags, rules.max_message_bytes)
    if sent.is_retry:
        said = _handed_back(call, sent)
        more += b"".join([header(name, value) for name, value in said])
        more_count += len(said)
    if batch:
        data = bytes(body)
        if len(data) > rules.max_message_bytes:  # before it is taken apart: half a second for 16 MiB of empty messages
            raise Refused(Code.MESSAGE_ILLEGAL, f"the batch takes {len(data)} bytes of {rules.max_message_bytes}")
        making = _make_batch(call, sent, data, more, more_count)
        try:
            next(making)
        except StopIteration as made_at_once:
            made, count = made_at_once.value
        else:
            if node.queues.id_of(partition) < 0:
                call.work_out(making, lambda made: _send_on(call, partition, made[0], made[1], unique))
                return None
            call.work_out(
                _store_many(call, partition, making),
                lambda stored: _answer(call, partition, stored[0], stored[1], unique, is_half=False),
            )
            return None
    else:
        found = node.records.read(rest)
        used = found.names
        is_half = TRANSACTION in used
        if not used.isdisjoint(_LOOKED_AT):
            _check_features(call, sent, used, text)
        count, drawn = 1, record(unique, found, body, sent.flag, 0, more, more_count)
        made = new_batch(drawn, 1, sent.born_ms, sent.born_ms)
    if node.queues.id_of(partition) < 0:
        if is_half:
            raise Refused(Code.SYSTEM_BUSY, f"other brokers have the queues of topic[{sent.topic}]: ask for its route")
        _send_on(call, partition, made, count, unique)
        return None
    core, records, sender = node.core, memoryview(made), call.rights
    try:
        produced = core.append(partition, records, core.clock.wall_ms(), sender=sender)
    except (NotHereYetError, TakesLongError):
        late = _append(core, partition, records, sender)
        call.work_out(late, lambda produced: _answer_for(call, partition, produced, count, unique, is_half))
        return None
    except BrokerError as error:
        if error.fault is Fault.NOT_LEADER_OR_FOLLOWER and node.shards is not None:
            later = AppendingLater(
                call,
                partition,
                records,
                lambda produced: _answer_for(call, partition, produced, count, unique, is_half),
            )
            later.wait()
            return None
        core.refused_batches[error.fault] += 1
        raise
    _answer_for(call, partition, produced, count, unique, is_half)
    return None


def _make_batch(call: Call, sent: Sent, data: bytes, more: bytes, more_count: int) -> Pauses[Made]:
    yield from _check_batch(call, sent, data)
    return (yield from call.node.records.batch(data, sent.born_ms, more, more_count))


def _store_many(call: Call, partition: Partition, making: Pauses[Made]) -> Slices[tuple[Produced, str]]:
    """Store a batch of more messages than are done at once. Where, and the ids of all of them."""
    made, count = yield from making
    produced = yield from _append(call.core, partition, memoryview(made), call.rights)
    return produced, (yield from _message_ids(call, partition, produced, count))


def _append(core: Core, partition: Partition, records: memoryview, sender: Sender | None) -> Slices[Produced]:
    """Once more. Raises BrokerError."""
    try:
        return (yield from append_late(core, partition, records, sender))
    except BrokerError as error:
        core.refused_batches[error.fault] += 1
        raise


def _answer_for(
    call: Call, partition: Partition, produced: Produced, count: int, unique: bytes | None, is_half: bool
) -> None:
    if not call.command.is_oneway:
        _answer(call, partition, produced, finish(_message_ids(call, partition, produced, count)), unique, is_half)


def place(partition: Partition, produced: Produced) -> tuple[Partition, int, int]:
    """Where a message stands: the queue and the offset of the first; and when it is due, 0 if it waits for nothing."""
    if produced.base_offset >= 0:
        return partition, produced.base_offset, 0
    other = produced.redirected
    return (partition, 0, 0) if other is None else (other.partition, other.offset, other.due_ms)


def _message_ids(call: Call, partition: Partition, produced: Produced, count: int) -> Pauses[str]:
    """With commas between them."""
    queue, offset, _ = place(partition, produced)
    return _ids(call.node.writer_for(call.connection).store_hex, queue.queue_number, offset, count)


def _ids(store: str, queue_number: int, offset: int, count: int) -> Pauses[str]:
    first = physical_offset(queue_number, offset)
    if count == 1:
        return f"{store}{first:016X}"
    texts: list[str] = []
    for begin in range(first, first + count, IDS_AT_ONCE):
        if texts:
            yield
        offsets = array("Q", range(begin, min(begin + IDS_AT_ONCE, first + count)))
        if _LITTLE_ENDIAN:
            offsets.byteswap()
        texts.append(store + offsets.tobytes().hex(",", 8).upper().replace(",", "," + store))
    return ",".join(texts)


def _answer(
    call: Call, partition: Partition, produced: Produced, message_ids: str, unique: bytes | None, is_half: bool
) -> None:
    """Once it is durable. `unique`: the message's UNIQ_KEY. `is_half`: when it is delivered nobody knows."""
    if call.command.is_oneway:
        return
    _, offset, due_ms = place(partition, produced)
    queue_id = call.node.queues.id_of(partition)
    call.after(produced.position, _stored(message_ids, queue_id, offset, unique, 0 if is_half else due_ms))


def _stored(message_ids: str, queue_id: int, offset: int, unique: bytes | None, due_ms: int) -> Answer:
    fields = {
        "msgId": message_ids,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    if unique is not None:
        fields["transactionId"] = unique.decode()
    if due_ms:
        fields[DUE] = str(due_ms)
    return Answer(fields=fields)


def _send_on(call: Call, partition: Partition, made: bytearray, count: int, unique: bytes | None) -> None:
    """Have the shard store it that the queue lies in. Raises Refused."""

    def answer(stored: Stored, holder: Holder) -> Answer:
        store = call.node.host_of(holder.broker, call.connection).in_hex()
        ids = finish(_ids(store, stored.queue_number, stored.offset, count))
        return _stored(ids, holder.queue_id, stored.offset, unique, stored.due_ms)

    send_on(call, partition, bytes(made), answer)


def _check_batch(call: Call, sent: Sent, data: bytes) -> Pauses[None]:
    """Raises Refused(MESSAGE_ILLEGAL) where one of the messages is more than a message."""
    if not sent.is_retry and all(find(data, name) < 0 for name in _ONE_AT_A_TIME):
        return
    read = call.node.records.read
    for at, message in enumerate(batched(data)):
        if at % AT_ONCE == AT_ONCE - 1:
            yield
        if sent.is_retry or not _ONE_AT_A_TIME.isdisjoint(read(split_unique(message.properties)[1]).names):
            raise Refused(Code.MESSAGE_ILLEGAL, "messages of a batch cannot be delayed, retried or transactional")


def _check_features(call: Call, sent: Sent, used: frozenset[bytes], text: bytes) -> None:
    """Raises Refused(MESSAGE_ILLEGAL) for a delay that is too long."""
    found = dict(properties.decode(text))
    if TRANSACTION in used:
        producers = found.get(PRODUCER_GROUP, sent.group.encode()).decode()
        call.check("write", "transactional_id", producers)
        call.node.checks.expect(producers)
    if used.isdisjoint(TIMERS):
        return
    now_ms = call.core.clock.wall_ms()
    try:
        if b"TIMER_DELAY_SEC" in found:
            delay_ms = 1_000 * int(found[b"TIMER_DELAY_SEC"])
        elif b"TIMER_DELAY_MS" in found:
            delay_ms = int(found[b"TIMER_DELAY_MS"])
        else:
            delay_ms = int(found.get(b"TIMER_DELIVER_MS", b"0")) - now_ms
    except ValueError:
        return  # the delays' own plugin says what is wrong
    longest_ms = call.node.settings.max_delay_ms
    if delay_ms > longest_ms:
        raise Refused(
            Code.MESSAGE_ILLEGAL,
            "timer message illegal, the delay time should not be bigger than the max delay "
            f"{longest_ms}ms ({format_duration(longest_ms)})",
        )


def _handed_back(call: Call, sent: Sent) -> list[tuple[bytes, bytes]]:
    """A client that hands a message back by sending it: it has counted that already. A group that consumes in order
    has tried often enough where it was."""
    times = max(0, sent.reconsume_times - 1)
    said = [(RECONSUME_TIMES, b"%d" % times)]
    limit = stated_limit(sent.max_reconsume_times)
    if limit >= 0:
        said.append((RETRY_LIMIT, b"%d" % limit))
    group = sent.topic[len(names.RETRY_PREFIX) :]
    if call.node.is_ordered(group):
        said.append((b"DELAY", b"-1"))
    return said


def _queue(call: Call, sent: Sent, *, batch: bool) -> Partition | None:
    """Where it goes. The topic is made where producers may do that by sending; None: that takes a while, and the
    request goes on by itself then. Raises Refused, BrokerError."""
    node = call.node
    topic = node.sendable(sent.topic)
    if topic is None:
        name = names.from_rocketmq(sent.topic)
        wanted = _may_make(call, sent, name)
        if node.topics is not None:
            when_made(call, node.topics, name, wanted, lambda: send(call, sent, batch=batch))
            return None
        topic = call.core.administration.create_topic(name, wanted)[0]
    queues = node.queues.of(topic)
    queue_id = sent.queue_id
    if queue_id < 0 and queues:
        queue_id = random.randrange(len(queues))
    if not 0 <= queue_id < len(queues):
        if topic.is_spread and call.core.settings.topics.auto_create and sent.default_topic == names.AUTO_CREATE_TOPIC:
            # By the route of TBW102, as if there were so many queues here: the client has not heard of the topic's yet.
            return queues[queue_id % len(queues)] if queues else topic.partitions[queue_id % len(topic.partitions)]
        raise Refused(Code.INVALID_PARAMETER, f"queueId[{queue_id}] is illegal, topic:[{sent.topic}] has {len(queues)}")
    partition = queues[queue_id]
    node.check_owner(partition)
    return partition


def _may_make(call: Call, sent: Sent, name: str) -> int:
    """How many queues the topic is to have. Raises Refused, BrokerError."""
    own = sent.topic.startswith((names.RETRY_PREFIX, names.DEAD_LETTER_PREFIX))
    settings = call.core.settings.topics
    if not own and not (settings.auto_create and sent.default_topic == names.AUTO_CREATE_TOPIC):
        raise Refused(Code.TOPIC_NOT_EXIST, f"topic[{sent.topic}] not exist, apply first please!")
    if not names.is_sendable(name):
        raise Refused(Code.MESSAGE_ILLEGAL, f"no producer may make a topic '{sent.topic[:300]}'")
    if not own:
        call.check_change(("create", "cluster", CLUSTER), ("create", "topic", name))
    return 1 if own else max(1, min(sent.default_queues, MOST_AUTO_QUEUES))
