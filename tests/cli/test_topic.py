from __future__ import annotations

from typing import Any

import pytest
from kafka.errors import NotLeaderForPartitionError

from halfmoon.cli.admin_client import AdminClient
from tests.cli.conftest import CommandLine


def test_create_list_describe_delete(broker_cli: CommandLine, name: str) -> None:
    assert broker_cli.ok("topic", "create", name, "-p", "3", "-c", "retention.ms=3600000").out == f"{name}: created\n"
    (listed,) = broker_cli.ok("topic", "list", name, "-o", "json").json()
    assert (listed["topic"], listed["partitions"], listed["internal"]) == (name, 3, False)
    (described,) = broker_cli.ok("topic", "describe", name, "-o", "json").json()
    assert [part["partition"] for part in described["partitions"]] == [0, 1, 2]
    assert described["configs"]["retention.ms"]["value"] == "3600000"
    assert broker_cli.ok("topic", "delete", name).out == f"{name}: deleted\n"
    assert broker_cli.ok("topic", "list", name, "-o", "json").json() == []


def test_describe_counts_records(broker_cli: CommandLine, topic: str) -> None:
    broker_cli.ok("produce", topic, "a", "b")
    (described,) = broker_cli.ok("topic", "describe", topic, "-o", "json").json()
    assert [(part["start"], part["end"], part["records"]) for part in described["partitions"]] == [(0, 2, 2)]
    assert "records     2" in broker_cli.ok("topic", "describe", topic).out


def test_a_leader_that_has_just_changed_is_looked_for_again(
    broker_cli: CommandLine, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a command fails while a shard moves from one node to another."""
    refusals = 2
    offsets = AdminClient.offsets

    def refused(*given: Any) -> Any:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise NotLeaderForPartitionError
        return offsets(*given)

    monkeypatch.setattr(AdminClient, "offsets", refused)
    (described,) = broker_cli.ok("topic", "describe", topic, "-o", "json").json()
    assert described["partitions"][0]["end"] == 0
    assert not refusals


def test_an_existing_topic_is_an_error_unless_said_otherwise(broker_cli: CommandLine, topic: str) -> None:
    assert f"{topic}: TOPIC_ALREADY_EXISTS" in broker_cli("topic", "create", topic).failed_with(1)
    assert broker_cli.ok("topic", "create", topic, "--if-not-exists").out == f"{topic}: exists\n"


def test_a_dry_run_creates_nothing(broker_cli: CommandLine, name: str) -> None:
    assert broker_cli.ok("topic", "create", name, "-p", "1", "--dry-run").out == f"{name}: would be created\n"
    assert broker_cli.ok("topic", "list", name, "-o", "json").json() == []


def test_alter_sets_unsets_and_adds_partitions(broker_cli: CommandLine, topic: str) -> None:
    broker_cli.ok("topic", "alter", topic, "-c", "retention.ms=7200000", "-c", "max.message.bytes=2000000")
    broker_cli.ok("topic", "alter", topic, "--unset", "retention.ms", "-p", "2")
    (described,) = broker_cli.ok("topic", "describe", topic, "-o", "json").json()
    assert described["configs"]["max.message.bytes"]["value"] == "2000000"
    assert described["configs"].get("retention.ms", {}).get("source") != "DYNAMIC_TOPIC_CONFIG"
    assert len(described["partitions"]) == 2


def test_a_setting_nobody_knows_is_refused(broker_cli: CommandLine, topic: str) -> None:
    assert "no.such.setting" in broker_cli("topic", "alter", topic, "-c", "no.such.setting=1").failed_with(1)


def test_partitions_do_not_shrink(broker_cli: CommandLine, topic: str) -> None:
    broker_cli.ok("topic", "alter", topic, "-p", "3")
    assert "INVALID_PARTITIONS" in broker_cli("topic", "alter", topic, "-p", "2").failed_with(1)


@pytest.mark.parametrize("command", ["describe", "delete", "alter"])
def test_a_topic_that_is_not_there(broker_cli: CommandLine, name: str, command: str) -> None:
    more = ["-p", "2"] if command == "alter" else []
    assert f"{name}: UNKNOWN_TOPIC_OR_PARTITION" in broker_cli("topic", command, name, *more).failed_with(1)


def test_all_is_done_even_where_one_fails(broker_cli: CommandLine, topic: str, name: str) -> None:
    outcome = broker_cli("topic", "delete", f"{name}-none", topic, "-o", "json")
    assert outcome.code == 1
    assert [(row["topic"], row["ok"]) for row in outcome.json()] == [(f"{name}-none", False), (topic, True)]


def test_what_has_no_effect_is_marked(broker_cli: CommandLine, name: str) -> None:
    broker_cli.ok("topic", "create", name, "-c", "segment.ms=60000", "-c", "retention.ms=3600000")
    (described,) = broker_cli.ok("topic", "describe", name, "-o", "json").json()
    assert described["configs"]["segment.ms"] == {
        "value": "60000", "source": "DYNAMIC_TOPIC_CONFIG", "note": "no effect here",
    }  # fmt: skip
    assert "note" not in described["configs"]["retention.ms"]
    lines = broker_cli.ok("topic", "describe", name).out.splitlines()
    assert [line.endswith("no effect here") for line in lines if line.startswith(("retention.ms", "segment.ms"))] == [
        False, True,
    ]  # fmt: skip
    assert any("no effect here" in line for line in broker_cli.ok("topic", "describe", name, "--all").out.splitlines())
