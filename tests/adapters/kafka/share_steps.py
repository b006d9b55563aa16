"""What is asked of share groups, step by step, of any broker: of a real Kafka when the golden bytes were recorded, of
Halfmoon in the tests.

    python -m tests.adapters.kafka.share_steps HOST:PORT        writes tests/golden/share_groups.json

The broker must let share group "golden" begin at the earliest record (a group configuration of Kafka's).
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from halfmoon.adapters.kafka.protocol import REQUESTS
from tests.kafka_messages import read_answer, request_bytes

GOLDEN = Path(__file__).parents[2] / "golden" / "share_groups.json"
GROUP, TOPIC = "golden", "golden-topic"
BATCHES, RECORDS = 6, 2
"""In the topic's one partition: so many batches, of so many records each."""
HEARTBEAT, DESCRIBE, FETCH, ACKNOWLEDGE, OFFSETS, ALTER, DELETE = 76, 77, 78, 79, 90, 91, 92
LIST_GROUPS, DELETE_GROUPS = 16, 42

Ask = Callable[..., Any]
"""(API key, version, fields) → the response."""


class Step(NamedTuple):
    name: str
    key: int
    version: int
    fields: dict[str, Any]


def steps(topic_id: uuid.UUID) -> Iterator[Step]:
    """The requests, in order. Members are m and n."""

    def beat(name: str, member: str, epoch: int, topics: list[str] | None = None) -> Step:
        fields = {
            "group_id": GROUP, "member_id": member, "member_epoch": epoch, "rack_id": None,
            "subscribed_topic_names": topics,
        }  # fmt: skip
        return Step(name, HEARTBEAT, 1, fields)

    def part(acks: list[tuple[int, int, list[int]]], key: int, index: int, topic: uuid.UUID) -> list[Any]:
        made = REQUESTS[key].FetchTopic if key == FETCH else REQUESTS[key].AcknowledgeTopic
        piece = made.FetchPartition if key == FETCH else made.AcknowledgePartition
        batches = [
            piece.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
            for first, last, types in acks
        ]
        return [made(topic_id=topic, partitions=[piece(partition_index=index, acknowledgement_batches=batches)])]

    def fetch(
        name: str, member: str, epoch: int, *, most: int = 100, named: bool = False, index: int = 0, mode: int = 0,
        acks: list[tuple[int, int, list[int]]] | None = None, renew: bool = False, version: int = 2,
        topic: uuid.UUID = topic_id,
    ) -> Step:  # fmt: skip
        fields: dict[str, Any] = {
            "group_id": GROUP, "member_id": member, "share_session_epoch": epoch, "max_wait_ms": 0 if renew else 100,
            "min_bytes": 0 if renew else 1, "max_bytes": 0 if renew else 1 << 20, "max_records": 0 if renew else most,
            "batch_size": 0 if renew else most, "forgotten_topics_data": [],
            "topics": part(acks or [], FETCH, index, topic) if named or acks else [],
        }  # fmt: skip
        if version == 2:
            fields |= {"share_acquire_mode": mode, "is_renew_ack": renew}
        return Step(name, FETCH, version, fields)

    def acknowledge(
        name: str, member: str, epoch: int, *acks: tuple[int, int, list[int]], renew: bool = False, version: int = 2
    ) -> Step:
        fields: dict[str, Any] = {
            "group_id": GROUP, "member_id": member, "share_session_epoch": epoch,
            "topics": part(list(acks), ACKNOWLEDGE, 0, topic_id) if acks else [],
        }  # fmt: skip
        if version == 2:
            fields |= {"is_renew_ack": renew}
        return Step(name, ACKNOWLEDGE, version, fields)

    def offsets(name: str, version: int, group: str = GROUP, *, all_topics: bool = False) -> Step:
        asked = REQUESTS[OFFSETS].DescribeShareGroupOffsetsRequestGroup
        topics = [asked.DescribeShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=[0])]
        return Step(name, OFFSETS, version, {"groups": [asked(group_id=group, topics=None if all_topics else topics)]})

    def alter(name: str, group: str, offset: int) -> Step:
        topic = REQUESTS[ALTER].AlterShareGroupOffsetsRequestTopic
        piece = topic.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=offset)
        return Step(name, ALTER, 0, {"group_id": group, "topics": [topic(topic_name=TOPIC, partitions=[piece])]})

    def delete(name: str, topic: str) -> Step:
        asked = REQUESTS[DELETE].DeleteShareGroupOffsetsRequestTopic(topic_name=topic)
        return Step(name, DELETE, 0, {"group_id": GROUP, "topics": [asked]})

    def describe(name: str, group: str) -> Step:
        return Step(name, DESCRIBE, 1, {"group_ids": [group], "include_authorized_operations": True})

    yield describe("describe a group that is not there", "nobody")
    yield offsets("offsets of a group that is not there", 1, "nobody")
    yield alter("alter a group that is not there", "nobody", 0)
    yield beat("heartbeat without a member id", "", 0, [TOPIC])
    yield beat("heartbeat of an epoch below -1", "m", -2)
    yield beat("join without topics", "m", 0)
    yield beat("join", "m", 0, [TOPIC])
    yield beat("heartbeat with an epoch ahead", "m", 99)
    yield beat("heartbeat of an unknown member", "x", 1)
    yield fetch("fetch without a session", "m", 3)
    yield acknowledge("acknowledge without a session", "m", 3, (0, 0, [1]))
    yield acknowledge("acknowledge with the first epoch", "m", 0, (0, 0, [1]))
    yield fetch("begin with acknowledgements", "m", 0, acks=[(0, 0, [1])])
    yield fetch("begin", "m", 0, most=3, named=True)
    yield fetch("three records and no more", "m", 1, most=3, mode=1)
    yield fetch("an epoch that was used", "m", 1)
    yield acknowledge("accept, release, reject", "m", 2, (0, 1, [1]), (2, 3, [2, 3]))
    yield acknowledge("acknowledge again", "m", 3, (2, 3, [1]))
    yield acknowledge("acknowledge what nobody has", "m", 4, (10, 10, [1]))
    yield acknowledge("acknowledge with too few types", "m", 5, (4, 6, [1, 1]))
    yield acknowledge("acknowledge with an unknown type", "m", 6, (4, 4, [9]))
    yield acknowledge("acknowledge backwards", "m", 7, (5, 4, [1]))
    yield acknowledge("acknowledge overlapping", "m", 8, (4, 5, [1]), (5, 6, [1]))
    yield acknowledge("renew without saying so", "m", 9, (4, 4, [4]))
    yield acknowledge("renew", "m", 10, (4, 6, [4]), renew=True)
    yield fetch("another member begins", "n", 0, most=1, named=True, version=1)
    yield acknowledge("acknowledge what another member has", "n", 1, (4, 4, [1]), version=1)
    yield fetch("renew by a fetch", "m", 11, acks=[(4, 4, [4])], renew=True)
    yield fetch("acknowledge and fetch", "m", 12, acks=[(4, 6, [1, 0, 2])])
    yield fetch("a partition that is not there", "m", 13, named=True, index=7)
    yield fetch("a topic that is not there", "n", 2, named=True, topic=uuid.UUID(int=77))
    yield offsets("offsets", 0)
    yield offsets("offsets and lag", 1)
    yield offsets("offsets of all topics", 1, all_topics=True)
    yield alter("alter a group with members", GROUP, 0)
    yield fetch("end with acknowledgements", "m", -1, acks=[(7, 7, [1])])
    yield fetch("after the end", "m", 14)
    yield acknowledge("end", "n", -1)
    yield beat("leave", "m", -1)
    yield beat("leave again", "m", -1)
    yield describe("describe", GROUP)
    yield alter("alter", GROUP, 4)
    yield offsets("offsets after that", 1)
    yield delete("delete offsets", TOPIC)
    yield delete("delete offsets of a topic that is not there", "nothing")
    yield Step("list groups", LIST_GROUPS, 5, {"states_filter": [], "types_filter": ["share"]})
    yield Step("delete the group", DELETE_GROUPS, 2, {"groups_names": [GROUP]})


