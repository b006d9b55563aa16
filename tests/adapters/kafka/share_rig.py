"""Members of share groups on connections of their own, and a log that has to be read from the disk."""

from __future__ import annotations

import uuid
from typing import Any

from kafka_rig import Rig, RigClient

from halfmoon.adapters.kafka.protocol import ShareAcknowledgeRequest, ShareFetchRequest
from halfmoon.services.share.delivery_state import ACQUIRED
from tests.core.bench import batch
from tests.services.transactions.transaction_bench import TxnClient

FETCH, ACKNOWLEDGE = 78, 79
ACCEPT, RELEASE, RENEW = 1, 2, 4


class Member:
    """A member of group g on its own connection, which fetches topic t."""

    def __init__(self, rig: Rig, name: str, group: str = "g") -> None:
        self.rig, self.name, self.group = rig, name, group
        self.client: RigClient = rig.client()
        self.epoch = 0
        topic = rig.broker.topic("t")
        assert topic is not None
        self.topic_id = uuid.UUID(bytes=topic.id)

    def send(self, *acks: tuple[int, int, int], index: int = 0, named: bool = True, **fields: Any) -> None:
        """Ask without reading the answer."""
        piece = ShareFetchRequest.FetchTopic.FetchPartition
        batches = [
            piece.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
            for first, last, kind in acks
        ]
        part = piece(partition_index=index, acknowledgement_batches=batches)
        topics = [ShareFetchRequest.FetchTopic(topic_id=self.topic_id, partitions=[part])] if named or acks else []
        asked = {
            "group_id": self.group, "member_id": self.name, "share_session_epoch": self.epoch, "max_wait_ms": 500,
            "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 100, "batch_size": 100, "share_acquire_mode": 0,
            "is_renew_ack": False, "topics": topics, "forgotten_topics_data": [],
        }  # fmt: skip
        self.client.feed(self.client.encode(FETCH, 2, **(asked | fields)))
        self.epoch += 1
        self.rig.turn()

    def answer(self) -> Any:
        """What has come; None if nothing has."""
        answers = self.client.answers()
        return answers[0] if answers else None

    def fetch(self, *acks: tuple[int, int, int], **fields: Any) -> list[tuple[int, int, int]]:
        self.send(*acks, **({"max_wait_ms": 0} | fields))
        return acquired(self.answer())

    def send_acknowledgement(self, first: int, last: int, kind: int, epoch: int | None = None) -> None:
        """Ask without reading the answer."""
        topic = ShareAcknowledgeRequest.AcknowledgeTopic
        part = topic.AcknowledgePartition
        batches = [part.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])]
        topics = [topic(topic_id=self.topic_id, partitions=[part(partition_index=0, acknowledgement_batches=batches)])]
        asked = self.client.encode(
            ACKNOWLEDGE, 2, group_id=self.group, member_id=self.name, is_renew_ack=kind == RENEW, topics=topics,
            share_session_epoch=self.epoch if epoch is None else epoch,
        )  # fmt: skip
        self.client.feed(asked)
        self.epoch += 1
        self.rig.turn()

    def acknowledge(self, first: int, last: int, kind: int, epoch: int | None = None) -> Any:
        self.send_acknowledgement(first, last, kind, epoch)
        (answer,) = self.client.answers()
        return answer


def acquired(answer: Any) -> list[tuple[int, int, int]]:
    assert answer.error_code == 0, answer
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in answer.responses
        for part in topic.partitions
        for each in part.acquired_records
    ]


def produce(rig: Rig, count: int, index: int = 0) -> None:
    topic = rig.broker.topic("t")
    assert topic is not None
    rig.broker.append(topic.partitions[index], batch(*[b"v"] * count), 1000)
    rig.turn()


def cold_rig(partitions: int = 1, **settings: Any) -> Rig:
    """What stands in the log when `go_cold` is called has to be read in a thread."""
    made = Rig(**{"groups__share__auto_offset_reset": "earliest", "log__hot_bytes": 0} | settings)
    made.broker.create_topic("t", partitions)
    return made


def go_cold(rig: Rig) -> None:
    rig.turn()
    rig.broker.housekeeping.plan()
    rig.fs.cold = True


def read_disk(rig: Rig, times: int = 1) -> None:
    for _ in range(times):
        rig.loop.run_threads()
        rig.turn()


def transaction(rig: Rig, *values: bytes, commit: bool = True) -> None:
    """As many offsets as values, and one for the marker."""
    client = TxnClient(rig.broker, "tx")
    client.init()
    client.send("t", *values)
    client.end(commit=commit)
    rig.turn()


def offsets(found: list[tuple[int, int, int]]) -> list[int]:
    return [offset for first, last, _ in found for offset in range(first, last + 1)]


def locked(rig: Rig, member: str | None = None) -> list[int]:
    """The offsets that somebody has acquired, or this member."""
    return [
        offset
        for part in rig.broker.shares.delivery.parts.of_group("g")
        for run in part.runs
        if run.state == ACQUIRED and member in (None, run.member)
        for offset in range(run.first, run.end)
    ]
