"""librdkafka, through confluent-kafka."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Producer as Client

from tests.interop.transactions.kit import DEADLINE_S, POLL_S, Kit, Member, Producer, Taken

_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}


class ConfluentProducer(Producer):
    def __init__(self, servers: str, transactional_id: str, timeout_ms: int) -> None:
        self.client = Client({
            "bootstrap.servers": servers, "transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms,
            "message.timeout.ms": timeout_ms, "linger.ms": 0, "log_level": 0,
        })  # fmt: skip
        self.client.init_transactions(DEADLINE_S)
        self._errors: list[KafkaError] = []

    def begin(self) -> None:
        self.client.begin_transaction()

    def send(self, topic: str, value: str, partition: int = 0) -> None:
        self.client.produce(topic, value.encode(), partition=partition, on_delivery=self._delivered)

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self._errors.append(error)

    def flush(self) -> None:
        assert self.client.flush(DEADLINE_S) == 0
        if self._errors:
            errors, self._errors = self._errors, []
            raise KafkaException(errors[0])

    def commit(self) -> None:
        self.client.commit_transaction(DEADLINE_S)

    def abort(self) -> None:
        self.client.abort_transaction(DEADLINE_S)
        self._errors.clear()

    def send_offsets(self, member: Member, topic: str, offsets: dict[int, int]) -> None:
        assert isinstance(member, ConfluentMember)
        made = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]
        self.client.send_offsets_to_transaction(made, member.client.consumer_group_metadata(), DEADLINE_S)

    def close(self) -> None:
        self.client.purge()
        self.client.flush(1)


class ConfluentMember(Member):
    def __init__(self, servers: str, group: str, isolation: str) -> None:
        self.client = Consumer({
            "bootstrap.servers": servers, "group.id": group, "isolation.level": isolation,
            "enable.auto.commit": False, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 100, "log_level": 2,
        })  # fmt: skip

    def poll(self) -> list[Taken]:
        found = []
        for message in self.client.consume(500, POLL_S):
            if message.error() is not None:
                raise KafkaException(message.error())
            found.append(Taken(message.partition(), message.offset(), message.value().decode()))
        return found

    def rewind(self, topic: str) -> None:
        for partition in self.client.committed(self.client.assignment(), DEADLINE_S):
            offset = partition.offset if partition.offset >= 0 else OFFSET_BEGINNING
            self._seek(TopicPartition(topic, partition.partition, offset))

    def _seek(self, where: TopicPartition) -> None:
        end = time.monotonic() + DEADLINE_S
        while True:
            try:
                return self.client.seek(where)
            except KafkaException:  # It has not begun to fetch there yet.
                assert time.monotonic() < end
                time.sleep(0.05)

    def close(self) -> None:
        self.client.close()


class ConfluentKit(Kit):
    name = "confluent"

    def new_producer(self, transactional_id: str, timeout_ms: int) -> ConfluentProducer:
        return ConfluentProducer(self.servers, transactional_id, timeout_ms)

    def new_member(self, group: str, topic: str) -> ConfluentMember:
        member = ConfluentMember(self.servers, group, "read_committed")
        member.client.subscribe([topic])
        return member

    def new_reader(self, topic: str, isolation: str, partitions: int) -> ConfluentMember:
        reader = ConfluentMember(self.servers, f"{topic}-readers", isolation)
        reader.client.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
        return reader

    def is_fenced(self, error: Exception) -> bool:
        found: Any = error.args[0] if isinstance(error, KafkaException) else None
        return isinstance(found, KafkaError) and found.code() in _FENCED
