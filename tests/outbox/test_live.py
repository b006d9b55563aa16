"""Outbox and inbox with each client against a running broker; the database is SQLite."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer

import halfmoon.testing
from halfmoon.client import ConsumeFrom, Message, PushConsumer, Status
from halfmoon.client import Producer as MessageProducer
from halfmoon.client.aio import PushConsumer as AwaitedPushConsumer
from halfmoon.kafka import ConsumerLoop, Nack, NotStoredError, TransactionalOutbox, attempts
from halfmoon.outbox import State
from halfmoon.outbox.rocketmq import MOST_MESSAGES, NAME, OutboxProducer

sqlalchemy = pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed: pip install 'halfmoon[outbox]'")

from halfmoon.outbox.sqlalchemy import Inbox, Outbox  # noqa: E402

SETTINGS = {
    "listeners": {"rocketmq": {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0"}},
    "plugins": {
        "transaction": {"timeout": "300ms", "check_interval": "300ms", "check_max": 100},
        "delay": {"levels": "10ms 10ms 10ms 10ms"},
    },
}
WAIT_S = 30
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[halfmoon.testing.Broker]:
    with halfmoon.testing.Broker(config=SETTINGS) as running:
        yield running


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Any]:
    made = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'shop.sqlite'}")
    with made.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE orders (number INTEGER PRIMARY KEY)"))
    yield made
    made.dispose()


@pytest.fixture
def names() -> tuple[str, str]:
    """A topic and a group that no other test has."""
    number = next(_numbers)
    return f"orders-{number}", f"shop-{number}"


def place(tx: Any, number: int) -> None:
    tx.session.execute(sqlalchemy.text(f"INSERT INTO orders VALUES ({number})"))


def numbers(engine: Any) -> list[int]:
    with engine.connect() as connection:
        return [number for (number,) in connection.execute(sqlalchemy.text("SELECT number FROM orders ORDER BY 1"))]


def values(broker: halfmoon.testing.Broker, topic: str, count: int) -> list[bytes]:
    """So many, and there are no more."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "look"})
    partitions = consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    found = [message.value() for message in consumer.consume(count, timeout=WAIT_S)]
    assert [message.value() for message in consumer.consume(1, timeout=0.5)] == []
    consumer.close()
    return found


@pytest.fixture(params=["confluent-kafka", "kafka-python"])
def producer(request: pytest.FixtureRequest, broker: halfmoon.testing.Broker) -> Iterator[Any]:
    if request.param == "confluent-kafka":
        yield Producer({"bootstrap.servers": broker.bootstrap_servers})
    else:
        # With idempotence, its default, it refuses everything itself once a record was refused.
        made = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, enable_idempotence=False)
        yield made
        made.close()


def test_messages_are_delivered_with_the_transaction(
    broker: halfmoon.testing.Broker, engine: Any, names: tuple[str, str], producer: Any
) -> None:
    topic, group = names
    outbox = Outbox(group, producer, engine)
    outbox.create_table()
    with outbox.transaction() as tx:
        place(tx, 1)
        tx.send(topic, b"1", b"key", [("mine", b"x")])
        tx.send(topic, b"1 again")
    with pytest.raises(sqlalchemy.exc.IntegrityError), outbox.transaction() as tx:
        tx.send(topic, b"never")
        place(tx, 1)
    # kafka-python looks at the name itself.
    with pytest.raises((NotStoredError, ValueError), match=r"(?i)topic"), outbox.transaction() as tx:
        place(tx, 2)
        tx.send(topic, b"never")
        tx.send("no topic/", b"refused")
    assert numbers(engine) == [1]
    assert sorted(values(broker, topic, 2)) == [b"1", b"1 again"]


