"""Which names a topic may have.

The rule is Kafka's (org.apache.kafka.common.internals.Topic): 1 to 249 ASCII letters, digits, '.', '_' or '-', and
neither "." nor "..". Kafka also refuses a name that differs from an existing one only in '.' against '_', because its
metrics would mix them up; ours carry the name as a label, so such pairs are allowed here.
"""

from __future__ import annotations

import re

from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.readable_topics import READABLE

MAX_LENGTH = 249
KAFKAS_INTERNAL = frozenset(("__consumer_offsets", "__transaction_state"))
"""Kafka's internal topics (Topic.INTERNAL_TOPICS)."""
READABLE_INTERNAL = KAFKAS_INTERNAL | READABLE
"""Internal topics that clients may read."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")


def check_topic_name(name: str | None) -> None:
    """Raise BrokerError(INVALID_TOPIC_EXCEPTION) with the reason if no topic may be called so."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > MAX_LENGTH:
        reason = f"it is longer than {MAX_LENGTH} characters"
    elif not _LEGAL.match(name):
        reason = f"'{name}' contains characters other than ASCII letters, digits, '.', '_' and '-'"
    else:
        return
    raise BrokerError(Fault.INVALID_TOPIC_EXCEPTION, f"topic name is invalid: {reason}")


def is_legal(name: str | None) -> bool:
    """Whether `check_topic_name` would pass it."""
    try:
        check_topic_name(name)
    except BrokerError:
        return False
    return True
