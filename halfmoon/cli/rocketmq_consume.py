"""`halfmoon consume --protocol rocketmq`: which messages, from where to where. The broker filters.

Without a group each queue is pulled from one offset to another; a member of a group polls and commits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from halfmoon.cli.connect import CLIENT_ID, RETRY_FOR_S, RETRY_PAUSE_S
from halfmoon.cli.errors import CliError
from halfmoon.cli.reading import MAX_RECORDS, POLL_MS, Start
from halfmoon.cli.rocketmq_connect import Troubles, explained
from halfmoon.cli.rocketmq_message import Record, to_record

if TYPE_CHECKING:
    from halfmoon.client import LitePullConsumer, PullConsumer, PullResult, Queue

HOLD_S = 15.0
"""How long the broker may hold a pull of a queue that is read for ever."""
BRIEF_HOLD_MS = 250
"""… of a member that is to stop at the end: what a filter passes over last, it learns when the pull is answered."""
MOST = 32
"""Messages of one pull: what RocketMQ's brokers give at the most."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line asks for. `count`, `last`, `group` None: not asked for."""

    topics: list[str]
    partitions: list[int]
    """Empty: all."""
    start: Start
    exit_at_end: bool
    count: int | None
    last: int | None
    group: str | None
    tag: str | None
    sql: str | None
    language: str | None = None
    """LANG:EXPR"""

    @property
    def expression(self) -> dict[str, Any]:
        """What a subscription is asked for."""
        if self.language is None:
            return {"expression": self.tag or "*", "sql": self.sql}
        name, _, expression = self.language.partition(":")
        return {"expression": expression, "language": name.strip()}


def read(at: Mapping[str, Any], wanted: Wanted) -> Iterator[list[Record]]:
    """Lists of records, until there are as many as are wanted, or the end is reached; for ever if neither is asked for.
    `at`: options of the client, as of `client_options`. Raises CliError."""
    from halfmoon.client import PullConsumer

    with explained() as troubles, PullConsumer(CLIENT_ID, **at) as client:
        queues = _queues(client, wanted)
        if wanted.group is not None:
            yield from _read_group(at, wanted.group, wanted, client, troubles)
        elif wanted.last is not None:
            yield _newest(client, queues, wanted.last)
        else:
            start = {queue: _first(client, queue, wanted.start) for queue in queues}
            end = {queue: client.max_offset(queue) for queue in queues} if wanted.exit_at_end else None
            yield from _read(partial(_pull, client, wanted.expression), start, end, wanted.count)


def _queues(client: PullConsumer, wanted: Wanted) -> list[Queue]:
    """The queues to read. Raises CliError where a topic, or a queue asked for, does not exist."""
    from halfmoon.client.errors import TopicUnknownError

    found: list[Queue] = []
    for topic in wanted.topics:
        try:
            queues = client.queues(topic)
        except TopicUnknownError:
            raise CliError(f"{topic}: there is no such topic") from None
        there = {queue.queue_id for queue in queues}
        if not there:
            raise CliError(f"{topic}: it has no readable queue")
        missing = set(wanted.partitions) - there
        if missing:
            raise CliError(f"{topic}: there is no partition {min(missing)}; it has 0 to {max(there)}")
        found += [queue for queue in queues if not wanted.partitions or queue.queue_id in wanted.partitions]
    return found


# -- without a group ---------------------------------------------------------------------------------------------------


def _first(client: PullConsumer, queue: Queue, start: Start) -> int:
    """The offset to start from."""
    if start.at_end:
        return client.max_offset(queue)
    if start.time_ms is not None:
        return client.offset_for_time(queue, start.time_ms / 1_000)
    begin = client.min_offset(queue)
    return begin if start.at_beginning else start.clamped(begin, client.max_offset(queue))


def _newest(client: PullConsumer, queues: list[Queue], last: int) -> list[Record]:
    end = {queue: client.max_offset(queue) for queue in queues}
    start = {queue: max(client.min_offset(queue), end[queue] - last) for queue in queues}
    records = [
        record for batch in _read(partial(_pull, client, {"expression": "*"}), start, end, None) for record in batch
    ]
    records.sort(key=lambda record: (record.timestamp, record.topic, record.partition, record.offset))
    return records[-last:]


