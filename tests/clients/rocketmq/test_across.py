"""One log, two protocols: what clients of the one write, clients of the other read; and groups that change sides.

On Kafka's side is confluent-kafka, on RocketMQ's the Java client.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from confluent_kafka import (
    OFFSET_INVALID,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kafka import KafkaAdminClient
from kafka import TopicPartition as ToolsPartition
from kafka.errors import GroupSubscribedToTopicError, NonEmptyGroupError
from py4j.protocol import Py4JJavaError

from halfmoon.client import ConsumeFrom, Context, PushConsumer, ReceivedMessage, Status
from halfmoon.kafka import TransactionalOutbox
from halfmoon.schema.group_topics import dead_letter_topic, retry_topic
from halfmoon.testing import Broker
from tests.cli.conftest import CommandLine
from tests.clients.rocketmq.java import COMMON, REMOTING, Clients, Got, body, queues_in, refusal, until
from tests.several_workers import NODES, WORKERS, logs_of

pytestmark = pytest.mark.spark

SYSTEM_ERROR = 1
TOPIC_NOT_EXIST = 17
HEADERS = ["ROCKETMQ"]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
"""By their numbers in a batch's attributes."""
PUT_BY_THE_CLIENT = ("MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME")
"""Properties that are the Java client's own, of the pull that brought a message and of its listener."""


class Record(NamedTuple):
    """What a Kafka producer sends. Timestamp 0: now."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int = 0


class Kafka:
    """confluent-kafka, at the broker that the Java clients talk to."""

    def __init__(self, broker: Broker) -> None:
        self.servers = broker.bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        self._reader = self._consumer("across")
        self._opened = [self._reader]

    def close(self) -> None:
        for consumer in self._opened:
            consumer.close()

    def _consumer(self, group: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                # It has one request under way at a time, also after it was told to read something else.
                "fetch.wait.max.ms": 20,
                # How soon a topic, or a group, that was not to be had is asked for again.
                "topic.metadata.refresh.interval.ms": 500,
                "heartbeat.interval.ms": 200,
                "session.timeout.ms": 6_000,
                "log_level": 0,
            }
        )

    def topic(self, name: str, partitions: int = 1, **configs: str) -> str:
        self.admin.create_topics([NewTopic(name, partitions, 1, config=configs)])[name].result(10)
        return name

    def producer(self, **settings: Any) -> Producer:
        return Producer({"bootstrap.servers": self.servers, "linger.ms": 5, "log_level": 0, **settings})

    def send(self, topic: str, *records: Record, partition: int = 0, **settings: Any) -> None:
        """Store them, in this order."""
        producer = self.producer(**settings)
        refused: list[KafkaError] = []
        for record in records:
            producer.produce(
                topic, record.value, record.key, partition, timestamp=record.timestamp_ms, headers=list(record.headers),
                on_delivery=lambda error, message: error and refused.append(error),
            )  # fmt: skip
        assert producer.flush(10) == 0
        assert not refused

    def read(self, topic: str, count: int, partition: int = 0) -> list[Message]:
        """The first messages of a partition, as soon as there are so many."""
        self._reader.assign([TopicPartition(topic, partition, 0)])
        return take(self._reader, count)

    def read_all(self, topic: str, count: int) -> list[Message]:
        """The first messages of a topic that comes to be, which may have a partition in each shard."""

        def partitions() -> list[int]:
            return sorted(self.admin.list_topics(topic, timeout=10).topics[topic].partitions)

        until(partitions)
        self._reader.assign([TopicPartition(topic, partition, 0) for partition in partitions()])
        return take(self._reader, count)

    def end(self, topic: str, partition: int = 0) -> int:
        """The next offset."""
        return int(self._reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)[1])

    def member(self, group: str, topic: str) -> Consumer:
        """A consumer of the group, not yet in it: it joins when it is polled."""
        consumer = self._consumer(group)
        self._opened.append(consumer)
        consumer.subscribe([topic])
        return consumer

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Partition → progress of the group, where it has any."""
        asked = ConsumerGroupTopicPartitions(group)
        found = self.admin.list_consumer_group_offsets([asked])[group].result(10).topic_partitions
        return {each.partition: each.offset for each in found if each.topic == topic and each.offset != OFFSET_INVALID}


def take(consumer: Consumer, count: int) -> list[Message]:
    """The next messages; an error of the consumer fails the test."""
    found: list[Message] = []

    def enough() -> bool:
        for message in consumer.consume(count - len(found), timeout=0.1):
            assert message.error() is None or message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            if message.error() is None:
                found.append(message)
        return len(found) == count

    until(enough, why=lambda: f"got {len(found)} of {count}: {[message.value() for message in found]}")
    return found


def nothing_comes(consumer: Consumer, quiet_s: float = 0.3) -> None:
    assert consumer.consume(1, timeout=quiet_s) == []


def headers_of(message: Message) -> dict[str, bytes | None]:
    headers = message.headers() or []
    assert len(dict(headers)) == len(headers), f"a name comes twice: {headers}"
    return dict(headers)


def properties_of(message: Any) -> dict[str, str]:
    """What was stored with a message of Java's."""
    found = {str(name): str(value) for name, value in dict(message.getProperties()).items()}
    return {name: value for name, value in found.items() if name not in PUT_BY_THE_CLIENT}


def content(message: Any) -> bytes:
    """Java has null for an empty body."""
    found = message.getBody()
    return b"" if found is None else bytes(found)


def in_order(clients: Clients, messages: list[Any]) -> list[Any]:
    """Listeners run side by side."""
    return sorted(messages, key=lambda message: (clients.partition(message), message.getQueueOffset()))


def is_there(clients: Clients, group: str) -> bool:
    """Whether the group has consumers of RocketMQ's."""
    try:
        clients.admin.examineConsumerConnectionInfo(group)
    except Py4JJavaError:
        return False
    return True


def leave(clients: Clients, consumer: Any) -> None:
    """The group's last consumer says goodbye. How far it has come, it may say a moment later: one way."""
    clients.java.let_go(consumer)
    until(lambda: not is_there(clients, str(consumer.getConsumerGroup())))


