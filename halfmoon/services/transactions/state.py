"""All transactional ids of a broker, and the offsets that their transactions are to commit, as the log says it.

Beside them stand the offsets of groups of this shard in transactions that other shards coordinate, by the producer's
id.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import msgspec

from halfmoon.core.catalog.section import CatalogSection
from halfmoon.schema import control
from halfmoon.schema.snapshot import (
    IdsAndRemoteOffsets,
    PreparedIdState,
    RemoteOffsetsState,
    TransactionalIdState,
    encode,
)
from halfmoon.services.groups.state import GroupOffsets, GroupsState
from halfmoon.services.transactions import rules
from halfmoon.services.transactions.entry import TransactionalId

_states = msgspec.msgpack.Decoder(list[PreparedIdState])
_both = msgspec.msgpack.Decoder(IdsAndRemoteOffsets)
_MAPS = range(0x80, 0x90)
"""How a small map of MessagePack begins."""


class RemoteOffsets:
    """What a transaction that another shard coordinates has of one group's progress."""

    __slots__ = ("epoch", "joined", "offsets")

    def __init__(self, epoch: int, joined: int, offsets: GroupOffsets) -> None:
        """`joined`: as of control.RemoteOffsets."""
        self.epoch = epoch
        self.joined = joined
        self.offsets = offsets


