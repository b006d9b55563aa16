"""Whether the records of a batch are what its header says: one look at each, nothing is decoded or kept.

Each record has its length, attributes, timestamp delta, offset delta, key, value, headers (record_codec.py draws it).
All of them must lie where the lengths say, the offset delta must be the record's index, the timestamp must fit into 64
bits, and the last record must end where the body ends (org.apache.kafka.common.record.DefaultRecord,
DefaultRecordBatch.RecordIterator).

There are two forms. `_walk.pyx` is an extension that `pip install` builds where there is a C compiler; it takes some
microseconds for a batch. `walk` here is the same loop in Python, a hundred times slower. It stops after so many records
or headers, so that the event loop can do something else. Both say the same about the same bytes: the first fault, at
which record, the first record without a key, and whether one has headers. With HALFMOON_PURE=1 in the environment the
extension is left alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Final, NamedTuple

from halfmoon.errors import BrokerError, Fault

if TYPE_CHECKING:
    from typing_extensions import Buffer

(
    SOUND,
    CUT,
    FIVE_BYTES,
    TEN_BYTES,
    BITS_32,
    BITS_64,
    LENGTH,
    TIMESTAMP,
    OFFSET,
    NEGATIVE,
    BEYOND,
    HEADERS,
    NO_NAME,
    SIZE,
    REST,
) = range(15)
"""What can be wrong; `_walk.pyx` has the same numbers."""

_REASONS: Final[tuple[str, ...]] = (
    "",
    "the batch ends within it",
    "a number in it has more than 5 bytes",
    "a number in it has more than 10 bytes",
    "a number in it has more than 32 bits",
    "a number in it has more than 64 bits",
    "its length is impossible",
    "its timestamp has more than 64 bits",
    "its offset delta is not its place in the batch",
    "a length in it is negative",
    "a length in it reaches beyond its end",
    "so many headers do not fit into it",
    "a header of it has no key",
    "its parts do not end where it ends",
    "the records of the batch end before the batch",
)

MOST_NAMED: Final = 10_000
"""Places of records that a refusal has: as many as librdkafka's batches have by default."""

_SMALLEST_LENGTH: Final = 6
"""Of what follows a record's length: attributes, two deltas, two lengths of −1, no headers."""
_LONG_MIN, _LONG_MAX = -(1 << 63), (1 << 63) - 1


class Walked(NamedTuple):
    """What a walk has found."""

    fault: int
    """SOUND, or the first thing that is wrong."""
    record: int
    """Index of the one with the fault."""
    keyless: int
    """Index of the first record without a key; −1: none was seen."""
    has_headers: bool
    """Whether one of those that were looked at has headers."""


Walk = Callable[["Buffer", int, int, int], tuple[int, int, int, bool]]
"""(buffer, where the first record begins in it, record count, base timestamp) → `Walked`."""
Keyless = Callable[["Buffer", int, int], list[int]]
"""(buffer, where the first record begins in it, record count) → the places of records without a key, of sound ones."""


class Compiled(NamedTuple):
    """The extension's."""

    walk: Walk
    keyless: Keyless


def load_compiled() -> Compiled | None:
    """The extension, if it was built and is wanted."""
    if os.environ.get("HALFMOON_PURE", "") not in ("", "0"):
        return None
    try:
        from halfmoon.core.records import _walk
    except ImportError:
        return None
    return Compiled(_walk.walk, _walk.keyless)


walk_compiled = load_compiled()
FORM: Final = "python" if walk_compiled is None else "compiled"
"""As the line at the start of the broker says it."""


def refuse(found: Walked) -> None:
    """Raises BrokerError(INVALID_RECORD) for what a walk has found."""
    if found.fault:
        if found.fault == REST:
            raise BrokerError(Fault.INVALID_RECORD, _REASONS[REST])
        raise BrokerError(
            Fault.INVALID_RECORD, f"record {found.record} of the batch is malformed: {_REASONS[found.fault]}"
        )


def without_keys(records: list[int]) -> BrokerError:
    """What a compacted topic says of records without a key."""
    count = f" (as {len(records)} in all)" if len(records) > 1 else ""
    return BrokerError(
        Fault.INVALID_RECORD,
        f"record {records[0]} of the batch has no key{count}, and the topic's cleanup.policy is compact",
        records=records[:MOST_NAMED],
    )


Walking = Generator[None, None, Walked]


