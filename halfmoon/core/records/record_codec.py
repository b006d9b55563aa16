"""Records inside a batch's decompressed body: walking, reading and writing them.

    record:  length varint · attributes (1 byte, unused) · timestamp delta varlong · offset delta varint
             · key length varint · key · value length varint · value · header count varint · headers
    header:  key length varint · key (UTF-8) · value length varint · value

Varints are zigzag-coded, seven bits a byte, the lowest first. A key, value or header value of length −1 is null.
(org.apache.kafka.common.record.DefaultRecord.)

A body comes from anybody: its checksum only says that it is what they sent. So every length is checked against what is
there before a byte is taken, a count is refused when its records or headers could not fit, and what is wrong raises
BrokerError(INVALID_RECORD) with the record's index. INVALID_RECORD and not CORRUPT_MESSAGE, because Kafka's clients
retry the latter, and the same bytes will not get better.

The functions take `bytes`, whose indexing and slicing is cheaper than a memoryview's.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from halfmoon.core.gil import EVERY, let_others_run
from halfmoon.core.records.batch_header import SMALLEST_RECORD
from halfmoon.errors import BrokerError, Fault

_SMALLEST_LENGTH: Final = SMALLEST_RECORD - 1
_SMALLEST_HEADER: Final = 2
_INT_MIN, _INT_MAX = -(1 << 31), (1 << 31) - 1
_LONG_MIN, _LONG_MAX = -(1 << 63), (1 << 63) - 1

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record. `timestamp` is absolute, Unix ms. Its bytes, length included, are body[start:end].

    Header keys that are not UTF-8 are read with surrogateescape, so that writing them again gives the same bytes.
    """

    offset_delta: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    start: int
    end: int


class Extent:
    """Of a record that is copied as it stands: its timestamp, and its bytes, length included."""

    __slots__ = ("end", "start", "timestamp")

    def __init__(self, timestamp: int, start: int, end: int) -> None:
        self.timestamp = timestamp
        self.start = start
        self.end = end


_make: Final = Record._make


def walk(body: bytes, count: int) -> array[int]:
    """Where the `count` records of `body` begin, and as last entry where the last one ends; nothing else is looked at.

    Raises BrokerError(INVALID_RECORD) unless they fill `body` exactly.
    """
    bounds = walk_part(body, 0, 0, min(checked_count(body, count), EVERY))
    while len(bounds) <= count:
        let_others_run()
        known = len(bounds) - 1
        bounds += walk_part(body, bounds.pop(), known, min(count - known, EVERY))
    check_end(body, count, bounds[-1])
    return bounds


def walk_part(body: bytes, at: int, index: int, count: int) -> array[int]:
    """As `walk`, for `count` records of which the first begins at `at` and is the `index`th of the batch.

    Raises BrokerError(INVALID_RECORD) where one is malformed; whether they end where the body ends is not looked at.
    """
    bounds = array("I")  # a list of ints takes nine times as much, and there may be millions
    append = bounds.append
    largest = 2 * len(body)
    try:
        for _ in range(count):
            append(at)
            length = body[at]
            at += 1
            if length >= 0x80:
                # Two bytes reach 8 KiB; only larger records pay for the call.
                second = body[at]
                if second < 0x80:
                    length = (length & 0x7F) | second << 7
                    at += 1
                else:
                    length, at = _unsigned(body, at - 1, 5)
            if length & 1 or length < 2 * _SMALLEST_LENGTH or length > largest:
                raise invalid(index + len(bounds) - 1, "its length is impossible")
            at += length >> 1
    except MalformedError as error:
        raise invalid(index + len(bounds) - 1, str(error)) from None
    except IndexError:
        raise invalid(index + len(bounds) - 1, "the batch ends before it") from None
    if at > len(body):
        raise invalid(index + count - 1, "the batch ends within it")
    append(at)
    return bounds


def read(
    body: bytes, count: int, last_offset_delta: int, base_timestamp: int, append_time: int | None
) -> Iterator[Record]:
    """The `count` records of `body`, decoded. `append_time`, where given, is every record's timestamp.

    Raises BrokerError(INVALID_RECORD) at the first record that is malformed or whose offset delta is not between the
    one before it and `last_offset_delta` (two records of one offset would be one message to a relay), or after the last
    record if more bytes follow.
    """
    checked_count(body, count)
    before = -1
    at = 0
    for index in range(count):
        if index % EVERY == EVERY - 1:
            let_others_run()
        record = read_one(body, at, index, base_timestamp, append_time)
        offset_delta, at = record.offset_delta, record.end
        if not before < offset_delta <= last_offset_delta:
            raise invalid(index, f"offset delta {offset_delta} after {before}, the last being {last_offset_delta}")
        before = offset_delta
        yield record
    check_end(body, count, at)


