"""kill −9 and loss of power, again and again: how long until the broker is ready."""

from __future__ import annotations

import os
import random
import shutil
import statistics
import time
from functools import partial
from pathlib import Path

from benchmarks.bench import HALFMOON, Bench, Cell, Figures
from benchmarks.brokers import Broker
from benchmarks.clients import wire
from benchmarks.readings import MB

KILLS = 50
LOAD_S = 0.4
SEGMENT_BYTES = 1024 * MB
TORN_BYTES = 40
IN_FLIGHT = 8
PARTITIONS = 4
OLD_FRAME = b"HMf1" + bytes(12) + b"\xff" * 8 + bytes(280)
"""What a recycled segment is full of: frames that say that they stand elsewhere."""


def kills(kind: str, bench: Bench, like: Broker) -> Figures:
    """In a broker of its own: segments of 1 GiB, the first one recycled or fresh. Each kill comes in the middle of
    small batches. Each second one is a loss of power: the last bytes are torn, and nothing is in the page cache."""
    took_ms = _killed(bench, like.name, kind)
    return {"p50_ms": statistics.median(took_ms), "max_ms": max(took_ms)}


def _killed(bench: Bench, flush: str, kind: str) -> list[float]:
    data = bench.work / f"killed-{kind}"
    broker = bench.brokers.start_halfmoon(flush, data=data)
    bench.brokers.kill(broker)
    _keep_identity(data)
    _make_spare(data / "log" / "spare", bench.times(SEGMENT_BYTES // MB) * MB, recycled=kind == "recycled")
    dice = random.Random(kind)
    took_ms: list[float] = []
    broker = bench.brokers.start_halfmoon(flush, data=data)
    try:
        with wire.Connection(broker.bootstrap) as connection:
            connection.ask(wire.metadata(["kills"]))
        for number in range(bench.times(KILLS)):
            _load(broker.bootstrap, dice.randrange(100, 2_000), dice.uniform(0, LOAD_S))
            bench.brokers.kill(broker)
            if number % 2:
                _tear(data)
            broker = bench.brokers.start_halfmoon(flush, data=data)
            took_ms.append(broker.ready_ms)
    finally:
        bench.brokers.stop(broker)
    return took_ms


def _keep_identity(data: Path) -> None:
    """A new directory, but for its cluster id: without that a broker refuses a folder with a file in `log`."""
    for path in data.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "meta.json":
            path.unlink()


def _make_spare(path: Path, size: int, *, recycled: bool) -> None:
    """The file that becomes the first segment."""
    path.parent.mkdir(parents=True)
    piece = (OLD_FRAME * (MB // len(OLD_FRAME) + 1))[:MB]
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
        if recycled:
            for _ in range(size // MB):
                file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def _load(bootstrap: str, size: int, seconds: float) -> None:
    """Batches of one record, until the time is over; the last ones are on their way then."""
    batch = wire.batch(b"x" * size)
    request = wire.produce("kills", [(partition, batch) for partition in range(PARTITIONS)])
    end = time.perf_counter() + seconds
    with wire.Connection(bootstrap) as connection:
        sent = 0
        while time.perf_counter() < end:
            connection.send(request)
            sent += 1
            if sent > IN_FLIGHT:
                connection.receive()


def _tear(data: Path) -> None:
    """Spoil what was written last, and have nothing of the log in the page cache."""
    for path in sorted((data / "log").glob("[0-9]*")):
        fd = os.open(path, os.O_RDWR)
        try:
            end = _written_end(fd, int(path.name))
            if end > 2 * TORN_BYTES:
                os.pwrite(fd, bytes(TORN_BYTES), end - TORN_BYTES)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def _written_end(fd: int, start: int) -> int:
    """Where the last frame of the segment that begins at `start` ends."""
    end = 0
    while (header := os.pread(fd, 24, end))[:4] == b"HMf1" and int.from_bytes(header[16:24], "little") == start + end:
        end += int.from_bytes(header[8:12], "little")
    return end


CELLS = tuple(
    Cell(
        f"kills_{kind}",
        f"ready after kill -9 and loss of power in the middle of small batches, {KILLS} times, a {kind} segment of"
        " 1 GiB",
        partial(kills, kind),
        on=HALFMOON,
        rounds=1,
    )
    for kind in ("recycled", "fresh")
)