@pytest.mark.parametrize("kind", ["confluent-kafka", "kafka-python"])
def test_check_backs_are_answered_by_the_table(
    broker: halfmoon.testing.Broker, engine: Any, names: tuple[str, str], kind: str
) -> None:
    topic, group = names
    servers = broker.bootstrap_servers
    half = TransactionalOutbox(group, Producer({"bootstrap.servers": servers}))
    outbox = Outbox(group, Producer({"bootstrap.servers": servers}), engine)
    outbox.create_table()
    told: list[tuple[str, State | None]] = []
    answer = outbox.answer

    def answered(check: Any) -> State | None:
        state = answer(check)
        told.append((half.transaction_of(check), state))
        if len(told) >= 4:
            loop.stop()
        return state

    outbox.answer = answered  # type: ignore[method-assign]
    # As if the program had died after the commit: the half messages and the row are there, and the end is not.
    outbox._channel.end = lambda name, state: True  # type: ignore[method-assign]
    with outbox._database.local(None) as local:
        local.insert(group, "paid", outbox._now(), 60)
        local.commit()
    for name in ("paid#0", "paid#1", "lost#0"):
        half.prepare(topic, name.encode(), transaction=name)[1].result(WAIT_S)
    half.prepare(topic, b"another program's", transaction="by hand")[1].result(WAIT_S)
    outbox = Outbox(group, Producer({"bootstrap.servers": servers}), engine)
    answer = outbox.answer
    outbox.answer = answered  # type: ignore[method-assign]
    if kind == "confluent-kafka":
        consumer: Any = Consumer(
            {
                "bootstrap.servers": servers, "group.id": f"{group}-checks", "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )  # fmt: skip
    else:
        consumer = KafkaConsumer(
            bootstrap_servers=servers, group_id=f"{group}-checks", auto_offset_reset="earliest",
            enable_auto_commit=False,
        )  # fmt: skip
    loop = outbox.check_back_loop(consumer)
    loop.run()
    expected = {
        "paid#0": State.COMMITTED, "paid#1": State.COMMITTED, "lost#0": State.ABANDONED, "by hand": None,
    }  # fmt: skip
    assert dict(told) == expected
    assert sorted(values(broker, topic, 2)) == [b"paid#0", b"paid#1"]


def test_with_the_inbox_and_retries_each_message_is_handled_once(
    broker: halfmoon.testing.Broker, engine: Any, names: tuple[str, str]
) -> None:
    """The first delivery of each fails after its work is written; and some come twice."""
    topic, group = names
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    inbox = Inbox(group, engine)
    inbox.create_table()
    for number in range(6):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(WAIT_S) == 0

    def pay(session: Any, message: Any) -> None:
        session.execute(sqlalchemy.text(f"INSERT INTO orders VALUES ({message.value().decode()})"))
        if attempts(message) == 0 and int(message.value()) % 2:
            raise RuntimeError("not now")

    handle_once = inbox.handler(pay)
    deliveries: list[int] = []

    def handle(message: Any) -> None:
        deliveries.append(attempts(message))
        handle_once(message)
        handle_once(message)  # as if the commit of its offset had been lost
        if len(deliveries) == 9:
            loop.stop()

    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )  # fmt: skip
    loop = ConsumerLoop(consumer, [topic], handle, nack=Nack(group, producer))
    loop.run()
    assert numbers(engine) == list(range(6))
    assert sorted(deliveries) == [0] * 6 + [1] * 3
    with engine.connect() as connection:
        ids = connection.execute(sqlalchemy.text("SELECT message_id FROM halfmoon_inbox ORDER BY 1")).scalars().all()
    assert ids == [f"{topic}/0/{number}" for number in range(6)]


def test_many_threads_at_once(broker: halfmoon.testing.Broker, names: tuple[str, str], producer: Any) -> None:
    """Of each order that is in the database there is one message, and of no other one; some are refused."""
    import psycopg

    from halfmoon.outbox.psycopg import Outbox as PsycopgOutbox
    from tests.outbox.servers import new_database

    topic, group = names
    dsn = new_database()
    outbox = PsycopgOutbox(group, producer, dsn)
    outbox.create_table()
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY DEFERRABLE INITIALLY DEFERRED)")
    errors: list[BaseException] = []

    def work(first: int) -> None:
        for number in range(first, first + 12):
            try:
                with outbox.transaction() as tx:
                    tx.connection.execute("INSERT INTO orders VALUES (%s)", (number,))
                    tx.send(topic, b"%d" % number)
            except psycopg.errors.UniqueViolation as error:  # by the commit: the half message is stored by then
                errors.append(error)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(0, 60, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * WAIT_S)
    assert len(errors) == 10
    assert sorted(map(int, values(broker, topic, 62))) == list(range(62))


