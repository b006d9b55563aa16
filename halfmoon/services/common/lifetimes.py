"""Until when records are of use: what their headers and their topic's configuration say (docs/ttl.md).

A record expires when the shortest of these is over:

    EXPIRES   (header)   a time, which the broker has given a redelivered message
    TTL       (header)   so long after the record's timestamp
    TTL       (topic)    the same, for all records of the topic

As in RabbitMQ and Azure Service Bus, the shorter of a message's and its queue's TTL counts. A record without a
timestamp (−1) does not expire by a TTL. Nothing here has a clock: when a batch's records end is a function of its
bytes, so it can be kept, and whether they have ended is asked each time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from halfmoon.core.records import record_codec
from halfmoon.core.records.batch_header import TIMESTAMP_TYPE, BatchHeader
from halfmoon.core.records.record_codec import Headers
from halfmoon.schema.group_topics import RETRY_PREFIX
from halfmoon.schema.lifetimes import EXPIRES, FIRST_TOPIC, TTL
from halfmoon.services.common.header_search import HeaderSearch

SEARCH: Final = HeaderSearch((), (TTL, EXPIRES))
"""For batches that may have one of the headers."""
FOREVER: Final = -1
"""No TTL."""
NEVER_MS: Final = 1 << 62

_NUMBER: Final = re.compile(rb"[0-9]{1,18}")


class End(NamedTuple):
    """When a record expires: Unix ms. `topic`: whose configuration says what becomes of it then."""

    offset_delta: int
    expires_ms: int
    topic: str


class Looked(NamedTuple):
    """What was found in a batch, which `key` names."""

    key: tuple[int, int, bytes]
    ends: Sequence[End] = ()
    first_ms: int = NEVER_MS
    """When the first of them expires."""


def milliseconds(content: bytes | None) -> int | None:
    """What such a header says; None where it says nothing that counts."""
    if content is None or not _NUMBER.fullmatch(content):
        return None
    return int(content) or None


def expires_ms(headers: Headers, timestamp: int, ttl_ms: int) -> int | None:
    """When a record with these headers expires, in a topic with this TTL; None: never. Of several headers of one name
    the last counts, as in clients."""
    said = dict(headers)
    own_ms, end_ms = milliseconds(said.get(TTL)), milliseconds(said.get(EXPIRES))
    if own_ms is not None and (ttl_ms < 0 or own_ms < ttl_ms):
        ttl_ms = own_ms
    if ttl_ms >= 0 and timestamp >= 0:
        end_ms = timestamp + ttl_ms if end_ms is None else min(end_ms, timestamp + ttl_ms)
    return end_ms


def acting_topic(topic: str, headers: Headers) -> str:
    """Whose configuration says what becomes of an expired record of this topic: of a redelivered one, the topic that it
    was consumed from first."""
    if topic.startswith(RETRY_PREFIX):
        first = dict(headers).get(FIRST_TOPIC)
        if first:
            return first.decode(errors="replace")
    return topic


def ends_of(body: bytes, header: BatchHeader, topic: str, ttl_ms: int, *, by_header: bool) -> Sequence[End]:
    """The records of a batch (its body is decompressed) that expire, ascending. `ttl_ms`: of the topic, or FOREVER.
    `by_header`: whether headers act there. Raises BrokerError(INVALID_RECORD)."""
    found = by_header and SEARCH.finds(body)
    if not found and ttl_ms < 0:
        return ()
    bounds = record_codec.walk(body, header.record_count)
    base_ms = header.base_timestamp
    append_ms = header.max_timestamp if header.attributes & TIMESTAMP_TYPE else None
    carrying = frozenset(SEARCH.records(body, bounds)) if found else frozenset[int]()
    ends: list[End] = []
    for row in sorted(carrying) if ttl_ms < 0 else range(header.record_count):
        if row in carrying:
            record = record_codec.read_one(body, bounds[row], row, base_ms, append_ms)
            end_ms = expires_ms(record.headers, record.timestamp, ttl_ms)
            if end_ms is not None:
                ends.append(End(record.offset_delta, end_ms, acting_topic(topic, record.headers)))
        else:
            offset_delta, timestamp = record_codec.glance(body, bounds[row], row, base_ms)
            timestamp = timestamp if append_ms is None else append_ms
            if timestamp >= 0:
                ends.append(End(offset_delta, timestamp + ttl_ms, topic))
    return ends
