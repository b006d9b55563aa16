"""Topics of the broker's own making, and whose they are (docs/decisions/0152-own-topics-follow.md).

Internal topics hold messages of everybody. So only rules with exactly their name allow something there.

`retry.<group>` and `dlq.<group>` hold what a group has read, and `check.<producer group>` what it has sent. They follow
the group: who may Read as it may read them, make them, hand records back, and say in `dlq-marks.<group>` which of its
dead letters are handled; and who may Write as the transactional id of that name may read what it is asked. Who may
write transactions at all may produce to `halfmoon.transactions`, where each record is asked for by itself
(plugins/store/transaction). Rules allow something on these topics, too, if they name them: with all of a name, or with
a prefix that begins as theirs do. `*` does not.

Names decide, not what there is: a topic that is yet to be made is nobody's until then.
"""

from __future__ import annotations

from collections.abc import Iterable

from halfmoon.schema.group_topics import (
    CHECK_PREFIX,
    DEAD_LETTER_PREFIX,
    MARKS_PREFIX,
    RETRY_PREFIX,
    asking_group,
    giving_up_group,
    marking_group,
    retrying_group,
)

Use = tuple[str, str, str | None]
"""Operation, resource type, and the resource's name; None: any of the type."""

END_TOPIC = "halfmoon.transactions"
"""Where producers end half messages."""
INTERNAL_PREFIX = "halfmoon."
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
PRODUCER_GROUP = "PGROUP"
"""The header of half messages that names who may end them."""
INTERNAL = frozenset(("SCHEDULE_TOPIC_XXXX", HALF_TOPIC, "TRANS_CHECK_MAX_TIME_TOPIC"))
"""Delayed messages, half messages, and half messages that were given up."""
NO_PREFIX = 1 << 16
"""Longer than the name of any topic."""


def is_internal(topic: str) -> bool:
    return topic in INTERNAL or topic.startswith(INTERNAL_PREFIX)


def least_prefix(topic: str) -> int:
    """How long the prefix of a rule must be, to allow something on the topic; 0: `*` does so, too."""
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX, MARKS_PREFIX, CHECK_PREFIX):
        if topic.startswith(prefix) and topic != prefix:
            return len(prefix)
    return NO_PREFIX if is_internal(topic) else 0


def seeing(topic: str, headers: Iterable[tuple[str, bytes | None]]) -> Use | None:
    """What it takes to see a message that stands in this topic, beside Read on the one that it goes to: a half message
    is nobody's but its producers' until it is committed, and may never be."""
    if topic != HALF_TOPIC:
        return None
    producers = dict(headers).get(PRODUCER_GROUP) or b""  # the last, as for who ends it
    return "write", "transactional_id", producers.decode(errors="replace")


def implied_by(operation: str, topic: str) -> Use | None:
    """What else allows an operation on a topic, if it is one that follows somebody."""
    if operation not in ("read", "describe", "create", "write"):
        return None
    group = retrying_group(topic)
    if group is None:
        group = marking_group(topic)
    if group is None and operation != "write":
        group = giving_up_group(topic)
    if group is not None:
        return "read", "group", group
    if topic == END_TOPIC:
        return None if operation not in ("write", "describe") else ("write", "transactional_id", None)
    producers = asking_group(topic) if operation != "write" else None
    return None if producers is None else ("write", "transactional_id", producers)
