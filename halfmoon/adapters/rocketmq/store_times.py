"""Searching a queue by when its messages were stored, which RocketMQ's clients mean by a time.

Store times grow along the log, so the queue is halved until the message is found; they stand in the frames, of which
each step reads one, in a thread. (The index knows records' own timestamps; those may be anything.)
"""

from __future__ import annotations

from collections.abc import Callable

from halfmoon.core.catalog.topics import Partition
from halfmoon.core.steps import Steps
from halfmoon.core.storage.frame_reading import WholeFrame
from halfmoon.core.storage.storage import Frames


def frame_at(frames: Callable[[], Frames], partition: Partition, offset: int) -> Steps[WholeFrame | None]:
    """The frame that holds an offset; None where it is lost, or gone."""
    queue = partition.queue
    found = [] if queue.damage_at(offset) else queue.places(offset, 1, min_one=True)
    if not found:
        return None
    reader = frames()
    whole: WholeFrame | None = yield lambda: reader.before(found[0][0])
    return whole


def first_stored_since(frames: Callable[[], Frames], partition: Partition, store_ms: int) -> Steps[int]:
    """The first offset whose message was stored at `store_ms` (Unix ms) or later; the queue's end if none was."""
    low, high = partition.start_offset, partition.stable_offset
    while low < high:
        middle = (low + high) // 2
        whole = yield from frame_at(frames, partition, middle)
        if whole is None:
            low = middle + 1  # lost to corruption: as if it were old
        elif whole.frame.store_ms < store_ms:
            low = max(whole.frame.base_offset + whole.frame.span, middle + 1)
        else:
            high = min(whole.frame.base_offset, middle)
    return max(low, partition.start_offset)
