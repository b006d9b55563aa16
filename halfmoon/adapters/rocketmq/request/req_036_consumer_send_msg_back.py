"""CONSUMER_SEND_MSG_BACK (36): a group hands a message back, to consume it again later or to give it up (B19).

It goes to the group's retry topic with all it had; what becomes of it there is the retry plugin's, which absorbs a
request that is sent again (RETRY_OF names the message).
"""

from __future__ import annotations

from halfmoon.adapters.rocketmq import lookup
from halfmoon.adapters.rocketmq.answers import DONE, Answer, refusal
from halfmoon.adapters.rocketmq.lookup import Standing
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.adapters.rocketmq.retry_limit import stated_limit
from halfmoon.adapters.rocketmq.shards import Shards, Stored
from halfmoon.core.catalog.topics import Topic
from halfmoon.core.records.batches import build_batch
from halfmoon.error_classes import CLASS_HEADER, MESSAGE_HEADER
from halfmoon.errors import BrokerError
from halfmoon.schema.group_topics import retry_topic
from halfmoon.schema.lifetimes import CONSUMED_TIMESTAMP

ERRORS = {CLASS_HEADER: "errorClass", MESSAGE_HEADER: "errorMessage"}
"""Header → field of the request. RocketMQ's clients do not send them; Halfmoon's do."""
REPLACED = frozenset(
    ("DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "RETRY_OF", CONSUMED_TIMESTAMP, *ERRORS)
)
BORN_MS = "halfmoon.original-timestamp"


@request(36, "CONSUMER_SEND_MSG_BACK")
def handle(call: Call) -> None:
    group = call.group("group")
    level = call.number("delayLevel", 0)
    limit = stated_limit(call.number("maxReconsumeTimes", -1))
    errors = [(name, text.encode()) for name, field in ERRORS.items() if (text := call.text(field, ""))]

    def answered(standing: Standing) -> None:
        partition, record = standing.partition, standing.record
        headers = [header for header in record.headers if header[0] not in REPLACED]
        place = f"{partition.topic.name}/{partition.index}/{standing.offset}".encode()
        headers.append(("RETRY_OF", place))
        headers.append((CONSUMED_TIMESTAMP, b"%d" % record.timestamp))
        headers += errors
        if level:
            headers.append(("DELAY", b"%d" % level))
        if limit >= 0:
            headers = [header for header in headers if header[0] != "MAX_RECONSUME_TIMES"]
            headers.append(("MAX_RECONSUME_TIMES", b"%d" % limit))
        # One that has waited before says when it was born; the delay's plugin would put its last arrival there.
        born = dict(record.headers).get(BORN_MS) or b""
        born_ms = int(born) if born.isdigit() and len(born) < 19 else record.timestamp
        batch = build_batch([(record.key, record.value, born_ms, headers)])
        call.hold_on()
        try:
            call.node.group_topic(retry_topic(group), lambda topic: call.answer(lambda: _store(call, topic, batch)))
        except BrokerError as error:
            refused = refusal(error)
            call.answer(lambda: refused)

    call.work_out(lookup.find(call, call.number("offset")), answered)


def _store(call: Call, topic: Topic | BrokerError, batch: bytes) -> Answer | None:
    """The retry topic lies where its group is coordinated, where it is known what was handed back before."""
    if isinstance(topic, BrokerError):
        return refusal(topic)
    core, shards, retry = call.core, call.node.shards, topic.partitions[0]
    if shards is not None and call.node.queues.id_of(retry) < 0:
        _store_elsewhere(call, shards, topic, batch)
        return None
    produced = core.append(retry, memoryview(bytearray(batch)), core.clock.wall_ms())
    call.after(produced.position, DONE)
    return None


def _store_elsewhere(call: Call, shards: Shards, topic: Topic, batch: bytes) -> None:
    call.hold_on()

    def stored(found: Stored | BrokerError) -> None:
        call.answer(lambda: refusal(found) if isinstance(found, BrokerError) else DONE)

    shards.messages.append(topic, 0, batch, stored)
