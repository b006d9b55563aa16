"""Requests that were made before, over a plain socket: as fast as answers come, or at a pace."""

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
