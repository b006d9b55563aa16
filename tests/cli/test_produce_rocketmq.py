"""`halfmoon produce --protocol rocketmq`: messages that both protocols read."""

from __future__ import annotations

import re
import select
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halfmoon.cli.input_records import Message
from halfmoon.cli.rocketmq_message import to_message
from halfmoon.client import Message as Made
from halfmoon.client import Producer, Queue, SendResult, SendStatus
from halfmoon.plugin import string_hash
from halfmoon.testing import Broker
from tests import several_workers
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


def test_values_of_the_command_line(broker_cli: CommandLine, topic: str) -> None:
    assert broker_cli.ok("produce", topic, "a", "b", *MQ).out == f"2 records to {topic} (partition 0)\n"
    assert broker_cli.ok("consume", topic, "-e", *MQ).out == "a\nb\n"
    assert broker_cli.ok("consume", topic, "-e").out == "a\nb\n", "a Kafka client reads the same"


def test_lines_of_stdin_with_keys(broker_cli: CommandLine, topic: str) -> None:
    broker_cli.ok("produce", topic, "-K", ":", "-Z", *MQ, stdin=b"k1:v1\nno key\n:v:3")
    for protocol in ((), MQ):
        printed = broker_cli.ok("consume", topic, "-e", "-f", "%k(%K)=%s%n", *protocol).out
        assert printed == "k1(2)=v1\n(-1)=no key\n(-1)=v:3\n"


