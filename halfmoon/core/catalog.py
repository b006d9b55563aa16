"""Topics, partitions, groups' progress: the state that control records make up.

Nothing here is written anywhere by itself. Each change is a control record that goes into the log first and is then
applied with `apply`, at run time and in recovery alike; so the catalog is a function of the log. Where the
checkpoint is lost, the snapshot at the head of each segment tells it again (`snapshot`).

Topic numbers are handed out once and never again, so a frame of a deleted topic can never be taken for one of a later
namesake. For every partition:

    start_offset ≤ queue.end_offset (high watermark) ≤ next_offset
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from halfmoon.core import control
from halfmoon.core.administration import Administration
from halfmoon.core.commitlog import CLEAN_BASE
from halfmoon.core.consume_queue import ConsumeQueue
from halfmoon.core.control import Committed
from halfmoon.core.groups.consumer.memory import RememberedGroup
from halfmoon.core.pending import PendingSet
from halfmoon.core.producer_state import Producers
from halfmoon.core.provenance import SourceRun
from halfmoon.core.share.ledger import FINISHED, Ledger
from halfmoon.core.topic_configs import TopicRules, resolve
from halfmoon.core.transactions.aborted import AbortedBatches
from halfmoon.core.transactions.book import TransactionBook
from halfmoon.core.transactions.partition import PartitionTransactions

if TYPE_CHECKING:
    from halfmoon.core.batch_header import BatchHeader
    from halfmoon.core.config import Settings
    from halfmoon.core.groups.messages import GroupRecord
    from halfmoon.core.provenance import GivenUp, SentBack


class Partition:
    """One partition (RocketMQ: queue) of a topic."""

    __slots__ = (
        "cleaned",
        "compacted_upto",
        "epochs",
        "index",
        "moved_upto",
        "next_offset",
        "pending",
        "producers",
        "queue",
        "queue_number",
        "source_next",
        "start_offset",
        "topic",
        "transactions",
    )

    def __init__(self, topic: Topic, index: int) -> None:
        self.topic = topic
        self.index = index
        self.queue_number = -1
        """Broker-wide, and never given out twice: what a RocketMQ message id names the partition by."""
        self.start_offset = 0
        """The first offset that may be read."""
        self.next_offset = 0
        """The offset that the next record gets; what was appended lies below it, flushed or not."""
        self.queue = ConsumeQueue()
        self.producers: Producers | None = None
        self.transactions: PartitionTransactions | None = None
        """Of producers; None where there never were any."""
        self.epochs: list[tuple[int, int]] = []
        """(leader epoch, its first offset), both growing."""
        self.pending: PendingSet | None = None
        """Of a queue whose messages wait: those that are not dealt with yet."""
        self.source_next = 0
        """Of a view: the first offset of the source's partition that is not dealt with yet."""
        self.moved_upto = 0
        """What lives below it stands in clean files, and what the log has of it is dead (core/clean_files.py)."""
        self.compacted_upto = 0
        """Below it no two records have the same key."""
        self.cleaned: list[tuple[int, int, int]] = []
        """(from, to, position that the clean file begins at): which offsets stand in which, in their order."""

    def __repr__(self) -> str:
        return f"{self.topic.name}-{self.index}"

    @property
    def high_watermark(self) -> int:
        """The offset after the last visible record."""
        return self.queue.end_offset

    @property
    def stable_offset(self) -> int:
        """The last stable offset: what readers of committed records may read up to. The high watermark, unless a
        producer's transaction is open."""
        transactions = self.transactions
        if transactions is None:
            return self.queue.end_offset
        return max(self.start_offset, transactions.stable_offset(self.queue.end_offset))

    def shows(self, header: BatchHeader, offset: int, position: int) -> bool:
        """Whether a record of a batch that was read at a log position is there for readers of committed records, or
        waits here for its time. A thread may ask."""
        # In this order: what was aborted is known when it is decided, and forgotten when it is gone.
        if self.pending is None and offset >= self.stable_offset:
            return False
        aborted = () if self.transactions is None else self.transactions.aborted_in(offset, offset + 1)
        if AbortedBatches(aborted).hide(header):
            return False
        return self.stands_at(offset, position) and (self.pending is not None or offset >= self.start_offset)

    @property
    def size_bytes(self) -> int:
        """Bytes of the record batches that the index holds."""
        return self.queue.size_bytes()

    def began_epoch(self, epoch: int, offset: int) -> None:
        if not self.epochs or self.epochs[-1][0] < epoch:
            self.epochs.append((epoch, offset))

    def transaction_began(self, producer_id: int, offset: int) -> None:
        """A transactional batch was appended: its producer's transaction is open, if it was not before."""
        if self.transactions is None:
            self.transactions = PartitionTransactions()
        self.transactions.began(producer_id, offset)

    def transaction_ended(
        self, producer_id: int, epoch: int, offset: int, end_offset: int, now_ms: int, *, committed: bool
    ) -> None:
        """A marker was appended; what is visible ends at `end_offset`."""
        if self.transactions is not None:
            self.transactions.ended(producer_id, offset, end_offset, committed=committed)
        if self.producers is None:
            self.producers = Producers()
        self.producers.marked(producer_id, epoch, now_ms)

    def wait(self, first_offset: int, count: int) -> None:
        """These messages, appended just now, wait to be dealt with."""
        if self.pending is None:
            self.pending = PendingSet()
        self.pending.add(first_offset, count)

    def move_start(self, offset: int) -> None:
        """Offsets below `offset` are gone. Never moves back."""
        if offset <= self.start_offset:
            return
        self.start_offset = offset
        self.next_offset = max(self.next_offset, offset)
        if self.queue.end_offset < offset:
            self.queue.end_offset = offset
        if self.queue.damaged:
            self.queue.forget_damage(offset)
        if self.transactions is not None:
            self.transactions.forget(offset)
        while len(self.epochs) > 1 and self.epochs[1][1] <= offset:
            del self.epochs[0]
        while self.cleaned and self.cleaned[0][1] <= offset:
            del self.cleaned[0]

    def stands_at(self, offset: int, position: int) -> bool:
        """Whether a frame with this offset, at this log position, has not been moved since, or gone by compaction."""
        if offset >= self.moved_upto:
            return position < CLEAN_BASE
        # What is moved again goes to a file that begins behind the one it was in.
        return any(low <= offset < high and start <= position for low, high, start in self.cleaned)

    def move(self, low: int, high: int, clean_file: int | None, compacted_upto: int) -> None:
        """What lives of the offsets [low, high) stands in this clean file now; None where nothing does."""
        kept = []
        for begin, end, start in self.cleaned:
            if begin < low and min(end, low) > self.start_offset:
                kept.append((begin, min(end, low), start))
            if end > high:
                kept.append((max(begin, high), end, start))
        if clean_file is not None and high > self.start_offset:
            kept.append((low, high, clean_file))
        self.cleaned = sorted(kept)
        self.moved_upto = max(self.moved_upto, high)
        self.compacted_upto = max(self.compacted_upto, compacted_upto)
        if self.transactions is not None:
            self.transactions.forget(self.compacted_upto)  # what these wrote is gone


