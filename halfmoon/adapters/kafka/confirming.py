"""Answers that leave only once it is certain that they are this node's to give.

A node whose lease is over may not know it yet: it was paused, or cut off. What it has committed stays true, so records
may be read from it. But a group's offsets, the end of a partition or a lock may be other ones at the new owner by now.
So these answers wait for a look at the database that was begun after the request came.
"""

from __future__ import annotations

from typing import Any, Final

from halfmoon.adapters.kafka.guards import Handler
from halfmoon.adapters.kafka.protocol import Slices
from halfmoon.adapters.kafka.registry import Close, Context, Deferred
from halfmoon.adapters.kafka.shards import Confirm, when_all
from halfmoon.adapters.kafka.slicing import settled

CONFIRMED: Final = frozenset((2, 9, 23, 65, 78, 90))
"""ListOffsets, OffsetFetch, OffsetForLeaderEpoch, DescribeTransactions, ShareFetch, DescribeShareGroupOffsets. What
changes something is certain by its commit."""


def confirmed(confirm: Confirm, handler: Handler) -> Handler:
    def handle(ctx: Context, request: Any) -> Slices[object]:
        certain = Deferred()
        confirm(certain.complete)
        answer = yield from settled(handler(ctx, request))
        return when_all((certain, answer), _joined)

    return handle


def _joined(found: list[Any]) -> object:
    certain, answer = found
    return answer if certain else Close("another node may have what was asked about")
