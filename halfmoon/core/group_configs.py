"""Configurations of single groups: what each is called, what it takes, what it defaults to, what it means.

A group stores only its overrides; what it does not say comes from the node's configuration of the same name with
`group.` in front, and else from this table. Whoever runs a group reads them typed: `broker.group_configs.of(group)`.

Names, types and defaults are Kafka's (GroupConfig, GroupCoordinatorConfig, ShareGroupConfig; 4.3). The two of
dead-letter queues are KIP-1191's. Kafka lets an administrator set the bounds of each; here they are fixed, and the
lower ones are lower, so that tests of users need not wait so long.

Any other name is refused. Kafka's configurations of Streams groups (KIP-1071) are refused with the reason: there are no
such groups here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from halfmoon.core.administration import GROUP
from halfmoon.core.control import ResourceConfigsSet
from halfmoon.core.errors import BrokerError, Fault
from halfmoon.core.group_topics import DEAD_LETTER_PREFIX
from halfmoon.core.topic_configs import Kind, boolean, integer
from halfmoon.core.topic_names import check_topic_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from halfmoon.core.broker import Broker

EARLIEST, LATEST, BY_DURATION = "earliest", "latest", "by_duration:"
READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"

KEPT_RULES = 1_000
"""Groups whose rules are kept, so that heartbeats need not parse them."""


class GroupConfig(NamedTuple):
    """One row of the table. `check` raises ValueError saying what is expected."""

    name: str
    kind: Kind
    default: str
    check: Callable[[str], object]
    documentation: str
    node_name: str
    """What the node's configuration is called that the default comes from; empty: there is none."""


@dataclass(frozen=True, slots=True)
class GroupRules:
    """What holds for one group, parsed. Times are in ms."""

    consumer_assignment_interval_ms: int
    consumer_heartbeat_interval_ms: int | None
    """None: the broker chooses, by how many members there are (`$.groups.consumer_heartbeat_min` and `…_max`)."""
    consumer_session_timeout_ms: int | None
    """None: as `$.groups.consumer_session_timeout` says."""
    dead_letter_copy_record: bool
    """Whether a dead-lettered record is copied with its key, value and headers, or only named."""
    dead_letter_topic: str
    """Where a share group's rejected records go; empty: nowhere."""
    share_assignment_interval_ms: int
    share_auto_offset_reset: str
    """EARLIEST, LATEST, or BY_DURATION, whose duration is `share_reset_duration_ms`."""
    share_reset_duration_ms: int
    share_delivery_count_limit: int
    share_heartbeat_interval_ms: int
    share_read_committed: bool
    share_partition_max_record_locks: int
    share_record_lock_duration_ms: int
    share_renew_acknowledge: bool
    share_session_timeout_ms: int


_DURATION = re.compile(
    r"(?P<sign>[+-]?)P(?:(?P<days>[0-9]+)D)?(?:T(?=[0-9])(?:(?P<hours>[0-9]+)H)?(?:(?P<minutes>[0-9]+)M)?"
    r"(?:(?P<seconds>[0-9]+(?:\.[0-9]{1,9})?)S)?)?\Z",
    re.IGNORECASE,
)


def _isolation(value: str) -> bool:
    if value not in (READ_COMMITTED, READ_UNCOMMITTED):
        raise ValueError(f"expected {READ_COMMITTED} or {READ_UNCOMMITTED}")
    return value == READ_COMMITTED


def _reset(value: str) -> tuple[str, int]:
    """Where a share group begins, and for BY_DURATION how far back in ms."""
    if value in (EARLIEST, LATEST):
        return value, 0
    found = _DURATION.match(value.removeprefix(BY_DURATION)) if value.startswith(BY_DURATION) else None
    parts = () if found is None else found.group("days", "hours", "minutes", "seconds")
    if found is None or found["sign"] == "-" or not any(parts):
        raise ValueError(f"expected {EARLIEST}, {LATEST} or {BY_DURATION} with a duration such as PT1H or P1DT2H")
    minutes = (int(found["days"] or 0) * 24 + int(found["hours"] or 0)) * 60 + int(found["minutes"] or 0)
    return BY_DURATION, minutes * 60_000 + round(float(found["seconds"] or 0) * 1000)


def _letters_or_none(value: str) -> str:
    """Only such a topic: who may produce to one topic must not have the broker write to any other (KIP-1191)."""
    if value and not value.startswith(DEAD_LETTER_PREFIX):
        raise ValueError(f"expected a topic that is called {DEAD_LETTER_PREFIX}…, or nothing")
    if value:
        try:
            check_topic_name(value)
        except BrokerError as error:
            raise ValueError(f"expected the name of a topic, or nothing: {error.message}") from None
    return value