class Topic:
    """A topic as it is now; `rules` is what its configs mean."""

    __slots__ = ("configs", "id", "internal", "name", "number", "partitions", "rules", "view")

    def __init__(self, record: control.TopicCreated, rules: TopicRules) -> None:
        self.number = record.number
        self.name = record.name
        self.id = record.id
        self.internal = record.internal
        self.configs = record.configs
        self.rules = rules
        self.view = record.view
        """Set for a view (B39): the topic that it is filled from. Clients do not produce to it."""
        self.partitions = [Partition(self, index) for index in range(record.partitions)]
        if record.view is not None:
            for partition, start in zip(self.partitions, record.view.starts, strict=False):
                partition.source_next = start  # a partition that came later begins at 0

    def __repr__(self) -> str:
        return f"Topic({self.name})"


DELETED_KNOWN = 1_000
"""Deleted topics whose names are still known."""

GroupProgress = dict[tuple[int, int], Committed]
"""(topic number, partition) → progress."""


class Catalog:
    """Everything that control records have said so far."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self.by_number: dict[int, Topic] = {}
        self.by_queue_number: dict[int, Partition] = {}
        self.views: dict[int, dict[int, Topic]] = {}
        """Topic number of a source → its views, by their number. A source may be gone already."""
        self.deleted: dict[int, str] = {}
        """Number → name of topics that were deleted last: messages for them may wait still."""
        self.next_topic_number = 0
        self.next_queue_number = 0
        self.next_producer_id = 0
        self.offsets: dict[str, GroupProgress] = {}
        self.groups: dict[str, tuple[GroupRecord, int]] = {}
        """Group → its last record, and when that was written (Unix ms)."""
        self.consumer_groups: dict[str, RememberedGroup] = {}
        """Those of the new protocol. A name is in one of the two, or in none."""
        self.attempts: dict[tuple[int, int, int], int] = {}
        """Waiting message (topic number, partition, offset) → how often it was looked at; where it was."""
        self.cancels: dict[int, dict[bytes, int]] = {}
        """Topic number → UNIQ_KEY of messages that are not to be delivered, and below which log position they were
        sent; until all have been found that wait."""
        self.sent_back: dict[str, dict[tuple[int, int], set[int]]] = {}
        """Group → partition (topic number, index) → offsets that the group has handed back to be consumed again, and
        not committed since: so that it is done once."""
        self.transactions = TransactionBook()
        self.administration = Administration()
        """What administrators have set besides topics."""
        self.share_groups: dict[str, int] = {}
        """Share group → its epoch."""
        self.shares: dict[str, dict[tuple[int, int], Ledger]] = {}
        """Share group → partition (topic number, index) → what it has done there."""
        self.next_clean = CLEAN_BASE
        """Log position that the next clean file begins at."""
        self.changes = 0
        """Counts changes of topics and partitions, so that answers made from them can be kept until it moves."""

    def partitions(self) -> Iterator[Partition]:
        """All of them, also where topics come and go before the end."""
        for topic in list(self.by_number.values()):
            yield from topic.partitions

    def apply(self, record: control.Any) -> None:
        """Make a record true. Applying it again changes nothing."""
        handler = _APPLY.get(type(record))
        if handler is not None:
            handler(self, record)

    # -- topics ----------------------------------------------------------------------------------------------------

    def _topic_created(self, record: control.TopicCreated) -> None:
        if record.number < self.next_topic_number:  # known, or already deleted again
            return
        namesake = self.by_name.get(record.name)
        if namesake is not None:  # its deletion was lost to rot
            self._topic_deleted(control.TopicDeleted(namesake.number))
        topic = self.make_topic(record)
        self.number_queues(topic.partitions, record.first_queue)
        self.add_topic(topic)
        self.next_topic_number = record.number + 1

    def make_topic(self, record: control.TopicCreated) -> Topic:
        return Topic(record, self._rules(record.configs))

    def _rules(self, configs: dict[str, str]) -> TopicRules:
        return resolve(self.administration.topic_defaults() | configs, self._settings)

    def resolve_topics(self) -> None:
        """Topics follow the node's configurations where they do not say otherwise, and those have changed."""
        for topic in self.by_number.values():
            topic.rules = self._rules(topic.configs)
        self.changes += 1

    def number_queues(self, partitions: Sequence[Partition], first: int) -> int:
        """Number new partitions: from `first` on, or from the next number where that is not known (−1). Returns the
        number after the last."""
        number = self.next_queue_number if first < 0 else first
        for partition in partitions:
            partition.queue_number = number
            self.by_queue_number[number] = partition
            number += 1
        self.next_queue_number = max(self.next_queue_number, number)
        return number

    def add_topic(self, topic: Topic) -> None:
        self.by_name[topic.name] = self.by_id[topic.id] = self.by_number[topic.number] = topic
        if topic.view is not None:
            self.views.setdefault(topic.view.source_number, {})[topic.number] = topic
        self.changes += 1

    def name_of(self, number: int) -> str:
        """The name that a topic has or had; `#17` where nobody remembers."""
        topic = self.by_number.get(number)
        return self.deleted.get(number, f"#{number}") if topic is None else topic.name

    def views_of(self, topic: Topic) -> list[Topic]:
        """The views filled from this topic, and those filled from them, each after its source."""
        found = [topic]
        for source in found:  # which grows meanwhile
            found += self.views.get(source.number, {}).values()
        return found[1:]

    def _topic_deleted(self, record: control.TopicDeleted) -> None:
        topic = self.by_number.pop(record.number, None)
        if topic is None:
            return
        del self.by_name[topic.name], self.by_id[topic.id]
        for partition in topic.partitions:
            self.by_queue_number.pop(partition.queue_number, None)
        self.deleted[topic.number] = topic.name
        if len(self.deleted) > DELETED_KNOWN:
            del self.deleted[next(iter(self.deleted))]
        if topic.view is not None:
            siblings = self.views[topic.view.source_number]
            del siblings[topic.number]
            if not siblings:
                del self.views[topic.view.source_number]
        self.cancels.pop(record.number, None)
        for places in self.sent_back.values():
            for index in range(len(topic.partitions)):
                places.pop((record.number, index), None)
        for ledgers in self.shares.values():
            for index in range(len(topic.partitions)):
                ledgers.pop((record.number, index), None)
        for group, progress in list(self.offsets.items()):
            kept = {place: committed for place, committed in progress.items() if place[0] != record.number}
            if kept:
                self.offsets[group] = kept
            else:
                del self.offsets[group]
        self.changes += 1

    def _partitions_added(self, record: control.PartitionsAdded) -> None:
        """A topic has grown, and with it its views: their new partitions begin at the source's offset 0."""
        topic = self.by_number.get(record.number)
        if topic is not None:
            first = record.first_queue
            for each in (topic, *self.views_of(topic)):
                added = [Partition(each, index) for index in range(len(each.partitions), record.total)]
                first = self.number_queues(added, first)
                each.partitions += added
            self.changes += 1

    def _configs_set(self, record: control.ConfigsSet) -> None:
        topic = self.by_number.get(record.number)
        if topic is not None:
            topic.configs = record.configs
            topic.rules = self._rules(record.configs)
            self.changes += 1

    def _starts_moved(self, record: control.StartOffsetsMoved) -> None:
        for number, index, start in record.moves:
            partition = self.partition(number, index)
            if partition is not None:
                partition.move_start(start)

    def _relayed(self, record: control.Relayed) -> None:
        for number, index, source_next in record.progress:
            partition = self.partition(number, index)
            if partition is not None:
                partition.source_next = max(partition.source_next, source_next)

    def partition(self, number: int, index: int) -> Partition | None:
        topic = self.by_number.get(number)
        return topic.partitions[index] if topic is not None and index < len(topic.partitions) else None

    def settle(self, run: SourceRun) -> None:
        """These waiting messages are dealt with."""
        partition = self.partition(run.topic_number, run.partition)
        if partition is not None and partition.pending is not None:
            for offset in range(run.first_offset, run.first_offset + run.count):
                partition.pending.settle(offset)
                if self.attempts:
                    self.attempts.pop((run.topic_number, run.partition, offset), None)

    def attempted(self, run: SourceRun) -> None:
        """A waiting message was looked at so often, and waits on."""
        self.attempts[run.topic_number, run.partition, run.first_offset] = run.count

    def _settled(self, record: control.Settled) -> None:
        for number, index, offset in record.places:
            self.settle(SourceRun(number, index, offset, 1))

    def send_back(self, back: SentBack) -> None:
        """A group has handed these messages back."""
        places = self.sent_back.setdefault(back.group, {})
        for run in back.runs:
            offsets = range(run.first_offset, run.first_offset + run.count)
            places.setdefault((run.topic_number, run.partition), set()).update(offsets)

    def was_sent_back(self, group: str, partition: Partition, offset: int) -> bool:
        return offset in self.sent_back.get(group, {}).get((partition.topic.number, partition.index), ())

    def _forget_sent_back(self, group: str, place: tuple[int, int], offset: int, before: int, *, reset: bool) -> None:
        """A group has committed `offset` after `before`.

        What it had committed before it does not hand back any more. What lies between the two it may: a commit that was
        on its way while the broker was away can come after its consumers have begun again, from the commit before.
        They may also commit less meanwhile; but who is set back from outside may hand everything back anew.
        """
        places = self.sent_back.get(group)
        if places is None or place not in places:
            return
        if offset < before:
            kept = set() if reset else places[place]
        else:
            kept = {each for each in places[place] if each >= before} if offset > before else places[place]
        if kept:
            places[place] = kept
        else:
            del places[place]
            if not places:
                del self.sent_back[group]

    def _cancelled(self, record: control.Cancelled) -> None:
        if record.number in self.by_number:
            keys = self.cancels.setdefault(record.number, {})
            for key in record.keys:
                keys[key] = max(record.position, keys.get(key, 0))

    def _cancels_done(self, record: control.CancelsDone) -> None:
        for number, key in record.cancels:
            keys = self.cancels.get(number, {})
            keys.pop(key, None)
            if not keys:
                self.cancels.pop(number, None)

    def _producer_advanced(self, record: control.ProducerAdvanced) -> None:
        partition = self.partition(record.number, record.partition)
        if partition is not None:
            if partition.producers is None:
                partition.producers = Producers()
            partition.producers.appended(
                record.producer_id, record.epoch, record.base_sequence, record.span, -1, 0, record.now_ms
            )

    # -- groups ----------------------------------------------------------------------------------------------------

    def _offsets_committed(self, record: control.OffsetsCommitted) -> None:
        entries = {(n, p): committed for n, p, committed in record.entries if n in self.by_number}
        if not entries:
            return
        progress = self.offsets.setdefault(record.group, {})
        if record.group in self.sent_back:
            for place, committed in entries.items():
                known = progress.get(place)
                before = -1 if known is None else known.offset
                self._forget_sent_back(record.group, place, committed.offset, before, reset=record.reset)
        progress.update(entries)

    def _offsets_deleted(self, record: control.OffsetsDeleted) -> None:
        places = self.sent_back.get(record.group, {})
        for place in record.entries:  # it begins again, and may hand everything back anew
            places.pop(place, None)
        if not places:
            self.sent_back.pop(record.group, None)
        progress = self.offsets.get(record.group)
        if progress is None:
            return
        for place in record.entries:
            progress.pop(place, None)
        if not progress:
            del self.offsets[record.group]

    def _group_saved(self, record: control.GroupSaved) -> None:
        self.groups[record.record.group] = record.record, record.wall_ms
        self.consumer_groups.pop(record.record.group, None)

    def _consumer_group_saved(self, record: control.ConsumerGroupSaved) -> None:
        name = record.change.group
        group = self.consumer_groups.get(name)
        if group is None:
            group = self.consumer_groups[name] = RememberedGroup(name)
        group.apply(record.change, record.wall_ms)
        self.groups.pop(name, None)

    def _group_deleted(self, record: control.GroupDeleted) -> None:
        self.groups.pop(record.group, None)
        self.consumer_groups.pop(record.group, None)
        self.offsets.pop(record.group, None)
        self.sent_back.pop(record.group, None)
        self.transactions.forget_group(record.group)
        self.share_groups.pop(record.group, None)
        self.shares.pop(record.group, None)

    # -- share groups ------------------------------------------------------------------------------------------------

    def _share_group_saved(self, record: control.ShareGroupSaved) -> None:
        self.share_groups[record.group] = record.epoch

    def _share_changed(self, record: control.ShareChanged) -> None:
        place = record.number, record.partition
        if self.partition(*place) is None:
            return
        ledgers = self.shares.setdefault(record.group, {})
        ledger = ledgers.get(place)
        if ledger is None:
            ledger = ledgers[place] = Ledger(record.start)
        ledger.put(record.changed)
        ledger.begin_at(record.start)

    def _share_reset(self, record: control.ShareReset) -> None:
        for number, index, start in record.starts:
            if self.partition(number, index) is not None:
                self.shares.setdefault(record.group, {})[number, index] = Ledger(start)

    def _share_forgotten(self, record: control.ShareForgotten) -> None:
        ledgers = self.shares.get(record.group, {})
        for place in record.places:
            ledgers.pop(place, None)

    def give_up(self, given_up: GivenUp) -> None:
        """The dead letters of these are written."""
        for run in given_up.runs:
            ledger = self.shares.get(given_up.group, {}).get((run.topic_number, run.partition))
            if ledger is not None and run.first_offset >= ledger.start:  # else it was reset meanwhile
                ledger.put([(run.first_offset, run.first_offset + run.count, FINISHED, 0)])

    def _producer_ids_reserved(self, record: control.ProducerIdsReserved) -> None:
        self.next_producer_id = max(self.next_producer_id, record.next_id)

    def _transaction_ended(self, record: control.TransactionEnded) -> None:
        for group, progress in self.transactions.ended(record).items():
            entries = [
                (number, index, msgspec.structs.replace(committed, commit_ms=record.now_ms))
                for (number, index), committed in progress.items()
            ]
            self._offsets_committed(control.OffsetsCommitted(group, entries))

    # -- administration --------------------------------------------------------------------------------------------

    def _administered(self, record: control.ResourceConfigsSet | control.QuotasSet | control.AclsChanged) -> None:
        if self.administration.apply(record):
            self.resolve_topics()

    def _cleaned(self, record: control.Cleaned) -> None:
        for number, index, low, high in record.lost:
            partition = self.partition(number, index)
            if partition is not None and high > partition.start_offset:
                partition.queue.lose(low, high)
        for each in record.moved:
            partition = self.partition(each.number, each.partition)
            if partition is not None:
                clean_file = record.start if record.start < record.end else None
                partition.move(each.from_offset, each.upto_offset, clean_file, each.compacted_upto)
        self.next_clean = max(self.next_clean, record.end)


