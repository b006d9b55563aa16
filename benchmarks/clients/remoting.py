"""halfmoon.client, with threads: what RocketMQ's Java client is measured at, too."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from halfmoon.client import ConsumeFrom, Context, Message, Producer, PushConsumer, ReceivedMessage, Status

IN_FLIGHT = 2_000
"""Asynchronous sends."""
BATCH = 1_000
QUEUES = 8
"""Of a topic, as the peer's program has it."""
CONSUME_LIMIT_S = 120.0


def python_client(namesrv: str, topic: str, seconds: float, messages: int, size: int = 100) -> dict[str, float]:
    """Messages a second: sent one after the other by one thread and by eight, asynchronously; and `messages` that lie
    there, consumed by a listener that does nothing, one by one and up to 32 at a time."""
    body = b"x" * size
    found: dict[str, float] = {}
    with Producer("bench", namesrv=namesrv, default_queues=QUEUES) as producer:
        producer.send(Message(topic, body))
        for threads in (1, 8):
            _sync(producer, Message(topic, body), threads, seconds / 4)  # warm
            found[f"sync_{threads}_rec_s"] = _sync(producer, Message(topic, body), threads, seconds)
        found["async_rec_s"] = _async(producer, Message(topic, body), seconds)
        lying = f"{topic}-lying"
        for _ in range(-(-messages // BATCH)):
            producer.send_batch([Message(lying, body)] * BATCH)
    for at_a_time in (1, 32):
        found[f"consume_{at_a_time}_rec_s"] = _consume(namesrv, lying, messages, at_a_time)
    return found


def _sync(producer: Producer, message: Message, threads: int, seconds: float) -> float:
    counts = [0] * threads
    until = time.perf_counter() + seconds

    def send(number: int) -> None:
        while time.perf_counter() < until:
            producer.send(message)
            counts[number] += 1

    running = [threading.Thread(target=send, args=(number,)) for number in range(threads)]
    begun = time.perf_counter()
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return sum(counts) / (time.perf_counter() - begun)


def _async(producer: Producer, message: Message, seconds: float) -> float:
    free = threading.Semaphore(IN_FLIGHT)
    failed: list[BaseException] = []

    def answered(result: object, error: BaseException | None) -> None:
        if error is not None:
            failed.append(error)
        free.release()

    sent = 0
    begun = time.perf_counter()
    while time.perf_counter() < begun + seconds:
        for _ in range(100):
            free.acquire()
            producer.send_async(message, callback=answered)
        sent += 100
    for _ in range(IN_FLIGHT):
        free.acquire()
    if failed:
        raise RuntimeError(f"{len(failed)} of {sent} sends failed: {failed[0]}")
    return sent / (time.perf_counter() - begun)


def _consume(namesrv: str, topic: str, messages: int, at_a_time: int) -> float:
    count = 0
    done = threading.Event()
    lock = threading.Lock()

    def listener(some: Sequence[ReceivedMessage], context: Context) -> Status:
        nonlocal count
        with lock:
            count += len(some)
            if count >= messages:
                done.set()
        return Status.SUCCESS

    begun = time.perf_counter()
    with PushConsumer(
        f"bench-{at_a_time}", listener, topic, namesrv=namesrv, consume_from=ConsumeFrom.FIRST, batch_size=at_a_time
    ):
        if not done.wait(CONSUME_LIMIT_S):
            raise RuntimeError(f"{count} of {messages} were consumed")
        return count / (time.perf_counter() - begun)
