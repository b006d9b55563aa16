"""The coordinator of groups, made of the broker's settings and topics, and kept up with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from halfmoon.config.settings import GroupsSettings, Settings
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.live import Live
from halfmoon.services.groups.consumer.settings import ConsumerSettings, GroupOverrides
from halfmoon.services.groups.coordination import Coordination
from halfmoon.services.groups.messages import GroupSettings


def build_coordination(
    settings: Live[Settings],
    catalog: Catalog,
    overrides: Callable[[str], GroupOverrides],
    new_member_id: Callable[[str], str],
    on_stop: Callable[[Callable[[], None]], object],
) -> Coordination:
    """`overrides(group)`: what a group's own configuration is set to; asked whenever it matters. `new_member_id` makes
    a member id that begins with what it is given. `on_stop` is told how the settings forget the coordinator."""
    consumer = ConsumerSettings(overrides=overrides)
    _set(consumer, settings.current)
    coordination = Coordination(_limits(settings.current.groups), consumer, CatalogTopics(catalog), new_member_id)

    def changed(new: Settings) -> None:
        coordination.classic.reconfigure(_limits(new.groups))
        _set(consumer, new)

    on_stop(settings.subscribe(changed))
    return coordination


def _set(consumer: ConsumerSettings, settings: Settings) -> None:
    groups, rocketmq = settings.groups, settings.listeners.rocketmq
    consumer.session_timeout_ms = groups.consumer_session_timeout_ms
    consumer.heartbeat_min_ms = groups.consumer_heartbeat_min_ms
    consumer.heartbeat_max_ms = groups.consumer_heartbeat_max_ms
    consumer.heartbeats_per_second = groups.consumer_heartbeats_per_second
    consumer.max_size = groups.most_members
    consumer.default_assignor = groups.default_assignor
    consumer.broker_name = "halfmoon" if rocketmq is None else rocketmq.broker_name
    consumer.may_upgrade = groups.migration_policy in ("bidirectional", "upgrade")
    consumer.may_downgrade = groups.migration_policy in ("bidirectional", "downgrade")


def _limits(groups: GroupsSettings) -> GroupSettings:
    return GroupSettings(
        initial_rebalance_delay_ms=groups.initial_rebalance_delay_ms,
        min_session_timeout_ms=groups.min_session_timeout_ms,
        max_session_timeout_ms=groups.max_session_timeout_ms,
        max_size=groups.most_members,
        heartbeat_wait_ms=groups.heartbeat_wait_ms,
    )


class CatalogTopics:
    """The catalog's topics, as the coordinator looks at them (consumer/subscriptions.Topics)."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    @property
    def changes(self) -> int:
        return self._catalog.changes

    def number(self, name: str) -> int | None:
        topic = self._catalog.by_name.get(name)
        return None if topic is None else topic.number

    def name(self, number: int) -> str | None:
        topic = self._catalog.by_number.get(number)
        return None if topic is None else topic.name

    def partitions(self, number: int) -> int:
        topic = self._catalog.by_number.get(number)
        return 0 if topic is None else len(topic.partitions)

    def names(self) -> Iterable[str]:
        # Kafka's patterns find its internal topics (TopicRegexResolver), and its clients rely on it. Those of our own
        # hold other topics' messages before their time.
        return (name for name, topic in self._catalog.by_name.items() if not topic.internal or name.startswith("__"))
