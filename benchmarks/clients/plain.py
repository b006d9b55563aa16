"""Requests that were made before, over a plain socket: small ones as fast as answers come or at a pace, and large ones
without a pause."""

from __future__ import annotations

import time

from benchmarks.clients import topics, wire
from benchmarks.clients.numbers import summary


def one_by_one(bootstrap: str, topic: str, count: int) -> dict[str, float]:
    """Ping-pong: the next Produce of 100 bytes leaves when the answer has come."""
    topics.create(bootstrap, topic)
    return _send(bootstrap, topic, count, None)


def paced(bootstrap: str, topic: str, count: int, rate: float) -> dict[str, float]:
    """`rate` messages a second. A message that starts late is timed from when it was due."""
    topics.create(bootstrap, topic)
    return _send(bootstrap, topic, count, rate)


def _send(bootstrap: str, topic: str, count: int, rate: float | None) -> dict[str, float]:
    request = wire.produce(topic, [(0, wire.batch(b"x" * 100))])
    took_ms = []
    with wire.Connection(bootstrap) as connection:
        begun = time.perf_counter()
        for number in range(count):
            at = time.perf_counter()
            if rate is not None:
                due = begun + number / rate
                if due > at:
                    time.sleep(due - at)
                at = due
            answer = connection.ask(request)
            took_ms.append((time.perf_counter() - at) * 1e3)
            if number == 0 and wire.produced(answer)[0]:
                raise RuntimeError(f"Produce answers error {wire.produced(answer)[0]}")
        took_s = time.perf_counter() - begun
    if wire.produced(answer)[1] != count - 1:
        raise RuntimeError(f"the last message has offset {wire.produced(answer)[1]}, not {count - 1}")
    return {"req_s": count / took_s, **summary(took_ms)}


IN_FLIGHT = 5
"""As a Kafka producer's default (`max.in.flight.requests.per.connection`)."""


def ready_made(bootstrap: str, topic: str, size: int, count: int) -> dict[str, float]:
    """`count` records of `size` bytes in batches of about 1 MB that were made before: nothing of the client is timed
    but its socket."""
    topics.create(bootstrap, topic)
    in_batch = (1_000_000 - 100) // (size + 20)
    request = wire.produce(topic, [(0, wire.batch(b"x" * size, in_batch))])
    requests = max(count // in_batch, IN_FLIGHT)
    with wire.Connection(bootstrap) as connection:
        begun = time.perf_counter()
        for number in range(requests + IN_FLIGHT):
            if number < requests:
                connection.send(request)
            if number >= IN_FLIGHT:
                error, base_offset = wire.produced(connection.receive())
                if error or base_offset != (number - IN_FLIGHT) * in_batch:
                    raise RuntimeError(f"Produce answers error {error}, offset {base_offset}")
        took_s = time.perf_counter() - begun
    records = requests * in_batch
    return {"rec_s": records / took_s, "mb_s": records * size / took_s / 2**20}
