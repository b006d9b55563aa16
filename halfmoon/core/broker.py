"""The kernel with all features, put together."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from halfmoon.core.append import Produced
from halfmoon.core.broker_configs import DynamicConfigs
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
from halfmoon.core.group_configs import GroupConfigs
from halfmoon.core.group_service import GroupService
from halfmoon.core.housekeeping import Housekeeping
from halfmoon.core.interception import Interception
from halfmoon.core.kernel import Kernel
from halfmoon.core.key_index import KeyIndex
from halfmoon.core.messages import Messages
from halfmoon.core.quotas import Quotas
from halfmoon.core.recovery import Report
from halfmoon.core.rolling import Rolling
from halfmoon.core.share.service import ShareService
from halfmoon.core.topic_administration import TopicChange
from halfmoon.core.transaction_service import TransactionService
from halfmoon.core.views import Views
from halfmoon.services.sections import Sections

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
    ) -> None:
        """`random_bytes(n)` makes ids of clusters, topics and members."""
        super().__init__(fs, settings, clock, random_bytes, logger=logger)
        self.state = Sections(self.catalog)
        self.create_topic = self.administration.create_topic
        self.delete_topic = self.administration.delete_topic
        self.add_partitions = self.administration.add_partitions
        self.alter_configs = self.administration.alter_configs
        self.delete_records = self.administration.delete_records
        self.first_partition = self.administration.first_partition
        self.on_deadline = self.timers.arm
        self.groups = GroupService(self, lambda prefix: f"{prefix}-{random_bytes(16).hex()}")
        self.transactions = TransactionService(self)
        self.group_configs = GroupConfigs(self)
        self.dynamic_configs = DynamicConfigs(self)
        self.quotas = Quotas(self)
        self.views = Views(self)
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
        self.bind(self._features())

    def _features(self) -> list[Feature]:
        views, deliveries, shares = self.views, self.deliveries, self.shares
        return [
            Feature(
                "configs",
                topics=TopicPolicy(
                    configured=lambda topic: self.cleaner.configured() if topic.rules.compacts else None
                ),
                warnings=lambda: [*self.dynamic_configs.warnings(), *self.group_configs.warnings()],
            ),
            Feature("quotas", restore=self.quotas.apply),
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
            Feature(
                "view",
                start=views.start,
                checkpoint=views.save_progress,
                arrived=lambda arrivals: views.arrived(arrivals) if views.followers else None,
                topics=TopicPolicy(
                    creating=views.bind,
                    deleting=views.check_deletion,
                    configuring=views.check_change,
                    changed=views.topics_changed,
                ),
                problems=views.problems,
                warnings=views.warnings,
            ),
            Feature(
                "waiting",
                start=self._start_waiting,
                arrived=lambda arrivals: deliveries.arrived(arrivals) if deliveries.queues else None,
                topics=TopicPolicy(reserves=lambda name: name in self.interception.waiting_topics),
            ),
            Feature("keyindex", start=self.key_index.start, finish=self.key_index.finish, derived=self.key_index),
            Feature("cleaner", stop=lambda: self.cleaner.stop(), problems=lambda: self.cleaner.problems()),
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
        self.dynamic_configs.unset(unset_configs)
        self.dynamic_configs.apply()
        for warning in self.dynamic_configs.warnings() + self.group_configs.warnings():
            self.logger.warning("event=config_left_out %s", warning)
        self.restore()
        return self.report

    def start_relays(self) -> None:
        """Begin to move messages. Before, say which filter languages there are (`views.languages`), what interceptors
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
