"""The kernel: one log, the catalog that its records make up, and what every feature builds on.

    append, append_control, append_relayed, append_group      core/append.py
    write → finish_sync → settle, when_durable                core/turn.py
    read, read_framed, bytes_available, …                     core/partition_reader.py
    hold, relays, timers                                      who waits for messages, for a turn, for a time
    administration                                                    core/topic_administration.py

One thread calls everything here (the event loop's), but for what is marked as meant for a thread. Nothing here waits:
what has to be waited for is a log position. The kernel knows no feature: those are given to `bind` as records of
callables (core/features.py), and server/assembly.py is the one place that names them all.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from halfmoon.config.settings import Settings
from halfmoon.config.topic_configs import TopicConfigs
from halfmoon.core import clean_mark
from halfmoon.core.append import Appender
from halfmoon.core.catalog import snapshot
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.owners import Owners, ThisNode
from halfmoon.core.clean_files import CleanFiles
from halfmoon.core.clock import Clock
from halfmoon.core.features import Feature, Features
from halfmoon.core.hold import HoldService
from halfmoon.core.housekeeping import Housekeeping
from halfmoon.core.identity import Identity
from halfmoon.core.index_files import IndexFiles
from halfmoon.core.live import Live
from halfmoon.core.partition_reader import PartitionReader
from halfmoon.core.recovery import Recovery, Report
from halfmoon.core.relay import Relays
from halfmoon.core.storage.files import FileSystem
from halfmoon.core.storage.local import LocalStorage
from halfmoon.core.storage.storage import MakeStorage
from halfmoon.core.timers import Timers
from halfmoon.core.topic_administration import SharedTopics, TopicAdministration
from halfmoon.core.turn import Turn
from halfmoon.errors import BrokerError, Fault, StartError, StorageError
from halfmoon.schema import control


class Shard(NamedTuple):
    """One log of several that share topics, and what they have in common in one process. Whoever makes it drives
    `hold`, and replaces the settings in `live`."""

    number: int
    identity: "Identity"
    """Of the node: it may be another at the next start."""
    owners: "Owners"
    hold: "HoldService"
    live: "Live[Settings]"
    topics: "SharedTopics | None" = None
    shards: int = 1
    """How many there are in all."""


class Kernel:
    """Of one node, or of one shard."""

    def __init__(
        self,
        fs: FileSystem,
        settings: Settings,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        *,
        logger: logging.Logger | None = None,
        topic_configs: TopicConfigs | None = None,
        storage: MakeStorage = LocalStorage,
        shard: Shard | None = None,
    ) -> None:
        """`random_bytes(n)` makes ids of clusters and topics. `topic_configs`: what topics may say; None: what the core
        itself obeys. `storage`: where the log is kept; `fs` holds what is kept beside it. `shard`: what this log is
        among those that share the topics; None: there are no others."""
        self.fs = fs
        self.clock = clock
        self.logger = logger or logging.getLogger("halfmoon.broker")
        self.live = Live(settings) if shard is None else shard.live
        """The settings in force, which may be replaced at run time."""
        kept = storage(fs, settings)
        self.log, self.reader = kept.log, kept.reader
        self.fetch_buffers = self.reader.buffers
        self.indexes = IndexFiles(fs)
        self.clean_files = CleanFiles(self.log)
        self.catalog = Catalog(settings, topic_configs)
        self.topic_configs = self.catalog.topic_configs
        self._this_node = ThisNode()
        self.owners: Owners = self._this_node if shard is None else shard.owners
        self.hold = HoldService(settings.hold) if shard is None else shard.hold
        self.timers = Timers()
        self.relays = Relays(clock, self.logger)
        self.relays.on_deadline = self.timers.arm
        self.timers.on_error = self._callback_failed
        if shard is None:
            self.hold.on_deadline, self.hold.on_error = self.timers.arm, self._callback_failed
        self.turn = turn = Turn(self.log, self.hold, self.logger, sync=settings.log.flush == "sync")
        self.appender = appender = Appender(
            self.log, self.catalog, turn, clock, validate_records=settings.log.validate == "records"
        )
        self.partition_reader = reader = PartitionReader(self.reader)
        self.administration = TopicAdministration(
            self.catalog, appender, turn, self.hold, self.live, random_bytes, None if shard is None else shard.topics
        )
        self.housekeeping = Housekeeping(
            self.log, self.catalog, turn, self.indexes, self.clean_files, appender, self.live, clock, self.logger
        )
        self.features = Features()
        self.report = Report()
        self.refused_batches: Counter[Fault] = Counter()
        """Produced batches that were not appended, counted by whoever called `append`, which knows of more reasons."""
        self.on_fetched: tuple[Callable[[str, int, int], None], ...] = ()
        """Told of what clients get of a partition: its topic, its index, bytes."""
        self.on_handled: Callable[[], None] = lambda: None
        """Called when something was appended and all requests that one client sent together are handled: this may be a
        good moment to write."""
        self._random_bytes = random_bytes
        self._shard = shard
        # The parts' own methods, without a call in between.
        self.append = appender.append
        self.allocate_producer_id = appender.allocate_producer_id
        self.write = turn.write
        self.when_durable = turn.when_durable
        self.when_written = turn.when_written
        self.after_write = turn.after_write
        self.read = reader.read
        self.places = reader.places
        self.read_at = reader.read_at
        self.read_framed = reader.read_framed
        self.bytes_available = reader.bytes_available
        self.aborted_in = reader.aborted_in
        self.batch_for_time = reader.batch_for_time
        self.max_timestamp = reader.max_timestamp
        self.frames = reader.frames

    # -- life ----------------------------------------------------------------------------------------------------------

    def open(self, progress: Callable[[int, int], None] | None = None) -> Report:
        """Recover, and begin a new generation. Slow. Raises StartError, OSError, StorageError."""
        if self._shard is None:
            self.identity = Identity.load_or_make(self.fs, self.settings.node.id, self._random_bytes)
            self._this_node.node_id = self.identity.node_id
            node = msgspec.structs.replace(self.settings.node, id=self.identity.node_id)
            self.live.replace(msgspec.structs.replace(self.settings, node=node))
        else:
            self.identity = self._shard.identity
            # Its directory is known by its number, whichever node has it.
            Identity.load_or_make(self.fs, self._shard.number, self._random_bytes, self.identity.cluster_id)
        self.log.open()
        recovery = Recovery(self.log, self.catalog, self.indexes, self.clean_files, self.settings, progress)
        recovery.run()
        self.report = recovery.report
        if self.catalog.shard is not None:
            self.log.reusable_from = self.catalog.shard.linked_upto
        self._this_node.epoch = self.log.generation
        self.administration.opened()
        self.turn.dispatch = recovery.dispatch
        self.log.head = self._segment_head
        self.log.on_roll = recovery.dispatch.freeze_at
        self.housekeeping.opened()
        for recovered in self.features.recovered:
            recovered()
        return self.report

    def begin(self) -> None:
        """Nothing else is written in this generation before it is kept, or it might be given out twice. Raises
        StartError, StorageError."""
        self._check_shard()
        if self._shard is not None and self.catalog.shard is None:
            self.appender.append_control(control.ShardBegun(self._shard.number))
        self.appender.append_control(control.GenerationStarted(self.log.generation, self.clock.wall_ms()))
        if not self.log.generation_is_kept:
            self.turn.flush()

    def _check_shard(self) -> None:
        """Raises StartError where the log is not what it is opened as."""
        known = self.catalog.shard
        if known is None:
            if self._shard is not None and self.report.end:
                raise StartError("this is the data of one process, and no shard: import it")
        elif self._shard is None or known.number != self._shard.number:
            raise StartError(f"this is shard {known.number}, whose topics other shards share")

    def bind(self, features: Sequence[Feature]) -> None:
        """All features, in their order. Once, before `open`."""
        self._use(features)
        if self._shard is None:
            self.timers.add(self.hold)
        for timed in self.features.timed:
            self.timers.add(timed)
        self.timers.add(self.relays)

    def extend(self, features: Sequence[Feature]) -> None:
        """More features, behind the others: those that plugins give. Between `restore` and `start`; they take up what
        the log remembers. Raises BrokerError, StorageError."""
        if not features:
            return
        self._use([*self.features.all, *features])
        for each in features:
            if each.timed is not None:
                self.timers.add(each.timed)
            if each.restore is not None:
                each.restore()
        self.turn.flush()

    def _use(self, features: Sequence[Feature]) -> None:
        self.features = found = Features(features)
        self.administration.policies = found.topics
        self.turn.arrived = found.arrived
        self.housekeeping.bind(found)

    def restore(self) -> None:
        """Features take up what the log remembers of them. Raises BrokerError, StorageError."""
        for restore in self.features.restore:
            restore()
        self.turn.flush()

    def start(self) -> None:
        """Features begin to move things."""
        for start in self.features.start:
            start()

    def close(self) -> None:
        """Flush, checkpoint, and leave the mark of a clean stop, as far as the disk allows it."""
        features = self.features
        try:
            for stop in features.stop:
                stop()
            for checkpoint in features.checkpoint:
                checkpoint()
            self.turn.flush()
            end = self.log.end
            for last in features.finish:
                last()
            self.housekeeping.finish(snapshot.take(self.catalog, end, self.log.generation, clean=True))
            clean_mark.leave(self.fs, end)
        except (OSError, BrokerError, StorageError) as error:
            self.logger.error("event=unclean_stop error=%s", error)
        self.log.close()

    def _callback_failed(self, error: Exception) -> None:
        self.logger.error("event=callback_failed", exc_info=error)

    def _segment_head(self, start: int) -> list[bytes]:
        """What has been true up to a new segment, for its head: so that the segments before it may go."""
        data = snapshot.take(self.catalog, start, self.log.generation, producers=False, again=True)
        return [control.encode(part) for part in snapshot.parts(data)]

    # -- what it is ----------------------------------------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        return self.live.current

    @property
    def node_id(self) -> int:
        return self.identity.node_id

    @property
    def cluster_id(self) -> str:
        return self.identity.cluster_id

    @property
    def generation(self) -> int:
        """Raised at every start; the leader epoch of all partitions."""
        return self.log.generation

    @property
    def owns_hold(self) -> bool:
        """Requests are held for it alone, not for several shards together."""
        return self._shard is None

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Log positions [from, to) that a start has found no file for, as long as they have not expired."""
        start = self.log.start
        return [(max(low, start), high) for low, high in self.report.missing if high > start]

    def problems(self) -> list[str]:
        """What is wrong with the log and its data, a sentence each."""
        found = []
        if self.log.failed is not None:
            found.append(f"the log accepts no more writes: {self.log.failed}")
        if self.log.low_disk:
            found.append(f"writes are refused: {self.log.low_disk_reason()}")
        if self.log.no_segment:
            found.append(f"writes are refused: {self.log.no_segment}")
        damaged = [(low, high) for low, high in self.report.damaged if high > self.log.start]
        found += [f"log files are missing or cut short: positions {low} to {high}" for low, high in self.gaps]
        found += [f"the log is damaged from position {low} to {high}" for low, high in damaged]
        # Somebody asks every second: no call and no list for each of 100,000 partitions.
        topics = self.catalog.by_number.values()
        for partition in [each for topic in topics for each in topic.partitions if each.queue.damaged]:
            found += [f"{partition!r} has lost offsets {low} to {high - 1}" for low, high in partition.queue.damaged]
        found += [f"compacted segment {start} is missing" for start in self.clean_files.lost]
        return found
