"""UPDATE_AND_CREATE_TOPIC (17): a topic with so many queues and these attributes, or a change of one that is there."""

from __future__ import annotations

from collections.abc import Mapping

from halfmoon.adapters.rocketmq import attributes, names
from halfmoon.adapters.rocketmq.answers import DONE
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.adapters.rocketmq.routes import INHERIT, READ, WRITE
from halfmoon.core.catalog.topics import Topic
from halfmoon.remoting.codes import Code


@request(17, "UPDATE_AND_CREATE_TOPIC", changes=True)
def handle(call: Call) -> None:
    name = names.from_rocketmq(call.text("topic"))
    queues = max(call.number("readQueueNums", 4), call.number("writeQueueNums", 4))
    perm = call.number("perm", READ | WRITE)
    if perm & (READ | WRITE) != READ | WRITE or perm & ~(READ | WRITE | INHERIT):
        raise Refused(Code.INVALID_PARAMETER, f"permissions {perm}: a topic here is for reading and writing (6)")
    topic = call.core.catalog.topic(name)
    before = {} if topic is None else topic.configs
    configs = attributes.altered(before, call.text("attributes", ""), new=topic is None)
    configs = attributes.ordered(configs, call.flag("order"))
    for source in call.core.administration.policies.shown_by(configs):
        call.check("read", "topic", source)
    if topic is None:
        call.core.administration.create_topic(name, queues, configs)
    else:
        _change(call, topic, queues, configs)
    call.when_known(DONE)


def _change(call: Call, topic: Topic, queues: int, configs: Mapping[str, str]) -> None:
    administration = call.core.administration
    if topic.internal:
        raise Refused(Code.NO_PERMISSION, f"topic '{topic.name}' is internal")
    if queues < len(topic.partitions):
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
