"""`halfmoon dlq`: dead letters are listed, shown, and replayed once."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from halfmoon.schema.group_topics import dead_letter_topic, retry_topic
from halfmoon.testing import Broker
from tests.cli.conftest import CommandLine


@pytest.fixture(scope="session")
def bootstrap_servers(halfmoon_broker: Broker) -> str:
    """Dead letters are Halfmoon's own: no other broker is asked."""
    return halfmoon_broker.bootstrap_servers


@pytest.fixture
def group(broker_cli: CommandLine, name: str) -> Iterator[str]:
    """A group whose name is no topic's, whose dead letters are a (tag paid), b (tag open) and c (tag paid)."""
    group = f"{name} & co"
    broker_cli.ok("topic", "create", retry_topic(group), "-p", "1")
    for value, tag in (("a", "paid"), ("b", "open"), ("c", "paid")):
        broker_cli.ok(
            "produce", retry_topic(group), value, "--key", f"k{value}", "-H", f"TAGS={tag}", "-H", "DELAY=-1",
            "-H", "RECONSUME_TIME=16", "-H", "RETRY_TOPIC=orders",
        )  # fmt: skip
    yield group
    broker_cli("topic", "delete", retry_topic(group), dead_letter_topic(group))


def replayed(broker_cli: CommandLine, group: str) -> str:
    return broker_cli.ok("consume", retry_topic(group), "-e", "-f", "%s ").out


def test_list(broker_cli: CommandLine, group: str) -> None:
    row = {"group": group, "dead_letters": 3, "letters": 3, "topic": dead_letter_topic(group)}
    assert broker_cli.ok("dlq", "list", f"{group}*", "-o", "json").json() == [row]
    lines = broker_cli.ok("dlq", "list", f"{group}*").out.splitlines()
    assert lines[0].split() == ["GROUP", "DEAD-LETTERS", "TOPIC"]
    assert lines[1].startswith(group)
    assert lines[1].endswith(f"3  {dead_letter_topic(group)}")


def test_show(broker_cli: CommandLine, group: str) -> None:
    lines = broker_cli.ok("dlq", "show", group).out.splitlines()
    assert lines[0].split() == ["OFFSET", "TOPIC", "TIMES", "REASON", "KEY", "VALUE"]
    assert lines[1].split() == ["0", "orders", "16", "negatively", "acknowledged", "16", "times", "ka", "a"]
    assert len(lines) == 4
    found = broker_cli.ok("dlq", "show", group, "--tag", "paid", "-o", "json").json_lines()
    assert [(record["offset"], record["value"]) for record in found] == [(0, "a"), (2, "c")]
    found = broker_cli.ok("dlq", "show", group, "--from-offset", "1", "--to-offset", "1", "-o", "json").json_lines()
    assert [record["value"] for record in found] == ["b"]


def test_replay(broker_cli: CommandLine, group: str) -> None:
    target = retry_topic(group)
    assert broker_cli.ok("dlq", "replay", group, "--dry-run").out == f"3 dead letters would be replayed to {target}\n"
    assert replayed(broker_cli, group) == ""
    assert broker_cli.ok("dlq", "replay", group, "--tag", "open").out == f"1 dead letter replayed to {target}\n"
    (record,) = broker_cli.ok("consume", target, "-e", "-o", "json").json_lines()
    headers = {header["name"]: header["value"] for header in record["headers"]}
    assert (record["key"], record["value"]) == ("kb", "b")
    assert headers == {
        "TAGS": "open",
        "RETRY_TOPIC": "orders",  # as in the dead letter: where it was first consumed, not the dead letters' topic
        "RECONSUME_TIME": "1",
        "ORIGIN_MESSAGE_ID": f"{dead_letter_topic(group)}/0/1",
    }


def test_a_replay_hands_each_back_once(broker_cli: CommandLine, group: str) -> None:
    for _ in range(3):
        found = broker_cli.ok("dlq", "replay", group, "-o", "json").json()
        counts = {"dead_letters": 3, "letters": 3}
        assert found == {"group": group, **counts, "topic": retry_topic(group), "dry_run": False}
    assert replayed(broker_cli, group) == "a b c "
    assert len(broker_cli.ok("dlq", "show", group, "-o", "json").json_lines()) == 3


def test_a_replay_takes_its_time(broker_cli: CommandLine, group: str) -> None:
    begun = time.monotonic()
    broker_cli.ok("dlq", "replay", group, "--rate", "10")
    assert time.monotonic() - begun >= 0.2
    assert replayed(broker_cli, group) == "a b c "


def test_a_group_without_dead_letters(broker_cli: CommandLine, name: str) -> None:
    for command in ("show", "replay"):
        said = broker_cli("dlq", command, name).failed_with(1)
        assert said.startswith(f"halfmoon: {name}: the group has no dead letters")


def test_a_filter_that_cannot_be_read(broker_cli: CommandLine, group: str) -> None:
    assert "line 1, column 4" in broker_cli("dlq", "replay", group, "--sql", "a >").failed_with(2)
