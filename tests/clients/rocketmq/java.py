"""RocketMQ's own Java client, driven from Python: a JVM (tests/clients/jvm.py) with it and its admin tools."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

from py4j.protocol import Py4JJavaError, get_return_value

from halfmoon.testing import Broker
from tests.clients.jvm import Jvm
from tests.clients.rocketmq.places import Places

VERSION = "5.3.3"
_ELSEWHERE = [
    # In Spark's own jars, …
    "io.netty:*", "com.google.guava:*", "org.slf4j:*", "com.google.protobuf:*", "org.lz4:*", "com.github.luben:*",
    # … or for what neither the client nor the admin tools do: storing, gRPC.
    "org.apache.rocketmq:rocketmq-rocksdb", "org.apache.rocketmq:rocketmq-proto", "io.grpc:*",
    "com.squareup.okhttp3:*", "com.squareup.okio:*", "org.awaitility:*", "org.reflections:*",
    "org.checkerframework:*", "com.google.errorprone:*",
]  # fmt: skip
_JAVA_OPTIONS = [
    # Which the client does every 20 s, otherwise, and no more often than once a second.
    "-Drocketmq.client.rebalance.waitInterval=500", "-Drocketmq.client.rebalance.minInterval=100",
]  # fmt: skip
CLIENT = "org.apache.rocketmq.client"
COMMON = "org.apache.rocketmq.common"
REMOTING = "org.apache.rocketmq.remoting.protocol"

Queue = tuple[str, int]
"""The name of its broker, and its number there."""


class Java(Jvm):
    """The JVM, and RocketMQ's classes in it."""

    def __init__(self, folder: Path) -> None:
        from pyspark.java_gateway import ensure_callback_server_started

        super().__init__(folder, f"org.apache.rocketmq:rocketmq-tools:{VERSION}", _ELSEWHERE, _JAVA_OPTIONS)
        # RocketMQ's log files go there. Not from the start: Ivy's cache is in the real one.
        self.jvm.java.lang.System.setProperty("user.home", str(folder))
        ensure_callback_server_started(self.gateway)
        self._farewells = ThreadPoolExecutor(16)
        self._leaving: list[Future[None]] = []

    def let_go(self, client: Any) -> None:
        """Shut a client down, behind the next test's back: that takes it up to three seconds."""
        self._leaving.append(self._farewells.submit(client.shutdown))

    def settle(self) -> None:
        """Wait until those are gone."""
        while self._leaving:
            self._leaving.pop().result(20)

    def stop(self) -> None:
        self.settle()
        self._farewells.shutdown()
        super().stop()

    def serialize(self, kind: str) -> None:
        """Which header the requests of all clients have from now on: JSON or ROCKETMQ.

        Otherwise a system property, read once per JVM.
        """
        types = self.named("org.apache.rocketmq.remoting.protocol.SerializeType")
        command = self.jvm.java.lang.Class.forName(
            "org.apache.rocketmq.remoting.protocol.RemotingCommand",
            True,
            self.jvm.java.lang.Thread.currentThread().getContextClassLoader(),
        )
        field = command.getDeclaredField("serializeTypeConfigInThisServer")
        field.setAccessible(True)
        field.set(None, types.valueOf(kind))

    def set(self, values: Iterable[Any]) -> Any:
        return self.jvm.java.util.HashSet(self.list(values))


def interface(name: str, **methods: Callable[..., Any]) -> Any:
    """A Python object that Java sees as one of the interface."""
    kind = name.rpartition(".")[2]
    body = {method: staticmethod(does) for method, does in {"toString": lambda: kind, **methods}.items()}
    return type(kind, (), {**body, "Java": type("Java", (), {"implements": [name]})})()


