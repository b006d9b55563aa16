"""`halfmoon schedule`, at a broker."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import CommandLine

NEVER = "0 0 1 1 *"


def shown(cli: CommandLine, topic: str, name: str) -> dict[str, Any]:
    (found,) = cli.ok("schedule", "show", name, "-t", topic, "-o", "json").json()
    assert isinstance(found, dict)
    return found


def test_create_list_show_pause_resume_cancel(broker_cli: CommandLine, topic: str) -> None:
    cli = broker_cli
    made = cli.ok("schedule", "create", "nightly", "run", "-t", topic, "-c", "30 2 * * *", "-z", "Europe/Berlin").out
    assert made.startswith(f"{topic}/0/nightly: active, next 20")
    (row,) = cli.ok("schedule", "list", "-t", topic, "-o", "json").json()
    assert (row["cron"], row["zone"], row["state"], row["missed"]) == ("30 2 * * *", "Europe/Berlin", "active", "once")
    assert (row["value"], row["key"], row["headers"], row["sent"], row["last"]) == ("run", None, [], 0, None)
    table = cli.ok("schedule", "list").out.splitlines()
    assert table[0].split() == ["TOPIC", "PARTITION", "NAME", "CRON", "ZONE", "STATE", "NEXT", "LAST", "SENT", "MISSED"]
    assert any(line.startswith(topic) and "nightly" in line for line in table[1:])
    assert cli.ok("schedule", "pause", "nightly", "-t", topic).out == f"{topic}/0/nightly: paused\n"
    assert shown(cli, topic, "nightly")["next"] == []
    assert cli.ok("schedule", "resume", "nightly", "-t", topic).out.startswith(f"{topic}/0/nightly: active, next")
    assert len(shown(cli, topic, "nightly")["next"]) == 5
    text = cli.ok("schedule", "show", "nightly", "-t", topic, "-n", "2").out
    assert "30 2 * * * (Europe/Berlin)" in text
    assert text.count("\nnext  20") == 2
    assert cli.ok("schedule", "cancel", "nightly", "-t", topic).out == f"{topic}/0/nightly: cancelled\n"
    assert cli.ok("schedule", "list", "-t", topic, "-o", "json").json() == []
    for command in ("show", "pause", "resume", "cancel"):
        assert "has no schedule 'nightly'" in cli("schedule", command, "nightly", "-t", topic).failed_with(1)


def test_its_messages_come(broker_cli: CommandLine, topic: str) -> None:
    cli = broker_cli
    cli.ok("schedule", "create", "tick", "on", "-t", topic, "-c", "* * * * * *", "-k", "k", "-H", "a=b")
    got = cli.ok("consume", topic, "-c", "2", "-o", "json").json_lines()
    cli.ok("schedule", "cancel", "tick", "-t", topic)
    first, second = ({each["name"]: each["value"] for each in one["headers"]} for one in got)
    assert [(each["key"], each["value"]) for each in got] == [("k", "on")] * 2
    assert first["a"] == "b"
    assert first["halfmoon.schedule"] == "tick"
    assert int(second["halfmoon.schedule-time"]) - int(first["halfmoon.schedule-time"]) == 1_000


def test_the_same_again_stays_and_another_is_refused(broker_cli: CommandLine, topic: str) -> None:
    cli = broker_cli
    once = "schedule", "create", "x", "-t", topic, "-c", NEVER
    cli.ok(*once)
    cli.ok("schedule", "pause", "x", "-t", topic)
    assert cli.ok(*once).out == f"{topic}/0/x: paused\n"
    assert "says something else" in cli(*once, "-k", "other").failed_with(1)
    cli.ok(*once, "-k", "other", "--replace")
    assert (shown(cli, topic, "x")["key"], shown(cli, topic, "x")["state"]) == ("other", "paused")


def test_values(broker_cli: CommandLine, topic: str, tmp_path: Path) -> None:
    cli = broker_cli
    file = tmp_path / "value"
    file.write_bytes(b"\xff\n")
    cli.ok("schedule", "create", "file", "-t", topic, "-c", NEVER, "-f", str(file), "--paused", "--missed", "skip")
    found = shown(cli, topic, "file")
    assert (found["value_base64"], found["state"], found["missed"]) == ("/wo=", "paused", "skip")
    cli.ok("schedule", "create", "stdin", "-t", topic, "-c", NEVER, "-f", "-", stdin=b"of stdin")
    assert shown(cli, topic, "stdin")["value"] == "of stdin"
    assert "exclude" in cli("schedule", "create", "y", "v", "-t", topic, "-c", NEVER, "-f", "-").err
    missing = cli("schedule", "create", "y", "-t", topic, "-c", NEVER, "-f", str(tmp_path / "no")).failed_with(1)
    assert "No such file" in missing


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("x", "-c", "61 * * * *"), "bad minute"),
        (("x", "-c", NEVER, "-z", "Mars/Base"), "no time zone 'Mars/Base'"),
        (("a b", "-c", NEVER), "a schedule's name"),
        (("x", "-c", NEVER, "-p", "7"), "has 1 partitions"),
        (("x", "-c", NEVER, "-H", "DELAY=3"), "header DELAY"),
    ],
)
def test_what_is_wrong_is_one_line(
    broker_cli: CommandLine, topic: str, arguments: tuple[str, ...], problem: str
) -> None:
    assert problem in broker_cli("schedule", "create", *arguments, "-t", topic).failed_with(1)


def test_no_such_topic(broker_cli: CommandLine, name: str) -> None:
    refused = broker_cli("schedule", "create", "x", "-t", name, "-c", NEVER).failed_with(1)
    assert f"there is no topic '{name}'" in refused
    assert broker_cli.ok("schedule", "list", "-t", name, "-o", "json").json() == []


def test_next_asks_no_broker(cli: CommandLine) -> None:
    found = cli.ok("schedule", "next", "0 12 * * *", "-z", "Asia/Tokyo", "-n", "3", "-o", "json").json()
    assert [later - sooner for sooner, later in pairwise(found)] == [86_400_000] * 2
    assert 0 < found[0] - time.time() * 1_000 <= 86_400_000
    assert datetime.fromtimestamp(found[0] / 1_000, UTC).hour == 3
    assert cli.ok("schedule", "next", "0 12 * * *").out.count("T12:00:00Z\n") == 5
    assert "bad hour" in cli("schedule", "next", "0 24 * * *").failed_with(1)
