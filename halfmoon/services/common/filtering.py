"""Which records of a batch a filter lets through.

Reading a record costs ten times as much as finding where it ends, and a search for bytes a hundredth. So where the
filter knows bytes that every match holds, only the records that hold them are read; a batch without any is not even
walked.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from halfmoon.core.records import record_codec
from halfmoon.core.records.batch_header import TIMESTAMP_TYPE, BatchHeader, parse_header
from halfmoon.core.records.batches import DEFAULT_DECOMPRESSED_LIMIT, Record, batch_body
from halfmoon.errors import BrokerError
from halfmoon.services.common.filters import MessageFilter

if TYPE_CHECKING:
    import re

    from typing_extensions import Buffer

WALKED = 2048
"""Records walked over between two pauses: 0.4 ms."""
READ = 64
"""Records read between two pauses: 0.2 ms, and what the filter takes."""

Found = tuple[int, Record]
"""A record, and which one of its batch it is."""


class FoundInThread(NamedTuple):
    parts: list[list[Found]]
    errors: list[Exception]
    """What the filter raised."""


def matching(batch: Buffer, message_filter: MessageFilter, *, max_bytes: int = DEFAULT_DECOMPRESSED_LIMIT) -> list[int]:
    """Indexes of the records that match, ascending. A control batch's are looked at too: the caller knows the header.

    Raises BrokerError as `batches.iter_records`, but only for what had to be read; and whatever the filter raises.
    """
    body = bytes(batch_body(batch, max_bytes=max_bytes))
    return [index for part in matches(body, parse_header(batch), message_filter) for index, _ in part]


def matches(
    body: bytes,
    header: BatchHeader,
    message_filter: MessageFilter,
    on_error: Callable[[Exception], None] | None = None,
) -> Iterator[list[Found]]:
    """The records that match, of a batch with this header and (decompressed) body, ascending.

    They come in parts, empty ones too, so that whoever must not stay away for long can pause in between. What the
    filter raises is given to `on_error`, where there is one, and then counts as no match. Raises BrokerError as
    `matching`.
    """
    match = message_filter.match if on_error is None else _guarded(message_filter, on_error)
    for part in _candidates(body, header, message_filter.needle):
        yield [found for found in part if match(found[1])]


def found_in_thread(body: bytes, header: BatchHeader, message_filter: MessageFilter) -> FoundInThread | BrokerError:
    """As `matches`, all at once, for a thread. A batch that cannot be read is no failure of the thread."""
    errors: list[Exception] = []
    try:
        return FoundInThread(list(matches(body, header, message_filter, errors.append)), errors)
    except BrokerError as error:
        return error


def _guarded(message_filter: MessageFilter, on_error: Callable[[Exception], None]) -> Callable[[Record], bool]:
    match = message_filter.match

    def guarded(record: Record) -> bool:
        try:
            return match(record)
        except Exception as error:
            on_error(error)
            return False

    return guarded


def _candidates(body: bytes, header: BatchHeader, needle: re.Pattern[bytes] | None) -> Iterator[list[Found]]:
    append_time = header.max_timestamp if header.attributes & TIMESTAMP_TYPE else None
    if needle is not None:
        return _holding(body, header, needle, append_time)
    return _all(body, header, append_time)


def _all(body: bytes, header: BatchHeader, append_time: int | None) -> Iterator[list[Found]]:
    records = enumerate(
        record_codec.read(body, header.record_count, header.last_offset_delta, header.base_timestamp, append_time)
    )
    while part := list(islice(records, READ)):
        yield part


def _holding(
    body: bytes, header: BatchHeader, needle: re.Pattern[bytes], append_time: int | None
) -> Iterator[list[Found]]:
    """The records in whose bytes the needle occurs; it may reach into the next one."""
    search = needle.search
    found = search(body)
    if found is None:
        return
    count = record_codec.checked_count(body, header.record_count)
    first = at = 0
    while found is not None and first < count:
        bounds = record_codec.walk_part(body, at, first, min(WALKED, count - first))
        at = bounds[-1]
        part = []
        while found is not None and (start := found.start()) < at:
            row = bisect_right(bounds, start) - 1
            record = record_codec.read_one(body, bounds[row], first + row, header.base_timestamp, append_time)
            part.append((first + row, record))
            if len(part) == READ:
                yield part
                part = []
            found = search(body, bounds[row + 1])
        first += len(bounds) - 1
        yield part
    if first == count:
        record_codec.check_end(body, count, at)