class Wire:
    """A connection that keeps what it sends and gets."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self.sent = self.got = b""

    def ask(self, key: int, version: int, **fields: Any) -> Any:
        self.sent = request_bytes(key, version, 1, "golden", **fields)[4:]
        self._socket.sendall(struct.pack(">i", len(self.sent)) + self.sent)
        (size,) = struct.unpack(">i", self._read(4))
        self.got = self._read(size)
        return read_answer(key, version, self.got)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += self._socket.recv(size - len(data))
        return data


def record(address: str) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(20)
    time.sleep(2)
    for number in range(BATCHES):
        producer = Producer({"bootstrap.servers": address, "linger.ms": 50})
        for at in range(RECORDS):
            producer.produce(TOPIC, f"{number}-{at}".encode())
        producer.flush()
    topic_id = uuid.UUID(int=0)
    wire = Wire(address)
    found = wire.ask(3, 12, topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False)
    topic_id = next(topic.topic_id for topic in found.topics if topic.name == TOPIC)
    rows = []
    for step in steps(topic_id):
        wire.ask(step.key, step.version, **step.fields)
        rows.append([step.name, step.key, step.version, wire.sent.hex(), wire.got.hex()])
        if step.name == "join":  # Kafka makes a share group's state ready behind the first heartbeats
            epoch = read_answer(HEARTBEAT, 1, wire.got).member_epoch
            for _ in range(50):
                answer = wire.ask(
                    HEARTBEAT, 1, group_id=GROUP, member_id="m", member_epoch=epoch, rack_id=None,
                    subscribed_topic_names=[TOPIC],
                )  # fmt: skip
                epoch = answer.member_epoch
                if answer.assignment is not None and answer.assignment.topic_partitions:
                    rows.append(["the assignment", HEARTBEAT, 1, wire.sent.hex(), wire.got.hex()])
                    break
                time.sleep(0.2)
            time.sleep(1)
    GOLDEN.write_text(json.dumps({"topic_id": str(topic_id), "steps": rows}, indent=0) + "\n")


if __name__ == "__main__":
    record(sys.argv[1])
