"""Provenance: where the messages of a frame come from (B41).

It stands in the frame itself, under the frame header's checksum, so a batch and the proof of where it came from are
there together or not at all. What a relay still has to move is its source minus what provenance names, and that is a
function of the log alone.

A provenance list is made of up to six parts, each beginning with a byte that says its form, in this order. All
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

    4, sent back: a group has handed these messages back to be consumed again, or to be given up, in this frame group

        0     1  form (4)
        1     2  length of the group's name
        3     +  the group's name, UTF-8
        +     2  number of runs; each as in form 2

    5, attempts: these waiting messages were looked at, and wait on; the count is how often that was, with this time

        0     1  form (5)
        1     2  number of runs; each as in form 2

    6, given up: these records were given up by a share group, and became the records of this frame (dead letters), in
       that order

        0     1  form (6)
        1     2  length of the group's name
        3     +  the group's name, UTF-8
        +     2  number of runs; each as in form 2

    3, origin: the messages of this frame wait, and this is the partition they were sent to

        0     1  form (3)
        1     4  topic number
        5     4  partition
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from typing_extensions import Buffer

_RANGE = struct.Struct("<BIIQQ")
_RANGE_FORM = 1
_SOURCES_FORM = 2
_SENT_BACK_FORM = 4
_ATTEMPTS_FORM = 5
_GIVEN_UP_FORM = 6
_U16 = struct.Struct("<H")
_RUN = struct.Struct("<IIQI")
_ORIGIN = struct.Struct("<BII")
_ORIGIN_FORM = 3

_OF_MESSAGES = frozenset(bytes([form]) for form in (_SOURCES_FORM, _SENT_BACK_FORM, _ATTEMPTS_FORM, _GIVEN_UP_FORM))

ORIGIN_BYTES = _ORIGIN.size
"""An origin is the last part, right before the payload."""
MAX_RUNS = 0xFFFF
MAX_PROVENANCE_BYTES = 4 * (MAX_RUNS * _RUN.size + 3) + _RANGE.size + 2 * (MAX_RUNS + 5) + ORIGIN_BYTES
"""With every part as long as it can be."""


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


class SentBack(Struct, frozen=True):
    """What a group has handed back: messages, where it had consumed them."""

    group: str
    runs: "tuple[SourceRun, ...]"


class GivenUp(Struct, frozen=True):
    """What a share group has given up: records, where it had consumed them."""

    group: str
    runs: "tuple[SourceRun, ...]"


class Provenance(Struct, frozen=True):
    """A whole list."""

    range: "SourceRange | None" = None
    sources: "tuple[SourceRun, ...]" = ()
    sent_back: "SentBack | None" = None
    origin: "Origin | None" = None
    attempts: "tuple[SourceRun, ...]" = ()
    """One offset each; the count is the number of attempts."""
    given_up: GivenUp | None = None

    def describe(self, names: Mapping[int, str]) -> str:
        """For people; `names` are those of topics, by number."""
        said = []
        if self.range is not None:
            of = self.range
            said.append(f"{_place(names, of.topic_number, of.partition)}[{of.from_offset}:{of.next_offset}]")
        for run in self.sources:
            end = run.first_offset + run.count
            said.append(f"{_place(names, run.topic_number, run.partition)}[{run.first_offset}:{end}]")
        text = f"from {', '.join(said)}" if said else ""
        if self.sent_back is not None:
            places = ", ".join(
                f"{_place(names, run.topic_number, run.partition)}[{run.first_offset}]" for run in self.sent_back.runs
            )
            text += f"{'; ' if text else ''}sent back by {self.sent_back.group}: {places}"
        for run in self.attempts:
            told = f"attempt {run.count} at {_place(names, run.topic_number, run.partition)}[{run.first_offset}]"
            text += f"{'; ' if text else ''}{told}"
        if self.given_up is not None:
            places = ", ".join(
                f"{_place(names, run.topic_number, run.partition)}[{run.first_offset}:{run.first_offset + run.count}]"
                for run in self.given_up.runs
            )
            text += f"{'; ' if text else ''}given up by {self.given_up.group}: {places}"
        if self.origin is not None:
            text += f"{'; ' if text else ''}for {_place(names, self.origin.topic_number, self.origin.partition)}"
        return text


def _place(names: Mapping[int, str], topic_number: int, partition: int) -> str:
    return f"{names.get(topic_number, f'#{topic_number}')}-{partition}"


def names_messages(encoded: bytes) -> bool:
    """Whether it says of single messages what became of them."""
    return encoded[:1] in _OF_MESSAGES


class UnknownProvenanceError(Exception):
    """A provenance list of a form that this program does not know."""


def encode(provenance: Provenance) -> bytes:
    """At most MAX_RUNS runs."""
    packed = []
    if provenance.range is not None:
        of = provenance.range
        packed.append(_RANGE.pack(_RANGE_FORM, of.topic_number, of.partition, of.from_offset, of.next_offset))
    if provenance.sources:
        packed += [bytes([_SOURCES_FORM]), _encode_runs(provenance.sources)]
    if provenance.sent_back is not None:
        packed += _encode_group_runs(_SENT_BACK_FORM, provenance.sent_back.group, provenance.sent_back.runs)
    if provenance.attempts:
        packed += [bytes([_ATTEMPTS_FORM]), _encode_runs(provenance.attempts)]
    if provenance.given_up is not None:
        packed += _encode_group_runs(_GIVEN_UP_FORM, provenance.given_up.group, provenance.given_up.runs)
    if provenance.origin is not None:
        packed.append(encode_origin(provenance.origin.topic_number, provenance.origin.partition))
    return b"".join(packed)


def _encode_runs(runs: Sequence[SourceRun]) -> bytes:
    packed = [_RUN.pack(run.topic_number, run.partition, run.first_offset, run.count) for run in runs]
    return b"".join([_U16.pack(len(packed)), *packed])


def _encode_group_runs(form: int, group: str, runs: Sequence[SourceRun]) -> list[bytes]:
    name = group.encode()
    return [bytes([form]), _U16.pack(len(name)), name, _encode_runs(runs)]


def _decode_group_runs(view: memoryview, at: int) -> tuple[str, tuple[SourceRun, ...], int]:
    (length,) = _U16.unpack_from(view, at)
    end = at + _U16.size + length
    group = bytes(view[at + _U16.size : end]).decode()
    return group, *_decode_runs(view, end)


def _decode_runs(view: memoryview, at: int) -> tuple[tuple[SourceRun, ...], int]:
    (count,) = _U16.unpack_from(view, at)
    at += _U16.size
    runs = tuple(SourceRun(*_RUN.unpack_from(view, at + _RUN.size * number)) for number in range(count))
    return runs, at + _RUN.size * count


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
    runs: tuple[SourceRun, ...] = ()
    sent_back: SentBack | None = None
    origin: Origin | None = None
    attempts: tuple[SourceRun, ...] = ()
    given_up: GivenUp | None = None
    try:
        while at < len(view):
            form = view[at]
            if form == _RANGE_FORM and at == 0:
                found_range = SourceRange(*_RANGE.unpack_from(view)[1:])
                at += _RANGE.size
            elif form == _SOURCES_FORM and not runs and origin is None:
                runs, at = _decode_runs(view, at + 1)
            elif form == _SENT_BACK_FORM and sent_back is None and origin is None:
                group, back, at = _decode_group_runs(view, at + 1)
                sent_back = SentBack(group, back)
            elif form == _ATTEMPTS_FORM and not attempts and origin is None:
                attempts, at = _decode_runs(view, at + 1)
            elif form == _GIVEN_UP_FORM and given_up is None and origin is None:
                group, gone, at = _decode_group_runs(view, at + 1)
                given_up = GivenUp(group, gone)
            elif form == _ORIGIN_FORM and origin is None:
                origin = decode_origin(view[at : at + ORIGIN_BYTES])
                at += ORIGIN_BYTES
            else:
                raise UnknownProvenanceError(f"a provenance list with form {form} at byte {at}")
    except (struct.error, UnicodeDecodeError):
        raise UnknownProvenanceError(f"a provenance list that is cut short, of {len(view)} bytes") from None
    return Provenance(found_range, runs, sent_back, origin, attempts, given_up)
