"""The broker: the facade that adapters call.

One thread calls everything here (the event loop's), but for what is marked as meant for a thread. Nothing here
waits: what has to be waited for is a log position, and `when_durable` says when it has come.

A turn of the loop, as server/tick.py drives it:

    requests → append, append, … → write() → [sync: fdatasync in a thread → finish_sync()] → settle():
    dispatch makes the batches visible → answers leave (when_durable) → held requests wake

Which ends count is a matter of `flush`: with `sync`, *durable* and *visible* both mean flushed, else written.
"""

from __future__ import annotations

import logging
from bisect import insort
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from halfmoon.core import frame, provenance
from halfmoon.core.batch_header import CODEC_MASK
from halfmoon.core.broker_configs import DynamicConfigs
from halfmoon.core.cancelling import Cancelling
from halfmoon.core.catalog import snapshot
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Partition, Topic
from halfmoon.core.cleaner import Cleaner
from halfmoon.core.clock import Clock
from halfmoon.core.commitlog import CommitLog, SyncJob
from halfmoon.core.compaction import refuse_without_key
from halfmoon.core.config import Settings
from halfmoon.core.deliveries import Deliveries
from halfmoon.core.dispatch import Appended, Dispatcher
from halfmoon.core.diverting import Diverting
from halfmoon.core.due_clock import DueClock
from halfmoon.core.errors import BrokerError, Fault, StorageError
from halfmoon.core.files import FileSystem
from halfmoon.core.frame import Frame, Kind
from halfmoon.core.group_configs import GroupConfigs
from halfmoon.core.group_service import GroupService
from halfmoon.core.hold import HoldService
from halfmoon.core.hook_types import TopicChange
from halfmoon.core.housekeeping import Housekeeping
from halfmoon.core.identity import Identity
from halfmoon.core.interception import Interception, check_undiverted
from halfmoon.core.key_index import KeyIndex
from halfmoon.core.keys import finds_keys
from halfmoon.core.messages import Messages
from halfmoon.core.producer_state import Producers
from halfmoon.core.provenance import GivenUp, Origin, Provenance, SourceRange, SourceRun, names_messages
from halfmoon.core.quotas import Quotas
from halfmoon.core.reading import Place, Read, Reader
from halfmoon.core.records import (
    HEADER_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    batch_body,
    check_batch,
    is_plain,
    parse_header,
    set_log_append_time,
    stamp,
    validate_records,
)
from halfmoon.core.recovery import Recovery, Report, leave_clean_mark
from halfmoon.core.relay import Relays
from halfmoon.core.rolling import Rolling
from halfmoon.core.share.service import ShareService
from halfmoon.core.topic_configs import validate
from halfmoon.core.topic_names import check_topic_name
from halfmoon.core.transaction_service import TransactionalProducer, TransactionService
from halfmoon.core.transactions.aborted import Aborted
from halfmoon.core.views import Views
from halfmoon.schema import control
from halfmoon.services.sections import Sections

PRODUCER_ID_BLOCK = 1_000
"""Ids reserved at once; after a crash the rest of a block is skipped, so no id is given out twice."""


SMALL_BYTES = 4 << 10
"""Batches of this size are looked into for keys when they are appended."""

_Waiting = tuple[int, Callable[[BrokerError | None], None]]
_position = itemgetter(0)


class Produced(NamedTuple):
    """What became of a batch. `append_ms` is −1 unless the topic stamps its records; wait for `position`."""

    base_offset: int
    append_ms: int
    position: int
    start_offset: int
    diverted: tuple[Partition, int] | None = None
    """Where the first of the records stands that went elsewhere, if any did."""


