"""Topics under RocketMQ's names: a group's own topics are %RETRY%group and %DLQ%group there, retry.group and dlq.group
here (schema/group_topics.py). All others have one name."""

from __future__ import annotations

import re

from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.core.topic_names import is_legal
from halfmoon.remoting.codes import Code
from halfmoon.schema.group_topics import dead_letter_topic, giving_up_group, retry_topic, retrying_group

RETRY_PREFIX, DEAD_LETTER_PREFIX = "%RETRY%", "%DLQ%"
AUTO_CREATE_TOPIC = "TBW102"
"""TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC: what producers ask for to learn how topics are made."""

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
"""TopicValidator.RMQ_SYS_TRANS_HALF_TOPIC: where half messages wait."""

_SENDABLE = re.compile(r"[%|a-zA-Z0-9_-]+\Z")
"""TopicValidator: what RocketMQ's producers send to."""


def from_rocketmq(topic: str) -> str:
    """The name here. Raises Refused(MESSAGE_ILLEGAL) where no topic can be called so."""
    if topic.startswith(RETRY_PREFIX) and len(topic) > len(RETRY_PREFIX):
        name = retry_topic(topic[len(RETRY_PREFIX) :])
    elif topic.startswith(DEAD_LETTER_PREFIX) and len(topic) > len(DEAD_LETTER_PREFIX):
        name = dead_letter_topic(topic[len(DEAD_LETTER_PREFIX) :])
    else:
        name = topic
    if not is_legal(name):
        raise Refused(Code.MESSAGE_ILLEGAL, f"no topic can be called '{topic[:300]}'")
    return name


def to_rocketmq(name: str) -> str:
    group = retrying_group(name)
    if group is not None:
        return RETRY_PREFIX + group
    group = giving_up_group(name)
    if group is not None:
        return DEAD_LETTER_PREFIX + group
    return name


def is_sendable(name: str) -> bool:
    """Whether a RocketMQ producer may send to it: its clients take no dots in a topic's name."""
    return _SENDABLE.match(to_rocketmq(name)) is not None
