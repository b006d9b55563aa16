"""Views where the feature is off: nobody defines one, and those that exist wait until it is on again."""

from __future__ import annotations

from typing import Any

import pytest

from halfmoon.errors import BrokerError, Fault
from halfmoon.server.plugin_host import Host
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, open_broker, partition_of, relay, send, turn, values

OFF = ("view",)
VIEW = {"halfmoon.view.source": "t", "halfmoon.view.prefix": "a"}


@pytest.fixture
def broker(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    """One without views, on a log with a view of a topic of 2 partitions."""
    before = open_broker(fs, clock)
    before.create_topic("t", 2)
    before.create_topic("v", configs=VIEW | {"retention.ms": "5"})
    send(before, "t", b"a1", b"b1")
    relay(before)
    before.close()
    return open_broker(fs, clock, off=OFF)


def topic_of(broker: BareNode, name: str) -> Any:
    found = broker.topic(name)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "configs",
    [VIEW, {"halfmoon.view.source": "t"}, {"halfmoon.view.x": ""}],
)
def test_nobody_creates_a_view(fs: FaultyFileSystem, clock: VirtualClock, configs: dict[str, str]) -> None:
    broker = open_broker(fs, clock, off=OFF)
    broker.create_topic("t", 1)
    with pytest.raises(BrokerError, match=f"{next(iter(configs))} is not supported: view is off") as caught:
        broker.create_topic("v", configs=configs)
    assert caught.value.fault is Fault.INVALID_CONFIG
    assert broker.topic("v") is None
    with pytest.raises(BrokerError, match="view is off"):
        Host(broker, "unused").check_view(configs)


def test_the_definition_stays_and_is_not_shown(broker: BareNode) -> None:
    view = topic_of(broker, "v")
    assert view.configs == VIEW | {"retention.ms": "5"}
    shown = {each.config.name for each in broker.topic_configs.effective(view.configs, broker.settings)}
    assert "retention.ms" in shown
    assert not [name for name in shown if name.startswith("halfmoon.view.")]
    assert broker.features.topic_entries == ()
    assert broker.topic_configs.fixed(view.configs) == VIEW


def test_a_change_keeps_the_definition(broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock) -> None:
    view = topic_of(broker, "v")
    broker.alter_configs(view, {"retention.ms": "6"})
    assert view.configs == VIEW | {"retention.ms": "6"}
    broker.alter_configs(view, {})
    assert view.configs == VIEW
    broker.alter_configs(view, dict(VIEW))
    broker.alter_configs(topic_of(broker, "t"), {"retention.ms": "7"})
    for name, value in (("halfmoon.view.prefix", "b"), ("halfmoon.view.from", "latest")):
        with pytest.raises(BrokerError, match=f"topic config {name} is not supported: view is off") as caught:
            broker.alter_configs(view, {name: value})
        assert caught.value.fault is Fault.INVALID_CONFIG
    broker.close()
    again = open_broker(fs, clock)
    assert topic_of(again, "v").configs == VIEW
    assert topic_of(again, "t").configs == {"retention.ms": "7"}


def test_a_derived_topic_is_read_only(broker: BareNode) -> None:
    with pytest.raises(BrokerError) as caught:
        send(broker, "v", b"a2")
    assert caught.value.fault is Fault.POLICY_VIOLATION
    with pytest.raises(BrokerError) as caught:
        broker.add_partitions(topic_of(broker, "v"), 3)
    assert caught.value.fault is Fault.INVALID_PARTITIONS
    assert values(broker, "v") == [b"a1"]


def test_nothing_is_filled_or_told(broker: BareNode) -> None:
    send(broker, "t", b"a2")
    relay(broker)
    assert values(broker, "v") == [b"a1"]
    assert not [family for family in broker.features.families if family.name.startswith("halfmoon_view")]
    assert broker.health() == []
    assert broker.warnings() == []


@pytest.mark.parametrize("end", ["close", "kill", "power loss"])
@pytest.mark.parametrize("starts", [1, 2])
def test_back_on_a_view_catches_up(
    broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock, end: str, starts: int
) -> None:
    for start in range(starts):
        send(broker, "t", b"a%d" % (start + 2), b"b")
        broker.add_partitions(topic_of(broker, "t"), 3 + start)
        send(broker, "t", b"a-%d" % start, index=2 + start)
        turn(broker)
        if end == "close":
            broker.close()
        else:
            fs = fs.kill() if end == "kill" else fs.power_loss()
        broker = open_broker(fs, clock, off=OFF if start + 1 < starts else ())
    relay(broker)
    view = topic_of(broker, "v")
    assert values(broker, "v") == [b"a%d" % number for number in range(1, starts + 2)]
    assert [values(broker, "v", 2 + start) for start in range(starts)] == [[b"a-%d" % start] for start in range(starts)]
    assert broker.views.state(view) == "filled"
    assert partition_of(broker, "v").source_next in (1 + 2 * starts, 2 + 2 * starts)


def test_a_source_is_not_deleted_without_force(broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock) -> None:
    send(broker, "t", b"a2")
    with pytest.raises(BrokerError, match="is the source of the view 'v'") as caught:
        broker.delete_topic(topic_of(broker, "t"))
    assert caught.value.fault is Fault.POLICY_VIOLATION
    broker.alter_configs(topic_of(broker, "t"), {"halfmoon.delete.force": "true"})
    turn(broker)
    broker.close()
    again = open_broker(fs, clock, off=OFF)
    again.delete_topic(topic_of(again, "t"))
    turn(again)
    again.close()
    again = open_broker(fs, clock)
    relay(again)
    assert values(again, "v") == [b"a1"]
    assert again.views.state(topic_of(again, "v")) == "its source was deleted"


def test_a_view_may_be_deleted(broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker.delete_topic(topic_of(broker, "v"))
    turn(broker)
    broker.close()
    again = open_broker(fs, clock)
    relay(again)
    assert again.topic("v") is None
    assert again.views.readings() == []
