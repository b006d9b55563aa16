"""What happens to the broker and its machine while clients work."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from halfmoon.testing.faulty_files import ProcessDied

if TYPE_CHECKING:
    from tests.torture.world import World

DERIVED = ("checkpoint", "clean")


class Fate:
    def __init__(self, world: World) -> None:
        self._world = world
        self._dice = world.dice
        strokes = [
            self.kill, self.lose_power, self.die_at_an_operation, self.stop_and_start, self.fail_sync, self.fail_write,
            self.fill_disk, self.use_up_descriptors, self.set_clock, self.cool_down, self.shorten_writes,
            self.break_connections, self.wait,
        ]  # fmt: skip
        if world.flush == "interval":
            # What was acknowledged may go with the power then, as promised; that is not what is tested here.
            strokes = [each for each in strokes if each not in (self.lose_power, self.fail_sync, self.fail_write)]
        count = self._dice.randint(2, len(strokes))
        self._strokes = self._dice.sample(strokes, count)
        self.may_set_clock = self.set_clock in self._strokes

    async def play(self) -> None:
        world = self._world
        for _ in range(world.steps):
            try:
                await asyncio.wait_for(
                    world.died.wait(), self._dice.choice([0.05, 0.5, 3.0, 10.0]) * self._dice.random()
                )
            except TimeoutError:
                stroke = self._dice.choice(self._strokes)
                world.note(f"fate: {stroke.__name__}")
                world.model.counts[f"fate: {stroke.__name__}"] += 1
                await stroke()
            if world.died.is_set():
                await self.rise()

    async def rise(self) -> None:
        """It died by itself, or was ended: what is left of the disk, and a start."""
        await self.pause_and_lose()
        await self._world.start()

    async def pause_and_lose(self, *, gently: bool = False) -> None:
        world, dice = self._world, self._dice
        machine = world.machine
        old = machine.fs
        power = world.flush == "sync" and (gently or dice.random() < 0.5)
        machine.fs = old.power_loss() if power else old.kill()
        world.note("the power is lost" if power else "killed")
        machine.fs.cold = old.cold
        if not gently and dice.random() < 0.2:
            self._lose_derived()
        await asyncio.sleep(dice.uniform(0.01, 2.0))

    def _lose_derived(self) -> None:
        fs = self._world.machine.fs
        wanted = self._dice.choice(["checkpoint", "index", "all"])
        for path in list(fs.names):
            index = path.startswith("index/") or (path.endswith(".index") and wanted == "all")
            if (path in DERIVED and wanted != "index") or (index and wanted != "checkpoint"):
                fs.remove(path)
        for folder in ("", "index", "cleaned"):
            fs.sync_directory(folder)
        self._world.note(f"lost: {wanted}")

    # -- strokes -------------------------------------------------------------------------------------------------------

    async def wait(self) -> None:
        await self._world.rest(20)

    async def kill(self) -> None:
        self._world.end()
        await self.rise()

    async def lose_power(self) -> None:
        await self.kill()

    async def die_at_an_operation(self) -> None:
        fs = self._world.machine.fs
        fs.crash_at = fs.operations + self._dice.randint(1, 60)
        await self._until_dead(5)

    async def _until_dead(self, most_s: float) -> None:
        try:
            await asyncio.wait_for(self._world.died.wait(), self._dice.uniform(0, most_s))
        except TimeoutError:
            pass

    async def stop_and_start(self) -> None:
        world = self._world
        if self._dice.random() < 0.3:
            world.machine.fs.crash_at = world.machine.fs.operations + self._dice.randint(1, 60)
        try:
            await world.machine.stop()
        except ProcessDied:
            world.note("died while stopping")
        world.end()
        if world.machine.fs.dead:
            await self.rise()
            return
        world.machine.fs.crash_at = 0
        if self._dice.random() < 0.5:
            await self.pause_and_lose()
        else:
            fresh = world.machine.fs.kill()
            fresh.cold = world.machine.fs.cold
            world.machine.fs = fresh
        await world.start()

    async def fail_sync(self) -> None:
        self._world.machine.fs.fail_sync = True
        await self._fail()

    async def fail_write(self) -> None:
        self._world.machine.fs.fail_write = True
        await self._fail()

    async def _fail(self) -> None:
        """The broker that has met an error of its disk is of no use until it is started again."""
        world = self._world
        await world.rest(5)
        fs = world.machine.fs
        fs.fail_sync = fs.fail_write = False
        world.end()
        # Pages of which a sync has failed are clean in the cache and not on the disk. A start after a mere kill finds
        # them, and must not believe that they are safe.
        power = self._dice.random() < 0.5
        world.machine.fs = fs.power_loss() if power else fs.kill()
        world.machine.fs.cold = fs.cold
        world.note(f"{'the power is lost' if power else 'killed'}, after errors of the disk")
        await world.start()

    async def fill_disk(self) -> None:
        fs = self._world.machine.fs
        aside = fs.free
        fs.free = left = self._dice.choice([0, 5_000, 70_000, 300_000])
        await self._until_dead(10)
        now = self._world.machine.fs
        now.free += aside - left

    async def use_up_descriptors(self) -> None:
        fs = self._world.machine.fs
        fs.no_descriptors = True
        await self._until_dead(10)
        fs.no_descriptors = False

    async def set_clock(self) -> None:
        ms = self._dice.choice([1_000, 60_000, 3_600_000, 3 * 3_600_000])
        leap_ms = self._dice.choice([-1, 1]) * self._dice.randrange(ms)
        self._world.clock.set_by_ms += leap_ms
        self._world.leaps += 1
        self._world.largest_leap_s += abs(leap_ms) / 1000
        self._world.note(f"the clock is {self._world.clock.set_by_ms} ms ahead")

    async def cool_down(self) -> None:
        fs = self._world.machine.fs
        fs.cold = not fs.cold

    async def shorten_writes(self) -> None:
        self._world.machine.fs.short_writes = True

    async def break_connections(self) -> None:
        for client in self._world.clients:
            if self._dice.random() < 0.5:
                client.drop()

    async def heal(self) -> None:
        """Nothing bad happens any more."""
        world = self._world
        fs = world.machine.fs
        fs.crash_at = 0
        if world.died.is_set():
            await self.rise()
