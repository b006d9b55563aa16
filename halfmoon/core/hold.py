"""The hold service: requests that wait for a message to arrive (B11–B13; RocketMQ's PullRequestHoldService).

A request is parked on the partitions it reads. Each arrival subtracts its bytes from what the request still misses; at
zero, or at its deadline, the request is woken once and forgotten. An arrival that the request's `match` refuses counts
for nothing: the request stays held, and the filter is looked at again on the next arrival.

Rules:
- Every waiter of a partition gets its answer, however many there are (B13).
- A waiter that is gone (`drop`) is never woken.
- `wake` runs inside `on_arrival`, `expire` or `check`; it may park again, and that is not woken by the same arrival.
- One arrival may wake thousands: where `is_long` says so, the rest is woken in `wake_late`, in the same order, but one
  of each owner after the other: a connection with thousands of waiters does not hold up the others.
- Policies of plugins may leave a request waiting although something has come for it; then `check` leaves it, too, until
  they have let an arrival count.
- `check` asks each waiter's own `ready`, so that a lost notification costs seconds and not for ever (B12).
- What raises in one waiter (`match`, `ready`, `wake`) concerns this waiter only. One whose `match` or `ready` raises is
  woken: its answer says what is wrong.

It knows no socket and no clock: deadlines are monotonic milliseconds that the caller passes in.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple, Protocol

from msgspec import Struct


class Settings(Protocol):
    """The part of `$.hold` that is read here."""

    @property
    def long_polling(self) -> bool: ...
    @property
    def max_suspend_ms(self) -> int: ...
    @property
    def short_polling_ms(self) -> int: ...


class Arrival(NamedTuple):
    """What became visible in a partition at once, as policies see it."""

    topic: str
    partition: int
    base_offset: int
    end_offset: int
    """The offset behind it."""
    nbytes: int


class Policy(Protocol):
    """Has a say in which arrivals answer a request."""

    @property
    def name(self) -> str: ...
    @property
    def on_park(self) -> Callable[[Held], None]: ...
    @property
    def matches(self) -> Callable[[Held, Any, Any], bool]: ...
    @property
    def on_expire(self) -> Callable[[Held], None]: ...


class Held:
    """One waiting request.

    `partitions`: what it waits for (any hashable; the broker's Partition objects).
    `missing_bytes`: how many bytes must still arrive, over all its partitions, before it is worth waking (> 0).
    `deadline_ms`: monotonic; woken then whatever has come.
    `owner`: whoever asked (a connection), for `drop`.
    `wake`: called once, with no arguments.
    `match(partition, arrival)`: False leaves the request held; None means every arrival counts.
    `ready()`: whether it could be answered now, for the periodic check; None means that only arrivals tell.
    """

    __slots__ = (
        "deadline_ms", "entry", "held", "left", "match", "memory", "missing_bytes", "owner", "partitions", "ready",
        "wake",
    )  # fmt: skip

    def __init__(
        self,
        partitions: Iterable[Hashable],
        missing_bytes: int,
        deadline_ms: int,
        owner: object,
        wake: Callable[[], None],
        match: Callable[[Any, Any], bool] | None = None,
        ready: Callable[[], bool] | None = None,
    ) -> None:
        self.partitions = tuple(partitions)
        self.missing_bytes = missing_bytes
        self.deadline_ms = deadline_ms
        self.owner = owner
        self.wake = wake
        self.match = match
        self.ready = ready
        self.held = False
        self.left = False
        """Policies have left it waiting when something came last."""
        self.memory: Any = None
        """The policies' own."""
        self.entry = 0
        """Which entry of the deadlines is its own: a request may be parked again while an old one is still there."""


class HoldCounters(Struct):
    parked: int = 0
    woken_by_arrival: int = 0
    woken_by_deadline: int = 0
    woken_by_check: int = 0
    dropped: int = 0
    policy_errors: int = 0


class _Late:
    """Who is to be woken in a later turn. Owners take turns; the requests of one keep their order."""

    def __init__(self) -> None:
        self._by_owner: OrderedDict[object, deque[Held]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._by_owner)

    def add(self, owner: object, held: Held) -> None:
        waiting = self._by_owner.get(owner)
        if waiting is None:
            self._by_owner[owner] = waiting = deque()
        waiting.append(held)

    def next(self) -> Held:
        """The first of the owner whose turn it is, taken out."""
        owner, waiting = self._by_owner.popitem(last=False)
        held = waiting.popleft()
        if waiting:
            self._by_owner[owner] = waiting
        return held

    def take(self, owner: object) -> Iterable[Held]:
        """All of an owner's."""
        return self._by_owner.pop(owner, ())


class HoldService:
    """All held requests of a broker."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # Insertion-ordered sets (dicts): waiters of one partition are answered in the order they came.
        self._by_partition: dict[Hashable, dict[Held, None]] = {}
        self._by_owner: dict[object, dict[Held, None]] = {}
        self._deadlines: list[tuple[int, int, Held]] = []
        self._sequence = 0
        self._count = 0
        self.counters = HoldCounters()
        self.on_deadline: Callable[[int], None] = lambda deadline_ms: None
        """Called when a parked request's deadline is the earliest of all, so that a timer can be set."""
        self.policies: tuple[Policy, ...] = ()
        """Of plugins. Where there is one, an arrival comes with `Arrival`."""
        self.on_policy_error: Callable[[Policy, Exception], None] = lambda policy, error: None
        self.on_error: Callable[[Exception], None] = lambda error: None
        """Told what a waiter's callback has raised."""
        self._late = _Late()
        """To be woken in `wake_late`."""
        self._wakes_late = False
        """`wake_late` is to come, or is under way."""
        self.is_long: Callable[[], bool] = lambda: False
        """Whether enough was done in one go."""
        self.on_late: Callable[[], None] = lambda: None
        """Called when there is something for `wake_late` that nobody knows of yet."""

    def __len__(self) -> int:
        return self._count

    def park(self, held: Held, mono_ms: int) -> None:
        """Hold a request. Its deadline is cut to `max_suspend`, or to `short_polling` where long polling is off."""
        assert held.missing_bytes > 0 and not held.held
        longest = self._settings.max_suspend_ms if self._settings.long_polling else self._settings.short_polling_ms
        held.deadline_ms = min(held.deadline_ms, mono_ms + longest)
        held.held = True
        held.left = False
        for partition in held.partitions:
            self._by_partition.setdefault(partition, {})[held] = None
        self._by_owner.setdefault(held.owner, {})[held] = None
        self._sequence += 1
        held.entry = self._sequence
        heapq.heappush(self._deadlines, (held.deadline_ms, self._sequence, held))
        self._count += 1
        self.counters.parked += 1
        if self._deadlines[0][2] is held:
            self.on_deadline(held.deadline_ms)
        for policy in self.policies:
            self._ask(policy, policy.on_park, held)

    def release(self, held: Held) -> bool:
        """Forget a request without waking it; False if it was not held any more."""
        if not held.held:
            return False
        held.held = False
        self._count -= 1
        for partition in held.partitions:
            waiting = self._by_partition.get(partition)
            if waiting is not None and waiting.pop(held, held) is None and not waiting:
                del self._by_partition[partition]
        owned = self._by_owner[held.owner]
        owned.pop(held, None)
        if not owned:
            del self._by_owner[held.owner]
        self._trim()
        return True

    def on_arrival(self, partition: Hashable, nbytes: int, arrival: object = None) -> None:
        """`nbytes` of messages became visible in `partition`; `arrival` is what a `match` gets to see."""
        waiting = self._by_partition.get(partition)
        if not waiting:
            return
        woken = []
        for held in waiting:
            if held.match is not None:
                try:
                    if not held.match(partition, arrival):
                        continue
                except Exception as error:
                    self.on_error(error)
                    woken.append(held)
                    continue
            if self.policies and not self._agree(held, partition, arrival):
                continue
            held.missing_bytes -= nbytes
            if held.missing_bytes <= 0:
                woken.append(held)
        for held in woken:
            self.wake(held)

    def expire(self, mono_ms: int) -> None:
        """Wake every request whose deadline has come; not those that are parked again on the way."""
        due = []
        while self._deadlines and self._deadlines[0][0] <= mono_ms:
            _, entry, held = heapq.heappop(self._deadlines)
            if held.held and held.entry == entry:
                due.append((entry, held))
        for entry, held in due:
            if held.entry == entry and self.release(held):
                self.counters.woken_by_deadline += 1
                for policy in self.policies:
                    self._ask(policy, policy.on_expire, held)
                self._wake(held)

    def next_deadline(self) -> int | None:
        """When `expire` has work again (monotonic ms); None while nothing is held."""
        deadlines = self._deadlines
        while deadlines and not _is_current(deadlines[0]):
            heapq.heappop(deadlines)
        return deadlines[0][0] if deadlines else None

    def check(self) -> None:
        """Wake whoever could be answered although nobody told (B12); called every `check_interval`."""
        ready = [h for waiting in self._by_owner.values() for h in waiting if self._is_ready(h)]
        for held in ready:
            if self.release(held):
                self.counters.woken_by_check += 1
                self._wake(held)

    def look_at(self, partitions: Iterable[Hashable]) -> None:
        """Wake whoever waits on one of these partitions and could be answered now: there is more to be read of what had
        arrived before. Each request is asked once: that may cost it a look at all that it waits for."""
        waiting = {held: None for partition in partitions for held in self._by_partition.get(partition, ())}
        for held in waiting:
            if self._is_ready(held):
                self.wake(held)

    def wake_partition(self, partition: Hashable) -> None:
        """Wake everybody who waits on a partition, whatever they miss: it was deleted, or its start moved."""
        for held in self.waiting(partition):
            if self.release(held):
                self._wake(held)

    def waiting(self, partition: Hashable) -> list[Held]:
        """Who waits on a partition, in the order they came."""
        return list(self._by_partition.get(partition, ()))

    def wake(self, held: Held) -> None:
        """Something has come for this one, unless it is held no more."""
        if self.release(held):
            self.counters.woken_by_arrival += 1
            self._wake(held)

    def wake_late(self) -> None:
        """Wake those who were put off, one at least and as many as `is_long` allows."""
        late = self._late
        while late:
            self._call(late.next())
            if late and self.is_long():
                self.on_late()
                return
        self._wakes_late = False

    def put_off(self, work: Callable[[], None]) -> bool:
        """Whether enough was done in this turn, so that `work` comes in a later one, behind those who were put off
        before; it is the caller's to do where not. For other answers of which a thousand may be due together."""
        if not self._late and not self.is_long():
            return False
        held = Held((), 1, 0, None, work)
        self._wake_late(held, held)  # an owner of its own: it belongs to nobody here
        return True

    def drop(self, owner: object) -> None:
        """Forget all requests of an owner that is gone; none is woken."""
        for held in self._late.take(owner):
            _let_go(held)
        for held in list(self._by_owner.get(owner, ())):
            self.release(held)
            _let_go(held)
            self.counters.dropped += 1

    def _wake(self, held: Held) -> None:
        if self._late or self.is_long():
            self._wake_late(held.owner, held)
        else:
            self._call(held)

    def _wake_late(self, owner: object, held: Held) -> None:
        self._late.add(owner, held)
        if not self._wakes_late:
            self._wakes_late = True
            self.on_late()

    def _call(self, held: Held) -> None:
        try:
            held.wake()
        except Exception as error:
            self.on_error(error)

    def _is_ready(self, held: Held) -> bool:
        if held.ready is None or held.left:
            return False
        try:
            return held.ready()
        except Exception as error:
            self.on_error(error)
            return True

    def _agree(self, held: Held, partition: Hashable, arrival: object) -> bool:
        """Whether all policies let an arrival count. One that raises has the request answered with what there is."""
        for policy in self.policies:
            try:
                if not policy.matches(held, partition, arrival):
                    held.left = True
                    return False
            except Exception as error:
                self._failed(policy, error)
                held.missing_bytes = 0
                break
        held.left = False
        return True

    def _ask(self, policy: Policy, call: Callable[[Held], None], held: Held) -> None:
        try:
            call(held)
        except Exception as error:
            self._failed(policy, error)

    def _failed(self, policy: Policy, error: Exception) -> None:
        self.counters.policy_errors += 1
        self.on_policy_error(policy, error)

    def _trim(self) -> None:
        """Keep the heap from filling with requests that were woken long before their deadline."""
        if len(self._deadlines) > 64 and len(self._deadlines) > 4 * self._count:
            self._deadlines = [entry for entry in self._deadlines if _is_current(entry)]
            heapq.heapify(self._deadlines)


def _let_go(held: Held) -> None:
    """Who asked mostly points at what it is parked as: no garbage collection is needed."""
    held.wake, held.match, held.ready = _nobody, None, None


def _nobody() -> None:
    """Wakes nobody."""


def _is_current(deadline: tuple[int, int, Held]) -> bool:
    _, entry, held = deadline
    return held.held and held.entry == entry
