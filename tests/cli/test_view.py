from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from halfmoon.cli import view
from halfmoon.testing import Broker
from tests.cli.conftest import CommandLine


@pytest.fixture(scope="session")
def bootstrap_servers(halfmoon_broker: Broker) -> str:
    """Views are Halfmoon's own: no other broker is asked."""
    return halfmoon_broker.bootstrap_servers


@pytest.fixture
def orders(broker_cli: CommandLine, name: str) -> Iterator[str]:
    """A topic of two partitions with the records a to d in the first. Views of it are called after it."""
    broker_cli.ok("topic", "create", name, "-p", "2")
    records = (
        ("a", {"TAGS": "paid", "amount": "50", "region": "HZ"}),
        ("b", {"TAGS": "refunded", "amount": "150", "region": "BJ"}),
        ("c", {"TAGS": "open", "amount": "200", "region": "HZ"}),
        ("d", {"TAGS": "paid", "amount": "300", "region": "SH"}),
    )
    lines = [
        json.dumps({"value": value, "headers": [{"name": key, "value": said} for key, said in headers.items()]})
        for value, headers in records
    ]
    broker_cli.ok("produce", name, "-p", "0", "--json", stdin="\n".join(lines).encode())
    yield name
    views = broker_cli.ok("view", "list", f"{name}-*", "-o", "json").json()
    broker_cli("topic", "delete", name, *(row["view"] for row in views))


@pytest.fixture
def paid(broker_cli: CommandLine, orders: str) -> str:
    """The view with a and d, once it has them."""
    broker_cli.ok("view", "create", f"{orders}-paid", "--from", orders, "--tag", "paid")
    assert broker_cli.ok("consume", f"{orders}-paid", "-c", "2", "-f", "%s").out == "ad"
    return f"{orders}-paid"


