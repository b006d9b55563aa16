"""Questions of nodes that serve readers of partitions which others lead (server/nodes/places.py): see messages.py."""

from __future__ import annotations

from typing import Final

import msgspec

from halfmoon.cluster.messages import Answer, Question
from halfmoon.errors import Fault


class AskPlaces(Question, frozen=True, tag="places"):
    """To a process: where the batches stand that a reader gets next of partitions that it leads. Answered when there
    are `min_bytes`, after `wait_ms`, or when one of them cannot be read."""

    process: int
    reader: int
    """Of that process: what `LookNow` names."""
    rows: list[tuple[int, int, int, int, int, int]]
    """(topic number, partition, offset, leader epoch, last epoch, most bytes); epochs as in Kafka's Fetch."""
    committed: bool
    """Only what readers of committed records may have."""
    max_bytes: int
    min_bytes: int
    wait_ms: int


class Placed(msgspec.Struct, array_like=True, frozen=True):
    """One partition's."""

    fault: str = ""
    """Why there is nothing; the other fields are as of Kafka's Fetch."""
    high_watermark: int = -1
    stable_offset: int = -1
    start_offset: int = -1
    diverging: tuple[int, int] | None = None
    shard: int = -1
    places: list[tuple[int, int]] = []
    """(log position, length) of each batch."""
    aborted: list[tuple[int, int, int]] = []
    """(producer id, first offset, last offset) of each aborted transaction that they may be of."""
    batches: list[memoryview] = []
    """What stands at the last of the places: of rows, which would else be asked of the database."""


NOT_HERE: Final = Placed(Fault.NOT_LEADER_OR_FOLLOWER.name)
"""Another process leads it."""


class PlacesFound(Answer, frozen=True, tag="places-found"):
    rows: list[Placed]
    """In the order of the question's."""
    pieces: list[tuple[int, int, int, int, int, str, int]]
    """(shard, start, end, CRC, segment, key, at) of what has these places; as of engine/pieces.Piece."""


class LookNow(Question, frozen=True, tag="look-now"):
    """To a process: an AskPlaces that waits there is to be answered with what there is. Answered with Done; nobody
    waits for it."""

    process: int
    reader: int


class CannotRead(Question, frozen=True, tag="cannot-read"):
    """To a process: this one cannot read from the store or the database now, and consumers had better not be sent to
    it. Answered with Done; nobody waits for it."""

    process: int
