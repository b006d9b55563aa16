"""What has become durable: who is answered, and what becomes visible.

A turn of the loop, as server/tick.py drives it:

    requests → append, append, … → write() → [sync: fdatasync in a thread → finish_sync()] → settle():
    dispatch makes the batches visible → answers leave (when_durable) → held requests wake → features

Which ends count is a matter of `flush`: with `sync`, *durable* and *visible* both mean flushed, else written.

A shard that goes to another process is closed in a thread, while the loop serves the other shards. From `begin_closing`
on the log is that thread's: what comes from elsewhere, an answer of another shard to a request of before, say, is
refused (`is_shut`). Who waits then is told by `closed`, in the loop, since a connection is the loop's. So is whoever is
held: what the thread itself appends wakes nobody.
"""

from __future__ import annotations

import logging
from bisect import insort
from collections import deque
from collections.abc import Callable
from operator import itemgetter
from threading import get_ident
from typing import Final, Protocol

from halfmoon.core.catalog.topics import Partition
from halfmoon.core.dispatch import Appended, Dispatch
from halfmoon.core.features import Arrivals
from halfmoon.core.hold import Arrival, HoldService
from halfmoon.core.storage.segment import Sync
from halfmoon.core.storage.storage import Place, WriteSide
from halfmoon.errors import BrokerError, Fault, LeaseLostError, StorageError

_Waiting = tuple[int, Callable[[BrokerError | None], None]]
_position: Final = itemgetter(0)
ANSWERED_AT_ONCE: Final = 1_000
"""Each is sent by a system call of its own, if all are of different clients: 5 to 10 ms."""


class Follower(Protocol):
    """Something that is told, each turn, how far the log is visible."""

    def arrived(self, upto: int) -> None: ...


