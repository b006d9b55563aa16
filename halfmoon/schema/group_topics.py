"""The topics that belong to a group: what it hands back to consume again, and what it has given up (B35).

`retry.<group>` and `dlq.<group>` are what RocketMQ calls %RETRY%group and %DLQ%group (MixAll.getRetryTopic,
getDLQTopic). A group may be called anything, a topic not. So what a topic's name cannot hold is written `_xHH_`, a
byte of UTF-8 each, and the underscore of what only looks like that as well: two groups never share a topic.
"""

from __future__ import annotations

import re

RETRY_PREFIX = "retry."
DEAD_LETTER_PREFIX = "dlq."
CHECK_PREFIX = "check."
MARKS_PREFIX = "dlq-marks."

_ILLEGAL = re.compile(rb"[^a-zA-Z0-9._-]|_(?=x[0-9A-F]{2}_)")
_ESCAPED = re.compile(rb"_x([0-9A-F]{2})_")


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + _escaped(group)


def dead_letter_topic(group: str) -> str:
    return DEAD_LETTER_PREFIX + _escaped(group)


def marks_topic(dead_letters: str) -> str:
    """Where it is said which records of a dead-letter topic are handled. The topic's name begins with
    DEAD_LETTER_PREFIX."""
    return MARKS_PREFIX + dead_letters.removeprefix(DEAD_LETTER_PREFIX)


def check_topic(producer_group: str) -> str:
    """Where a group of producers is asked about half messages (B40)."""
    return CHECK_PREFIX + _escaped(producer_group)


def retrying_group(topic: str) -> str | None:
    """The group whose `retry_topic` this is; None if it is no such topic."""
    return _group(topic, RETRY_PREFIX)


def giving_up_group(topic: str) -> str | None:
    """The group whose `dead_letter_topic` this is; None if it is no such topic."""
    return _group(topic, DEAD_LETTER_PREFIX)


def marking_group(topic: str) -> str | None:
    """The group in whose `dead_letter_topic` this topic marks records; None if it is no such topic."""
    return _group(topic, MARKS_PREFIX)


def asking_group(topic: str) -> str | None:
    """The group of producers whose `check_topic` this is; None if it is no such topic."""
    return _group(topic, CHECK_PREFIX)


def _group(topic: str, prefix: str) -> str | None:
    if not topic.startswith(prefix) or topic == prefix:
        return None
    try:
        return _ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()), topic[len(prefix) :].encode()).decode()
    except UnicodeDecodeError:
        return None


def _escaped(group: str) -> str:
    return _ILLEGAL.sub(lambda match: b"_x%02X_" % match[0][0], group.encode()).decode()
