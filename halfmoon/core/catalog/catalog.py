"""Topics, partitions, and the sections of all features: the state that control records make up.

Nothing here is written anywhere by itself. Each change is a control record that goes into the log first and is then
applied with `apply`, at run time and in recovery alike; so the catalog is a function of the log. Where the
checkpoint is lost, the snapshot at the head of each segment tells it again (`snapshot`).

Topic numbers are handed out once and never again, so a frame of a deleted topic can never be taken for one of a later
namesake.

What a feature keeps is its section's (`section`). A catalog without sections is enough for who looks at topics alone:
it keeps the other slots of a snapshot as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from halfmoon.config.settings import Settings
from halfmoon.config.topic_configs import TopicConfigs, TopicRules
from halfmoon.core.catalog.section import CatalogSection, EndsOfTransactions
from halfmoon.core.catalog.topics import Partition, RemotePartition, Topic
from halfmoon.core.pending import bits_by_queue
from halfmoon.core.producer_state import Producers
from halfmoon.core.traffic import TrafficTable
from halfmoon.schema import control
from halfmoon.schema.provenance import Provenance, SourceRun
from halfmoon.schema.shards import OWN_PRODUCERS_BITS, OWN_QUEUES, OWN_TOPICS, ShardState, new_shard
from halfmoon.schema.snapshot import CLEAN_BASE, SHARED_SLOTS

MOST_RESOLVED: Final = 1_000
BURIED: Final = 500
"""Partitions that are taken apart at a time."""
DELETED_KNOWN: Final = 1_000
"""Deleted topics whose names are still known."""


class Catalog:
    """Everything that control records have said so far."""

    def __init__(self, settings: Settings, topic_configs: TopicConfigs | None = None) -> None:
        """`topic_configs`: None takes the core's rows alone, and keeps what topics say beside them: enough for tools
        that read a log."""
        self._settings = settings
        self.topic_configs = TopicConfigs() if topic_configs is None else topic_configs
        self.traffic = TrafficTable()
        self.topic_defaults: Callable[[], Mapping[str, str]] = dict
        """By the topics' own names, what the node's configurations say for topics that do not."""
        self.sections: tuple[CatalogSection, ...] = ()
        self._appliers: dict[type, tuple[Callable[[Any], None], ...]] = {}
        """Type of a record → which sections it changes."""
        self._provers: tuple[Callable[[Provenance], None], ...] = ()
        self.ends: EndsOfTransactions | None = None
        """Who can tell what corruption has taken of the end of a producer's transaction."""
        self.unowned: dict[str, msgspec.Raw] = {}
        """Slots of the last snapshot that no section has asked for."""
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self.by_number: dict[int, Topic] = {}
        self.by_queue_number: dict[int, Partition] = {}
        self.views: dict[int, dict[int, Topic]] = {}
        """Topic number of a source → its views, by their number. A source may be gone already."""
        self.deleted: dict[int, str] = {}
        """Number → name of topics that were deleted last: messages for them may wait still."""
        self.shard: ShardState | None = None
        """Where other logs share the topics."""
        self.next_topic_number = 0
        self.next_queue_number = 0
        self.next_producer_id = 0
        self.next_clean = CLEAN_BASE
        """Log position that the next compacted segment begins at."""
        self._resolved: dict[frozenset[tuple[str, str]], TopicRules] = {}
        """What topics' own configurations mean now: most say nothing, or the same."""
        self._dead: list[Topic] = []
        """Deleted, and not taken apart yet."""
        self._names: list[str] = []
        self._names_at = -1
        """Of `changes`, when they were sorted."""
        self.changes = 0
        """Counts changes of topics and partitions, so that answers made from them can be kept until it moves."""

    def register(self, sections: Sequence[CatalogSection]) -> None:
        """All sections, in the order in which each record and proof is applied to them. Once, before anything is."""
        assert not self.sections
        self.sections = tuple(sections)
        appliers: dict[type, list[Callable[[Any], None]]] = {}
        for section in sections:
            for kind in section.records:
                appliers.setdefault(kind, []).append(section.apply)
        self._appliers = {kind: tuple(found) for kind, found in appliers.items()}
        self._provers = tuple(each.proved for each in sections if type(each).proved is not CatalogSection.proved)

    def topic(self, name: str) -> Topic | None:
        return self.by_name.get(name)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        return self.by_id.get(topic_id)

    def topics(self) -> list[Topic]:
        """All topics by name, internal ones included."""
        return [self.by_name[name] for name in self.names()]

    def names(self) -> list[str]:
        """The names of all topics, sorted. It is not the caller's to change, and another one after each change."""
        if self._names_at != self.changes:
            # In the order of before, where few are new: then sorting is one look at each.
            known = self.by_name.keys()
            names = [name for name in self._names if name in known]
            if len(names) < len(known):
                before = set(names)
                names += [name for name in known if name not in before]
                names.sort()
            self._names, self._names_at = names, self.changes
        return self._names

    def partitions(self) -> Iterator[Partition]:
        """All that lie in this log, also where topics come and go before the end."""
        for topic in list(self.by_number.values()):
            yield from topic.here()

    def apply(self, record: control.Any) -> None:
        """Make a record true. Applying it again changes nothing."""
        kind = type(record)
        handler = _APPLY.get(kind)
        if handler is not None:
            handler(self, record)
        for apply in self._appliers.get(kind, ()):
            apply(record)

    def prove(self, proof: Provenance) -> None:
        """A batch was appended, or found in the log, that was made from others: what that completes, and what the
        sections make of it. Where it stands itself is its partition's."""
        for run in proof.sources:
            self.complete(run)
        for proved in self._provers:
            proved(proof)

    # -- topics ----------------------------------------------------------------------------------------------------

    def _topic_created(self, record: control.TopicCreated) -> None:
        if record.number < self.next_number(record.number):  # known, or already deleted again
            return
        namesake = self.by_name.get(record.name)
        if namesake is not None:  # its deletion was lost to rot
            self._topic_deleted(control.TopicDeleted(namesake.number))
        topic = self.make_topic(record)
        self.number_queues(topic.partitions, record.first_queue)
        self.add_topic(topic)
        self.made_number(record.number)

    def next_number(self, like: int = OWN_TOPICS) -> int:
        """The lowest topic number that was not given out, by whoever has given out `like`; by this log."""
        shard = self.shard
        return self.next_topic_number if shard is None or like < OWN_TOPICS else shard.next_topic

    def made_number(self, number: int) -> None:
        """A topic has this number."""
        if self.shard is None or number < OWN_TOPICS:
            self.next_topic_number = max(self.next_topic_number, number + 1)
        else:
            self.shard.next_topic = max(self.shard.next_topic, number + 1)

    def next_queue(self) -> int:
        """The lowest broker-wide number that this log has given to no partition."""
        return self.next_queue_number if self.shard is None else self.shard.next_queue

    def make_topic(self, record: control.TopicCreated) -> Topic:
        return Topic(record, self._rules(record.configs))

    def _rules(self, configs: dict[str, str]) -> TopicRules:
        said = frozenset(configs.items())
        rules = self._resolved.get(said)
        if rules is None:
            if len(self._resolved) >= MOST_RESOLVED:
                self._resolved.clear()
            rules = self.topic_configs.resolve({**self.topic_defaults(), **configs}, self._settings)
            self._resolved[said] = rules
        return rules

    def reconfigure(self, settings: Settings) -> None:
        """Other defaults of topics than before."""
        self._settings = settings
        self.resolve_topics()

    def resolve_topics(self) -> None:
        """Topics follow the node's configurations where they do not say otherwise, and those have changed."""
        self._resolved.clear()
        for topic in self.by_number.values():
            topic.rules = self._rules(topic.configs)
        self.changes += 1

    def number_queues(self, partitions: Sequence[Partition], first: int) -> int:
        """Number new partitions: from `first` on, or from the next number where that is not known (−1). Returns the
        number after the last."""
        number = self.next_queue() if first < 0 else first
        for partition in partitions:
            partition.queue_number = number
            self.by_queue_number[number] = partition
            number += 1
        if self.shard is None or number <= OWN_QUEUES:
            self.next_queue_number = max(self.next_queue_number, number)
        else:
            self.shard.next_queue = max(self.shard.next_queue, number)
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
            found.extend(self.views.get(source.number, {}).values())
        return found[1:]

    def _topic_deleted(self, record: control.TopicDeleted) -> None:
        topic = self.by_number.pop(record.number, None)
        if topic is None:
            return
        del self.by_name[topic.name], self.by_id[topic.id]
        for partition in topic.partitions:
            self.by_queue_number.pop(partition.queue_number, None)
            partition.queue.drop_runs()
        self.traffic.deleted(topic)
        self.deleted[topic.number] = topic.name
        if len(self.deleted) > DELETED_KNOWN:
            del self.deleted[next(iter(self.deleted))]
        if topic.view is not None:
            siblings = self.views[topic.view.source_number]
            del siblings[topic.number]
            if not siblings:
                del self.views[topic.view.source_number]
        for section in self.sections:
            section.topic_deleted(record.number, len(topic.partitions))
        self._dead.append(topic)
        self.changes += 1

    def bury(self) -> Iterator[None]:
        """Take topics apart that were deleted before, in slices: they and their partitions know each other, and would
        stay until a full garbage collection, which there is none of. Nobody is at work with them any more."""
        dead, self._dead = self._dead, []
        for topic in dead:
            while topic.partitions:
                del topic.partitions[-BURIED:]
                yield

    def _shard_begun(self, record: control.ShardBegun | control.ShardImported) -> None:
        if self.shard is None:
            self.shard = new_shard(*msgspec.structs.astuple(record))
            self.next_producer_id = max(self.next_producer_id, record.number << OWN_PRODUCERS_BITS)
            self.unowned = {slot: saved for slot, saved in self.unowned.items() if slot not in SHARED_SLOTS}

    def _partitions_placed(self, record: control.PartitionsPlaced) -> None:
        topic = self.by_number.get(record.number)
        if topic is None or self.shard is None:
            return
        for index, shard in enumerate(record.shards, record.first):
            if shard != self.shard.number and not isinstance(topic.partitions[index], RemotePartition):
                self.by_queue_number.pop(topic.lies_elsewhere(index).queue_number, None)
        self.changes += 1

    def _catalog_seen(self, record: control.CatalogSeen) -> None:
        if self.shard is not None:
            self.shard.catalog_version = max(self.shard.catalog_version, record.version)

    def _topic_renamed(self, record: control.TopicRenamed) -> None:
        topic = self.by_number.get(record.number)
        if topic is not None and topic.name != record.name:
            del self.by_name[topic.name]
            topic.name = record.name
            self.by_name[topic.name] = topic
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
                partition.passed(source_next)

    def partition(self, number: int, index: int) -> Partition | None:
        """One that lies in this log."""
        found = self.known_partition(number, index)
        return None if isinstance(found, RemotePartition) else found

    def known_partition(self, number: int, index: int) -> Partition | None:
        """The same, or one that lies in another shard."""
        topic = self.by_number.get(number)
        if topic is None or index >= len(topic.partitions):
            return None
        return topic.partitions[index]

    def is_topic(self, number: int) -> bool:
        return number in self.by_number

    def partition_count(self, number: int) -> int:
        topic = self.by_number.get(number)
        return 0 if topic is None else len(topic.partitions)

    def complete(self, run: SourceRun) -> None:
        """These waiting messages are dealt with. (What sections know of them goes with the proof, or the record.)"""
        partition = self.partition(run.topic_number, run.partition)
        if partition is not None and partition.pending is not None:
            partition.saved = None
            if run.count == 1:
                partition.pending.settle(run.first_offset)
            else:
                partition.pending.settle_run(run.first_offset, run.count)

    def _settled(self, record: control.Settled) -> None:
        for place, offsets in bits_by_queue(record.places).items():
            partition = self.partition(*place)
            if partition is not None and partition.pending is not None:
                partition.saved = None
                partition.pending.settle_all(offsets)

    def _waiting_kept(self, record: control.WaitingKept) -> None:
        partition = self.partition(record.number, record.partition)
        if partition is not None and partition.pending is not None:
            partition.saved = None
            partition.pending.keep(record.kept, record.upto)

    def _producer_advanced(self, record: control.ProducerAdvanced) -> None:
        partition = self.partition(record.number, record.partition)
        if partition is not None:
            partition.saved = None
            if partition.producers is None:
                partition.producers = Producers()
            partition.producers.appended(
                record.producer_id, record.epoch, record.base_sequence, record.span, -1, 0, record.now_ms
            )

    def _producer_ids_reserved(self, record: control.ProducerIdsReserved) -> None:
        self.next_producer_id = max(self.next_producer_id, record.next_id)

    def _cleaned(self, record: control.Cleaned) -> None:
        for number, index, low, high in record.lost:
            partition = self.partition(number, index)
            if partition is not None and high > partition.start_offset:
                partition.lose(low, high)
        for each in record.moved:
            partition = self.partition(each.number, each.partition)
            if partition is not None:
                clean_file = record.start if record.start < record.end else None
                partition.move(each.from_offset, each.upto_offset, clean_file, each.compacted_upto)
        self.next_clean = max(self.next_clean, record.end)


_APPLY: dict[type, Callable[[Catalog, Any], None]] = {
    control.TopicCreated: Catalog._topic_created,
    control.TopicDeleted: Catalog._topic_deleted,
    control.TopicRenamed: Catalog._topic_renamed,
    control.PartitionsAdded: Catalog._partitions_added,
    control.ConfigsSet: Catalog._configs_set,
    control.StartOffsetsMoved: Catalog._starts_moved,
    control.Relayed: Catalog._relayed,
    control.Settled: Catalog._settled,
    control.ProducerAdvanced: Catalog._producer_advanced,
    control.ProducerIdsReserved: Catalog._producer_ids_reserved,
    control.Cleaned: Catalog._cleaned,
    control.ShardBegun: Catalog._shard_begun,
    control.PartitionsPlaced: Catalog._partitions_placed,
    control.CatalogSeen: Catalog._catalog_seen,
    control.ShardImported: Catalog._shard_begun,
    control.WaitingKept: Catalog._waiting_kept,
}