def progress(clients: Clients, group: str, topic: str) -> dict[int, int]:
    """Partition → progress of the group, as mqadmin sees it."""
    table = clients.admin.examineConsumeStats(group, topic).getOffsetTable()
    return {clients.partition(queue): each.getConsumerOffset() for queue, each in dict(table).items()}


@pytest.fixture
def kafka(clients: Clients) -> Iterator[Kafka]:
    made = Kafka(clients.broker)
    yield made
    made.close()


@pytest.fixture
def cli(clients: Clients, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.setenv("HALFMOON_BOOTSTRAP_SERVER", clients.broker.bootstrap_servers)
    return CommandLine(capsys, monkeypatch)


# -- from RocketMQ to Kafka --------------------------------------------------------------------------------------------


def test_a_kafka_consumer_reads_all_that_java_has_sent(clients: Clients, kafka: Kafka) -> None:
    topic, producer = clients.topic(), clients.producer()
    put = clients.java.named(f"{COMMON}.message.MessageAccessor").putProperty
    full = clients.message(topic, "paid", "héllo 世界", "order-1 order-2", price="5", **{"région": "杭州"})
    full.setFlag(77)
    sharded = clients.message(topic, None, "sharded", "order-3")
    put(sharded, "__SHARDINGKEY", "customer-7")
    large = bytes(number // 100 % 256 for number in range(50_000))
    batch = [clients.message(topic, "EO"[n % 2], f"b{n}", f"k{n}", n=str(n)) for n in range(3)]
    sent = [producer.send(message) for message in (full, sharded, clients.message(topic, "large", large))]
    batched = producer.send(clients.java.list(batch))
    producer.sendOneway(clients.message(topic, "last", b"\0\xff"))
    found = kafka.read(topic, 7)

    assert [message.value() for message in found] == [
        "héllo 世界".encode(), b"sharded", large, b"b0", b"b1", b"b2", b"\0\xff"
    ]  # fmt: skip
    assert [message.key() for message in found] == [
        b"order-1 order-2", b"customer-7", None, b"k0", b"k1", b"k2", None
    ]  # fmt: skip
    expected: list[dict[str, bytes]] = [
        {"TAGS": b"paid", "KEYS": b"order-1 order-2", "price": b"5", "région": "杭州".encode(), "__FLAG": b"77"},
        {"KEYS": b"order-3", "__SHARDINGKEY": b"customer-7"},
        {"TAGS": b"large"},
        *({"TAGS": b"EOE"[n : n + 1], "KEYS": b"k%d" % n, "n": b"%d" % n} for n in range(3)),
        {"TAGS": b"last"},
    ]
    ids = [each.getMsgId() for each in sent] + batched.getMsgId().split(",")
    host = clients.admin.viewMessage(topic, sent[0].getOffsetMsgId()).getBornHost().toString().removeprefix("/")
    for number, message in enumerate(found):
        headers = headers_of(message)
        assert next(iter(headers)) == "UNIQ_KEY"
        if number < len(ids):  # Who sends one way gets no answer.
            assert headers["UNIQ_KEY"] == ids[number].encode()
        del headers["UNIQ_KEY"]
        assert headers == {"WAIT": b"true", "__BORNHOST": host.encode(), **expected[number]}
    for message, offset_id in zip(found[:3], [each.getOffsetMsgId() for each in sent], strict=True):
        born_ms = clients.admin.viewMessage(topic, offset_id).getBornTimestamp()
        assert message.timestamp() == (TIMESTAMP_CREATE_TIME, born_ms)


def test_a_delay_of_java_is_kept_before_kafka(clients: Clients, kafka: Kafka) -> None:
    topic, producer = clients.topic(), clients.producer()
    level, timer = clients.message(topic, "D", "level", "k1", a="1"), clients.message(topic, "D", "timer", "k2")
    level.setDelayTimeLevel(5)  # 3 s: Java may take long between two
    timer.setDelayTimeMs(1_000)
    before_ms = int(time.time() * 1_000)
    for message in level, timer:
        producer.send(message)
    after_ms = int(time.time() * 1_000)
    producer.send(clients.message(topic, "D", "now"))
    found = kafka.read(topic, 3)
    assert [(message.offset(), message.key(), message.value()) for message in found] == [
        (0, None, b"now"), (1, b"k2", b"timer"), (2, b"k1", b"level")
    ]  # fmt: skip
    for message, delay_ms, asked in (found[1], 1_000, b"TIMER_DELAY_MS=1000"), (found[2], 3_000, b"DELAY=5"):
        headers = headers_of(message)
        own = {"a": b"1"} if message is found[2] else {}
        assert headers.keys() - own.keys() == {
            "UNIQ_KEY", "KEYS", "WAIT", "TAGS", "__BORNHOST", "halfmoon.delayed", "halfmoon.original-timestamp"
        }  # fmt: skip
        assert {**headers, **own, "KEYS": message.key(), "TAGS": b"D", "halfmoon.delayed": asked} == headers
        born_ms = int(headers["halfmoon.original-timestamp"] or 0)
        assert before_ms <= born_ms <= after_ms
        kind, delivered_ms = message.timestamp()
        assert kind == TIMESTAMP_LOG_APPEND_TIME
        assert born_ms + delay_ms <= delivered_ms <= time.time() * 1_000


def test_a_transaction_of_java_reaches_kafka_when_it_is_committed(clients: Clients, kafka: Kafka) -> None:
    topic, group = clients.topic(), clients.name("producers")
    states = {"commit": "COMMIT_MESSAGE", "rollback": "ROLLBACK_MESSAGE"}
    producer = clients.transactional(group, lambda message: states[body(message)], lambda message: "UNKNOW")
    before_ms = int(time.time() * 1_000)
    for text in "rollback", "commit", "rollback":
        sent = producer.sendMessageInTransaction(clients.message(topic, "T", text, f"k-{text}", order="7"), None)
        if text == "commit":
            unique = sent.getMsgId().encode()
    plain = clients.producer().send(clients.message(topic, "T", "plain"))
    committed, after = kafka.read(topic, 2)
    assert plain.getQueueOffset() == 1, "what was rolled back takes no place"
    assert (committed.key(), committed.value(), after.value()) == (b"k-commit", b"commit", b"plain")
    headers = headers_of(committed)
    assert headers.pop("__BORNHOST") is not None
    assert headers == {
        "UNIQ_KEY": unique, "KEYS": b"k-commit", "WAIT": b"true", "PGROUP": group.encode(), "TAGS": b"T", "order": b"7"
    }  # fmt: skip
    kind, delivered_ms = committed.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert before_ms <= delivered_ms <= time.time() * 1_000


def test_a_dead_producers_transactions_are_ended_by_others(clients: Clients, kafka: Kafka) -> None:
    """By a producer of Java's; by a program with a Kafka client; and Java ends what such a program has left."""
    topic, other = clients.topic(), clients.topic()
    groups = [clients.name("producers") for _ in range(3)]
    by_java, by_kafka, of_kafka = groups
    asked_of_the_dead: list[Any] = []
    for group in by_java, by_kafka:
        dying = clients.transactional(group, lambda message: "UNKNOW", asked_of_the_dead.append)
        for text in f"commit {group}", f"rollback {group}":
            dying.sendMessageInTransaction(clients.message(topic, "T", text, "k", order="7"), None)
        clients.kill(dying)
    asked: list[Any] = []

    def ended(message: Any) -> str:
        asked.append(message)
        return "COMMIT_MESSAGE" if body(message).startswith("commit") else "ROLLBACK_MESSAGE"

    for group in by_java, of_kafka:
        heir = clients.transactional(group, lambda message: "UNKNOW", ended)
        heir.send(clients.message(other, "T", "here I am"))  # Brokers know who has had to do with them.
    sender = kafka.producer()
    left = TransactionalOutbox(of_kafka, sender)
    for text in "commit", "rollback":
        left.prepare(topic, f"{text} {of_kafka}".encode(), b"k", [("TAGS", b"T")], transaction=f"{text} of Kafka")
    assert sender.flush(10) == 0

    outbox = TransactionalOutbox(by_kafka, sender)
    for question in kafka.read_all(outbox.check_topic, 2):
        headers = headers_of(question)
        assert (headers["REAL_TOPIC"], headers["TRAN_CHECK_TIMES"], headers["order"]) == (topic.encode(), b"1", b"7")
        name = outbox.transaction_of(question)
        outbox.commit(name) if (question.value() or b"").startswith(b"commit") else outbox.rollback(name)
    assert sender.flush(10) == 0

    found = {(message.value() or b"").decode(): message for message in kafka.read(topic, 3)}
    assert found.keys() == {f"commit {group}" for group in groups}
    # One that takes longer than a second to answer is asked again.
    wanted = {f"{end} {group}" for end in ("commit", "rollback") for group in (by_java, of_kafka)}
    until(lambda: {body(message) for message in asked} == wanted)
    for message in asked:
        group = body(message).split()[1]
        assert (message.getTopic(), message.getKeys(), message.getTags()) == (topic, "k", "T")
        assert (message.getProperty("PGROUP"), message.getProperty("REAL_TOPIC")) == (group, topic)
        assert message.getTransactionId() == message.getProperty("UNIQ_KEY")
    for group in groups:
        headers = headers_of(found[f"commit {group}"])
        assert (headers["PGROUP"], headers["TAGS"], headers.get("order")) == (
            group.encode(), b"T", None if group == of_kafka else b"7"
        )  # fmt: skip
    assert kafka.end(topic) == 3
    assert not asked_of_the_dead


def test_a_dead_letter_of_java_is_replayed_by_the_command_line(
    clients: Clients, kafka: Kafka, cli: CommandLine
) -> None:
    topic, group = clients.topic(), f"{clients.name('group')}|shop"  # No topic of Kafka's can be called that.
    consumer = clients.push(group, topic)
    consumer.setMaxReconsumeTimes(1)
    is_mended = False

    def decide(message: Any, context: Any) -> str:
        context.setDelayLevelWhenNextConsume(3)  # 500 ms
        return "CONSUME_SUCCESS" if is_mended else "RECONSUME_LATER"

    got = clients.listen(consumer, decide)
    producer = clients.producer()
    sent = producer.send(clients.message(topic, "paid", "bad", "order-1", price="5"))
    (letter,) = kafka.read_all(dead_letter_topic(group), 1)
    assert [(body(message), message.getReconsumeTimes()) for message in got.messages] == [("bad", 0), ("bad", 1)]
    assert (letter.key(), letter.value()) == (b"order-1", b"bad")
    headers = headers_of(letter)
    born_host = headers.pop("__BORNHOST")
    own = {"UNIQ_KEY": sent.getMsgId().encode(), "TAGS": b"paid", "KEYS": b"order-1", "price": b"5", "WAIT": b"true"}
    origin = {"RETRY_TOPIC": topic.encode(), "ORIGIN_MESSAGE_ID": f"{topic}/0/0".encode()}
    reason = b"negatively acknowledged 1 times"
    assert headers == {
        **own, **origin, "RECONSUME_TIME": b"1", "MAX_RECONSUME_TIMES": b"1", "halfmoon.reason": reason
    }  # fmt: skip
    (dead,) = clients.read_all(f"%DLQ%{group}", 1)
    assert (dead.getTopic(), body(dead), dead.getKeys(), dead.getTags()) == (f"%DLQ%{group}", "bad", "order-1", "paid")
    assert (dead.getMsgId(), dead.getReconsumeTimes()) == (sent.getMsgId(), 2)
    assert dead.getProperty("ORIGIN_MESSAGE_ID") == sent.getOffsetMsgId()

    row = {
        "group": group, "dead_letters": 1, "letters": 1, "replayed": 0, "handled": 0, "open": 1,
        "topic": dead_letter_topic(group),
    }  # fmt: skip
    assert cli.ok("dlq", "list", group, "-o", "json").json() == [row]
    (shown,) = cli.ok("dlq", "show", group, "--tag", "paid", "-o", "json").json_lines()
    assert (shown["value"], shown["key"], shown["offset"]) == ("bad", "order-1", 0)
    is_mended = True
    target = retry_topic(group)
    assert cli.ok("dlq", "replay", group).out == f"1 dead letter replayed to {target}\n"
    assert cli.ok("dlq", "replay", group).out == f"0 dead letters replayed to {target}; 1 replayed already\n"
    got.exactly(3)
    again = got.messages[2]
    assert (again.getTopic(), body(again), again.getTags(), again.getKeys()) == (topic, "bad", "paid", "order-1")
    assert (again.getReconsumeTimes(), again.getMsgId()) == (1, sent.getMsgId())
    assert again.getUserProperty("price") == "5"
    assert kafka.end(dead_letter_topic(group)) == 1, "it stays a dead letter"
    # What came again is there for Kafka's clients as well: once after its delay, once after the replay.
    retried, replayed = (headers_of(message) for message in kafka.read(retry_topic(group), 2))
    for each in retried, replayed:
        assert each.pop("__BORNHOST") == born_host
    assert int(retried.pop("halfmoon.original-timestamp") or 0) == got.messages[0].getBornTimestamp()
    limit = {"MAX_RECONSUME_TIMES": b"1"}
    assert retried == {**own, **origin, **limit, "RECONSUME_TIME": b"1", "halfmoon.delayed": b"DELAY=3"}
    assert replayed == {**own, **origin, "RECONSUME_TIME": b"1"}
    leave(clients, consumer)
    until(lambda: kafka.committed(group, retry_topic(group)) == {0: 2})


def state_policy(kafka: Kafka, group: str, **stated: str) -> None:
    entries = [
        ConfigEntry(f"halfmoon.retry.{name.replace('_', '.')}", value, incremental_operation=AlterConfigOpType.SET)
        for name, value in stated.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    (altered,) = kafka.admin.incremental_alter_configs([resource]).values()
    altered.result(20)


def test_a_java_consumer_follows_the_policy_of_its_group(clients: Clients, kafka: Kafka) -> None:
    """Whose user has set no limit: the client says 16."""
    topic, group = clients.topic(), clients.name("group")
    state_policy(kafka, group, steps="50ms,60ms")
    got = clients.listen(clients.push(group, topic), lambda message, context: "RECONSUME_LATER")
    clients.producer().send(clients.message(topic, "paid", "bad", "order-1"))
    (letter,) = kafka.read_all(dead_letter_topic(group), 1)
    assert [message.getReconsumeTimes() for message in got.messages] == [0, 1, 2]
    headers = headers_of(letter)
    assert headers["halfmoon.reason"] == b"negatively acknowledged 2 times"
    assert "MAX_RECONSUME_TIMES" not in headers


def test_what_a_python_listener_raises_is_not_retried(clients: Clients, kafka: Kafka) -> None:
    topic, group = clients.topic(), clients.name("group")
    state_policy(kafka, group, not_retryable="LookupError", steps="50ms")

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Status:
        raise KeyError("total") if messages[0].body == b"bad" else OSError("busy")

    consumer = PushConsumer(
        group, listener, topic, namesrv=clients.broker.namesrv, consume_from=ConsumeFrom.FIRST
    )  # fmt: skip
    with consumer:
        producer = clients.producer()
        for text in ("bad", "busy"):
            producer.send(clients.message(topic, "paid", text, text))
        found = {letter.value(): headers_of(letter) for letter in kafka.read_all(dead_letter_topic(group), 2)}
    assert found[b"bad"]["halfmoon.reason"] == b"not retryable: builtins.KeyError (LookupError)"
    assert (found[b"bad"]["RETRY_ERROR_MESSAGE"], found[b"bad"]["RECONSUME_TIME"]) == (b"'total'", b"0")
    assert found[b"busy"]["halfmoon.reason"] == b"negatively acknowledged 1 times"
    assert found[b"busy"]["RETRY_ERROR_CLASS"] == b"builtins.OSError"


# -- from Kafka to RocketMQ --------------------------------------------------------------------------------------------

ODD = [
    Record(b"plain", b"k0", [("TAGS", b"red"), ("n", b"1")], 1_000),
    Record(None, b"tombstone", [], 2_000),
    Record(b"", None, [("KEYS", b"own")], 3_000),
    Record(
        bytes(range(256)) * 20, b"\x00\xff",
        [
            ("bin", b"\x00\x01"), ("latin", b"\xe9"), ("none", None), ("empty", b""), ("UNIQ_KEY", b"u-1"),
            ("žluť", "kůň".encode()), ("price", b"7"),
        ],
        4_000,
    ),
]  # fmt: skip
ODD_PROPERTIES: list[dict[str, str]] = [
    {"TAGS": "red", "n": "1", "KEYS": "k0"},
    {"KEYS": "tombstone"},
    {"KEYS": "own"},
    {"UNIQ_KEY": "u-1", "žluť": "kůň", "price": "7", "HALFMOON_OMITTED": "bin,latin,none,empty,KEYS"},
]
MANY = [Record(b"line %d of many; " % n * 20, None, [("n", b"%d" % n)], 5_000 + n) for n in range(20)]
BATCH = ODD + MANY
BATCH_PROPERTIES = ODD_PROPERTIES + [{"n": str(n)} for n in range(20)]


def check(message: Any, topic: str, offset: int) -> None:
    """Java's message is `BATCH[offset]`, with all that it says."""
    record = BATCH[offset]
    assert (message.getTopic(), message.getQueueOffset(), content(message)) == (topic, offset, record.value or b"")
    assert properties_of(message) == {"CLUSTER": "DefaultCluster", **BATCH_PROPERTIES[offset]}
    assert message.getBornTimestamp() == record.timestamp_ms
    assert (message.getBornHost().toString(), message.getFlag(), message.getReconsumeTimes()) == ("/0.0.0.0:0", 0, 0)


def test_batches_of_kafka_are_read_message_by_message(clients: Clients, kafka: Kafka, cli: CommandLine) -> None:
    topic = kafka.topic(clients.name("batches"), len(CODECS), **{"retention.ms": "-1"})
    before_ms = int(time.time() * 1_000)
    for number, codec in enumerate(CODECS):
        settings = {"linger.ms": 100, "compression.type": codec}
        kafka.send(topic, *BATCH, partition=number, **settings)
    after_ms = int(time.time() * 1_000)
    if not NODES:  # their logs are in no folder that stays
        frames = [
            frame
            for folder in logs_of(clients.broker.data_dir)
            for frame in cli.ok("log", "dump", folder, "-t", topic, "-o", "json").json_lines()
        ]
        batches = [frame["batch"] for frame in frames if frame["batch"] is not None]
        assert sorted((batch["attributes"] & 7, batch["record_count"]) for batch in batches) == [
            (number, len(BATCH)) for number in range(len(CODECS))
        ], "each is one batch, in its codec"

    got = clients.consume(topic)
    got.exactly(len(CODECS) * len(BATCH))
    pushed = in_order(clients, got.messages)
    puller = clients.sql_puller(topic)
    for number in range(len(CODECS)):
        queue = clients.queue(topic, number)
        of_queue = [message for message in pushed if clients.partition(message) == number]
        assert len(of_queue) == len(BATCH)
        for offset, message in enumerate(of_queue):
            check(message, topic, offset)
        pulled: list[Any] = []
        while len(pulled) < len(BATCH):  # By ten, so that pulls begin inside of the batch.
            result = puller.pull(queue, "*", len(pulled), 10)
            assert result.getNextBeginOffset() == len(pulled) + len(result.getMsgFoundList())
            pulled.extend(result.getMsgFoundList())
        for offset, message in enumerate(pulled):
            check(message, topic, offset)
        for message, same in zip(pulled, of_queue, strict=True):
            assert before_ms <= message.getStoreTimestamp() <= after_ms
            assert message.getOffsetMsgId() == same.getOffsetMsgId()
        assert len({message.getOffsetMsgId() for message in pulled}) == len(BATCH)
        # Without a UNIQ_KEY, the id by offset is the only one.
        assert [message.getMsgId() for message in pulled[:3]] == [message.getOffsetMsgId() for message in pulled[:3]]
        assert pulled[3].getMsgId() == "u-1"
        for offset in (0, 1, 3, 15, len(BATCH) - 1):
            viewed = clients.admin.viewMessage(topic, pulled[offset].getOffsetMsgId())
            assert viewed.getQueueId() == queue.getQueueId()
            check(viewed, topic, offset)
        result = puller.pull(queue, clients.by_sql("TAGS = 'red' OR n >= 18"), 0, 32)
        assert [message.getQueueOffset() for message in result.getMsgFoundList()] == [0, 22, 23]


def test_a_large_batch_of_kafka_is_read_piece_by_piece(clients: Clients, kafka: Kafka) -> None:
    """More than the broker hands out, or keeps decompressed, at once."""
    topic, values = clients.topic(), [b"%d " % number * 1_000 for number in range(300)]
    kafka.send(topic, *map(Record, values), **{"compression.type": "zstd", "linger.ms": 100, "batch.size": 4 << 20})
    puller, queue = clients.puller(), clients.queue(topic, 0)
    pulled: list[Any] = []
    while len(pulled) < len(values):
        pulled.extend(puller.pull(queue, "*", len(pulled), 32).getMsgFoundList())
    assert [message.getQueueOffset() for message in pulled] == list(range(300))
    assert [content(message) for message in pulled] == values


def test_a_header_of_the_adapters_own_that_kafka_sends_costs_no_message(
    clients: Clients, topic: str, kafka: Kafka
) -> None:
    """With this one the Java client would decompress the body; where it cannot, it throws away all that follows."""
    kafka.send(topic, Record(b"1"), Record(b"2", None, [("__SYSFLAG", b"1")]), Record(b"3"))
    result = clients.puller().pull(clients.queue(topic, 0), "*", 0, 32)
    assert [content(message) for message in result.getMsgFoundList()] == [b"1", b"2", b"3"]


ORDERS = [
    Record(b"a", None, [("TAGS", b"paid"), ("region", b"HZ"), ("price", b"5")]),
    Record(b"b", b"k1", [("TAGS", b"paid"), ("region", b"SH"), ("price", b"15")]),
    Record(b"c", b"k2", [("TAGS", b"refunded"), ("region", b"HZ"), ("price", b"20"), ("photo", b"\x89PNG\x00")]),
    Record(b"d", b"k3", [("TAGS", b"open"), ("price", b"many")]),
    Record(b"e", b"k4", [("price", b"17"), ("region", b"HZ")]),
    Record(None, b"k5"),
    Record(b"g", b"k6", [("TAGS", b"\xff"), ("price", b"18"), ("region", b"\xff")]),
]
CHOSEN = {"paid || refunded": "abc", "open": "d", "paid": "ab", "*": "abcde.g"}
OF_JSON = [
    Record(b'{"total": 5, "items": [{"sku": "a"}]}'),
    Record(b'{"total": 10.5, "items": [{"sku": "b"}], "vip": true}'),
    Record(b'{"total": 20', None, [("TAGS", b"broken")]),
    Record(b'{"total": 12345678901234567890, "items": [], "pad": "' + b"x" * 40_000 + b'"}'),
]
CHOSEN_BY_FIELD = {
    "value.total > 10": [1, 3],
    "value.total > 9223372036854775807": [3],
    "value.items[0].sku = 'a' OR TAGS = 'broken'": [0, 2],
    "value.vip AND value.total BETWEEN 10 AND 11": [1],
    "value.items[0].sku IS NULL": [2, 3],
}
CHOSEN_BY_SQL = {
    "price BETWEEN 10 AND 20 AND region IN ('HZ', 'BJ')": "ce",
    "TAGS = 'paid' OR TAGS IS NULL": "abe.g",
}


def test_tags_and_sql92_choose_among_what_kafka_has_sent(clients: Clients, topic: str, kafka: Kafka) -> None:
    got: dict[str, Got] = {expression: clients.consume(topic, expression) for expression in CHOSEN}
    got |= {expression: clients.consume(topic, clients.by_sql(expression)) for expression in CHOSEN_BY_SQL}
    kafka.send(topic, *ORDERS)
    chosen = CHOSEN | CHOSEN_BY_SQL
    for expression, values in chosen.items():
        got[expression].wait(len(values))
    time.sleep(0.3)
    for expression, values in chosen.items():
        found = in_order(clients, got[expression].messages)
        assert "".join(content(message).decode() or "." for message in found) == values, expression
        for message in found:
            assert properties_of(message) == {
                0: {"TAGS": "paid", "region": "HZ", "price": "5"},
                1: {"TAGS": "paid", "region": "SH", "price": "15", "KEYS": "k1"},
                2: {"TAGS": "refunded", "region": "HZ", "price": "20", "KEYS": "k2", "HALFMOON_OMITTED": "photo"},
                3: {"TAGS": "open", "price": "many", "KEYS": "k3"},
                4: {"price": "17", "region": "HZ", "KEYS": "k4"},
                5: {"KEYS": "k5"},
                6: {"price": "18", "KEYS": "k6", "HALFMOON_OMITTED": "TAGS,region"},
            }[message.getQueueOffset()] | {"CLUSTER": "DefaultCluster"}


def test_sql92_chooses_by_fields_of_json(clients: Clients, topic: str, kafka: Kafka) -> None:
    consumed = clients.consume(topic, clients.by_sql("value.total > 10"))
    kafka.send(topic, *OF_JSON)
    puller, queue = clients.sql_puller(topic), clients.queue(topic, 0)
    for expression, offsets in CHOSEN_BY_FIELD.items():
        offset, found = 0, []
        while offset < len(OF_JSON):
            result = puller.pull(queue, clients.by_sql(expression), offset, 32)
            found += [message.getQueueOffset() for message in result.getMsgFoundList() or []]
            offset = result.getNextBeginOffset()
        assert found == offsets, expression
    consumed.exactly(2)
    assert [content(message) for message in in_order(clients, consumed.messages)] == [
        OF_JSON[1].value,
        OF_JSON[3].value,
    ]


def test_of_headers_with_one_name_consumers_see_the_one_that_filters_go_by(
    clients: Clients, topic: str, kafka: Kafka
) -> None:
    """The last, for filters as for Kafka's clients. Java's consumers look at the tag again themselves."""
    kafka.send(topic, Record(b"twice", None, [("TAGS", b"old"), ("n", b"1"), ("n", b"2"), ("TAGS", b"new")]))
    kafka.send(topic, Record(b"once", None, [("TAGS", b"new"), ("n", b"2")]))
    by_sql = clients.sql_puller(topic).pull(clients.queue(topic, 0), clients.by_sql("n = 2"), 0, 32)
    assert [message.getProperty("n") for message in by_sql.getMsgFoundList()] == ["2", "2"]
    new, old = clients.consume(topic, "new"), clients.consume(topic, "old")
    new.exactly(2)
    assert [(content(message), message.getTags()) for message in in_order(clients, new.messages)] == [
        (b"twice", "new"), (b"once", "new")
    ]  # fmt: skip
    assert len(old) == 0


def test_a_delay_of_kafka_is_kept_before_java(clients: Clients, topic: str, kafka: Kafka) -> None:
    got = clients.consume(topic)
    kafka.send(topic, Record(b"now"))
    got.wait(1)
    begin_ms, begin = int(time.time() * 1_000), time.monotonic()
    kafka.send(
        topic,
        Record(b"level", b"k", [("DELAY", b"3"), ("a", b"1")], 1_000),
        Record(b"timer", None, [("TIMER_DELAY_MS", b"250"), ("TAGS", b"T")], 2_000),
    )
    got.exactly(3)
    _, timer, level = got.messages
    assert (content(timer), content(level)) == (b"timer", b"level")
    place = {"CLUSTER": "DefaultCluster", "REAL_TOPIC": topic, "REAL_QID": "0"}
    assert properties_of(timer) == {"TIMER_DELAY_MS": "250", "TAGS": "T", **place}
    assert properties_of(level) == {"DELAY": "3", "a": "1", "KEYS": "k", **place}
    assert level.getDelayTimeLevel() == 3
    for message, at, delay_ms, sent_ms in (timer, got.at[1], 250, 2_000), (level, got.at[2], 500, 1_000):
        assert message.getBornTimestamp() == sent_ms
        assert message.getStoreTimestamp() >= begin_ms + delay_ms
        assert at - begin >= delay_ms / 1_000


# -- both at once ------------------------------------------------------------------------------------------------------


def test_groups_of_both_protocols_get_everything(clients: Clients, kafka: Kafka) -> None:
    topic, kafkas, javas = clients.topic(2), clients.name("group"), clients.name("group")
    member = kafka.member(kafkas, topic)
    consumer = clients.push(javas, topic)
    got = clients.listen(consumer)
    producer = clients.producer()
    for number in range(10):
        producer.send(clients.message(topic, "java", f"j{number}", f"k{number}"), clients.queue(topic, number % 2))
        kafka.send(topic, Record(b"c%d" % number, b"k%d" % number, [("TAGS", b"kafka")]), partition=number % 2)
    expected = [
        (queue, offset, f"{'jc'[offset % 2]}{queue + offset // 2 * 2}", f"k{queue + offset // 2 * 2}")
        for queue in range(2)
        for offset in range(10)
    ]
    found = take(member, 20)
    assert expected == sorted(
        (each.partition(), each.offset(), (each.value() or b"").decode(), (each.key() or b"").decode())
        for each in found
    )
    got.exactly(20)
    assert expected == [
        (clients.partition(each), each.getQueueOffset(), body(each), each.getKeys())
        for each in in_order(clients, got.messages)
    ]
    assert {(body(each)[0], each.getTags()) for each in got.messages} == {("j", "java"), ("c", "kafka")}
    member.commit(asynchronous=False)
    leave(clients, consumer)
    until(lambda: kafka.committed(kafkas, topic) == kafka.committed(javas, topic) == {0: 10, 1: 10})


def test_a_group_goes_on_in_the_other_protocol(clients: Clients, kafka: Kafka) -> None:
    topic, group = clients.topic(2), clients.name("group")
    producer = clients.producer()

    def consumed() -> tuple[Any, Got]:
        consumer = clients.push(group, topic)
        return consumer, clients.listen(consumer)

    for queue in range(2):
        kafka.send(topic, *(Record(b"first %d" % number) for number in range(5)), partition=queue)
    consumer, got = consumed()
    got.exactly(10)
    leave(clients, consumer)
    until(lambda: kafka.committed(group, topic) == progress(clients, group, topic) == {0: 5, 1: 5})

    for number in range(6):
        producer.send(clients.message(topic, "A", f"second {number // 2}"), clients.queue(topic, number % 2))
    member = kafka.member(group, topic)
    found = take(member, 6)
    assert sorted((message.partition(), message.offset(), message.value()) for message in found) == [
        (queue, 5 + number, b"second %d" % number) for queue in range(2) for number in range(3)
    ]
    # One message of the first queue is left to who comes next.
    member.commit(offsets=[TopicPartition(topic, 0, 7), TopicPartition(topic, 1, 8)], asynchronous=False)
    member.unsubscribe()
    nothing_comes(member, 0.1)
    assert kafka.committed(group, topic) == progress(clients, group, topic) == {0: 7, 1: 8}

    consumer, got = consumed()
    got.exactly(1)
    (last,) = got.messages
    assert (clients.partition(last), last.getQueueOffset(), body(last)) == (0, 7, "second 2")
    leave(clients, consumer)
    until(lambda: kafka.committed(group, topic) == progress(clients, group, topic) == {0: 8, 1: 8})


def test_progress_that_comes_behind_a_goodbye_counts_before_what_kafka_commits(clients: Clients, kafka: Kafka) -> None:
    """Java's consumers say it one way when they stop, and it may overtake or be overtaken."""
    topic, group = clients.topic(), clients.name("group")
    kafka.send(topic, *(Record(b"%d" % number) for number in range(8)))
    api = clients.admin.getDefaultMQAdminExtImpl().getMqClientInstance().getMQClientAPIImpl()
    headers = f"{REMOTING}.header"
    update = clients.java.named(f"{headers}.UpdateConsumerOffsetRequestHeader")()
    query = clients.java.named(f"{headers}.QueryConsumerOffsetRequestHeader")()
    for header in update, query:
        header.setTopic(topic)
        header.setConsumerGroup(group)
        header.setQueueId(0)
    update.setCommitOffset(5)
    address = clients.address(topic, 0)
    api.updateConsumerOffsetOneway(address, update, 5_000)
    until(lambda: api.queryConsumerOffset(address, query, 5_000) == 5)
    if WORKERS:  # the queue's shard tells the group's once a second
        until(lambda: kafka.committed(group, topic) == {0: 5})
    member = kafka.member(group, topic)
    seen = kafka.committed(group, topic)
    found = take(member, 3)
    member.commit(offsets=[TopicPartition(topic, 0, 8)], asynchronous=False)
    end = time.monotonic() + 1.2  # Progress from RocketMQ's clients is written down once a second.
    while kafka.committed(group, topic) == {0: 8} and time.monotonic() < end:
        time.sleep(0.02)
    assert kafka.committed(group, topic) == {0: 8}, "Kafka's commit is the later one"
    assert seen == {0: 5}
    assert [message.offset() for message in found] == [5, 6, 7]


def heartbeat(clients: Clients, group: str, topic: str) -> Callable[[], Any]:
    """What a consumer of the group sends every second; Java's own logs the answer, and goes on."""
    named = clients.java.named
    wanted = named(f"{REMOTING}.heartbeat.SubscriptionData")(topic, "*")
    consumer, data = named(f"{REMOTING}.heartbeat.ConsumerData")(), named(f"{REMOTING}.heartbeat.HeartbeatData")()
    consumer.setGroupName(group)
    consumer.setConsumeType(named(f"{REMOTING}.heartbeat.ConsumeType").valueOf("CONSUME_PASSIVELY"))
    consumer.setMessageModel(named(f"{REMOTING}.heartbeat.MessageModel").valueOf("CLUSTERING"))
    consumer.setConsumeFromWhere(clients.from_where("CONSUME_FROM_FIRST_OFFSET"))
    consumer.setSubscriptionDataSet(clients.java.set([wanted]))
    data.setClientID(clients.name("client"))
    data.setConsumerDataSet(clients.java.set([consumer]))
    api = clients.admin.getDefaultMQAdminExtImpl().getMqClientInstance().getMQClientAPIImpl()
    return lambda: api.sendHeartbeat(clients.address(topic, 0), data, 5_000)


def test_live_members_speak_one_protocol_at_a_time(clients: Clients, kafka: Kafka) -> None:
    topic, group = clients.topic(), clients.name("group")
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 1)])

    # RocketMQ is first.
    first = clients.push(group, topic)
    of_first = clients.listen(first)
    kafka.send(topic, Record(b"0"))
    of_first.wait(1)
    member = kafka.member(group, topic)
    refused: list[Message] = []
    until(lambda: refused.extend(member.consume(1, timeout=0.1)) or refused)
    assert refused[0].error().code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL
    (answer,) = kafka.admin.alter_consumer_group_offsets([moved])[group].result(10).topic_partitions
    assert answer.error.code() == KafkaError.UNKNOWN_MEMBER_ID
    kafka.send(topic, Record(b"1"))
    of_first.exactly(2, quiet_s=0)
    first.getDefaultMQPushConsumerImpl().persistConsumerOffset()  # Who leaves may say it too late.
    until(lambda: progress(clients, group, topic) == {0: 2})
    leave(clients, first)
    kafka.send(topic, Record(b"2"))

    # Kafka's consumer is let in, and RocketMQ's is not.
    def next_value() -> bytes | None:
        found: list[Message] = []
        until(lambda: found.extend(each for each in member.consume(1, timeout=0.1) if each.error() is None) or found)
        member.commit(found[0], asynchronous=False)
        return found[0].value()

    assert next_value() == b"2"
    second = clients.push(group)
    second.setHeartbeatBrokerInterval(200)
    second.subscribe(topic, "*")
    of_second = clients.listen(second)
    beat = heartbeat(clients, group, topic)
    with pytest.raises(Py4JJavaError, match=f"members of group '{group}' speak Kafka's protocol"):
        beat()
    assert refusal(beat) == SYSTEM_ERROR
    queue = clients.queue(topic, 0)
    update = clients.admin.updateConsumeOffset
    assert refusal(lambda: update(clients.address(topic, 0), group, queue, 1)) == SYSTEM_ERROR
    kafka.send(topic, Record(b"3"))
    assert next_value() == b"3"
    assert not is_there(clients, group)
    assert len(of_second) == 0
    assert kafka.committed(group, topic) == {0: 4}
    member.unsubscribe()
    member.poll(0)

    # RocketMQ's is let in with its next heartbeat.
    kafka.send(topic, Record(b"4"))
    of_second.exactly(1)
    assert of_second.bodies() == ["4"]


