"""The shards' logs as they are kept, read past the nodes: rows of the database, and objects of the store.

What is checked: pieces follow each other up to the head's end; each piece is there, with the bytes that its CRC says;
frames follow each other, each whole; generations never fall; offsets of a partition have no hole. And what batches are
there is what clients read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from halfmoon.cluster.engine.pieces import IN_DATABASE
from halfmoon.cluster.postgres import statements
from halfmoon.core.crc import crc32c
from halfmoon.core.storage.frame import BadFrameError, Frame, Kind, check_payload, decode
from tests.torture.cluster.tables import Tables
from tests.torture.reading_back import Stored


class Log(NamedTuple):
    """Of one shard."""

    start: int
    data: bytearray
    segments: list[int]


def check_logs(tables: Tables, bucket: Path) -> tuple[list[str], dict[int, Log]]:
    """`bucket`: the store's folder. No node runs. What is wrong, and the logs, by shard."""
    wrong: list[str] = []
    logs: dict[int, Log] = {}
    for shard, end in ((row[0], row[1]) for row in tables.ask("select shard, end_position from shard order by 1")):
        pieces = tables.ask(statements.PIECES, shard)
        rows = {row[0]: bytes(row[6]) for row in tables.ask(statements.FRAMES, shard, 0, end)}
        wrong += [
            f"shard {shard}: a piece ends at {before[1]}, the next begins at {after[0]}"
            for before, after in pairwise(pieces)
            if before[1] != after[0]
        ]
        if pieces and pieces[-1][1] != end:
            wrong.append(f"shard {shard}: its pieces end at {pieces[-1][1]}, its head at {end}")
        log = Log(pieces[0][0] if pieces else end, bytearray(), [])
        for start, stop, crc, segment, key, at in pieces:
            data = rows.get(start, b"") if key == IN_DATABASE else _bytes_of(bucket / key, at, stop - start)
            if len(data) != stop - start or crc32c(data) != crc:
                wrong.append(
                    f"shard {shard}: the piece at {start} is not in {key or 'the database'} as it was put there"
                )
                break
            log.data.extend(data)
            if not log.segments or log.segments[-1] != segment:
                log.segments.append(segment)
        logs[shard] = log
    for shard, path, key, size, crc in tables.ask("select shard, path, key, size, crc from file"):
        data = _bytes_of(bucket / key, 0, size + 1)
        if len(data) != size or crc32c(data) != crc:
            wrong.append(f"shard {shard}: {path} is not in {key} as it was put there")
    missing = [
        row[0] for row in tables.ask("select key from object where dead is null") if not (bucket / row[0]).exists()
    ]
    if missing:
        wrong.append(f"{len(missing)} objects are known and not there: {missing[:3]}")
    return wrong, logs


def _bytes_of(path: Path, at: int, size: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(at)
            return file.read(size)
    except FileNotFoundError:
        return b""


def frames_of(log: Log) -> Iterator[tuple[Frame, memoryview]]:
    """With their payloads. Raises BadFrameError."""
    view = memoryview(log.data)
    ends = [*log.segments[1:], log.start + len(log.data)]
    for segment, end in zip(log.segments, ends, strict=True):
        position = max(segment, log.start)
        while position < end:
            at = position - log.start
            if not any(view[at : at + 4]):  # what a segment ends with
                if any(view[at : end - log.start]):
                    raise BadFrameError(f"there is something behind the zeroes at {position}")
                break
            frame = decode(view[: end - log.start], position, log.start)
            begin = frame.payload_position - log.start
            payload = view[begin : begin + frame.payload_length]
            if frame.kind != Kind.END:
                check_payload(frame, payload)
                yield frame, payload
            position = frame.end


def check_frames(logs: Mapping[int, Log]) -> tuple[list[str], dict[tuple[int, int], dict[int, int]]]:
    """What is wrong; and by topic's number and partition, base offset → span of each batch."""
    wrong: list[str] = []
    batches: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    for shard, log in logs.items():
        generation = 0
        ends: dict[tuple[int, int], int] = {}
        try:
            for frame, _ in frames_of(log):
                if frame.generation < generation:
                    wrong.append(f"shard {shard}: generation {frame.generation} behind {generation}")
                generation = frame.generation
                if frame.kind != Kind.BATCH:
                    continue
                place = frame.topic_number, frame.partition
                expected = ends.get(place, frame.base_offset)
                if frame.base_offset != expected:
                    wrong.append(f"shard {shard}: {place} has a batch at {frame.base_offset}, expected {expected}")
                ends[place] = frame.base_offset + frame.span
                batches[place][frame.base_offset] = frame.span
        except BadFrameError as error:
            wrong.append(f"shard {shard}: {error}")
    return wrong, batches


def check_read(
    stored: Stored, numbers: Mapping[str, int], batches: Mapping[tuple[int, int], Mapping[int, int]]
) -> list[str]:
    """What clients have read stands in a batch each. `numbers`: of topics."""
    wrong = []
    for topic, parts in stored.items():
        for index, part in enumerate(parts):
            spans = batches.get((numbers[topic], index), {})
            covered: set[int] = set()
            for base, span in spans.items():
                covered.update(range(base, base + span))
            # What stands before them has moved into clean files, and was read from there.
            if not covered:
                continue
            first = min(covered)
            missing = [record.offset for record in part if record.offset >= first and record.offset not in covered]
            if missing:
                wrong.append(f"{topic}-{index}: {len(missing)} offsets are read and not in its log: {missing[:3]}")
    return wrong