class Turn:
    """Of one broker. One thread calls everything here, at a time."""

    def __init__(self, log: WriteSide, hold: HoldService, logger: logging.Logger, *, sync: bool) -> None:
        self._log = log
        self._hold = hold
        self._logger = logger
        self._sync = sync
        self.dispatch = Dispatch(0)
        """Replaced by recovery's, which knows what there is."""
        self.unseen: deque[Appended] = deque()
        """Appended, and not visible yet."""
        self.dirty = False
        """Something was appended and not written."""
        self.on_dirty: Callable[[], None] = lambda: None
        """Called when something was appended that `write` has not seen, at most once per write."""
        self._waiting: deque[_Waiting] = deque()
        """Sorted by position."""
        self._is_late = False
        """`on_late` was called."""
        self.on_late: Callable[[], object] | None = None
        """Called where more answers are due than leave at once: `answer_late` is to be called in a while. None: all
        leave at once."""
        self._after_write: list[Callable[[], None]] = []
        self._is_closing = False
        self._closer = -1
        """The thread that closes the log."""
        self._left: list[_Waiting] = []
        """Who is told once it is closed."""
        self.follower: Follower | None = None
        """Told of each turn, also those without batches."""
        self.flushed: tuple[Callable[[], None], ...] = ()
        """Told of each fdatasync."""
        self.state_position = 0
        """Behind the last control record. What anybody is told of the broker's state rests on what is before it."""
        self.arrived: tuple[Callable[[Arrivals], None], ...] = ()

    @property
    def durable_position(self) -> int:
        return self._log.flushed if self._sync else self._log.written

    def appended(self) -> None:
        """Something was put at the end of the log."""
        if not self.dirty:
            self.dirty = True
            self.on_dirty()

    def changed(self, position: int) -> None:
        """A control record was put at the end of the log, which is `position` now."""
        self.state_position = position
        self.appended()

    # -- writing and syncing -----------------------------------------------------------------------------------------

    def write(self) -> None:
        """Bring all that was appended into the page cache; afterwards the appended buffers are free."""
        self.dirty = False
        try:
            self._log.write()
        except StorageError as error:
            self._fail(error)
        callbacks, self._after_write = self._after_write, []
        for callback in callbacks:
            self._call(callback)

    def finish_sync(self, job: Sync, error: OSError | None) -> None:
        """A sync job's `run` has returned or raised."""
        self._log.finish_sync(job, error)
        if error is not None:
            self._fail(StorageError(f"fdatasync failed: {error}"))
        else:
            self.settle()
            for flushed in self.flushed:
                self._call(flushed)

    def flush(self) -> None:
        """Write and sync all that was appended, waiting for it: for start and stop. Raises StorageError."""
        self.write()
        job = self._log.sync_job()
        if job is not None:
            error: OSError | None = None
            try:
                job.run()
            except OSError as failure:
                error = failure
            self.finish_sync(job, error)
            while self._waiting and self._waiting[0][0] <= self.durable_position:
                self.answer_late()
        if self._log.failed is not None:
            raise StorageError(str(self._log.failed))

    # -- closing while the loop runs on --------------------------------------------------------------------------------

    def begin_closing(self) -> None:
        """In the loop: write what has come, for the last time here."""
        self.write()
        self._is_closing = True
        self._left += self._waiting
        self._waiting.clear()

    def closes_here(self) -> None:
        """In the thread that closes the log, before anything else."""
        self._closer = get_ident()

    @property
    def is_shut(self) -> bool:
        """Whether what comes now comes too late: the log is closed, or is being closed by another thread."""
        return self._is_closing and get_ident() != self._closer

    def closed(self, error: OSError) -> None:
        """In the loop: the log is closed, and `error` is why it takes no more."""
        if self._log.failed is None:
            self._log.failed = error
        durable = self.durable_position
        left, self._left = [*self._left, *self._waiting], []
        self._waiting.clear()
        for position, callback in left:
            self._call(callback, None if position <= durable else self.refusal())

    # -- what has become durable ---------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Make visible what has become durable, send the answers that waited for it, wake who waits for messages."""
        upto = self.durable_position
        unseen = self.unseen
        arrivals: dict[Partition, int] = {}
        batches: list[Appended] = []
        while unseen and unseen[0].position < upto:
            batches.append(unseen.popleft())
        self.dispatch.run(batches, upto, arrivals)
        self._answer(upto)
        if self.follower is not None:
            self._call(self.follower.arrived, upto)
        if batches and not self._is_closing:
            on_arrival = self._hold.on_arrival
            if self._hold.policies:
                for partition, arrival in _arrivals(batches).items():
                    on_arrival(partition, arrival.nbytes, arrival)
            else:
                for partition, nbytes in arrivals.items():
                    on_arrival(partition, nbytes)
            for arrived in self.arrived:
                try:
                    arrived(arrivals)
                except Exception:
                    self._callback_failed()

    def _answer(self, upto: int) -> None:
        waiting, on_late = self._waiting, self.on_late
        left = len(waiting) if on_late is None else ANSWERED_AT_ONCE
        while waiting and waiting[0][0] <= upto:
            if not left and on_late is not None:
                if not self._is_late:
                    self._is_late = True
                    on_late()
                return
            left -= 1
            callback = waiting.popleft()[1]
            try:  # not by `_call`, which costs as much as a short callback
                callback(None)
            except Exception:
                self._callback_failed()

    def answer_late(self) -> None:
        """Send answers that are due and were too many to leave at once; `on_late` is called if some are left."""
        self._is_late = False
        self._answer(self.durable_position)

    def unseen_place(self, partition: Partition, offset: int) -> Place | None:
        """Of the batch with this offset, where it is appended and not visible yet. It can be read from now on. Raises
        BrokerError where the log has failed."""
        for batch in self.unseen:
            if batch.partition is partition and batch.base_offset <= offset < batch.base_offset + batch.span:
                if batch.position + batch.length > self._log.written:
                    self.write()
                    if self._log.failed is not None:
                        raise self.refusal()
                return batch.position, batch.length
        return None

    # -- waiting for it ----------------------------------------------------------------------------------------------

    @property
    def waiting_answers(self) -> int:
        """How many answers wait for the log to become durable."""
        return len(self._waiting)

    def when_durable(self, position: int, callback: Callable[[BrokerError | None], None]) -> None:
        """Call back once the log is durable up to `position`, or with an error once it never will be."""
        if position <= self.durable_position:
            callback(None)
        elif self._log.failed is not None:
            callback(self.refusal())
        elif self.is_shut:
            self._left.append((position, callback))
        elif self._waiting and position < self._waiting[-1][0]:
            insort(self._waiting, (position, callback), key=_position)  # a repeated batch waits for the first one
        else:
            self._waiting.append((position, callback))

    def when_written(self, position: int, callback: Callable[[BrokerError | None], None]) -> None:
        """As `when_durable`, for what need only survive the death of this process."""
        if not self._log.written_stays:
            self.when_durable(position, callback)
            return

        def written() -> None:
            callback(self.refusal() if position > self._log.written else None)

        self.after_write(written)

    def after_write(self, callback: Callable[[], None]) -> None:
        """Call back once the buffers appended so far are free: at once if they are, as the loop's are where a thread
        closes the log."""
        if self._log.pending_bytes and self._log.failed is None and not self.is_shut:
            self._after_write.append(callback)
        else:
            callback()

    def refusal(self) -> BrokerError:
        """What those are told who want something of a log that has failed: whether another node takes writes."""
        elsewhere = isinstance(self._log.failed, LeaseLostError)
        fault = Fault.NOT_LEADER_OR_FOLLOWER if elsewhere else Fault.KAFKA_STORAGE_ERROR
        return BrokerError(fault, f"the log accepts no more writes: {self._log.failed}")

    def _call(self, callback: Callable[..., object], *given: object) -> None:
        """An exception in one callback does not stop the other callbacks or the rest of the turn."""
        try:
            callback(*given)
        except Exception:
            self._callback_failed()

    def _callback_failed(self) -> None:
        self._logger.exception("event=callback_failed")

    def _fail(self, error: StorageError) -> None:
        """Fail every request that still waits for durability."""
        self._logger.critical("event=storage_failed error=%s", error)
        durable = self.durable_position
        self.unseen = deque(batch for batch in self.unseen if batch.position < durable)
        waiting = self._waiting
        while waiting:  # taken out one by one: `settle` may be in the middle of it
            position, callback = waiting.popleft()
            self._call(callback, None if position <= durable else self.refusal())


def _arrivals(batches: list[Appended]) -> dict[Partition, Arrival]:
    """What has become visible, by partition, for those who ask which records came."""
    found: dict[Partition, Arrival] = {}
    for batch in batches:
        partition, end = batch.partition, batch.base_offset + batch.span
        known = found.get(partition)
        if known is None:
            found[partition] = Arrival(partition.topic.name, partition.index, batch.base_offset, end, batch.length)
        else:
            found[partition] = known._replace(end_offset=end, nbytes=known.nbytes + batch.length)
    return found
