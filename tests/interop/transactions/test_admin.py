"""What Kafka's Java admin client says of transactions and does to them, beside its transactional producer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from tests.clients.kafka_jvm.jvm import CLIENTS, KafkaJvm, causes, said
from tests.clients.polling import until
from tests.interop.transactions.java import JavaKit

MakeTopic = Callable[..., str]

pytestmark = [pytest.mark.interop, pytest.mark.timeout(90)]


@pytest.fixture
def java(bootstrap_servers: str, jvm: KafkaJvm) -> Iterator[JavaKit]:
    made = JavaKit(bootstrap_servers, jvm)
    yield made
    made.close()


class Administration:
    def __init__(self, kit: JavaKit) -> None:
        self.jvm = kit.jvm
        self.client = kit.jvm.admin(kit.servers)

    def transaction(self, name: str) -> Any:
        """A TransactionDescription."""
        return self.client.describeTransactions(self.jvm.list([name])).description(name).get()

    def states(self) -> dict[str, str]:
        """What listTransactions lists: id → state."""
        return {each.transactionalId(): each.state().toString() for each in self.client.listTransactions().all().get()}

    def producers(self, topic: str, partition: int = 0) -> list[Any]:
        """ProducerState objects of a partition."""
        where = self.jvm.partition(topic, partition)
        result = self.client.describeProducers(self.jvm.list([where]))
        return list(result.partitionResult(where).get().activeProducers())


@pytest.fixture
def administration(java: JavaKit) -> Iterator[Administration]:
    made = Administration(java)
    yield made
    made.client.close()


def test_an_open_transaction_described(
    java: JavaKit, administration: Administration, make_topic: MakeTopic, name: str
) -> None:
    one, other = make_topic(2), make_topic()
    producer = java.producer(name, timeout_ms=45_000)
    producer.begin()
    producer.write(one, ["a"], 1)
    producer.write(other, ["b"])
    found = administration.transaction(name)
    assert found.state().toString() == "Ongoing"
    assert found.transactionTimeoutMs() == 45_000
    assert found.transactionStartTimeMs().isPresent()
    assert {(each.topic(), each.partition()) for each in found.topicPartitions()} == {(one, 1), (other, 0)}
    assert administration.states()[name] == "Ongoing"

    (active,) = administration.producers(one, 1)
    assert (active.producerId(), active.producerEpoch()) == (found.producerId(), found.producerEpoch())
    assert active.currentTransactionStartOffset().getAsLong() == 0
    assert active.lastSequence() == 0
    assert active.lastTimestamp() > 0
    assert administration.producers(one, 0) == []

    producer.commit()
    until(lambda: administration.states()[name] == "CompleteCommit")
    (ended,) = administration.producers(one, 1)
    assert not ended.currentTransactionStartOffset().isPresent()
    assert list(administration.transaction(name).topicPartitions()) == []


def test_the_epoch_rises_with_each_end(java: JavaKit, administration: Administration, topic: str, name: str) -> None:
    """KIP-890: what a transaction left behind on its way cannot come into the next one."""
    producer = java.producer(name)
    seen = []
    for commit in (True, False, True):
        producer.begin()
        producer.write(topic, ["a"])
        (active,) = administration.producers(topic)
        found = administration.transaction(name)
        assert (active.producerId(), active.producerEpoch()) == (found.producerId(), found.producerEpoch())
        seen.append((found.producerId(), found.producerEpoch()))
        (producer.commit if commit else producer.abort)()
    (producer_id, first), *later = seen
    assert later == [(producer_id, first + 1), (producer_id, first + 2)]


def test_what_is_listed_can_be_narrowed_down(
    java: JavaKit, administration: Administration, topic: str, name: str
) -> None:
    opened, ended = java.producer(f"{name}-open"), java.producer(f"{name}-ended")
    ended.transaction(topic, ["a"])
    opened.begin()
    opened.write(topic, ["b"])
    jvm = java.jvm
    states = jvm.named(f"{CLIENTS}.admin.TransactionState")

    def listed(options: Any) -> set[str]:
        found = administration.client.listTransactions(options).all().get()
        return {each.transactionalId() for each in found if each.transactionalId().startswith(name)}

    def options() -> Any:
        return jvm.named(f"{CLIENTS}.admin.ListTransactionsOptions")()

    assert listed(options()) == {f"{name}-open", f"{name}-ended"}
    assert listed(options().filterStates(jvm.list([states.ONGOING]))) == {f"{name}-open"}
    assert listed(options().filterOnDuration(60_000)) == set()
    producer_id = administration.transaction(f"{name}-open").producerId()
    assert listed(options().filterProducerIds(jvm.longs(producer_id))) == {f"{name}-open"}
    assert listed(options().filterOnTransactionalIdPattern(f"{name}-e.*")) == {f"{name}-ended"}
    opened.abort()


def test_an_id_that_nobody_has(administration: Administration, name: str) -> None:
    with pytest.raises(Py4JJavaError) as caught:
        administration.transaction(name)
    assert "TransactionalIdNotFoundException" in causes(caught.value)


def test_fencing_producers(java: JavaKit, administration: Administration, topic: str, name: str) -> None:
    """What it had open is aborted; it can do nothing more."""
    producer = java.producer(name)
    producer.begin()
    producer.write(topic, ["lost"])
    before = administration.transaction(name)
    result = administration.client.fenceProducers(java.jvm.list([name]))
    result.all().get()
    fenced_id, fenced_epoch = result.producerId(name).get(), result.epochId(name).get()
    assert fenced_id == before.producerId()
    assert fenced_epoch > before.producerEpoch()
    java.fenced(producer.commit)
    until(lambda: administration.states()[name] in ("CompleteAbort", "Empty"))
    java.producer(name).transaction(topic, ["kept"])
    java.read(topic).gets(["kept"])


def test_aborting_a_transaction_that_hangs(
    java: JavaKit, administration: Administration, topic: str, name: str
) -> None:
    """By its partition: readers go on, and the records are not theirs to see."""
    producer, other = java.producer(name), java.producer(f"{name}-other")
    producer.begin()
    producer.write(topic, ["lost"])
    other.transaction(topic, ["behind"])
    reading = java.read(topic)
    reading.is_quiet()
    active = next(each for each in administration.producers(topic) if each.currentTransactionStartOffset().isPresent())
    epoch = active.coordinatorEpoch()
    spec = java.jvm.named(f"{CLIENTS}.admin.AbortTransactionSpec")(
        java.jvm.partition(topic, 0),
        active.producerId(),
        active.producerEpoch(),
        epoch.getAsInt() if epoch.isPresent() else 0,
    )
    administration.client.abortTransaction(spec).all().get()
    reading.gets(["behind"])


def test_a_transaction_cannot_be_longer_than_the_broker_allows(java: JavaKit, name: str) -> None:
    """transaction.max.timeout.ms, 15 minutes by default."""
    with pytest.raises(Py4JJavaError) as caught:
        java.producer(name, timeout_ms=24 * 3_600_000)
    assert "transaction timeout is larger than the maximum" in said(caught.value)
