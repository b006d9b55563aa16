"""Drives a broker from an event loop: one turn writes, syncs, makes visible, answers, wakes.

    all ready sockets are read, their requests appended      (a round of the loop)
    → one vectored write for all of them                     (`_tick`, at the end of a round in which anything was
                       appended; or at once, where of late only one client has sent in a round: see `Round`)
    → flush: sync      at most one fdatasync at a time, in a thread; whoever comes meanwhile shares the next one.
                       For little on a quick disk in the loop itself (see `sync_place`)
      flush: interval  answers leave at once; an fdatasync every `flush_interval` or `flush_bytes`
    → batches become visible, answers leave, held requests wake

Beside that, two timers: one for the earliest deadline of held requests and groups, one for what is due every few
seconds. Nothing else drives the broker; adapters only call it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from halfmoon.adapters.tcp.turns import LOOK_S, TICK, Turns
from halfmoon.core.durations import Durations
from halfmoon.core.jobs import Background, Job
from halfmoon.core.kernel import Kernel
from halfmoon.core.storage.segment import Sync
from halfmoon.server.deadlines import Deadlines
from halfmoon.server.eager import Eager
from halfmoon.server.sync_place import SyncPlace
from halfmoon.server.waking import wake_in_turns

log: Final = logging.getLogger("halfmoon.broker")

RETENTION_INTERVAL_S: Final = 60.0
TURN_INTERVAL_S = 5.0
JOB_CHECK_BYTES: Final = 256 << 10
"""After so much was written it is looked whether an index, a segment or a merger is due; what waits for a sync or for
time is looked for at their ends."""

CLOCK_INTERVAL_S = 2.0
"""How often is looked whether the wall clock has leapt."""
LEAP_MS: Final = 250

SHARED_ROUNDS: Final = 16
"""After a round in which several clients appended, the turns of so many rounds wait for their end."""


class Round:
    """From the first append after the loop asked for events until it has handled them all.

    Usually a turn waits for the end of the round, so that all who send at the same time share one write and one sync.
    Where only one client has sent at a time of late, there is nobody to wait for.
    """

    __slots__ = ("_clients", "_shared", "open")

    def __init__(self) -> None:
        self.open = False
        self._clients = 0
        self._shared = 0
        """So many rounds are still to be waited for."""

    def alone(self) -> bool:
        """A client's requests are handled: whether its turn may come at once."""
        self._clients += 1
        return self._clients == 1 and not self._shared

    def end(self) -> None:
        if self._clients > 1:
            self._shared = SHARED_ROUNDS
        elif self._shared:
            self._shared -= 1
        self._clients = 0
        self.open = False


Outcome = tuple[float, OSError | None]
"""How long a sync itself took, seconds, without the way to a thread and back; and what went wrong."""


def _run(job: Sync) -> Outcome:
    begun_s = time.perf_counter()
    try:
        job.run()
    except Exception as failure:
        error = failure if isinstance(failure, OSError) else OSError(str(failure))
        return time.perf_counter() - begun_s, error
    return time.perf_counter() - begun_s, None


def _conclude(job: Job[object], done: Future[object]) -> None:
    error = done.exception()
    if error is None:
        job.done(done.result())
    else:
        job.failed(error if isinstance(error, Exception) else RuntimeError(str(error)))


class _Background:
    """Work in a thread of its own: index files must not wait for it. What there is to do is looked for in slices."""

    def __init__(self, ticker: Ticker, work: Background) -> None:
        self._ticker = ticker
        self._work = work
        self.thread = ThreadPoolExecutor(1, "halfmoon-background")
        self._looking = False
        """It looks on with the next round."""

    def start(self) -> None:
        loop = self._ticker.loop
        self._work.on_due = lambda: loop.call_soon(self.begin)
        self._ticker.every(self._work.interval_ms / 1000, self._turn)

    def _turn(self) -> None:
        self._work.turn()
        self.begin()

    def begin(self) -> None:
        """Look on, and begin what was found."""
        ticker, work = self._ticker, self._work
        if self._looking or ticker.stopped:
            return
        if work.look():
            self._looking = True
            ticker.loop.call_soon(self._look_on)
        else:
            ticker.begin_job()  # files may have to be removed now, and what is to be cleaned to be indexed before
        job = work.next_job()
        if job is not None:
            self.thread.submit(job.run).add_done_callback(
                lambda done: ticker.loop.call_soon_threadsafe(self._ended, job, done)
            )

    def _look_on(self) -> None:
        self._looking = False
        self.begin()

    def _ended(self, job: Job[object], done: Future[object]) -> None:
        _conclude(job, done)
        self.begin()


