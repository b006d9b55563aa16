"""What becomes of producers when the log was brought back to an earlier moment.

A producer may have got a later epoch since, and a transaction may have grown: the log knows of neither. So the same
identity would be given out twice, and a producer of before could write into another one's transaction, or commit one of
which a part is gone. Every transactional id gets a producer id that nobody ever had; what was ongoing is aborted. What
was decided stays decided. Whoever is still there is told INVALID_PRODUCER_ID_MAPPING, and begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from halfmoon.core.append import Appender
from halfmoon.core.clock import Clock
from halfmoon.schema import control
from halfmoon.schema.transactions import Identity, TransactionState
from halfmoon.services.transactions.entry import TransactionalId
from halfmoon.services.transactions.state import TransactionsState

SKIPPED = 1 << 24
"""Producer ids that may have been given out since: 16 million by one shard."""


class Abort(Protocol):
    def __call__(self, entry: TransactionalId, identity: Identity, *, commit: bool) -> int | None: ...


def fence_all(
    state: TransactionsState, appender: Appender, clock: Clock, end: Abort, flush: Callable[[], None]
) -> None:
    """Before the first request, and before what is decided is carried out. `flush`: called now and then. It may be done
    twice. Raises BrokerError, StorageError."""
    appender.skip_producer_ids(SKIPPED)
    for nth, entry in enumerate(list(state.by_name.values()), 1):
        identity = Identity(appender.allocate_producer_id()[0], 0)
        if entry.is_ongoing:
            end(entry, identity, commit=False)
        else:
            for record in _replaced(entry, identity, clock.wall_ms()):
                appender.append_control(record)
        if nth % _FLUSHED == 0:
            flush()
    flush()


def _replaced(entry: TransactionalId, identity: Identity, now_ms: int) -> Iterator[control.Any]:
    if entry.is_prepared:
        committed = entry.state is TransactionState.PREPARE_COMMIT
        yield control.TransactionPrepared(entry.name, identity, committed, now_ms)
    else:
        yield control.TransactionalIdInitialized(entry.name, identity, entry.timeout_ms, entry.update_ms)


_FLUSHED = 10_000
"""Control records between two flushes."""
