"""The well-behaved client that must not notice anything.

It produces numbered records, reads each back by a fetch that was parked before, asks for metadata and offsets, and
compares every answer with what it must be. It runs in a thread beside the attacks.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from halfmoon.adapters.kafka.protocol import CreateTopicsRequest, FetchRequest, ListOffsetsRequest, ProduceRequest
from halfmoon.core.records.batches import build_batch, iter_records
from tests.fuzz.peer import Peer

TOPIC = "canary"
DEADLINE_S = 20.0
"""An answer that takes longer does not come."""
DISTURBED_S = 2.0
"""What nobody waits for, whatever others do: so much of the broker's processor time. What the machine's other programs
take of it does not count: they would make it a test of the machine."""

VALUE_BYTES = 20_000
"""Larger than what is received at once when memory is short, so that a request of its own needs a buffer."""


class Canary:
    """Start it before the attacks; `check` after each; `stop` at the end."""

    def __init__(self, address: tuple[str, int], cpu_s: Callable[[], float]) -> None:
        """`cpu_s`: the processor time that the broker has used so far, in seconds."""
        self._address = address
        self._cpu_s = cpu_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="canary", daemon=True)
        self._error = ""
        self._next_offset = 0
        self.rounds = 0
        self.worst_s = 0.0
        """The most that the broker did between a question and its answer: seconds of its processor time."""

    def start(self) -> None:
        self._create()
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(4 * DEADLINE_S)
        assert not self._thread.is_alive(), "the canary hangs"
        self.check()

    def check(self) -> None:
        """Raises AssertionError if anything was not as it must be."""
        assert not self._error, f"the canary after {self.rounds} rounds: {self._error}"
        assert self.worst_s < DISTURBED_S, f"the canary waited while the broker worked {self.worst_s:.2f} s"

    def wait_for_rounds(self, count: int) -> None:
        """Let it make `count` more rounds, so that whatever happened just now has had the time to disturb it."""
        goal = self.rounds + count
        while self.rounds < goal:
            self.check()
            time.sleep(0.001)

    def _create(self) -> None:
        with self._connect() as peer:
            creatable = CreateTopicsRequest.CreatableTopic
            configs = [creatable.CreatableTopicConfig(name="retention.bytes", value="1000000")]
            topic = creatable(name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=configs)
            peer.ask(19, 5, topics=[topic], timeout_ms=1000, validate_only=False)

    def _connect(self) -> Any:
        return Peer(self._address)

    def _run(self) -> None:
        try:
            with self._connect() as writer, self._connect() as reader:
                while not self._over.is_set():
                    self._round(writer, reader)
                    self.rounds += 1
                    time.sleep(0.002)  # it is a client, not a load test
        except BaseException:
            self._error = traceback.format_exc()

    def _round(self, writer: Any, reader: Any) -> None:
        offset = self._next_offset
        value = b"%020d" % offset + bytes(VALUE_BYTES)
        reader.send(reader.request(1, 11, **_fetch(offset)))
        produced = self._timed(writer, 0, 7, **_produce(value))
        (part,) = produced.responses[0].partition_responses
        assert (part.error_code, part.base_offset) == (0, offset), part
        begun = self._cpu_s()
        (fetched,) = reader.answer(1, 11, DEADLINE_S).responses[0].partitions
        self._took(begun)
        if not fetched.records:  # the wait was over before the record came, because all of this machine was busy
            (fetched,) = self._timed(reader, 1, 11, **_fetch(offset)).responses[0].partitions
        assert fetched.error_code == 0, fetched
        (record,) = iter_records(bytes(fetched.records))
        assert record.value == value, "another record than was produced"
        if offset % 8 == 0:
            metadata = self._timed(writer, 3, 7, topics=None, allow_auto_topic_creation=False)
            assert [topic.error_code for topic in metadata.topics if topic.name == TOPIC] == [0]
            part_wanted = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(partition_index=0, timestamp=-1)
            topics = [ListOffsetsRequest.ListOffsetsTopic(name=TOPIC, partitions=[part_wanted])]
            listed = self._timed(writer, 2, 2, replica_id=-1, isolation_level=0, topics=topics)
            assert listed.topics[0].partitions[0].offset == offset + 1, listed
        self._next_offset += 1

    def _timed(self, peer: Peer, key: int, version: int, **fields: object) -> Any:
        begun = self._cpu_s()
        answer = peer.ask(key, version, DEADLINE_S, **fields)
        self._took(begun)
        return answer

    def _took(self, begun: float) -> None:
        self.worst_s = max(self.worst_s, self._cpu_s() - begun)


def _produce(value: bytes) -> dict[str, object]:
    topic = ProduceRequest.TopicProduceData
    data = topic.PartitionProduceData(index=0, records=build_batch([(None, value, 1_700_000_000_000, ())]))
    return {
        "transactional_id": None, "acks": -1, "timeout_ms": 1000,
        "topic_data": [topic(name=TOPIC, partition_data=[data])],
    }  # fmt: skip


def _fetch(offset: int) -> dict[str, object]:
    topic = FetchRequest.FetchTopic
    part = topic.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return {
        "replica_id": -1, "max_wait_ms": 4000, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0,
        "session_id": 0, "session_epoch": -1, "topics": [topic(topic=TOPIC, partitions=[part])],
    }  # fmt: skip