class Got:
    """What a listener was given: MessageExt objects of Java's, in the order of their coming."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.at: list[float] = []
        """`time.monotonic()` of each."""

    def add(self, message: Any) -> None:
        self.at.append(time.monotonic())
        self.messages.append(message)

    def __len__(self) -> int:
        return len(self.messages)

    def bodies(self) -> list[str]:
        return [body(message) for message in self.messages]

    def wait(self, count: int, timeout_s: float = 15) -> None:
        until(lambda: len(self) >= count, timeout_s, lambda: f"got {len(self)} of {count}: {self.bodies()}")

    def exactly(self, count: int, timeout_s: float = 15, quiet_s: float = 0.3) -> None:
        """So many, and no more within `quiet_s`."""
        self.wait(count, timeout_s)
        time.sleep(quiet_s)
        assert len(self) == count, self.bodies()


class Clients:
    """Java clients of one test, to be closed together."""

    def __init__(self, java: Java, broker: Broker, run: str) -> None:
        self.java = java
        self.broker = broker
        self._places = Places(broker)
        self._run = run
        self.brokers = self._places.brokers
        self._count = 0
        self._started: list[Any] = []
        self.admin = java.named("org.apache.rocketmq.tools.admin.DefaultMQAdminExt")(10_000)
        self.started(self.admin)

    def close(self) -> None:
        for client in reversed(self._started):
            self.java.let_go(client)

    def name(self, what: str) -> str:
        self._count += 1
        return f"{what}-{self._run}-{self._count}"

    def started(self, client: Any) -> Any:
        """An instance of its own: clients with one name share their connections."""
        self.prepare(client)
        client.start()
        return client

    def prepare(self, client: Any) -> Any:
        client.setNamesrvAddr(self.broker.namesrv)
        client.setInstanceName(self.name("instance"))
        # A new topic's route, above all a new group's retry topic's; how far a group has come; who is there.
        client.setPollNameServerInterval(500)
        client.setPersistConsumerOffsetInterval(500)
        client.setHeartbeatBrokerInterval(1_000)
        # As many as there are processors, otherwise. With one it waits for itself: what a consumer says of what it is
        # doing includes an offset that it asks the broker for, and that answer is taken by the thread that asks.
        client.setClientCallbackExecutorThreads(2)
        self._started.append(client)
        return client

    # What clients are made of.

    def message(self, topic: str, tags: str | None, content: str | bytes, keys: str = "", **properties: str) -> Any:
        data = content.encode() if isinstance(content, str) else content
        made = self.java.named(f"{COMMON}.message.Message")(topic, tags, keys, data)
        for name, value in properties.items():
            made.putUserProperty(name, value)
        return made

    def queue(self, topic: str, partition: int) -> Any:
        """The queue that is this partition of the topic."""
        return self.java.named(f"{COMMON}.message.MessageQueue")(topic, *self._places.queue(topic, partition))

    def address(self, topic: str, partition: int) -> str:
        """Of the broker that has this partition: HOST:PORT."""
        name, _ = self._places.queue(topic, partition)
        (found,) = [
            each for each in self.admin.examineTopicRouteInfo(topic).getBrokerDatas() if each.getBrokerName() == name
        ]
        return str(found.selectBrokerAddr())

    def addresses(self) -> list[str]:
        """Of all brokers: HOST:PORT."""
        table = self.admin.examineBrokerClusterInfo().getBrokerAddrTable()
        return [str(table[name].selectBrokerAddr()) for name in sorted(self.brokers)]

    def partition(self, found: Any) -> int:
        """Of a queue, or of a message. Queues have the numbers of their brokers."""
        return self._places.partition(found.getTopic(), found.getBrokerName(), found.getQueueId())

    def by_sql(self, expression: str) -> Any:
        return self.java.named(f"{CLIENT}.consumer.MessageSelector").bySql(expression)

    def selector(self, choose: Callable[[int], int]) -> Any:
        """`choose(number of queues)` → which of them."""
        return interface(f"{CLIENT}.producer.MessageQueueSelector", select=lambda mqs, m, arg: mqs[choose(len(mqs))])

    def callback(self, success: Callable[[Any], Any], failure: Callable[[Any], Any]) -> Any:
        return interface(f"{CLIENT}.producer.SendCallback", onSuccess=success, onException=failure)

    def topic(self, queues: int = 1) -> str:
        config = self.java.named(f"{COMMON}.TopicConfig")(self.name("topic"))
        config.setReadQueueNums(queues)
        config.setWriteQueueNums(queues)
        config.setPerm(6)
        self.admin.createAndUpdateTopicConfig(self.broker.rocketmq, config)
        return str(config.getTopicName())

    # Clients.

    def producer(self, group: str | None = None) -> Any:
        return self.started(self.java.named(f"{CLIENT}.producer.DefaultMQProducer")(group or self.name("producers")))

    def transactional(self, group: str, executed: Callable[[Any], str], checked: Callable[[Any], str]) -> Any:
        """A transaction producer; both answer COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW, given the message."""
        states = self.java.named(f"{CLIENT}.producer.LocalTransactionState")
        producer = self.java.named(f"{CLIENT}.producer.TransactionMQProducer")(group)
        producer.setTransactionListener(
            interface(
                f"{CLIENT}.producer.TransactionListener",
                executeLocalTransaction=lambda message, arg: states.valueOf(executed(message)),
                checkLocalTransaction=lambda message: states.valueOf(checked(message)),
            )
        )
        return self.started(producer)

    def kill(self, producer: Any) -> None:
        """What a broker sees when a producer's process dies: its connections close, and it has not said goodbye."""
        factory = producer.getDefaultMQProducerImpl().getMqClientFactory()
        self.java.let_go(factory.getMQClientAPIImpl().getRemotingClient())

    def push(self, group: str | None = None, topic: str | None = None) -> Any:
        """A push consumer that begins at the first message, of a topic if one is given; not yet started."""
        consumer = self.java.named(f"{CLIENT}.consumer.DefaultMQPushConsumer")(group or self.name("group"))
        consumer.setConsumeFromWhere(self.from_where("CONSUME_FROM_FIRST_OFFSET"))
        # Each thread of Java's that calls Python has a connection of its own, and the others wait for Python's lock.
        consumer.setConsumeThreadMin(2)
        consumer.setConsumeThreadMax(2)
        if topic is not None:
            consumer.subscribe(topic, "*")
        return self.prepare(consumer)

    def from_where(self, name: str) -> Any:
        return self.java.named(f"{COMMON}.consumer.ConsumeFromWhere").valueOf(name)

    def listen(self, consumer: Any, decide: Callable[[Any, Any], str] | None = None, *, orderly: bool = False) -> Got:
        """Start the consumer; `decide(message, context)` names the status, success where it does not."""
        got = Got()
        kind, well = ("Orderly", "SUCCESS") if orderly else ("Concurrently", "CONSUME_SUCCESS")
        values = self.java.named(f"{CLIENT}.consumer.listener.Consume{kind}Status").values()
        statuses = {value.toString(): value for value in values}

        def consumed(messages: Any, context: Any) -> Any:
            status = well
            for message in messages:
                got.add(message)
                if decide is not None:
                    status = decide(message, context)
            return statuses[status]

        listener = interface(f"{CLIENT}.consumer.listener.MessageListener{kind}", consumeMessage=consumed)
        consumer.registerMessageListener(listener)
        consumer.start()
        return got

    def consume(self, topic: str, expression: Any = "*") -> Got:
        """What a group of its own gets: a tag expression, or a MessageSelector."""
        consumer = self.push()
        consumer.subscribe(topic, expression)
        return self.listen(consumer)

    def puller(self, group: str | None = None) -> Any:
        name = f"{CLIENT}.consumer.DefaultMQPullConsumer"
        return self.started(self.java.named(name)(group or self.name("group")))

    def sql_puller(self, topic: str) -> Any:
        """One that knows its broker's version, from a heartbeat: else the client does not ask it for SQL92."""
        puller = self.puller()
        puller.fetchSubscribeMessageQueues(topic)
        factory = puller.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory()
        factory.updateTopicRouteInfoFromNameServer(topic)
        factory.sendHeartbeatToAllBrokerWithLock()
        return puller

    def lite(self) -> Any:
        """A lite pull consumer, not yet started."""
        consumer = self.java.named(f"{CLIENT}.consumer.DefaultLitePullConsumer")(self.name("group"))
        consumer.setConsumeFromWhere(self.from_where("CONSUME_FROM_FIRST_OFFSET"))
        return self.prepare(consumer)

    def read_all(self, topic: str, count: int, timeout_s: float = 15) -> list[Any]:
        """The messages of a topic of one partition, as soon as there are `count`."""
        puller, found = self.puller(), []

        def enough() -> bool:
            nonlocal found
            try:
                results = [puller.pull(queue, "*", 0, 32) for queue in puller.fetchSubscribeMessageQueues(topic)]
            except Py4JJavaError:
                return False  # The topic is not there yet.
            found = [message for result in results for message in result.getMsgFoundList() or []]
            return len(found) >= count

        until(enough, timeout_s, lambda: f"{topic} has {len(found)} of {count}")
        return found


