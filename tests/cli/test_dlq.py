"""`halfmoon dlq`: dead letters are listed, shown, and replayed once."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from halfmoon.cli import dlq
from halfmoon.cli.errors import CliError
from halfmoon.schema.group_topics import dead_letter_topic, retry_topic
from halfmoon.services.keyindex.questions import Answer
from halfmoon.testing import Broker
from tests.cli.conftest import CommandLine
from tests.clients.asking import ask, leader_of, made

pytestmark = pytest.mark.workers


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
    row = {"group": group, "dead_letters": 3, "letters": 3, "replayed": 0, "topic": dead_letter_topic(group)}
    assert broker_cli.ok("dlq", "list", f"{group}*", "-o", "json").json() == [row]
    lines = broker_cli.ok("dlq", "list", f"{group}*").out.splitlines()
    assert lines[0].split() == ["GROUP", "DEAD-LETTERS", "REPLAYED", "TOPIC"]
    assert lines[1].startswith(group)
    assert lines[1].endswith(f"3         0  {dead_letter_topic(group)}")


def test_show(broker_cli: CommandLine, group: str) -> None:
    lines = broker_cli.ok("dlq", "show", group).out.splitlines()
    assert lines[0].split() == ["OFFSET", "TOPIC", "TIMES", "REASON", "REPLAYED", "KEY", "VALUE"]
    assert lines[1].split() == ["0", "orders", "16", "negatively", "acknowledged", "16", "times", "no", "ka", "a"]
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
    for dry_run, now, before in ((True, 3, 0), (False, 3, 0), (True, 0, 3), (False, 0, 3)):
        options = ("--dry-run",) if dry_run else ()
        found = broker_cli.ok("dlq", "replay", group, *options, "-o", "json").json()
        counts = {"dead_letters": now, "letters": now, "already_replayed": before}
        assert found == {"group": group, **counts, "topic": retry_topic(group), "dry_run": dry_run}
    assert replayed(broker_cli, group) == "a b c "
    assert len(broker_cli.ok("dlq", "show", group, "-o", "json").json_lines()) == 3


def test_what_is_replayed_is_marked(broker_cli: CommandLine, group: str) -> None:
    target = retry_topic(group)
    assert broker_cli.ok("dlq", "replay", group, "--tag", "paid").out == f"2 dead letters replayed to {target}\n"
    said = broker_cli.ok("dlq", "replay", group, "--dry-run").out
    assert said == f"1 dead letter would be replayed to {target}; 2 replayed already\n"
    found = broker_cli.ok("dlq", "show", group, "-o", "json").json_lines()
    assert [(record["value"], record["replayed"]) for record in found] == [("a", True), ("b", False), ("c", True)]
    lines = [line.split() for line in broker_cli.ok("dlq", "show", group).out.splitlines()]
    assert [line[-3] for line in lines] == ["REPLAYED", "yes", "no", "yes"]
    (row,) = broker_cli.ok("dlq", "list", group, "-o", "json").json()
    assert (row["dead_letters"], row["replayed"]) == (3, 2)
    said = broker_cli.ok("dlq", "replay", group).out
    assert said == f"1 dead letter replayed to {target}; 2 replayed already\n"
    assert broker_cli.ok("dlq", "replay", group).out == f"0 dead letters replayed to {target}; 3 replayed already\n"
    assert replayed(broker_cli, group) == "a c b "


def test_only_those_that_are_still_there_count(broker_cli: CommandLine, group: str, bootstrap_servers: str) -> None:
    dead = dead_letter_topic(group)
    broker_cli.ok("dlq", "replay", group, "--to-offset", "1")
    gone = [made(21, "DeleteRecordsTopic.DeleteRecordsPartition", partition_index=0, offset=1)]
    topics = [made(21, "DeleteRecordsTopic", name=dead, partitions=gone)]
    (topic,) = ask(leader_of(bootstrap_servers, dead, 0), 21, 2, topics=topics, timeout_ms=10_000).topics
    assert topic.partitions[0].error_code == 0
    (row,) = broker_cli.ok("dlq", "list", group, "-o", "json").json()
    assert (row["dead_letters"], row["replayed"]) == (2, 1)


def test_a_broker_that_does_not_tell(broker_cli: CommandLine, group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an older version: it is asked all the same, and it is said that nobody knows."""

    def older(server: str, question: object) -> Answer:
        raise CliError(f"{server} closed the connection")

    monkeypatch.setattr(dlq, "ask", older)
    done = broker_cli.ok("dlq", "list", group, "-o", "json")
    assert done.json()[0]["replayed"] is None
    assert "does not tell which dead letters are replayed" in done.err
    assert broker_cli.ok("dlq", "replay", group).out == f"3 dead letters replayed to {retry_topic(group)}\n"


def test_a_replay_takes_its_time(broker_cli: CommandLine, group: str) -> None:
    begun = time.monotonic()
    broker_cli.ok("dlq", "replay", group, "--rate", "10")
    assert time.monotonic() - begun >= 0.2
    assert replayed(broker_cli, group) == "a b c "


def test_a_group_without_dead_letters(broker_cli: CommandLine, name: str) -> None:
    for command in ("show", "replay"):
        said = broker_cli("dlq", command, name).failed_with(1)
        assert said == f"halfmoon: {name}: the group has no dead letters; there is no topic dlq.{name}"


def test_a_filter_that_cannot_be_read(broker_cli: CommandLine, group: str) -> None:
    assert "line 1, column 4" in broker_cli("dlq", "replay", group, "--sql", "a >").failed_with(2)