def walk(
    body: bytes | memoryview, count: int, base_timestamp: int, most: int, keyless_places: list[int] | None = None
) -> Walking:
    """Look at the `count` records of `body`; yields after each `most` records and headers. Adds the places of records
    without a key to `keyless_places`.

    Most numbers have one byte. They are read without a call: each call saved is a tenth of the time for a record.
    """
    size = len(body)
    at = index = fault = 0
    keyless = -1
    has_headers = False
    left = most
    lowest, highest = _LONG_MIN - base_timestamp, _LONG_MAX - base_timestamp
    try:
        for index in range(count):
            left -= 1
            if left <= 0:
                yield
                left = most
            raw = body[at]
            at += 1
            if raw >= 0x80:
                raw, at = _int(body, at, raw)
            length = (raw >> 1) ^ -(raw & 1)
            if length < _SMALLEST_LENGTH or length > size - at:
                fault = LENGTH
                break
            end = at + length
            raw = body[at + 1]
            at += 2
            if raw >= 0x80:
                raw, at = _long(body, at, raw)
            if not lowest <= (raw >> 1) ^ -(raw & 1) <= highest:
                fault = TIMESTAMP
                break
            raw = body[at]
            at += 1
            if raw >= 0x80:
                raw, at = _int(body, at, raw)
            if raw != 2 * index:
                fault = OFFSET
                break
            raw = body[at]
            at += 1
            if raw == 1:
                if keyless < 0:
                    keyless = index
                if keyless_places is not None:
                    keyless_places.append(index)
            else:
                if raw >= 0x80:
                    raw, at = _int(body, at, raw)
                if raw & 1:
                    if raw != 1:
                        fault = NEGATIVE
                        break
                    if keyless < 0:
                        keyless = index
                    if keyless_places is not None:
                        keyless_places.append(index)
                else:
                    raw >>= 1
                    if raw > end - at:
                        fault = BEYOND
                        break
                    at += raw
            raw = body[at]
            at += 1
            if raw != 1:
                if raw >= 0x80:
                    raw, at = _int(body, at, raw)
                if raw & 1:
                    if raw != 1:
                        fault = NEGATIVE
                        break
                else:
                    raw >>= 1
                    if raw > end - at:
                        fault = BEYOND
                        break
                    at += raw
            raw = body[at]
            at += 1
            if raw:
                if raw >= 0x80:
                    raw, at = _int(body, at, raw)
                if raw and (raw & 1 or raw > end - at):  # a header has two bytes at least; raw is twice their number
                    fault = HEADERS
                    break
                headers = raw >> 1
                has_headers = has_headers or headers > 0
                for _ in range(headers):
                    left -= 1
                    if left <= 0:
                        yield
                        left = most
                    raw = body[at]
                    at += 1
                    if raw >= 0x80:
                        raw, at = _int(body, at, raw)
                    if raw & 1:
                        fault = NO_NAME if raw == 1 else NEGATIVE
                        break
                    raw >>= 1
                    if raw > end - at:
                        fault = BEYOND
                        break
                    at += raw
                    raw = body[at]
                    at += 1
                    if raw == 1:
                        continue
                    if raw >= 0x80:
                        raw, at = _int(body, at, raw)
                    if raw & 1:
                        if raw != 1:
                            fault = NEGATIVE
                            break
                        continue
                    raw >>= 1
                    if raw > end - at:
                        fault = BEYOND
                        break
                    at += raw
                if fault:
                    break
            if at != end:
                fault = SIZE
                break
        else:
            if at != size:
                fault, index = REST, count
    except IndexError:
        fault = CUT
    except _FaultError as error:
        fault = error.fault
    return Walked(fault, index, keyless, has_headers)


class _FaultError(Exception):
    def __init__(self, fault: int) -> None:
        self.fault = fault


def _int(body: bytes | memoryview, at: int, first: int) -> tuple[int, int]:
    """A number of 32 bits, not yet zigzag-decoded, whose first byte is `first`, and where it ends. IndexError."""
    raw = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = body[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw > 0xFFFFFFFF:
                raise _FaultError(BITS_32)
            return raw, at
    raise _FaultError(FIVE_BYTES)


def _long(body: bytes | memoryview, at: int, first: int) -> tuple[int, int]:
    """As `_int`, of 64 bits."""
    raw = first & 0x7F
    for shift in range(7, 70, 7):
        byte = body[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw > 0xFFFFFFFFFFFFFFFF:
                raise _FaultError(BITS_64)
            return raw, at
    raise _FaultError(TEN_BYTES)
