"""Every header that Halfmoon interprets, with extreme values, written by any Kafka producer: all readers go on.

A record with such a header is refused as INVALID_RECORD, or stored; and then no reader of any kind stops at it, and
nothing that is waiting for anything else is passed over.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Any

import pytest
from rocketmq_rig import Rig, RigClient

from halfmoon.adapters.rocketmq import names, to_messages, to_records
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.records.batches import build_batch, iter_records
from halfmoon.core.steps import Steps
from halfmoon.errors import BrokerError, Fault
from halfmoon.kafka.nacking import attempts, original_topic
from halfmoon.kafka.outbox import TransactionalOutbox
from halfmoon.plugins.store.delay import delays as delay
from halfmoon.plugins.store.retry import plugin as retry
from halfmoon.plugins.store.transaction import half_messages as transaction
from halfmoon.remoting.message import decode_stored
from halfmoon.schema import lifetimes
from halfmoon.services.keyindex import history

END = "halfmoon.transactions"
NAMES = sorted(
    {
        *delay.NAMES, delay.CANCEL, delay.UNIQ_KEY, delay.DELAYED, delay.ORIGINAL_TIMESTAMP,
        retry.TIMES, retry.LIMIT, retry.OF, retry.TOPIC, retry.ORIGIN, retry.REASON,
        transaction.HALF, transaction.GROUP, transaction.KEY, transaction.STATE, transaction.CHECK_TIMES,
        transaction.REAL_TOPIC, history.ORIGIN_HEADER, history.REASON_HEADER,
        lifetimes.TTL, lifetimes.EXPIRES, lifetimes.CONSUMED_TIMESTAMP,
        *(value.decode() for module in (to_messages, to_records) for value in vars(module).values()
          if isinstance(value, bytes) and value.replace(b"_", b"").replace(b".", b"").replace(b"-", b"").isalpha()),
        "REAL_QID", "TAGS", "amount",
    }
)  # fmt: skip

DIGITS = b"9" * 5_000
VALUES = (
    None, b"", b"0", b"-1", b"1", b"2147483648", b"-9223372036854775808", b"18446744073709551616", DIGITS,
    b"-" + DIGITS, b"+1", b" 1", b"1_000", b"1e400", b"\xb2", "\u0663".encode(), b"\xff\xfe", b"\0\1\2\3", b"true",
    b"x" * 40_000,
    b"orders/0/0", b"orders/0/" + DIGITS, b"orders/" + DIGITS + b"/0", DIGITS + b"/0/0", b"orders/-1/0", b"//", b"/",
    b"orders/0/9223372036854775807", b"retry.g/0/0", b"DELAY=" + DIGITS, b"=", b"[::1]:" + DIGITS, b"1.2.3.4:-5",
)  # fmt: skip
ROUND = 30_001


class Readers:
    """A broker with clients of all kinds that wait, and one that reads all there is."""

    def __init__(self) -> None:
        self.rig = Rig()
        for name in ("orders", "other"):
            self.rig.topic(name)
        self.client = self.rig.client()
        self.producer = self.rig.client()
        self.producer.beat("producer", producers=["g"])
        self.outbox = TransactionalOutbox("g", None)

    def produce(self, topic: str, *headers: tuple[str, bytes | None], key: bytes = b"k") -> Fault | None:
        """As any Kafka producer; why it was refused."""
        broker = self.rig.broker
        found = broker.catalog.by_name.get(topic)
        partition = (found or broker.create_topic(topic, 1)[0]).partitions[0]
        batch = memoryview(bytearray(build_batch([(key, b"value", 5, headers)])))
        try:
            broker.append(partition, batch, self.rig.clock.now_ms)
        except BrokerError as error:
            return error.fault
        return None

    def waiting(self) -> list[RigClient]:
        """Consumers that wait: for anything, for a tag, for an expression; and one of another topic."""
        found = []
        for topic, kind, expression in (
            ("orders", "TAG", "*"),
            ("orders", "TAG", "a"),
            ("orders", "SQL92", "amount > 3 AND RECONSUME_TIME IS NULL"),
            ("other", "TAG", "*"),
        ):
            client = self.rig.client()
            end = self.rig.broker.catalog.by_name[topic].partitions[0].stable_offset
            client.send(
                11, consumerGroup="readers", topic=topic, queueId=0, queueOffset=end, maxMsgNums=32, sysFlag=6,
                commitOffset=0, suspendTimeoutMillis=15_000, subscription=expression, subVersion=0, expressionType=kind,
            )  # fmt: skip
            found.append(client)
        return found

    def read_all(self, begun: dict[str, int]) -> None:
        """All topics as both protocols have them, and what becomes of each message there."""
        rig, client = self.rig, self.client
        for topic in list(rig.broker.catalog.by_name.values()):
            for partition in () if topic.internal else topic.partitions:
                self._read(client, names.to_rocketmq(topic.name), partition, begun)

    def _read(self, client: RigClient, name: str, partition: Partition, begun: dict[str, int]) -> None:
        place = f"{name}/{partition.index}"
        offset = first = begun.get(place, partition.start_offset)
        while offset < partition.stable_offset:
            answer = client.pull(name, offset, partition.index)
            assert answer.code in (0, 20), (name, offset, answer.code, answer.remark)
            for message in decode_stored(answer.body):
                dict(to_messages.properties.decode(message.properties))
                found = client.ask(33, offset=message.physical_offset)
                assert found.code == 0, (name, message.queue_offset, found.remark)
                finish(self.rig.broker.messages.show(partition, message.queue_offset))
            after = int(answer.fields["nextBeginOffset"])
            assert after > offset
            offset = after
        begun[place] = offset
        if offset == first:
            return
        for piece in self.rig.broker.read(partition, first, 4 << 20, min_one=True).slices:
            for record in iter_records(piece):
                made = _Record(partition.topic.name, record.headers)
                attempts(made)
                original_topic(made)
                if partition.topic.name == "check.g":
                    self.outbox.transaction_of(made)


def finish(steps: Steps[Any]) -> None:
    """Carry out steps of which some are for a thread."""
    value = None
    with contextlib.suppress(StopIteration):
        while True:
            value = steps.send(value)()


class _Record:
    """As kafka-python's ConsumerRecord."""

    partition = offset = 0
    key = value = None

    def __init__(self, topic: str, headers: Any) -> None:
        self.topic = topic
        self.headers = list(headers)


