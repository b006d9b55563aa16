"""GET_CONSUME_STATS (208): how far a group is, in one topic or in all that it consumes.

Where there are several brokers, each knows its own queues. Administrators ask those that have the group's retry topic,
which is the one that coordinates it: that one asks the others how their queues stand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from halfmoon.adapters.rocketmq import fastjson, names
from halfmoon.adapters.rocketmq.answers import Answer, refusal
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.adapters.rocketmq.request.req_202_get_topic_stats_info import last_ms
from halfmoon.adapters.rocketmq.shards import Offsets, Place, QueueEnd, Shards
from halfmoon.core.catalog.topics import Topic
from halfmoon.errors import BrokerError

Row = tuple[fastjson.Queue, object]


@request(208, "GET_CONSUME_STATS")
def handle(call: Call) -> None:
    node, group, named = call.node, call.group("consumerGroup"), call.text("topic", "")
    if named:
        call.check("describe", "topic", names.from_rocketmq(named))  # first: whether it exists is not told either
        node.topic(named)

    def answer(found: Offsets | BrokerError) -> Answer | None:
        if isinstance(found, BrokerError):
            return refusal(found)
        topics = [node.topic(named)] if named else _topics(call, group, found)
        rows = list(_here(call, topics, found))
        if node.shards is None or not node.shards.coordinators.is_here(group):
            return _answer(rows)
        _ask_others(call, node.shards, topics, found, rows)
        return None

    call.hold_on()
    node.progress.all(group, lambda found: call.answer(lambda: answer(found)))


def _topics(call: Call, group: str, offsets: Offsets) -> list[Topic]:
    by_number = call.core.catalog.by_number
    found = {by_number[number].name: by_number[number] for number, _ in offsets if number in by_number}
    known = call.node.members.consumer_group(group)
    for name in known.subscriptions if known is not None else ():
        topic = call.node.find_topic(name)
        if topic is not None:
            found[topic.name] = topic
    return [found[name] for name in sorted(found) if call.allows("describe", "topic", name)]


def _here(call: Call, topics: Sequence[Topic], offsets: Offsets) -> Iterator[Row]:
    broker_name = call.node.settings.broker_name
    for topic in topics:
        for queue_id, partition in enumerate(call.node.queues.of(topic)):
            consumed = offsets.get((topic.number, partition.index), 0)
            end, time_ms = partition.stable_offset, last_ms(partition, consumed)
            yield _row(broker_name, topic, queue_id, consumed, end, time_ms)


def _row(broker_name: str, topic: Topic, queue_id: int, consumed: int, end: int, time_ms: int) -> Row:
    queue = fastjson.message_queue(broker_name, names.to_rocketmq(topic.name), queue_id)
    offsets = {"brokerOffset": end, "consumerOffset": consumed, "lastTimestamp": time_ms, "pullOffset": consumed}
    return queue, offsets


def _answer(rows: Sequence[Row]) -> Answer:
    return Answer(body=fastjson.body({"consumeTps": b"0.0", "offsetTable": fastjson.by_queue(rows)}))


def _ask_others(call: Call, shards: Shards, topics: Sequence[Topic], offsets: Offsets, rows: list[Row]) -> None:
    """Answer with these rows, and those of other brokers behind them."""
    by_number = {topic.number: topic for topic in topics}
    asked: dict[Place, int] = {
        (topic.number, partition.index): offsets.get((topic.number, partition.index), 0)
        for topic in topics
        for partition in topic.partitions
        if call.node.queues.id_of(partition) < 0
    }
    if not asked:
        call.reply(_answer(rows))
        return

    def answer(ends: Sequence[QueueEnd] | BrokerError) -> Answer:
        if isinstance(ends, BrokerError):
            return refusal(ends)
        for number, of_topic in groupby(ends, key=lambda each: each[0]):
            topic = by_number[number]
            for _, index, end, time_ms in of_topic:
                holder = shards.brokers.holder(topic, index)
                if holder is not None:
                    consumed = asked[number, index]
                    rows.append(_row(holder.broker.name, topic, holder.queue_id, consumed, end, time_ms))
        return _answer(rows)

    call.hold_on()
    shards.messages.ends(asked, lambda ends: call.answer(lambda: answer(ends)))
