"""Configurations of single groups: what each is called, what it takes, what it defaults to, what it means.

A group stores only its overrides; what it does not say comes from the node's configuration of the same name with
`group.` in front, and else from broker.yaml (`$.groups`). Whoever runs a group asks for what holds:
`GroupConfigs.of(group)` has it typed for consumer groups, and share groups resolve `rules(group)` themselves.

Names and types are Kafka's (GroupConfig; 4.3). The two of dead-letter queues are KIP-1191's. Kafka lets an
administrator set the bounds of each; here they are fixed, and wider, so that tests of users need not wait so long.

A configuration is accepted only if it is obeyed: any other name is refused, those of Streams groups (KIP-1071) with the
reason, since there are no such groups here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from msgspec import Struct

from halfmoon.config.settings import Settings
from halfmoon.config.share_settings import reset_ms
from halfmoon.config.values import Kind, always, boolean, by_name, checked, integer, stated, unknown
from halfmoon.core.append_types import ControlLog
from halfmoon.core.live import Live
from halfmoon.core.topic_names import check_topic_name
from halfmoon.errors import BrokerError, Fault, StartError
from halfmoon.schema.control import ResourceConfigsSet
from halfmoon.schema.group_topics import DEAD_LETTER_PREFIX, dead_letter_topic
from halfmoon.services.configs.state import GROUP, ConfigsState

EARLIEST, LATEST, BY_DURATION = "earliest", "latest", "by_duration:"
READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"

KEPT_RULES = 1_000
"""Groups whose rules are kept, so that heartbeats need not parse them."""


class GroupConfig(Struct, frozen=True):
    """One row of the table. `check` raises ValueError saying what is expected; it gets the value without outer
    blanks."""

    name: str
    kind: Kind
    default: Callable[[Settings, str], str]
    """What broker.yaml says, for the group of that name."""
    check: Callable[[str], object]
    documentation: str
    node_name: str = ""
    """What the node's configuration is called that the default comes from; empty: there is none."""
    built_in: Callable[[str], str] | None = None
    """The default of a group where broker.yaml says nothing; None: `default` of settings that say nothing."""
    takes_records: bool = False
    """The value is a topic, or empty, and the broker writes there what the group has read. So who sets it must be one
    who may Read as the group, and Write to the topic."""


class GroupRules(Struct, frozen=True):
    """What the configurations of a consumer group say (KIP-848), or the node's for all of them. Times are in ms."""

    consumer_heartbeat_interval_ms: int | None
    """None: the broker chooses, by how many members there are (`$.groups.consumer_heartbeat_min` and `…_max`)."""
    consumer_session_timeout_ms: int | None
    """None: as `$.groups.consumer_session_timeout` says."""


def _isolation(value: str) -> bool:
    if value not in (READ_COMMITTED, READ_UNCOMMITTED):
        raise ValueError(f"expected {READ_COMMITTED} or {READ_UNCOMMITTED}")
    return value == READ_COMMITTED


def _reset(value: str) -> str:
    if reset_ms(value) is None:
        raise ValueError(f"expected {EARLIEST}, {LATEST} or {BY_DURATION} with a duration such as PT1H or P1DT2H")
    return value


def _at_once(value: str) -> str:
    if value != "0":
        raise ValueError("only 0 is supported")
    return value


def _topic_or_none(value: str) -> str:
    if value:
        if not value.startswith(DEAD_LETTER_PREFIX):
            raise ValueError(f"expected a name that begins with {DEAD_LETTER_PREFIX}, or nothing")
        try:
            check_topic_name(value)
        except BrokerError as error:
            raise ValueError(f"expected the name of a topic, or nothing: {error.message}") from None
    return value


def _row(
    name: str, kind: Kind, default: Callable[[Settings], str], check: Callable[[str], object], documentation: str,
    node_name: str | None = None,
) -> GroupConfig:  # fmt: skip
    """A row whose default is the same for all groups; the node's configuration is called as it is, after `group.`."""
    node_name = f"group.{name}" if node_name is None else node_name
    return GroupConfig(name, kind, lambda settings, group: default(settings), check, documentation, node_name)


def _letters(settings: Settings, group: str) -> str:
    return dead_letter_topic(group) if settings.groups.share.dead_letters else ""


