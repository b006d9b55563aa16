"""Topics and partitions as they are now.

For every partition:

    start_offset ≤ queue.end_offset (high watermark) ≤ next_offset

What decides what a reader sees, and which bytes live, is here and not with the feature that it comes from: the set of
messages that wait, producers, their transactions, the ranges that compaction has moved, how far a view has come.
"""

from __future__ import annotations

from typing import Final

from halfmoon.config.topic_configs import TopicRules
from halfmoon.core.pending import PendingSet
from halfmoon.core.producer_state import Producers
from halfmoon.core.records.batch_header import BatchHeader
from halfmoon.core.storage.consume_queue import ConsumeQueue
from halfmoon.core.topic_names import READABLE_INTERNAL
from halfmoon.core.traffic import Traffic
from halfmoon.core.transactions.aborted import AbortedBatches
from halfmoon.core.transactions.partition import PartitionTransactions
from halfmoon.schema import control
from halfmoon.schema.snapshot import CLEAN_BASE


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
        "saved",
        "saved_at_head",
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
        self.saved: bytes | None = None
        """How the last snapshot told all this; None where it has changed since. Whoever changes it says so."""
        self.saved_at_head = b""
        """The same for the head of a segment, while `saved` is there."""

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
        self.saved = None
        if not self.epochs or self.epochs[-1][0] < epoch:
            self.epochs.append((epoch, offset))

    def transaction_began(self, producer_id: int, offset: int) -> None:
        """A transactional batch was appended: its producer's transaction is open, if it was not before."""
        self.saved = None
        if self.transactions is None:
            self.transactions = PartitionTransactions()
        self.transactions.began(producer_id, offset)

    def transaction_ended(
        self, producer_id: int, epoch: int, offset: int, end_offset: int, now_ms: int, *, committed: bool
    ) -> None:
        """A marker was appended; what is visible ends at `end_offset`."""
        self.saved = None
        if self.transactions is not None:
            self.transactions.ended(producer_id, offset, end_offset, committed=committed)
        if self.producers is None:
            self.producers = Producers()
        self.producers.marked(producer_id, epoch, now_ms)

    def wait(self, first_offset: int, count: int) -> None:
        """These messages, appended just now, wait to be dealt with."""
        self.saved = None
        if self.pending is None:
            self.pending = PendingSet()
        self.pending.add(first_offset, count)

    def is_remote(self) -> bool:
        """It lies in another shard."""
        return False

    def passed(self, source_offset: int) -> None:
        """Of a view: what the source's partition has below this offset is dealt with."""
        self.saved = None
        self.source_next = max(self.source_next, source_offset)

    def lose(self, low: int, high: int) -> None:
        """What stood at the offsets [low, high) is lost to rot."""
        self.saved = None
        self.queue.lose(low, high)

    def regain(self, low: int, high: int) -> None:
        """What stands at the offsets [low, high) is whole again."""
        self.saved = None
        self.queue.regain(low, high)

    def move_start(self, offset: int) -> None:
        """Offsets below `offset` are gone. Never moves back."""
        if offset <= self.start_offset:
            return
        self.saved = None
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
        self.saved = None
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


class RemotePartition(Partition):
    """A partition that lies in another shard: here it is known by its topic and its index, and nothing else."""

    __slots__ = ()

    def is_remote(self) -> bool:
        return True

    def __init__(self, topic: Topic, index: int) -> None:
        super().__init__(topic, index)
        self.queue = _NO_QUEUE  # there is one of these in each shard for each partition of all the others


_NO_QUEUE: Final = ConsumeQueue()


class Topic:
    """A topic as it is now; `rules` is what its configs mean."""

    __slots__ = (
        "configs",
        "hidden",
        "id",
        "internal",
        "is_spread",
        "name",
        "number",
        "partitions",
        "rules",
        "traffic",
        "view",
    )

    def __init__(self, record: control.TopicCreated, rules: TopicRules) -> None:
        self.number = record.number
        self.name = record.name
        self.id = record.id
        self.internal = record.internal
        self.hidden = record.internal and record.name not in READABLE_INTERNAL
        """Clients do not read it."""
        self.configs = record.configs
        self.rules = rules
        self.traffic: Traffic | None = None
        """Set with the first record in or out (`Catalog.traffic`)."""
        self.view = record.view
        """Set for a view (B39): the topic that it is filled from. Clients do not produce to it."""
        self.is_spread = False
        """Some of its partitions lie in other shards."""
        self.partitions = [Partition(self, index) for index in range(record.partitions)]
        if record.view is not None:
            for partition, start in zip(self.partitions, record.view.starts, strict=False):
                partition.source_next = start  # a partition that came later begins at 0

    def __repr__(self) -> str:
        return f"Topic({self.name})"

    def here(self) -> list[Partition]:
        """The partitions that lie in this log."""
        if not self.is_spread:
            return self.partitions
        return [each for each in self.partitions if not isinstance(each, RemotePartition)]

    def lies_elsewhere(self, index: int) -> Partition:
        """A partition lies in another shard; returns what stood in its place."""
        self.is_spread = True
        before, self.partitions[index] = self.partitions[index], RemotePartition(self, index)
        before.queue.drop_runs()
        return before