class Ticker:
    """Start it once the broker is open; stop it before the broker is closed."""

    def __init__(self, kernel: Kernel, loop: asyncio.AbstractEventLoop, turns: Turns | None = None) -> None:
        """`turns`: where long turns of the loop are noted."""
        self._kernel = kernel
        self.loop = loop
        self._turns = turns = turns or Turns()
        self._at_end = turns.soon(loop.call_soon)
        self._log_settings = kernel.settings.log
        self._sync = self._log_settings.flush == "sync"
        self._sync_thread = ThreadPoolExecutor(1, "halfmoon-sync")
        self._job_thread = ThreadPoolExecutor(1, "halfmoon-jobs")
        self._background = [_Background(self, work) for work in kernel.features.background]
        self._syncing = False
        self._last_sync: asyncio.Future[None] | None = None
        """A stop waits for it."""
        self._flush_timer: asyncio.TimerHandle | None = None
        self._retain_timer: asyncio.TimerHandle | None = None
        self._deadlines = Deadlines(kernel.timers, kernel.clock, loop)
        self._wall_ahead_ms = 0
        """Of the monotonic clock."""
        self._timers: list[asyncio.TimerHandle] = []
        self._jobs_every = min(JOB_CHECK_BYTES, self._log_settings.segment_bytes // 16)
        self._jobs_at = 0
        self.stopped = False
        self._place = SyncPlace()
        self._round = Round()
        self._owed = False
        """A turn is owed: something was appended since the last. It may be written already, where memory was short."""
        self._eager = Eager(self._at_end, time.perf_counter)
        self.flush_durations = Durations()
        self.tick_durations = Durations()

    def start(self) -> None:
        kernel = self._kernel
        kernel.turn.on_dirty = self._schedule
        kernel.on_handled = self._handled
        kernel.turn.on_late = lambda: self.loop.call_soon(kernel.turn.answer_late)
        if kernel.owns_hold:
            wake_in_turns(kernel.hold, self._turns)
            self.every(kernel.settings.hold.check_interval_ms / 1000, kernel.hold.check)
        self._deadlines.start()
        self.every(TURN_INTERVAL_S, self._turn)
        self._look_at_clock()
        self.every(CLOCK_INTERVAL_S, self._look_at_clock)
        for background in self._background:
            background.start()
        self._retain_timer = self.loop.call_later(RETENTION_INTERVAL_S, self._retain)

    async def settled(self) -> None:
        """Returns when those have been answered who wait for what was appended until now."""
        settled: asyncio.Future[None] = self.loop.create_future()

        def told(_error: object) -> None:
            if not settled.done():
                settled.set_result(None)

        self._kernel.when_durable(self._kernel.log.end, told)
        await settled

    async def stop(self) -> None:
        """Let what is under way end; nothing new is begun."""
        self.stopped = True
        self._deadlines.stop()
        for timer in (*self._timers, self._flush_timer, self._retain_timer):
            if timer is not None:
                timer.cancel()
        self._kernel.turn.on_dirty = self._kernel.on_handled = lambda: None
        if self._syncing:
            self._last_sync = self.loop.create_future()
            await self._last_sync
        for pool in (self._sync_thread, self._job_thread, *(each.thread for each in self._background)):
            await asyncio.to_thread(pool.shutdown)
        await asyncio.sleep(0)  # lets the finished job's callback run before the broker is closed

    # -- a turn ----------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        self._owed = True
        if not self._round.open:
            self._round.open = True
            self._at_end(self._end_of_round)

    def _handled(self) -> None:
        if self._round.alone():
            self._tick(time.perf_counter())

    def _end_of_round(self) -> None:
        self._round.end()
        if self._owed:
            begun_s = time.perf_counter()
            self._turns.begin(begun_s)
            self._tick(begun_s)

    def _tick(self, begun_s: float) -> None:
        self._owed = False
        kernel = self._kernel
        log = kernel.log
        written = log.written
        kernel.turn.write()
        if self._sync:
            self._begin_sync()
        else:
            kernel.turn.settle()
            self._sync_by_interval()
        if not self._sync or log.flushed == log.written:
            self._eager.turned(begun_s, log.written - written)
        kernel.housekeeping.plan()
        if log.written >= self._jobs_at:
            self._jobs_at = log.written + self._jobs_every
            self.begin_job()
        took_s = time.perf_counter() - begun_s
        self.tick_durations.add(took_s)
        if took_s > LOOK_S:
            self._turns.took(TICK, begun_s)

    def _sync_by_interval(self) -> None:
        log = self._kernel.log
        if log.written - log.flushed >= self._log_settings.flush_bytes:
            self._begin_sync()
        elif self._flush_timer is None:
            self._flush_timer = self.loop.call_later(self._log_settings.flush_interval_ms / 1000, self._flush_due)

    def _flush_due(self) -> None:
        self._flush_timer = None
        self._begin_sync()

    def _begin_sync(self) -> None:
        if self._syncing or self.stopped:
            return
        log = self._kernel.log
        nbytes = log.written - log.flushed
        job = log.sync_job()
        if job is None:
            return
        begun_s = time.perf_counter()
        if self._sync and job.is_plain and self._place.in_loop(nbytes, self._kernel.turn.waiting_answers):
            self._ended(job, nbytes, _run(job), begun_s)
            return
        self._syncing = True
        if job.begin(lambda error: self._synced(job, nbytes, (time.perf_counter() - begun_s, error), begun_s)):
            return
        self._sync_thread.submit(_run, job).add_done_callback(
            lambda done: self.loop.call_soon_threadsafe(self._synced, job, nbytes, done.result(), begun_s)
        )

    def _synced(self, job: Sync, nbytes: int, outcome: Outcome, begun_s: float) -> None:
        self._syncing = False
        try:
            self._ended(job, nbytes, outcome, begun_s)
        finally:
            if self._last_sync is not None and not self._last_sync.done():
                self._last_sync.set_result(None)
        log = self._kernel.log
        if self._sync and log.flushed < log.written:
            self._begin_sync()
        self.begin_job()

    def _ended(self, job: Sync, nbytes: int, outcome: Outcome, begun_s: float) -> None:
        took_s, error = outcome
        self.flush_durations.add(time.perf_counter() - begun_s)
        self._place.took(took_s, nbytes)
        self._kernel.turn.finish_sync(job, error)
        if self._kernel.housekeeping.may_remove:
            self.begin_job()

    # -- slow jobs -------------------------------------------------------------------------------------------------

    def begin_job(self) -> None:
        job = self._kernel.housekeeping.next_job() if not self.stopped else None
        if job is not None:
            self._job_thread.submit(job.run).add_done_callback(
                lambda done: self.loop.call_soon_threadsafe(self._job_ended, job, done)
            )

    def _job_ended(self, job: Job[object], done: Future[object]) -> None:
        _conclude(job, done)
        self.begin_job()

    # -- time ------------------------------------------------------------------------------------------------------

    def every(self, interval_s: float, what: Callable[[], None]) -> None:
        """Call it again and again, whatever it raises."""
        slot = len(self._timers)
        self._timers.append(self.loop.call_later(interval_s, self._again, slot, interval_s, what))

    def _again(self, slot: int, interval_s: float, what: Callable[[], None]) -> None:
        try:
            what()
        except Exception:
            log.exception("event=callback_failed")
        if not self.stopped:  # or it would go on for ever
            self._timers[slot] = self.loop.call_later(interval_s, self._again, slot, interval_s, what)

    def _look_at_clock(self) -> None:
        """Alarms are set by the monotonic clock; some are for a time of the wall clock, which somebody may have set, or
        which has gone on while the machine slept."""
        clock = self._kernel.clock
        ahead_ms = clock.wall_ms() - clock.mono_ms()
        if abs(ahead_ms - self._wall_ahead_ms) > LEAP_MS:
            self._kernel.relays.wake_alarms()
        self._wall_ahead_ms = ahead_ms

    def _turn(self) -> None:
        self._kernel.housekeeping.turn()
        self._begin_sync()
        self.begin_job()
        for background in self._background:
            background.begin()

    def _retain(self) -> None:
        if self.stopped:
            return
        over = True
        try:
            over = self._kernel.housekeeping.retain()
            if over:
                self.begin_job()
        except Exception:
            log.exception("event=callback_failed")
        if over:
            self._retain_timer = self.loop.call_later(RETENTION_INTERVAL_S, self._retain)
        else:
            self.loop.call_soon(self._retain)
