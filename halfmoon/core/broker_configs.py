"""The node's configurations under Kafka's names: which there are, and which can be changed while it runs.

Each has four layers; the first that says anything counts:

    this node (by its id)  →  all nodes (the name "")  →  broker.yaml, flags, environment  →  the default

The first two are control records (core/administration.py), so they are back after a restart; the others are
`Settings`. Rows come from three places:

- `_SETTINGS`: settings with a name of Kafka's. Those with a `place` can be changed at run time: `Settings` are replaced
  as a whole (`broker.settings`), and whoever keeps something made from them is told (`DynamicConfigs.watch`). The
  others are shown and read-only.
- the topics' configurations (`topic_configs`), under their node-wide name: what topics do that do not say;
- the groups' (`group_configs`), likewise.

A name or value that is not taken is refused, and so is one that Kafka has and that cannot be obeyed here. Kafka takes
only some of these at run time (DynamicBrokerConfig); here all can be that do not need a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from halfmoon.core.administration import ALL_NODES, BROKER
from halfmoon.core.config import Settings
from halfmoon.core.control import ResourceConfigsSet
from halfmoon.core.errors import BrokerError, Fault
from halfmoon.core.group_configs import GROUP_CONFIGS, GroupConfig
from halfmoon.core.sections import SettingError
from halfmoon.core.topic_configs import INT_MAX, LONG_MAX, TOPIC_CONFIGS, Kind, boolean, integer

if TYPE_CHECKING:
    from halfmoon.core.broker import Broker


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
        "How long a connection may be silent before it is closed; -1 = for ever.",
        "limits.idle_timeout", integer(-1, LONG_MAX), "limits.idle_timeout_ms", _unless(0),
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
        "group.max.size", Kind.INT, lambda s: str(s.groups.max_size or INT_MAX),
        "How many members a classic group may have.",
        "groups.max_size", integer(1, INT_MAX), "groups.max_size",
    ),
    _setting(
        "group.min.session.timeout.ms", Kind.INT, lambda s: str(s.groups.min_session_timeout_ms),
        "The shortest session timeout a member of a classic group may ask for.",
        "groups.min_session_timeout", integer(1, INT_MAX), "groups.min_session_timeout_ms",
    ),
    _setting(
        "halfmoon.log.flush", Kind.STRING, lambda s: s.log.flush,
        "A produced batch is acknowledged after fdatasync (sync) or after the write (interval).", "log.flush",
    ),
    _setting("log.dirs", Kind.STRING, lambda s: s.node.data_dir, "Where the data lies.", "node.data_dir"),
    _setting(
        "max.connections", Kind.INT, lambda s: str(s.limits.max_connections),
        "Connections of clients at a time; the next one is closed.",
        "limits.max_connections", integer(1, INT_MAX), "limits.max_connections",
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
)  # fmt: skip

_NODE_SETTINGS = {
    "halfmoon.topics.headers": "topics.headers",
    "halfmoon.topics.key_index": "topics.key_index",
    "log.retention.bytes": "log.retention_bytes",
    "log.retention.ms": "log.retention",
    "log.segment.bytes": "log.segment_bytes",
    "message.max.bytes": "topics.max_message_bytes",
}
"""Where the defaults of topics stand in broker.yaml."""


def _of_groups(group: GroupConfig, settings: Settings) -> str:
    return group.default(settings, "")


def _rows() -> dict[str, BrokerConfig]:
    rows = {row.name: row for row in _SETTINGS}
    for topic in TOPIC_CONFIGS.values():
        if topic.node_name and topic.node_name not in rows:
            rows[topic.node_name] = BrokerConfig(
                topic.node_name, topic.kind, topic.default, topic.check,
                f"Of topics that do not say {topic.name}. {topic.documentation}",
                _NODE_SETTINGS.get(topic.node_name, ""), topic.read_only, None,
            )  # fmt: skip
    for group in GROUP_CONFIGS.values():
        if group.node_name:
            rows[group.node_name] = BrokerConfig(
                group.node_name, group.kind, partial(_of_groups, group), group.check,
                f"Of groups that do not say {group.name}. {group.documentation}", "", False, None,
            )  # fmt: skip
    return dict(sorted(rows.items()))


BROKER_CONFIGS: Mapping[str, BrokerConfig] = _rows()
"""Every configuration of a node there is, sorted by name; `advertised.listeners` apart, which depends on who asks."""

_ONE_NODE = "there is one node"
_ONE_LOG = "all topics share one commitlog; see the section log of broker.yaml"
_IN_YAML = "it is set in broker.yaml, and takes a restart"
_ONE_LOOP = "one event loop serves all requests"
_NO_AUTHENTICATION = "there is no authentication yet"

NOT_HERE: Mapping[str, str] = {
    "advertised.listeners": _IN_YAML,
    "authorizer.class.name": _NO_AUTHENTICATION,
    "background.threads": _ONE_LOOP,
    "follower.replication.throttled.rate": _ONE_NODE,
    "leader.replication.throttled.rate": _ONE_NODE,
    "listeners": _IN_YAML,
    "log.flush.interval.messages": _ONE_LOG,
    "log.flush.interval.ms": _ONE_LOG,
    "log.index.interval.bytes": _ONE_LOG,
    "log.preallocate": _ONE_LOG,
    "log.retention.hours": "log.retention.ms says the same",
    "log.retention.minutes": "log.retention.ms says the same",
    "log.roll.hours": _ONE_LOG,
    "log.roll.ms": _ONE_LOG,
    "max.connection.creation.rate": "the quota connection_creation_rate limits it by address",
    "max.connections.per.ip": "max.connections limits all of them together",
    "num.io.threads": _ONE_LOOP,
    "num.network.threads": _ONE_LOOP,
    "num.recovery.threads.per.data.dir": _ONE_LOG,
    "num.replica.fetchers": _ONE_NODE,
    "process.roles": _ONE_NODE,
    "replica.alter.log.dirs.io.max.bytes.per.second": "there is one data directory",
    "sasl.enabled.mechanisms": _NO_AUTHENTICATION,
    "ssl.keystore.location": _NO_AUTHENTICATION,
}
"""Configurations of nodes that Kafka has and that cannot be obeyed here, with the reason a refusal gives."""


def find(name: str) -> BrokerConfig:
    """The row of that name. Raises BrokerError(INVALID_REQUEST) that names it; INVALID_CONFIG if nobody knows it."""
    config = BROKER_CONFIGS.get(name)
    if config is None:
        reason = NOT_HERE.get(name)
        if reason is not None:
            raise BrokerError(Fault.INVALID_REQUEST, f"broker config {name} is not supported: {reason}")
        raise BrokerError(Fault.INVALID_CONFIG, f"unknown broker config name: {name}")
    return config


class DynamicConfigs:
    """What was set for this node at run time, and what follows from it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.base = broker.settings
        """What broker.yaml, flags and environment say."""
        self._watchers: list[Callable[[], None]] = []

    def watch(self, callback: Callable[[], None]) -> None:
        """Call back when `broker.settings` has changed."""
        self._watchers.append(callback)

    def overrides(self, name: str) -> dict[str, str]:
        """What is set for the node of that id, or for all nodes (ALL_NODES)."""
        return self._broker.catalog.administration.overrides(BROKER, name)

    def alter(self, name: str, overrides: Mapping[str, str], *, validate_only: bool = False) -> int:
        """Replace all that is set for the node of that id, or for all nodes; returns the log position to wait for.

        Raises BrokerError.
        """
        validate(overrides)
        other = self.overrides(str(self._broker.node_id) if name == ALL_NODES else ALL_NODES)
        layers = {**overrides, **other} if name == ALL_NODES else {**other, **overrides}
        _changed(self.base, layers)
        self._check_groups(layers)
        if validate_only:
            return 0
        position = self._broker.append_control(ResourceConfigsSet(BROKER, name, dict(overrides)))
        self.apply()
        self._broker.cleaner.configured()
        return position

    def apply(self) -> None:
        """Make true what the catalog says: after a change, and once at start."""
        broker = self._broker
        broker.settings = _changed(self.base, broker.catalog.administration.node_overrides())
        broker.groups.reconfigure()
        broker.group_configs.node_changed()
        for callback in self._watchers:
            callback()

    def _check_groups(self, layers: Mapping[str, str]) -> None:
        """Groups' own configurations must still make sense beside the new defaults."""
        defaults = {row.name: layers[row.node_name] for row in GROUP_CONFIGS.values() if row.node_name in layers}
        self._broker.group_configs.check({}, defaults)