def _row(name: str, kind: Kind, default: str, check: Callable[[str], object], documentation: str) -> GroupConfig:
    return GroupConfig(name, kind, default, check, documentation, f"group.{name}")


_ROWS = (
    _row(
        "consumer.assignment.interval.ms", Kind.INT, "1000", integer(0, 15_000),
        "How far apart assignments of a consumer group (KIP-848) are made, unless its members change.",
    ),
    _row(
        "consumer.heartbeat.interval.ms", Kind.INT, "200", integer(100, 15_000),
        "How often members of a consumer group (KIP-848) are told to send a heartbeat. Where nothing is said, from "
        "groups.consumer_heartbeat_min in small groups to groups.consumer_heartbeat_max in large ones.",
    ),
    _row(
        "consumer.session.timeout.ms", Kind.INT, "45000", integer(1_000, 60_000),
        "After how long without a heartbeat a member is taken out of a consumer group (KIP-848).",
    ),
    GroupConfig(
        "errors.deadletterqueue.copy.record.enable", Kind.BOOLEAN, "true", boolean,
        "Whether a dead letter has the key, value and headers of the record; else only what says which one it was.", "",
    ),
    GroupConfig(
        "errors.deadletterqueue.topic.name", Kind.STRING, "", _letters_or_none,
        "The topic for records that a share group has rejected, or that were delivered too often; it is called dlq.… "
        "Empty: none. Where nothing is said, it is dlq. and the group, or none if groups.share.dead_letters is false.",
        "",
    ),
    _row(
        "share.assignment.interval.ms", Kind.INT, "1000", integer(0, 15_000),
        "How far apart assignments of a share group are made, unless its members change.",
    ),
    GroupConfig(
        "share.auto.offset.reset", Kind.STRING, LATEST, _reset,
        "Where a share group begins in a partition it has not read: earliest, latest, or by_duration:PT1H ago.", "",
    ),
    _row(
        "share.delivery.count.limit", Kind.INT, "5", integer(2, 10),
        "How often a record is delivered to a share group at most.",
    ),
    _row(
        "share.heartbeat.interval.ms", Kind.INT, "5000", integer(100, 15_000),
        "How often members of a share group are told to send a heartbeat.",
    ),
    GroupConfig(
        "share.isolation.level", Kind.STRING, READ_UNCOMMITTED, _isolation,
        "Whether a share group gets records of transactions that are not committed.", "",
    ),
    _row(
        "share.partition.max.record.locks", Kind.INT, "2000", integer(100, 4_000),
        "How many records of a partition a share group may be working on at a time.",
    ),
    _row(
        "share.record.lock.duration.ms", Kind.INT, "30000", integer(1_000, 60_000),
        "How long a member of a share group has for a record before it is delivered again.",
    ),
    GroupConfig(
        "share.renew.acknowledge.enable", Kind.BOOLEAN, "true", boolean,
        "Whether members of a share group may ask for more time for a record.", "",
    ),
    _row(
        "share.session.timeout.ms", Kind.INT, "45000", integer(1_000, 60_000),
        "After how long without a heartbeat a member is taken out of a share group.",
    ),
)  # fmt: skip

GROUP_CONFIGS: Mapping[str, GroupConfig] = {row.name: row for row in _ROWS}
"""Every configuration of a group there is, sorted by name."""

NOT_HERE: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "streams.assignment.interval.ms",
            "streams.heartbeat.interval.ms",
            "streams.initial.rebalance.delay.ms",
            "streams.num.standby.replicas",
            "streams.session.timeout.ms",
        ),
        "there are no Streams groups (KIP-1071) here; Kafka Streams works with group.protocol=classic",
    ),
}
"""Configurations of groups that Kafka has and that cannot be obeyed here, with the reason a refusal gives."""


def find(name: str) -> GroupConfig:
    """The row of that name. Raises BrokerError(INVALID_CONFIG) that names it."""
    config = GROUP_CONFIGS.get(name)
    if config is None:
        reason = NOT_HERE.get(name)
        raise BrokerError(
            Fault.INVALID_CONFIG,
            f"group config {name} is not supported: {reason}" if reason else f"unknown group config name: {name}",
        )
    return config