def test_files(broker_cli: CommandLine, topic: str, tmp_path: Path) -> None:
    for name, content in (("a.json", b'{"n": 1,\n "m": 2}'), ("b.json", b'{"n": 3}')):
        (tmp_path / name).write_bytes(content)
    paths = [str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    broker_cli.ok("produce", topic, "--file", "--key-from-name", *paths, *MQ)
    for protocol in ((), MQ):
        target = tmp_path / f"to{len(protocol)}"
        flags = ["-e", "--to-files", str(target), "--file-name", "%k", "--sql", "value.n > 1"]
        assert broker_cli.ok("consume", topic, *flags, *protocol).out == f"{target}/b.json\n"
        assert {path.name: path.read_bytes() for path in target.iterdir()} == {"b.json": b'{"n": 3}'}


def test_many_lines_stay_in_order(broker_cli: CommandLine, topic: str) -> None:
    lines = b"".join(b"%d\n" % number for number in range(6_000))
    assert broker_cli.ok("produce", topic, *MQ, stdin=lines).out == f"6000 records to {topic} (partition 0)\n"
    assert broker_cli.ok("consume", topic, "-e", *MQ).out.encode() == lines


def test_a_key_a_tag_and_properties(broker_cli: CommandLine, topic: str) -> None:
    broker_cli.ok("produce", topic, "v", "-k", "order-17", "-H", "TAGS=paid", "-H", "region=HZ", *MQ)
    (record,) = broker_cli.ok("consume", topic, "-e", "-o", "json").json_lines()
    headers = {header["name"]: header["value"] for header in record["headers"]}
    assert (record["key"], record["value"]) == ("order-17", "v")
    assert (headers["KEYS"], headers["TAGS"], headers["region"]) == ("order-17", "paid", "HZ")


@one_broker_of_rocketmq
def test_a_key_chooses_the_queue(broker_cli: CommandLine, name: str) -> None:
    """As RocketMQ's Java producers choose it. The topic is made by sending; it has four queues."""
    lines = b"".join(b"key%d:x\n" % (number % 10) for number in range(40))
    answers = broker_cli.ok("produce", name, "-K", ":", "-o", "json", *MQ, stdin=lines).json_lines()
    chosen = [abs(string_hash(f"key{number % 10}")) % 4 for number in range(40)]
    assert [answer["partition"] for answer in answers] == chosen
    assert set(chosen) == {0, 1, 2, 3}
    pinned = broker_cli.ok("produce", name, "-K", ":", "-p", "2", "-o", "json", *MQ, stdin=lines).json_lines()
    assert {answer["partition"] for answer in pinned} == {2}


@one_broker_of_rocketmq
def test_without_a_key_each_request_goes_to_the_next_queue(broker_cli: CommandLine, name: str) -> None:
    answers = [broker_cli.ok("produce", name, "x", "-o", "json", *MQ).json() for _ in range(12)]
    assert len({answer["partition"] for answer in answers}) > 1


def test_messages_that_together_are_too_much_for_a_topic(broker_cli: CommandLine, name: str) -> None:
    """A batch that is refused is sent in parts, and the one that is too large alone is named."""
    broker_cli.ok("topic", "create", name, "-p", "1", "-c", "max.message.bytes=2000")
    lines = b"".join(b"%d\n" % number + b"x" * 500 + b"\n" for number in range(50))
    broker_cli.ok("produce", name, *MQ, stdin=lines)
    assert broker_cli.ok("consume", name, "-e").out.encode() == lines
    said = broker_cli("produce", name, *MQ, stdin=b"fits\n" * 30 + b"x" * 3_000 + b"\nnever\n").failed_with(1)
    broker = r"shard-\d\d" if several_workers.WORKERS else "halfmoon"
    assert re.match(f"halfmoon: record 31: code 13 of {broker}:", said)
    assert broker_cli.ok("consume", name, "-e", "--offset", "100").out == "fits\n" * 30


def test_json_says_where_each_message_went(broker_cli: CommandLine, topic: str) -> None:
    first, second = broker_cli.ok("produce", topic, "a", "b", "-o", "json", *MQ).json_lines()
    assert (first["topic"], first["partition"], first["offset"], second["offset"]) == (topic, 0, 0, 1)
    found = broker_cli.ok("message", "find", "-t", topic, "-k", second["message_id"], "-o", "json").json()
    assert (found["offset"], found["value"]) == (1, "b")


def test_what_consume_prints_as_json_can_be_produced(broker_cli: CommandLine, topic: str) -> None:
    broker_cli.ok("produce", topic, "-K", ":", "-H", "TAGS=t", "-H", "__FLAG=7", *MQ, stdin=b"k:\xff\xfe\nk2:x\n")
    first = broker_cli.ok("consume", topic, "-e", "-o", "json", *MQ)
    broker_cli.ok("produce", topic, "--json", *MQ, stdin=first.out.encode())
    both = broker_cli.ok("consume", topic, "-e", "-o", "json", *MQ).json_lines()
    # A copy has its own time and its own id.
    kept = [
        (record["key"], record.get("value"), record.get("value_base64"),
         [header for header in record["headers"] if header["name"] != "UNIQ_KEY"])
        for record in both
    ]  # fmt: skip
    assert kept[2:] == kept[:2]
    assert kept[0][:3] == ("k", None, "//4=")


def test_a_message_is_delivered_when_its_header_says(broker_cli: CommandLine, topic: str) -> None:
    """Several at once: none of them goes into a batch."""
    broker_cli.ok("produce", topic, "later", "later", "-H", "TIMER_DELAY_MS=300", *MQ)
    broker_cli.ok("produce", topic, "now", *MQ)
    assert broker_cli.ok("consume", topic, "-c", "3", *MQ).out == "now\nlater\nlater\n"


@pytest.mark.parametrize(
    ("key", "headers", "made"),
    [
        (b"K", {}, {"keys": "K"}),
        (b"K", {"KEYS": b"a b"}, {"keys": "a b", "sharding_key": "K"}),
        (b"a b", {"KEYS": b"a b"}, {"keys": "a b"}),
        (b"S", {"__SHARDINGKEY": b"S"}, {"sharding_key": "S"}),
        (None, {"DELAY": b"3", "WAIT": b"false"}, {"delay_level": 3, "wait_for_disk": False}),
        (None, {"TIMER_DELAY_SEC": b"2", "own": b"1"}, {"delay_ms": 2_000, "properties": {"own": "1"}}),
        (None, {"TIMER_DELIVER_MS": b"99", "__FLAG": b"-1"}, {"deliver_at_ms": 99, "flag": -1}),
        (None, {"UNIQ_KEY": b"7F", "CLUSTER": b"c", "__BORNHOST": b"h"}, {}),
    ],
)
def test_what_a_record_becomes(key: bytes | None, headers: dict[str, bytes], made: dict[str, Any]) -> None:
    assert to_message("t", Message(b"v", key, list(headers.items()))) == Made("t", b"v", **made)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["-k", "a\1b"], "record 1: property 'KEYS'"),
        (["-k", ""], "record 1: the key is empty"),
        (["-H", "TAGS="], "record 1: header TAGS is empty"),
        (["-H", "DELAY=soon"], "record 1: header DELAY: 'soon' is not a whole number"),
        (["-H", "WAIT=yes"], "record 1: header WAIT: 'yes' is neither true nor false"),
        (["-H", "DELAY=1", "-H", "TIMER_DELAY_MS=1"], "record 1: a message is delayed by a level, or"),
        (["-H", "TRAN_MSG=true"], "record 1: property 'TRAN_MSG' has a field, or a call, of its own"),
        (["-H", f"big={'x' * 40_000}"], "record 1: the properties take"),
        (["-p", "7"], "there is no partition 7; it has 0 to 0"),
    ],
)
def test_what_rocketmq_cannot_hold(broker_cli: CommandLine, topic: str, flags: list[str], said: str) -> None:
    assert said in broker_cli("produce", topic, "v", *flags, *MQ).failed_with(1)
    assert broker_cli.ok("consume", topic, "-e").out == ""


def test_a_message_without_a_value(broker_cli: CommandLine, topic: str) -> None:
    assert broker_cli("produce", topic, "a", "", *MQ).failed_with(1) == "halfmoon: record 2: a message needs a body"
    lines = b'{"key": "k", "value": null}\n'
    assert "record 1: a message needs a body" in broker_cli("produce", topic, "--json", *MQ, stdin=lines).failed_with(1)
    assert broker_cli.ok("consume", topic, "-e").out == "a\n"


