"""What has become of dead letters: which are replayed, as the broker knows, and which somebody has marked as handled.

A mark is a record of a compacted topic, `dlq-marks.<group>`, so it survives what any record survives, with several
processes and nodes too. Its key says which dead letter it is about:

    key    TOPIC-ID/PARTITION/OFFSET    a topic that is made anew has another id
    value  {"at": ms since 1970, "note": "…"}, or null: the mark is taken off

Marks of dead letters that are gone are taken off by the next command that writes marks.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from halfmoon.cli import output
from halfmoon.cli.asking import ask
from halfmoon.cli.brokers import Brokers
from halfmoon.cli.connect import admin, consumer, offsets_of, producer
from halfmoon.cli.dlq_selection import Place, place_of, read
from halfmoon.cli.errors import CliError, describe_code
from halfmoon.cli.topic import TOPIC_ALREADY_EXISTS
from halfmoon.schema.group_topics import marks_topic
from halfmoon.services.keyindex.questions import Nacked

ACKNOWLEDGED_S = 30.0
COMPACTED = {"cleanup.policy": "compact"}


class Replays:
    """Which dead letters the broker would ignore if they were replayed again."""

    def __init__(self, brokers: Brokers, topics: Sequence[str]) -> None:
        self.known = True
        """The broker tells."""
        self._runs: dict[tuple[str, str, int], tuple[tuple[int, int], ...]] = {}
        try:
            found = ask(brokers, Nacked(tuple(topics))).nacked if topics else ()
        except CliError as error:
            output.note(f"the broker does not tell which dead letters are replayed: {error}")
            found = None
        self.known = found is not None
        for each in found or ():
            self._runs[each.group, each.topic, each.partition] = each.runs

    def has(self, group: str, place: Place) -> bool | None:
        """Whether a dead letter is replayed; None where nobody knows."""
        if not self.known:
            return None
        topic, partition, offset = place
        runs = self._runs.get((group, topic, partition), ())
        at = bisect_right(runs, offset, key=lambda run: run[0]) - 1
        return at >= 0 and offset < runs[at][0] + runs[at][1]

    def count(self, group: str, topic: str, bounds: Mapping[int, tuple[int, int]]) -> int | None:
        """How many of a topic's are, by partition from the first offset to the end."""
        if not self.known:
            return None
        return sum(
            max(0, min(end, first + count) - max(start, first))
            for partition, (start, end) in bounds.items()
            for first, count in self._runs.get((group, topic, partition), ())
        )


class Mark(NamedTuple):
    at_ms: int
    note: str


class Marks:
    """Which dead letters of these topics are handled."""

    def __init__(self, brokers: Brokers, topics: Iterable[str]) -> None:
        self._brokers = brokers
        self._marks: dict[Place, Mark] = {}
        self._stale: dict[str, list[bytes]] = {}
        """Topic of marks → keys of marks whose dead letters are of a topic that was deleted."""
        self._ids: dict[str, str] = {}
        names = sorted(set(topics))
        if not names:
            return
        of_marks = {marks_topic(name): name for name in names}
        with admin(brokers) as asked:
            described = {each["name"]: each for each in asked.describe_topics([*names, *of_marks])}
        self._ids = {name: str(described[name]["topic_id"]) for name in names}
        there = [name for name in of_marks if not described[name]["error_code"]]
        if not there:
            return
        found: dict[str, dict[bytes, bytes | None]] = {name: {} for name in there}
        with consumer(brokers) as client:
            for record in read(client, there):
                if record.key is not None:
                    found[record.topic][record.key] = record.value
        for name, marks in found.items():
            for key, value in marks.items():
                if value is not None:
                    self._take(of_marks[name], key, value)

    def _take(self, topic: str, key: bytes, value: bytes) -> None:
        """What is no mark, as any program can write one, is none."""
        try:
            topic_id, partition, offset = key.decode().split("/")
            said = json.loads(value)
            mark = Mark(int(said["at"]), str(said.get("note") or ""))
            place = topic, int(partition), int(offset)
        except (ValueError, KeyError, TypeError, AttributeError):
            return
        if topic_id == self._ids[topic]:
            self._marks[place] = mark
        else:
            self._stale.setdefault(marks_topic(topic), []).append(key)

    def of(self, place: Place) -> Mark | None:
        return self._marks.get(place)

    def within(self, topic: str, bounds: Mapping[int, tuple[int, int]]) -> list[Place]:
        """Those of a topic that are marked, by partition from the first offset to the end."""
        return [
            place
            for place in self._marks
            if place[0] == topic and place[1] in bounds and bounds[place[1]][0] <= place[2] < bounds[place[1]][1]
        ]

    def put_on(self, records: Iterable[Any], note: str) -> None:
        """Mark these dead letters; acknowledged when it returns. Raises CliError, KafkaError."""
        value = json.dumps({"at": time.time_ns() // 1_000_000, "note": note}, ensure_ascii=False).encode()
        self._write({place_of(record): value for record in records})

    def take_off(self, records: Iterable[Any]) -> None:
        """The same, the other way."""
        self._write({place_of(record): None for record in records})

    def sweep(self, topics: Iterable[str]) -> None:
        """Take off the marks of those that are gone. Raises CliError, KafkaError."""
        with admin(self._brokers) as client:
            gone = self._gone(client, set(topics))
        self._send(dict.fromkeys(gone))

    def _write(self, values: Mapping[Place, bytes | None]) -> None:
        if not values:
            return
        topics = {marks_topic(place[0]) for place in values}
        with admin(self._brokers) as client:
            for topic in sorted(topics):
                ensure_topic(client, topic, COMPACTED)
            gone = self._gone(client, {place[0] for place in values})
        self._send(dict.fromkeys(gone) | dict(values), topics)

    def _send(self, values: Mapping[Place, bytes | None], topics: Iterable[str] = ()) -> None:
        """`topics`: of marks, where those of deleted topics go too."""
        stale = [(topic, key) for topic in sorted(topics) for key in self._stale.pop(topic, ())]
        if not values and not stale:
            return
        with producer(self._brokers, acks="all") as client:
            waiting = [
                client.send(marks_topic(place[0]), key=self._key(place), value=value) for place, value in values.items()
            ]
            waiting += [client.send(topic, key=key, value=None) for topic, key in stale]
            for sent in waiting:
                sent.get(ACKNOWLEDGED_S)

    def _key(self, place: Place) -> bytes:
        topic, partition, offset = place
        return f"{self._ids[topic]}/{partition}/{offset}".encode()

    def _gone(self, client: Any, topics: set[str]) -> list[Place]:
        """Marks of dead letters that retention, or a purge, has deleted."""
        from kafka import TopicPartition

        from halfmoon.cli.admin_client import EARLIEST

        queues = sorted({TopicPartition(*place[:2]) for place in self._marks if place[0] in topics})
        if not queues:
            return []
        (starts,) = offsets_of(client, queues, EARLIEST)
        return [place for place in self._marks if place[2] < starts.get(TopicPartition(*place[:2]), 0)]


def ensure_topic(client: Any, topic: str, configs: Mapping[str, str] | None = None) -> None:
    """Have the topic made, of one partition, unless it is there. Raises CliError."""
    (entry,) = client.create_topics({topic: {"num_partitions": 1, "configs": dict(configs or {})}})
    if entry.error_code not in (0, TOPIC_ALREADY_EXISTS):
        raise CliError(f"{topic}: {describe_code(entry.error_code, entry.error_message)}")
    client.wait_for_topics([topic])
