"""Where `consume` starts and where it ends: partitions, offsets, and the loop that reads between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from halfmoon.cli.errors import CliError
from halfmoon.cli.times import EXPECTED, parse_time
from halfmoon.cli.topic_patterns import any_pattern, regex

if TYPE_CHECKING:
    from kafka import KafkaConsumer, TopicPartition

POLL_MS = 500
AWAY_S = 0.1
MAX_RECORDS = 5_000

AnswerT = TypeVar("AnswerT")

Keep = Callable[[Any], bool]
"""Whether a record is wanted."""

BEGINNING = ("beginning", "earliest", "start")
END = ("end", "latest")


class Start:
    """Where to start in each partition: what `--from` and `--offset` said."""

    def __init__(self, where: str, offset: int | None, now_ms: int) -> None:
        """Raises ValueError if `where` is neither a word nor a time."""
        self.offset = offset
        self.at_beginning = offset is None and where in BEGINNING
        self.at_end = offset is None and where in END
        self.time_ms: int | None = None
        if offset is None and not self.at_beginning and not self.at_end:
            try:
                self.time_ms = parse_time(where, now_ms)
            except ValueError:
                raise ValueError(f"{where!r} is neither beginning, end nor {EXPECTED}") from None

    def offsets(self, client: KafkaConsumer, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset to start from, in each partition. Clamped to what is there."""
        if self.at_end:
            return _answered(client.end_offsets(partitions))
        begin = _answered(client.beginning_offsets(partitions))
        if self.at_beginning:
            return begin
        end = _answered(client.end_offsets(partitions))
        if self.offset is not None:
            return {p: self.clamped(begin[p], end[p]) for p in partitions}
        found = client.offsets_for_times(dict.fromkeys(partitions, self.time_ms))
        return {p: end[p] if found.get(p) is None else found[p].offset for p in partitions}

    def clamped(self, begin: int, end: int) -> int:
        """The offset given, in what is there of a partition. As kcat: a negative one counts back from the end."""
        assert self.offset is not None
        return min(max(self.offset if self.offset >= 0 else end + self.offset, begin), end)


def partitions_of(client: KafkaConsumer, topics: list[str], only: list[int]) -> list[TopicPartition]:
    """The partitions to read. Raises CliError where a topic, or a partition asked for, does not exist."""
    from kafka import TopicPartition

    found = []
    for topic in topics:
        there = client.partitions_for_topic(topic)
        if not there:
            raise CliError(f"{topic}: there is no such topic")
        missing = set(only) - there
        if missing:
            raise CliError(f"{topic}: there is no partition {min(missing)}; it has 0 to {max(there)}")
        found += [TopicPartition(topic, partition) for partition in sorted(only or there)]
    return found


def every(record: Any) -> bool:
    return True


def read_assigned(
    client: KafkaConsumer,
    start: dict[TopicPartition, int],
    end: dict[TopicPartition, int] | None,
    count: int | None,
    keep: Keep = every,
) -> Iterator[list[Any]]:
    """Lists of records from `start` on, until `count` records were given or `end` is reached; for ever without either.

    Only records that `keep` wants are given, or counted. What was appended behind `end` after it was asked for is not
    given.
    """
    client.assign(list(start))
    for partition, offset in start.items():
        client.seek(partition, offset)
    open_ends = None if end is None else {p: offset for p, offset in end.items() if offset > start[p]}
    if open_ends is not None:
        client.pause(*(p for p in start if p not in open_ends))
    while (open_ends is None or open_ends) and (count is None or count > 0):
        polled = client.poll(POLL_MS, max_records=MAX_RECORDS)
        records = [
            record
            for partition, batch in polled.items()
            for record in batch
            if (open_ends is None or record.offset < open_ends.get(partition, 0)) and keep(record)
        ][:count]
        if records:
            count = None if count is None else count - len(records)
            yield records
        # The position counts, not the last record: what stands before the end may be no record (a marker, a hole).
        for partition, offset in list((open_ends or {}).items()):
            if client.position(partition) >= offset:
                open_ends = {p: end for p, end in (open_ends or {}).items() if p != partition}
                client.pause(partition)


def read_group(
    client: KafkaConsumer, topics: list[str], exit_at_end: bool, count: int | None, keep: Keep = every
) -> Iterator[list[Any]]:
    """Lists of records of the partitions that the group gives us; only of those that `keep` wants. `topics`: names, and
    patterns that new topics may match too.

    What was read is committed when the next list is asked for, so a record is lost by no crash, and may come twice.
    """
    if any_pattern(topics):
        client.subscribe(pattern=regex(topics))
    else:
        client.subscribe(topics)
    while count is None or count > 0:
        # No more than may be given: what is read is committed.
        most = MAX_RECORDS if count is None else min(count, MAX_RECORDS)
        polled = _again(lambda most=most: client.poll(POLL_MS, max_records=most)) or {}  # type: ignore[misc]
        records = [record for batch in polled.values() for record in batch if keep(record)]
        if records:
            count = None if count is None else count - len(records)
            yield records
        if polled:
            _again(client.commit)
        elif exit_at_end and client.assignment() and _again(lambda: _is_at_end(client)):
            return


def _is_at_end(client: KafkaConsumer) -> bool:
    end = _answered(client.end_offsets(list(client.assignment())))
    return all(client.position(partition) >= offset for partition, offset in end.items())


def _again(ask: Callable[[], AnswerT]) -> AnswerT | None:
    """What is asked; None, after a while, where the broker is away, or the group is about to share its partitions anew:
    it is asked again in the next turn. What could not be committed comes again, here or to another member."""
    from kafka.errors import CommitFailedError, KafkaError, RebalanceInProgressError

    try:
        return ask()
    except (CommitFailedError, RebalanceInProgressError):
        return None
    except KafkaError as error:
        if not error.retriable:
            raise
        time.sleep(AWAY_S)
        return None


def end_offsets(client: KafkaConsumer, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Where each partition ends now."""
    return _answered(client.end_offsets(partitions))


def last_offsets(
    client: KafkaConsumer, partitions: list[TopicPartition], last: int
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """(start, end) such that each partition's `last` newest records lie between."""
    begin, end = _answered(client.beginning_offsets(partitions)), _answered(client.end_offsets(partitions))
    return {p: max(begin[p], end[p] - last) for p in partitions}, end


def _answered(offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    return dict(offsets)
