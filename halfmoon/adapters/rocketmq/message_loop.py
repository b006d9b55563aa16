"""The records of a batch as stored messages, one behind the other: the loop of to_messages.py.

There are two forms of it, as of drawing.py's. `_message_loop.pyx` is an extension that `pip install` builds where there
is a C compiler; it takes some 0.5 us for a message, the same loop here 4 us. Both write the same messages of the same
bytes. With HALFMOON_PURE=1 in the environment the extension is left alone.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from halfmoon.adapters.rocketmq.drawing import UNIQ_KEY
from halfmoon.core.gil import EVERY, let_others_run
from halfmoon.core.records.record_codec import MalformedError, varint, varlong
from halfmoon.remoting import properties
from halfmoon.remoting.message import crc32

_UNIQ: Final = b"\x10" + UNIQ_KEY
"""How a record's headers begin whose first is UNIQ_KEY."""
_UNIQ_PROPERTY: Final = UNIQ_KEY + properties.BETWEEN
_HEAD: Final = struct.Struct(">iIIiiqqiq")
_BEHIND: Final = struct.Struct(">iqi")
_pack_head: Final = _HEAD.pack
_pack_behind: Final = _BEHIND.pack
_pack_int16: Final = struct.Struct(">h").pack

Tail = tuple[bytes, int, int, bytes, int | None, int]
"""What a record's headers but UNIQ_KEY read as: properties, flag, system flags, born host (packed), born time (Unix ms;
None: the record's timestamp), how often it was consumed again."""
Tails = dict[tuple[bytes, bytes | None, Any], Tail]
"""Those that are remembered: by the bytes of the headers, the record's key and the partition."""
Fixed = tuple[int, int, int, int, bytes, bytes]
"""What all messages of a batch share: magic, queue id, the queue's number as the upper bits of physical offsets, system
flags, what stands behind the born host, and what stands behind the body but for the properties."""
Read = Callable[[bytes, int, int, int, Any, bytes, bool], Tail]
"""(body, where the record begins, its index, base timestamp, partition, the bytes of its headers but UNIQ_KEY, whether
that was the first of them) → what they read as."""
Write = Callable[
    [
        bytes, int, int, int, int, Sequence[int] | None, Sequence[int] | None, Sequence[int], Fixed, Tails, Any, Read,
        list[int], list[int],
    ],
    bytes,
]  # fmt: skip
"""(body, how many records, base offset, base timestamp, from which offset on, the indexes of the records or None for
all, where each record begins, where each message waited as a half message, …, sizes, offsets) → the messages. Appends
to the last two. Raises ValueError(index, where it begins) for a record that is malformed, OverflowError(index) for one
whose timestamp has more than 64 bits."""


def write_in_python(
    body: bytes,
    count: int,
    base_offset: int,
    base_ms: int,
    from_offset: int,
    rows: Sequence[int] | None,
    bounds: Sequence[int] | None,
    prepared: Sequence[int],
    fixed: Fixed,
    tails: Tails,
    partition: Any,
    read: Read,
    sizes: list[int],
    offsets: list[int],
) -> bytes:
    """See `Write`."""
    magic, queue_id, high, store_flag, stored, behind_body = fixed
    fixed_bytes = _HEAD.size + len(stored) + _BEHIND.size + len(behind_body) + 2
    parts: list[bytes] = []
    whole, waited = len(body), len(prepared)
    at = 0
    for nth in range(count):
        index = nth
        if nth % EVERY == EVERY - 1:
            let_others_run()
        if rows is not None and bounds is not None:
            index = rows[nth]
            at = bounds[index]
        start = at
        try:
            # Numbers of one byte, and of two where they are usual, are read here: half of what a message costs would be
            # calls.
            length = body[at]
            if length < 0x80:
                length >>= 1
                at += 1
            elif body[at + 1] < 0x80:
                length = (length & 0x7F | body[at + 1] << 7) >> 1
                at += 2
            else:
                length, at = varint(body, at)
            end = at + length
            if body[at + 1]:
                delta_ms, at = varlong(body, at + 1)
            else:
                delta_ms = 0
                at += 2
            delta = body[at]
            if delta < 0x80:
                delta >>= 1
                at += 1
            else:
                delta, at = varint(body, at)
            key: bytes | None = None
            if body[at] == 1:
                at += 1
            else:
                size, at = varint(body, at)
                if size < 0:
                    raise IndexError
                key = body[at : at + size]
                at += size
            size = body[at]
            if size < 0x80 and not size & 1:
                size >>= 1
                at += 1
            elif body[at + 1] < 0x80 and not size & 1:
                size = (size & 0x7F | body[at + 1] << 7) >> 1
                at += 2
            else:
                size, at = varint(body, at)
            value = b""
            if size > 0:
                value = body[at : at + size]
                at += size
            headers = body[at]
            if headers < 0x80:
                at += 1
            else:
                headers, at = varint(body, at)
            if not start < at <= end <= whole:
                raise IndexError
        except (IndexError, MalformedError):
            raise ValueError(index, start) from None
        uniq = b""
        after = at
        if headers and whole - at > len(_UNIQ) and body.startswith(_UNIQ, at) and body[at + 9] < 0x80:
            after = at + 10 + (body[at + 9] >> 1)
            uniq = body[at + 10 : after]
        if uniq.isalnum() and after <= end:  # as all clients make it
            rest = body[after:end]
        else:
            uniq = b""
            rest = body[at:end]
        at = end
        offset = base_offset + delta
        if offset < from_offset:
            continue
        tail = tails.get((rest, key, partition))
        if tail is None:
            tail = read(body, start, index, base_ms, partition, rest, bool(uniq))
        text, flag, system_flags, born, born_ms, reconsume_times = tail
        if uniq:
            text = _UNIQ_PROPERTY + uniq + b"\x02" + text
        if born_ms is None:
            born_ms = base_ms + delta_ms  # also where the broker has stamped the batch: deltas stay the producer's
        size = fixed_bytes + len(born) + len(value) + len(text)
        try:
            head = _pack_head(
                size, magic, crc32(value) & 0x7FFFFFFF, queue_id, flag, offset, high | offset,
                system_flags | store_flag, born_ms,
            )  # fmt: skip
        except struct.error:
            raise OverflowError(index) from None
        parts += (
            head,
            born,
            stored,
            _pack_behind(reconsume_times, prepared[index] if index < waited else 0, len(value)),
            value,
            behind_body,
            _pack_int16(len(text)),
            text,
        )
        sizes.append(size)
        offsets.append(offset)
    return b"".join(parts)


def load_compiled() -> Write | None:
    """The extension's, if it was built and is wanted."""
    if os.environ.get("HALFMOON_PURE", "") not in ("", "0"):
        return None
    try:
        from halfmoon.adapters.rocketmq import _message_loop
    except ImportError:
        return None
    found: Write = _message_loop.write
    return found


write: Write = load_compiled() or write_in_python
