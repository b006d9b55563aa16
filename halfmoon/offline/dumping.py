"""`halfmoon log dump`: the frames of a data directory, readable, its broker running or not."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from halfmoon.core import clean_files
from halfmoon.core.catalog import snapshot
from halfmoon.core.records.batches import HEADER, BatchHeader
from halfmoon.core.storage import index
from halfmoon.core.storage.files import FileSystem, OsFileSystem
from halfmoon.core.storage.frame import Frame, Kind
from halfmoon.core.storage.scan import Scan, read_provenance
from halfmoon.core.storage.segment import Segment
from halfmoon.offline.opening import clean_segment, open_segments
from halfmoon.schema import control
from halfmoon.schema.provenance import UnknownProvenanceError
from halfmoon.schema.provenance import decode as decode_provenance

_KINDS = {Kind.BATCH: "batch", Kind.CONTROL: "control", Kind.END: "end"}


@dataclass(frozen=True, slots=True)
class FrameInfo:
    """One frame, as `dump` shows it. `kind` is batch, control, end or damaged; of the last only the place is known."""

    position: int
    length: int
    kind: str
    generation: int = -1
    flushed: int = 0
    store_ms: int = 0
    topic: str | None = None
    partition: int = -1
    base_offset: int = -1
    span: int = 0
    record_count: int = 0
    part: int = 0
    parts: int = 1
    batch: BatchHeader | None = None
    """Of a batch."""
    control: str | None = None
    """Of a control frame: the record, readable."""
    provenance: str | None = None
    """Where the frame's messages come from, if they were moved, or wait: readable."""
    due_ms: int = -1
    """When waiting messages are due (Unix ms); −1: they do not wait."""


def dump(
    directory: str | os.PathLike[str],
    *,
    topic: str | None = None,
    from_position: int | None = None,
    limit: int | None = None,
) -> Iterator[FrameInfo]:
    """The frames of a data directory in order: of one topic only, from a position on, at most so many. Raises as
    `verify`."""
    return dump_files(OsFileSystem(directory, read_only=True), topic=topic, from_position=from_position, limit=limit)


def dump_files(
    fs: FileSystem, *, topic: str | None = None, from_position: int | None = None, limit: int | None = None
) -> Iterator[FrameInfo]:
    """As `dump`, over any file system."""
    with open_segments(fs) as segments:
        found = 0
        for info in _infos(fs, segments, from_position or 0):
            if limit is not None and found >= limit:
                return
            if topic is None or info.topic == topic:
                found += 1
                yield info


def _clean_infos(fs: FileSystem, names: dict[int, str], from_position: int) -> Iterator[FrameInfo]:
    """The frames of the clean files, whose positions come after all of the log's."""
    for start in clean_files.listed(fs):
        with clean_segment(fs, start) as segment:
            if segment is None or segment.end <= from_position:
                continue
            for low, high, frame, payload in clean_files.frames(segment):
                if low < from_position:
                    continue
                if frame is None or payload is None:
                    yield FrameInfo(low, high - low, "damaged")
                else:
                    yield _info(frame, payload, names, _provenance([segment], frame, names))


def _infos(fs: FileSystem, segments: Sequence[Segment], from_position: int) -> Iterator[FrameInfo]:
    if not segments:
        return
    names: dict[int, str] = {}
    saved = snapshot.load(fs)
    if saved is not None:
        names.update((topic.number, topic.name) for topic in saved.topics)
    first = segments[0]
    for segment in segments:
        if segment.start <= from_position:
            first = segment  # frames can only be found from a segment's head on
    head = snapshot.at_head(first)
    if head is not None:
        names.update((topic.number, topic.name) for topic in head.topics)
    flushed = max([end for _, end, _ in index.listed(fs)] + [saved.position if saved is not None else 0])
    scan = Scan(segments, first.start, 0, flushed)
    reported = 0
    for frame, payload in scan.frames():
        for low, high in scan.damaged[reported:]:
            yield FrameInfo(low, high - low, "damaged")
        reported = len(scan.damaged)
        if payload is not None:
            info = _info(frame, payload, names, _provenance(segments, frame, names))
            if frame.position >= from_position:
                yield info
    for low, high in scan.damaged[reported:]:
        yield FrameInfo(low, high - low, "damaged")
    yield from _clean_infos(fs, names, from_position)


def _provenance(segments: Sequence[Segment], frame: Frame, names: dict[int, str]) -> str | None:
    if not frame.provenance_length:
        return None
    segment = next(segment for segment in segments if segment.start <= frame.position < segment.end)
    try:
        return decode_provenance(read_provenance(segment, frame)).describe(names)
    except UnknownProvenanceError as error:
        return f"unknown to this version: {error}"


def _info(frame: Frame, payload: memoryview, names: dict[int, str], provenance: str | None) -> FrameInfo:
    batch: BatchHeader | None = None
    text: str | None = None
    if frame.kind == Kind.BATCH and payload:
        batch = BatchHeader(*HEADER.unpack_from(payload))
    elif frame.kind == Kind.CONTROL:
        try:
            record = control.decode(payload)
        except msgspec.DecodeError as error:
            text = f"unknown to this version: {error}"
        else:
            if isinstance(record, control.TopicCreated):
                names[record.number] = record.name
            text = repr(record)
            if isinstance(record, control.SnapshotPart):
                text = f"SnapshotPart({len(record.data)} bytes)"
    topic = names.get(frame.topic_number, f"#{frame.topic_number}") if frame.topic_number >= 0 else None
    kind = _KINDS.get(frame.kind, str(frame.kind))
    place = topic, frame.partition, frame.base_offset, frame.span, frame.record_count, frame.part, frame.parts
    return FrameInfo(
        frame.position, frame.length, kind, frame.generation, frame.flushed, frame.store_ms, *place, batch, text,
        provenance, frame.due_ms or -1,
    )  # fmt: skip
