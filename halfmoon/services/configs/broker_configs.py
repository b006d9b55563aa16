"""The table of a node's configurations under Kafka's names: which there are, and which can be changed while it runs.

Each has four layers; the first that says anything counts:

    this node (by its id)  →  all nodes (the name "")  →  broker.yaml, flags, environment  →  the default

The first two are control records (`state`), so they are back after a restart; the others are `Settings`. Rows come from
three places:

- `_SETTINGS`: settings with a name of Kafka's. Those with a `place` can be changed at run time (`dynamic`). The others
  are shown and read-only.
- the topics' configurations (config/topic_configs.py), under their node-wide name: what topics do that do not say;
- the groups' (`group_configs`), likewise;
- those of Kafka's that can be changed at run time and only tune what is not here (config/kept_configs.py).

A name or value that is not taken is refused, and so is one that would promise what is not here, such as encryption.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple

import msgspec

from halfmoon.config.kept_configs import KEPT_OF_NODES, without_effect
from halfmoon.config.sections import SectionT, SettingError
from halfmoon.config.settings import NEW_NODE, Settings
from halfmoon.config.topic_configs import TopicConfigs
from halfmoon.config.values import (
    INT_MAX,
    LONG_MAX,
    Kind,
    always,
    boolean,
    checked,
    integer,
    read_only,
    stated,
    unknown,
)
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.configs.group_configs import GroupConfig, group_configs
from halfmoon.services.configs.refused_configs import why_refused

LEAST_IDLE_MS = 10_000
"""A tool must have the time to connect, to ask who leads, and to ask for a change."""
LEAST_CONNECTIONS = 10
"""Each of Kafka's tools takes two, and others are there, too."""


class Place(NamedTuple):
    """Where in `Settings` a value goes, and how it is read."""

    path: tuple[str, ...]
    """Names of sections, and of the field."""
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
    no_effect: bool = False
    """It is kept and shown, and nothing acts on it."""


def _idle(value: str) -> int:
    number = integer(-1, LONG_MAX)(value)
    if 0 <= number < LEAST_IDLE_MS:
        raise ValueError(f"expected -1, or {LEAST_IDLE_MS} or more")
    return number


def _shown(
    name: str, kind: Kind, value: Callable[[Settings], str], documentation: str, setting: str = ""
) -> BrokerConfig:
    """A row that is read-only."""
    return BrokerConfig(name, kind, value, read_only, documentation, setting, True, None)


def _set(
    name: str, kind: Kind, field: str, check: Callable[[str], object], documentation: str, setting: str = "",
    value: Callable[[Settings], str] | None = None, parse: Callable[[str], object] | None = None,
) -> BrokerConfig:  # fmt: skip
    """A row that can be changed at run time. `field`: its dotted path in Settings. `setting`: that in broker.yaml, if
    it is another."""
    place = Place(tuple(field.split(".")), parse or check)
    return BrokerConfig(name, kind, value or stated(field), check, documentation, setting or field, False, place)


def _none_below_one(value: str) -> int | None:
    return int(value) if int(value) > 0 else None