class TransactionsState(CatalogSection):
    slots: ClassVar = ("transactional_ids",)
    records: ClassVar = (
        control.TransactionalIdInitialized,
        control.TransactionGrown,
        control.TransactionOffsets,
        control.TransactionPrepared,
        control.TransactionOffsetsEnded,
        control.TransactionEnded,
        control.TransactionalIdsExpired,
        control.RemoteOffsets,
        control.RemoteOffsetsEnded,
        control.GroupDeleted,
    )

    def __init__(self, groups: GroupsState) -> None:
        self._groups = groups
        self.by_name: dict[str, TransactionalId] = {}
        """In the order of their last use."""
        self.ongoing: dict[str, TransactionalId] = {}
        """Those whose transaction is."""
        self.prepared: dict[str, TransactionalId] = {}
        """Those whose transaction is decided, and not ended yet."""
        self.pending: dict[str, dict[str, GroupOffsets]] = {}
        """Transactional id → group → offsets that count when the transaction commits."""
        self.remote: dict[int, dict[str, RemoteOffsets]] = {}
        """The same for transactions that other shards coordinate, by the producer's id."""

    def put(self, entry: TransactionalId) -> None:
        """Note an entry that is new or has changed."""
        entry.saved = None
        self.by_name.pop(entry.name, None)
        self.by_name[entry.name] = entry
        if entry.is_ongoing:
            self.ongoing[entry.name] = entry
        else:
            self.ongoing.pop(entry.name, None)
        if entry.is_prepared:
            self.prepared[entry.name] = entry
        else:
            self.prepared.pop(entry.name, None)

    def apply(self, record: control.Record) -> None:
        if isinstance(record, control.TransactionalIdInitialized):
            self.put(TransactionalId(record.name, record.identity, record.timeout_ms, record.now_ms))
            self.pending.pop(record.name, None)
        elif isinstance(record, control.TransactionGrown):
            entry = self.by_name.get(record.name)
            if entry is not None:
                entry.grow(record.partitions, record.groups, record.now_ms)
                self.put(entry)
        elif isinstance(record, control.TransactionOffsets):
            entry = self.by_name.get(record.name)
            if entry is not None:
                entry.saved = None
                offsets = self.pending.setdefault(record.name, {}).setdefault(record.group, {})
                offsets.update({(number, index): committed for number, index, committed in record.entries})
        elif isinstance(record, control.TransactionPrepared):
            entry = self.by_name.get(record.name)
            if entry is not None:
                entry.prepare(record.identity, record.now_ms, committed=record.committed)
                self.put(entry)
        elif isinstance(record, control.TransactionOffsetsEnded):
            self._offsets_ended(record)
        elif isinstance(record, control.TransactionEnded):
            self._ended(record)
        elif isinstance(record, control.TransactionalIdsExpired):
            for name in record.names:
                self.by_name.pop(name, None)
                self.ongoing.pop(name, None)
                self.prepared.pop(name, None)
                self.pending.pop(name, None)
        elif isinstance(record, control.RemoteOffsets):
            self._remote_offsets(record)
        elif isinstance(record, control.RemoteOffsetsEnded):
            self._remote_ended(record)
        elif isinstance(record, control.GroupDeleted):
            self._forget_group(record.group)

    def _ended(self, record: control.TransactionEnded) -> None:
        entry = self.by_name.get(record.name)
        pending = self.pending.pop(record.name, {})
        if entry is None:
            return
        entry.end(record.identity, record.now_ms, committed=record.committed)
        self.put(entry)
        for group, offsets in pending.items() if record.committed else ():
            self._groups.commit_all(group, offsets)

    def _offsets_ended(self, record: control.TransactionOffsetsEnded) -> None:
        groups = self.pending.get(record.name, {})
        offsets = groups.pop(record.group, None)
        if offsets is None:
            return
        self.by_name[record.name].saved = None
        if not groups:
            del self.pending[record.name]
        if record.committed:
            self._groups.commit_all(record.group, offsets)

    def _remote_offsets(self, record: control.RemoteOffsets) -> None:
        groups = self.remote.setdefault(record.producer_id, {})
        known = groups.get(record.group)
        if known is None or known.epoch != record.epoch:
            known = groups[record.group] = RemoteOffsets(record.epoch, record.joined, {})
        known.joined = record.joined
        known.offsets.update({(number, index): committed for number, index, committed in record.entries})

    def _remote_ended(self, record: control.RemoteOffsetsEnded) -> None:
        known = self._take_remote(record.producer_id, record.group)
        if known is not None and record.committed:
            self._groups.commit_all(record.group, known.offsets)

    def _take_remote(self, producer_id: int, group: str) -> RemoteOffsets | None:
        groups = self.remote.get(producer_id, {})
        known = groups.pop(group, None)
        if known is not None and not groups:
            del self.remote[producer_id]
        return known

    def remote_of(self, producer_id: int, group: str) -> RemoteOffsets | None:
        """What the producer's transaction has of a group's progress, where another shard coordinates it."""
        return self.remote.get(producer_id, {}).get(group)

    def pending_of(self, name: str) -> int:
        """How many offsets a transaction has that are not committed."""
        return sum(map(len, self.pending.get(name, {}).values()))

    def unused(self, before_ms: int) -> Iterator[str]:
        """Names of ids without a transaction that were last used before (Unix ms), those of the longest time first."""
        for entry in self.by_name.values():
            if entry.update_ms >= before_ms:
                return
            if not entry.is_ongoing and not entry.is_prepared:
                yield entry.name

    def _forget_group(self, group: str) -> None:
        for name, groups in list(self.pending.items()):
            if groups.pop(group, None) is not None:
                self.by_name[name].saved = None
            if not groups:
                del self.pending[name]
        for producer_id in list(self.remote):
            self._take_remote(producer_id, group)

    def unstable(self, group: str) -> set[tuple[int, int]]:
        """Partitions (topic number, partition) for which a transaction that is not decided has offsets of the group."""
        found = {place for groups in self.pending.values() for place in groups.get(group, ())}
        for known in self.remote.values():
            if group in known:
                found.update(known[group].offsets)
        return found

    # -- what corruption has taken (core/salvage.py) ------------------------------------------------------------------

    def lost_end(
        self, producer_id: int, epoch: int, now_ms: int, *, committed: bool
    ) -> control.TransactionEnded | None:
        """The record that stood behind such markers, where a transaction of this producer is ongoing."""
        for entry in self.ongoing.values():
            if entry.producer_id == producer_id:
                return control.TransactionEnded(entry.name, rules.after_marker(entry, epoch), committed, now_ms)
        return None

    def markers_of(self, record: control.TransactionEnded) -> tuple[int, int, list[tuple[int, int]]] | None:
        """Producer id and epoch of the markers that such a record stands behind, and in which partitions they are."""
        entry = self.by_name.get(record.name)
        if entry is None:
            return None
        return entry.producer_id, rules.marker_epoch(entry, record.identity), list(entry.partitions)

    # -- snapshots -----------------------------------------------------------------------------------------------------

    def save(self, slot: str) -> object:
        for entry in self.by_name.values():
            if entry.saved is None:
                entry.saved = encode(self._state(entry))
        ids = [msgspec.Raw(entry.saved) for entry in self.by_name.values() if entry.saved is not None]
        if not self.remote:
            return ids
        return IdsAndRemoteOffsets(
            msgspec.Raw(encode(ids)),
            [
                RemoteOffsetsState(producer_id, known.epoch, known.joined, group, _entries(known.offsets))
                for producer_id, groups in self.remote.items()
                for group, known in groups.items()
            ],
        )

    def _state(self, entry: TransactionalId) -> TransactionalIdState:
        pending = self.pending.get(entry.name, {})
        fields = (
            entry.name, entry.identity, entry.timeout_ms, entry.state, list(entry.partitions), list(entry.groups),
            entry.start_ms, entry.update_ms,
            [(group, _entries(offsets)) for group, offsets in pending.items()],
        )  # fmt: skip
        return PreparedIdState(*fields, entry.after) if entry.is_prepared else TransactionalIdState(*fields)

    def restore(self, slot: str, saved: msgspec.Raw) -> None:
        self.by_name, self.ongoing, self.prepared, self.pending, self.remote = {}, {}, {}, {}, {}
        if memoryview(saved)[0] in _MAPS:
            both = _both.decode(saved)
            saved = both.ids
            for each in both.offsets:
                offsets = {(n, p): c for n, p, c in each.entries}
                known = RemoteOffsets(each.epoch, each.joined, offsets)
                self.remote.setdefault(each.producer_id, {})[each.group] = known
        for state in _states.decode(saved):
            entry = TransactionalId(state.name, state.identity, state.timeout_ms, state.update_ms)
            entry.state, entry.start_ms, entry.after = state.state, state.start_ms, state.after
            entry.partitions = dict.fromkeys(state.partitions)
            entry.groups = dict.fromkeys(state.groups)
            self.put(entry)
            if state.pending:
                self.pending[state.name] = {
                    group: {(n, p): c for n, p, c in entries} for group, entries in state.pending
                }


def _entries(offsets: GroupOffsets) -> list[tuple[int, int, control.Committed]]:
    return [(number, index, committed) for (number, index), committed in offsets.items()]
