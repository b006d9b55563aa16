"""All transactional ids of a broker, and the progress that their transactions are to commit.

Part of the catalog: changed by control records only, at run time and in recovery alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from halfmoon.core.transactions.entry import TransactionalId

if TYPE_CHECKING:
    from halfmoon.core import control
    from halfmoon.core.catalog import GroupProgress


class TransactionBook:
    __slots__ = ("by_name", "ongoing", "pending")

    def __init__(self) -> None:
        self.by_name: dict[str, TransactionalId] = {}
        """In the order of their last use."""
        self.ongoing: dict[str, TransactionalId] = {}
        """Those whose transaction is."""
        self.pending: dict[str, dict[str, GroupProgress]] = {}
        """Transactional id → group → progress that counts when the transaction commits."""

    def put(self, entry: TransactionalId) -> None:
        """Note an entry that is new or has changed."""
        entry.saved = None
        self.by_name.pop(entry.name, None)
        self.by_name[entry.name] = entry
        if entry.is_ongoing:
            self.ongoing[entry.name] = entry
        else:
            self.ongoing.pop(entry.name, None)

    def initialized(self, record: control.TransactionalIdInitialized) -> None:
        self.put(TransactionalId(record.name, record.identity, record.timeout_ms, record.now_ms))
        self.pending.pop(record.name, None)

    def grown(self, record: control.TransactionGrown) -> None:
        entry = self.by_name.get(record.name)
        if entry is not None:
            entry.grow(record.partitions, record.groups, record.now_ms)
            self.put(entry)

    def offsets(self, record: control.TransactionOffsets) -> None:
        entry = self.by_name.get(record.name)
        if entry is not None:
            entry.saved = None
            progress = self.pending.setdefault(record.name, {}).setdefault(record.group, {})
            progress.update({(number, index): committed for number, index, committed in record.entries})

    def ended(self, record: control.TransactionEnded) -> dict[str, GroupProgress]:
        """Returns the progress that counts from now on, by group."""
        entry = self.by_name.get(record.name)
        pending = self.pending.pop(record.name, {})
        if entry is None:
            return {}
        entry.end(record.identity, record.now_ms, committed=record.committed)
        self.put(entry)
        return pending if record.committed else {}

    def expired(self, record: control.TransactionalIdsExpired) -> None:
        for name in record.names:
            self.by_name.pop(name, None)
            self.ongoing.pop(name, None)
            self.pending.pop(name, None)

    def unused(self, before_ms: int) -> Iterator[str]:
        """Names of ids without a transaction that were last used before (Unix ms), those of the longest time first."""
        for entry in self.by_name.values():
            if entry.update_ms >= before_ms:
                return
            if not entry.is_ongoing:
                yield entry.name

    def forget_group(self, group: str) -> None:
        for name, groups in list(self.pending.items()):
            if groups.pop(group, None) is not None:
                self.by_name[name].saved = None
            if not groups:
                del self.pending[name]

    def unstable(self, group: str) -> set[tuple[int, int]]:
        """Partitions (topic number, partition) for which a transaction that is not decided has progress of the
        group."""
        return {place for groups in self.pending.values() for place in groups.get(group, ())}
