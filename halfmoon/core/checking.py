"""What the records of a produced batch must pass before it is appended, and what is looked for in them.

Mostly that is done at once. It takes long where much has to be decompressed, or where the walker of the records is the
one in Python (records/walk.py). Whoever can wait is then given steps (core/steps.py), of which none holds up the loop
for more than a few milliseconds, and appends the batch with what they return. Others get it done whatever it takes.

What is decompressed takes at most DEFAULT_DECOMPRESSED_LIMIT, and is let go of when it has been looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from halfmoon.core.records.batch_header import CODEC_MASK, HEADER_BYTES, BatchHeader
from halfmoon.core.records.batches import DEFAULT_DECOMPRESSED_LIMIT
from halfmoon.core.records.compression import TooLargeError, decompress
from halfmoon.core.records.walk import Compiled, Walked, Walking, refuse, walk, without_keys
from halfmoon.errors import TakesLongError

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from halfmoon.core.catalog.topics import Partition
    from halfmoon.core.steps import Slices

WALKED_AT_ONCE_BYTES = 2 << 20
"""The compiled walker takes some 2 ns for a byte where it has most to do: records and headers without content."""
OPENED_AT_ONCE_BYTES = 256 << 10
"""Of decompressed records: a millisecond with the slowest codec."""
TRIED_AT_ONCE_BYTES: Final = 64 << 10
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

    def __init__(
        self, look: Callable[[Partition, Buffer | None], Look], *, every_record: bool, compiled: Compiled | None
    ) -> None:
        """`look` is called with the bytes of a batch, decompressed where somebody looks for headers; None: its records
        have no headers. From any thread. `every_record`: else records are walked in compacted topics only, which take
        none without a key. `compiled`: the walker that was built, if any."""
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
                raise self._takes_long(partition, header)
        has_headers = True
        if walks:
            compiled = self._compiled
            if compiled is None:
                has_headers = self._walk_in_python(partition, header, batch, opened, may_wait=may_wait)
            elif opened is not None:
                has_headers = self._walk_compiled(compiled, partition, header, opened, 0)
            elif may_wait and len(batch) > WALKED_AT_ONCE_BYTES:
                raise self._takes_long(partition, header)
            else:
                has_headers = self._walk_compiled(compiled, partition, header, batch, HEADER_BYTES)
        if not has_headers:
            return self._look(partition, None)
        return self._look(partition, batch if opened is None else opened)

    def _takes_long(self, partition: Partition, header: BatchHeader) -> TakesLongError:
        # A function of its own: what holds a closure makes its cell in each call.
        return TakesLongError(lambda kept: self._in_thread(partition, header, kept))

    @staticmethod
    def _walk_compiled(
        compiled: Compiled, partition: Partition, header: BatchHeader, body: memoryview, start: int
    ) -> bool:
        """Whether a record has headers."""
        fault, record, keyless, has_headers = compiled.walk(body, start, header.record_count, header.base_timestamp)
        if fault:
            refuse(Walked(fault, record, keyless, has_headers))
        if keyless >= 0 and partition.topic.rules.compacts:
            raise without_keys(compiled.keyless(body, start, header.record_count))
        return has_headers

    @staticmethod
    def _judge(partition: Partition, found: Walked, keyless: list[int]) -> None:
        refuse(found)
        if keyless and partition.topic.rules.compacts:
            raise without_keys(keyless)

    def _walk_in_python(
        self, partition: Partition, header: BatchHeader, batch: memoryview, opened: memoryview | None, *, may_wait: bool
    ) -> bool:
        """Whether a record has headers. With `may_wait` one slice, else all of it."""
        records = bytes(batch[HEADER_BYTES:] if opened is None else opened)
        keyless: list[int] = []
        walking = walk(records, header.record_count, header.base_timestamp, SLICE, keyless)
        while True:
            try:
                next(walking)
            except StopIteration as done:
                walked: Walked = done.value
                self._judge(partition, walked, keyless)
                return walked.has_headers
            if may_wait:
                raise TakesLongError(lambda kept: self._in_slices(partition, header, walking, keyless, opened or kept))

    # -- in steps ------------------------------------------------------------------------------------------------------

    def _in_slices(
        self, partition: Partition, header: BatchHeader, walking: Walking, keyless: list[int], body: memoryview
    ) -> Slices[Checked]:
        self._judge(partition, (yield from walking), keyless)
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
                self._walk_compiled(compiled, partition, header, body, start)
            return body[start:] if walks and compiled is None else None, self._look(partition, body)

        left, look = yield open_and_walk
        if left is not None:
            keyless: list[int] = []
            walking = walk(left, header.record_count, header.base_timestamp, SLICE, keyless)
            del left
            self._judge(partition, (yield from walking), keyless)
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
