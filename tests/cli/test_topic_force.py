"""`halfmoon topic delete` of what views are filled from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from halfmoon.testing import Broker
from tests.cli.conftest import CommandLine


@pytest.fixture(scope="session")
def bootstrap_servers(halfmoon_broker: Broker) -> str:
    """Views are Halfmoon's own: no other broker is asked."""
    return halfmoon_broker.bootstrap_servers


@pytest.fixture
def viewed(broker_cli: CommandLine, name: str) -> Iterator[str]:
    """A topic with the records a and b, and the view NAME-paid, which has a."""
    broker_cli.ok("topic", "create", name, "-p", "1")
    broker_cli.ok("produce", name, "b", "-H", "TAGS=open")
    broker_cli.ok("produce", name, "a", "-H", "TAGS=paid")
    broker_cli.ok("view", "create", f"{name}-paid", "--from", name, "--tag", "paid")
    broker_cli.ok("consume", f"{name}-paid", "-c", "1")
    yield name
    views = broker_cli.ok("view", "list", f"{name}-*", "-o", "json").json()
    broker_cli("topic", "delete", name, *(row["view"] for row in views))


def settings(broker_cli: CommandLine, topic: str) -> set[str]:
    (described,) = broker_cli.ok("topic", "describe", topic, "-o", "json").json()
    return set(described["configs"])


def test_the_broker_says_which_views_are_in_the_way(broker_cli: CommandLine, viewed: str) -> None:
    said = broker_cli("topic", "delete", viewed).failed_with(1)
    assert said.startswith(
        f"halfmoon: {viewed}: POLICY_VIOLATION: topic '{viewed}' is the source of the view '{viewed}-paid'"
    )
    assert said.endswith("set halfmoon.delete.force=true on it (halfmoon topic delete --force)")
    assert settings(broker_cli, viewed) == set()


def test_by_force_the_views_keep_what_they_have_and_are_filled_no_more(broker_cli: CommandLine, viewed: str) -> None:
    assert broker_cli.ok("topic", "delete", "--force", viewed).out == f"{viewed}: deleted\n"
    assert broker_cli.ok("consume", f"{viewed}-paid", "-e", "-f", "%s").out == "a"
    # Not by a later topic of the same name either. The new view shows that the broker has seen to both by then.
    broker_cli.ok("topic", "create", viewed, "-p", "1")
    broker_cli.ok("view", "create", f"{viewed}-again", "--from", viewed, "--tag", "paid")
    broker_cli.ok("produce", viewed, "c", "-H", "TAGS=paid")
    assert broker_cli.ok("consume", f"{viewed}-again", "-c", "1", "-f", "%s").out == "c"
    assert broker_cli.ok("consume", f"{viewed}-paid", "-e", "-f", "%s").out == "a"
    (described,) = broker_cli.ok("view", "describe", f"{viewed}-paid", "-o", "json").json()
    assert described["state"] == "its source was deleted"
    lines = broker_cli.ok("view", "list", f"{viewed}-*").out.splitlines()
    assert lines[0].endswith("STATE")
    assert next(line for line in lines if line.endswith("its source was deleted")).startswith(f"{viewed}-paid ")
    again = ("view", "create", f"{viewed}-paid", "--from", viewed, "--tag", "paid", "--if-not-exists")
    assert broker_cli(*again).failed_with(1) == f"halfmoon: {viewed}-paid: it exists, but its source was deleted"


def test_by_force_what_needs_none(broker_cli: CommandLine, viewed: str) -> None:
    deleted = broker_cli.ok("topic", "delete", "--force", f"{viewed}-paid", viewed, "-o", "json").json()
    assert deleted == [
        {"topic": f"{viewed}-paid", "result": "deleted", "ok": True},
        {"topic": viewed, "result": "deleted", "ok": True},
    ]


def test_a_topic_that_is_not_there_does_not_keep_the_others(broker_cli: CommandLine, viewed: str) -> None:
    outcome = broker_cli("topic", "delete", "--force", f"{viewed}-none", viewed)
    said = outcome.failed_with(1)
    assert said == f"halfmoon: {viewed}-none: UNKNOWN_TOPIC_OR_PARTITION: topic '{viewed}-none' does not exist"
    assert outcome.out == f"{viewed}: deleted\n"
    assert said == broker_cli("topic", "delete", "--force", f"{viewed}-none").failed_with(1)


def test_what_is_named_twice_is_neither_deleted_nor_changed(broker_cli: CommandLine, viewed: str) -> None:
    said = broker_cli("topic", "delete", "--force", viewed, viewed).failed_with(1)
    assert said == f"halfmoon: {viewed}: each resource must appear at most once"
    assert settings(broker_cli, viewed) == set()
