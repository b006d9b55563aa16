"""`halfmoon dlq`: dead letters are listed, shown, and replayed once."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from halfmoon.cli import dlq_state
from halfmoon.cli.errors import CliError
from halfmoon.cluster.placement import SHARDS, coordinator_of
from halfmoon.schema.group_topics import dead_letter_topic, marks_topic, retry_topic
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
    dead = dead_letter_topic(group)
    broker_cli("topic", "delete", retry_topic(group), dead, marks_topic(dead), "dlq.shared")


def replayed(broker_cli: CommandLine, group: str) -> str:
    return broker_cli.ok("consume", retry_topic(group), "-e", "-f", "%s ").out


def test_list(broker_cli: CommandLine, group: str) -> None:
    counts = {"dead_letters": 3, "letters": 3, "replayed": 0, "handled": 0, "open": 3}
    row = {"group": group, **counts, "topic": dead_letter_topic(group)}
    assert broker_cli.ok("dlq", "list", f"{group}*", "-o", "json").json() == [row]
    lines = broker_cli.ok("dlq", "list", f"{group}*").out.splitlines()
    assert lines[0].split() == ["GROUP", "DEAD-LETTERS", "REPLAYED", "HANDLED", "OPEN", "TOPIC"]
    assert lines[1].startswith(group)
    assert lines[1].split()[-5:] == ["3", "0", "0", "3", dead_letter_topic(group)]


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
        counts = {"dead_letters": now, "letters": now, "already_replayed": before, "handled": 0}
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

    monkeypatch.setattr(dlq_state, "ask", older)
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
    for command in ("show", "replay", "mark", "purge"):
        said = broker_cli("dlq", command, name).failed_with(1)
        assert said == f"halfmoon: {name}: the group has no dead letters; there is no topic dlq.{name}"


def test_a_filter_that_cannot_be_read(broker_cli: CommandLine, group: str) -> None:
    assert "line 1, column 4" in broker_cli("dlq", "replay", group, "--sql", "a >").failed_with(2)


# -- show -------------------------------------------------------------------------------------------------------------


def test_one_is_shown_whole(broker_cli: CommandLine, group: str) -> None:
    broker_cli.ok(
        "produce", retry_topic(group), "d", "-H", "DELAY=-1", "-H", "RETRY_OF=orders/0/17", "-H", "mine=x",
        "-H", "RETRY_ERROR_CLASS=acme.BadOrder, builtins.ValueError", "-H", "RETRY_ERROR_MESSAGE=no total",
    )  # fmt: skip
    dead = dead_letter_topic(group)
    out = broker_cli.ok("dlq", "show", group, "--error", "*.ValueError", "--full").out
    facts = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in out.split("\n\n")[0].splitlines())
    assert facts.pop("timestamp").startswith("20")
    assert facts.pop("dead letter").startswith(f"{dead}/")
    assert facts == {
        "topic": "orders", "origin": "orders/0/17", "attempts": "0", "cause": "negatively acknowledged with DELAY=-1",
        "error": "acme.BadOrder", "message": "no total", "replayed": "no", "handled": "no", "key": "-",
    }  # fmt: skip
    assert [line.split() for line in out.split("\n\n")[1].splitlines()] == [["HEADER", "VALUE"], ["mine", "x"]]
    assert out.split("\n\n")[2] == "d\n"
    (found,) = broker_cli.ok("dlq", "show", group, "--error", "*.ValueError", "-o", "json").json_lines()
    assert found["error_classes"] == ["acme.BadOrder", "builtins.ValueError"]
    assert (found["origin"], found["error_message"], found["handled"]) == ("orders/0/17", "no total", None)
    lines = broker_cli.ok("dlq", "show", group).out.splitlines()
    assert "ERROR" in lines[0].split()
    assert len(broker_cli.ok("dlq", "show", group, "--full").out.split("dead letter ")) == 5


def test_offsets_are_selected(broker_cli: CommandLine, group: str) -> None:
    def shown(*options: str) -> list[str]:
        return [each["value"] for each in broker_cli.ok("dlq", "show", group, "-o", "json", *options).json_lines()]

    assert shown("--offset", "0", "--offset", "2") == ["a", "c"]
    assert shown("--offset", "0", "--offset", "2", "--from-offset", "1") == ["c"]
    assert shown("--partition", "7") == []
    assert shown("--offset", "9") == []


# -- marks ------------------------------------------------------------------------------------------------------------


def test_what_is_marked_is_not_replayed(broker_cli: CommandLine, group: str) -> None:
    target = retry_topic(group)
    said = broker_cli.ok("dlq", "mark", group, "--tag", "paid", "--note", "refunded", "--dry-run").out
    assert said == "2 dead letters would be marked as handled\n"
    assert broker_cli.ok("dlq", "mark", group, "--offset", "0", "--note", "refunded").out == (
        "1 dead letter marked as handled\n"
    )
    found = broker_cli.ok("dlq", "mark", group, "--tag", "paid", "-o", "json").json()
    assert found == {"group": group, "dead_letters": 1, "already": 1, "undo": False, "dry_run": False}
    (row,) = broker_cli.ok("dlq", "list", group, "-o", "json").json()
    assert (row["dead_letters"], row["replayed"], row["handled"], row["open"]) == (3, 0, 2, 1)
    lines = [line.split() for line in broker_cli.ok("dlq", "show", group).out.splitlines()]
    assert lines[0][-4:] == ["REPLAYED", "HANDLED", "KEY", "VALUE"]
    assert [line[-3] for line in lines[1:]] == ["yes", "no", "yes"]
    shown = broker_cli.ok("dlq", "show", group, "-o", "json").json_lines()
    assert [each["handled"] and each["handled"]["note"] for each in shown] == ["refunded", None, ""]
    assert [each["value"] for each in broker_cli.ok("dlq", "show", group, "--open", "-o", "json").json_lines()] == ["b"]
    assert broker_cli.ok("dlq", "replay", group).out == f"1 dead letter replayed to {target}; 2 handled already\n"
    (row,) = broker_cli.ok("dlq", "list", group, "-o", "json").json()
    assert (row["replayed"], row["handled"], row["open"]) == (1, 2, 0)
    assert broker_cli.ok("dlq", "mark", group, "--undo", "--offset", "0").out == "1 dead letter not handled any more\n"
    said = broker_cli.ok("dlq", "replay", group).out
    assert said == f"1 dead letter replayed to {target}; 1 replayed already; 1 handled already\n"
    assert replayed(broker_cli, group) == "b a "


def test_a_replay_marks_and_again_sends_all(broker_cli: CommandLine, group: str) -> None:
    target = retry_topic(group)
    assert (
        broker_cli.ok("dlq", "replay", group, "--offset", "1", "--mark").out == f"1 dead letter replayed to {target}\n"
    )
    (row,) = broker_cli.ok("dlq", "list", group, "-o", "json").json()
    assert (row["replayed"], row["handled"], row["open"]) == (1, 1, 2)
    (shown,) = broker_cli.ok("dlq", "show", group, "--offset", "1", "-o", "json").json_lines()
    assert shown["handled"]["note"] == "replayed"
    broker_cli.ok("dlq", "mark", group, "--offset", "0")
    assert broker_cli.ok("dlq", "replay", group, "--again").out == f"3 dead letters replayed to {target}\n"
    assert replayed(broker_cli, group) == "b a b c "
    (row,) = broker_cli.ok("dlq", "list", group, "-o", "json").json()
    assert (row["replayed"], row["open"]) == (3, 0)


def test_marks_of_a_topic_that_was_deleted_are_of_no_other(broker_cli: CommandLine, group: str) -> None:
    dead = dead_letter_topic(group)
    broker_cli.ok("dlq", "mark", group)
    broker_cli.ok("topic", "delete", dead)
    broker_cli.ok("produce", retry_topic(group), "d", "-H", "DELAY=-1")
    (row,) = broker_cli.ok("dlq", "list", group, "-o", "json").json()
    assert (row["dead_letters"], row["handled"], row["open"]) == (1, 0, 1)
    broker_cli.ok("dlq", "mark", group)
    marks = broker_cli.ok("consume", marks_topic(dead), "-e", "-o", "json").json_lines()
    last = {each["key"]: each["value"] for each in marks}
    assert len(last) == 4
    assert len([value for value in last.values() if value is not None]) == 1


def test_what_is_no_mark_is_none(broker_cli: CommandLine, group: str) -> None:
    dead = dead_letter_topic(group)
    broker_cli.ok("topic", "create", marks_topic(dead), "-p", "1", "-c", "cleanup.policy=compact")
    for key, value in (
        ("x", "{}"),
        ("a/b/c", '{"at": 1}'),
        ("a/0/0", "no"),
        ("a/0/0", '{"at": null}'),
        ("a/0/0", "[]"),
    ):
        broker_cli.ok("produce", marks_topic(dead), value, "--key", key)
    (row,) = broker_cli.ok("dlq", "list", group, "-o", "json").json()
    assert row["handled"] == 0


# -- edit and replay --------------------------------------------------------------------------------------------------


def records_in(broker_cli: CommandLine, topic: str) -> list[tuple[str | None, str | None, dict[str, str]]]:
    found = []
    for record in broker_cli.ok("consume", topic, "-e", "-o", "json").json_lines():
        headers = {header["name"]: header["value"] for header in record["headers"]}
        found.append((record["key"], record["value"], headers))
    return found


def test_a_replay_with_other_headers(broker_cli: CommandLine, group: str) -> None:
    broker_cli.ok(
        "dlq", "replay", group, "--tag", "paid", "--set-header", "TAGS=mended", "--remove-header", "RETRY_TOPIC"
    )
    found = records_in(broker_cli, retry_topic(group))
    assert [(key, value, headers["TAGS"]) for key, value, headers in found] == [
        ("ka", "a", "mended"), ("kc", "c", "mended")
    ]  # fmt: skip
    assert found[0][2]["RETRY_TOPIC"] == dead_letter_topic(group)  # the broker says where it comes from
    assert (
        broker_cli.ok("dlq", "replay", group, "--tag", "paid", "--dry-run", "-o", "json").json()["already_replayed"]
        == 2
    )


def test_a_replay_with_another_value(broker_cli: CommandLine, group: str, tmp_path: Path) -> None:
    said = broker_cli("dlq", "replay", group, "--value", "x").failed_with(1)
    assert said.startswith("halfmoon: 3 dead letters are selected, and --key and --value are for one")
    assert replayed(broker_cli, group) == ""
    broker_cli.ok("dlq", "replay", group, "--offset", "0", "--value", "x", "--key", "k2")
    file = tmp_path / "value"
    file.write_bytes(b"\xff\n")
    broker_cli.ok("dlq", "replay", group, "--offset", "1", "--value-file", str(file))
    found = broker_cli.ok("consume", retry_topic(group), "-e", "-o", "json").json_lines()
    assert [(each["key"], each.get("value"), each.get("value_base64")) for each in found] == [
        ("k2", "x", None), ("kb", None, "/wo=")
    ]  # fmt: skip
    broker_cli("dlq", "replay", group, "--value", "x", "--value-file", str(file)).failed_with(2)


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have `$EDITOR` run this Python over the text of a dead letter, in `text`."""

    def run(program: str) -> None:
        script = tmp_path / "editor.py"
        script.write_text(
            "import pathlib, sys\npath = pathlib.Path(sys.argv[1])\ntext = path.read_text()\n"
            f"{program}\npath.write_text(text)\n"
        )
        monkeypatch.delenv("VISUAL", raising=False)
        monkeypatch.setenv("EDITOR", f"{sys.executable} {script}")

    return run