def read_one(body: bytes, start: int, index: int, base_timestamp: int, append_time: int | None) -> Record:
    """The record that begins at `start`, which is the `index`th, decoded.

    Raises BrokerError(INVALID_RECORD) where it is malformed. Its offset delta is not compared with anything.
    """
    try:
        length, at = varint(body, start)
        end = at + length
        if length < _SMALLEST_LENGTH or end > len(body):
            raise MalformedError("its length is impossible")
        timestamp, at = varlong(body, at + 1)
        timestamp += base_timestamp
        if not _LONG_MIN <= timestamp <= _LONG_MAX:
            raise MalformedError("its timestamp has more than 64 bits")
        offset_delta, at = varint(body, at)
        key, at = _nullable(body, at, end)
        value, at = _nullable(body, at, end)
        headers, at = _read_headers(body, at, end)
    except MalformedError as error:
        raise invalid(index, str(error)) from None
    except IndexError:
        raise invalid(index, "the batch ends within it") from None
    if at != end:
        raise invalid(index, f"it says {end - start} bytes and has {at - start}")
    if append_time is not None:
        timestamp = append_time
    return _make((offset_delta, timestamp, key, value, headers, start, end))


def glance(body: bytes, start: int, index: int, base_timestamp: int) -> tuple[int, int]:
    """Offset delta and timestamp of the record that begins at `start`, which is the `index`th.

    Raises BrokerError(INVALID_RECORD) where these two are malformed; the rest of the record is not looked at.
    """
    try:
        at = start
        while body[at] >= 0x80:
            at += 1
        timestamp, at = varlong(body, at + 2)
        timestamp += base_timestamp
        if not _LONG_MIN <= timestamp <= _LONG_MAX:
            raise MalformedError("its timestamp has more than 64 bits")
        return varint(body, at)[0], timestamp
    except MalformedError as error:
        raise invalid(index, str(error)) from None
    except IndexError:
        raise invalid(index, "the batch ends within it") from None


def write(
    output: bytearray,
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | None]],
) -> None:
    """Append one record to `output`."""
    record = bytearray(1)
    put_varint(record, timestamp_delta)
    put_varint(record, offset_delta)
    append = record.append
    for content in (key, value):
        if content is None:
            append(1)  # zigzag −1
        else:
            length = len(content)
            if length < 64:
                append(length << 1)  # one byte, as most are: worth not calling for
            else:
                put_varint(record, length)
            record += content
    headers = tuple(headers)
    put_varint(record, len(headers))
    for name, content in headers:
        encoded = name.encode("utf-8", "surrogateescape")
        length = len(encoded)
        if length < 64:
            append(length << 1)
        else:
            put_varint(record, length)
        record += encoded
        if content is None:
            append(1)
        else:
            length = len(content)
            if length < 64:
                append(length << 1)
            else:
                put_varint(record, length)
            record += content
    put_varint(output, len(record))
    output += record


def renumber(output: bytearray, body: bytes, record: Record | Extent, offset_delta: int, timestamp_delta: int) -> None:
    """Append `record` of `body` to `output` with other deltas; all that follows them stays byte for byte."""
    at = record.start + _varint_size(body, record.start)
    head = bytearray(body[at : at + 1])  # the attributes
    at += 1
    at += _varint_size(body, at)
    at += _varint_size(body, at)
    put_varint(head, timestamp_delta)
    put_varint(head, offset_delta)
    put_varint(output, len(head) + record.end - at)
    output += head
    output += body[at : record.end]