_ROWS = (
    _row(
        "consumer.assignment.interval.ms", Kind.INT, always(0), _at_once,
        "Minimum time between assignments of a consumer group (KIP-848). Only 0 is supported.",
    ),
    _row(
        "consumer.heartbeat.interval.ms", Kind.INT, stated("groups.consumer_heartbeat_min_ms"),
        integer(100, 15_000),
        "Heartbeat interval of a consumer group's members (KIP-848). If it is not set: from "
        "groups.consumer_heartbeat_min in small groups to groups.consumer_heartbeat_max in large ones.",
    ),
    _row(
        "consumer.session.timeout.ms", Kind.INT, stated("groups.consumer_session_timeout_ms"),
        integer(1_000, 3_600_000),
        "Time without a heartbeat after which a consumer group (KIP-848) removes a member.",
    ),
    _row(
        "errors.deadletterqueue.copy.record.enable", Kind.BOOLEAN, always("true"), boolean,
        "Whether a dead letter has the record's key, value and headers, or only headers that identify the record.", "",
    ),
    GroupConfig(
        "errors.deadletterqueue.topic.name", Kind.STRING, _letters, _topic_or_none,
        "Dead-letter topic, `dlq.…`, for records that were rejected or delivered too often. Empty: none.",
        takes_records=True,
    ),
    _row(
        "share.assignment.interval.ms", Kind.INT, always(0), _at_once,
        "Minimum time between assignments of a share group. Only 0 is supported.",
    ),
    _row(
        "share.auto.offset.reset", Kind.STRING, stated("groups.share.auto_offset_reset"), _reset,
        "Start position of a share group in a new partition: earliest, latest, or by_duration:PT1H ago.", "",
    ),
    _row(
        "share.delivery.count.limit", Kind.INT, stated("groups.share.delivery_count_limit"), integer(2, 100),
        "Maximum deliveries of a record to a share group.",
    ),
    _row(
        "share.heartbeat.interval.ms", Kind.INT, stated("groups.share.heartbeat_interval_ms"),
        integer(100, 15_000),
        "Heartbeat interval of a share group's members.",
    ),
    _row(
        "share.isolation.level", Kind.STRING, stated("groups.share.isolation_level"), _isolation,
        "Whether a share group reads records of uncommitted transactions.", "",
    ),
    _row(
        "share.partition.max.record.locks", Kind.INT, stated("groups.share.partition_max_record_locks"),
        integer(100, 100_000),
        "Maximum records of a partition that a share group has acquired at a time.",
    ),
    _row(
        "share.record.lock.duration.ms", Kind.INT, stated("groups.share.record_lock_duration_ms"),
        integer(1_000, 3_600_000),
        "Duration of the lock on an acquired record; then it is redelivered.",
    ),
    _row(
        "share.renew.acknowledge.enable", Kind.BOOLEAN, stated("groups.share.renew_acknowledge"),
        boolean, "Whether members of a share group can renew the lock on a record.", "",
    ),
    _row(
        "share.session.timeout.ms", Kind.INT, stated("groups.share.session_timeout_ms"), integer(1_000, 3_600_000),
        "Time without a heartbeat after which a share group removes a member.",
    ),
)  # fmt: skip

GROUP_CONFIGS: Mapping[str, GroupConfig] = {row.name: row for row in _ROWS}
"""Every configuration of a group there is, sorted by name."""

_OF_SHARE = ("errors.deadletterqueue.", "share.")


def group_configs(off: Collection[str] = ()) -> Mapping[str, GroupConfig]:
    """Those of the services that are not `off`, sorted by name."""
    return {
        name: row
        for name, row in GROUP_CONFIGS.items()
        if ("share" if name.startswith(_OF_SHARE) else "groups") not in off
    }


NOT_HERE: Mapping[str, str] = by_name({
    "there are no Streams groups (KIP-1071) here; Kafka Streams works with group.protocol=classic": (
        "streams.assignment.interval.ms", "streams.heartbeat.interval.ms", "streams.initial.rebalance.delay.ms",
        "streams.num.standby.replicas", "streams.session.timeout.ms",
    ),
})  # fmt: skip
"""Configurations of groups that Kafka has and that cannot be obeyed here, with the reason a refusal gives."""


def _with_more(rows: Mapping[str, GroupConfig], more: Sequence[GroupConfig]) -> Mapping[str, GroupConfig]:
    found = dict(rows)
    for row in more:
        if row.name in found or row.name in GROUP_CONFIGS or row.name in NOT_HERE:
            raise StartError(f"group configuration {row.name} is offered, and there is one of that name already")
        found[row.name] = row
    return dict(sorted(found.items()))


def find(name: str, rows: Mapping[str, GroupConfig] = GROUP_CONFIGS) -> GroupConfig:
    """The row of that name. Raises BrokerError(INVALID_CONFIG) that names it."""
    config = rows.get(name)
    if config is None:
        raise unknown("group", name, NOT_HERE.get(name))
    return config