def listed(broker_cli: CommandLine, pattern: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = broker_cli.ok("view", "list", pattern, "-o", "json").json()
    return rows


@pytest.mark.parametrize("command", ["create", "list", "describe", "delete"])
def test_every_command_explains_itself(cli: CommandLine, command: str) -> None:
    said = re.sub(r"\x1b\[[0-9;]*m", "", cli.ok("view", command, "--help").out)
    assert f"Usage: halfmoon view {command}" in said
    assert "--output" in said


@pytest.mark.parametrize(
    ("flags", "printed"),
    [
        (["--tag", "paid || refunded"], "abd"),
        (["--tag", ""], "abcd"),
        (["--sql", "amount > 100 AND region IN ('HZ', 'SH')"], "cd"),
        (["--filter", "sql92=amount > 100"], "bcd"),
        (["--filter", "tag=paid"], "ad"),
    ],
)
def test_a_view_has_what_matches(broker_cli: CommandLine, orders: str, flags: list[str], printed: str) -> None:
    created = broker_cli.ok("view", "create", f"{orders}-view", "--from", orders, *flags)
    assert created.out == f"{orders}-view: created\n"
    # The last record is in all of these views: when it is there, the others have been looked at.
    assert broker_cli.ok("consume", f"{orders}-view", "-c", str(len(printed)), "-f", "%s").out == printed
    assert broker_cli.ok("consume", f"{orders}-view", "-e", "-f", "%s").out == printed


def test_a_view_that_starts_at_the_end(broker_cli: CommandLine, orders: str) -> None:
    broker_cli.ok("view", "create", f"{orders}-new", "--from", orders, "--tag", "paid", "--start", "latest")
    broker_cli.ok("produce", orders, "e", "-H", "TAGS=open", "-p", "0")
    broker_cli.ok("produce", orders, "f", "-H", "TAGS=paid", "-p", "0")
    assert broker_cli.ok("consume", f"{orders}-new", "-c", "1", "-f", "%s").out == "f"
    assert broker_cli.ok("consume", f"{orders}-new", "-e", "-f", "%s").out == "f"


def test_create_for_programs(broker_cli: CommandLine, orders: str) -> None:
    created = broker_cli.ok("view", "create", f"{orders}-view", "--from", orders, "--tag", "paid", "-o", "json").json()
    assert created == [{"view": f"{orders}-view", "result": "created", "partitions": 2, "ok": True}]


def test_a_dry_run_checks_and_creates_nothing(broker_cli: CommandLine, orders: str) -> None:
    dry = ["view", "create", f"{orders}-view", "--from", orders, "--dry-run"]
    assert broker_cli.ok(*dry, "--sql", "amount > 5").out == f"{orders}-view: would be created\n"
    assert "halfmoon.view.sql" in broker_cli(*dry, "--sql", "amount >").failed_with(1)
    assert listed(broker_cli, f"{orders}-*") == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--from", "o"], "a view has one filter: specify one of --tag, --sql and --filter"),
        (["--from", "o", "--tag", "x", "--sql", "a > 1"], "a view has one filter"),
        (["--from", "o", "--tag", "x", "--filter", "tag=y"], "a view has one filter"),
        (["--from", "o", "--tag", "x", "--tag", "y"], "a view has one filter"),
        (["--from", "o", "--filter", "tag=x", "--filter", "tag=x"], "a view has one filter"),
        (["--from", "o", "--filter", "paid"], "--filter: 'paid' is not NAME=VALUE"),
        (["--from", "o", "--filter", "=paid"], "--filter: '=paid' is not NAME=VALUE"),
        (["--from", "o", "--filter", "source=o"], "--filter: 'source' is not a filter language"),
        (["--from", "o", "--filter", "from=latest"], "--filter: 'from' is not a filter language"),
        (["--from", "o", "--tag", "x", "-c", "halfmoon.view.sql=a > 1"], "halfmoon.view.sql is part of the definition"),
        (["--from", "o", "--tag", "x", "-c", "retention.ms"], "--config: 'retention.ms' is not NAME=VALUE"),
        (["--from", "o", "--tag", "x", "--start", "middle"], "'middle' is not one of 'earliest', 'latest'"),
        (["--tag", "x"], "Missing option '--from'"),
    ],
)
def test_what_contradicts_is_refused_before_any_broker_is_asked(
    cli: CommandLine, arguments: list[str], said: str
) -> None:
    line = cli("view", "create", "v", *arguments).failed_with(2)
    assert said in line
    assert line.endswith("(see halfmoon view create --help)")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--tag", "||"], "INVALID_CONFIG: halfmoon.view.tag: expected a tag (line 1, column 1)"),
        (["--filter", "lua=x"], "INVALID_CONFIG: no enabled plugin offers the filter language 'lua'"),
        (["--tag", "x", "-c", "no.such.setting=1"], "INVALID_CONFIG: unknown topic config name: no.such.setting"),
        (["--tag", "x", "--from", "no-such"], "INVALID_CONFIG: halfmoon.view.source: there is no topic 'no-such'"),
    ],
)
def test_what_the_broker_refuses_is_shown_as_it_is(
    broker_cli: CommandLine, orders: str, flags: list[str], said: str
) -> None:
    line = broker_cli("view", "create", f"{orders}-view", "--from", orders, *flags).failed_with(1)
    assert line.startswith(f"halfmoon: {orders}-view: {said}")
    assert listed(broker_cli, f"{orders}-*") == []


def test_a_view_that_exists(broker_cli: CommandLine, orders: str) -> None:
    once = ["view", "create", f"{orders}-view", "--from", orders, "--sql", "amount > 100"]
    broker_cli.ok(*once)
    assert f"{orders}-view: TOPIC_ALREADY_EXISTS" in broker_cli(*once).failed_with(1)
    assert broker_cli.ok(*once, "--if-not-exists").out == f"{orders}-view: exists\n"
    assert broker_cli.ok(*once, "--if-not-exists", "--dry-run").out == f"{orders}-view: exists\n"
    # sql is short for sql92, and blanks around an expression mean nothing.
    alike = [*once[:5], "--filter", "sql92= amount > 100 ", "--if-not-exists"]
    assert broker_cli.ok(*alike, "-o", "json").json()[0]["result"] == "exists"