def varint(body: bytes, at: int) -> tuple[int, int]:
    """The zigzag number at `at`, 32 bits at most, and where it ends. IndexError where the bytes run out."""
    byte = body[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    second = body[at + 1]
    if second < 0x80:
        raw = (byte & 0x7F) | second << 7
        return (raw >> 1) ^ -(raw & 1), at + 2
    raw, at = _unsigned(body, at, 5)
    number = (raw >> 1) ^ -(raw & 1)
    if not _INT_MIN <= number <= _INT_MAX:
        raise MalformedError("a number in it has more than 32 bits")
    return number, at


def varlong(body: bytes, at: int) -> tuple[int, int]:
    """As `varint`, of 64 bits at most."""
    byte = body[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    second = body[at + 1]
    if second < 0x80:
        raw = (byte & 0x7F) | second << 7
        return (raw >> 1) ^ -(raw & 1), at + 2
    raw, at = _unsigned(body, at, 10)
    number = (raw >> 1) ^ -(raw & 1)
    if not _LONG_MIN <= number <= _LONG_MAX:
        raise MalformedError("a number in it has more than 64 bits")
    return number, at


def _varint_size(body: bytes, at: int) -> int:
    """How many bytes the number at `at` takes; that it ends is known."""
    size = 1
    while body[at + size - 1] >= 0x80:
        size += 1
    return size


def put_varint(output: bytearray, number: int) -> None:
    """Append `number`, of any size up to 64 bits, zigzag-coded."""
    raw = (number << 1) ^ (number >> 63)
    while raw >= 0x80:
        output.append(raw & 0x7F | 0x80)
        raw >>= 7
    output.append(raw)


def write_retimed(output: bytearray, body: bytes, start: int, end: int, timestamp_delta: int) -> None:
    """Append the record body[start:end], which is whole, with another timestamp delta."""
    at = start + _varint_size(body, start)
    record = bytearray(body[at : at + 1])
    put_varint(record, timestamp_delta)
    at += 1
    record += body[at + _varint_size(body, at) : end]
    put_varint(output, len(record))
    output += record


def checked_count(body: bytes, count: int) -> int:
    """`count`, if so many records could fit into `body`. Raises BrokerError(INVALID_RECORD)."""
    if count < 0 or count * SMALLEST_RECORD > len(body):
        raise BrokerError(Fault.INVALID_RECORD, f"{count} records do not fit into {len(body)} bytes")
    return count


def check_end(body: bytes, count: int, at: int) -> None:
    """Raises BrokerError(INVALID_RECORD) unless the last of the `count` records, which ends at `at`, ends the body."""
    if at != len(body):
        raise BrokerError(Fault.INVALID_RECORD, f"the {count} records of the batch end at byte {at} of {len(body)}")


def invalid(index: int, reason: str) -> BrokerError:
    return BrokerError(Fault.INVALID_RECORD, f"record {index} of the batch is malformed: {reason}")


class MalformedError(Exception):
    """What is wrong with a record, said where its index is not known."""


def _unsigned(body: bytes, at: int, most: int) -> tuple[int, int]:
    raw = shift = 0
    for _ in range(most):
        byte = body[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw, at
        shift += 7
    raise MalformedError(f"a number in it has more than {most} bytes")


def _nullable(body: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length = body[at]
    if length < 0x80 and not length & 1:
        at += 1
        length >>= 1  # one byte and not negative: most keys and many values, worth not calling for
    else:
        length, at = varint(body, at)
        if length < 0:
            if length != -1:
                raise MalformedError("a length in it is negative")
            return None, at
    after = at + length
    if after > end:
        raise MalformedError("a length in it reaches beyond its end")
    return body[at:after], after


def _read_headers(body: bytes, at: int, end: int) -> tuple[Headers, int]:
    if not body[at]:
        return (), at + 1
    count, at = varint(body, at)
    if not 0 <= count <= (end - at) // _SMALLEST_HEADER:
        raise MalformedError(f"{count} headers do not fit into it")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        # Nearly all lengths are one byte and not negative; each call saved is a tenth of the time for a record.
        length = body[at]
        if length < 0x80 and not length & 1:
            start = at + 1
            at = start + (length >> 1)
            if at > end:
                raise MalformedError("a length in it reaches beyond its end")
            name = body[start:at]
        else:
            long_name, at = _nullable(body, at, end)
            if long_name is None:
                raise MalformedError("a header of it has no key")
            name = long_name
        length = body[at]
        if length < 0x80 and not length & 1:
            start = at + 1
            at = start + (length >> 1)
            if at > end:
                raise MalformedError("a length in it reaches beyond its end")
            headers.append((_text(name), body[start:at]))
        else:
            content, at = _nullable(body, at, end)
            headers.append((_text(name), content))
    return tuple(headers), at


def _text(name: bytes) -> str:
    """A header's name."""
    try:
        return name.decode()  # twice as fast as with an error handler, which hardly any needs
    except UnicodeDecodeError:
        return name.decode("utf-8", "surrogateescape")