def validate(overrides: Mapping[str, str]) -> None:
    """Raise BrokerError, naming the key, unless every override is known, changeable, and its value taken."""
    for name, value in overrides.items():
        row = find(name)
        if row.read_only:
            where = f": it is {row.setting} in broker.yaml, and takes a restart" if row.setting else ""
            raise BrokerError(Fault.INVALID_REQUEST, f"broker config {name} cannot be changed at run time{where}")
        try:
            row.check(value.strip())
        except ValueError as error:
            raise BrokerError(
                Fault.INVALID_REQUEST, f"invalid value '{value}' for broker config {name}: {error}"
            ) from None


def _changed(settings: Settings, overrides: Mapping[str, str]) -> Settings:
    """The settings with what is set at run time. Raises BrokerError where they contradict each other."""
    sections: dict[str, dict[str, object]] = {}
    for name, value in overrides.items():
        row = BROKER_CONFIGS.get(name)
        if row is not None and row.place is not None:
            sections.setdefault(row.place.section, {})[row.place.field] = row.place.parse(value.strip())
    try:
        changed = {
            section: msgspec.structs.replace(getattr(settings, section), **values)
            for section, values in sections.items()
        }
    except SettingError as error:
        raise BrokerError(Fault.INVALID_REQUEST, f"invalid broker configs: {error}") from None
    return msgspec.structs.replace(settings, **changed)
