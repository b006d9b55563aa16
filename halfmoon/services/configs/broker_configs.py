"""The table of a node's configurations under Kafka's names: which there are, and which can be changed while it runs.

Each has four layers; the first that says anything counts:

    this node (by its id)  →  all nodes (the name "")  →  broker.yaml, flags, environment  →  the default

The first two are control records (`state`), so they are back after a restart; the others are `Settings`. Rows come from
three places:

- `_SETTINGS`: settings with a name of Kafka's. Those with a `place` can be changed at run time (`dynamic`). The others
  are shown and read-only.
- the topics' configurations (config/topic_configs.py), under their node-wide name: what topics do that do not say;
- the groups' (`group_configs`), likewise.

A name or value that is not taken is refused, and so is one that Kafka has and that cannot be obeyed here. Kafka takes
only some of these at run time (DynamicBrokerConfig); here all can be that do not need a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple

import msgspec

from halfmoon.config.sections import SettingError
from halfmoon.config.settings import Settings
from halfmoon.config.topic_configs import TopicConfigs
from halfmoon.config.values import INT_MAX, LONG_MAX, Kind, boolean, integer
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.configs.group_configs import GroupConfig, group_configs
from halfmoon.services.configs.refused_configs import why_refused

LEAST_IDLE_MS = 10_000
"""A tool must have the time to connect, to ask who leads, and to ask for a change."""
LEAST_CONNECTIONS = 10
"""Each of Kafka's tools takes two, and others are there, too."""


class Place(NamedTuple):
    """Where in `Settings` a value goes, and how it is read."""

    section: str
    field: str
    parse: Callable[[str], object]


class BrokerConfig(NamedTuple):
    """One configuration of a node. `check` raises ValueError saying what is expected."""

    name: str
    kind: Kind
    value: Callable[[Settings], str]
    """What the settings say."""
    check: Callable[[str], object]
    documentation: str
    setting: str
    """Where it stands in broker.yaml; empty: nowhere."""
    read_only: bool
    place: Place | None
    """Where it goes once it is changed; None where something else reads the layers itself."""


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _fixed(value: str) -> object:
    raise ValueError("it is read-only")


def _idle(value: str) -> int:
    number = integer(-1, LONG_MAX)(value)
    if 0 <= number < LEAST_IDLE_MS:
        raise ValueError(f"expected -1, or {LEAST_IDLE_MS} or more")
    return number


def _setting(
    name: str,
    kind: Kind,
    value: Callable[[Settings], str],
    documentation: str,
    setting: str = "",
    check: Callable[[str], object] = _fixed,
    field: str = "",
    parse: Callable[[str], object] | None = None,
) -> BrokerConfig:
    """A row of `_SETTINGS`; read-only unless `field` (`section.field` of Settings) is given."""
    section, _, attribute = field.partition(".")
    place = Place(section, attribute, parse or check) if field else None
    return BrokerConfig(name, kind, value, check, documentation, setting, not field, place)


def _unless(nothing: int, factor: int = 1) -> Callable[[str], int | None]:
    """Reads a number; `nothing` or less is None."""

    def parse(value: str) -> int | None:
        return None if int(value) <= nothing else int(value) * factor

    return parse


