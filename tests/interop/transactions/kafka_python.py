"""kafka-python."""

from __future__ import annotations

from typing import Any

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import InvalidProducerEpochError, KafkaError, ProducerFencedError

from tests.interop.transactions.kit import DEADLINE_S, POLL_S, Kit, Member, Producer, Taken


class KafkaPythonProducer(Producer):
    def __init__(self, servers: str, transactional_id: str, timeout_ms: int) -> None:
        self.client = KafkaProducer(
            bootstrap_servers=servers, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, linger_ms=0
        )
        self.client.init_transactions()
        self._sent: list[Any] = []

    def begin(self) -> None:
        self.client.begin_transaction()

    def send(self, topic: str, value: str, partition: int = 0) -> None:
        self._sent.append(self.client.send(topic, value.encode(), partition=partition))

    def flush(self) -> None:
        self.client.flush(DEADLINE_S)
        sent, self._sent = self._sent, []
        for future in sent:
            future.get(DEADLINE_S)

    def commit(self) -> None:
        self.client.commit_transaction()

    def abort(self) -> None:
        self._sent.clear()
        self.client.abort_transaction()

    def send_offsets(self, member: Member, topic: str, offsets: dict[int, int]) -> None:
        assert isinstance(member, KafkaPythonMember)
        made = {TopicPartition(topic, number): OffsetAndMetadata(offset, "", -1) for number, offset in offsets.items()}
        self.client.send_offsets_to_transaction(made, member.client.group_metadata())

    def close(self) -> None:
        self.client.close(5)


class KafkaPythonMember(Member):
    def __init__(self, client: KafkaConsumer) -> None:
        self.client = client

    def poll(self) -> list[Taken]:
        found = self.client.poll(int(POLL_S * 1e3))
        return [
            Taken(record.partition, record.offset, record.value.decode())
            for records in found.values()
            for record in records
        ]

    def rewind(self, topic: str) -> None:
        for partition in self.client.assignment():
            offset = self.client.committed(partition)
            if offset is None:
                self.client.seek_to_beginning(partition)
            else:
                self.client.seek(partition, offset)

    def close(self) -> None:
        self.client.close()


class KafkaPythonKit(Kit):
    name = "kafka-python"

    def new_producer(self, transactional_id: str, timeout_ms: int) -> KafkaPythonProducer:
        return KafkaPythonProducer(self.servers, transactional_id, timeout_ms)

    def new_member(self, group: str, topic: str) -> KafkaPythonMember:
        return KafkaPythonMember(self._consumer(topic, group_id=group, isolation_level="read_committed"))

    def new_reader(self, topic: str, isolation: str, partitions: int) -> KafkaPythonMember:
        client = self._consumer(group_id=None, isolation_level=isolation)
        client.assign([TopicPartition(topic, number) for number in range(partitions)])
        return KafkaPythonMember(client)

    def _consumer(self, *topics: str, **options: object) -> KafkaConsumer:
        return KafkaConsumer(
            *topics, bootstrap_servers=self.servers, enable_auto_commit=False, auto_offset_reset="earliest", **options
        )

    def is_fenced(self, error: Exception) -> bool:
        # Where its thread has found out before the call, all there is of the reason is the text.
        fenced = (ProducerFencedError, InvalidProducerEpochError)
        named = any(kind.__name__ in str(error) for kind in fenced)
        return isinstance(error, fenced) or (isinstance(error, KafkaError) and named)