@pytest.mark.parametrize("name", NAMES)
def test_no_value_of_a_header_stops_a_reader(name: str, caplog: pytest.LogCaptureFixture) -> None:
    readers = Readers()
    rig = readers.rig
    orders = rig.broker.catalog.by_name["orders"].partitions[0]
    begun: dict[str, int] = {}
    base = {"UNIQ_KEY": b"u", "TAGS": b"a", "amount": b"5"}
    with caplog.at_level(logging.ERROR):
        for number, value in enumerate(VALUES):
            unique = b"u%d" % number
            half = {"TRAN_MSG": b"true", "PGROUP": b"g", "UNIQ_KEY": unique}
            waiting = readers.waiting()
            before = orders.stable_offset
            end = {"PGROUP": b"g", "UNIQ_KEY": unique, "TRAN_STATE": b"commit"}
            refusals = [
                readers.produce("orders", *(base | {name: value}).items()),
                readers.produce("orders", (name, value), (name, b"1"), (name, value)),
                readers.produce("other", ("amount", b"1")),
                readers.produce("retry.g", *(base | {name: value}).items()),
                readers.produce("retry.g", *({"RETRY_OF": b"orders/0/%d" % number} | {name: value}).items()),
                readers.produce("orders", *(half | {name: value}).items()),
                readers.produce(END, *(end | {name: value}).items()),
            ]
            assert set(refusals) <= {None, Fault.INVALID_RECORD}
            rig.turns()
            assert waiting[3].answers(), "a consumer of another topic was passed over"
            assert bool(waiting[0].answers()) == (orders.stable_offset > before), "else they wait for a time"
            for client in waiting:
                client.close()
            rig.pass_time(ROUND)
            rig.turns()
            readers.read_all(begun)
        rig.pass_time(8 * 3_600_000)
        rig.turns()
        readers.read_all(begun)
    assert not [record.getMessage() for record in caplog.records], "nothing was logged as an error"


def test_a_half_message_with_such_a_header_ends_no_check_backs_of_its_group(caplog: pytest.LogCaptureFixture) -> None:
    readers = Readers()
    readers.rig.broker.create_topic("check.g", 1)
    for number in range(3):
        poison = ("ORIGIN_MESSAGE_ID", b"orders/0/" + DIGITS)
        half = (("TRAN_MSG", b"true"), ("PGROUP", b"g"), ("UNIQ_KEY", b"u%d" % number))
        assert readers.produce("orders", *half, *([poison] if number == 1 else [])) is None
    readers.producer.beat("producer", producers=["g"])
    readers.rig.pass_time(6_001)
    readers.rig.turns()
    readers.producer.answers()
    assert [each.fields["msgId"] for each in readers.producer.told] == ["u0", "u1", "u2"]