_SETTINGS = (
    _setting(
        "auto.create.topics.enable", Kind.BOOLEAN, lambda s: _truth(s.topics.auto_create),
        "Whether asking for a missing topic may create it.",
        "topics.auto_create", boolean, "topics.auto_create",
    ),
    _setting(
        "connections.max.idle.ms", Kind.LONG, lambda s: str(s.limits.idle_timeout_ms or -1),
        f"How long a connection may be silent before it is closed, {LEAST_IDLE_MS} or more; -1 = for ever.",
        "limits.idle_timeout", _idle, "limits.idle_timeout_ms", _unless(0),
    ),
    _setting(
        "controller.quota.window.num", Kind.INT, lambda s: str(s.limits.quota_windows),
        "As quota.window.num, for controller_mutation_rate.", "limits.quota_windows",
    ),
    _setting(
        "controller.quota.window.size.seconds", Kind.INT, lambda s: str(s.limits.quota_window_ms // 1000),
        "As quota.window.size.seconds, for controller_mutation_rate.", "limits.quota_window",
    ),
    _setting("default.replication.factor", Kind.INT, lambda s: "1", "A single node keeps one replica."),
    _setting("delete.topic.enable", Kind.BOOLEAN, lambda s: "true", "Topics can be deleted."),
    _setting(
        "group.consumer.max.size", Kind.INT, lambda s: str(s.groups.most_members),
        "As group.max.size, which is for both kinds of groups.", "groups.max_size",
    ),
    _setting(
        "group.consumer.migration.policy", Kind.STRING, lambda s: s.groups.migration_policy,
        "Whether a group with members may change its protocol.", "groups.migration_policy",
    ),
    _setting(
        "group.initial.rebalance.delay.ms", Kind.INT, lambda s: str(s.groups.initial_rebalance_delay_ms),
        "How long a new group waits for more members.",
        "groups.initial_rebalance_delay", integer(0, INT_MAX), "groups.initial_rebalance_delay_ms",
    ),
    _setting(
        "group.max.session.timeout.ms", Kind.INT, lambda s: str(s.groups.max_session_timeout_ms),
        "The longest session timeout a member of a classic group may ask for.",
        "groups.max_session_timeout", integer(1, INT_MAX), "groups.max_session_timeout_ms",
    ),
    _setting(
        "group.max.size", Kind.INT, lambda s: str(s.groups.most_members),
        "How many members a classic or consumer group may have.",
        "groups.max_size", integer(1, INT_MAX), "groups.max_size",
    ),
    _setting(
        "group.min.session.timeout.ms", Kind.INT, lambda s: str(s.groups.min_session_timeout_ms),
        "The shortest session timeout a member of a classic group may ask for.",
        "groups.min_session_timeout", integer(1, INT_MAX), "groups.min_session_timeout_ms",
    ),
    _setting(
        "group.share.max.share.sessions", Kind.INT, lambda s: str(s.groups.share.max_sessions),
        "How many share sessions there may be.", "groups.share.max_sessions",
    ),
    _setting(
        "group.share.max.size", Kind.INT, lambda s: str(s.groups.share.max_size),
        "How many members a share group may have.", "groups.share.max_size",
    ),
    _setting(
        "halfmoon.log.flush", Kind.STRING, lambda s: s.log.flush,
        "A produced batch is acknowledged after fdatasync (sync) or after the write (interval).", "log.flush",
    ),
    _setting(
        "log.segment.bytes", Kind.INT, lambda s: str(s.log.segment_bytes),
        "How large the files of the commitlog are, which all topics share.", "log.segment_bytes",
    ),
    _setting(
        "log.cleaner.backoff.ms", Kind.LONG, lambda s: str(s.log.cleaner.interval_ms),
        "How often it is looked whether there is something to clean.", "log.cleaner.interval",
    ),
    _setting(
        "log.cleaner.dedupe.buffer.size", Kind.LONG, lambda s: str(s.log.cleaner.memory_bytes),
        "How much memory keys may take while a partition is compacted.", "log.cleaner.memory_bytes",
    ),
    _setting(
        "log.cleaner.enable", Kind.BOOLEAN, lambda s: _truth(s.log.cleaner.enable),
        "Whether topics are compacted, and files that are mostly dead emptied.", "log.cleaner.enable",
    ),
    _setting("log.dirs", Kind.STRING, lambda s: s.node.data_dir, "Where the data lies.", "node.data_dir"),
    _setting(
        "max.connections", Kind.INT, lambda s: str(s.limits.max_connections),
        f"Connections of clients at a time, {LEAST_CONNECTIONS} or more; the next one is closed.",
        "limits.max_connections", integer(LEAST_CONNECTIONS, INT_MAX), "limits.max_connections",
    ),
    _setting("node.id", Kind.INT, lambda s: str(s.node.id), "This node.", "node.id"),
    _setting(
        "num.partitions", Kind.INT, lambda s: str(s.topics.partitions),
        "How many partitions a topic gets that does not say.",
        "topics.partitions", integer(1, INT_MAX), "topics.partitions",
    ),
    _setting(
        "offsets.retention.minutes", Kind.INT,
        lambda s: str(INT_MAX if s.groups.offsets_retention_ms is None else s.groups.offsets_retention_ms // 60_000),
        "How long the offsets of a group without members are kept, in minutes.",
        "groups.offsets_retention", integer(1, INT_MAX), "groups.offsets_retention_ms",
        lambda value: None if int(value) == INT_MAX else int(value) * 60_000,
    ),
    _setting(
        "quota.window.num", Kind.INT, lambda s: str(s.limits.quota_windows),
        "Over how many windows the rates of client quotas are measured.", "limits.quota_windows",
    ),
    _setting(
        "quota.window.size.seconds", Kind.INT, lambda s: str(s.limits.quota_window_ms // 1000),
        "How long such a window is.", "limits.quota_window",
    ),
    _setting(
        "socket.request.max.bytes", Kind.INT, lambda s: str(s.limits.max_request_bytes),
        "The largest request that is read.", "limits.max_request_bytes",
    ),
    _setting(
        "transaction.max.timeout.ms", Kind.INT, lambda s: str(s.transactions.max_timeout_ms),
        "The longest time that a producer may take for a transaction.", "transactions.max_timeout",
    ),
    _setting(
        "transactional.id.expiration.ms", Kind.INT, lambda s: str(s.transactions.id_expiration_ms or INT_MAX),
        "A transactional id that was not used for so long is forgotten.", "transactions.id_expiration",
    ),
)  # fmt: skip


def _of_groups(group: GroupConfig, settings: Settings) -> str:
    return group.default(settings, "")


_SERVICES = {
    "groups.share.": "share", "groups.": "groups", "log.cleaner.": "cleaner", "transactions.": "transactions",
    "limits.quota_": "quotas",
}  # fmt: skip
"""How the settings of a service begin in broker.yaml."""


def _is_on(row: BrokerConfig, off: Collection[str]) -> bool:
    service = next((service for start, service in _SERVICES.items() if row.setting.startswith(start)), None)
    return service not in off


def _rows(topics: TopicConfigs, off: Collection[str]) -> dict[str, BrokerConfig]:
    rows = {row.name: row for row in _SETTINGS if _is_on(row, off)}
    for topic in topics.rows.values():
        if topic.node_name and topic.node_name not in rows:
            rows[topic.node_name] = BrokerConfig(
                topic.node_name, topic.kind, topic.default, topic.check,
                f"Of topics that do not say {topic.name}. {topic.documentation}", topic.setting, topic.read_only, None,
            )  # fmt: skip
    for group in group_configs(off).values():
        if group.node_name:
            rows[group.node_name] = BrokerConfig(
                group.node_name, group.kind, partial(_of_groups, group), group.check,
                f"Of groups that do not say {group.name}. {group.documentation}", "", False, None,
            )  # fmt: skip
    return dict(sorted(rows.items()))


class BrokerConfigs:
    """The table: every configuration of a node there is; `advertised.listeners` apart, which depends on who asks."""

    def __init__(self, topics: TopicConfigs, off: Collection[str] = ()) -> None:
        """`off`: names of services that are off."""
        self.topics = topics
        self.rows: Mapping[str, BrokerConfig] = _rows(topics, off)
        """By name, sorted by it."""

    def find(self, name: str) -> BrokerConfig:
        """The row of that name. Raises BrokerError(INVALID_REQUEST) that names it; INVALID_CONFIG if nobody knows
        it."""
        config = self.rows.get(name)
        if config is None:
            reason = why_refused(name)
            if reason is not None:
                raise BrokerError(Fault.INVALID_REQUEST, f"broker config {name} is not supported: {reason}")
            raise BrokerError(Fault.INVALID_CONFIG, f"unknown broker config name: {name}")
        return config

    def known_elsewhere(self, name: str) -> bool:
        """Whether Kafka has a configuration of that name that cannot be obeyed here; so it is never set."""
        return name not in self.rows and why_refused(name) is not None

    def hidden(self, stored: Mapping[str, str]) -> dict[str, str]:
        """What is set and belongs to features that are off: nobody is shown it, and every change keeps it."""
        return {name: value for name, value in stored.items() if name not in self.rows}

    def validate(self, overrides: Mapping[str, str]) -> None:
        """Raise BrokerError, naming the key, unless every override is known, changeable, and its value taken."""
        for name, value in overrides.items():
            row = self.find(name)
            if row.read_only:
                where = f": it is {row.setting} in broker.yaml, and takes a restart" if row.setting else ""
                raise BrokerError(Fault.INVALID_REQUEST, f"broker config {name} cannot be changed at run time{where}")
            try:
                row.check(value.strip())
            except ValueError as error:
                raise BrokerError(
                    Fault.INVALID_REQUEST, f"invalid value '{value}' for broker config {name}: {error}"
                ) from None

    def changed(self, settings: Settings, overrides: Mapping[str, str]) -> Settings:
        """The settings with what is set at run time. Raises BrokerError where they contradict each other."""
        sections: dict[str, dict[str, object]] = {}
        for name, value in overrides.items():
            row = self.rows.get(name)
            if row is not None and row.place is not None:
                sections.setdefault(row.place.section, {})[row.place.field] = row.place.parse(value.strip())
        try:
            changed = {
                section: msgspec.structs.replace(getattr(settings, section), **values)
                for section, values in sections.items()
            }
        except SettingError as error:
            raise BrokerError(Fault.INVALID_REQUEST, f"invalid broker configs: {error}") from None
        result = msgspec.structs.replace(settings, **changed)
        if "num.partitions" in overrides and result.topics.partitions > result.limits.max_partitions_per_topic:
            raise BrokerError(
                Fault.INVALID_REQUEST,
                f"invalid broker configs: num.partitions is {result.topics.partitions}, more than "
                f"limits.max_partitions_per_topic in broker.yaml, which is {result.limits.max_partitions_per_topic}",
            )
        return result

    def as_far_as_possible(self, settings: Settings, overrides: Mapping[str, str]) -> tuple[Settings, dict[str, str]]:
        """The settings with what is set at run time, but for what contradicts them or is not taken; and that, with the
        reason. What makes sense only beside another override is looked at again after that one."""
        left, reasons, progress = dict(overrides), dict[str, str](), True
        while progress:
            progress = False
            for name, value in list(left.items()):
                row = self.rows.get(name)
                try:
                    if row is not None and row.place is not None:
                        self.validate({name: value})
                        settings = self.changed(settings, {name: value})
                except BrokerError as error:
                    reasons[name] = error.message
                else:
                    del left[name]
                    progress = True
        return settings, {name: reasons[name] for name in left}
