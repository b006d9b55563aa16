"""The threads that call listeners.

Works stand in one deque, from which whoever is free takes the next. Waking a thread costs more than a quick listener
takes, so at most one is being woken at a time: it wakes the next one if there is more to do when it runs. With a
listener that does nothing one thread does it all; with one that blocks, all are at work after that many switches.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from halfmoon.client.engine.listening import Status, Work, said
from halfmoon.client.making import now_ms

log = logging.getLogger("halfmoon.client.consumer")


class ListenerPool:
    """At most `most` threads, started when they are needed."""

    def __init__(
        self, name: str, most: int, finished: Callable[[Work, Status | None, BaseException | None], Any]
    ) -> None:
        self._name = name
        self._most = most
        self._finished = finished
        self._works: deque[Work | Callable[[], object]] = deque()
        self._idle: list[_Thread] = []
        self._threads: list[_Thread] = []
        self._is_waking = False
        self._is_stopping = False

    def submit(self, works: Sequence[Work | Callable[[], object]]) -> None:
        """Works, or functions that are just called."""
        self._works.extend(works)
        if not self._is_waking:
            self._wake()

    def _wake(self) -> None:
        try:
            thread = self._idle.pop()
        except IndexError:
            if len(self._threads) < self._most and not self._is_stopping:
                self._is_waking = True
                thread = _Thread(self, f"halfmoon-listener {self._name} {len(self._threads)}")
                self._threads.append(thread)
                try:
                    thread.start()
                except RuntimeError as error:
                    self._threads.remove(thread)
                    self._is_waking = False  # those that are there do it, or the next submit tries again
                    log.error("event=thread_not_started error=%s", error)
        else:
            self._is_waking = True
            thread.gate.release()

    def work(self, thread: _Thread) -> None:
        """What each thread does."""
        works = self._works
        self._is_waking = False
        while True:
            try:
                work = works.popleft()
            except IndexError:
                if self._is_stopping:
                    return
                self._idle.append(thread)
                if works or self._is_stopping:  # came before we were idle
                    try:
                        self._idle.remove(thread)
                    except ValueError:
                        thread.gate.acquire()  # somebody has just woken us
                        self._is_waking = False
                    continue
                thread.gate.acquire()
                self._is_waking = False
                continue
            if works and not self._is_waking:
                self._wake()
            if isinstance(work, Work):
                if not work.is_over:
                    self._call(work)
            else:
                try:
                    work()
                except BaseException:  # SystemExit, too: it would end our thread, and no other would take its place
                    log.exception("event=callback_failed")

    def _call(self, work: Work) -> None:
        status: Any = None
        failure: BaseException | None = None
        if work.process_queue.is_dropped:
            work.is_skipped = True  # somebody else has the queue, and these messages
            self._finished(work, None, None)
            return
        work.began_ms = now_ms()
        try:
            status = work.listener(work.messages, work.context)
        except BaseException as error:  # SystemExit, too: it would end our thread, and leave the messages to nobody
            failure = error
        else:
            if inspect.isawaitable(status):
                if inspect.iscoroutine(status):
                    status.close()
                failure = TypeError("a listener here is no `async def`; see halfmoon.client.aio")
        if failure is None:
            status, failure = said(work, status)
        self._finished(work, None if failure is not None else status, failure)

    def stop(self, timeout_s: float) -> None:
        """Threads end when their listener does; they are waited for so long."""
        self._is_stopping = True
        self._works.clear()
        while self._idle:
            self._idle.pop().gate.release()
        until_ms = now_ms() + 1e3 * timeout_s
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, (until_ms - now_ms()) / 1e3))


class _Thread(threading.Thread):
    def __init__(self, pool: ListenerPool, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._pool = pool
        self.gate = threading.Lock()
        self.gate.acquire()

    def run(self) -> None:
        self._pool.work(self)