# ------------------------------------------------------------------------------------------------------------- RocketMQ


def test_rocketmqs_protocol(broker: halfmoon.testing.Broker, engine: Any, names: tuple[str, str]) -> None:
    topic, group = names
    got: list[Any] = []
    done = threading.Event()

    def listener(messages: Any, context: Any) -> Status:
        got.extend(messages)
        if len(got) == 3:
            done.set()
        return Status.SUCCESS

    with (
        OutboxProducer(group, namesrv=broker.namesrv, topics=[topic]) as producer,
        PushConsumer(f"{group}-c", listener, topic, consume_from=ConsumeFrom.FIRST, namesrv=broker.namesrv),
    ):
        outbox = Outbox(group, producer, engine)
        outbox.create_table()
        with outbox.transaction(transaction_id="t") as tx:
            place(tx, 1)
            tx.send(Message(topic, b"whole", tags="paid", keys="order-1", properties={"mine": "x"}))
            tx.send(topic, b"plain", b"key", [("mine", b"y")])
        with pytest.raises(sqlalchemy.exc.IntegrityError), outbox.transaction() as tx:
            tx.send(topic, b"never")
            place(tx, 1)
        with pytest.raises(ValueError, match="at most 50"), outbox.transaction() as tx:
            place(tx, 2)
            for _ in range(MOST_MESSAGES + 1):
                tx.send(topic, b"never")
        with pytest.raises(ValueError, match="queues"), outbox.transaction() as tx:
            tx.send(topic, b"never", partition=0)
        with pytest.raises(Exception, match="body"), outbox.transaction() as tx:
            place(tx, 3)
            tx.send(topic, b"never")
            tx.send(topic, b"")
        with outbox.transaction() as tx:
            place(tx, 4)
            tx.send(topic, b"last")
        assert done.wait(WAIT_S)
        with pytest.raises(ValueError, match="the broker asks the latter"):
            Outbox("another", producer, engine)
    found = {message.body: message for message in got}
    assert set(found) == {b"whole", b"plain", b"last"}
    assert (found[b"whole"].tags, found[b"whole"].keys) == ("paid", ["order-1"])
    assert {name: found[b"plain"].properties[name] for name in ("mine", NAME)} == {"mine": "y", NAME: "t#1"}
    assert numbers(engine) == [1, 4]


def test_rocketmqs_check_backs(broker: halfmoon.testing.Broker, engine: Any, names: tuple[str, str]) -> None:
    """A producer dies after its commit, another one before it; the next one of the group answers for both."""
    topic, group = names

    class DiedError(BaseException):
        pass

    def die() -> None:
        raise DiedError

    for step, number in (("commit", 1), ("decide", 2)):
        with OutboxProducer(group, namesrv=broker.namesrv, topics=[topic]) as producer:
            outbox = Outbox(group, producer, engine)
            outbox.create_table()
            producer._answering.answer = lambda check: None
            with pytest.raises(DiedError), outbox._database.local(None) as local:
                tx = local.transaction(None)
                place(tx, number)
                tx.send(topic, b"%d" % number)
                local.insert(group, tx.id, outbox._now(), 60)
                if step == "commit":
                    local.commit()
                outbox._channel.deliver(tx.id, tx.end(), die)
    assert numbers(engine) == [1]
    with OutboxProducer(group, namesrv=broker.namesrv, topics=[topic]) as producer:
        Outbox(group, producer, engine)
        assert values(broker, topic, 1) == [b"1"]


