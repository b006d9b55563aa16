"""What a consumer wants of a topic (B25), and the second look at tags (B33)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from halfmoon.client.errors import ConfigError
from halfmoon.client.messages import ReceivedMessage
from halfmoon.plugin import string_hash

ALL = "*"
TAG, SQL92 = "TAG", "SQL92"
MARK = b"TAGS\1"


class Subscription(Struct, frozen=True):
    """To one topic. (org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData.)"""

    topic: str
    expression: str = ALL
    kind: str = TAG
    version: int = 0
    """Unix ms of when it was made: brokers keep the newest."""
    tags: frozenset[str] = frozenset()
    """Empty: all."""

    def wanted(self, messages: list[ReceivedMessage]) -> list[ReceivedMessage]:
        """Those whose tag is one of ours: a broker has compared hashes only."""
        if not self.tags:
            return messages
        return [message for message in messages if message.tags in self.tags]

    def said(self) -> Mapping[str, Any]:
        """As a heartbeat says it."""
        return {
            "topic": self.topic, "subString": self.expression, "expressionType": self.kind,
            "tagsSet": sorted(self.tags), "codeSet": sorted({string_hash(tag) for tag in self.tags}),
            "subVersion": self.version, "classFilterMode": False,
        }  # fmt: skip


def by_tags(topic: str, expression: str, version: int) -> Subscription:
    """`*`, or tags with `||` between (FilterAPI.buildSubscriptionData). Raises ConfigError."""
    expression = expression.strip() or ALL
    if expression == ALL:
        return Subscription(topic, ALL, TAG, version)
    tags = frozenset(tag for part in expression.split("||") if (tag := part.strip()))
    if not tags:
        raise ConfigError(f"topic '{topic}': {expression!r} names no tag; expected `*`, or tags with `||` between")
    return Subscription(topic, expression, TAG, version, tags)


def by_language(topic: str, language: str, expression: str, version: int) -> Subscription:
    """In a filter language that a plugin of the broker knows. The broker says whether it makes sense. Raises
    ConfigError."""
    if not language.strip() or not expression.strip():
        raise ConfigError(f"topic '{topic}': a filter language and its expression must not be empty")
    kind = language.strip().upper()
    return by_tags(topic, expression, version) if kind == TAG else Subscription(topic, expression, kind, version)


def by_sql(topic: str, expression: str, version: int) -> Subscription:
    """SQL92 on tags and properties. The broker says whether it makes sense. Raises ConfigError."""
    if not expression.strip():
        raise ConfigError(f"topic '{topic}': an SQL92 expression must not be empty")
    return Subscription(topic, expression, SQL92, version)
