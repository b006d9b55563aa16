"""Answers that leave only once it is certain that they are this node's to give.

A node whose lease is over may not know it yet: it was paused, or cut off. What it has committed stays true, so records
may be read from it. But a group's offsets, the end of a partition or a lock may be other ones at the new owner by now.
So these answers wait for a look at the database that was begun after the request came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from halfmoon.adapters.kafka.guards import Handler
from halfmoon.adapters.kafka.protocol import Slices
from halfmoon.adapters.kafka.registry import Close, Context, Deferred
from halfmoon.adapters.kafka.shards import Confirm, when_all
from halfmoon.adapters.kafka.slicing import settled

CONFIRMED: Final = frozenset((2, 9, 23, 65, 90))
"""ListOffsets, OffsetFetch, OffsetForLeaderEpoch, DescribeTransactions, DescribeShareGroupOffsets. Fetch, ShareFetch
and ShareAcknowledge ask themselves, when they know what they answer: it may be long until then, and there may be
nothing to ask for. What is written is certain by its commit."""


def confirmed(confirm: Confirm, handler: Handler) -> Handler:
    def handle(ctx: Context, request: Any) -> Slices[object]:
        certain = look(confirm)
        answer = yield from settled(handler(ctx, request))
        return when_certain([certain], answer)

    return handle


def look(confirm: Confirm) -> Deferred:
    """Of a bool."""
    certain = Deferred()
    confirm(certain.complete)
    return certain


def when_certain(looks: Sequence[Deferred], answer: object) -> object:
    """The answer, which may come later, once all looks have said that it is this node's to give."""

    def joined(found: list[Any]) -> object:
        *certain, last = found
        return last if all(certain) else Close("another node may have what was asked about")

    return when_all((*looks, answer), joined)
