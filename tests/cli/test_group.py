from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer

from tests.cli.conftest import CommandLine


@pytest.fixture
def group(broker_cli: CommandLine, topic: str) -> Iterator[str]:
    """An empty group that has read 4 of the topic's 10 records."""
    broker_cli.ok("produce", topic, "-t", "1000", stdin=b"".join(b"%d\n" % n for n in range(8)))
    broker_cli.ok("produce", topic, "8", "9", "-t", "2000")
    name = f"{topic}-group"
    broker_cli.ok("consume", topic, "-g", name, "-c", "4")
    yield name
    broker_cli("group", "delete", name)


def test_list_by_state(broker_cli: CommandLine, group: str) -> None:
    listed = {row["group"]: row for row in broker_cli.ok("group", "list", "-o", "json").json()}
    assert listed[group]["state"] == "Empty"
    assert listed[group]["protocol"] == "consumer"
    assert group in broker_cli.ok("group", "list", "--state", "empty").out
    assert group not in broker_cli.ok("group", "list", "--state", "Stable").out


def test_groups_of_the_new_protocol(broker_cli: CommandLine, bootstrap_servers: str, group: str, topic: str) -> None:
    config = {"bootstrap.servers": bootstrap_servers, "group.id": group, "client.id": "c"}
    consumer = Consumer(config | {"group.protocol": "consumer"})
    try:
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(0.1)
        listed = {row["group"]: row for row in broker_cli.ok("group", "list", "-o", "json").json()}
        assert (listed[group]["state"], listed[group]["type"]) == ("Stable", "consumer")
        described = broker_cli.ok("group", "describe", group, "-o", "json").json()
        assert (described["state"], described["protocol"], described["lag"]) == ("Stable", "averagely", 6)
        (member,) = described["members"]
        assert (member["client"], member["host"]) == ("c", "/127.0.0.1")
        assert [row["member"] for row in described["partitions"]] == [member["member"]]
        refused = broker_cli("group", "reset", group, "--to-earliest", "--execute")
        assert "is Stable with 1 member: stop them first" in refused.failed_with(1)
    finally:
        consumer.close()
    assert broker_cli.ok("group", "reset", group, "--to-latest", "--execute", "-o", "json").json()["executed"]


def test_describe_shows_how_far_it_is(broker_cli: CommandLine, group: str, topic: str) -> None:
    described = broker_cli.ok("group", "describe", group, "-o", "json").json()
    assert (described["state"], described["members"], described["lag"]) == ("Empty", [], 6)
    assert described["partitions"] == [{"topic": topic, "partition": 0, "committed": 4, "end": 10, "lag": 6}]
    assert "lag       6" in broker_cli.ok("group", "describe", group).out


@pytest.mark.parametrize(
    ("flags", "new"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], 10),
        (["--to-offset", "7"], 7),
        (["--to-offset", "99"], 10),
        (["--to-time", "1500"], 8),
        (["--to-time", "2100-01-01"], 10),
        (["--shift-by", "2"], 6),
        (["--shift-by", "-99"], 0),
    ],
)
def test_reset_plans_then_executes(broker_cli: CommandLine, group: str, flags: list[str], new: int) -> None:
    planned = broker_cli.ok("group", "reset", group, *flags, "-o", "json").json()
    assert not planned["executed"]
    assert [(p["committed"], p["new"], p["change"]) for p in planned["partitions"]] == [(4, new, new - 4)]
    assert _committed(broker_cli, group) == 4, "a plan changes nothing"
    assert broker_cli.ok("group", "reset", group, *flags, "--execute", "-o", "json").json()["executed"]
    assert _committed(broker_cli, group) == new


def test_a_plan_says_that_it_is_one(broker_cli: CommandLine, group: str) -> None:
    assert "--execute applies it" in broker_cli.ok("group", "reset", group, "--to-latest").err
    assert broker_cli.ok("group", "reset", group, "--to-latest", "--execute").err == "The new offsets are committed.\n"


def test_a_new_group_can_be_given_a_place(broker_cli: CommandLine, topic: str) -> None:
    broker_cli.ok("produce", topic, "a", "b")
    new = f"{topic}-new"
    assert "specify --topic" in broker_cli("group", "reset", new, "--to-latest").failed_with(1)
    broker_cli.ok("group", "reset", new, "--topic", f"{topic}:0", "--to-offset", "1", "--execute")
    assert broker_cli.ok("consume", topic, "-g", new, "-e").out == "b\n"
    broker_cli.ok("group", "delete", new)