def test_a_replay_of_what_was_edited(broker_cli: CommandLine, group: str, editor: Callable[[str], None]) -> None:
    editor("text = '' if text.endswith('b\\n') else text.replace('TAGS=paid', 'TAGS=seen').replace('key=k', 'key=n')")
    assert broker_cli.ok("dlq", "replay", group, "--edit").out == f"2 dead letters replayed to {retry_topic(group)}\n"
    found = records_in(broker_cli, retry_topic(group))
    assert [(key, value, headers["TAGS"]) for key, value, headers in found] == [
        ("na", "a", "seen"),
        ("nc", "c", "seen"),
    ]
    found_open = broker_cli.ok("dlq", "show", group, "--open", "-o", "json").json_lines()
    assert [each["value"] for each in found_open] == ["b"]


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("text = text.replace('value:', '')", r"there is no line value:; nothing was replayed, and the file is kept"),
        ("sys.exit(3)", r"the editor has failed with 3; nothing was replayed"),
    ],
)
def test_an_editor_that_fails(
    broker_cli: CommandLine, group: str, editor: Callable[[str], None], program: str, said: str
) -> None:
    editor(program)
    failed = broker_cli("dlq", "replay", group, "--edit").failed_with(1)
    assert said in failed
    assert replayed(broker_cli, group) == ""
    kept = re.search(r"(/\S+\.txt): ", failed)
    assert (kept is not None) == ("is kept" in said)
    if kept is not None:
        Path(kept[1]).unlink()


