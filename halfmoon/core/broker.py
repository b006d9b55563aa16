"""The kernel with all features, put together."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from halfmoon.core.append import Produced
from halfmoon.core.catalog.topics import Topic
from halfmoon.core.clock import Clock
from halfmoon.core.config import Settings
from halfmoon.core.dispatch import Dispatch
from halfmoon.core.features import Feature
from halfmoon.core.files import FileSystem
from halfmoon.core.kernel import Kernel
from halfmoon.core.recovery import Report
from halfmoon.core.topic_administration import TopicChange
from halfmoon.core.topic_configs import TopicConfig
from halfmoon.services.acls.service import AccessRules
from halfmoon.services.cleaner.service import Cleaner
from halfmoon.services.configs.broker_configs import BrokerConfigs
from halfmoon.services.configs.client_metrics import ClientMetrics
from halfmoon.services.configs.dynamic import DynamicConfigs
from halfmoon.services.configs.group_configs import GroupConfigs
from halfmoon.services.delay.cancelling import Cancelling
from halfmoon.services.groups.building import build_coordination
from halfmoon.services.groups.consumer.settings import GroupOverrides
from halfmoon.services.groups.journal import GroupJournal
from halfmoon.services.groups.names import GroupNames
from halfmoon.services.groups.service import GroupService
from halfmoon.services.keyindex.messages import Messages
from halfmoon.services.keyindex.service import KeyIndex
from halfmoon.services.quotas.service import Quotas
from halfmoon.services.sections import Sections
from halfmoon.services.share.dead_letters import DeadLetters
from halfmoon.services.share.delivery import ShareDelivery
from halfmoon.services.share.options import ShareOptions
from halfmoon.services.share.parts import Parts
from halfmoon.services.share.service import ShareService
from halfmoon.services.share.sessions import ShareSessions
from halfmoon.services.topic_configs import topic_configs
from halfmoon.services.transactions.ending import TransactionEndings
from halfmoon.services.transactions.service import TransactionService
from halfmoon.services.view.views import Views
from halfmoon.services.waiting.service import WaitingService

__all__ = ["Broker", "Produced"]


class Broker(Kernel):
    """One node."""

    def __init__(
        self,
        fs: FileSystem,
        settings: Settings,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        *,
        logger: logging.Logger | None = None,
        off: Collection[str] = (),
        more_topic_configs: Sequence[TopicConfig] = (),
    ) -> None:
        """`random_bytes(n)` makes ids of clusters, topics and members. `off`: names of features that do nothing; what
        the log says of them stays. `more_topic_configs`: those that plugins offer. Raises StartError."""
        table = topic_configs(off, more_topic_configs)
        super().__init__(fs, settings, clock, random_bytes, logger=logger, topic_configs=table)
        self.state = Sections(self.catalog)
        self.create_topic = self.administration.create_topic
        self.delete_topic = self.administration.delete_topic
        self.add_partitions = self.administration.add_partitions
        self.alter_configs = self.administration.alter_configs
        self.delete_records = self.administration.delete_records
        self.first_partition = self.administration.first_partition
        self.on_deadline = self.timers.arm
        self.group_configs = GroupConfigs(self.state.configs, self.appender, self.live)
        self.group_names = GroupNames()
        coordination = build_coordination(
            self.live, self.catalog, self._group_overrides, lambda prefix: f"{prefix}-{random_bytes(16).hex()}"
        )
        journal = GroupJournal(coordination, self.appender, self.turn, self.timers, clock, self.logger)
        self.groups = GroupService(
            coordination, journal, self.state.groups, self.catalog, self.appender, self.group_names, clock, self.live,
            self.state.transactions.unstable,
        )  # fmt: skip
        endings = TransactionEndings(self.log, self.catalog, self.appender, self.turn, self.hold, clock)
        self.transactions = TransactionService(
            self.state.transactions, endings, self.log, self.appender, self.timers, clock, self.live, self.logger
        )
        self.dynamic_configs = DynamicConfigs(
            self.state.configs, self.appender, self.live, BrokerConfigs(self.topic_configs), self.group_configs,
            self.logger,
        )  # fmt: skip
        self.client_metrics = ClientMetrics(self.state.configs, self.appender)
        self.quotas = Quotas(self.state.quotas, self.appender, clock, self.live)
        self.acls = AccessRules(self.state.acls, self.appender)
        self.views = Views(self.catalog, self.appender, self.partition_reader, self.relays, clock, self.logger)
        self.key_index = KeyIndex(self.log, self.catalog, self.turn, self.partition_reader, self.relays)
        self.messages = Messages(self.key_index, self.catalog, self.log)
        self.waiting = WaitingService(
            self.log, self.turn, self.catalog, self.appender, self.partition_reader, self.administration, self.relays,
            clock, self.state.attempts, self.logger,
        )  # fmt: skip
        self.cancelling = Cancelling(
            self.log, self.catalog, self.appender, self.relays, clock, self.state.cancels, self.key_index, self.waiting
        )
        self.waiting.cancelled_by(self.cancelling)
        self.shares = self._share_groups()
        self.cleaner = Cleaner(
            self.log, self.catalog, self.clean_files, self.housekeeping, self.appender, self.live, clock, self.logger
        )
        self.appender.transaction_guard = self.transactions
        self.appender.indexed = self.turn.follower = self.key_index
        self.bind([feature for feature in self._features() if feature.name not in off])

    def _features(self) -> list[Feature]:
        return [
            self.dynamic_configs.feature(),
            self.quotas.feature(),
            self.groups.feature(),
            self.transactions.feature(),
            self.shares.feature(),
            self.views.feature(),
            self.waiting.feature(),
            self.cancelling.feature(),
            self.key_index.feature(),
            self.cleaner.feature(),
        ]

    def _group_overrides(self, group: str) -> GroupOverrides:
        rules = self.group_configs.of(group)
        return GroupOverrides(rules.consumer_session_timeout_ms, rules.consumer_heartbeat_interval_ms)

    def _share_groups(self) -> ShareService:
        settings = self.settings.groups.share
        configs = self.group_configs
        options = ShareOptions(self.live, lambda group: configs.node_defaults() | configs.overrides(group))
        parts = Parts(self.state.share, self.catalog, ShareSessions(settings.max_sessions))
        delivery = ShareDelivery(
            parts, self.appender, self.partition_reader, self.hold, self.timers, self.clock, options, self.logger
        )
        dead_letters = DeadLetters(
            delivery, self.partition_reader, self.appender, self.relays, self.administration, self.logger
        )
        return ShareService(
            self.state.share, self.catalog, delivery, dead_letters, self.appender, self.timers, self.clock,
            self.group_names, settings.max_size,
        )  # fmt: skip

    def open(
        self, progress: Callable[[int, int], None] | None = None, *, unset_configs: Collection[str] = ()
    ) -> Report:
        """Recover, and begin a new generation. Slow. `unset_configs`: configurations of the node that were set at run
        time, and are to be forgotten. Raises StartError, OSError, StorageError."""
        super().open(progress)
        self.begin()
        self.dynamic_configs.opened(unset_configs)
        self.restore()
        return self.report

    def start_relays(self) -> None:
        """Begin to move messages. Before, say which filter languages there are (`views.use`), and give `waiting` its
        interceptors and relays (`use`)."""
        self.start()

    @property
    def dirty(self) -> bool:
        return self.turn.dirty

    @property
    def dispatch(self) -> Dispatch:
        return self.turn.dispatch

    @property
    def durable_position(self) -> int:
        return self.turn.durable_position

    @property
    def on_topic_changed(self) -> Callable[[str, TopicChange], None]:
        return self.administration.on_changed

    @on_topic_changed.setter
    def on_topic_changed(self, callback: Callable[[str, TopicChange], None]) -> None:
        self.administration.on_changed = callback

    def health(self) -> list[str]:
        """What is wrong, a sentence each; empty when nothing is."""
        found = self.problems()
        for problems in self.features.problems:
            found += problems()
        return found + self.housekeeping.problems + self.relays.problems()

    def warnings(self) -> list[str]:
        """What somebody should know although everything works, a sentence each."""
        return [warning for warnings in self.features.warnings for warning in warnings()]

    def topic(self, name: str) -> Topic | None:
        return self.catalog.by_name.get(name)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        return self.catalog.by_id.get(topic_id)

    def topics(self) -> list[Topic]:
        """All topics by name, internal ones included."""
        return [self.catalog.by_name[name] for name in sorted(self.catalog.by_name)]
