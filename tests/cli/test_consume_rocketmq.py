"""`halfmoon consume --protocol rocketmq`: what both protocols have produced."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest
from kafka import KafkaConsumer

from halfmoon.cli import rocketmq_consume
from halfmoon.client import ConnectionFailedError, PullResult, PullStatus, Queue
from halfmoon.testing import Broker
from tests.cli.conftest import CommandLine
from tests.several_workers import one_broker_of_rocketmq

MQ = ("--protocol", "rocketmq")


@pytest.fixture(scope="session")
def bootstrap_servers(rocketmq_broker: Broker) -> str:
    """Name servers are Halfmoon's and RocketMQ's: no Kafka is asked."""
    return rocketmq_broker.bootstrap_servers


@pytest.fixture(autouse=True)
def _namesrv(cli: CommandLine, rocketmq_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALFMOON_NAMESRV", rocketmq_broker.namesrv)


@pytest.fixture
def ten(broker_cli: CommandLine, topic: str) -> str:
    """A topic with the messages 0…9."""
    broker_cli.ok("produce", topic, *MQ, stdin=b"".join(b"%d\n" % number for number in range(10)))
    return topic


@pytest.mark.parametrize(
    ("flags", "printed"),
    [
        ([], "0123456789"),
        (["--from", "end"], ""),
        (["--from", "-1h"], "0123456789"),
        (["--from", "2100-01-01"], ""),
        (["--offset", "7"], "789"),
        (["--offset", "-2"], "89"),
        (["--offset", "99"], ""),
        (["--offset", "-99"], "0123456789"),
        (["-c", "3"], "012"),
        (["-c", "3", "--offset", "8"], "89"),
    ],
)
def test_from_where_and_how_many(broker_cli: CommandLine, ten: str, flags: list[str], printed: str) -> None:
    assert broker_cli.ok("consume", ten, "-e", "-f", "%s", *flags, *MQ).out == printed


def test_from_a_time_at_which_it_was_stored(broker_cli: CommandLine, ten: str) -> None:
    time.sleep(0.01)
    now_ms = time.time_ns() // 1_000_000
    broker_cli.ok("produce", ten, "new", *MQ)
    assert broker_cli.ok("consume", ten, "-e", "--from", str(now_ms), *MQ).out == "new\n"


def test_more_than_a_pull_gives(broker_cli: CommandLine, topic: str) -> None:
    lines = b"".join(b"%d\n" % number for number in range(1_000))
    broker_cli.ok("produce", topic, stdin=lines)
    assert broker_cli.ok("consume", topic, "-e", *MQ).out.encode() == lines
    assert broker_cli.ok("consume", topic, "-c", "500", *MQ).out.encode() == b"".join(lines.splitlines(True)[:500])


@one_broker_of_rocketmq
def test_the_last_ones_over_all_queues_in_order_of_time(broker_cli: CommandLine, name: str) -> None:
    broker_cli.ok("topic", "create", name, "-p", "2", "-c", "retention.ms=-1")
    for number in range(6):
        # By Kafka: who sends to a name server has no say in the time.
        broker_cli.ok("produce", name, str(number), "-p", str(number % 2), "-t", str(1000 + number))
    assert broker_cli.ok("consume", name, "--last", "3", "-f", "%s", *MQ).out == "345"
    assert broker_cli.ok("consume", name, "--last", "99", "-f", "%s", *MQ).out == "012345"
    assert broker_cli.ok("consume", name, "-e", "-p", "1", "-f", "%s", *MQ).out == "135"


def test_a_message_is_the_same_record_in_both_protocols(broker_cli: CommandLine, topic: str) -> None:
    broker_cli.ok("produce", topic, "a", "-k", "K", "-H", "TAGS=paid", "-H", "x=1", *MQ)
    broker_cli.ok("produce", topic, "b", "-k", "S", "-H", "KEYS=k1 k2", *MQ)
    broker_cli.ok("produce", topic, "c", "-k", "K", "-H", "KEYS=K", "-t", "1234")
    ours = broker_cli.ok("consume", topic, "-e", "-o", "json", *MQ).json_lines()
    kafkas = broker_cli.ok("consume", topic, "-e", "-o", "json").json_lines()
    for record in (*ours, *kafkas):
        # One of the two is for Kafka's clients only, the other one for RocketMQ's.
        record["headers"] = [each for each in record["headers"] if each["name"] not in ("__BORNHOST", "CLUSTER")]
    assert ours == kafkas
    assert [(record["key"], record["value"]) for record in ours] == [("K", "a"), ("S", "b"), ("K", "c")]
    assert ours[2]["timestamp"] == 1234


def test_a_record_of_kafka_reads_as_a_message(broker_cli: CommandLine, topic: str) -> None:
    broker_cli.ok("produce", topic, "v", "-k", "K", "-H", "TAGS=paid")
    (record,) = broker_cli.ok("consume", topic, "-e", "-o", "json", "--tag", "paid", *MQ).json_lines()
    headers = {header["name"]: header["value"] for header in record["headers"]}
    assert (record["key"], record["value"], headers["KEYS"], headers["TAGS"]) == ("K", "v", "K", "paid")


@pytest.fixture
def orders(broker_cli: CommandLine, name: str) -> str:
    """Five messages a to e, with tags and prices; e has neither."""
    broker_cli.ok("topic", "create", name, "-p", "1")
    for value, tag, price in (("a", "paid", 5), ("b", "refunded", 15), ("c", "paid", 25), ("d", "Paid", 15)):
        broker_cli.ok("produce", name, value, "-H", f"TAGS={tag}", "-H", f"price={price}", *MQ)
    broker_cli.ok("produce", name, "e", *MQ)
    return name


def test_only_what_a_filter_lets_through(broker_cli: CommandLine, orders: str) -> None:
    for flags, printed in (
        (["--tag", "paid"], "ac"),
        (["--tag", "paid || refunded"], "abc"),
        (["--tag", "*"], "abcde"),
        (["--sql", "price BETWEEN 10 AND 20"], "bd"),
        (["--sql", "TAGS IS NULL"], "e"),
        (["--filter", "sql92:TAGS IS NULL"], "e"),
        (["--sql", "price > 5 AND TAGS = 'paid'"], "c"),
        (["--sql", "price > 5", "-c", "2"], "bc"),
        (["--sql", "price > 99"], ""),
    ):
        assert broker_cli.ok("consume", orders, "-e", "-f", "%s", *flags, *MQ).out == printed, flags


def test_a_group_passes_over_what_its_filter_leaves_out(broker_cli: CommandLine, orders: str, name: str) -> None:
    member = ["consume", orders, "-f", "%s", *MQ, "-g"]
    assert broker_cli.ok(*member, f"{name}-tag", "--tag", "paid", "-c", "2").out == "ac"
    assert broker_cli.ok(*member, f"{name}-tag", "-e").out == "de"
    assert broker_cli.ok(*member, f"{name}-sql", "--sql", "price = 15", "-e").out == "bd"
    assert broker_cli.ok(*member, f"{name}-sql", "-e").out == "", "what stands behind the last match was passed over"


def test_a_group_goes_on_where_it_was_by_either_protocol(broker_cli: CommandLine, ten: str, name: str) -> None:
    member = ["consume", ten, "-g", f"{name}-group", "-f", "%s"]
    assert broker_cli.ok(*member, "-c", "4", *MQ).out == "0123"
    assert broker_cli.ok(*member, "-c", "2").out == "45"
    assert broker_cli.ok(*member, "-e", *MQ).out == "6789"
    assert broker_cli.ok(*member, "-e").out == ""


def test_a_group_that_speaks_kafkas_protocol_now(
    broker_cli: CommandLine, ten: str, name: str, rocketmq_broker: Broker
) -> None:
    """What the broker says of it is what the command says."""
    member = KafkaConsumer(ten, bootstrap_servers=rocketmq_broker.bootstrap_servers, group_id=name)
    try:
        while not member.assignment():
            member.poll(1_000)  # one that ends while the member joins has it join again
        said = broker_cli("consume", ten, "-g", name, "-e", *MQ).failed_with(1)
    finally:
        member.close()
    assert said.startswith(f"halfmoon: members of group '{name}' speak Kafka's protocol now")


def test_several_topics(broker_cli: CommandLine, ten: str, name: str) -> None:
    broker_cli.ok("produce", f"{name}-two", "x", *MQ)
    expected = sorted([f"{ten}/{number}" for number in range(10)] + [f"{name}-two/x"])
    for flags in ([], ["-g", f"{name}-group"]):
        printed = broker_cli.ok("consume", ten, f"{name}-two", "-e", "-f", "%t/%s%n", *flags, *MQ).out.splitlines()
        assert sorted(printed) == expected


def test_a_topic_or_queue_that_is_not_there(broker_cli: CommandLine, topic: str, name: str) -> None:
    absent = f"{name}-none"
    for flags in ([], ["-g", f"{name}-group"], ["--last", "1"]):
        said = broker_cli("consume", absent, *flags, *MQ).failed_with(1)
        assert said == f"halfmoon: {absent}: there is no such topic"
    assert "there is no partition 5; it has 0 to 0" in broker_cli("consume", topic, "-p", "5", *MQ).failed_with(1)
    assert broker_cli.ok("topic", "list", absent, "-o", "json").json() == [], "consume must not create topics"


def test_an_empty_topic_is_at_its_end(broker_cli: CommandLine, topic: str, name: str) -> None:
    for flags in ([], ["-g", f"{name}-group"]):
        assert broker_cli.ok("consume", topic, "-e", *flags, *MQ).out == ""


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--tag", "a", "--sql", "b = 1", *MQ], "--tag and --sql exclude each other with --protocol rocketmq"),
        (["--sql", "price >", *MQ], "expected a property, a text, a number, NOT or (, found the end"),
        (["--sql", "price > 5", "--last", "3", *MQ], "--last excludes --tag, --sql and --filter"),
        (["-g", "g", "--offset", "3", *MQ], "--group excludes --partition and --offset"),
        (["-g", "g", "--from", "end", *MQ], "--from end is not supported with --group and --protocol rocketmq"),
        (["-b", "127.0.0.1:9092", *MQ], "--bootstrap-server is not supported with --protocol rocketmq"),
        (["--namesrv", "127.0.0.1:9876"], "--namesrv is not supported with --protocol kafka"),
    ],
)
def test_options_that_make_no_sense(broker_cli: CommandLine, flags: list[str], said: str) -> None:
    assert said in broker_cli("consume", "orders", *flags).failed_with(2)


def test_a_name_server_that_is_not_there(broker_cli: CommandLine) -> None:
    for flags in ([], ["-g", "group"]):
        said = broker_cli("consume", "t", *flags, *MQ, "--namesrv", "127.0.0.1:1").failed_with(1)
        assert "no name server answers at 127.0.0.1:1: Connection refused" in said


def test_a_group_whose_name_rocketmq_does_not_take(
    program: Callable[..., subprocess.Popen[bytes]], broker_cli: CommandLine, topic: str
) -> None:
    process = program("consume", topic, "-g", "a.b", *MQ)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert err.startswith(b"halfmoon: group 'a.b': expected 1 to 255 letters")
    assert err.count(b"\n") == 1


@one_broker_of_rocketmq
def test_what_comes_later_is_printed_from_every_queue_and_ctrl_c_ends_it(
    program: Callable[..., subprocess.Popen[bytes]], broker_cli: CommandLine, name: str
) -> None:
    broker_cli.ok("topic", "create", name, "-p", "2")
    broker_cli.ok("produce", name, "first", "-p", "0", *MQ)
    process = program("consume", name, *MQ)
    assert process.stdout is not None
    assert process.stdout.readline() == b"first\n"
    for queue in ("1", "0", "1"):
        began = time.monotonic()
        broker_cli.ok("produce", name, f"to {queue}", "-p", queue, *MQ)
        assert process.stdout.readline() == f"to {queue}\n".encode()
        assert time.monotonic() - began < rocketmq_consume.HOLD_S / 3
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=rocketmq_consume.HOLD_S / 3)
    assert (process.returncode, err) == (0, b"")


class _Broken:
    """A client whose broker cannot be reached for the first `failures` pulls."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.pulls = 0

    def pull(self, queue: Queue, offset: int, expression: str, **options: Any) -> str:
        self.pulls += 1
        if self.pulls <= self.failures:
            raise ConnectionFailedError("away")
        return f"{queue.queue_id}/{offset}/{expression}"