@pytest.mark.parametrize(
    ("flags", "differing"),
    [
        (["--tag", "open"], "expression 'paid', not 'open'"),
        (["--sql", "a = 'b'"], "language 'tag', not 'sql92'; expression 'paid', not \"a = 'b'\""),
        (["--tag", "paid", "--start", "latest"], "start 'earliest', not 'latest'"),
        (["--tag", "paid", "--from", "elsewhere"], "source 'ORDERS', not 'elsewhere'"),
    ],
)
def test_a_view_that_exists_and_is_another(
    broker_cli: CommandLine, orders: str, paid: str, flags: list[str], differing: str
) -> None:
    outcome = broker_cli("view", "create", paid, "--from", orders, "--if-not-exists", *flags)
    said = f"it exists, but with {differing.replace('ORDERS', orders)}"
    assert outcome.failed_with(1) == f"halfmoon: {paid}: {said}"
    outcome = broker_cli("view", "create", paid, "--from", orders, "--if-not-exists", "-o", "json", *flags)
    assert outcome.code == 1
    assert outcome.json() == [{"view": paid, "result": said, "partitions": None, "ok": False}]


def test_a_topic_that_is_no_view_is_not_taken_for_one(broker_cli: CommandLine, orders: str, paid: str) -> None:
    said = broker_cli("view", "create", orders, "--from", paid, "--tag", "x", "--if-not-exists").failed_with(1)
    assert said == f"halfmoon: {orders}: a topic of that name exists, and is not a view"


def test_list(broker_cli: CommandLine, orders: str, paid: str) -> None:
    expression = "amount > 100\nAND region = 'HZ'"
    broker_cli.ok("view", "create", f"{orders}-hz", "--from", paid, "--sql", expression, "--start", "latest")
    assert listed(broker_cli, f"{orders}-*") == [
        {
            "view": f"{orders}-hz",
            "source": paid,
            "language": "sql92",
            "expression": expression,
            "start": "latest",
            "state": "filled",
            "partitions": 2,
        },
        {
            "view": paid,
            "source": orders,
            "language": "tag",
            "expression": "paid",
            "start": "earliest",
            "state": "filled",
            "partitions": 2,
        },
    ]
    printed = broker_cli.ok("view", "list", f"{orders}-*").out.splitlines()
    assert printed[0].split() == ["VIEW", "SOURCE", "PARTITIONS", "START", "LANGUAGE", "EXPRESSION"]
    assert printed[1].endswith("  latest    sql92     amount > 100 AND region = 'HZ'")
    assert printed[2].split() == [paid, orders, "2", "earliest", "tag", "paid"]
    assert len(printed) == 3, "the source is no view"
    assert paid in broker_cli.ok("view", "list").out