def test_progress_of_live_kafka_members_is_not_set_by_mqadmin(clients: Clients, kafka: Kafka) -> None:
    """They would not hear of it, and commit what they have. To Kafka's tools this is refused, too."""
    topic, group = clients.topic(), clients.name("group")
    kafka.send(topic, Record(b"0"), Record(b"1"))
    member = kafka.member(group, topic)
    take(member, 2)
    member.commit(asynchronous=False)
    assert refusal(lambda: clients.admin.resetOffsetByTimestamp(topic, group, 0, True)) == SYSTEM_ERROR
    assert kafka.committed(group, topic) == {0: 2}


def test_progress_of_live_rocketmq_members_is_not_deleted_by_kafkas_tools(clients: Clients, kafka: Kafka) -> None:
    """As it would not be under a member of Kafka's that is subscribed to the topic."""
    topic, group = clients.topic(), clients.name("group")
    kafka.send(topic, Record(b"0"))
    consumer = clients.push(group, topic)
    clients.listen(consumer).wait(1)
    consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset()
    until(lambda: progress(clients, group, topic) == {0: 1})
    with pytest.raises(KafkaException) as failure:
        kafka.admin.delete_consumer_groups([group])[group].result(10)
    assert failure.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    tools, place = KafkaAdminClient(bootstrap_servers=kafka.servers), ToolsPartition(topic, 0)
    refused = GroupSubscribedToTopicError, NonEmptyGroupError
    try:
        answer = tools.delete_group_offsets(group, [place])[place]
    except refused as error:
        answer = type(error)
    finally:
        tools.close()
    assert answer in refused
    assert kafka.committed(group, topic) == {0: 1}