_APPLY: dict[type, Callable[[Catalog, Any], None]] = {
    control.TopicCreated: Catalog._topic_created,
    control.TopicDeleted: Catalog._topic_deleted,
    control.PartitionsAdded: Catalog._partitions_added,
    control.ConfigsSet: Catalog._configs_set,
    control.StartOffsetsMoved: Catalog._starts_moved,
    control.Relayed: Catalog._relayed,
    control.Settled: Catalog._settled,
    control.Cancelled: Catalog._cancelled,
    control.CancelsDone: Catalog._cancels_done,
    control.ProducerAdvanced: Catalog._producer_advanced,
    control.OffsetsCommitted: Catalog._offsets_committed,
    control.OffsetsDeleted: Catalog._offsets_deleted,
    control.GroupSaved: Catalog._group_saved,
    control.ConsumerGroupSaved: Catalog._consumer_group_saved,
    control.GroupDeleted: Catalog._group_deleted,
    control.ShareGroupSaved: Catalog._share_group_saved,
    control.ShareChanged: Catalog._share_changed,
    control.ShareReset: Catalog._share_reset,
    control.ShareForgotten: Catalog._share_forgotten,
    control.ProducerIdsReserved: Catalog._producer_ids_reserved,
    control.TransactionalIdInitialized: lambda catalog, record: catalog.transactions.initialized(record),
    control.TransactionGrown: lambda catalog, record: catalog.transactions.grown(record),
    control.TransactionOffsets: lambda catalog, record: catalog.transactions.offsets(record),
    control.TransactionEnded: Catalog._transaction_ended,
    control.TransactionalIdsExpired: lambda catalog, record: catalog.transactions.expired(record),
    control.ResourceConfigsSet: Catalog._administered,
    control.QuotasSet: Catalog._administered,
    control.AclsChanged: Catalog._administered,
    control.Cleaned: Catalog._cleaned,
}
