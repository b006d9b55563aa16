"""`halfmoon message`: messages are found by their keys, and their histories told."""

from __future__ import annotations

import socket
import struct
import threading
import time
from typing import Any

import pytest

from halfmoon.schema.group_topics import dead_letter_topic, retry_topic
from halfmoon.testing import Broker
from tests.cli.conftest import CommandLine


@pytest.fixture(scope="session")
def bootstrap_servers(halfmoon_broker: Broker) -> str:
    """Keys are Halfmoon's own: no other broker is asked."""
    return halfmoon_broker.bootstrap_servers


def produce(broker_cli: CommandLine, topic: str, value: str, *headers: str) -> None:
    options = [word for header in headers for word in ("-H", header)]
    broker_cli.ok("produce", topic, value, "--key", "own", *options)


def test_find(broker_cli: CommandLine, topic: str) -> None:
    produce(broker_cli, topic, "first", "KEYS=a b")
    produce(broker_cli, topic, "second", "UNIQ_KEY=u", "KEYS=b")
    produce(broker_cli, topic, "later", "KEYS=b", "TIMER_DELAY_SEC=3600")
    found = broker_cli.ok("message", "find", "-t", topic, "-k", "b", "-o", "json").json_lines()
    assert [message["value"] for message in found] == ["later", "second", "first"]
    assert (found[2]["topic"], found[2]["partition"], found[2]["offset"]) == (topic, 0, 0)
    assert found[2]["headers"] == [{"name": "KEYS", "value": "a b"}]
    assert found[2]["due"] is None
    assert abs(found[0]["due"] / 1_000 - time.time() - 3_600) < 60
    assert found[0]["state"].startswith(f"for {topic}-0, ")
    lines = broker_cli.ok("message", "find", "-t", topic, "-k", "u").out.splitlines()
    assert lines[0].split() == ["TOPIC", "PARTITION", "OFFSET", "STORED", "STATE", "KEY", "VALUE"]
    assert lines[1].split()[:3] == [topic, "0", "1"]
    assert lines[1].split()[-3:] == ["-", "own", "second"]
    assert len(lines) == 2
    assert broker_cli.ok("message", "find", "-t", topic, "-k", "nobody", "-o", "json").out == ""
    assert broker_cli.ok("message", "find", "-t", topic, "-k", "own", "-o", "json").out == ""


def test_find_limits(broker_cli: CommandLine, topic: str) -> None:
    for at in range(3):
        produce(broker_cli, topic, str(at), "KEYS=k")
    outcome = broker_cli.ok("message", "find", "-t", topic, "-k", "k", "-c", "2", "-o", "json")
    assert [message["value"] for message in outcome.json_lines()] == ["2", "1"]
    assert "only the newest 2 are shown; there are older ones" in outcome.err
    first = broker_cli.ok("message", "find", "-t", topic, "-k", "k", "-o", "json").json_lines()[2]
    older = broker_cli.ok("message", "find", "-t", topic, "-k", "k", "--to", str(first["stored"]), "-o", "json")
    assert "0" in [message["value"] for message in older.json_lines()]
    assert broker_cli.ok("message", "find", "-t", topic, "-k", "k", "--to", "-1h", "-o", "json").out == ""
    newer = broker_cli.ok("message", "find", "-t", topic, "-k", "k", "--from", "-1h", "-o", "json")
    assert len(newer.json_lines()) == 3


def test_find_by_the_records_own_key(broker_cli: CommandLine, name: str) -> None:
    broker_cli.ok("topic", "create", name, "-p", "1", "-c", "halfmoon.key.index=true")
    produce(broker_cli, name, "v")
    (found,) = broker_cli.ok("message", "find", "-t", name, "-k", "own", "-o", "json").json_lines()
    assert found["value"] == "v"
    broker_cli("topic", "delete", name)


def test_show(broker_cli: CommandLine, topic: str) -> None:
    produce(broker_cli, topic, "v", "mine=x")
    for where in (("--offset", f"{topic}/0/0"), ("-t", topic, "--offset", "0"), ("-t", topic, "--offset", "0@0")):
        lines = broker_cli.ok("message", "show", *where).out.splitlines()
        assert ["offset", "0"] in [line.split() for line in lines]
        assert ["header", "mine", "x"] in [line.split() for line in lines]
        assert lines[-2].split() == ["WHEN", "EVENT", "TOPIC", "PARTITION", "OFFSET", "DETAIL"]
        assert lines[-1].split()[1:] == ["stored", topic, "0", "0", "-"]


