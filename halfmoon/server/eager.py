"""Keeps the loop awake for a moment where the next small request is about to come.

A client that sends one message at a time lets the broker fall asleep after each, and waking a processor that sleeps
takes longer than the request: 35 µs, and more in a virtual machine, beside 30 µs of work. So after a turn that wrote
little, the loop looks for new events without sleeping, for SPIN_S. It does so only if the request before came as soon,
so that somebody who sends 500 messages a second costs nothing; and never after large batches, where throughput counts
and the processor is better left to the clients. At each look the processor is offered to whoever else wants it. Where
somebody takes it for long (the cleaner's process, say, which has a lower priority, gets a whole slice of some ms by
it), the loop does better to sleep, since who wakes is let in at once: then it looks no more for a while. The while is
short after a single event, which any machine has some of every second, and doubles where it goes on like that.

Where the next request was there at each of the last looks (a client that has several in the air), the loop would not
have slept either. Then it looks after one turn of many only.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

SPIN_S: Final = 120e-6
"""How long to look for the next request: Java's client comes 90 µs after its answer."""

SOON_S: Final = 150e-6
"""A request that came so soon after the turn before would have been worth looking for; the wake-up is included."""

TAKEN_S: Final = 500e-6
"""The processor was away for long when it came back after this."""

FIRST_REST_S: Final = 0.02
LONGEST_REST_S: Final = 5.0

BUSY_LOOKS: Final = 8
"""So many looks in turn that found a request make it busy: …"""
BUSY_TURNS: Final = 64
"""… after so many turns it looks again."""

SMALL_BYTES: Final = 4 << 10
"""More than this in a turn is not a single small request."""


class Eager:
    """One per loop."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], clock: Callable[[], float]) -> None:
        """`call_soon`: the loop's. `clock`: seconds, monotonic."""
        self._call_soon = call_soon
        self._clock = clock
        self._ended_s = 0.0
        self._until_s = 0.0
        self._rest_s = 0.0
        self._rests_until_s = 0.0
        self._looking = False
        self._turned = False
        """Since the last look."""
        self._found = 0
        """Looks in turn that found a request."""
        self._left_out = 0
        """Turns after which it need not look."""

    def turned(self, begun_s: float, wrote_bytes: int) -> None:
        """A turn that began at `begun_s` is over."""
        now_s = self._clock()
        soon = begun_s - self._ended_s < SOON_S
        self._ended_s = now_s
        self._turned = True
        if soon and wrote_bytes <= SMALL_BYTES and now_s >= self._rests_until_s:
            self._until_s = now_s + SPIN_S
            if self._left_out:
                self._left_out -= 1
            elif not self._looking:
                self._looking = True
                self._call_soon(self._look)

    def _look(self) -> None:
        # While something is to be called soon, the loop asks for events without waiting for them.
        if self._turned:
            self._turned = False
            self._found += 1
            if self._found <= BUSY_LOOKS:
                self._call_soon(self._look)
            else:  # the next time one look will do, unless it finds nothing
                self._found, self._left_out, self._looking = BUSY_LOOKS - 1, BUSY_TURNS, False
            return
        self._found = 0
        now_s = self._clock()
        if now_s < self._until_s:
            os.sched_yield()
            back_s = self._clock()
            if back_s - now_s > TAKEN_S:
                self._rest(back_s)
            self._call_soon(self._look)
        else:
            self._looking = False

    def _rest(self, now_s: float) -> None:
        calm = now_s - self._rests_until_s > self._rest_s
        self._rest_s = FIRST_REST_S if calm else min(2 * self._rest_s, LONGEST_REST_S)
        self._rests_until_s = now_s + self._rest_s