@pytest.mark.parametrize(
    ("scope", "said"),
    [("{topic}-none", "UNKNOWN_TOPIC_OR_PARTITION"), ("{topic}:7", "no partition 7"), ("{topic}:x", "is not TOPIC or")],
)
def test_a_scope_that_does_not_exist(broker_cli: CommandLine, group: str, topic: str, scope: str, said: str) -> None:
    flags = ["--topic", scope.format(topic=topic), "--to-latest"]
    assert said in broker_cli("group", "reset", group, *flags).failed_with(1)


def test_a_live_group_is_neither_reset_nor_deleted(
    broker_cli: CommandLine, program: Callable[..., subprocess.Popen[bytes]], group: str, topic: str
) -> None:
    member = program("consume", topic, "-g", group)
    assert member.stdout is not None
    assert [member.stdout.readline() for _ in range(6)][-1] == b"9\n"
    described = _stable(broker_cli, group)
    assert [partition["member"] for partition in described["partitions"]] == [described["members"][0]["member"]]
    assert "stop them first" in broker_cli("group", "reset", group, "--to-latest", "--execute").failed_with(1)
    assert "NON_EMPTY_GROUP" in broker_cli("group", "delete", group).failed_with(1)
    member.send_signal(signal.SIGINT)
    assert member.wait(timeout=20) == 0
    # Leaving commits and says goodbye: nothing to wait for.
    assert broker_cli.ok("group", "describe", group, "-o", "json").json()["state"] == "Empty"


def test_delete(broker_cli: CommandLine, group: str) -> None:
    assert broker_cli.ok("group", "delete", group).out == f"{group}: deleted\n"
    assert broker_cli("group", "describe", group).failed_with(1) == f"halfmoon: there is no group {group}"
    assert "GROUP_ID_NOT_FOUND" in broker_cli("group", "delete", group).failed_with(1)


def _stable(cli: CommandLine, group: str) -> Any:
    """What it is then. A member that has read something may be in the next rebalance already."""
    deadline = time.monotonic() + 30
    while (described := cli.ok("group", "describe", group, "-o", "json").json())["state"] != "Stable":
        assert time.monotonic() < deadline
    return described


def _committed(cli: CommandLine, group: str) -> int:
    (partition,) = cli.ok("group", "describe", group, "-o", "json").json()["partitions"]
    return int(partition["committed"])


def test_configurations_of_a_group(broker_cli: CommandLine, name: str) -> None:
    def configs(*options: str) -> dict[str, Any]:
        found: dict[str, Any] = broker_cli.ok("group", "configs", name, "-o", "json", *options).json()["configs"]
        return found

    assert configs() == {}
    every = configs("--all")
    assert every["share.delivery.count.limit"] == {"value": "5", "source": "DEFAULT_CONFIG"}
    assert broker_cli.ok("group", "alter", name, "--set", "share.delivery.count.limit=7").out == f"{name}: altered\n"
    assert configs() == {"share.delivery.count.limit": {"value": "7", "source": "DYNAMIC_GROUP_CONFIG"}}
    lines = broker_cli.ok("group", "configs", name).out.splitlines()
    assert [line.split() for line in lines] == [
        ["SETTING", "VALUE", "SOURCE"], ["share.delivery.count.limit", "7", "DYNAMIC_GROUP_CONFIG"]
    ]  # fmt: skip
    said = broker_cli.ok("group", "alter", name, f"{name}-2", "-c", "share.delivery.count.limit=8", "--dry-run").out
    assert said == f"{name}: would be altered\n{name}-2: would be altered\n"
    assert configs()["share.delivery.count.limit"]["value"] == "7"
    refused = broker_cli("group", "alter", name, "--set", "share.delivery.count.limit=many").failed_with(1)
    assert "expected an integer from 2 to 100" in refused
    broker_cli("group", "alter", name).failed_with(2)
    broker_cli("group", "alter", name, "--set", "no value").failed_with(2)
    broker_cli.ok("group", "alter", name, "--unset", "share.delivery.count.limit")
    assert configs() == {}
