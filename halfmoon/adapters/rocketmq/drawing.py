"""One message as one record, byte by byte, and the messages of a batch.

A record (core/records/record_codec.py) of a message: its length, attributes and a timestamp delta of 0, its place in
the batch; the key and the body with their lengths; the number of headers: UNIQ_KEY first, the other properties,
`__FLAG`, what the broker adds. A batch of messages is drawn in remoting/message.py.

There are two forms of `draw`. `_draw.pyx` is an extension that `pip install` builds where there is a C compiler; it
takes some 40 ns for a message, the same loop here 2 us. Both draw the same records of the same bytes. With
HALFMOON_PURE=1 in the environment the extension is left alone.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from halfmoon.core.records.record_codec import put_varint
from halfmoon.remoting import properties

UNIQ_KEY: Final = b"UNIQ_KEY"
FLAG: Final = b"__FLAG"
"""A header of ours."""
_UNIQ_MARK: Final = UNIQ_KEY + properties.BETWEEN
_BATCH_HEAD: Final = struct.Struct(">iiiii")


def varint(number: int) -> bytes:
    """A number as record_codec.py draws it."""
    encoded = bytearray()
    put_varint(encoded, number)
    return bytes(encoded)


_VARINTS: Final = [varint(number) for number in range(1_024)]


class Read(NamedTuple):
    """Properties but UNIQ_KEY, as parts of a record."""

    key: bytes
    """With its length in front."""
    header_count: int
    headers: bytes
    names: frozenset[bytes]


MOST_READS: Final = 256
MOST_READ_BYTES: Final = 1 << 16
"""Properties that differ from those of the message before are read in Python: so many in one go, a millisecond or two.
`_draw.pyx` has the same."""
Reader = Callable[[bytes], Read]
Draw = Callable[[bytes, int, int, int, bytes, int, Reader], tuple[bytes, int, int]]
"""(batch, where the next message begins in it, its index, at most so many, encoded headers that each gets besides its
properties, how many they are, what reads properties) → (the records, where the next message begins, its index).
It stops where it has read MOST_READS different properties, or MOST_READ_BYTES of them. Raises ValueError where it is no
batch."""


def record(
    uniq: bytes | None, rest: Read, body: bytes | memoryview, flag: int, index: int, more: bytes, more_count: int
) -> bytes:
    """One message's. `uniq` and `rest`: its properties. `more`: so many encoded headers that it gets besides these."""
    key, count, headers, _ = rest
    count += more_count
    if uniq is not None:
        count += 1
        headers = header(UNIQ_KEY, uniq) + headers
    if flag:
        count += 1
        headers += header(FLAG, b"%d" % flag)
    head = b"\0\0" + _varint(index) + key + _varint(len(body))
    tail = _varint(count) + headers + more
    return b"".join((_varint(len(head) + len(body) + len(tail)), head, body, tail))


def draw_in_python(
    data: bytes, at: int, index: int, most: int, more: bytes, more_count: int, read: Reader
) -> tuple[bytes, int, int]:
    """See `Draw`."""
    if at < 0:
        raise ValueError("no message begins there")
    parts: list[bytes] = []
    known: tuple[bytes, Read] | None = None
    last, reads, read_bytes, upto = index + most, 0, 0, at
    messages = bounds(data, at)
    while upto < len(data) and index < last and reads < MOST_READS and read_bytes < MOST_READ_BYTES:
        flag, body_at, body_end, text_at, upto = next(messages)
        uniq, rest = split_unique(data[text_at:upto])
        if known is None or rest != known[0]:
            known = rest, read(rest)
            reads += 1
            read_bytes += len(rest)
        parts.append(record(uniq, known[1], data[body_at:body_end], flag, index, more, more_count))
        index += 1
    return b"".join(parts), upto, index


def load_compiled() -> Draw | None:
    """The extension's, if it was built and is wanted."""
    if os.environ.get("HALFMOON_PURE", "") not in ("", "0"):
        return None
    try:
        from halfmoon.adapters.rocketmq import _draw
    except ImportError:
        return None
    found: Draw = _draw.draw
    return found


_compiled = load_compiled()
draw: Draw = _compiled or draw_in_python
AT_ONCE = 256 if _compiled is None else 4_096
"""Messages that are drawn in one go: a millisecond or two at most."""


def header(name: bytes, value: bytes) -> bytes:
    """A record's header, encoded."""
    return _varint(len(name)) + name + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    return _VARINTS[number] if number < 1_024 else varint(number)


def split_unique(text: bytes) -> tuple[bytes | None, bytes]:
    """The UNIQ_KEY of properties, and all the others."""
    at = text.find(_UNIQ_MARK)
    while at > 0 and text[at - 1] != 2:  # it ends another name
        at = text.find(_UNIQ_MARK, at + 1)
    if at < 0:
        return None, text
    end = text.find(b"\x02", at)
    if end < 0:
        return text[at + len(_UNIQ_MARK) :] or None, text[:at]
    return text[at + len(_UNIQ_MARK) : end] or None, text[:at] + text[end + 1 :]


def bounds(data: bytes, at: int = 0) -> Iterator[tuple[int, int, int, int, int]]:
    """Of each message of a batch its flag, and where its body and its properties begin and end. Raises ValueError."""
    end = len(data)
    while at < end:
        if end - at < _BATCH_HEAD.size:
            raise ValueError("the batch ends within a message")
        size, _, _, flag, length = _BATCH_HEAD.unpack_from(data, at)
        body_at = at + _BATCH_HEAD.size
        body_end = body_at + length
        text_at = body_end + 2
        if length < 0 or text_at > end:
            raise ValueError("the batch ends within a message")
        after = text_at + (data[body_end] << 8 | data[body_end + 1])
        if after != at + size or after > end:
            raise ValueError("a message of the batch has a wrong length")
        yield flag, body_at, body_end, text_at, after
        at = after
