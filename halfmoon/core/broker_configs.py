"""The node's configurations under Kafka's names: which there are, and which can be changed while it runs.

Each has four layers; the first that says anything counts:

    this node (by its id)  →  all nodes (the name "")  →  broker.yaml, flags, environment  →  the default

The first two are control records (core/administration.py), so they are back after a restart; the others are
`Settings`. Rows come from three places:

- `_SETTINGS`: settings with a name of Kafka's. Those with a `place` can be changed at run time: `Settings` are replaced
  as a whole (`broker.settings`), where they are looked up when they are used; the groups, which keep something made
  from them, are told. The others are shown and read-only.
- the topics' configurations (`topic_configs`), under their node-wide name: what topics do that do not say;
- the groups' (`group_configs`), likewise.

What the first two say is left out, and told as a warning, where it makes no sense beside what broker.yaml says today,
or is not taken any more: a start must not depend on it, since nobody could take it back then. What would keep everybody
out is refused; and a start may `unset` anything by name.

A name or value that is not taken is refused, and so is one that Kafka has and that cannot be obeyed here. Kafka takes
only some of these at run time (DynamicBrokerConfig); here all can be that do not need a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from halfmoon.core.config import Settings
from halfmoon.core.errors import BrokerError, Fault
from halfmoon.core.group_configs import GROUP_CONFIGS, GroupConfig
from halfmoon.core.refused_configs import why_refused
from halfmoon.core.sections import SettingError
from halfmoon.core.topic_configs import INT_MAX, LONG_MAX, TOPIC_CONFIGS, Kind, boolean, check_lags, integer
from halfmoon.schema.control import ResourceConfigsSet
from halfmoon.services.configs.state import ALL_NODES, BROKER

if TYPE_CHECKING:
    from halfmoon.core.broker import Broker


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

_NODE_SETTINGS = {
    "halfmoon.topics.headers": "topics.headers",
    "halfmoon.topics.key_index": "topics.key_index",
    "log.retention.bytes": "log.retention_bytes",
    "log.retention.ms": "log.retention",
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


def find(name: str) -> BrokerConfig:
    """The row of that name. Raises BrokerError(INVALID_REQUEST) that names it; INVALID_CONFIG if nobody knows it."""
    config = BROKER_CONFIGS.get(name)
    if config is None:
        reason = why_refused(name)
        if reason is not None:
            raise BrokerError(Fault.INVALID_REQUEST, f"broker config {name} is not supported: {reason}")
        raise BrokerError(Fault.INVALID_CONFIG, f"unknown broker config name: {name}")
    return config


def known_elsewhere(name: str) -> bool:
    """Whether Kafka has a configuration of that name that cannot be obeyed here; so it is never set."""
    return name not in BROKER_CONFIGS and why_refused(name) is not None


class DynamicConfigs:
    """What was set for this node at run time, and what follows from it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.base = broker.settings
        """What broker.yaml, flags and environment say."""
        self.left_out: dict[str, str] = {}
        """What is set and cannot hold beside that, with the reason."""

    def overrides(self, name: str) -> dict[str, str]:
        """What is set for the node of that id, or for all nodes (ALL_NODES)."""
        return self._broker.state.configs.overrides(BROKER, name)

    def alter(self, name: str, overrides: Mapping[str, str], *, validate_only: bool = False) -> int:
        """Replace all that is set for the node of that id, or for all nodes; returns the log position to wait for.

        Raises BrokerError.
        """
        validate(overrides)
        other = self.overrides(str(self._broker.node_id) if name == ALL_NODES else ALL_NODES)
        layers = {**overrides, **other} if name == ALL_NODES else {**other, **overrides}
        _changed(self.base, layers)
        self._check_topics(layers)
        self._check_groups(layers)
        if validate_only:
            return 0
        position = self._broker.append_control(ResourceConfigsSet(BROKER, name, dict(overrides)))
        self.apply()
        return position

    def apply(self) -> None:
        """Make true what the catalog says: after a change, and once at start."""
        broker = self._broker
        settings, self.left_out = _as_far_as_possible(self.base, broker.state.configs.node_overrides())
        broker.live.replace(settings)
        broker.group_configs.node_changed()

    def unset(self, names: Collection[str]) -> None:
        """Forget what was set under these names, for this node and for all. For a start that is to let in again who was
        locked out; topics' defaults are kept unless they are named, since data may depend on them."""
        broker = self._broker
        for layer in (ALL_NODES, str(broker.node_id)):
            known = self.overrides(layer)
            kept = {name: value for name, value in known.items() if name not in names}
            if kept != known:
                broker.append_control(ResourceConfigsSet(BROKER, layer, kept))
                gone = " ".join(f"{name}={value}" for name, value in known.items() if name in names)
                broker.logger.warning("event=configs_unset %s", gone)

    def warnings(self) -> list[str]:
        """A sentence for everything that is set at run time and does not hold."""
        return [
            f"broker config {name}={value}, which was set at run time, is left out: {self.left_out[name]}"
            for name, value in self._broker.state.configs.node_overrides().items()
            if name in self.left_out
        ]

    def _check_topics(self, layers: Mapping[str, str]) -> None:
        """Defaults of topics must make sense beside each other."""
        least, most = (
            layers.get(row.node_name, row.default(self.base))
            for row in (TOPIC_CONFIGS["min.compaction.lag.ms"], TOPIC_CONFIGS["max.compaction.lag.ms"])
        )
        check_lags(least, most)

    def _check_groups(self, layers: Mapping[str, str]) -> None:
        """Groups' own configurations must still make sense beside the new defaults."""
        configs = self._broker.group_configs
        defaults = {row.name: layers[row.node_name] for row in GROUP_CONFIGS.values() if row.node_name in layers}
        if defaults != configs.node_defaults():
            configs.check({}, defaults)
            for contradiction in configs.contradictions(defaults):
                raise BrokerError(Fault.INVALID_CONFIG, contradiction)


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
    result = msgspec.structs.replace(settings, **changed)
    if "num.partitions" in overrides and result.topics.partitions > result.limits.max_partitions_per_topic:
        raise BrokerError(
            Fault.INVALID_REQUEST,
            f"invalid broker configs: num.partitions is {result.topics.partitions}, more than "
            f"limits.max_partitions_per_topic in broker.yaml, which is {result.limits.max_partitions_per_topic}",
        )
    return result


def _as_far_as_possible(settings: Settings, overrides: Mapping[str, str]) -> tuple[Settings, dict[str, str]]:
    """The settings with what is set at run time, but for what contradicts them or is not taken; and that, with the
    reason. What makes sense only beside another override is looked at again after that one."""
    left, reasons, progress = dict(overrides), dict[str, str](), True
    while progress:
        progress = False
        for name, value in list(left.items()):
            row = BROKER_CONFIGS.get(name)
            try:
                if row is not None and row.place is not None:
                    validate({name: value})
                    settings = _changed(settings, {name: value})
            except BrokerError as error:
                reasons[name] = error.message
            else:
                del left[name]
                progress = True
    return settings, {name: reasons[name] for name in left}
