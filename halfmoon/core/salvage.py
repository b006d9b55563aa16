"""After rot: which offsets are lost, and what the lost control records may have said.

A damaged stretch of the log may have held anything. What can be known of it comes from what is left:

- A frame whose header is whole says which offsets its payload had.
- The next batch of a partition says where it goes on; what lies between is lost.
- A batch of a topic or partition nobody has heard of says that there is one. The topic gets a made-up name: better
  to be found under that than not at all.
- The snapshot at the head of the next segment says how everything stood there, and sets right what was guessed.

Only where none of these comes after the damage may an offset be given a second time.
"""

from __future__ import annotations

import msgspec

from halfmoon.core import control, snapshot
from halfmoon.core.catalog import Catalog, Partition, Topic
from halfmoon.core.frame import Frame, Kind
from halfmoon.core.pending import PendingSet
from halfmoon.core.snapshot import PartitionState, Snapshot, TopicState

LOST_TOPIC = "halfmoon.lost-topic-{}"
"""The name of a topic whose own name is lost; the number is the topic's."""


class Salvage:
    """Is shown every frame behind the first damage, before it is applied."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._never_made: set[int] = set()
        """Topic numbers that were skipped: the record of their creation is lost."""
        self._snapshot = b""

    def frame(self, frame: Frame, payload: memoryview | None) -> None:
        if frame.kind == Kind.BATCH:
            self._batch(frame, payload)
        elif frame.kind == Kind.CONTROL and payload is not None:
            try:
                record = control.decode(payload)
            except msgspec.DecodeError:
                return  # whoever applies it has something to say about it
            if isinstance(record, control.TopicCreated):
                self._never_made.update(range(self._catalog.next_topic_number, record.number))
            elif isinstance(record, control.SnapshotPart):
                self._snapshot_part(frame, record.data)

    def _batch(self, frame: Frame, payload: memoryview | None) -> None:
        partition = self._catalog.partition(frame.topic_number, frame.partition) or self._make_partition(frame)
        if partition is None:
            return
        partition.queue.lose(partition.next_offset, frame.base_offset)
        if payload is None:
            end = frame.base_offset + frame.span
            partition.queue.lose(frame.base_offset, end)
            partition.next_offset = max(partition.next_offset, end)
            partition.began_epoch(frame.generation, frame.base_offset)

    def _make_partition(self, frame: Frame) -> Partition | None:
        """The partition that a batch proves; None where its topic was deleted."""
        catalog, number = self._catalog, frame.topic_number
        topic = catalog.by_number.get(number)
        if topic is None:
            if number < catalog.next_topic_number and number not in self._never_made:
                return None
            self._never_made.update(range(catalog.next_topic_number, number))
            name = LOST_TOPIC.format(number)
            record = control.TopicCreated(number, name, name.encode()[-16:].rjust(16), frame.partition + 1, {})
            topic = catalog.make_topic(record)
            catalog.number_queues(topic.partitions, -1)
            catalog.add_topic(topic)
            catalog.next_topic_number = max(catalog.next_topic_number, number + 1)
        catalog.apply(control.PartitionsAdded(number, frame.partition + 1))
        partition = topic.partitions[frame.partition]
        partition.start_offset = partition.next_offset = frame.base_offset
        return partition

    # -- the next snapshot -------------------------------------------------------------------------------------------

    def _snapshot_part(self, frame: Frame, data: bytes) -> None:
        self._snapshot = self._snapshot + data if frame.part else data
        if frame.part == frame.parts - 1:
            try:
                self._reconcile(snapshot.decode(self._snapshot))
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
            for partition, kept in zip(topic.partitions, state.partitions, strict=True):
                _reconcile_partition(partition, kept)
                catalog.number_queues([partition], kept.queue_number)
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
            topic.configs, topic.rules = said.configs, said.rules
            have, said_to_have = len(topic.partitions), len(said.partitions)
            topic.partitions += [Partition(topic, index) for index in range(have, said_to_have)]
        catalog.add_topic(topic)
        return topic


def _reconcile_partition(partition: Partition, kept: PartitionState) -> None:
    partition.queue.lose(partition.next_offset, kept.next_offset)
    for low, high in kept.damaged:
        partition.queue.lose(low, high)
    partition.next_offset = max(partition.next_offset, kept.next_offset)
    partition.source_next = max(partition.source_next, kept.source_next)
    if kept.pending is not None:
        partition.pending = PendingSet(kept.pending, kept.next_offset)
    partition.epochs = list(kept.epochs)
    snapshot.restore_transactions(partition, kept)
    snapshot.restore_cleaned(partition, kept)
    partition.move_start(kept.start_offset)
