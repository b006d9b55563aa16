"""What each shard keeps of the log of one process.

Each shard is given the whole log, and is told by control records what of it is other shards' from then on:

    partitions          lie in one shard each, as the shared catalog places them; elsewhere they are remote
    waiting messages    stay in the shard of the partition that they were sent to. Their topics stay each shard's own
    groups              stay with the shard that coordinates them; what share groups have done, with the partitions
    transactional ids   are forgotten before: their producer ids would be read as those of shard 0
    Kafka's internal topics   go: they are made of the rest, and are made anew
    what administrators set   is in the shared catalog alone

Knows no files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from halfmoon.cluster.changes import Changes
from halfmoon.cluster.placement import Layout, is_aligned
from halfmoon.cluster.shared import SharedCatalog, bare, differences, tell
from halfmoon.core.catalog import snapshot
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.pending import bits_by_queue
from halfmoon.core.topic_names import KAFKAS_INTERNAL
from halfmoon.schema import control
from halfmoon.schema.durability import DURABILITY, OBJECT
from halfmoon.schema.group_topics import retrying_group
from halfmoon.schema.provenance import ORIGIN_BYTES, Origin, decode_origin
from halfmoon.schema.readable_topics import READABLE
from halfmoon.schema.snapshot import decode
from halfmoon.server.common import CommonSections
from halfmoon.services.waiting.messages import place_of

if TYPE_CHECKING:
    from halfmoon.config.settings import Settings
    from halfmoon.config.topic_configs import TopicConfigs
    from halfmoon.core.catalog.topics import Partition, Topic
    from halfmoon.core.kernel import Kernel
    from halfmoon.core.pending import Bits
    from halfmoon.server.assembly import Sections

T = TypeVar("T")

AT_ONCE = 1_000
"""Names in one control record."""
_CHUNK_BYTES = 128
"""Of `schema.snapshot.Chunks`."""


class Division:
    """Made once, of the open log of one process in which no transaction is left."""

    def __init__(
        self, kernel: Kernel, settings: Settings, table: TopicConfigs, layout: Layout, on_objects: Callable[[str], bool]
    ) -> None:
        """`table`: what topics may say. `on_objects`: whether a topic of this name is to lie in shards of objects, if
        it `chooses`."""
        self._layout = layout
        shards = layout.shards
        source = kernel.catalog
        self.common = CommonSections(table)
        self.shared = _shared_catalog(source, settings, table, self.common, layout, on_objects)
        self.own = sorted(topic.number for topic in source.by_number.values() if topic.hidden)
        """Numbers of topics that every shard has for itself."""
        self._kept: list[dict[tuple[int, int], Bits]] = [{} for _ in range(shards)]
        """By shard: which messages wait there, by topic number and partition."""
        self._waiting: list[tuple[int, int, int]] = []
        """Topic number, partition, and the offset behind its last message, where any have waited."""
        for partition in source.partitions():
            if partition.pending is not None:
                self._waiting.append((partition.topic.number, partition.index, partition.next_offset))
                self._divide(kernel, partition)

    def _divide(self, kernel: Kernel, partition: Partition) -> None:
        """Find out which shard each message belongs to that waits in a partition."""
        pending = partition.pending
        assert pending is not None
        number, index = partition.topic.number, partition.index
        at = pending.first()
        while at is not None:
            end, origin = _frame_at(kernel, partition, at)
            found = bits_by_queue((number, index, offset) for offset in pending.between(at, end))
            kept = self._kept[self._shard_of(origin)].setdefault((number, index), {})
            for chunk, bits in found[number, index].items():
                kept[chunk] = kept.get(chunk, 0) | bits
            at = pending.first(end)

    def _shard_of(self, origin: Origin | None) -> int:
        """Where nobody knows, or the topic is gone, any will do: what is lost keeps nothing, and the rest goes to
        the topic for such messages."""
        placed = b"" if origin is None else self.shared.placements.get(origin.topic_number, b"")
        if origin is None or origin.partition >= len(placed):
            return 0
        return placed[origin.partition]

    def records(self, number: int, end: int, catalog: Catalog, state: Sections) -> Iterator[control.Any]:
        """What shard `number` is told, whose catalog this is; the log of one process ends at `end`. Each is to be
        applied before the next is asked for."""
        yield control.ShardImported(number, self.own, end)
        yield from tell(self.shared, catalog)
        for keys in _parts(list(state.internal_topics.unwritten)):
            yield control.InternalWritten(keys)
        groups, share = state.groups, state.share
        names = {
            *groups.offsets, *groups.groups, *groups.consumer_groups, *state.nacked.nacked, *share.epochs,
        }  # fmt: skip
        for elsewhere in _parts(sorted(name for name in names if self._layout.coordinator_of(name) != number)):
            yield control.GroupsElsewhere(elsewhere)
        for group, places in share.delivery_states.items():
            gone = [place for place in places if catalog.partition(*place) is None]
            if gone:
                yield control.ShareForgotten(group, gone)
        for topic, partition, upto in self._waiting:
            kept = self._kept[number].get((topic, partition), {})
            chunks = [(chunk, kept[chunk].to_bytes(_CHUNK_BYTES, "little")) for chunk in sorted(kept)]
            yield control.WaitingKept(topic, partition, upto, chunks)


def _shared_catalog(
    source: Catalog,
    settings: Settings,
    table: TopicConfigs,
    common: CommonSections,
    layout: Layout,
    on_objects: Callable[[str], bool],
) -> SharedCatalog:
    """What all shards agree on: at version 1, as a snapshot alone can tell it, with all numbers that were given out."""
    catalog = Catalog(settings, table)
    catalog.register(common.all)
    catalog.topic_defaults = common.configs.topic_defaults
    shared = SharedCatalog(catalog)
    changes = Changes(shared, layout)
    changes.begin()
    next_queue = source.next_queue()
    for number in sorted(source.by_number):
        topic = source.by_number[number]
        if _is_shared(topic):
            said = bare(topic)
            if chooses(topic) and on_objects(topic.name):
                said.configs = {**said.configs, DURABILITY: OBJECT}
            for record in differences(said, catalog):
                changes.append_control(record)
            if topic.name in READABLE and len(topic.partitions) < layout.shards:  # each shard writes there
                changes.append_control(control.PartitionsAdded(number, layout.shards, next_queue))
                next_queue += layout.shards - len(topic.partitions)
    snapshot.restore_rest(catalog, decode(snapshot.take(source, 0, 0)))
    catalog.unowned = {}  # is the shards'
    shared.version = 1
    return shared


def _is_shared(topic: Topic) -> bool:
    return not topic.hidden and not (topic.internal and topic.name in KAFKAS_INTERNAL)


def chooses(topic: Topic) -> bool:
    """Whether its durability says where it lies: others lie where they are needed."""
    follows = topic.hidden or topic.internal or topic.view is not None or is_aligned(topic.name)
    return not follows and retrying_group(topic.name) is None


def _frame_at(kernel: Kernel, partition: Partition, offset: int) -> tuple[int, Origin | None]:
    """The offset behind a waiting message's frame, and where that was sent to. Where it is lost to corruption there is
    the message alone, and nobody knows."""
    rows = partition.queue.rows_upto(offset, offset + 1, 0)
    place = place_of(partition, offset)
    if not rows or place is None:
        return offset + 1, None
    position, _ = place
    segment = kernel.log.segment_at(position)
    at = position - segment.start
    return rows[0][0] + rows[0][1], decode_origin(segment.view[at : at + ORIGIN_BYTES])


def _parts(elements: Sequence[T]) -> Iterator[list[T]]:
    for at in range(0, len(elements), AT_ONCE):
        yield list(elements[at : at + AT_ONCE])
