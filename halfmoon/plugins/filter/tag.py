"""Filter by tag: `paid`, `paid || refunded`, or `*` for all.

A record's tag is its header TAGS. Tags are compared as they are written, blanks around them in the expression do not
count. A record without a tag matches `*` alone. (org.apache.rocketmq.remoting.protocol.filter.FilterAPI.)
"""

from __future__ import annotations

import re
from typing import Any

from halfmoon.plugin import FilterCompiler, FilterSyntaxError, MessageFilter, PluginContext, hookimpl
from halfmoon.plugins.filter.expression import check_length
from halfmoon.plugins.filter.header_needle import needle

api_version = 1

HEADER = "TAGS"


class TagFilter:
    """Matches the records that have one of these tags."""

    def __init__(self, tags: frozenset[bytes]) -> None:
        self._tags = tags
        self.needle: re.Pattern[bytes] | None = needle((HEADER, tag) for tag in tags)

    def match(self, record: Any) -> bool:
        for name, content in reversed(record.headers):  # of several, the last counts, as in Kafka's clients
            if name == HEADER:
                return content in self._tags
        return False


class EveryTag:
    """Matches every record, with a tag or without."""

    needle: re.Pattern[bytes] | None = None

    def match(self, record: Any) -> bool:
        return True


def compile_tags(expression: str) -> MessageFilter:
    """Raises FilterSyntaxError for an expression of nothing but separators, and for one that is too long."""
    check_length(expression)
    if expression.strip() in ("", "*"):
        return EveryTag()
    tags = frozenset(tag.strip().encode("utf-8", "surrogatepass") for tag in expression.split("||") if tag.strip())
    if not tags:
        raise FilterSyntaxError("expected a tag", 0, expression)
    return TagFilter(tags)


@hookimpl
def halfmoon_filters(ctx: PluginContext) -> dict[str, FilterCompiler]:
    return {"tag": compile_tags}
