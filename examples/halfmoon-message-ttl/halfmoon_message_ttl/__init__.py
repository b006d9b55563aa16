"""A message with a header TTL, in milliseconds, is not delivered once it is older than that."""

from __future__ import annotations

import time

from halfmoon.plugin import FetchFilter, PluginContext, Record, hookimpl

api_version = 1

HEADER = "TTL"


def is_expired(record: Record, now_ms: int) -> bool:
    """Whether its time is over. A TTL that is no number means nothing."""
    ttl = dict(record.headers).get(HEADER) or b""
    return ttl.isdigit() and now_ms - record.timestamp > int(ttl)


@hookimpl
def halfmoon_fetch(ctx: PluginContext) -> list[FetchFilter]:
    def delivers(topic: str, record: Record) -> bool:
        if not is_expired(record, time.time_ns() // 1_000_000):
            return True
        ctx.count(f"expired.{topic}")
        return False

    return [FetchFilter("message_ttl", (HEADER,), delivers)]
