"""The one place that names all features: a node is the kernel with its services put on top.

Sections of the catalog are always there, also those of a service that is off, so nothing that the log says is lost. A
service gets by its constructor what it uses, and gives its `Feature`; the order of the features is the order of their
effects.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from halfmoon.config.settings import Settings
from halfmoon.config.topic_configs import OfFeature
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.clock import Clock
from halfmoon.core.features import Feature
from halfmoon.core.kernel import Kernel, Shard
from halfmoon.core.live import subscribed
from halfmoon.core.recovery import Report
from halfmoon.core.storage.files import FileSystem
from halfmoon.core.storage.local import LocalStorage
from halfmoon.core.storage.storage import MakeStorage
from halfmoon.plugins.store.delay.state import CancelsState
from halfmoon.plugins.store.retry.state import NackedState
from halfmoon.schema.lifetimes import EXPIRES, TTL
from halfmoon.server.common import Common, CommonSections
from halfmoon.services.audit.topic import AuditTopic
from halfmoon.services.cleaner.service import Cleaner
from halfmoon.services.common.keys import finds_keys
from halfmoon.services.common.services import Services
from halfmoon.services.configs.group_configs import GroupConfig
from halfmoon.services.delays.service import Delays
from halfmoon.services.expiry import checking
from halfmoon.services.expiry.service import Expiry
from halfmoon.services.groups.building import build_coordination
from halfmoon.services.groups.consumer.settings import GroupOverrides
from halfmoon.services.groups.journal import GroupJournal
from halfmoon.services.groups.names import GroupNames
from halfmoon.services.groups.service import GroupService
from halfmoon.services.groups.state import GroupsState
from halfmoon.services.internal_topics.offering import OfferedTopics
from halfmoon.services.internal_topics.service import InternalTopics
from halfmoon.services.internal_topics.state import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, InternalTopicsState
from halfmoon.services.keyindex.messages import Messages
from halfmoon.services.keyindex.service import KeyIndex
from halfmoon.services.scrubber.service import Scrubber
from halfmoon.services.share.dead_letters import DeadLetters
from halfmoon.services.share.delivery import ShareDelivery
from halfmoon.services.share.options import ShareOptions
from halfmoon.services.share.parts import Parts
from halfmoon.services.share.service import ShareService
from halfmoon.services.share.sessions import ShareSessions
from halfmoon.services.share.state import ShareState
from halfmoon.services.topic_configs import topic_configs
from halfmoon.services.transactions.ending import TransactionEndings
from halfmoon.services.transactions.prepared import PreparedTransactions
from halfmoon.services.transactions.service import TransactionService
from halfmoon.services.transactions.state import TransactionsState
from halfmoon.services.waiting.service import WaitingService
from halfmoon.services.waiting.state import AttemptsState
from halfmoon.services.waiting.types import PutInterceptor

_INTERNAL_TOPICS = {OFFSETS_TOPIC: "groups", TRANSACTIONS_TOPIC: "transactions"}
"""Kafka's internal topics, and the services whose state they show."""


def internal_topics(off: Collection[str]) -> list[str]:
    """Those that are offered where these features are off."""
    return [name for name, service in _INTERNAL_TOPICS.items() if service not in off]


class Sections:
    """Every section of the catalog, in the order in which records are applied to them. What is to be written into
    Kafka's internal topics is noted before the others change: it must see what a record takes away."""

    def __init__(self, catalog: Catalog, common: CommonSections | None = None) -> None:
        """`common`: where they are sections of another catalog, which several share: this one follows its defaults once
        it is recovered (`Node.follow_defaults`)."""
        self.groups = GroupsState(catalog)
        self.nacked = NackedState(catalog)
        self.groups.on_commit.append(self.nacked.committed)
        self.attempts = AttemptsState()
        self.cancels = CancelsState(catalog)
        self.transactions = TransactionsState(self.groups)
        self.internal_topics = InternalTopicsState(catalog, self.groups, self.transactions)
        self.common = known = common or CommonSections(catalog.topic_configs)
        self.configs, self.quotas, self.acls, self.credentials = known.all
        self.share = ShareState(catalog)
        catalog.register(
            (
                self.internal_topics, self.transactions, self.groups, self.nacked, self.attempts, self.cancels,
                *(self.common.all if common is None else ()), self.share,
            )
        )  # fmt: skip
        catalog.ends = self.transactions
        catalog.topic_defaults = self.configs.topic_defaults
        if common is None:
            self.configs.on_topic_defaults.append(catalog.resolve_topics)