class GroupConfigs:
    """All groups' configurations of a broker.

    Create it before those who ask it when the settings change: it must learn of the change first.
    """

    def __init__(
        self,
        state: ConfigsState,
        appender: ControlLog,
        settings: Live[Settings],
        off: Collection[str] = (),
        more: Sequence[GroupConfig] = (),
    ) -> None:
        """`settings`: as broker.yaml, flags and environment say, so far. `off`: names of services that are off. `more`:
        rows of plugins. Raises StartError where one is called as another."""
        self.rows = _with_more(group_configs(off), more)
        self._state = state
        self._appender = appender
        self._base = settings.current
        self._rules: dict[str, GroupRules] = {}
        settings.subscribe(lambda changed: self._rules.clear())
        state.on_groups.append(self._rules.clear)

    def rebase(self, base: Settings) -> None:
        """broker.yaml, flags and environment say something else than before."""
        self._base = base
        self._rules.clear()

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
        return self._state.overrides(GROUP, group)

    def rules(self, group: str) -> Mapping[str, str]:
        """What the group says, over what the node says for all of them; by the groups' own names."""
        return self.node_defaults() | self.overrides(group)

    def node_defaults(self) -> dict[str, str]:
        """By the groups' own names, what the node's configurations say for groups that do not."""
        node = self._state.node_overrides()
        return {row.name: node[row.node_name] for row in _ROWS if row.node_name in node}

    def configured(self) -> list[str]:
        """The groups that say anything, sorted."""
        return self._state.names(GROUP)

    def find(self, name: str) -> GroupConfig:
        """The row of that name. Raises BrokerError(INVALID_CONFIG) that names it."""
        return find(name, self.rows)

    def hidden(self, group: str) -> dict[str, str]:
        """What the group says and belongs to services that are off: nobody is shown it, and every change keeps it."""
        return {name: value for name, value in self.overrides(group).items() if name not in self.rows}

    def validate(self, overrides: Mapping[str, str]) -> None:
        """Raise BrokerError(INVALID_CONFIG), naming the key, unless a group may say this."""
        validate(overrides, self.rows)
        self.check(overrides, self.node_defaults())

    def check(self, overrides: Mapping[str, str], node_defaults: Mapping[str, str]) -> None:
        """Raise BrokerError(INVALID_CONFIG) unless what each says makes sense beside the others."""
        settings = self._base
        for kind in ("consumer", "share"):
            session_ms, heartbeat_ms = (
                int(_value(name, overrides, node_defaults) or GROUP_CONFIGS[name].default(settings, ""))
                for name in (f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms")
            )
            if heartbeat_ms >= session_ms:
                raise BrokerError(
                    Fault.INVALID_CONFIG,
                    f"{kind}.heartbeat.interval.ms ({heartbeat_ms}) must be less than {kind}.session.timeout.ms "
                    f"({session_ms})",
                )

    def contradictions(self, node_defaults: Mapping[str, str]) -> Iterator[str]:
        """A sentence for each group that says what makes no sense beside these defaults. There are some if broker.yaml
        has changed; members are told to send heartbeats more often then."""
        for group in self.configured():
            try:
                self.check(self.overrides(group), node_defaults)
            except BrokerError as error:
                yield f"group {group}: {error.message}"

    def warnings(self) -> list[str]:
        return list(self.contradictions(self.node_defaults()))

    def alter(self, group: str, overrides: Mapping[str, str]) -> int:
        """Replace all of a group's overrides, but for what belongs to services that are off; returns the log position
        to wait for. Raises BrokerError."""
        hidden = self.hidden(group)
        given = {name: value for name, value in overrides.items() if hidden.get(name) != value}
        self.validate(given)
        return self._appender.append_control(ResourceConfigsSet(GROUP, group, hidden | given))


def validate(overrides: Mapping[str, str], rows: Mapping[str, GroupConfig] = GROUP_CONFIGS) -> None:
    """Raise BrokerError(INVALID_CONFIG), naming the key, unless every override is known and its value taken."""
    for name, value in overrides.items():
        checked("group", name, value, find(name, rows).check)


def _value(name: str, overrides: Mapping[str, str], node_defaults: Mapping[str, str]) -> str | None:
    value = overrides.get(name, node_defaults.get(name))
    return None if value is None else value.strip()


def resolve(overrides: Mapping[str, str], node_defaults: Mapping[str, str]) -> GroupRules:
    """What holds for a group with these overrides, which must have passed `validate`."""

    def number(name: str) -> int | None:
        value = _value(name, overrides, node_defaults)
        return None if value is None else int(value)

    return GroupRules(
        consumer_heartbeat_interval_ms=number("consumer.heartbeat.interval.ms"),
        consumer_session_timeout_ms=number("consumer.session.timeout.ms"),
    )