def test_list_asks_for_many_topics_in_pieces(
    broker_cli: CommandLine, orders: str, paid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker_cli.ok("view", "create", f"{orders}-z", "--from", orders, "--tag", "x")
    monkeypatch.setattr(view, "ASKED_AT_ONCE", 1)
    assert [row["view"] for row in listed(broker_cli, f"{orders}-*")] == [paid, f"{orders}-z"]


def test_a_view_that_goes_while_views_are_listed(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    class Client:
        def describe_topics(self) -> list[dict[str, Any]]:
            return [{"name": "v", "partitions": [{}]}]

        def configs(self, resources: list[Any], names: list[str] | None) -> dict[str, Any]:
            (asked,) = resources
            there = {"halfmoon.view.source": {"value": "orders"}}
            return {asked.name: there if names is not None else {}}

    @contextmanager
    def admin(_: str) -> Iterator[Client]:
        yield Client()

    monkeypatch.setattr(view, "admin", admin)
    assert listed(cli, "*") == []


def test_describe(broker_cli: CommandLine, orders: str, paid: str) -> None:
    (described,) = broker_cli.ok("view", "describe", paid, "-o", "json").json()
    defined = {key: described[key] for key in ("view", "source", "language", "expression", "start", "state", "configs")}
    assert defined == {
        "view": paid,
        "source": orders,
        "language": "tag",
        "expression": "paid",
        "start": "earliest",
        "state": "filled",
        "configs": {},
    }
    numbers = ("partition", "start", "end", "records", "source", "lag")
    assert [tuple(part[name] for name in numbers) for part in described["partitions"]] == [
        (0, 0, 2, 2, 4, 0),
        (1, 0, 0, 0, 0, 0),
    ]
    assert broker_cli.ok("view", "describe", paid).out == (
        f"view        {paid}\n"
        f"source      {orders}\n"
        "language    tag\n"
        "expression  paid\n"
        "start       earliest\n"
        "state       filled\n"
        "partitions  2\n"
        "records     2\n"
        "\n"
        "PARTITION  START  END  RECORDS  SOURCE  LAG\n"
        "        0      0    2        2       4    0\n"
        "        1      0    0        0       0    0\n"
    )


def test_describe_shows_what_else_is_set(broker_cli: CommandLine, orders: str, paid: str) -> None:
    kept = f"{orders}-kept"
    broker_cli.ok("view", "create", kept, "--from", orders, "--sql", "a > 1\nOR b > 1", "-c", "retention.ms=3600000")
    described = broker_cli.ok("view", "describe", paid, kept, "-o", "json").json()
    assert [(each["view"], set(each["configs"])) for each in described] == [(paid, set()), (kept, {"retention.ms"})]
    first, second = broker_cli.ok("view", "describe", paid, kept).out.split(f"\n\nview        {kept}\n")
    assert "SETTING" not in first
    assert "expression  a > 1 OR b > 1\n" in second
    assert "retention.ms  3600000" in second
    assert "halfmoon.view" not in second


def test_delete(broker_cli: CommandLine, orders: str, paid: str) -> None:
    broker_cli.ok("view", "create", f"{orders}-x", "--from", orders, "--tag", "x")
    assert broker_cli.ok("view", "delete", f"{orders}-x", paid).out == f"{orders}-x: deleted\n{paid}: deleted\n"
    assert listed(broker_cli, f"{orders}-*") == []
    assert broker_cli.ok("consume", orders, "-e", "-f", "%s").out == "abcd"


@pytest.mark.parametrize("command", ["describe", "delete"])
def test_what_is_no_view_and_what_is_not_there(broker_cli: CommandLine, orders: str, command: str) -> None:
    assert broker_cli("view", command, orders).failed_with(1) == f"halfmoon: {orders}: that topic is not a view"
    assert f"{orders}-none: UNKNOWN_TOPIC_OR_PARTITION" in broker_cli("view", command, f"{orders}-none").failed_with(1)
    assert broker_cli.ok("consume", orders, "-e", "-f", "%s").out == "abcd"


def test_all_is_deleted_that_can_be(broker_cli: CommandLine, orders: str, paid: str) -> None:
    outcome = broker_cli("view", "delete", f"{orders}-none", orders, paid, "-o", "json")
    assert outcome.code == 1
    assert [(row["view"], row["ok"]) for row in outcome.json()] == [
        (f"{orders}-none", False),
        (orders, False),
        (paid, True),
    ]
    assert outcome.json()[1]["result"] == "that topic is not a view"


def test_a_view_that_another_one_needs(broker_cli: CommandLine, orders: str, paid: str) -> None:
    broker_cli.ok("view", "create", f"{orders}-of-view", "--from", paid, "--sql", "amount > 100")
    said = broker_cli("view", "delete", paid).failed_with(1)
    assert said.startswith(
        f"halfmoon: {paid}: POLICY_VIOLATION: topic '{paid}' is the source of the view '{orders}-of-view'"
    )
    # Both at once can go: the broker sees to the order.
    assert broker_cli.ok("view", "delete", paid, f"{orders}-of-view").code == 0


def test_a_view_whose_source_is_gone_is_still_one(broker_cli: CommandLine, orders: str, paid: str) -> None:
    broker_cli.ok("topic", "delete", "--force", orders)
    assert [(row["view"], row["source"]) for row in listed(broker_cli, f"{orders}-*")] == [(paid, orders)]
    assert broker_cli.ok("view", "delete", paid).out == f"{paid}: deleted\n"


def test_nobody_else_writes_into_a_view(broker_cli: CommandLine, paid: str) -> None:
    assert "POLICY_VIOLATION" in broker_cli("produce", paid, "x").failed_with(1)
    assert broker_cli.ok("consume", paid, "-e", "-f", "%s").out == "ad"