class Node:
    """One node, without what drives it: no loop, no socket."""

    def __init__(
        self,
        fs: FileSystem,
        settings: Settings,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        *,
        logger: logging.Logger | None = None,
        off: Collection[str] = (),
        more_topic_configs: Sequence[OfFeature] = (),
        more_group_configs: Sequence[GroupConfig] = (),
        storage: MakeStorage = LocalStorage,
        shard: Shard | None = None,
        common: Common | None = None,
    ) -> None:
        """`random_bytes(n)` makes ids of clusters, topics and members. `off`: names of features that do nothing, beside
        those that the settings switch off; what the log says of them stays. `more_topic_configs`, `more_group_configs`:
        those that plugins offer. `storage` and `shard`: as of Kernel. `common`: of a shard, which has none of its own.
        Raises StartError."""
        self._undo: list[Callable[[], object]] = []
        """How what it shares with other shards forgets it."""
        self.off = off = {*off, *settings.services.off()}
        """Names of the services and other features that are off."""
        if "waiting" in off:
            off.add("delays")  # nothing waits
        table = topic_configs(off, more_topic_configs)
        self.kernel = kernel = Kernel(
            fs, settings, clock, random_bytes, logger=logger, topic_configs=table, storage=storage, shard=shard
        )
        self.state = state = Sections(kernel.catalog, None if common is None else common.state)
        log, catalog, appender, turn, live = kernel.log, kernel.catalog, kernel.appender, kernel.turn, kernel.live
        reader, relays, timers, logger = kernel.partition_reader, kernel.relays, kernel.timers, kernel.logger
        self._has_common = common is None
        self.common = common = common or Common(
            state.common, appender, live, kernel.topic_configs, clock, timers, fs, random_bytes, logger, off,
            more_group_configs,
        )  # fmt: skip
        self.group_configs = common.group_configs
        self.group_names = GroupNames()
        self.group_names.also_remember(lambda: self.state.nacked.nacked)
        coordination = build_coordination(
            live, catalog, self._group_overrides, lambda prefix: f"{prefix}-{random_bytes(16).hex()}",
            self._undo.append,
        )  # fmt: skip
        journal = GroupJournal(coordination, appender, turn, timers, clock, kernel.hold.put_off, logger)
        self.groups = GroupService(
            coordination, journal, state.groups, catalog, appender, self.group_names, clock, live,
            state.transactions.unstable,
        )  # fmt: skip
        endings = TransactionEndings(log, catalog, appender, turn, kernel.hold, clock)
        prepared = PreparedTransactions(state.transactions, endings, appender, relays, clock)
        self.transactions = TransactionService(
            state.transactions, endings, prepared, log, appender, timers, clock, live, logger
        )
        self.dynamic_configs, self.quotas, self.acls = common.dynamic_configs, common.quotas, common.acls
        self.users, self.tokens, self.node_key, self.audit = common.users, common.tokens, common.node_key, common.audit
        to_topic = settings.security.audits_to_topic(settings.listeners)
        self.audit_topic = AuditTopic(
            catalog, appender, kernel.administration, relays, clock, logger,
            is_written=to_topic and self._has_common,
        )  # fmt: skip
        if self.audit is not None and to_topic and self._has_common:
            self.audit.sinks = (self.audit_topic,)
        self.key_index = KeyIndex(log, catalog, turn, reader, relays)
        self.messages = Messages(self.key_index, catalog, reader)
        self.waiting = WaitingService(
            log, turn, catalog, appender, reader, kernel.administration, relays, clock, state.attempts, state.cancels,
            logger,
        )  # fmt: skip
        self.delays = Delays(log, catalog, reader, self.waiting, clock)
        self.shares = self._share_groups()
        self.expiry = Expiry(catalog.by_name.get, clock)
        if "expiry" not in off:
            self.shares.delivery.lifetimes = self.expiry
            self.waiting.ends_by(self.expiry)
        self.internal_topics = InternalTopics(
            state.internal_topics, state.groups, state.transactions, catalog, appender, relays, clock, logger
        )  # fmt: skip
        self.cleaner = Cleaner(log, catalog, kernel.clean_files, kernel.housekeeping, appender, live, clock, logger)
        self.scrubber = Scrubber(
            log, kernel.reader, catalog, kernel.indexes, kernel.clean_files, lambda: kernel.report.damaged, timers.arm,
            live, clock, logger, logs=1 if shard is None else shard.shards,
        )  # fmt: skip
        appender.finds_keys = finds_keys
        if "transactions" not in off:
            appender.transaction_guard = self.transactions
        if "keyindex" not in off:
            appender.indexed = turn.follower = self.key_index
        kernel.bind([feature for feature in map(self._in_force, self._features()) if feature is not None])
        offered: dict[str, tuple[object, ...]] = {
            "groups": (self.group_names, self.groups),
            "transactions": (self.transactions,),
            **dict(common.services()),
            "expiry": (self.expiry,),
            "keyindex": (self.messages,),
            "delays": (self.delays,),
            "share": (self.shares,),
        }
        offered["internal_topics"] = (OfferedTopics(catalog, kernel.administration, internal_topics(off)),)
        self.services = Services(each for name, services in offered.items() if name not in off for each in services)
        """What requests are answered with."""

    def _in_force(self, feature: Feature) -> Feature | None:
        return feature.while_off if feature.name in self.off else feature

    def _features(self) -> list[Feature]:
        return [
            *(self.common.features() if self._has_common else ()),
            self.groups.feature(),
            self.transactions.feature(),
            self.shares.feature(),
            self.waiting.feature(),
            self.expiry.feature(),
            self.delays.feature(),
            self.key_index.feature(),
            self.cleaner.feature(),
            self.internal_topics.feature(),
            self.scrubber.feature(),
            self.audit_topic.feature(),
        ]

    def interceptors(self) -> Sequence[PutInterceptor]:
        """Those of services, which inspect a produced batch before those of plugins."""
        if "expiry" in self.off:
            return ()
        return (PutInterceptor("expiry", (TTL, EXPIRES), checking.check, in_slices=checking.check_in_slices),)

    def _group_overrides(self, group: str) -> GroupOverrides:
        rules = self.group_configs.of(group)
        return GroupOverrides(rules.consumer_session_timeout_ms, rules.consumer_heartbeat_interval_ms)

    def _share_groups(self) -> ShareService:
        kernel, configs = self.kernel, self.group_configs
        settings = kernel.settings.groups.share
        options = ShareOptions(kernel.live, lambda group: configs.node_defaults() | configs.overrides(group))
        parts = Parts(self.state.share, kernel.catalog, ShareSessions(settings.max_sessions))
        delivery = ShareDelivery(
            parts,
            kernel.appender,
            kernel.partition_reader,
            kernel.hold,
            kernel.timers,
            kernel.clock,
            options,
            kernel.logger,
        )
        dead_letters = DeadLetters(
            delivery, kernel.partition_reader, kernel.appender, kernel.relays, kernel.administration, kernel.logger
        )
        return ShareService(
            self.state.share, kernel.catalog, delivery, dead_letters, kernel.appender, kernel.timers, kernel.clock,
            self.group_names, kernel.when_durable, settings.max_size,
        )  # fmt: skip

    def open(
        self, progress: Callable[[int, int], None] | None = None, *, unset_configs: Collection[str] = ()
    ) -> Report:
        """Recover, and begin a new generation. Slow. `unset_configs`: configurations of the node that were set at run
        time, and are to be forgotten. Raises StartError, OSError, StorageError."""
        kernel = self.kernel
        kernel.open(progress)
        kernel.begin()
        if self._has_common:
            self.dynamic_configs.opened(unset_configs)
        kernel.restore()
        return kernel.report

    def brought_back(self) -> None:
        """The log was brought back to an earlier moment: see services/transactions/fencing. Between `open` and `start`;
        durable when it returns. Raises BrokerError, StorageError."""
        self.transactions.fence_all(self.kernel.turn.flush)

    def extend(self, features: Sequence[Feature]) -> None:
        """More features, behind the others: those that plugins give. Between `open` and `start`. Raises BrokerError,
        StorageError."""
        self.kernel.extend(features)
        for feature in features:
            for service in feature.services:
                self.services.add(service)

    def start(self) -> None:
        """Begin to move messages. Before, give `waiting` its interceptors and relays (`use`), and `extend` the node by
        what plugins are."""
        self.kernel.start()

    def reconfigure(self, base: Settings) -> None:
        """broker.yaml, flags and environment say something else than before; what was set at run time goes before."""
        self.dynamic_configs.rebase(base)
        self.kernel.catalog.reconfigure(self.kernel.settings)

    def close(self) -> None:
        """Flush, checkpoint, and leave the mark of a clean stop, as far as the disk allows it."""
        self.kernel.close()

    def follow_defaults(self) -> None:
        """A shard is recovered: from now on its topics follow the defaults that are set for all shards."""
        self._undo.append(subscribed(self.state.configs.on_topic_defaults, self.kernel.catalog.resolve_topics))

    def leave(self) -> None:
        """What it shares with other shards forgets it. Once, also where it could not be opened."""
        for undo in self._undo:
            undo()
        self._undo.clear()

    def health(self) -> list[str]:
        """What is wrong, a sentence each; empty when nothing is."""
        kernel = self.kernel
        of_features = [problem for problems in kernel.features.problems for problem in problems()]
        return [*kernel.problems(), *of_features, *kernel.housekeeping.problems, *kernel.relays.problems()]

    def warnings(self) -> list[str]:
        """What somebody should know although everything works, a sentence each."""
        return [warning for warnings in self.kernel.features.warnings for warning in warnings()]
