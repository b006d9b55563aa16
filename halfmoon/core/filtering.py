"""Which records of a batch a filter lets through.

Reading a record costs ten times as much as finding where it ends, and a search for bytes a hundredth. So where the
filter knows bytes that every match holds, only the records that hold them are read; a batch without any is not even
walked.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

from halfmoon.core import record_codec
from halfmoon.core.batch_header import TIMESTAMP_TYPE, BatchHeader, parse_header
from halfmoon.core.hook_types import MessageFilter
from halfmoon.core.records import DEFAULT_DECOMPRESSED_LIMIT, Record, batch_body, iter_records

if TYPE_CHECKING:
    import re

    from typing_extensions import Buffer


def matching(batch: Buffer, message_filter: MessageFilter, *, max_bytes: int = DEFAULT_DECOMPRESSED_LIMIT) -> list[int]:
    """Indexes of the records that match, ascending. A control batch's are looked at too: the caller knows the header.

    Raises BrokerError as `records.iter_records`, but only for what had to be read; and whatever the filter raises.
    """
    match = message_filter.match
    needle = message_filter.needle
    if needle is None:
        return [index for index, record in enumerate(iter_records(batch, max_bytes=max_bytes)) if match(record)]
    body = bytes(batch_body(batch, max_bytes=max_bytes))
    found = needle.search(body)
    if found is None:
        return []
    return [index for index, record in _holding(body, parse_header(batch), needle, found) if match(record)]


def _holding(
    body: bytes, header: BatchHeader, needle: re.Pattern[bytes], found: re.Match[bytes] | None
) -> Iterator[tuple[int, Record]]:
    """The records in whose bytes the needle occurs, the first time as `found`; it may reach into the next one."""
    append_time = header.max_timestamp if header.attributes & TIMESTAMP_TYPE else None
    bounds = record_codec.walk(body, header.record_count)
    search = needle.search
    while found is not None:
        index = bisect_right(bounds, found.start()) - 1
        yield index, record_codec.read_one(body, bounds[index], index, header.base_timestamp, append_time)
        found = search(body, bounds[index + 1])
