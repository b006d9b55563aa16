"""A commitlog without a broker: frames of one partition, and the damage that can be done to them."""

from __future__ import annotations

import random

from halfmoon.core.records.batch_header import stamp
from halfmoon.core.storage.commitlog import CommitLog
from halfmoon.core.storage.frame import Kind, control_crc
from halfmoon.core.storage.log_files import segment_path
from halfmoon.testing.faulty_files import FaultyFileSystem
from tests.core.bench import batch, flip

SEGMENT = 64 << 10


def new_fs(seed: int = 1) -> FaultyFileSystem:
    return FaultyFileSystem(random.Random(seed))


def open_log(fs: FaultyFileSystem, *, low_disk_bytes: int = 0, generation: int = 1) -> CommitLog:
    """Opened, and going on where a log without damage ends: good for a new or an untouched one."""
    log = CommitLog(fs, SEGMENT, low_disk_bytes)
    log.open()
    log.resume(log.segments[-1].end if log.segments else 0, generation)
    return log


def append_batch(log: CommitLog, offset: int, value: bytes = b"value", *, topic: int = 1, partition: int = 0) -> int:
    """Returns where the frame begins."""
    data = batch(value)
    stamp(data, offset, log.generation)
    position = log.append(Kind.BATCH, topic, partition, 1, offset, 1, 1, 0, data)
    return position - 92


def append_group(log: CommitLog, *payloads: bytes) -> int:
    """Control frames as one frame group; returns where the first begins. They must fit into the active segment."""
    first = -1
    for part, payload in enumerate(payloads):
        crc = control_crc(payload)
        position = log.append(
            Kind.CONTROL, -1, -1, 0, 0, 0, 0, 0, payload, part=part, parts=len(payloads), payload_crc=crc
        )
        first = position - 92 if part == 0 else first
    return first


def flush(log: CommitLog) -> None:
    log.write()
    job = log.sync_job()
    if job is not None:
        job.run()
        log.finish_sync(job, None)


def remove_retired(log: CommitLog) -> None:
    """As the thread does, and the loop behind it."""
    while (remove := log.begin_removal()) is not None:
        log.removed(remove())


def expire(log: CommitLog) -> None:
    """The oldest segment goes, and its file."""
    log.remove_oldest()
    remove_retired(log)


def rot(log: CommitLog, fs: FaultyFileSystem, position: int, count: int = 1) -> None:
    segment = log.segment_at(position)
    flip(fs, segment_path(segment.start), position - segment.start, count)
