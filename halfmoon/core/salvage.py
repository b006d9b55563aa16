"""After rot: which offsets are lost, and what the lost control records may have said.

A damaged stretch of the log may have held anything. What can be known of it comes from what is left:

- A frame whose header is whole says which offsets its payload had.
- The next batch of a partition says where it goes on; what lies between is lost.
- A batch of a topic or partition nobody has heard of says that there is one. The topic gets a made-up name: better
  to be found under that than not at all.
- A producer's transaction ends with a marker in each partition and a record. One of them that is whole says how.
- The snapshot at the head of the next segment says how everything stood there, and sets right what was guessed.

Only where none of these comes after the damage may an offset be given a second time.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from halfmoon.core.catalog import snapshot
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Partition, Topic
from halfmoon.core.pending import PendingSet
from halfmoon.core.records.batch_header import CONTROL, parse_header
from halfmoon.core.storage.frame import Frame, Kind
from halfmoon.core.transactions import marker
from halfmoon.schema import control
from halfmoon.schema.snapshot import PartitionState, Snapshot, TopicState, decode

LOST_TOPIC = "halfmoon.lost-topic-{}"
"""The name of a topic whose own name is lost; the number is the topic's."""


class _Outcome(NamedTuple):
    """What the markers of an end say whose record has not come yet; `part` is that of the last."""

    producer_id: int
    epoch: int
    committed: bool
    now_ms: int
    part: int
    parts: int


def ends_transaction(frame: Frame, payload: memoryview) -> bool:
    """Whether a frame is a part of the end of a producer's transaction, and so says by itself how that ended."""
    if frame.kind == Kind.BATCH:
        return bool(parse_header(payload).attributes & CONTROL)
    if frame.kind != Kind.CONTROL:
        return False
    try:
        return isinstance(control.decode(payload), control.TransactionEnded)
    except msgspec.DecodeError:
        return False