def test_the_inbox_with_rocketmqs_protocol(
    broker: halfmoon.testing.Broker, engine: Any, names: tuple[str, str]
) -> None:
    """A message that is redelivered although it was handled is known, also where Kafka's client has produced it."""
    topic, group = names
    inbox = Inbox(group, engine)
    inbox.create_table()
    paid: list[bytes] = []
    times: list[int] = []
    done = threading.Event()
    handle_once = inbox.handler(lambda session, message: paid.append(message.body))

    def listener(messages: Any, context: Any) -> Status:
        for message in messages:
            handle_once(message)
            times.append(message.reconsume_times)
        if times.count(1) == 2:
            done.set()
        context.delay_level = 1
        return Status.RECONSUME_LATER if times[-1] == 0 else Status.SUCCESS

    from_kafka = Producer({"bootstrap.servers": broker.bootstrap_servers})
    from_kafka.produce(topic, b"1")
    assert from_kafka.flush(WAIT_S) == 0
    with (
        MessageProducer(f"{group}-p", namesrv=broker.namesrv) as producer,
        PushConsumer(group, listener, topic, consume_from=ConsumeFrom.FIRST, namesrv=broker.namesrv),
    ):
        producer.send(Message(topic, b"2"))
        assert done.wait(WAIT_S)
    assert sorted(times) == [0, 0, 1, 1]
    assert sorted(paid) == [b"1", b"2"]


# -------------------------------------------------------------------------------------------------------------- asyncio


def test_asyncio(broker: halfmoon.testing.Broker, names: tuple[str, str]) -> None:
    """With aiokafka and with confluent-kafka, psycopg and SQLAlchemy: each pair of them once."""
    from sqlalchemy.ext.asyncio import create_async_engine

    from halfmoon.outbox.aio import psycopg as by_psycopg
    from halfmoon.outbox.aio import sqlalchemy as by_sqlalchemy
    from tests.outbox.servers import for_sqlalchemy, new_database

    topic, group = names
    dsn = new_database()

    async def run() -> None:
        engine = create_async_engine(for_sqlalchemy(dsn))
        async with engine.begin() as connection:
            await connection.execute(sqlalchemy.text("CREATE TABLE orders (number INTEGER PRIMARY KEY)"))
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as awaited:
            producers = (awaited, Producer({"bootstrap.servers": broker.bootstrap_servers}))
            modules = ((by_psycopg, dsn), (by_sqlalchemy, engine))
            for number, (producer, (module, bind)) in enumerate(itertools.product(producers, modules)):
                outbox = module.Outbox(group, producer, bind)  # type: ignore[attr-defined]
                await outbox.create_table()
                insert = f"INSERT INTO orders VALUES ({number})"

                async def work(tx: Any, insert: str = insert) -> None:
                    if hasattr(tx, "session"):
                        await tx.session.execute(sqlalchemy.text(insert))
                    else:
                        await tx.connection.execute(insert)

                async with outbox.transaction() as tx:
                    await work(tx)
                    tx.send(topic, b"%d" % number)
                with pytest.raises(outbox._database.errors):
                    async with outbox.transaction() as tx:
                        tx.send(topic, b"never")
                        await work(tx)
                with pytest.raises((NotStoredError, KafkaException), match=r"(?i)large"):
                    async with outbox.transaction() as tx:
                        tx.send(topic, b"never")
                        tx.send(topic, bytes(2 << 20))
        await engine.dispose()

    asyncio.run(run())
    assert sorted(values(broker, topic, 4)) == [b"0", b"1", b"2", b"3"]


