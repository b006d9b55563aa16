"""Kafka's Java client."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError

from tests.clients.kafka_jvm.jvm import CLIENTS, KafkaJvm, causes
from tests.interop.transactions.kit import DEADLINE_S, POLL_S, Kit, Member, Producer, Taken

_FENCED = {"ProducerFencedException", "InvalidProducerEpochException"}


class JavaProducer(Producer):
    def __init__(self, jvm: KafkaJvm, servers: str, transactional_id: str, timeout_ms: int) -> None:
        self._jvm = jvm
        self.client = jvm.producer(
            servers, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, linger_ms=0
        )
        self.client.initTransactions()
        self._sent: list[Any] = []

    def begin(self) -> None:
        self.client.beginTransaction()

    def send(self, topic: str, value: str, partition: int = 0) -> None:
        self._sent.append(self.client.send(self._jvm.record(topic, value, partition)))

    def flush(self) -> None:
        self.client.flush()
        sent, self._sent = self._sent, []
        for future in sent:
            future.get()

    def commit(self) -> None:
        self.client.commitTransaction()

    def abort(self) -> None:
        self._sent.clear()
        self.client.abortTransaction()

    def send_offsets(self, member: Member, topic: str, offsets: dict[int, int]) -> None:
        assert isinstance(member, JavaMember)
        made = {
            self._jvm.partition(topic, number): self._jvm.named(f"{CLIENTS}.consumer.OffsetAndMetadata")(offset)
            for number, offset in offsets.items()
        }
        self.client.sendOffsetsToTransaction(self._jvm.map(made), member.client.groupMetadata())

    def close(self) -> None:
        self.client.close(self._jvm.ms(int(DEADLINE_S * 1e3)))


class JavaMember(Member):
    def __init__(self, jvm: KafkaJvm, client: Any) -> None:
        self._jvm = jvm
        self.client = client

    def poll(self) -> list[Taken]:
        return [
            Taken(record.partition(), record.offset(), record.value())
            for record in self._jvm.poll(self.client, int(POLL_S * 1e3))
        ]

    def rewind(self, topic: str) -> None:
        assigned = self.client.assignment()
        committed = self.client.committed(assigned)
        for partition in assigned:
            found = committed.get(partition)
            if found is None:
                self.client.seekToBeginning(self._jvm.list([partition]))
            else:
                self.client.seek(partition, found.offset())

    def close(self) -> None:
        self.client.close()


class JavaKit(Kit):
    name = "java"

    def __init__(self, servers: str, jvm: KafkaJvm) -> None:
        super().__init__(servers)
        self.jvm = jvm

    def new_producer(self, transactional_id: str, timeout_ms: int) -> JavaProducer:
        return JavaProducer(self.jvm, self.servers, transactional_id, timeout_ms)

    def new_member(self, group: str, topic: str) -> JavaMember:
        client = self.jvm.consumer(
            self.servers, group_id=group, enable_auto_commit=False, isolation_level="read_committed"
        )
        client.subscribe(self.jvm.list([topic]))
        return JavaMember(self.jvm, client)

    def new_reader(self, topic: str, isolation: str, partitions: int) -> JavaMember:
        client = self.jvm.consumer(self.servers, enable_auto_commit=False, isolation_level=isolation)
        client.assign(self.jvm.list(self.jvm.partition(topic, number) for number in range(partitions)))
        return JavaMember(self.jvm, client)

    def is_fenced(self, error: Exception) -> bool:
        return isinstance(error, Py4JJavaError) and bool(_FENCED & set(causes(error)))
