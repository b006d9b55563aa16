"""Shell patterns in the place of topics."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator

import pytest

from halfmoon.cli.errors import CliError
from halfmoon.cli.topic_patterns import expand, is_pattern, regex
from tests.cli.conftest import CommandLine

THERE = ["orders-eu", "orders-us", "orders", "users", "_mine"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["orders", "orders"], ["orders"]),
        (["unknown", "orders"], ["unknown", "orders"]),
        (["orders-*"], ["orders-eu", "orders-us"]),
        (["users", "*"], ["users", "_mine", "orders", "orders-eu", "orders-us"]),
        (["order?"], ["orders"]),
        (["orders-[a-f]*"], ["orders-eu"]),
        (["[!o]*"], ["_mine", "users"]),
    ],
)
def test_what_patterns_stand_for(names: list[str], expected: list[str]) -> None:
    assert expand(names, lambda: THERE) == expected
    by_regex = [topic for topic in THERE if re.match(regex(names), topic)]
    assert set(by_regex) == set(expected) & set(THERE)


def test_names_alone_ask_for_nothing() -> None:
    assert expand(["a", "b"], lambda: pytest.fail("asked")) == ["a", "b"]
    assert not is_pattern("orders-1_2.x")


def test_a_pattern_that_nothing_matches() -> None:
    with pytest.raises(CliError, match=r"x\*: no topic matches"):
        expand(["orders", "x*"], lambda: THERE)


@pytest.fixture
def three(broker_cli: CommandLine, name: str) -> Iterator[str]:
    """NAME-a, NAME-b and NAME, each with a record."""
    topics = [f"{name}-a", f"{name}-b", name]
    broker_cli.ok("topic", "create", *topics, "-p", "1")
    for topic in topics:
        broker_cli.ok("produce", topic, topic.removeprefix(f"{name}-").replace(name, "none"))
    yield name
    broker_cli("topic", "delete", *topics)


def left(broker_cli: CommandLine, name: str) -> list[str]:
    rows = broker_cli.ok("topic", "list", f"{name}*", "-o", "json").json()
    return [row["topic"].removeprefix(name) for row in rows]


def test_describe_and_alter(broker_cli: CommandLine, three: str) -> None:
    described = broker_cli.ok("topic", "describe", f"{three}-*", "-o", "json").json()
    assert [each["topic"] for each in described] == [f"{three}-a", f"{three}-b"]
    rows = broker_cli.ok("topic", "list", "--internal", "-o", "json").json()
    internal = {row["topic"] for row in rows if row["internal"]}
    described = broker_cli.ok("topic", "describe", "*", "-o", "json").json()
    assert not internal & {each["topic"] for each in described}
    altered = broker_cli.ok("topic", "alter", f"{three}-*", "-c", "retention.ms=1000000")
    assert altered.out == f"{three}-a: altered\n{three}-b: altered\n"
    assert broker_cli("topic", "describe", f"{three}-x*").failed_with(1) == f"halfmoon: {three}-x*: no topic matches"


def test_delete_asks(broker_cli: CommandLine, three: str) -> None:
    refused = broker_cli("topic", "delete", f"{three}-*", stdin=b"n\n")
    assert refused.code == 1
    assert refused.err.endswith("halfmoon: nothing was deleted\n")
    assert f"{three}-a\n{three}-b\nDelete 2 topics?" in refused.err
    assert left(broker_cli, three) == ["", "-a", "-b"]
    nobody = broker_cli("topic", "delete", f"{three}-*")
    assert nobody.code == 1
    assert nobody.err.endswith("halfmoon: nothing was deleted: specify --yes where nobody can be asked\n")
    assert left(broker_cli, three) == ["", "-a", "-b"]
    shown = broker_cli.ok("topic", "delete", f"{three}-*", "--dry-run")
    assert shown.out == f"{three}-a: would be deleted\n{three}-b: would be deleted\n"
    assert left(broker_cli, three) == ["", "-a", "-b"]
    deleted = broker_cli.ok("topic", "delete", f"{three}-*", stdin=b"y\n")
    assert deleted.out == f"{three}-a: deleted\n{three}-b: deleted\n"
    assert left(broker_cli, three) == [""]
    assert broker_cli.ok("topic", "delete", f"{three}*", "--yes").out == f"{three}: deleted\n"


def test_a_dry_run_names_what_is_not_there(broker_cli: CommandLine, three: str) -> None:
    shown = broker_cli("topic", "delete", three, f"{three}-none", "--dry-run")
    assert (shown.code, shown.out) == (1, f"{three}: would be deleted\n")
    assert f"{three}-none: UNKNOWN_TOPIC_OR_PARTITION" in shown.err or "does not exist" in shown.err


def test_consume(broker_cli: CommandLine, three: str) -> None:
    read = broker_cli.ok("consume", f"{three}-*", "-e", "-f", "%s%n").out
    assert sorted(read.split()) == ["a", "b"]
    assert sorted(broker_cli.ok("consume", f"{three}*", "--last", "3", "-f", "%s%n").out.split()) == ["a", "b", "none"]
    said = broker_cli("consume", f"{three}-x*", "-e").failed_with(1)
    assert said == f"halfmoon: {three}-x*: no topic matches"
    said = broker_cli("consume", "a*", "--protocol", "rocketmq").failed_with(2)
    assert "patterns of topics are not supported with --protocol rocketmq" in said


@pytest.mark.timeout(120)
def test_a_group_reads_new_topics_that_match(
    broker_cli: CommandLine, three: str, program: Callable[..., subprocess.Popen[bytes]]
) -> None:
    reader = program("consume", f"{three}-*", "-g", f"{three}-group", "-f", "%t %s%n")
    assert reader.stdout is not None
    first = {reader.stdout.readline().decode().strip() for _ in range(2)}
    assert first == {f"{three}-a a", f"{three}-b b"}
    broker_cli.ok("topic", "create", f"{three}-new", "-p", "1")
    broker_cli.ok("produce", f"{three}-new", "late")
    assert reader.stdout.readline().decode().strip() == f"{three}-new late"
    reader.terminate()
    broker_cli.ok("topic", "delete", f"{three}-new")
