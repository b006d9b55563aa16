"""All transactional ids of a broker, and the progress that their transactions are to commit.

Part of the catalog: changed by control records only, at run time and in recovery alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfmoon.core.transactions.entry import TransactionalId

if TYPE_CHECKING:
    from halfmoon.core import control
    from halfmoon.core.catalog import GroupProgress


class TransactionBook:
    __slots__ = ("by_name", "pending")

    def __init__(self) -> None:
        self.by_name: dict[str, TransactionalId] = {}
        self.pending: dict[str, dict[str, GroupProgress]] = {}
        """Transactional id → group → progress that counts when the transaction commits."""

    def initialized(self, record: control.TransactionalIdInitialized) -> None:
        self.by_name[record.name] = TransactionalId(record.name, record.identity, record.timeout_ms, record.now_ms)
        self.pending.pop(record.name, None)

    def grown(self, record: control.TransactionGrown) -> None:
        entry = self.by_name.get(record.name)
        if entry is not None:
            entry.grow(record.partitions, record.groups, record.now_ms)

    def offsets(self, record: control.TransactionOffsets) -> None:
        if record.name in self.by_name:
            progress = self.pending.setdefault(record.name, {}).setdefault(record.group, {})
            progress.update({(number, index): committed for number, index, committed in record.entries})

    def ended(self, record: control.TransactionEnded) -> dict[str, GroupProgress]:
        """Returns the progress that counts from now on, by group."""
        entry = self.by_name.get(record.name)
        pending = self.pending.pop(record.name, {})
        if entry is None:
            return {}
        entry.end(record.identity, record.now_ms, committed=record.committed)
        return pending if record.committed else {}

    def expired(self, record: control.TransactionalIdsExpired) -> None:
        for name in record.names:
            self.by_name.pop(name, None)
            self.pending.pop(name, None)

    def forget_group(self, group: str) -> None:
        for name, groups in list(self.pending.items()):
            groups.pop(group, None)
            if not groups:
                del self.pending[name]

    def unstable(self, group: str) -> set[tuple[int, int]]:
        """Partitions (topic number, partition) for which a transaction that is not decided has progress of the
        group."""
        return {place for groups in self.pending.values() for place in groups.get(group, ())}