class Salvage:
    """Is shown every frame behind the first damage, before it is applied; `finish` when there are no more."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._outcome: _Outcome | None = None
        self._never_made: set[int] = set()
        """Topic numbers that were skipped: the record of their creation is lost."""
        self._snapshot = b""

    def frame(self, frame: Frame, payload: memoryview | None) -> None:
        outcome = self._outcome
        if outcome is not None and (frame.parts != outcome.parts or frame.part <= outcome.part):
            self.finish()
        if frame.kind == Kind.BATCH:
            self._batch(frame, payload)
            if payload is not None and frame.parts > 1:
                self._marker(frame, payload)
        elif frame.kind == Kind.CONTROL and payload is not None:
            try:
                record = control.decode(payload)
            except msgspec.DecodeError:
                return  # whoever applies it has something to say about it
            if isinstance(record, control.TopicCreated):
                self._never_made.update(range(self._catalog.next_number(record.number), record.number))
            elif isinstance(record, control.SnapshotPart):
                self._snapshot_part(frame, record.data)
            elif isinstance(record, control.TransactionEnded):
                self._outcome = None
                self._ended(record)

    def _batch(self, frame: Frame, payload: memoryview | None) -> None:
        partition = self._catalog.partition(frame.topic_number, frame.partition) or self._make_partition(frame)
        if partition is None:
            return
        partition.lose(partition.next_offset, frame.base_offset)
        if payload is None:
            end = frame.base_offset + frame.span
            partition.lose(frame.base_offset, end)
            partition.next_offset = max(partition.next_offset, end)
            partition.began_epoch(frame.generation, frame.base_offset)

    def _make_partition(self, frame: Frame) -> Partition | None:
        """The partition that a batch proves; None where its topic was deleted."""
        catalog, number = self._catalog, frame.topic_number
        topic = catalog.by_number.get(number)
        if topic is None:
            if number < catalog.next_number(number) and number not in self._never_made:
                return None
            self._never_made.update(range(catalog.next_number(number), number))
            name = LOST_TOPIC.format(number)
            record = control.TopicCreated(number, name, name.encode()[-16:].rjust(16), frame.partition + 1, {})
            topic = catalog.make_topic(record)
            catalog.number_queues(topic.partitions, -1)
            catalog.add_topic(topic)
            catalog.made_number(number)
        catalog.apply(control.PartitionsAdded(number, frame.partition + 1))
        partition = topic.partitions[frame.partition]
        partition.start_offset = partition.next_offset = frame.base_offset
        return partition

    # -- ends of transactions ----------------------------------------------------------------------------------------

    def _marker(self, frame: Frame, payload: memoryview) -> None:
        header = parse_header(payload)
        if header.attributes & CONTROL:
            self._outcome = _Outcome(
                header.producer_id, header.producer_epoch, marker.is_commit(payload), frame.store_ms,
                frame.part, frame.parts,
            )  # fmt: skip

    def finish(self) -> None:
        """Where the record of an end has not come, its markers tell what it said."""
        outcome, self._outcome = self._outcome, None
        if outcome is None:
            return
        ends = self._catalog.ends
        record = (
            None
            if ends is None
            else ends.lost_end(outcome.producer_id, outcome.epoch, outcome.now_ms, committed=outcome.committed)
        )
        if record is not None:
            self._ended(record)
            self._catalog.apply(record)

    def _ended(self, record: control.TransactionEnded) -> None:
        """In partitions where the transaction is still open, the marker is lost: it was the next batch."""
        ends = self._catalog.ends
        markers = None if ends is None else ends.markers_of(record)
        if markers is None:
            return
        producer_id, epoch, places = markers
        for place in places:
            partition = self._catalog.partition(*place)
            if partition is None or partition.transactions is None:
                continue
            if producer_id in partition.transactions.open:
                lost = partition.next_offset
                partition.lose(lost, lost + 1)
                partition.next_offset = lost + 1
                partition.transaction_ended(
                    producer_id, epoch, lost, lost + 1, record.now_ms, committed=record.committed
                )

    # -- the next snapshot -------------------------------------------------------------------------------------------

    def _snapshot_part(self, frame: Frame, data: bytes) -> None:
        self._snapshot = self._snapshot + data if frame.part else data
        if frame.part == frame.parts - 1:
            try:
                self._reconcile(decode(self._snapshot))
            except msgspec.DecodeError:
                pass

    def _reconcile(self, known: Snapshot) -> None:
        """Make the catalog say what the snapshot says; offsets it has and we have not are lost."""
        catalog = self._catalog
        for number in set(catalog.by_number) - {state.number for state in known.topics}:
            catalog.apply(control.TopicDeleted(number))
        catalog.by_queue_number.clear()  # those of lost topics were guessed
        for state in known.topics:
            topic = self._reconcile_topic(state)
            for index, kept in enumerate(state.partitions):
                if snapshot.lies_elsewhere(known, kept):
                    topic.lies_elsewhere(index)
                else:
                    _reconcile_partition(topic.partitions[index], kept)
                    catalog.number_queues([topic.partitions[index]], kept.queue_number)
        self._never_made.clear()
        snapshot.restore_rest(catalog, known)

    def _reconcile_topic(self, state: TopicState) -> Topic:
        catalog = self._catalog
        said = catalog.make_topic(snapshot.created(state))
        topic = catalog.by_number.get(state.number)
        if topic is None:
            topic = said
        else:
            catalog.by_name.pop(topic.name, None)
            catalog.by_id.pop(topic.id, None)
            topic.name, topic.id, topic.internal, topic.view = said.name, said.id, said.internal, said.view
            topic.hidden = said.hidden
            topic.configs, topic.rules = said.configs, said.rules
            have, said_to_have = len(topic.partitions), len(said.partitions)
            topic.partitions += [Partition(topic, index) for index in range(have, said_to_have)]
        catalog.add_topic(topic)
        return topic


def _reconcile_partition(partition: Partition, kept: PartitionState) -> None:
    partition.lose(partition.next_offset, kept.next_offset)
    for low, high in kept.damaged:
        partition.lose(low, high)
    partition.next_offset = max(partition.next_offset, kept.next_offset)
    partition.passed(kept.source_next)
    if kept.pending is not None:
        partition.pending = PendingSet(kept.pending, kept.next_offset)
    partition.epochs = list(kept.epochs)
    snapshot.restore_transactions(partition, kept)
    snapshot.restore_cleaned(partition, kept)
    partition.move_start(kept.start_offset)