# -- topics ------------------------------------------------------------------------------------------------------------


def queues(clients: Clients, topic: str) -> tuple[int, int, int]:
    """To read, to write, and permissions (6: both), as the name service says."""
    return queues_in(clients.admin.examineTopicRouteInfo(topic))


def partitions(kafka: Kafka, topic: str) -> list[int]:
    return sorted(kafka.admin.list_topics(topic, timeout=10).topics[topic].partitions)


def test_a_topics_partitions_are_its_queues(clients: Clients, kafka: Kafka) -> None:
    of_kafka, of_java = kafka.topic(clients.name("made"), 3), clients.topic(5)
    assert queues(clients, of_kafka) == (3, 3, 6)
    assert partitions(kafka, of_java) == [0, 1, 2, 3, 4]
    kafka.admin.create_partitions([NewPartitions(of_kafka, 4)])[of_kafka].result(10)
    assert queues(clients, of_kafka) == (4, 4, 6)
    config = clients.java.named(f"{COMMON}.TopicConfig")(of_java)
    config.setReadQueueNums(6)
    config.setWriteQueueNums(6)
    config.setPerm(6)
    clients.admin.createAndUpdateTopicConfig(clients.broker.rocketmq, config)
    assert partitions(kafka, of_java) == [0, 1, 2, 3, 4, 5]

    producer = clients.producer()
    for topic, count in (of_kafka, 4), (of_java, 6):
        for number in range(count):
            producer.send(clients.message(topic, None, f"to {number}"), clients.queue(topic, number))
            (message,) = kafka.read(topic, 1, number)
            assert (message.partition(), message.offset(), message.value()) == (number, 0, f"to {number}".encode())

    dotted = kafka.topic(f"{clients.name('made')}.with.dots", 2)
    assert queues(clients, dotted) == (2, 2, 4), "RocketMQ's producers take no such name"
    kafka.send(dotted, Record(b"read all the same"), partition=1)
    clients.consume(dotted).exactly(1, quiet_s=0)

    kafka.admin.delete_topics([of_kafka])[of_kafka].result(10)
    assert refusal(lambda: clients.admin.examineTopicRouteInfo(of_kafka)) == TOPIC_NOT_EXIST
    clients.admin.deleteTopicInBroker(clients.java.set([clients.broker.rocketmq]), of_java)
    assert of_java not in kafka.admin.list_topics(timeout=10).topics


def test_a_topic_whose_name_is_longer_than_rocketmqs_are(clients: Clients, kafka: Kafka) -> None:
    """Kafka's may have 249 characters. RocketMQ writes the length in one byte, signed, or in two (MessageVersion)."""
    topic = kafka.topic(clients.name("long").ljust(200, "x"))
    kafka.send(topic, Record(b"1"))
    result = clients.puller().pull(clients.queue(topic, 0), "*", 0, 32)
    assert [(message.getTopic(), content(message)) for message in result.getMsgFoundList()] == [(topic, b"1")]
