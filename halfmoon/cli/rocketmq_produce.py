"""`halfmoon produce --protocol rocketmq`: each record to its queue, and what became of it."""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from halfmoon.cli import outcomes, output
from halfmoon.cli.connect import CLIENT_ID
from halfmoon.cli.errors import CliError, one_line
from halfmoon.cli.options import Output
from halfmoon.cli.rocketmq_connect import explained
from halfmoon.cli.rocketmq_lanes import Lanes, Stored
from halfmoon.cli.rocketmq_message import text_of, to_message

if TYPE_CHECKING:
    from halfmoon import client
    from halfmoon.cli.input_records import Message
    from halfmoon.client import Producer, Queue

MAX_UNANSWERED = 20_000
MAX_UNANSWERED_BYTES = 32 << 20
"""So much may be on its way: bounds what a quick pipe can pile up in memory."""
MAX_BODY_BYTES = (16 << 20) - (64 << 10)
"""What fits into RocketMQ's frame of 16 MiB beside properties. How large a message may be is the broker's to say."""
SEND_TIMEOUT_MS = 10_000
"""For one request with its retries: a disk may be slow."""
ANSWER_TIMEOUT_S = 120.0


def send_all(
    at: Mapping[str, Any], topic: str, partition: int | None, messages: Iterator[Message], result: Output
) -> tuple[int, set[int]]:
    """Send everything; (messages acknowledged, the queues they went to). The first failure ends it with CliError.

    `at`: as of `client_options`. Messages with one key go to one queue, in order.
    """
    from halfmoon.client import ClientError, Producer, SendStatus

    unanswered: deque[tuple[Future[Stored], int, str]] = deque()
    unanswered_bytes = sent = 0
    partitions: set[int] = set()
    not_safe: Counter[SendStatus] = Counter()

    def settle() -> None:
        nonlocal sent, unanswered_bytes
        future, size, label = unanswered.popleft()
        unanswered_bytes -= size
        try:
            answer = future.result(ANSWER_TIMEOUT_S)
        except (ClientError, TimeoutError) as error:
            raise CliError(f"{label or f'record {sent + 1}'}: {one_line(error) or 'no answer'}") from error
        with outcomes.uninterrupted():
            sent += 1
            partitions.add(answer.partition)
            if answer.status is not SendStatus.OK:
                not_safe[answer.status] += 1
            if result is Output.JSON:
                place = {"topic": topic, "partition": answer.partition, "offset": answer.offset}
                output.write(output.json_line({**place, "message_id": answer.message_id}))

    # Bodies go as they are, as --compression none says.
    options: dict[str, Any] = {
        "timeout_ms": SEND_TIMEOUT_MS,
        "compress_over_bytes": 0,
        "max_body_bytes": MAX_BODY_BYTES,
    }

    def take_all(producer: Producer, queues: list[Queue]) -> None:
        nonlocal unanswered_bytes
        with (
            Lanes(producer, queues).running() as lanes,
            output.progress("records", wanted=not sys.stdin.isatty()) as progress,
        ):
            for number, message in enumerate(messages, 1):
                try:
                    made = to_message(topic, message)
                    future = lanes.send(made, _queue(queues, made, message.key))
                except ValueError as error:
                    raise CliError(f"{message.label or f'record {number}'}: {one_line(error)}") from error
                size = len(message.value or b"")
                unanswered.append((future, size, message.label))
                unanswered_bytes += size
                while unanswered and (
                    unanswered[0][0].done()
                    or len(unanswered) >= MAX_UNANSWERED
                    or unanswered_bytes > MAX_UNANSWERED_BYTES
                ):
                    settle()
                    progress.advance()
            while unanswered:
                settle()

    with explained(), Producer(CLIENT_ID, **at, **options) as producer:
        try:
            take_all(producer, _queues(producer, topic, partition))
        except KeyboardInterrupt:
            with suppress(CliError):
                while unanswered and unanswered[0][0].done():
                    settle()
            output.note(outcomes.interrupted(topic, sent, len(unanswered)))
            raise
    for status, count in not_safe.items():
        output.note(f"{count} stored, but without the configured durability: {status.name}")
    return sent, partitions


def _queues(producer: Producer, topic: str, partition: int | None) -> list[Queue]:
    """Those that may be chosen. Raises CliError where the topic, or the queue asked for, is not there."""
    from halfmoon.client.errors import TopicUnknownError

    try:
        queues = producer.queues(topic)
    except TopicUnknownError:
        raise CliError(f"{topic}: there is no such topic, and the broker does not create it automatically") from None
    if partition is None:
        return queues
    for queue in queues:
        if queue.queue_id == partition:
            return [queue]
    most = max(queue.queue_id for queue in queues)
    raise CliError(f"{topic}: there is no partition {partition}; it has 0 to {most}")


def _queue(queues: list[Queue], message: client.Message, key: bytes | None) -> Queue | None:
    """The one asked for, or the one that the key chooses. None: any."""
    from halfmoon.client import by_hash

    if len(queues) == 1:
        return queues[0]
    return None if key is None else by_hash(queues, message, text_of("the key", key))
