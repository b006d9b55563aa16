"""Gives the relays (core/relay.py) their turns in the event loop: little at a time, so that clients do not notice.

Requests that have come meanwhile are read between two turns. What has to wait for the disk, or takes long without
needing the interpreter (compression), runs in a thread.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from halfmoon.core.relay import Loading, Relays

TURN_S = 0.001
"""So long is worked before the loop is given back; the step that is under way is ended."""
PAUSE_S = 0.001
"""Between two turns, where all was done in the first: what comes in so long is worth one turn, which costs as much as a
request."""


class Relaying:
    """Start it once the broker is open; stop it before the ticker."""

    def __init__(self, relays: Relays, loop: asyncio.AbstractEventLoop) -> None:
        self._relays = relays
        self._loop = loop
        self._thread = ThreadPoolExecutor(1, "halfmoon-relay")
        self._due = False
        """A turn is to come."""
        self._next_s = 0.0
        """The next turn is at this time at the earliest, unless something was left to do."""
        self._stopped = False

    def start(self) -> None:
        self._relays.on_ready = self._ready
        if self._relays.has_work:
            self._ready()

    async def stop(self) -> None:
        """No more turns; waits for what runs in the thread."""
        self._stopped = True
        self._relays.on_ready = lambda: None
        await asyncio.to_thread(self._thread.shutdown)

    def _ready(self) -> None:
        if not self._due:
            self._due = True
            if time.perf_counter() < self._next_s:
                self._loop.call_later(PAUSE_S, self._turn)
            else:
                self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        if self._stopped:
            return
        relays = self._relays
        until_s = time.perf_counter() + TURN_S
        while relays.has_work:
            loading = relays.step()
            if loading is not None:
                self._load(loading)
            if time.perf_counter() >= until_s:
                break
        self._due = relays.has_work
        if self._due:
            self._loop.call_soon(self._turn)
        else:
            self._next_s = time.perf_counter() + PAUSE_S

    def _load(self, loading: Loading) -> None:
        def ended(done: Future[Any]) -> None:
            self._loop.call_soon_threadsafe(self._loaded, loading, done)

        self._thread.submit(loading.load).add_done_callback(ended)

    def _loaded(self, loading: Loading, done: Future[Any]) -> None:
        if self._stopped:
            return
        error = done.exception()
        if error is None:
            loading.loaded(done.result())
        else:
            loading.failed(error if isinstance(error, Exception) else RuntimeError(str(error)))
