"""Creating, deleting, growing and configuring topics, and deleting records.

Each change is one control record. What a feature has to say of it comes through its TopicPolicy (core/features.py), and
who follows topics is told once the change is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, Protocol

from halfmoon.config.settings import Settings
from halfmoon.config.topic_configs import DELETE_FORCE
from halfmoon.core.append_types import ControlLog
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Partition, RemotePartition, Topic
from halfmoon.core.features import TopicPolicies
from halfmoon.core.hold import HoldService
from halfmoon.core.live import Live
from halfmoon.core.topic_names import check_topic_name
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema import control

TopicChange = Literal["created", "deleted", "grown", "configured"]


class Durability(Protocol):
    """Tells when a change is durable."""

    def when_durable(self, position: int, callback: Callable[[BrokerError | None], None]) -> None:
        """Call back once all up to `position` is, or with an error once it never will be."""
        ...


class SharedTopics(Protocol):
    """Of a log that shares its topics with others: makes those that it needs, for all of them."""

    def make(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Begin to make a topic, if it is not there by then; it will have a partition in this log. −1 partitions: as
        is best."""
        ...

    def grow(self, topic: Topic) -> None:
        """Begin to grow a topic until one of its partitions lies in this log."""
        ...


class TopicAdministration:
    def __init__(
        self,
        catalog: Catalog,
        appender: ControlLog,
        turn: Durability,
        hold: HoldService,
        settings: Live[Settings],
        random_bytes: Callable[[int], bytes],
        shared: SharedTopics | None = None,
    ) -> None:
        """`random_bytes(n)` makes topics' ids. `shared`: where this is one log of several, which makes no topics but
        internal ones of its own."""
        self._catalog = catalog
        self._appender = appender
        self._turn = turn
        self._hold = hold
        self._settings = settings
        self._random_bytes = random_bytes
        self._shared = shared
        self.policies = TopicPolicies()
        self.partition_count = 0
        """Of all topics of the node."""
        self.on_changed: Callable[[str, TopicChange], None] = lambda topic, change: None
        """Called with a topic's name once a change of it is durable."""

    def opened(self) -> None:
        """The log is recovered."""
        self.partition_count = sum(len(topic.partitions) for topic in self._catalog.by_name.values())

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        configs: Mapping[str, str] | None = None,
        *,
        validate_only: bool = False,
        internal: bool = False,
        topic_id: bytes | None = None,
    ) -> tuple[Topic, int]:
        """A new topic (−1 partitions: as `$.topics.partitions` says), and the log position to wait for. `topic_id`: its
        16 bytes, else random ones.

        With `validate_only` the topic is made but known to nobody, and the position is that of nothing. Raises
        BrokerError; NOT_LEADER_OR_FOLLOWER where it will be there a moment later.
        """
        catalog = self._catalog
        check_topic_name(name)
        if not internal and self.policies.reserves(name):
            raise BrokerError(Fault.INVALID_TOPIC_EXCEPTION, f"topic '{name}' is reserved for the broker")
        if name in catalog.by_name:
            raise BrokerError(Fault.TOPIC_ALREADY_EXISTS, f"topic '{name}' exists")
        if self._shared is not None and not internal:
            self._shared.make(name, partitions, configs or {})
            raise BrokerError(Fault.NOT_LEADER_OR_FOLLOWER, f"topic '{name}' is being made")
        configs = dict(configs or {})
        catalog.topic_configs.validate(configs)
        binding, partitions = self.policies.creating(configs, partitions)
        count = self._settings.current.topics.partitions if partitions == -1 else partitions
        self._check_partitions(count, count)
        record = control.TopicCreated(
            catalog.next_number(), name, topic_id or self._random_bytes(16), count, configs, internal, binding,
            catalog.next_queue(),
        )  # fmt: skip
        if validate_only:
            return catalog.make_topic(record), 0
        position = self._appender.append_control(record)
        self._created(catalog.by_name[name], position)
        return catalog.by_name[name], position

    def find(self, name: str) -> Topic | None:
        return self._catalog.by_name.get(name)

    def follow(self, record: control.Any) -> int:
        """Make a change of topics that was decided elsewhere, with all that follows from it; returns the log position
        to wait for. Raises BrokerError(KAFKA_STORAGE_ERROR)."""
        catalog = self._catalog
        before = catalog.by_number.get(getattr(record, "number", -1))
        had = 0 if before is None else len(before.partitions)
        position = self._appender.append_control(record)
        topic = catalog.by_number.get(getattr(record, "number", -1))
        if isinstance(record, control.TopicCreated):
            if before is None and topic is not None:
                self._created(topic, position)
        elif isinstance(record, control.TopicDeleted):
            if before is not None:
                self._deleted(before, position)
        elif isinstance(record, control.PartitionsAdded):
            if topic is not None and len(topic.partitions) > had:
                self._grown(topic, len(topic.partitions) - had, position)
        elif isinstance(record, control.ConfigsSet) and topic is not None:
            self._configured(topic, position)
        elif isinstance(record, control.PartitionsPlaced):
            self._changed()
        return position

    # What follows from a change that was made.

    def _created(self, topic: Topic, position: int) -> None:
        self._announce(position, topic.name, "created")
        self.partition_count += len(topic.partitions)
        if topic.view is not None:
            self._changed()

    def _deleted(self, topic: Topic, position: int) -> None:
        self._announce(position, topic.name, "deleted")
        self.partition_count -= len(topic.partitions)
        for deleted in self.policies.deleted:
            deleted(topic)
        for partition in topic.partitions:
            self._hold.wake_partition(partition)
        self._changed()

    def _grown(self, topic: Topic, more: int, position: int) -> None:
        """By so many partitions, and the views of the topic by as many each."""
        for each in (topic, *self._catalog.views_of(topic)):
            self._announce(position, each.name, "grown")
            self.partition_count += more
        self._changed()

    def _configured(self, topic: Topic, position: int) -> None:
        self._announce(position, topic.name, "configured")
        for configured in self.policies.configured:
            configured(topic)

    def _announce(self, position: int, name: str, change: TopicChange) -> None:
        self._turn.when_durable(position, lambda error: None if error else self.on_changed(name, change))

    def _changed(self) -> None:
        for changed in self.policies.changed:
            changed()

    def _check_partitions(self, count: int, more: int) -> None:
        """Raises BrokerError unless a topic may have `count` partitions, and the node `more` than it has."""
        limits = self._settings.current.limits
        most = limits.max_partitions_per_topic
        if not 1 <= count <= most:
            raise BrokerError(Fault.INVALID_PARTITIONS, f"{count} partitions; from 1 to {most} are allowed")
        if self.partition_count + more > limits.max_partitions:
            raise BrokerError(
                Fault.INVALID_PARTITIONS,
                f"{more} more partitions; of {limits.max_partitions} on this node {self.partition_count} are taken",
            )

    def delete_topic(self, topic: Topic) -> int:
        """Forget a topic, its messages, and all that features know of it; returns the log position to wait for.

        Raises BrokerError(POLICY_VIOLATION) where messages of other topics wait in it, others are derived from it and
        its deletion is not forced, or a feature needs it.
        """
        if any(partition.pending is not None for partition in topic.partitions):
            raise BrokerError(Fault.POLICY_VIOLATION, f"topic '{topic.name}' has scheduled messages for other topics")
        derived = self._catalog.views.get(topic.number)
        if derived and not topic.rules.delete_forced:
            names = ", ".join(f"'{view.name}'" for view in derived.values())
            what = "views" if len(derived) > 1 else "the view"
            raise BrokerError(
                Fault.POLICY_VIOLATION,
                f"topic '{topic.name}' is the source of {what} {names}. To delete it and keep the views' records, set "
                f"{DELETE_FORCE}=true on it",
            )
        for deleting in self.policies.deleting:
            deleting(topic)
        position = self._appender.append_control(control.TopicDeleted(topic.number))
        self._deleted(topic, position)
        return position

    def add_partitions(self, topic: Topic, total: int, *, validate_only: bool = False) -> int:
        """Grow a topic to `total` partitions, and those derived from it too; returns the log position to wait for.

        Raises BrokerError(INVALID_PARTITIONS).
        """
        catalog = self._catalog
        if topic.view is not None:
            raise BrokerError(
                Fault.INVALID_PARTITIONS, f"topic '{topic.name}' is a view: it has the partitions of its source"
            )
        if total <= len(topic.partitions):
            raise BrokerError(
                Fault.INVALID_PARTITIONS,
                f"topic '{topic.name}' has {len(topic.partitions)} partitions, not fewer than {total}",
            )
        more = total - len(topic.partitions)
        self._check_partitions(total, more * (1 + len(catalog.views_of(topic))))
        if validate_only:
            return 0
        position = self._appender.append_control(
            control.PartitionsAdded(topic.number, total, catalog.next_queue())
        )  # fmt: skip
        self._grown(topic, more, position)
        return position

    def alter_configs(self, topic: Topic, configs: Mapping[str, str], *, validate_only: bool = False) -> int:
        """Replace all of a topic's overrides, but for those of features that are off; returns the log position to wait
        for. Raises BrokerError."""
        table = self._catalog.topic_configs
        configs = table.hidden(topic.configs) | dict(configs)
        table.validate(configs, topic.configs)
        for configuring in self.policies.configuring:
            configuring(topic, configs)
        if validate_only:
            return 0
        position = self._appender.append_control(control.ConfigsSet(topic.number, configs))
        self._configured(topic, position)
        return position

    def delete_records(self, partition: Partition, before_offset: int) -> tuple[int, int]:
        """Make offsets below `before_offset` (−1: below the high watermark) unreadable.

        Returns the new start offset and the log position to wait for. Raises BrokerError(OFFSET_OUT_OF_RANGE), and
        POLICY_VIOLATION where the topic's old records are to stay.
        """
        if not partition.topic.rules.deletes:
            raise BrokerError(
                Fault.POLICY_VIOLATION, f"the cleanup.policy of topic '{partition.topic.name}' has no delete"
            )
        offset = partition.high_watermark if before_offset == -1 else before_offset
        if not 0 <= offset <= partition.high_watermark:
            raise BrokerError(Fault.OFFSET_OUT_OF_RANGE)
        if offset <= partition.start_offset:
            return partition.start_offset, 0
        return offset, self._appender.append_control(
            control.StartOffsetsMoved([(partition.topic.number, partition.index, offset)])
        )

    def internal_partition(self, name: str, configs: Mapping[str, str]) -> Partition:
        """Of an internal topic in which a feature keeps records of its own, which is made if need be. Where several
        logs share their topics, each has one for itself. Raises BrokerError."""
        topic = self._catalog.by_name.get(name)
        if topic is None:
            topic, _ = self.create_topic(name, 1, configs, internal=True)
        elif not topic.internal:
            raise BrokerError(Fault.INVALID_TOPIC_EXCEPTION, f"topic '{name}' should be internal, and is not")
        return topic.here()[0]

    def first_partition(self, name: str, configs: Mapping[str, str] | None = None) -> Partition:
        """Of an ordinary topic that is the broker's to fill, beside others: the first that lies in this log. The topic
        is made if need be, with these configurations. Raises BrokerError."""
        topic = self._catalog.by_name.get(name)
        if topic is None:
            topic, _ = self.create_topic(name, 1 if self._shared is None else -1, configs)
        if topic.internal or topic.view is not None:
            raise BrokerError(Fault.INVALID_TOPIC_EXCEPTION, f"topic '{topic.name}' is internal, or a view")
        for partition in topic.partitions:
            if not isinstance(partition, RemotePartition):
                return partition
        assert self._shared is not None
        self._shared.grow(topic)
        raise BrokerError(Fault.NOT_LEADER_OR_FOLLOWER, f"topic '{topic.name}' has no partition here yet")