def _pull(client: PullConsumer, wanted: dict[str, Any], queue: Queue, offset: int, hold_s: float) -> PullResult:
    """One pull, again while its broker cannot be reached, but not for long."""
    from halfmoon.client import ConnectionFailedError, RequestTimeoutError

    deadline: float | None = None
    while True:
        try:
            return client.pull(queue, offset, **wanted, most=MOST, wait_s=hold_s)
        except (ConnectionFailedError, RequestTimeoutError):
            now = time.monotonic()
            deadline = deadline or now + RETRY_FOR_S
            if now > deadline:
                raise
            time.sleep(RETRY_PAUSE_S)


def _read(
    pull: Callable[[Queue, int, float], PullResult],
    start: dict[Queue, int],
    end: dict[Queue, int] | None,
    count: int | None,
) -> Iterator[list[Record]]:
    """Lists of records of one queue each, from `start` to `end`, or for ever; `count` in all.

    A thread waits for each queue's next pull, so that a queue where nothing comes holds up no other one.
    """
    unread = {queue: offset for queue, offset in start.items() if end is None or offset < end[queue]}
    hold_s = HOLD_S if end is None else 0.0
    pool = ThreadPoolExecutor(max(1, len(unread)), thread_name_prefix="halfmoon-pull")
    try:
        asked = {pool.submit(pull, queue, offset, hold_s): queue for queue, offset in unread.items()}
        while asked and (count is None or count > 0):
            done, _ = wait(asked, return_when=FIRST_COMPLETED)
            for future in done:
                queue, result = asked.pop(future), future.result()
                records = [
                    to_record(message)
                    for message in result.messages
                    if end is None or message.queue_offset < end[queue]
                ][:count]
                if records:
                    count = None if count is None else count - len(records)
                    yield records
                # The position counts, not the last message: what stands before the end may be none. Nor is the end
                # reached where it was taken away meanwhile.
                is_last = not result.messages and result.next_offset >= result.max_offset
                if end is None or not (is_last or result.next_offset >= end[queue]):
                    asked[pool.submit(pull, queue, result.next_offset, hold_s)] = queue
    finally:
        # Pulls that are held end when the client is closed.
        pool.shutdown(wait=False, cancel_futures=True)


# -- with a group ------------------------------------------------------------------------------------------------------


def _read_group(
    at: Mapping[str, Any], group: str, wanted: Wanted, client: PullConsumer, troubles: Troubles
) -> Iterator[list[Record]]:
    """Lists of records of the queues that the group gives us.

    What was read is committed when the next list is asked for, so a message is lost by no crash, and may come twice.
    """
    from halfmoon.client import ConsumeFrom, LitePullConsumer

    count = wanted.count
    options: dict[str, Any] = {"auto_commit": False, "pull_batch_size": MOST, "consume_from": ConsumeFrom.FIRST}
    if wanted.exit_at_end:
        options["hold_ms"] = BRIEF_HOLD_MS
    member = LitePullConsumer(group, **at, **options)
    for topic in wanted.topics:
        member.subscribe(topic, **wanted.expression)
    with member:
        while count is None or count > 0:
            # No more than may be given: what is polled is committed.
            polled = member.poll(POLL_MS / 1_000, MAX_RECORDS if count is None else min(count, MAX_RECORDS))
            if polled:
                count = None if count is None else count - len(polled)
                yield [to_record(message) for message in polled]
                member.commit()
            elif wanted.exit_at_end and _is_at_end(member, client):
                return
            troubles.check()


def _is_at_end(member: LitePullConsumer, client: PullConsumer) -> bool:
    """Whether all queues that are ours were read, or passed over."""
    queues = member.assignment
    member.commit()
    return bool(queues) and all(member.committed(queue) >= client.max_offset(queue) for queue in queues)
