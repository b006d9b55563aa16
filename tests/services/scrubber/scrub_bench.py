"""A broker whose scrubber is driven by hand, over a faulty disk and in virtual time."""

from __future__ import annotations

import threading
from typing import Any

from halfmoon.core.jobs import Job
from halfmoon.core.storage import frame as frames
from halfmoon.core.storage.log_files import segment_path
from halfmoon.services.scrubber.service import QUIET_MS, Scrubber
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, flip, open_broker, partition_of, send, turn

DAY_MS = 86_400_000


def filled(fs: FaultyFileSystem, clock: VirtualClock, *, batches: int = 60, size: int = 5_000, **log: Any) -> BareNode:
    """Some segments, all indexed: topic t with two partitions, of batches of one record."""
    broker = open_broker(fs, clock, **log)
    broker.create_topic("t", 2)
    for number in range(batches):
        send(broker, "t", b"%d" % number + b"x" * size, index=number % 2)
        turn(broker)
    broker.housekeeping.freeze()
    turn(broker)
    return broker


def job_of(scrubber: Scrubber, clock: VirtualClock) -> Job[object] | None:
    """The next one, when its time has come."""
    deadline_ms = scrubber.next_deadline()
    assert deadline_ms is not None
    clock.now_ms = max(clock.now_ms, deadline_ms)
    return scrubber.next_job()


def run(job: Job[object]) -> None:
    """In a thread, as it is meant to be."""
    outcome: list[tuple[object, Exception | None]] = []

    def work() -> None:
        try:
            outcome.append((job.run(), None))
        except Exception as error:
            outcome.append((None, error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    result, error = outcome[0]
    if error is None:
        job.done(result)
    else:
        job.failed(error)


def scrub(broker: BareNode, clock: VirtualClock) -> None:
    """To the end of a pass, and of what is written down of it."""
    scrubber = broker.scrubber
    passes = scrubber.passes
    for _ in range(10_000):
        job = job_of(scrubber, clock)
        if job is not None:
            run(job)
        if scrubber.passes > passes:
            return
    raise AssertionError("the pass does not end")


def look_again(broker: BareNode, clock: VirtualClock) -> None:
    """At what was corrupt before the start, before anything else is read."""
    until_ms = clock.now_ms + QUIET_MS
    scrubber = broker.scrubber
    while (deadline_ms := scrubber.next_deadline()) is not None and deadline_ms < until_ms:
        job = job_of(scrubber, clock)
        if job is None:
            break
        run(job)


def place(broker: BareNode, topic: str, nth: int, index: int = 0) -> int:
    """Where the frame of a partition's nth batch begins."""
    rows = [
        run.columns.position[row]
        for run in partition_of(broker, topic, index).queue.runs()
        for row in range(run.low, run.high)
    ]
    return rows[nth] - frames.HEADER_BYTES


def rot(broker: BareNode, fs: FaultyFileSystem, position: int, count: int = 1) -> str:
    """The path of the file."""
    segment = broker.log.segment_at(position)
    flip(fs, segment_path(segment.start), position - segment.start, count)
    return segment_path(segment.start)
