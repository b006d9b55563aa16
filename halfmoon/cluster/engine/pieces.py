"""What the log of a shard consists of, as the database lists it: its head, and its pieces.

Positions are log positions. A log is cut into segments, of which each begins with a head of control records
(core/storage/commitlog.py). A piece is a stretch of one segment; what a segment ends with may be zeroes, as much as the
next frame would have needed. So the pieces of a log follow each other without a hole, from where retention has left off
to the head's `end`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from halfmoon.errors import HalfmoonError

IN_DATABASE = ""
"""The key of a piece whose frames are in the database."""


class Durability(StrEnum):
    """What makes a shard's records durable before they are acknowledged."""

    FAST = "fast"
    """Rows of the database; they become objects later."""
    OBJECT = "object"
    """An object, together with what other shards of the node have written meanwhile."""


class Piece(NamedTuple):
    start: int
    end: int
    crc: int
    """CRC-32C of its bytes."""
    segment: int
    """Where the segment begins that it is a part of."""
    key: str = IN_DATABASE
    """The object that has it."""
    at: int = 0
    """Where in the object, bytes."""

    @property
    def size(self) -> int:
        """Bytes."""
        return self.end - self.start


class Head(NamedTuple):
    """What a commit compares and moves."""

    shard: int
    durability: Durability
    epoch: int
    """In which its owner writes; the leader epoch of its partitions."""
    owner: int | None
    """The incarnation of a node; None where nobody ever owned it."""
    end: int
    wanted: int | None = None
    """The number of a node that somebody wants it to be moved to."""
    restored: bool = False
    """The log was brought back to an earlier moment, and nobody has opened it since."""


class BrokenLogError(HalfmoonError):
    """The database lists pieces that cannot be a log: nobody may write to it."""


def check_whole(head: Head, pieces: Sequence[Piece]) -> None:
    """The pieces follow each other up to the head's end. Raises BrokenLogError."""
    for before, after in pairwise(pieces):
        if before.end != after.start:
            raise BrokenLogError(
                f"shard {head.shard}: one piece ends at {before.end}, the next begins at {after.start}"
            )
    end = pieces[-1].end if pieces else head.end
    if end != head.end:
        raise BrokenLogError(f"shard {head.shard}: its pieces end at {end}, and not at {head.end}")
