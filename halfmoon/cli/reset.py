"""`group reset`, worked out: which partitions, from where to where. Nothing here changes anything but `carry_out`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from halfmoon.cli.connect import offsets_of, patiently
from halfmoon.cli.errors import CliError, describe_code
from halfmoon.cli.times import parse_time

if TYPE_CHECKING:
    from kafka import TopicPartition

    from halfmoon.cli.admin_client import AdminClient


class Bounds(NamedTuple):
    """What there is in a partition, and what the group has committed (None: nothing)."""

    start: int
    end: int
    committed: int | None
    at_time: int | None
    """The first offset at the target's time; None if there is none, or no time was given."""


class Target(NamedTuple):
    """Where to: `choose` names the offset, before it is kept within the partition."""

    choose: Callable[[Bounds], int]
    time_ms: int | None = None


class Change(NamedTuple):
    """One partition's new offset."""

    topic: str
    partition: int
    committed: int | None
    new: int

    @property
    def change(self) -> int | None:
        """How far it moves; None where nothing was committed."""
        return None if self.committed is None else self.new - self.committed


def target(
    to_earliest: bool, to_latest: bool, to_offset: int | None, to_time: str | None, shift_by: int | None, now_ms: int
) -> Target:
    """The one target that was given. Raises ValueError for none, for several, and for what is no time."""
    given: list[Target] = []
    if to_earliest:
        given.append(Target(lambda bounds: bounds.start))
    if to_latest:
        given.append(Target(lambda bounds: bounds.end))
    if to_offset is not None:
        given.append(Target(lambda _: to_offset))
    if to_time is not None:
        given.append(Target(_at_time, parse_time(to_time, now_ms)))
    if shift_by is not None:
        given.append(Target(lambda bounds: _shifted(bounds, shift_by)))
    if len(given) != 1:
        raise ValueError("specify one of --to-earliest, --to-latest, --to-offset, --to-time, --shift-by")
    return given[0]


def _at_time(bounds: Bounds) -> int:
    # No record that late: the next one to come will be.
    return bounds.end if bounds.at_time is None else bounds.at_time


def _shifted(bounds: Bounds, by: int) -> int:
    if bounds.committed is None:
        raise CliError("--shift-by needs a committed offset, and the group has none in a partition")
    return bounds.committed + by


def scope(client: AdminClient, topics: list[str]) -> list[TopicPartition]:
    """`["a", "b:0,2"]` → partitions, in order. Raises CliError for what does not exist."""
    from kafka import TopicPartition

    wanted: dict[str, list[int]] = {}
    for text in topics:
        name, colon, numbers = text.partition(":")
        if not all(number.isascii() and number.isdigit() for number in (numbers.split(",") if colon else [])):
            raise CliError(f"{text!r} is not TOPIC or TOPIC:0,1,…")
        wanted.setdefault(name, []).extend(int(number) for number in numbers.split(",") if colon)
    there = {topic["name"]: topic for topic in client.describe_topics(list(wanted))}
    found = []
    for name, numbers_wanted in wanted.items():
        if there[name]["error_code"]:
            raise CliError(f"{name}: {describe_code(there[name]['error_code'], None)}")
        existing = {int(partition["partition_index"]) for partition in there[name]["partitions"]}
        missing = set(numbers_wanted) - existing
        if missing:
            raise CliError(f"{name}: there is no partition {min(missing)}")
        found += [TopicPartition(name, number) for number in set(numbers_wanted) or existing]
    return sorted(found)


def committed_offsets(client: AdminClient, group: str) -> dict[TopicPartition, int]:
    """What the group has committed."""
    return patiently(lambda: client.committed(group))


def end_offsets(client: AdminClient, queues: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Where each partition ends; those of deleted topics are left out."""
    from halfmoon.cli.admin_client import LATEST

    wanted = list(queues)
    names = sorted({queue.topic for queue in wanted})
    there = {topic["name"] for topic in client.describe_topics(names) if not topic["error_code"]} if names else set()
    wanted = [queue for queue in wanted if queue.topic in there]
    (end,) = offsets_of(client, wanted, LATEST)
    return end


def plan(
    client: AdminClient, queues: list[TopicPartition], committed: dict[TopicPartition, int], to: Target
) -> list[Change]:
    """The new offset of every partition, kept within what is there."""
    from halfmoon.cli.admin_client import EARLIEST, LATEST

    start, end = offsets_of(client, queues, EARLIEST, LATEST)
    at_time = {} if to.time_ms is None else offsets_of(client, queues, to.time_ms)[0]
    changes = []
    for queue in queues:
        timed = at_time[queue] if at_time.get(queue, -1) >= 0 else None
        bounds = Bounds(start[queue], end[queue], committed.get(queue), timed)
        new = min(max(to.choose(bounds), bounds.start), bounds.end)
        changes.append(Change(queue.topic, queue.partition, bounds.committed, new))
    return changes


def carry_out(client: AdminClient, group: str, changes: list[Change]) -> None:
    """Commit the new offsets. Raises CliError naming the first partition that was refused."""
    from kafka import TopicPartition

    offsets = {TopicPartition(c.topic, c.partition): c.new for c in changes}
    answers = patiently(lambda: client.commit(group, offsets))
    for queue, error_code in answers.items():
        if error_code:
            raise CliError(f"{queue.topic} partition {queue.partition}: {describe_code(error_code, None)}")
