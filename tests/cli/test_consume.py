from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable

import pytest

from tests.cli.conftest import CommandLine


@pytest.fixture
def ten(broker_cli: CommandLine, topic: str) -> str:
    """A topic whose records 0…9 have the times 1000, 1010, …, 1090."""
    for number in range(10):
        broker_cli.ok("produce", topic, str(number), "-t", str(1000 + 10 * number))
    return topic


@pytest.mark.parametrize(
    ("flags", "printed"),
    [
        ([], "0123456789"),
        (["--from", "end"], ""),
        (["--from", "1050"], "56789"),
        (["--from", "1051"], "6789"),
        (["--from", "1970-01-01T00:00:01.080"], "89"),
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
    assert broker_cli.ok("consume", ten, "-e", "-f", "%s", *flags).out == printed


def test_the_last_ones_over_all_partitions_in_order_of_time(broker_cli: CommandLine, name: str) -> None:
    broker_cli.ok("topic", "create", name, "-p", "2", "-c", "retention.ms=-1")
    for number in range(6):
        broker_cli.ok("produce", name, str(number), "-p", str(number % 2), "-t", str(1000 + number))
    assert broker_cli.ok("consume", name, "--last", "3", "-f", "%s").out == "345"
    assert broker_cli.ok("consume", name, "--last", "99", "-f", "%s").out == "012345"
    assert broker_cli.ok("consume", name, "-e", "-p", "1", "-f", "%s").out == "135"
    broker_cli.ok("topic", "delete", name)


@pytest.fixture
def orders(broker_cli: CommandLine, name: str) -> str:
    """Six records a to f, with tags and prices; f has no header at all."""
    broker_cli.ok("topic", "create", name, "-p", "1")
    for value, tag, price in (
        ("a", "paid", 5),
        ("b", "refunded", 15),
        ("c", "paid", 25),
        ("d", "Paid", 15),
        ("e", "", 9),
    ):
        broker_cli.ok("produce", name, value, "-H", f"TAGS={tag}", "-H", f"price={price}")
    broker_cli.ok("produce", name, "f")
    return name


def test_only_what_has_a_field(broker_cli: CommandLine, name: str) -> None:
    broker_cli.ok("produce", name, '{"n": 1}', '{"n": 2, "a": [{"b": "x"}]}', "{", "-p", "0")
    for flags, printed in (
        (["--sql", "value.n > 1"], '{"n": 2, "a": [{"b": "x"}]}\n'),
        (["--sql", "value.a[0].b IS NULL AND value.n IS NOT NULL"], '{"n": 1}\n'),
        (["--filter", "sql92:value.a[0].b = 'x'"], '{"n": 2, "a": [{"b": "x"}]}\n'),
        (["--sql", "value.n IS NULL"], "{\n"),
    ):
        assert broker_cli.ok("consume", name, "-e", *flags).out == printed, flags


def test_only_what_a_filter_lets_through(broker_cli: CommandLine, orders: str) -> None:
    for flags, printed in (
        (["--tag", "paid"], "ac"),
        (["--tag", "paid || refunded"], "abc"),
        (["--tag", "*"], "abcdef"),
        (["--sql", "price BETWEEN 10 AND 20"], "bd"),
        (["--sql", "TAGS IS NULL"], "ef"),
        (["--sql", "price > 5", "--tag", "paid"], "c"),
        (["--sql", "price > 5", "-c", "2"], "bc"),
        (["--sql", "price > 99"], ""),
        (["--filter", "sql92:price > 5", "--tag", "paid"], "c"),
        (["--filter", "tag:paid", "--sql", "price > 5"], "c"),
    ):
        assert broker_cli.ok("consume", orders, "-e", "-f", "%s", *flags).out == printed, flags


def test_a_group_passes_over_what_its_filter_leaves_out(broker_cli: CommandLine, orders: str, name: str) -> None:
    member = ["consume", orders, "-g", f"{name}-group", "-f", "%s", "--tag", "paid"]
    assert broker_cli.ok(*member, "-c", "2").out == "ac"
    assert broker_cli.ok("consume", orders, "-g", f"{name}-group", "-f", "%s", "-e").out == "def"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--sql", "price >"], "expected a property, a text, a number, NOT or (, found the end (line 1, column 8)"),
        (["--tag", "||"], "expected a tag (line 1, column 1)"),
        (["--filter", "sql92:price >"], "found the end (line 1, column 8)"),
        (["--filter", "price > 5"], "expected LANG:EXPR"),
        (["--filter", "sqll92:price > 5"], "no plugin has the filter language sqll92; did you mean sql92?"),
        (["--sql", "price > 5", "--last", "3"], "--last excludes --tag, --sql and --filter"),
    ],
)
def test_a_filter_that_makes_no_sense(broker_cli: CommandLine, flags: list[str], said: str) -> None:
    assert said in broker_cli("consume", "orders", *flags).failed_with(2)


def test_several_topics(broker_cli: CommandLine, ten: str, name: str) -> None:
    broker_cli.ok("topic", "create", f"{name}-two", "-p", "1")
    broker_cli.ok("produce", f"{name}-two", "x")
    printed = broker_cli.ok("consume", ten, f"{name}-two", "-e", "-f", "%t/%s%n").out.splitlines()
    assert sorted(printed) == sorted([f"{ten}/{n}" for n in range(10)] + [f"{name}-two/x"])
    broker_cli.ok("topic", "delete", f"{name}-two")


def test_a_group_goes_on_where_it_was(broker_cli: CommandLine, ten: str, name: str) -> None:
    member = ["consume", ten, "-g", f"{name}-group", "-f", "%s"]
    assert broker_cli.ok(*member, "-c", "4").out == "0123"
    assert broker_cli.ok(*member, "-e").out == "456789"
    assert broker_cli.ok(*member, "-e").out == ""
    broker_cli.ok("group", "delete", f"{name}-group")


def test_a_topic_or_partition_that_is_not_there(broker_cli: CommandLine, topic: str, name: str) -> None:
    absent = f"{name}-none"
    assert broker_cli("consume", absent, "-e").failed_with(1) == f"halfmoon: {absent}: there is no such topic"
    assert "there is no partition 5; it has 0 to 0" in broker_cli("consume", topic, "-p", "5", "-e").failed_with(1)
    assert broker_cli.ok("topic", "list", absent, "-o", "json").json() == [], "consume must not create topics"


def test_ctrl_c_ends_it_and_is_no_failure(
    program: Callable[..., subprocess.Popen[bytes]], broker_cli: CommandLine, ten: str
) -> None:
    process = program("consume", ten)
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(10)][-1] == b"9\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, b"")


def test_a_reader_that_leaves_ends_it_in_silence(
    program: Callable[..., subprocess.Popen[bytes]], broker_cli: CommandLine, topic: str
) -> None:
    broker_cli.ok("produce", topic, stdin=b"".join(b"%d\n" % n for n in range(20_000)))
    process = program("consume", topic)
    assert process.stdout is not None
    assert process.stdout.readline() == b"0\n"
    process.stdout.close()
    # It notices when it writes again, and goes on for ever if not: something more has to come.
    broker_cli.ok("produce", topic, "one more")
    assert process.wait(timeout=20) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""
