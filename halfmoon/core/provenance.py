"""Provenance: where the messages of a frame come from (B41).

It stands in the frame itself, under the frame header's checksum, so a batch and the proof of where it came from are
there together or not at all. What a relay still has to move is its source minus what provenance names, and that is a
function of the log alone.

A provenance list is made of up to three parts, each beginning with a byte that says its form, in this order. All
numbers are little-endian. Topic numbers stand for topic ids: they too are handed out once and never again.

    1, range: a view's batch holds all that was wanted of the source's offsets [from, next)

     byte  size  field
        0     1  form (1)
        1     4  topic number of the source
        5     4  partition of the source
        9     8  from: offset in the source, first that was looked at
       17     8  next: offset in the source, first that was not

    2, sources: these waiting messages are dealt with by this frame, whose records they became (in that order) or
       which says that they are done with

        0     1  form (2)
        1     2  number of runs; each:
        +     4  topic number
        +     4  partition
        +     8  first offset
        +     4  count

    3, origin: the messages of this frame wait, and this is the partition they were sent to

        0     1  form (3)
        1     4  topic number
        5     4  partition
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from typing_extensions import Buffer

_RANGE = struct.Struct("<BIIQQ")
_RANGE_FORM = 1
_SOURCES = struct.Struct("<BH")
_SOURCES_FORM = 2
_RUN = struct.Struct("<IIQI")
_ORIGIN = struct.Struct("<BII")
_ORIGIN_FORM = 3

ORIGIN_BYTES = _ORIGIN.size
"""An origin is the last part, right before the payload."""
MAX_RUNS = 0xFFFF


class SourceRange(Struct, frozen=True):
    """The source offsets [from_offset, next_offset) of one partition are dealt with."""

    topic_number: int
    partition: int
    from_offset: int
    next_offset: int


class SourceRun(Struct, frozen=True):
    """`count` waiting messages of one partition, from `first_offset` on."""

    topic_number: int
    partition: int
    first_offset: int
    count: int


class Origin(Struct, frozen=True):
    """The partition that waiting messages were sent to."""

    topic_number: int
    partition: int


class Provenance(Struct, frozen=True):
    """A whole list."""

    range: SourceRange | None = None
    sources: tuple[SourceRun, ...] = ()
    origin: Origin | None = None

    def describe(self, names: Mapping[int, str]) -> str:
        """For people; `names` are those of topics, by number."""

        def place(topic_number: int, partition: int) -> str:
            return f"{names.get(topic_number, f'#{topic_number}')}-{partition}"

        said = []
        if self.range is not None:
            of = self.range
            said.append(f"{place(of.topic_number, of.partition)}[{of.from_offset}:{of.next_offset}]")
        for run in self.sources:
            end = run.first_offset + run.count
            said.append(f"{place(run.topic_number, run.partition)}[{run.first_offset}:{end}]")
        text = f"from {', '.join(said)}" if said else ""
        if self.origin is not None:
            text += f"{'; ' if text else ''}for {place(self.origin.topic_number, self.origin.partition)}"
        return text


class UnknownProvenanceError(Exception):
    """A provenance list of a form that this program does not know."""


def encode(provenance: Provenance) -> bytes:
    """At most MAX_RUNS runs."""
    packed = []
    if provenance.range is not None:
        of = provenance.range
        packed.append(_RANGE.pack(_RANGE_FORM, of.topic_number, of.partition, of.from_offset, of.next_offset))
    if provenance.sources:
        packed.append(_SOURCES.pack(_SOURCES_FORM, len(provenance.sources)))
        packed += [
            _RUN.pack(run.topic_number, run.partition, run.first_offset, run.count) for run in provenance.sources
        ]
    if provenance.origin is not None:
        packed.append(encode_origin(provenance.origin.topic_number, provenance.origin.partition))
    return b"".join(packed)


def encode_origin(topic_number: int, partition: int) -> bytes:
    return _ORIGIN.pack(_ORIGIN_FORM, topic_number, partition)


def decode_origin(data: Buffer) -> Origin:
    """Of the last `ORIGIN_BYTES` before a payload. Raises UnknownProvenanceError."""
    form, topic_number, partition = _ORIGIN.unpack(data)
    if form != _ORIGIN_FORM:
        raise UnknownProvenanceError(f"no origin, but form {form}")
    return Origin(topic_number, partition)


def decode(data: Buffer) -> Provenance:
    """Raises UnknownProvenanceError."""
    view = memoryview(data)
    at = 0
    found_range: SourceRange | None = None
    runs: list[SourceRun] = []
    origin: Origin | None = None
    try:
        while at < len(view):
            form = view[at]
            if form == _RANGE_FORM and at == 0:
                found_range = SourceRange(*_RANGE.unpack_from(view)[1:])
                at += _RANGE.size
            elif form == _SOURCES_FORM and not runs and origin is None:
                _, count = _SOURCES.unpack_from(view, at)
                at += _SOURCES.size
                for _ in range(count):
                    runs.append(SourceRun(*_RUN.unpack_from(view, at)))
                    at += _RUN.size
            elif form == _ORIGIN_FORM and origin is None:
                origin = decode_origin(view[at : at + ORIGIN_BYTES])
                at += ORIGIN_BYTES
            else:
                raise UnknownProvenanceError(f"a provenance list with form {form} at byte {at}")
    except struct.error:
        raise UnknownProvenanceError(f"a provenance list that is cut short, of {len(view)} bytes") from None
    return Provenance(found_range, tuple(runs), origin)
