"""What the records of a produced batch must pass before it is appended, and what is looked for in them.

Mostly that is done at once. It takes long where much has to be decompressed, or where the walker of the records is the
one in Python (records/walk.py). Whoever can wait is then given steps (core/steps.py), of which none holds up the loop
for more than a few milliseconds, and appends the batch with what they return. Others get it done whatever it takes.

What is decompressed takes at most DEFAULT_DECOMPRESSED_LIMIT, and is let go of when it has been looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from halfmoon.core.records.batch_header import CODEC_MASK, HEADER_BYTES, BatchHeader
from halfmoon.core.records.batches import DEFAULT_DECOMPRESSED_LIMIT
from halfmoon.core.records.compression import TooLargeError, decompress
from halfmoon.core.records.walk import Walk, Walked, Walking, refuse, walk
from halfmoon.errors import TakesLongError

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from halfmoon.core.catalog.topics import Partition
    from halfmoon.core.steps import Slices

WALKED_AT_ONCE_BYTES = 2 << 20
"""The compiled walker takes some 2 ns for a byte where it has most to do: records and headers without content."""
OPENED_AT_ONCE_BYTES = 256 << 10
"""Of decompressed records: a millisecond with the slowest codec."""
TRIED_AT_ONCE_BYTES = 64 << 10
"""Of compressed records: more would hardly become that little, so it is not tried."""
SLICE = 1_000
"""Records and headers that the walker in Python looks at in one go: one to three milliseconds."""

Look = tuple[bool, bool]
"""What was found in a batch's bytes: whether one of its records may have a key by which messages are found, and whether
an interceptor may have something to do with it."""


class Checked(NamedTuple):
    """A batch that has passed."""

    header: BatchHeader
    look: Look


class Checks:
    """How one broker checks records."""

    def __init__(self, look: Callable[[Partition, Buffer], Look], *, every_record: bool, compiled: Walk | None) -> None:
        """`look` is called with the bytes of a batch, decompressed where somebody looks for headers; from any thread.
        `every_record`: else records are walked in compacted topics only, which take none without a key. `compiled`: the
        walker that was built, if any."""
        self._look = look
        self._every_record = every_record
        self._compiled = compiled

    def check(self, partition: Partition, batch: memoryview, header: BatchHeader, *, may_wait: bool = False) -> Look:
        """Raises BrokerError: INVALID_RECORD; with `may_wait` TakesLongError, which the caller must know of."""
        rules = partition.topic.rules
        walks = self._every_record or rules.compacts
        codec = header.attributes & CODEC_MASK
        opened: memoryview | None = None
        if codec and (walks or rules.headers_enabled):
            opened = _opened(batch, codec, may_wait=may_wait)
            if opened is None:
                raise TakesLongError(lambda kept: self._in_thread(partition, header, kept))
        if walks:
            compiled = self._compiled
            if compiled is None:
                self._walk_in_python(partition, header, batch, opened, may_wait=may_wait)
            elif opened is not None:
                self._judge(partition, compiled(opened, 0, header.record_count, header.base_timestamp))
            elif may_wait and len(batch) > WALKED_AT_ONCE_BYTES:
                raise TakesLongError(lambda kept: self._in_thread(partition, header, kept))
            else:
                found = compiled(batch, HEADER_BYTES, header.record_count, header.base_timestamp)
                if found[0] or found[2] >= 0:
                    self._judge(partition, found)
        return self._look(partition, batch if opened is None else opened)

    def _judge(self, partition: Partition, found: tuple[int, int, int]) -> None:
        refuse(Walked(*found), needs_keys=partition.topic.rules.compacts)

    def _walk_in_python(
        self, partition: Partition, header: BatchHeader, batch: memoryview, opened: memoryview | None, *, may_wait: bool
    ) -> None:
        """With `may_wait` one slice, else all of it."""
        records = bytes(batch[HEADER_BYTES:] if opened is None else opened)
        walking = walk(records, header.record_count, header.base_timestamp, SLICE)
        while True:
            try:
                next(walking)
            except StopIteration as done:
                self._judge(partition, done.value)
                return
            if may_wait:
                raise TakesLongError(lambda kept: self._in_slices(partition, header, walking, opened or kept))

    # -- in steps ------------------------------------------------------------------------------------------------------

    def _in_slices(
        self, partition: Partition, header: BatchHeader, walking: Walking, body: memoryview
    ) -> Slices[Checked]:
        self._judge(partition, (yield from walking))
        return Checked(header, self._look(partition, body))

    def _in_thread(self, partition: Partition, header: BatchHeader, batch: memoryview) -> Slices[Checked]:
        """All of it in a thread; the walk, if it is Python's, in slices."""
        walks = self._every_record or partition.topic.rules.compacts
        codec = header.attributes & CODEC_MASK
        compiled = self._compiled

        def open_and_walk() -> tuple[memoryview | None, Look]:
            body, start = batch, HEADER_BYTES
            if codec:
                body, start = decompress(codec, batch[HEADER_BYTES:], DEFAULT_DECOMPRESSED_LIMIT), 0
            if walks and compiled is not None:
                self._judge(partition, compiled(body, start, header.record_count, header.base_timestamp))
            return body[start:] if walks and compiled is None else None, self._look(partition, body)

        left, look = yield open_and_walk
        if left is not None:
            walking = walk(left, header.record_count, header.base_timestamp, SLICE)
            del left
            self._judge(partition, (yield from walking))
        return Checked(header, look)


def _opened(batch: memoryview, codec: int, *, may_wait: bool) -> memoryview | None:
    """The records, decompressed; None where that takes long. Raises BrokerError."""
    if not may_wait:
        return decompress(codec, batch[HEADER_BYTES:], DEFAULT_DECOMPRESSED_LIMIT)
    if len(batch) > TRIED_AT_ONCE_BYTES:
        return None
    try:
        return decompress(codec, batch[HEADER_BYTES:], OPENED_AT_ONCE_BYTES)
    except TooLargeError:
        return None
