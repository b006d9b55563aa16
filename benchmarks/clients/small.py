"""Very many batches of one record; and a consumer that reads a log from its start, again and again."""

from __future__ import annotations

import sys
import threading
import time

from benchmarks.clients import topics, wire

IN_FLIGHT = 4
PARTITIONS = 500


def small_batches(bootstrap: str, topic: str, count: int, size: int = 20) -> dict[str, float]:
    """`count` batches of one record with `size` bytes, a batch for every partition in each request."""
    topics.create(bootstrap, topic, PARTITIONS)
    batch = wire.batch(b"x" * size)
    request = wire.produce(topic, [(partition, batch) for partition in range(PARTITIONS)])
    requests = max(1, count // PARTITIONS)
    with wire.Connection(bootstrap) as connection:
        begun = time.perf_counter()
        for number in range(requests + IN_FLIGHT):
            if number < requests:
                connection.send(request)
            if number >= IN_FLIGHT:
                answer = connection.receive()
        took_s = time.perf_counter() - begun
    if wire.produced(answer) != (0, requests - 1):
        raise RuntimeError(f"the last request was answered {wire.produced(answer)}")
    return {"batches": float(requests * PARTITIONS), "batches_s": requests * PARTITIONS / took_s}


def read_again(bootstrap: str, topic: str, mb_s: float | None = None) -> dict[str, float]:
    """Read partition 0 from the start to the end, over and over, `mb_s` or as fast as it comes.

    Prints a line when it begins; stops when standard input ends.
    """
    stopped = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        stopped.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    offset, size = 0, 0
    begun = time.perf_counter()
    with wire.Connection(bootstrap) as connection:
        print("waiting", flush=True)
        while not stopped.is_set():
            got = wire.fetched(connection.ask(wire.fetch(topic, 0, offset, max_wait_ms=0, max_bytes=1 << 20)))
            if got.error:
                raise RuntimeError(f"Fetch answers error {got.error}")
            size += len(got.records)
            if mb_s is not None:
                time.sleep(max(0.0, begun + size / 2**20 / mb_s - time.perf_counter()))
            found = wire.batches_in(got.records)
            offset = found[-1][0] + _records(found[-1][1]) if found else 0
    return {"mb_s": size / 2**20 / (time.perf_counter() - begun)}


def _records(batch: memoryview) -> int:
    return int.from_bytes(batch[57:61], "big")