@pytest.mark.parametrize(
    "line",
    [b'{"value": "v", "key_base64": "/w=="}', b'{"value": "v", "headers": [{"name": "h", "value_base64": "/w=="}]}'],
)
def test_text_that_is_none(broker_cli: CommandLine, topic: str, line: bytes) -> None:
    assert "is not UTF-8" in broker_cli("produce", topic, "--json", *MQ, stdin=line).failed_with(1)


def test_a_message_too_large_is_refused_in_one_line(broker_cli: CommandLine, topic: str) -> None:
    """By the broker, up to what a frame holds."""
    assert "4194304 are allowed" in broker_cli("produce", topic, *MQ, stdin=b"x" * 5_000_000).failed_with(1)
    assert "record 1: the body takes" in broker_cli("produce", topic, *MQ, stdin=b"x" * (16 << 20)).failed_with(1)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["-t", "2013-01-01", *MQ], "--timestamp is not supported with --protocol rocketmq"),
        (["-z", "lz4", *MQ], "--compression is not supported with --protocol rocketmq"),
        (["-b", "127.0.0.1:9092", *MQ], "--bootstrap-server is not supported with --protocol rocketmq"),
        (["-H", "UNIQ_KEY=7F", *MQ], "--header UNIQ_KEY is not supported with --protocol rocketmq"),
        (["--namesrv", "127.0.0.1:9876"], "--namesrv is not supported with --protocol kafka"),
    ],
)
def test_options_of_the_other_protocol(broker_cli: CommandLine, topic: str, flags: list[str], said: str) -> None:
    assert said in broker_cli("produce", topic, "v", *flags).failed_with(2)
    assert broker_cli.ok("consume", topic, "-e").out == ""


def test_a_name_server_that_is_not_there(broker_cli: CommandLine, rocketmq_broker: Broker) -> None:
    said = broker_cli("produce", "t", "v", *MQ, "--namesrv", "127.0.0.1:1").failed_with(1)
    assert "no name server answers at 127.0.0.1:1: Connection refused" in said
    said = broker_cli("produce", "t", "v", *MQ, "--namesrv", "127.0.0.1:x").failed_with(1)
    assert said == "halfmoon: '127.0.0.1:x' is not HOST:PORT"
    # Kafka's port hangs up.
    said = broker_cli("produce", "t", "v", *MQ, "--namesrv", rocketmq_broker.bootstrap_servers).failed_with(1)
    assert "topic 't': no name server answers" in said


def test_what_is_stored_less_safely_is_said(
    broker_cli: CommandLine, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a RocketMQ whose disk or slave is late: no failure, since a second try would store it twice."""

    def send(producer: Producer, message: Any, **options: Any) -> SendResult:
        return SendResult(SendStatus.FLUSH_DISK_TIMEOUT, "7F", "AB", Queue(topic, "b", 0), 0)

    monkeypatch.setattr(Producer, "send", send)
    outcome = broker_cli.ok("produce", topic, "a", *MQ)
    assert outcome.out == f"1 record to {topic} (partition 0)\n"
    assert outcome.err == "1 stored, but without the configured durability: FLUSH_DISK_TIMEOUT\n"


def test_name_servers_by_rocketmqs_own_variable(
    broker_cli: CommandLine, topic: str, rocketmq_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several of them: it is enough that one is there."""
    monkeypatch.delenv("HALFMOON_NAMESRV")
    monkeypatch.setenv("NAMESRV_ADDR", f"127.0.0.1:1;{rocketmq_broker.namesrv}")
    assert broker_cli.ok("produce", topic, "v", *MQ).out == f"1 record to {topic} (partition 0)\n"


def test_a_topic_that_is_not_made_by_sending(cli: CommandLine) -> None:
    listeners = {"rocketmq": {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0"}}
    with Broker(config={"listeners": listeners, "topics": {"auto_create": False}}) as strict:
        said = cli("produce", "t", "v", *MQ, "--namesrv", strict.namesrv).failed_with(1)
    assert said == "halfmoon: t: there is no such topic, and the broker does not create it automatically"


def test_ctrl_c_says_how_many_were_acknowledged(program: Callable[..., subprocess.Popen[bytes]], topic: str) -> None:
    process = program("produce", topic, "-o", "json", *MQ)
    assert process.stdin is not None
    assert process.stdout is not None
    # Answers are printed as further lines come: one that is printed says that it is up and running.
    while not select.select([process.stdout], [], [], 0.1)[0]:
        process.stdin.write(b"more\n")
        process.stdin.flush()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    said = re.match(rb"halfmoon: interrupted: (\d+) records? to (\S+) acknowledged", err)
    assert process.returncode == 130
    assert said is not None, err
    assert (int(said[1]), said[2].decode()) == (out.count(b"\n"), topic)
    assert err.count(b"\n") == 1
