"""The broker's process under torture: the whole server (halfmoon/server/app.py), but for its machine.

Real are the App with everything it starts: the node with all built-in plugins, recovery, the loop driver, relays, the
Kafka listener and its connections. The disk (halfmoon/testing/faulty_files.py), the clocks, the threads, the loop and
the sockets are the test's.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from halfmoon.adapters.tcp import connection
from halfmoon.adapters.tcp.turns import Turns
from halfmoon.config.settings import Settings, load_settings
from halfmoon.server import app as app_module
from halfmoon.server import relaying, tick
from halfmoon.server.app import App
from halfmoon.services.cleaner import cleaning
from halfmoon.testing.faulty_files import FaultyFileSystem, ProcessDied
from tests.torture.loop import Clock, Pool, ProcessLoop, Seconds, VirtualLoop
from tests.torture.model import Violation

HARD_LIMIT_S = 120.0
"""An orderly stop takes no longer, in virtual time."""


class _Cleaning:
    """In the place of the cleaner's process: the same task, in the thread that would wait for it."""

    def __init__(self, fs: FaultyFileSystem) -> None:
        self.run = partial(cleaning.run, fs)

    def stop(self) -> None:
        pass


class Machine:
    """What the processes run on, one after the other: a disk, clocks, and the loop."""

    def __init__(self, loop: VirtualLoop, clock: Clock, settings: Settings) -> None:
        self.loop = loop
        self.clock = clock
        self.settings = settings
        self.fs = FaultyFileSystem(loop.dice)
        self.process: Process | None = None
        self.on_died: Callable[[], None] = lambda: None
        """The process died at an operation of the disk."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """While it is, the server's code takes from this machine what it takes from one."""
        seconds = Seconds(self.loop)

        def pool(*_: object) -> Pool:
            assert self.process is not None
            return Pool(self.process.loop, self.loop)

        with (
            patch.multiple(
                app_module, OsFileSystem=self._disk, SystemClock=lambda: self.clock, asyncio=_Asyncio(self)
            ),
            patch.object(app_module, "CleaningProcess", lambda *_: _Cleaning(self.fs)),
            patch.multiple(tick, ThreadPoolExecutor=pool, time=seconds),
            patch.multiple(relaying, ThreadPoolExecutor=pool, time=seconds),
            patch.object(app_module, "Turns", lambda: Turns(seconds.perf_counter, seconds.thread_time)),
            patch.object(connection, "perf_counter", seconds.perf_counter),
            patch.object(os, "urandom", self.loop.dice.randbytes),
            patch.object(os, "sched_yield", lambda: None),
        ):  # fmt: skip
            yield

    def _disk(self, _: object) -> FaultyFileSystem:
        fs: Any = self.fs
        fs.root, fs.lock, fs.unlock = Path("torture"), lambda: None, lambda: None
        fs.held_back = SimpleNamespace(hold=lambda count: None)
        return self.fs

    async def start(self) -> None:
        """Start a process on the disk. Raises HalfmoonError, and ProcessDied."""
        assert self.process is None
        self.process = process = Process(self)
        try:
            await process.app.start()
        except BaseException:
            self.end()
            raise

    async def stop(self) -> None:
        """An orderly stop. Raises ProcessDied."""
        assert self.process is not None
        try:
            await asyncio.wait_for(self.process.app.stop(), HARD_LIMIT_S)
        except TimeoutError:
            raise Violation(f"it does not stop within {HARD_LIMIT_S} s") from None
        finally:
            self.end()

    def end(self) -> None:
        """kill −9, as far as the process is concerned. What becomes of the disk is for the caller to say."""
        process, self.process = self.process, None
        if process is not None:
            process.loop.alive = False
            process.loop.accepting = None

    def raised(self, error: object) -> bool:
        """A callback has raised this: whether it was the death of the process."""
        if isinstance(error, ProcessDied) and self.process is not None:
            self.end()
            self.on_died()
        return isinstance(error, ProcessDied)


class _Asyncio:
    """The module `asyncio`, of which the server asks for its loop."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def get_running_loop(self) -> ProcessLoop:
        assert self._machine.process is not None
        return self._machine.process.loop

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)


class Process:
    def __init__(self, machine: Machine) -> None:
        self.loop = ProcessLoop(machine.loop)
        self.app = App(machine.settings)


def settings(dice: random.Random, flush: str) -> Settings:
    """A small broker in which everything happens often."""
    return load_settings(
        {
            "log": {
                "segment_bytes": dice.choice([65_536, 131_072, 262_144]), "flush": flush,
                "index_checkpoint_bytes": dice.choice([8 << 10, 32 << 10]),
                "hot_bytes": dice.choice([0, 64 << 10, 128 << 20]),
                "cleaner": {
                    "interval": "5s", "min_dead_ratio": 0.2, "memory_bytes": dice.choice([500, 1 << 20]),
                    "delete_retention": "10m",
                },
            },
            "groups": {
                "initial_rebalance_delay": "0ms",
                "consumer_session_timeout": "6s",
                "consumer_heartbeat_min": "200ms",
                "share": {
                    "auto_offset_reset": "earliest", "record_lock_duration": "5s", "delivery_count_limit": 4,
                    "session_timeout": "6s", "heartbeat_interval": "1s",
                },
            },
            "plugins": {
                "transaction": {"timeout": "4s", "check_interval": "5s", "check_max": 15},
                "retry": {"max_reconsume_times": 3},
            },
        },
        {}, {},
    )  # fmt: skip