def test_without_an_editor(broker_cli: CommandLine, group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", "/nonexistent/editor")
    said = broker_cli("dlq", "replay", group, "--edit").failed_with(1)
    assert "the editor cannot be run" in said
    monkeypatch.setattr("halfmoon.cli.dlq_replay.MOST_EDITED", 2)
    assert "--edit opens at most 2" in broker_cli("dlq", "replay", group, "--edit").failed_with(1)


# -- purge and expire -------------------------------------------------------------------------------------------------


def values(broker_cli: CommandLine, group: str) -> list[str]:
    return [each["value"] for each in broker_cli.ok("dlq", "show", group, "-o", "json").json_lines()]


def test_purge(broker_cli: CommandLine, group: str) -> None:
    broker_cli.ok("dlq", "mark", group, "--offset", "0")
    broker_cli.ok("dlq", "replay", group, "--offset", "2")
    said = broker_cli.ok("dlq", "purge", group, "--done", "--dry-run").out
    assert said == "1 dead letter would be deleted; 1 kept behind others that stay\n"
    said = broker_cli("dlq", "purge", group).failed_with(1)
    assert said == f"halfmoon: {group}: 3 dead letters, 1 of them neither replayed nor handled, would be deleted: --yes"
    assert values(broker_cli, group) == ["a", "b", "c"]
    assert broker_cli.ok("dlq", "purge", group, "--done", "--yes").out.startswith("1 dead letter deleted")
    assert values(broker_cli, group) == ["b", "c"]
    marks = broker_cli.ok("consume", marks_topic(dead_letter_topic(group)), "-e", "-o", "json").json_lines()
    assert marks[-1]["value"] is None  # what is gone is marked no more
    found = broker_cli.ok("dlq", "purge", group, "--to-offset", "1", "--yes", "-o", "json").json()
    assert found == {"group": group, "dead_letters": 1, "open": 1, "kept": 0, "dry_run": False}
    assert values(broker_cli, group) == ["c"]
    assert broker_cli.ok("dlq", "purge", group, "--older-than", "1d", "--yes").out == "0 dead letters deleted\n"
    assert broker_cli.ok("dlq", "purge", group, "--yes").out == "1 dead letter deleted\n"
    assert values(broker_cli, group) == []
    broker_cli("dlq", "purge", group, "--older-than", "old").failed_with(2)


def test_a_purge_stops_at_another_groups(broker_cli: CommandLine, group: str, name: str) -> None:
    shard = coordinator_of(group, SHARDS)
    """The other group's dead letters are in the same partition, also where there are several."""
    other = next(each for n in count() if coordinator_of(each := f"{name}-{n}", SHARDS) == shard)
    broker_cli.ok("group", "alter", group, other, "--set", "halfmoon.retry.dead.letter.topic=dlq.shared")
    broker_cli.ok("topic", "create", retry_topic(other), "-p", "1")
    try:
        for whose, value in ((group, "1"), (other, "2"), (group, "3")):
            broker_cli.ok("produce", retry_topic(whose), value, "-H", "DELAY=-1")
        assert values(broker_cli, other) == ["2"]
        assert values(broker_cli, group) == ["a", "b", "c", "1", "3"]
        said = broker_cli.ok("dlq", "purge", group, "--yes").out
        assert said.startswith("4 dead letters deleted, 4 of them neither replayed nor handled; 1 kept")
        assert (values(broker_cli, group), values(broker_cli, other)) == (["3"], ["2"])
    finally:
        broker_cli.ok("group", "alter", group, other, "--unset", "halfmoon.retry.dead.letter.topic")
        broker_cli("topic", "delete", retry_topic(other))


def test_expire(broker_cli: CommandLine, group: str, name: str) -> None:
    dead = dead_letter_topic(group)
    row = {"topic": dead, "retention_ms": 604_800_000, "retention": "7d"}
    assert broker_cli.ok("dlq", "expire", group, "-o", "json").json() == {"group": group, "topics": [row]}
    lines = broker_cli.ok("dlq", "expire", group, "--after", "30d").out.splitlines()
    assert lines[0].split() == ["TOPIC", "RETENTION"]
    assert lines[1].split()[-1] == "30d"
    configs = broker_cli.ok("group", "configs", group, "-o", "json").json()["configs"]
    assert configs["halfmoon.retry.dead.letter.retention.ms"]["value"] == "2592000000"
    broker_cli.ok("topic", "delete", dead)
    broker_cli.ok("produce", retry_topic(group), "d", "-H", "DELAY=-1")
    assert broker_cli.ok("dlq", "expire", group).out.splitlines()[1].split()[-1] == "30d"
    assert broker_cli.ok("dlq", "expire", group, "--after", "never").out.splitlines()[1].split()[-1] == "never"
    assert broker_cli.ok("dlq", "expire", group, "--reset").out.splitlines()[1].split()[-1] == "7d"
    found = broker_cli.ok("dlq", "expire", name, "-o", "json").json()["topics"]
    assert found == [{"topic": f"dlq.{name}", "retention_ms": None, "retention": "as other topics"}]
    for wrong in ("0s", "soon"):
        broker_cli("dlq", "expire", group, "--after", wrong).failed_with(2)
    broker_cli("dlq", "expire", group, "--after", "1d", "--reset").failed_with(2)