def test_the_history_of_one_that_was_retried_and_given_up(broker_cli: CommandLine, topic: str, name: str) -> None:
    group = f"g-{name}"
    broker_cli.ok("topic", "create", retry_topic(group), "-p", "1")
    produce(broker_cli, topic, "v", "KEYS=k")
    produce(broker_cli, retry_topic(group), "v", f"RETRY_OF={topic}/0/0", "TIMER_DELAY_MS=1", "KEYS=k")
    deadline = time.monotonic() + 30
    while not broker_cli.ok("consume", retry_topic(group), "-e").out:
        assert time.monotonic() < deadline
    again = [f"RETRY_OF={retry_topic(group)}/0/0", f"ORIGIN_MESSAGE_ID={topic}/0/0", "RECONSUME_TIME=1", "DELAY=-1"]
    produce(broker_cli, retry_topic(group), "v", *again, "KEYS=k")
    (found,) = broker_cli.ok("message", "find", "-t", dead_letter_topic(group), "-k", "k", "-o", "json").json_lines()
    place = f"{found['topic']}/{found['partition']}/{found['offset']}"
    history = broker_cli.ok("message", "show", "--offset", place, "-o", "json").json()["history"]
    assert [(event["event"], event["topic"]) for event in history] == [
        ("stored", topic),
        ("nacked", "halfmoon.timers"),
        ("delivered", retry_topic(group)),
        ("dead-lettered", dead_letter_topic(group)),
    ]
    assert [event["what"] for event in history] == ["stored", "handed back", "delivered", "given up"], "the old words"
    assert history[1]["detail"] == f"by {group}, for {retry_topic(group)}-0"


@pytest.mark.parametrize(
    ("headers", "waiting"),
    [(("TIMER_DELAY_MS=1",), "halfmoon.timers"), (("TRAN_MSG=true", "PGROUP=shop"), "RMQ_SYS_TRANS_HALF_TOPIC")],
    ids=["delayed", "half"],
)
def test_the_history_of_a_scheduled_message_goes_on_after_its_delivery(
    broker_cli: CommandLine, topic: str, name: str, headers: tuple[str, ...], waiting: str
) -> None:
    """What was delivered, retried and dead-lettered has not ended undelivered."""
    group = f"g-{name}"
    retry = retry_topic(group)
    broker_cli.ok("topic", "create", retry, "-p", "1")
    produce(broker_cli, topic, "v", *headers, f"UNIQ_KEY={name}")
    if waiting != "halfmoon.timers":
        produce(broker_cli, "halfmoon.transactions", "", "PGROUP=shop", f"UNIQ_KEY={name}", "TRAN_STATE=commit")
    await_record(broker_cli, topic)
    produce(broker_cli, retry, "v", f"RETRY_OF={topic}/0/0", "TIMER_DELAY_MS=1")
    (again,) = await_record(broker_cli, retry)
    kept = [f"{header['name']}={header['value']}" for header in again["headers"]]
    produce(broker_cli, retry, "v", f"RETRY_OF={retry}/0/0", *kept, "DELAY=-1")
    dead = dead_letter_topic(group)
    for place in (f"{topic}/0/0", f"{retry}/0/0", f"{dead}/0/0"):
        history = broker_cli.ok("message", "show", "--offset", place, "-o", "json").json()["history"]
        assert [(event["event"], event["topic"]) for event in history] == [
            ("scheduled", waiting),
            ("delivered", topic),
            ("nacked", "halfmoon.timers"),
            ("delivered", retry),
            ("dead-lettered", dead),
        ], place


def await_record(broker_cli: CommandLine, topic: str) -> list[Any]:
    deadline = time.monotonic() + 30
    while not (found := broker_cli.ok("consume", topic, "-e", "-o", "json").json_lines()):
        assert time.monotonic() < deadline
    return found


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("find", "-t", "no-such-topic", "-k", "a"), "there is no topic 'no-such-topic'"),
        (("show", "--offset", "no-such-topic/0/0"), "there is no topic 'no-such-topic'"),
    ],
)
def test_what_is_refused(broker_cli: CommandLine, arguments: tuple[str, ...], said: str) -> None:
    assert said in broker_cli("message", *arguments).failed_with(1)


def test_no_such_place(broker_cli: CommandLine, topic: str) -> None:
    assert "there is no message at offset 7" in broker_cli("message", "show", "--offset", f"{topic}/0/7").failed_with(1)
    assert "has no partition 3" in broker_cli("message", "show", "--offset", f"{topic}/3/0").failed_with(1)


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "--offset", "7"),
        ("show", "--offset", "t/7"),
        ("show", "-t", "t", "--offset", "x"),
        ("show", "-t", "t", "--offset", "other/0/0"),
        ("find", "-t", "t", "-k", "a", "--from", "yesterday"),
    ],
)
def test_misused(broker_cli: CommandLine, arguments: tuple[str, ...]) -> None:
    broker_cli("message", *arguments).failed_with(2)


def test_at_a_broker_that_knows_no_such_question(cli: CommandLine) -> None:
    """A Kafka closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def hang_up() -> None:
            server.accept()[0].close()  # whether anybody is there
            connection, _ = server.accept()
            connection.recv(1 << 16)
            connection.sendall(struct.pack(">iihi", 10, 1, 0, 0))  # ApiVersions: none
            connection.recv(1 << 16)
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        said = cli("message", "find", "-t", "t", "-k", "a", "-b", f"127.0.0.1:{port}").failed_with(1)
        thread.join()
    assert "it is not Halfmoon" in said


def test_nobody_answers(cli: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    said = cli("message", "find", "-t", "t", "-k", "a", "-b", f"127.0.0.1:{port}").failed_with(1)
    assert said.startswith(f"halfmoon: no broker answers at 127.0.0.1:{port}")
