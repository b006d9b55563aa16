"""A process that stands by: it has imported what a worker is made of, and becomes the next one that is needed.

Importing takes most of a worker's start. So who dies is replaced by one that has that behind it.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from typing import NamedTuple

logger = logging.getLogger("halfmoon.server")

AFTER_S = 1.0
"""So long after a worker is ready, which has much to do then."""
ENDS_S = 10.0
PROGRAM = "halfmoon.server.workers"
"""The module that a worker's process runs. The testing kit has one of its own."""


class Spawned(NamedTuple):
    """A process that waits for its orders (orders.py)."""

    process: asyncio.subprocess.Process
    control: socket.socket


async def spawn() -> Spawned:
    """Raises OSError. The process hears nothing of SIGINT, from its first instruction on: a terminal's goes to all, and
    the supervisor says when to end."""
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            command = [sys.executable, "-m", PROGRAM, str(theirs.fileno())]
            signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))  # which is inherited
            try:
                process = await asyncio.create_subprocess_exec(*command, pass_fds=[theirs.fileno()])
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))
    except BaseException:
        ours.close()
        raise
    return Spawned(process, ours)


class Spare:
    """One at most. Used in the loop."""

    def __init__(self) -> None:
        self._spare: Spawned | None = None
        self._starting: asyncio.Task[None] | None = None

    def prepare(self) -> None:
        """Have one soon."""
        if self._spare is None and self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._start())

    async def take(self) -> Spawned:
        """A process for a worker. Raises OSError."""
        spare, self._spare = self._spare, None
        if spare is not None:
            if spare.process.returncode is None:
                return spare
            spare.control.close()
        return await spawn()

    async def stop(self) -> None:
        starting, self._starting = self._starting, None
        if starting is not None:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
        spare, self._spare = self._spare, None
        if spare is None:
            return
        spare.control.close()  # it ends then
        try:
            await asyncio.wait_for(spare.process.wait(), ENDS_S)
        except TimeoutError:
            spare.process.kill()
            await spare.process.wait()

    async def _start(self) -> None:
        try:
            await asyncio.sleep(AFTER_S)
            self._spare = await spawn()
        except OSError as error:
            logger.warning("event=no_spare_worker error=%s", error)
        finally:
            self._starting = None