def test_a_broker_that_is_away_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocketmq_consume, "RETRY_PAUSE_S", 0)
    client: Any = _Broken(3)
    assert rocketmq_consume._pull(client, {"expression": "a"}, Queue("t", "b", 1), 5, 0) == "1/5/a"
    assert client.pulls == 4
    monkeypatch.setattr(rocketmq_consume, "RETRY_FOR_S", 0.01)
    client.failures = 1 << 30
    with pytest.raises(ConnectionFailedError):
        rocketmq_consume._pull(client, {"expression": "*"}, Queue("t", "b", 1), 5, 0)


def test_pulls_are_held_only_where_there_is_no_end() -> None:
    held: list[float] = []
    queue = Queue("t", "b", 0)

    def pull(queue: Queue, offset: int, hold_s: float) -> PullResult:
        held.append(hold_s)
        raise ConnectionFailedError("away")

    for end in (None, {queue: 5}):
        with pytest.raises(ConnectionFailedError):
            list(rocketmq_consume._read(pull, {queue: 3}, end, None))
    assert held == [rocketmq_consume.HOLD_S, 0]


def test_an_end_that_is_taken_away_meanwhile_is_not_waited_for() -> None:
    """The topic was deleted and made anew: no message stands where the end was."""
    queue = Queue("t", "b", 0)

    def pull(queue: Queue, offset: int, hold_s: float) -> PullResult:
        return PullResult(PullStatus.OFFSET_ILLEGAL, 0, 0, 0, [])

    assert list(rocketmq_consume._read(pull, {queue: 3}, {queue: 5}, None)) == []
