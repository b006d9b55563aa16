"""Provenance: which messages of which source a relayed batch was made from (B41).

It stands in the frame of the batch itself, under the frame header's checksum, so the batch and the proof of where it
came from are there together or not at all. What a relay still has to move is its source minus what provenance names,
and that is a function of the log alone.

All numbers are little-endian. A provenance list begins with a byte that says its form:

    1, range: the batch holds everything that was wanted of the source's offsets [from, next)

     byte  size  field
        0     1  form (1)
        1     4  topic number of the source
        5     4  partition of the source
        9     8  from: offset in the source, first that was looked at
       17     8  next: offset in the source, first that was not

A view's relay number is the topic number of the frame that carries the range. Topic numbers stand for topic ids:
they too are handed out once and never again.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from typing_extensions import Buffer

_RANGE = struct.Struct("<BIIQQ")
_RANGE_FORM = 1


class SourceRange(Struct, frozen=True):
    """The source offsets [from_offset, next_offset) of one partition are dealt with."""

    topic_number: int
    partition: int
    from_offset: int
    next_offset: int

    def __str__(self) -> str:
        return f"offsets {self.from_offset} to {self.next_offset - 1} of topic {self.topic_number}-{self.partition}"


class UnknownProvenanceError(Exception):
    """A provenance list of a form that this program does not know."""


def encode_range(source: SourceRange) -> bytes:
    return _RANGE.pack(_RANGE_FORM, source.topic_number, source.partition, source.from_offset, source.next_offset)


def decode(provenance: Buffer) -> SourceRange:
    """Raises UnknownProvenanceError."""
    view = memoryview(provenance)
    if len(view) != _RANGE.size or view[0] != _RANGE_FORM:
        raise UnknownProvenanceError(f"a provenance list of {len(view)} bytes that begins with {bytes(view[:1])!r}")
    return SourceRange(*_RANGE.unpack(view)[1:])