def _quota_window_s(settings: Settings) -> str:
    return str(settings.limits.quota_window_ms // 1000)


def _offsets_retention_minutes(settings: Settings) -> str:
    kept_ms = settings.groups.offsets_retention_ms
    return str(INT_MAX if kept_ms is None else kept_ms // 60_000)


def _offsets_retention_ms(value: str) -> int | None:
    return None if int(value) == INT_MAX else int(value) * 60_000


def _reauthentication_ms(settings: Settings) -> str:
    asked = [listener.reauthenticate_ms for listener in settings.listeners.of_kafka if listener.reauthenticate_ms]
    return str(min(asked, default=0))


def _mechanisms(settings: Settings) -> str:
    return ",".join(sorted({name for listener in settings.listeners.of_kafka for name in listener.sasl or ()}))


def _cleaner_rate(settings: Settings) -> str:
    rate = settings.log.cleaner.bytes_per_second
    return str(sys.float_info.max if rate is None else float(rate))


_SETTINGS = (
    _set(
        "auto.create.topics.enable", Kind.BOOLEAN, "topics.auto_create", boolean,
        "Whether requests for a missing topic create it.",
    ),
    _set(
        "connections.max.idle.ms", Kind.LONG, "limits.idle_timeout_ms", _idle,
        f"Time without activity after which a connection is closed, {LEAST_IDLE_MS} or more; -1: never.",
        "limits.idle_timeout", parse=_none_below_one,
    ),
    _shown(
        "connections.max.reauth.ms", Kind.LONG, _reauthentication_ms,
        "Time after which a client has to authenticate again, at the listener where it is shortest; 0: never.",
        "listeners.kafka.reauthenticate",
    ),
    _shown(
        "controller.quota.window.num", Kind.INT, stated("limits.quota_windows"),
        "Same as quota.window.num, for controller_mutation_rate.", "limits.quota_windows",
    ),
    _shown(
        "controller.quota.window.size.seconds", Kind.INT, _quota_window_s,
        "Same as quota.window.size.seconds, for controller_mutation_rate.", "limits.quota_window",
    ),
    _shown("default.replication.factor", Kind.INT, always(1), "A single node has one replica."),
    _shown(
        "delegation.token.expiry.time.ms", Kind.LONG, stated("security.tokens.renew_ms"),
        "Time that a delegation token lasts without being renewed.", "security.tokens.renew",
    ),
    _shown(
        "delegation.token.max.lifetime.ms", Kind.LONG, stated("security.tokens.lifetime_ms"),
        "Longest time that a delegation token lasts.", "security.tokens.lifetime",
    ),
    _shown("delete.topic.enable", Kind.BOOLEAN, always("true"), "Topics can be deleted."),
    _shown(
        "group.consumer.max.size", Kind.INT, stated("groups.most_members"),
        "Same as group.max.size, which applies to both kinds of groups.", "groups.max_size",
    ),
    _shown(
        "group.consumer.migration.policy", Kind.STRING, stated("groups.migration_policy"),
        "Whether a group with members can change its protocol.", "groups.migration_policy",
    ),
    _set(
        "group.initial.rebalance.delay.ms", Kind.INT, "groups.initial_rebalance_delay_ms", integer(0, INT_MAX),
        "Time that a new group waits for more members.", "groups.initial_rebalance_delay",
    ),
    _set(
        "group.max.session.timeout.ms", Kind.INT, "groups.max_session_timeout_ms", integer(1, INT_MAX),
        "Maximum session timeout of members of classic groups.", "groups.max_session_timeout",
    ),
    _set(
        "group.max.size", Kind.INT, "groups.max_size", integer(1, INT_MAX),
        "Maximum members of a classic or consumer group.", value=stated("groups.most_members"),
    ),
    _set(
        "group.min.session.timeout.ms", Kind.INT, "groups.min_session_timeout_ms", integer(1, INT_MAX),
        "Minimum session timeout of members of classic groups.", "groups.min_session_timeout",
    ),
    _shown(
        "group.share.max.share.sessions", Kind.INT, stated("groups.share.max_sessions"),
        "Maximum share sessions.", "groups.share.max_sessions",
    ),
    _shown(
        "group.share.max.size", Kind.INT, stated("groups.share.max_size"),
        "Maximum members of a share group.", "groups.share.max_size",
    ),
    _shown(
        "halfmoon.log.flush", Kind.STRING, stated("log.flush"),
        "When a produced batch is acknowledged: after fdatasync (sync) or after the write (interval).", "log.flush",
    ),
    _set(
        "log.cleaner.backoff.ms", Kind.LONG, "log.cleaner.interval_ms", integer(1, LONG_MAX),
        "Interval at which the cleaner looks for work.", "log.cleaner.interval",
    ),
    _set(
        "log.cleaner.dedupe.buffer.size", Kind.LONG, "log.cleaner.memory_bytes", integer(1 << 20, LONG_MAX),
        "Maximum memory for the keys of the partition that is being compacted.",
    ),
    _shown(
        "log.cleaner.enable", Kind.BOOLEAN, stated("log.cleaner.enable"),
        "Whether topics are compacted and segments with mostly dead data are reclaimed.", "log.cleaner.enable",
    ),
    _shown(
        "log.cleaner.io.max.bytes.per.second", Kind.DOUBLE, _cleaner_rate,
        "Limit of the cleaner's reads and writes.", "log.cleaner.bytes_per_second",
    ),
    _shown("log.dirs", Kind.STRING, stated("node.data_dir"), "Directory of the data.", "node.data_dir"),
    _set(
        "max.connections", Kind.INT, "limits.max_connections", integer(LEAST_CONNECTIONS, INT_MAX),
        f"Maximum open connections, {LEAST_CONNECTIONS} or more; further ones are closed.",
    ),
    _shown("node.id", Kind.INT, stated("node.id", NEW_NODE), "Id of this node.", "node.id"),
    _set(
        "num.partitions", Kind.INT, "topics.partitions", integer(1, INT_MAX),
        "Default number of partitions of a topic.",
    ),
    _set(
        "offsets.retention.minutes", Kind.INT, "groups.offsets_retention_ms", integer(1, INT_MAX),
        "Retention of the committed offsets of a group without members, in minutes.",
        "groups.offsets_retention", _offsets_retention_minutes, _offsets_retention_ms,
    ),
    _shown(
        "quota.window.num", Kind.INT, stated("limits.quota_windows"),
        "Number of windows over which the rates of client quotas are measured.", "limits.quota_windows",
    ),
    _shown(
        "quota.window.size.seconds", Kind.INT, _quota_window_s, "Length of such a window.", "limits.quota_window",
    ),
    _shown(
        "sasl.enabled.mechanisms", Kind.LIST, _mechanisms,
        "How clients can authenticate, at one listener or another.", "listeners.kafka.sasl",
    ),
    _shown(
        "socket.request.max.bytes", Kind.INT, stated("limits.max_request_bytes"),
        "Maximum size of a request.", "limits.max_request_bytes",
    ),
    _shown(
        "transaction.max.timeout.ms", Kind.INT, stated("transactions.max_timeout_ms"),
        "Maximum duration of a transaction.", "transactions.max_timeout",
    ),
    _shown(
        "transactional.id.expiration.ms", Kind.INT, stated("transactions.id_expiration_ms", INT_MAX),
        "Time without use after which a transactional id is removed.", "transactions.id_expiration",
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
                f"Default for topics without {topic.name}. {topic.documentation}", topic.setting, topic.read_only, None,
                topic.no_effect,
            )  # fmt: skip
    for group in group_configs(off).values():
        if group.node_name:
            rows[group.node_name] = BrokerConfig(
                group.node_name, group.kind, partial(_of_groups, group), group.check,
                f"Default for groups without {group.name}. {group.documentation}", "", False, None,
            )  # fmt: skip
    for kept in KEPT_OF_NODES:
        rows[kept.name] = BrokerConfig(
            kept.name, kept.kind, kept.default, kept.check, without_effect(kept.why), "", False, None, no_effect=True
        )
    return dict(sorted(rows.items()))


def _replaced(struct: SectionT, changes: Mapping[tuple[str, ...], object]) -> SectionT:
    """A copy with other values at these paths. Raises SettingError."""
    values: dict[str, object] = {}
    deeper: dict[str, dict[tuple[str, ...], object]] = {}
    for (name, *rest), value in changes.items():
        if rest:
            deeper.setdefault(name, {})[tuple(rest)] = value
        else:
            values[name] = value
    values |= {name: _replaced(getattr(struct, name), of_section) for name, of_section in deeper.items()}
    return msgspec.structs.replace(struct, **values)


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
            raise unknown("broker", name, why_refused(name), Fault.INVALID_REQUEST)
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
                where = f": set {row.setting} in broker.yaml and restart" if row.setting else ""
                raise BrokerError(Fault.INVALID_REQUEST, f"broker config {name} cannot be changed at run time{where}")
            checked("broker", name, value, row.check, Fault.INVALID_REQUEST)

    def changed(self, settings: Settings, overrides: Mapping[str, str]) -> Settings:
        """The settings with what is set at run time. Raises BrokerError where they contradict each other."""
        changes: dict[tuple[str, ...], object] = {}
        for name, value in overrides.items():
            row = self.rows.get(name)
            if row is not None and row.place is not None:
                changes[row.place.path] = row.place.parse(value.strip())
        try:
            result = _replaced(settings, changes)
        except SettingError as error:
            raise BrokerError(Fault.INVALID_REQUEST, f"invalid broker configs: {error}") from None
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