class Broker:
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
        self.fs = fs
        self.settings = settings
        self.clock = clock
        self.logger = logger or logging.getLogger("halfmoon.broker")
        self.log = CommitLog(fs, settings.log.segment_bytes, settings.log.low_disk_mark_bytes)
        self.catalog = Catalog(settings)
        self.state = Sections(self.catalog)
        self.hold = HoldService(settings.hold)
        self.groups = GroupService(self, lambda prefix: f"{prefix}-{random_bytes(16).hex()}")
        self.transactions = TransactionService(self)
        self.group_configs = GroupConfigs(self)
        self.dynamic_configs = DynamicConfigs(self)
        self.quotas = Quotas(self)
        self.relays = Relays(clock, self.logger)
        self.views = Views(self)
        self.due_clock = DueClock(clock)
        self.interception = Interception(self)
        """To be replaced before the first batch is appended, where plugins have interceptors."""
        self.diverting = Diverting(self)
        self.key_index = KeyIndex(self)
        self.cancelling = Cancelling(self)
        self.messages = Messages(self)
        self.deliveries = Deliveries(self)
        self.rolling = Rolling(self)
        self.shares = ShareService(self)
        self.reader = Reader(self.log, settings.log.hot_bytes, settings.log.cold_bytes)
        self.report = Report()
        self.on_dirty: Callable[[], None] = lambda: None
        """Called when something was appended that `write` has not seen, at most once per write."""
        self.on_handled: Callable[[], None] = lambda: None
        """Called when something was appended and all requests that one client sent together are handled: this may be a
        good moment to write."""
        self._on_deadline: Callable[[int], None] = lambda deadline_ms: None
        self.dirty = False
        """Something was appended and not written."""
        self._random_bytes = random_bytes
        self._sync = settings.log.flush == "sync"
        self._validate_records = settings.log.validate == "records"
        self._unseen: deque[Appended] = deque()
        self._waiting: deque[_Waiting] = deque()
        """Sorted by position."""
        self._after_write: list[Callable[[], None]] = []
        self._producer_ids = range(0)
        self._partition_count = 0
        self.dispatchers: tuple[Dispatcher, ...] = ()
        self.refused_batches: Counter[Fault] = Counter()
        """Produced batches that were not appended, counted by whoever called `append`, which knows of more reasons."""
        self.on_topic_changed: Callable[[str, TopicChange], None] = lambda topic, change: None
        """Called with a topic's name once a change of it is durable."""

    # -- life ------------------------------------------------------------------------------------------------------

    def open(
        self, progress: Callable[[int, int], None] | None = None, *, unset_configs: Collection[str] = ()
    ) -> Report:
        """Recover, and begin a new generation. Slow. `unset_configs`: configurations of the node that were set at run
        time, and are to be forgotten. Raises StartError, OSError, StorageError."""
        self.identity = Identity.load_or_make(self.fs, self.settings.node.id, self._random_bytes)
        self.log.open()
        recovery = Recovery(self.log, self.catalog, self.settings, progress)
        recovery.run()
        self.report = recovery.report
        self._partition_count = sum(len(topic.partitions) for topic in self.catalog.by_name.values())
        self.dispatch = recovery.dispatch
        self.housekeeping = Housekeeping(self, recovery.indexes)
        self.cleaner = Cleaner(self, recovery.clean_files)
        self.key_index.open()
        self.log.head = self._segment_head
        self.log.on_roll = self.dispatch.freeze_at
        # Nothing else is written in this generation before it is on disk, or it might be given out twice.
        self.append_control(control.GenerationStarted(self.log.generation, self.clock.wall_ms()))
        self.flush()
        self.dynamic_configs.unset(unset_configs)
        self.dynamic_configs.apply()
        for warning in self.dynamic_configs.warnings() + self.group_configs.warnings():
            self.logger.warning("event=config_left_out %s", warning)
        self.quotas.apply()
        self.groups.restore()
        self.transactions.restore()
        self.shares.restore()
        self.flush()
        return self.report

    def start_relays(self) -> None:
        """Begin to move messages. Before, say which filter languages there are (`views.languages`), what interceptors
        (`interception`), and who decides about what waits (`deliveries.relays`)."""
        for relays in (self.views, self.deliveries, self.rolling, self.key_index, self.cancelling, self.shares):
            relays.start()

    def flush(self) -> None:
        """Write and sync all that was appended, waiting for it: for start and stop. Raises StorageError."""
        self.write()
        job = self.log.sync_job()
        if job is not None:
            error: OSError | None = None
            try:
                job.run()
            except OSError as failure:
                error = failure
            self.finish_sync(job, error)
        if self.log.failed is not None:
            raise StorageError(str(self.log.failed))

    def close(self) -> None:
        """Flush, checkpoint, and leave the mark of a clean stop, as far as the disk allows it."""
        try:
            self.cleaner.stop()
            self.views.save_progress()
            self.flush()
            end = self.log.end
            self.key_index.finish()
            self.housekeeping.finish(snapshot.take(self.catalog, end, self.log.generation, clean=True))
            leave_clean_mark(self.fs, end)
        except (OSError, BrokerError, StorageError) as error:
            self.logger.error("no clean stop; the next start will recover: %s", error)
        self.log.close()

    @property
    def on_deadline(self) -> Callable[[int], None]:
        """Called with a monotonic time at which `hold` or `groups` have something to do."""
        return self._on_deadline

    @on_deadline.setter
    def on_deadline(self, callback: Callable[[int], None]) -> None:
        self._on_deadline = self.hold.on_deadline = self.relays.on_deadline = callback

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
    def durable_position(self) -> int:
        return self.log.flushed if self._sync else self.log.written

    def health(self) -> list[str]:
        """What is wrong, a sentence each; empty when nothing is."""
        found = []
        if self.log.failed is not None:
            found.append(f"the log takes no more writes: {self.log.failed}")
        if self.log.low_disk:
            mark = self.settings.log.low_disk_mark_bytes
            found.append(f"writes are refused: another segment would leave less than {mark} bytes of disk")
        found += [f"clean file {start} is missing" for start in self.cleaner.files.lost]
        found += [f"the log is damaged from position {low} to {high}" for low, high in self.report.damaged]
        for partition in self.catalog.partitions():
            found += [f"{partition!r} has lost offsets {low} to {high - 1}" for low, high in partition.queue.damaged]
        return found + self.housekeeping.problems + self.views.problems() + self.relays.problems()

    def warnings(self) -> list[str]:
        """What somebody should know although everything works, a sentence each."""
        return [
            *self.views.warnings(),
            *self.groups.warnings(),
            *self.dynamic_configs.warnings(),
            *self.group_configs.warnings(),
        ]

    # -- topics ----------------------------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic | None:
        return self.catalog.by_name.get(name)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        return self.catalog.by_id.get(topic_id)

    def topics(self) -> list[Topic]:
        """All topics by name, internal ones included."""
        return [self.catalog.by_name[name] for name in sorted(self.catalog.by_name)]

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        configs: Mapping[str, str] | None = None,
        *,
        validate_only: bool = False,
        internal: bool = False,
    ) -> tuple[Topic, int]:
        """A new topic (−1 partitions: as `$.topics.partitions` says), and the log position to wait for.

        With `validate_only` the topic is made but known to nobody, and the position is that of nothing. Raises
        BrokerError.
        """
        check_topic_name(name)
        if not internal and name in self.interception.waiting_topics:
            raise BrokerError(Fault.INVALID_TOPIC_EXCEPTION, f"topic '{name}' is where messages wait")
        if name in self.catalog.by_name:
            raise BrokerError(Fault.TOPIC_ALREADY_EXISTS, f"topic '{name}' exists")
        configs = dict(configs or {})
        validate(configs)
        view, partitions = self.views.bind(configs, partitions)
        count = self.settings.topics.partitions if partitions == -1 else partitions
        self._check_partitions(count, count)
        record = control.TopicCreated(
            self.catalog.next_topic_number, name, self._random_bytes(16), count, configs, internal, view,
            self.catalog.next_queue_number,
        )  # fmt: skip
        if validate_only:
            return self.catalog.make_topic(record), 0
        position = self._change_topic(record, name, "created")
        self._partition_count += count
        if view is not None:
            self.views.topics_changed()
        return self.catalog.by_name[name], position

    def _change_topic(self, record: control.Any, name: str, change: TopicChange) -> int:
        position = self.append_control(record)
        self._announce(position, name, change)
        return position

    def _announce(self, position: int, name: str, change: TopicChange) -> None:
        self.when_durable(position, lambda error: None if error else self.on_topic_changed(name, change))

    def _check_partitions(self, count: int, more: int) -> None:
        """Raises BrokerError unless a topic may have `count` partitions, and the node `more` than it has."""
        limits = self.settings.limits
        most = limits.max_partitions_per_topic
        if not 1 <= count <= most:
            raise BrokerError(Fault.INVALID_PARTITIONS, f"{count} partitions; from 1 to {most} are allowed")
        if self._partition_count + more > limits.max_partitions:
            raise BrokerError(
                Fault.INVALID_PARTITIONS,
                f"{more} more partitions; of {limits.max_partitions} on this node {self._partition_count} are taken",
            )

    def delete_topic(self, topic: Topic) -> int:
        """Forget a topic, its messages, and all groups' progress in it; returns the log position to wait for.

        Raises BrokerError(POLICY_VIOLATION) where views are filled from it, or messages of other topics wait in it.
        """
        if any(partition.pending is not None for partition in topic.partitions):
            raise BrokerError(Fault.POLICY_VIOLATION, f"messages for other topics wait in topic '{topic.name}'")
        self.views.check_deletion(topic)
        position = self._change_topic(control.TopicDeleted(topic.number), topic.name, "deleted")
        self._partition_count -= len(topic.partitions)
        self.shares.forget_topic(topic.partitions)
        for partition in topic.partitions:
            self.hold.wake_partition(partition)
        self.views.topics_changed()
        return position

    def add_partitions(self, topic: Topic, total: int, *, validate_only: bool = False) -> int:
        """Grow a topic to `total` partitions, and its views too; returns the log position to wait for.

        Raises BrokerError(INVALID_PARTITIONS).
        """
        if topic.view is not None:
            raise BrokerError(
                Fault.INVALID_PARTITIONS, f"topic '{topic.name}' is a view: it has the partitions of its source"
            )
        if total <= len(topic.partitions):
            raise BrokerError(
                Fault.INVALID_PARTITIONS,
                f"topic '{topic.name}' has {len(topic.partitions)} partitions, not fewer than {total}",
            )
        views = self.catalog.views_of(topic)
        more = sum(total - len(each.partitions) for each in (topic, *views))
        self._check_partitions(total, more)
        if validate_only:
            return 0
        added = control.PartitionsAdded(topic.number, total, self.catalog.next_queue_number)
        position = self._change_topic(added, topic.name, "grown")
        self._partition_count += more
        for view in views:
            self._announce(position, view.name, "grown")
        self.views.topics_changed()
        return position

    def alter_configs(self, topic: Topic, configs: Mapping[str, str], *, validate_only: bool = False) -> int:
        """Replace all of a topic's overrides; returns the log position to wait for. Raises BrokerError."""
        validate(configs)
        self.views.check_change(topic, configs)
        if validate_only:
            return 0
        position = self._change_topic(control.ConfigsSet(topic.number, dict(configs)), topic.name, "configured")
        if topic.rules.compacts:
            self.cleaner.configured()
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
        return offset, self.append_control(
            control.StartOffsetsMoved([(partition.topic.number, partition.index, offset)])
        )

    # -- appending -------------------------------------------------------------------------------------------------

    def append(
        self, partition: Partition, batch: memoryview, now_ms: int, producer: TransactionalProducer | None = None
    ) -> Produced:
        """Append one produced record batch, in place of nothing but its offset and leader epoch.

        `batch` is writable and is kept until `write` has run. `producer`: who may send transactional ones. Raises
        BrokerError; nothing is stored then.
        """
        topic = partition.topic
        rules = topic.rules
        header = check_batch(batch, rules.max_message_bytes)
        if topic.view is not None:
            raise BrokerError(Fault.POLICY_VIOLATION, f"topic '{topic.name}' is a view: only its source is produced to")
        if self._validate_records:
            validate_records(batch)
        body = batch
        if rules.compacts or (rules.headers_enabled and header.attributes & CODEC_MASK):
            body = batch_body(batch)
        if rules.compacts:
            refuse_without_key(bytes(body), header.record_count)
        producer_id = header.producer_id
        transactional = header.attributes & TRANSACTIONAL
        span = header.record_count
        producers = partition.producers if producer_id >= 0 else None
        if producer_id >= 0:
            if producers is None:
                producers = partition.producers = Producers()
            if transactional or partition.transactions is not None:
                self._check_transaction(producer, partition, header)
            repeated = producers.check(producer_id, header.producer_epoch, header.base_sequence, span)
            if repeated is not None:
                return Produced(repeated.base_offset, -1, repeated.end_position, partition.start_offset)
        append_ms, max_ms = -1, header.max_timestamp
        if rules.log_append_time:
            set_log_append_time(batch, now_ms)
            append_ms = max_ms = now_ms
        keyed, concerned = rules.key_index, False
        if rules.headers_enabled:
            keyed = keyed or finds_keys(body)
            concerned = self.interception.concerns(partition, body)
        if concerned:
            taken = self.interception.take(partition, batch, self.due_clock.now_ms())
            if transactional:
                check_undiverted(taken)
            base_offset, end, diverted = self.diverting.append(partition, batch, header, taken, now_ms, keyed=keyed)
            places = [(place.topic.name, place.index, offset) for place, offset in diverted]
            for appended in taken.appended:
                appended.call(tuple(places[appended.first : appended.last]))
        else:
            diverted = []
            base_offset = partition.next_offset
            end = self.store(partition, batch, span, span, max_ms, now_ms, keyed=keyed)
        if producers is not None:
            producers.appended(producer_id, header.producer_epoch, header.base_sequence, span, base_offset, end, now_ms)
        if transactional:
            partition.transaction_began(producer_id, base_offset)
        return Produced(base_offset, append_ms, end, partition.start_offset, diverted[0] if diverted else None)

    def _check_transaction(
        self, producer: TransactionalProducer | None, partition: Partition, header: BatchHeader
    ) -> None:
        """Raises BrokerError where a batch does not go with what its producer has open in the partition."""
        if header.attributes & TRANSACTIONAL:
            if producer is None:
                raise BrokerError(Fault.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            self.transactions.before_append(producer, partition, header)
        elif partition.transactions is not None and header.producer_id in partition.transactions.open:
            raise BrokerError(
                Fault.INVALID_TXN_STATE, f"producer {header.producer_id} has a transaction open in {partition!r}"
            )

    def first_partition(self, name: str) -> Partition:
        """Of an ordinary topic that is the broker's to fill, beside others; the topic is made if need be. Raises
        BrokerError."""
        topic = self.catalog.by_name.get(name)
        if topic is None:
            topic, _ = self.create_topic(name, 1)
        if topic.internal or topic.view is not None:
            raise BrokerError(Fault.INVALID_TOPIC_EXCEPTION, f"topic '{topic.name}' is internal, or a view")
        return topic.partitions[0]

    def append_relayed(
        self,
        partition: Partition,
        batch: bytearray,
        *,
        range: SourceRange | None = None,
        sources: Sequence[SourceRun] = (),
        origin: Origin | None = None,
        due_ms: int = 0,
        attempts: Sequence[SourceRun] = (),
        given_up: GivenUp | None = None,
    ) -> int:
        """Append a batch that the broker made from other messages, with the proof of which: a range of a view's source,
        or waiting messages, which are settled by it. `attempts`: waiting messages that are put off with it. With
        `origin` its messages wait themselves, to be delivered there at `due_ms` (Unix ms). `given_up`: records of which
        these are the dead letters. Returns the log position to wait for. Raises BrokerError.
        """
        now_ms = self.clock.wall_ms()
        view = memoryview(batch)
        if partition.topic.rules.log_append_time:
            set_log_append_time(view, now_ms)
        header = parse_header(view)
        span = header.last_offset_delta + 1
        base_offset = partition.next_offset
        proof = Provenance(range, tuple(sources), None, origin, tuple(attempts), given_up)
        end = self.store(
            partition, view, header.record_count, span, due_ms or header.max_timestamp, now_ms, due_ms=due_ms,
            provenance=provenance.encode(proof),
            keyed=not sources and given_up is None  # else it is indexed anyway
            and (bool(header.attributes & CODEC_MASK) or partition.topic.rules.key_index or finds_keys(view)),
        )  # fmt: skip
        self.catalog.prove(proof)
        if origin is not None:
            partition.wait(base_offset, span)
            self.deliveries.waits_in(partition)
        return end

    def store(
        self,
        partition: Partition,
        batch: memoryview,
        record_count: int,
        span: int,
        max_ms: int,
        now_ms: int,
        *,
        original_span: int = -1,
        due_ms: int = 0,
        provenance: bytes = b"",
        part: int = 0,
        parts: int = 1,
        keyed: bool = False,
    ) -> int:
        """Give a checked batch its place; returns the log position behind it.

        `original_span` −1: the span. `keyed`: one of its records may have a key (core/keys.py).
        """
        base_offset = partition.next_offset
        log = self.log
        generation = log.generation
        stamp(batch, base_offset, generation)
        indexed = keyed or names_messages(provenance)
        position = log.append(
            Kind.BATCH, partition.topic.number, partition.index, record_count, base_offset, span,
            span if original_span < 0 else original_span, now_ms, batch,
            flags=frame.INDEXED if indexed else 0, due_ms=due_ms, part=part, parts=parts, provenance=provenance,
        )  # fmt: skip
        if indexed:
            self._note_keys(partition, batch, position, provenance, base_offset, span, now_ms, due_ms, part, parts)
        partition.next_offset = base_offset + span
        epochs = partition.epochs
        if not epochs or epochs[-1][0] != generation:
            partition.began_epoch(generation, base_offset)
        self._unseen.append(Appended(partition, base_offset, span, position, len(batch), max_ms, now_ms))
        if not self.dirty:
            self.dirty = True
            self.on_dirty()
        return log.end

    def _note_keys(
        self,
        partition: Partition,
        batch: memoryview,
        position: int,
        proof: bytes,
        base_offset: int,
        span: int,
        now_ms: int,
        due_ms: int,
        part: int,
        parts: int,
    ) -> None:
        """Tell the key index of a batch, whose payload stands at `position`."""
        topic = partition.topic
        before = frame.HEADER_BYTES + len(proof)
        length = before + len(batch)
        if len(batch) > SMALL_BYTES or topic.rules.key_index or not is_plain(batch):
            self.key_index.note(position - before, length)
            return
        seen = Frame(
            Kind.BATCH, frame.INDEXED, length, len(proof), position - before, 0, self.log.generation, topic.number,
            partition.index, 0, base_offset, span, span, now_ms, due_ms, part, parts, 0,
        )  # fmt: skip
        self.key_index.note_small(seen, proof, bytes(batch[HEADER_BYTES:]))

    def append_control(self, record: control.Any, *, part: int = 0, parts: int = 1) -> int:
        """Write down a change and make it; returns the log position to wait for. `part` of `parts`: of the frame group
        that it belongs to. Raises BrokerError, with no change made."""
        payload = control.encode(record)
        indexed = isinstance(record, control.Settled)
        position = self.log.append(
            Kind.CONTROL, -1, -1, 0, 0, 0, 0, self.clock.wall_ms(), payload, payload_crc=frame.control_crc(payload),
            flags=frame.INDEXED if indexed else 0, part=part, parts=parts,
        )  # fmt: skip
        if indexed:
            self.key_index.note(position - frame.HEADER_BYTES, frame.HEADER_BYTES + len(payload))
        self.catalog.apply(record)
        if not self.dirty:
            self.dirty = True
            self.on_dirty()
        return self.log.end

    def _segment_head(self, start: int) -> list[bytes]:
        """What has been true up to a new segment, for its head: so that the segments before it may go."""
        data = snapshot.take(self.catalog, start, self.log.generation, producers=False)
        return [control.encode(part) for part in snapshot.parts(data)]

    def allocate_producer_id(self) -> tuple[int, int]:
        """A producer id that nobody had before, and the log position to wait for. Raises BrokerError."""
        if not self._producer_ids:
            first = self.catalog.next_producer_id
            self._reserved_at = self.append_control(control.ProducerIdsReserved(first + PRODUCER_ID_BLOCK))
            self._producer_ids = range(first, first + PRODUCER_ID_BLOCK)
        producer_id = self._producer_ids[0]
        self._producer_ids = self._producer_ids[1:]
        return producer_id, self._reserved_at

    # -- the turn of the loop ----------------------------------------------------------------------------------------

    def write(self) -> None:
        """Bring all that was appended into the page cache; afterwards the appended buffers are free."""
        self.dirty = False
        try:
            self.log.write()
        except StorageError as error:
            self._fail(error)
        callbacks, self._after_write = self._after_write, []
        for callback in callbacks:
            self._call(callback)

    flush_writes = write

    def _call(self, callback: Callable[..., object], *given: object) -> None:
        """What one of those who waited gets wrong keeps neither the others nor what comes behind them from its turn."""
        try:
            callback(*given)
        except Exception:
            self.logger.exception("event=callback_failed")

    def after_write(self, callback: Callable[[], None]) -> None:
        """Call back once the buffers appended so far are free: at once if they are."""
        if self.log.pending_bytes and self.log.failed is None:
            self._after_write.append(callback)
        else:
            callback()

    def finish_sync(self, job: SyncJob, error: OSError | None) -> None:
        """A sync job's `run` has returned or raised."""
        self.log.finish_sync(job, error)
        if error is not None:
            self._fail(StorageError(f"fdatasync failed: {error}"))
        else:
            self.settle()

    def settle(self) -> None:
        """Make visible what has become durable, send the answers that waited for it, wake who waits for messages."""
        upto = self.durable_position
        unseen = self._unseen
        arrivals: dict[Partition, int] = {}
        batches: list[Appended] = []
        while unseen and unseen[0].position < upto:
            batches.append(unseen.popleft())
        self.dispatch.run(batches, upto, arrivals)
        waiting = self._waiting
        while waiting and waiting[0][0] <= upto:
            self._call(waiting.popleft()[1], None)
        self.key_index.arrived(upto)
        if batches:
            for dispatcher in self.dispatchers:
                dispatcher(batches)
            on_arrival = self.hold.on_arrival
            for partition, nbytes in arrivals.items():
                on_arrival(partition, nbytes)
            self.shares.arrived(arrivals)
            if self.views.followers:
                self.views.arrived(arrivals)
            if self.deliveries.queues:
                self.deliveries.arrived(arrivals)

    @property
    def waiting_answers(self) -> int:
        """How many answers wait for the log to become durable."""
        return len(self._waiting)

    def when_durable(self, position: int, callback: Callable[[BrokerError | None], None]) -> None:
        """Call back once the log is durable up to `position`, or with an error once it never will be."""
        if position <= self.durable_position:
            callback(None)
        elif self.log.failed is not None:
            callback(BrokerError(Fault.KAFKA_STORAGE_ERROR, f"the log takes no more writes: {self.log.failed}"))
        elif self._waiting and position < self._waiting[-1][0]:
            insort(self._waiting, (position, callback), key=_position)  # a repeated batch waits for the first one
        else:
            self._waiting.append((position, callback))

    def when_written(self, position: int, callback: Callable[[BrokerError | None], None]) -> None:
        """As `when_durable`, for what need only survive the death of this process."""

        def written() -> None:
            lost = position > self.log.written
            callback(BrokerError(Fault.KAFKA_STORAGE_ERROR, "the log takes no more writes") if lost else None)

        self.after_write(written)

    def _fail(self, error: StorageError) -> None:
        """Nobody who still waits can be told that all is well."""
        self.logger.critical("storage failed, no more writes are taken: %s", error)
        durable = self.durable_position
        self._unseen = deque(batch for batch in self._unseen if batch.position < durable)
        waiting = self._waiting
        while waiting:  # taken out one by one: `settle` may be in the middle of it
            position, callback = waiting.popleft()
            lost = None if position <= durable else BrokerError(Fault.KAFKA_STORAGE_ERROR, str(error))
            self._call(callback, lost)

    # -- reading -----------------------------------------------------------------------------------------------------

    def read(
        self, partition: Partition, offset: int, max_bytes: int, *, min_one: bool, committed: bool = False
    ) -> Read:
        """Whole batches from the one that holds `offset` on, about `max_bytes` of them.

        With `min_one` the first comes whatever its size. Nothing at the high watermark; with `committed`, nothing at
        the last stable offset.
        Raises BrokerError(OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE).
        """
        if not partition.start_offset <= offset <= partition.high_watermark:
            # Between the two ends a client may be that was here before a restart with unflushed records.
            if not partition.start_offset <= offset <= partition.next_offset:
                raise BrokerError(Fault.OFFSET_OUT_OF_RANGE)
            return Read((), 0, None)
        queue = partition.queue
        if queue.damaged and queue.damage_at(offset):
            raise BrokerError(Fault.CORRUPT_MESSAGE, f"offset {offset} of {partition!r} was lost to a damaged disk")
        before = partition.stable_offset if committed and partition.transactions is not None else None
        return self.reader.read(queue.places(offset, max_bytes, min_one=min_one, before=before))

    def read_framed(self, partition: Partition, offset: int, max_bytes: int) -> tuple[list[Place], Read]:
        """As `read`, the first batch always, with the `frame.BEFORE_BYTES` bytes before each batch in front of it;
        and where each batch stands in the log."""
        if not partition.start_offset <= offset < partition.stable_offset:
            raise BrokerError(Fault.OFFSET_OUT_OF_RANGE)
        queue = partition.queue
        if queue.damaged and queue.damage_at(offset):
            raise BrokerError(Fault.CORRUPT_MESSAGE, f"offset {offset} of {partition!r} was lost to a damaged disk")
        stable = partition.stable_offset if partition.transactions is not None else None
        places = queue.places(offset, max_bytes, min_one=True, before=stable)
        before = frame.BEFORE_BYTES
        return places, self.reader.read([(position - before, length + before) for position, length in places])

    def bytes_available(self, partition: Partition, offset: int, enough: int, *, committed: bool = False) -> int:
        """Bytes a reader at `offset` could get; counts no further than `enough`. `committed`: as of `read`."""
        queue = partition.queue
        if not committed or partition.transactions is None:
            return queue.bytes_from(offset, enough) if offset < queue.end_offset else 0
        stable = partition.stable_offset
        return queue.bytes_from(offset, enough, before=stable) if offset < stable else 0

    def aborted_in(self, partition: Partition, offset: int, size: int) -> Sequence[Aborted]:
        """The aborted transactions of which the `size` bytes of batches from `offset` on may hold batches."""
        transactions = partition.transactions
        if transactions is None or not transactions.aborted or not size:
            return ()
        return tuple(transactions.aborted_in(offset, partition.queue.offset_after(offset, size)))

    def batch_for_time(self, partition: Partition, timestamp_ms: int) -> Callable[[], tuple[int, int] | None] | None:
        """For the first record of `timestamp_ms` or later: None if there is none, else a function for a thread.

        It returns (offset, timestamp).
        """
        places = partition.queue.places_for_time(timestamp_ms, partition.start_offset)
        return self.reader.search_time(places, timestamp_ms, partition.start_offset) if places else None

    def max_timestamp(self, partition: Partition) -> Callable[[], tuple[int, int] | None] | None:
        """For the record with the largest timestamp (KIP-734): as `batch_for_time`."""
        start_offset = partition.start_offset
        newest = partition.queue.max_ms(start_offset)
        whole = None if newest is None else self.batch_for_time(partition, newest)
        cut = partition.queue.cut_batch(start_offset)
        if cut is None or (newest is not None and cut[1] < newest):
            return whole
        # DeleteRecords has cut into a batch: what is left of it may have the largest, and the index does not know.
        search = self.reader.search_newest(cut[0], start_offset)

        def compare() -> tuple[int, int] | None:
            left = search()
            return left if whole is None or (left is not None and newest is not None and left[1] >= newest) else whole()

        return compare