def test_asyncio_check_backs_and_the_inbox(broker: halfmoon.testing.Broker, names: tuple[str, str]) -> None:
    from halfmoon.outbox.aio.psycopg import Inbox, Outbox
    from tests.outbox.servers import new_database

    topic, group = names
    dsn = new_database()

    async def run() -> list[bytes]:
        servers = broker.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            half, outbox, inbox = TransactionalOutbox(group, producer), Outbox(group, producer, dsn), Inbox(group, dsn)
            await outbox.create_table()
            await inbox.create_table()
            async with outbox._database.local(None) as local:
                await local.insert(group, "paid", outbox._now(), 60)
                await local.commit()
            for name in ("paid#0", "lost#0"):
                await half.prepare(topic, name.encode(), transaction=name)[1]

            def consumer(consumers: str) -> AIOKafkaConsumer:
                return AIOKafkaConsumer(
                    bootstrap_servers=servers, group_id=consumers, auto_offset_reset="earliest",
                    enable_auto_commit=False,
                )  # fmt: skip

            handled: list[bytes] = []

            async def pay(connection: Any, record: Any) -> None:
                handled.append(record.value)

            from halfmoon.kafka import AsyncConsumerLoop

            handle_once = inbox.handler(pay)

            async def handle(record: Any) -> None:
                await handle_once(record)
                await handle_once(record)
                paying.stop()

            answering = outbox.check_back_loop(consumer(f"{group}-checks"))
            paying = AsyncConsumerLoop(consumer(f"{group}-payers"), [topic], handle)
            task = asyncio.get_running_loop().create_task(answering.run())
            await asyncio.wait_for(paying.run(), WAIT_S)
            while await outbox._database.state_of(group, "lost") is None:
                await asyncio.sleep(0.01)
            answering.stop()
            await asyncio.wait_for(task, WAIT_S)
            assert await outbox._database.state_of(group, "lost") is State.ABANDONED
            assert await outbox.clean() == await inbox.clean() == 0
            return handled

    assert asyncio.run(run()) == [b"paid#0"]
    assert values(broker, topic, 1) == [b"paid#0"]


def test_asyncio_with_rocketmqs_protocol(broker: halfmoon.testing.Broker, names: tuple[str, str]) -> None:
    from halfmoon.outbox.aio.psycopg import Outbox
    from halfmoon.outbox.aio.rocketmq import OutboxProducer
    from tests.outbox.servers import new_database

    topic, group = names
    dsn = new_database()

    async def run() -> list[bytes]:
        got: list[bytes] = []
        done = asyncio.Event()

        async def listener(messages: Any, context: Any) -> Any:
            got.extend(message.body for message in messages)
            if len(got) == 3:
                done.set()
            return Status.SUCCESS

        async with OutboxProducer(group, namesrv=broker.namesrv, topics=[topic]) as producer:
            outbox = Outbox(group, producer, dsn)
            await outbox.create_table()
            async with outbox.transaction() as tx:
                tx.send(Message(topic, b"1"))
                tx.send(topic, b"2")
            with pytest.raises(RuntimeError):
                async with outbox.transaction() as tx:
                    tx.send(topic, b"never")
                    raise RuntimeError
            with pytest.raises(Exception, match="body"):
                async with outbox.transaction() as tx:
                    tx.send(topic, b"never")
                    tx.send(topic, b"")
            # One that died after its commit.
            async with outbox._database.local(None) as local:
                tx = local.transaction("died")
                tx.send(topic, b"3")
                await local.insert(group, "died", outbox._now(), 60)
                await local.commit()

            async def unknown() -> None:
                return None

            await outbox._channel.deliver("died", tx.end(), unknown)
            async with AwaitedPushConsumer(
                f"{group}-c", listener, topic, consume_from=ConsumeFrom.FIRST, namesrv=broker.namesrv
            ):
                await asyncio.wait_for(done.wait(), WAIT_S)
        return sorted(got)

    assert asyncio.run(run()) == [b"1", b"2", b"3"]
