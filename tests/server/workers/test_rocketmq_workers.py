"""RocketMQ's brokers of a process with shards: names, addresses, and changes of the catalog."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from halfmoon.adapters.rocketmq.shards import Broker, Holder
from halfmoon.cluster.asking import Told
from halfmoon.cluster.changes import Changes
from halfmoon.cluster.messages import Question
from halfmoon.cluster.placement import Layout
from halfmoon.cluster.shared import SharedCatalog
from halfmoon.cluster.store import CatalogUnavailableError
from halfmoon.config.listener_settings import RocketmqListener
from halfmoon.config.settings import load_settings
from halfmoon.config.units import Address
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Topic
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema import control
from halfmoon.server.workers.rocketmq_asking import RocketmqGroups, RocketmqMessages
from halfmoon.server.workers.rocketmq_brokers import RocketmqBrokers, broker_name, listener_of
from halfmoon.server.workers.rocketmq_changes import CatalogChanges
from halfmoon.services.topic_configs import topic_configs


def shared(*shards: int) -> tuple[SharedCatalog, Topic]:
    """A topic whose partitions lie in these."""
    catalog = SharedCatalog(Catalog(load_settings({}, {}, {}), topic_configs(())))
    catalog.apply(control.TopicCreated(5, "orders", b"i" * 16, len(shards), {}, False, None, 40))
    catalog.apply(control.PartitionsPlaced(5, 0, bytes(shards)))
    return catalog, catalog.catalog.by_number[5]


@pytest.mark.parametrize(
    ("shard", "configured", "name"),
    [
        (7, "halfmoon", "shard-07"),
        (12, "halfmoon", "shard-12"),
        (200, "halfmoon", "shard-200"),
        (7, "shop", "shop-shard-07"),
        (7, "b" * 91, "b" * 91 + "-shard-07"),
        (7, "b" * 92, "shard-07"),
    ],
)
def test_names(shard: int, configured: str, name: str) -> None:
    assert broker_name(shard, configured) == name


def test_listeners_count_ports_up() -> None:
    given = RocketmqListener(bind=Address("h", 100), advertise=Address("a", 200), cluster="c")
    made = listener_of(given, 3)
    assert (made.bind, made.advertise, made.broker_name, made.cluster) == (
        Address("h", 103), Address("a", 203), "shard-03", "c",
    )  # fmt: skip
    made = listener_of(RocketmqListener(bind=Address("h", 0)), 3)
    assert (made.bind, made.advertise) == (Address("h", 0), None)


def test_who_has_what() -> None:
    catalog, topic = shared(2, 0, 2, 3)
    addresses = {0: ("", 10), 1: ("", 11), 2: ("h", 12)}
    brokers = RocketmqBrokers(catalog, "halfmoon", addresses)
    first, third = Broker("shard-00", "", 10), Broker("shard-02", "h", 12)
    assert brokers.all() == [first, Broker("shard-01", "", 11), third]
    assert brokers.of_topic(topic) == [(first, 1), (third, 2)]
    assert [brokers.holder(topic, index) for index in range(5)] == [
        Holder(third, 0, 40), Holder(first, 0, 41), Holder(third, 1, 42), None, None,
    ]  # fmt: skip
    addresses[3] = "", 13
    assert brokers.holder(topic, 3) == Holder(Broker("shard-03", "", 13), 0, 43)


class Strange:
    """It answers what nobody has asked."""

    def ask(self, shard: int, question: Question, told: Told) -> None:
        told("what?")


def test_answers_of_another_kind() -> None:
    catalog, topic = shared(1, 2)
    groups = RocketmqGroups(0, 1, Layout.of_workers(4), Strange(), Strange())
    messages = RocketmqMessages(catalog, Strange(), Strange(), lambda delay_s, callback: None)
    told: list[Any] = []
    groups.commit("g", {(5, 0): 1}, told.append)
    groups.committed("g", None, told.append)
    groups.consumer_seen("g", "c", "h", told.append)
    groups.consuming(topic, told.append)
    messages.append(topic, 0, b"", told.append)
    messages.ends({(5, 0): 1, (5, 1): 1}, told.append)
    assert [(type(each), each.fault) for each in told] == [(BrokerError, Fault.UNKNOWN_SERVER_ERROR)] * 6


def test_partitions_that_lie_nowhere() -> None:
    catalog, topic = shared(1, 2)
    messages = RocketmqMessages(catalog, Strange(), Strange(), lambda delay_s, callback: None)
    told: list[Any] = []
    messages.append(topic, 2, b"", told.append)
    assert told.pop().fault is Fault.UNKNOWN_TOPIC_OR_PARTITION
    messages.ends({(5, 2): 1}, told.append)
    assert told == [[]]


NOBODY: Any = SimpleNamespace(ask=None)
"""Deletes topics here."""


class Driver:
    """As of SharedCatalogDriver."""

    def __init__(self, fails: Exception | None = None) -> None:
        self.fails = fails

    async def change(self, work: Any) -> Any:
        await asyncio.sleep(0)
        if self.fails is not None:
            raise self.fails
        return work()


def changed(driver: Driver, work: Any) -> list[Any]:
    return asyncio.run(_changed(driver, work))


async def _changed(driver: Driver, work: Any) -> list[Any]:
    told: list[Any] = []
    catalog, _ = shared(1)
    changes = CatalogChanges(driver, Changes(catalog, Layout.of_workers(4)), catalog, NOBODY)  # type: ignore[arg-type]
    changes.change(work, told.append)
    assert told == []
    for _ in range(5):
        await asyncio.sleep(0)
    assert not changes._tasks
    return told


def test_changes_are_told_when_they_are_made() -> None:
    given: list[Any] = []
    assert changed(Driver(), given.append) == [None]
    assert isinstance(given[0], SharedCatalog)


def test_what_a_change_raises_is_told() -> None:
    def refuse(_: object) -> None:
        raise error

    error = BrokerError(Fault.TOPIC_ALREADY_EXISTS)
    assert changed(Driver(), refuse) == [error]


def test_a_catalog_that_cannot_be_changed_now() -> None:
    (error,) = changed(Driver(CatalogUnavailableError("gone")), lambda _: None)
    assert (error.fault, "gone" in error.message) == (Fault.COORDINATOR_NOT_AVAILABLE, True)


def test_what_is_committed_is_known() -> None:
    catalog, _ = shared(1)
    changes = Changes(catalog, Layout.of_workers(4))
    told: list[Any] = []
    known = CatalogChanges(Driver(), changes, catalog, NOBODY)  # type: ignore[arg-type]
    known.when_known(told.append)
    assert told == [None]
    changes.begin()
    changes.append_control(control.TopicRenamed(5, "other"))
    known.when_known(told.append)
    assert told == [None]
    changes.committed(1)
    assert told == [None, None]