def body(message: Any) -> str:
    return bytes(message.getBody()).decode()


def queues_of(consumer: Any, topic: str) -> set[Queue]:
    """Which queues it has now."""
    table = consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable()
    return {as_queue(queue) for queue in table.keySet() if queue.getTopic() == topic}


def queues_in(route: Any) -> tuple[int, int, int]:
    """Of a topic: to read, to write, and permissions (6: both), at all brokers together."""
    datas = list(route.getQueueDatas())
    (permissions,) = {data.getPerm() for data in datas}
    return (
        sum(data.getReadQueueNums() for data in datas), sum(data.getWriteQueueNums() for data in datas), permissions
    )  # fmt: skip


def as_queue(found: Any) -> Queue:
    """A MessageQueue of Java's."""
    return str(found.getBrokerName()), int(found.getQueueId())


def until(met: Callable[[], Any], timeout_s: float = 15, why: Callable[[], str] | None = None) -> None:
    end = time.monotonic() + timeout_s
    while not met():
        assert time.monotonic() < end, why() if why is not None else "it did not come about"
        time.sleep(0.02)


def refusal(call: Callable[[], Any]) -> int:
    """The response code with which a call of Java's fails."""
    try:
        # Not what Spark has put in its place, if it runs in this process: that looks in a JVM of its own.
        with patch("py4j.java_gateway.get_return_value", get_return_value):
            call()
    except Py4JJavaError as error:
        found = error.java_exception
        while found is not None:
            coded = found.getClass().getSimpleName() in ("MQBrokerException", "MQClientException")
            if coded and found.getResponseCode() != -1:
                return int(found.getResponseCode())
            found = found.getCause()
        raise
    raise AssertionError("it did not fail")
