"""UPDATE_AND_CREATE_TOPIC (17): a topic with so many queues and these attributes, or a change of one that is there."""

from __future__ import annotations

from collections.abc import Mapping

from halfmoon.adapters.rocketmq import attributes, names
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.adapters.rocketmq.routes import INHERIT, READ, WRITE
from halfmoon.adapters.rocketmq.shards import Administered
from halfmoon.core.catalog.topics import Topic
from halfmoon.core.topic_administration import TopicAdministration
from halfmoon.remoting.codes import Code


@request(17, "UPDATE_AND_CREATE_TOPIC", changes=True)
def handle(call: Call) -> None:
    name = names.from_rocketmq(call.text("topic"))
    queues = max(call.number("readQueueNums", 4), call.number("writeQueueNums", 4))
    perm = call.number("perm", READ | WRITE)
    if perm & (READ | WRITE) != READ | WRITE or perm & ~(READ | WRITE | INHERIT):
        raise Refused(Code.INVALID_PARAMETER, f"permissions {perm}: a topic here is for reading and writing (6)")
    said, is_ordered = call.text("attributes", ""), call.flag("order")

    def work(at: Administered) -> None:
        topic = at.catalog.topic(name)
        before = {} if topic is None else topic.configs
        altered = attributes.altered(before, said, new=topic is None, repeats=call.node.shards is not None)
        configs = attributes.ordered(altered, is_ordered)
        for source in at.administration.policies.shown_by(configs):
            call.check("read", "topic", source)
        if topic is None:
            at.administration.create_topic(name, queues, configs)
        else:
            _change(at.administration, topic, queues, configs, _fewest(call, topic))

    call.change(work)


def _fewest(call: Call, topic: Topic) -> int:
    """How many queues may be asked for at least. Administrators ask each broker, which may have but some of a topic's
    queues and says how many."""
    if call.node.shards is None:
        return len(topic.partitions)
    here = call.core.catalog.topic(topic.name)
    return 0 if here is None else len(call.node.queues.of(here))


def _change(
    administration: TopicAdministration, topic: Topic, queues: int, configs: Mapping[str, str], fewest: int
) -> None:
    if topic.internal:
        raise Refused(Code.NO_PERMISSION, f"topic '{topic.name}' is internal")
    if queues < fewest:
        raise Refused(
            Code.INVALID_PARAMETER,
            f"topic '{topic.name}' has {len(topic.partitions)} queues; none of them is taken away",
        )
    if configs != topic.configs:
        administration.alter_configs(topic, configs, validate_only=True)
    if queues > len(topic.partitions):
        administration.add_partitions(topic, queues)
    if configs != topic.configs:
        administration.alter_configs(topic, configs)
