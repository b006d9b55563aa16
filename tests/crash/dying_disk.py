"""A broker whose disk dies under it: a program, so that any client can be tried on it.

    python -m tests.crash.dying_disk PORT SEED LIVES FLUSH

One life: it serves; then every write, or every fdatasync, fails with EIO, and it goes on serving as a broker does that
has failed; then the power is lost, with all that was not synced (halfmoon/testing/faulty_files.py), and the next life
begins on the same port with what is left. After the last one the disk is well. Each step is a line on stdout: `ready`,
`failed`, `lost`, and `well` for good. It ends when its stdin is closed. It has the topic `t`, of two partitions.
"""

from __future__ import annotations

import asyncio
import random
import sys

import uvloop

from halfmoon.adapters.kafka.server import Server
from halfmoon.config.settings import load_settings
from halfmoon.server.clock import SystemClock
from halfmoon.server.tick import Ticker
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode

TOPIC, PARTITIONS = "t", 2
SERVES_S = (0.2, 1.0)
FAILED_S = (0.3, 1.5)
SYNC_S = 0.005
"""As a disk takes, so that clients have several requests on the way."""


class Life:
    """From a start to a loss of power."""

    def __init__(self, fs: FaultyFileSystem, port: int, flush: str, dice: random.Random) -> None:
        self._fs = fs
        self._port = port
        self._dice = dice
        options = {
            "log.segment_bytes": "1MiB", "log.low_disk_bytes": 0, "log.flush": flush,
            "groups.initial_rebalance_delay": "0ms",
        }  # fmt: skip
        self._settings = load_settings(None, {}, options)

    async def begin(self) -> None:
        loop = asyncio.get_running_loop()
        self._fs.sync_s = SYNC_S
        self._node = BareNode(self._fs, self._settings, SystemClock(), self._dice.randbytes)
        self._node.open()
        self._node.use({})
        self._node.start()
        if self._node.catalog.topic(TOPIC) is None:
            self._node.create_topic(TOPIC, PARTITIONS)
            self._node.turn.flush()
        self._ticker = Ticker(self._node.kernel, loop)
        self._ticker.start()
        self._server = Server(self._node.kernel, self._node.services, self._settings, loop)
        await self._server.start(("127.0.0.1", self._port))

    def fail(self) -> None:
        """Mostly by what leaves open whether a batch is stored."""
        if self._dice.random() < 0.8:
            self._fs.fail_sync = True
        else:
            self._fs.fail_write = True

    async def lose_power(self) -> FaultyFileSystem:
        """What is left of its disk."""
        for connection in list(self._server._connections):
            connection.abort("the power is lost")
        left = self._fs.power_loss()
        self._fs.fail_sync = self._fs.fail_write = True  # nothing that ends now reaches what is left
        await self._server.stop()
        await self._ticker.stop()
        return left


async def lives(port: int, seed: int, count: int, flush: str) -> None:
    dice = random.Random(seed)
    fs = FaultyFileSystem(dice)
    for _ in range(count):
        life = Life(fs, port, flush, dice)
        await life.begin()
        print("ready", flush=True)
        await asyncio.sleep(dice.uniform(*SERVES_S))
        life.fail()
        print("failed", flush=True)
        await asyncio.sleep(dice.uniform(*FAILED_S))
        fs = await life.lose_power()
        print("lost", flush=True)
    await Life(fs, port, flush, dice).begin()
    print("well", flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    given = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(lives(int(given[0]), int(given[1]), int(given[2]), given[3]))