class GroupConfigs:
    """All groups' configurations of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._rules: dict[str, GroupRules] = {}

    def of(self, group: str) -> GroupRules:
        """What holds for a group, whether it exists or not. Cheap: ask again rather than keeping it."""
        rules = self._rules.get(group)
        if rules is None:
            rules = resolve(self.overrides(group), self.node_defaults())
            if len(self._rules) >= KEPT_RULES:
                self._rules.clear()
            self._rules[group] = rules
        return rules

    def overrides(self, group: str) -> dict[str, str]:
        """What the group itself says."""
        return self._broker.catalog.administration.overrides(GROUP, group)

    def node_defaults(self) -> dict[str, str]:
        """By the groups' own names, what the node's configurations say for groups that do not."""
        node = self._broker.catalog.administration.node_overrides()
        return {row.name: node[row.node_name] for row in _ROWS if row.node_name in node}

    def configured(self) -> list[str]:
        """The groups that say anything, sorted."""
        return self._broker.catalog.administration.names(GROUP)

    def validate(self, overrides: Mapping[str, str]) -> None:
        """Raise BrokerError(INVALID_CONFIG), naming the key, unless a group may say this."""
        validate(overrides)
        self.check(overrides, self.node_defaults())

    def check(self, overrides: Mapping[str, str], node_defaults: Mapping[str, str]) -> None:
        """Raise BrokerError(INVALID_CONFIG) unless what each says makes sense beside the others."""
        for kind in ("consumer", "share"):
            session_ms, heartbeat_ms = (
                int(_value(name, overrides, node_defaults))
                for name in (f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms")
            )
            if heartbeat_ms >= session_ms:
                raise BrokerError(
                    Fault.INVALID_CONFIG,
                    f"{kind}.heartbeat.interval.ms ({heartbeat_ms}) must be less than {kind}.session.timeout.ms "
                    f"({session_ms})",
                )

    def alter(self, group: str, overrides: Mapping[str, str]) -> int:
        """Replace all of a group's overrides; returns the log position to wait for. Raises BrokerError."""
        self.validate(overrides)
        position = self._broker.append_control(ResourceConfigsSet(GROUP, group, dict(overrides)))
        self._rules.clear()
        return position

    def node_changed(self) -> None:
        """The node's configurations have changed."""
        self._rules.clear()


def validate(overrides: Mapping[str, str]) -> None:
    """Raise BrokerError(INVALID_CONFIG), naming the key, unless every override is known and its value taken."""
    for name, value in overrides.items():
        try:
            find(name).check(value.strip())
        except ValueError as error:
            raise BrokerError(
                Fault.INVALID_CONFIG, f"invalid value '{value}' for group config {name}: {error}"
            ) from None


def _value(name: str, overrides: Mapping[str, str], node_defaults: Mapping[str, str]) -> str:
    return overrides.get(name, node_defaults.get(name, GROUP_CONFIGS[name].default)).strip()


def resolve(overrides: Mapping[str, str], node_defaults: Mapping[str, str]) -> GroupRules:
    """What holds for a group with these overrides, which must have passed `validate`."""

    def value(name: str) -> str:
        return _value(name, overrides, node_defaults)

    def number(name: str) -> int:
        return int(value(name))

    def said(name: str) -> int | None:
        return number(name) if name in overrides or name in node_defaults else None

    reset, duration_ms = _reset(value("share.auto.offset.reset"))
    return GroupRules(
        consumer_assignment_interval_ms=number("consumer.assignment.interval.ms"),
        consumer_heartbeat_interval_ms=said("consumer.heartbeat.interval.ms"),
        consumer_session_timeout_ms=said("consumer.session.timeout.ms"),
        dead_letter_copy_record=boolean(value("errors.deadletterqueue.copy.record.enable")),
        dead_letter_topic=value("errors.deadletterqueue.topic.name"),
        share_assignment_interval_ms=number("share.assignment.interval.ms"),
        share_auto_offset_reset=reset,
        share_reset_duration_ms=duration_ms,
        share_delivery_count_limit=number("share.delivery.count.limit"),
        share_heartbeat_interval_ms=number("share.heartbeat.interval.ms"),
        share_read_committed=_isolation(value("share.isolation.level")),
        share_partition_max_record_locks=number("share.partition.max.record.locks"),
        share_record_lock_duration_ms=number("share.record.lock.duration.ms"),
        share_renew_acknowledge=boolean(value("share.renew.acknowledge.enable")),
        share_session_timeout_ms=number("share.session.timeout.ms"),
    )
