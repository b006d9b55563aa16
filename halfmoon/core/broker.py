"""The kernel with all features, put together."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from halfmoon.core.append import Produced
from halfmoon.core.cancelling import Cancelling
from halfmoon.core.catalog.topics import Topic
from halfmoon.core.cleaner import Cleaner
from halfmoon.core.clock import Clock
from halfmoon.core.config import Settings
from halfmoon.core.deliveries import Deliveries
from halfmoon.core.dispatch import Dispatch
from halfmoon.core.diverting import Diverting
from halfmoon.core.due_clock import DueClock
from halfmoon.core.features import Feature, TopicPolicy
from halfmoon.core.files import FileSystem
from halfmoon.core.group_service import GroupService
from halfmoon.core.hook_types import TopicChange
from halfmoon.core.housekeeping import Housekeeping
from halfmoon.core.interception import Interception
from halfmoon.core.kernel import Kernel
from halfmoon.core.key_index import KeyIndex
from halfmoon.core.messages import Messages
from halfmoon.core.recovery import Report
from halfmoon.core.rolling import Rolling
from halfmoon.core.share.service import ShareService
from halfmoon.core.transaction_service import TransactionService
from halfmoon.services.acls.service import AccessRules
from halfmoon.services.configs.broker_configs import BrokerConfigs
from halfmoon.services.configs.client_metrics import ClientMetrics
from halfmoon.services.configs.dynamic import DynamicConfigs
from halfmoon.services.configs.group_configs import GroupConfigs
from halfmoon.services.quotas.service import Quotas
from halfmoon.services.sections import Sections
from halfmoon.services.topic_configs import topic_configs
from halfmoon.services.view.views import Views

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
    ) -> None:
        """`random_bytes(n)` makes ids of clusters, topics and members. `off`: names of features that do nothing; what
        the log says of them stays."""
        super().__init__(fs, settings, clock, random_bytes, logger=logger, topic_configs=topic_configs(off))
        self.state = Sections(self.catalog)
        self.create_topic = self.administration.create_topic
        self.delete_topic = self.administration.delete_topic
        self.add_partitions = self.administration.add_partitions
        self.alter_configs = self.administration.alter_configs
        self.delete_records = self.administration.delete_records
        self.first_partition = self.administration.first_partition
        self.on_deadline = self.timers.arm
        self.group_configs = GroupConfigs(self.state.configs, self.appender, self.live)
        self.groups = GroupService(self, lambda prefix: f"{prefix}-{random_bytes(16).hex()}")
        self.transactions = TransactionService(self)
        self.dynamic_configs = DynamicConfigs(
            self.state.configs, self.appender, self.live, BrokerConfigs(self.topic_configs), self.group_configs,
            self.logger,
        )  # fmt: skip
        self.client_metrics = ClientMetrics(self.state.configs, self.appender)
        self.quotas = Quotas(self.state.quotas, self.appender, clock, self.live)
        self.acls = AccessRules(self.state.acls, self.appender)
        self.views = Views(self.catalog, self.appender, self.partition_reader, self.relays, clock, self.logger)
        self.due_clock = DueClock(clock)
        self.diverting = Diverting(self)
        self.interception = Interception(self)
        self.key_index = KeyIndex(self)
        self.cancelling = Cancelling(self)
        self.messages = Messages(self)
        self.deliveries = Deliveries(self)
        self.rolling = Rolling(self)
        self.shares = ShareService(self)
        self.appender.transaction_guard = self.transactions
        self.appender.indexed = self.turn.follower = self.key_index
        self.appender.began_waiting = self.deliveries.waits_in
        self.bind([feature for feature in self._features() if feature.name not in off])

    def _features(self) -> list[Feature]:
        deliveries, shares = self.deliveries, self.shares
        return [
            self.dynamic_configs.feature(),
            self.quotas.feature(),
            Feature(
                "groups",
                restore=self.groups.restore,
                timed=self.groups,
                retain=self.groups.retain,
                warnings=self.groups.warnings,
            ),
            Feature(
                "transactions",
                restore=self.transactions.restore,
                timed=self.transactions,
                retain=self.transactions.retain,
            ),
            Feature(
                "share",
                restore=shares.restore,
                start=shares.start,
                timed=shares,
                arrived=shares.arrived,
                topics=TopicPolicy(deleted=lambda topic: shares.forget_topic(topic.partitions)),
            ),
            self.views.feature(),
            Feature(
                "waiting",
                start=self._start_waiting,
                arrived=lambda arrivals: deliveries.arrived(arrivals) if deliveries.queues else None,
                topics=TopicPolicy(reserves=lambda name: name in self.interception.waiting_topics),
            ),
            Feature("keyindex", start=self.key_index.start, finish=self.key_index.finish, derived=self.key_index),
            Feature(
                "cleaner",
                stop=lambda: self.cleaner.stop(),
                topics=TopicPolicy(
                    configured=lambda topic: self.cleaner.configured() if topic.rules.compacts else None
                ),
                problems=lambda: self.cleaner.problems(),
            ),
        ]

    def _start_waiting(self) -> None:
        for relays in (self.deliveries, self.rolling, self.cancelling):
            relays.start()

    def open(  # type: ignore[override]
        self, progress: Callable[[int, int], None] | None = None, *, unset_configs: Collection[str] = ()
    ) -> Report:
        """Recover, and begin a new generation. Slow. `unset_configs`: configurations of the node that were set at run
        time, and are to be forgotten. Raises StartError, OSError, StorageError."""
        recovery = super().open(progress)
        self.housekeeping = Housekeeping(self, recovery.indexes)
        self.cleaner = Cleaner(self, recovery.clean_files)
        self.key_index.open()
        self.begin()
        self.dynamic_configs.opened(unset_configs)
        self.live.subscribe(lambda settings: self.cleaner.configured())
        self.restore()
        return self.report

    def start_relays(self) -> None:
        """Begin to move messages. Before, say which filter languages there are (`views.use`), what interceptors
        (`interception`), and who decides about what waits (`deliveries.relays`)."""
        self.start()

    def close(self) -> None:  # type: ignore[override]
        super().close(self.housekeeping.finish)

    @property
    def interception(self) -> Interception:
        """To be replaced before the first batch is appended, where plugins have interceptors."""
        return self._interception

    @interception.setter
    def interception(self, interception: Interception) -> None:
        self._interception = self.appender.interceptor = interception

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
