"""One scenario: a broker, its clients, and what happens to them; from a seed, and the same each time.

    play      clients work, while fate kills the process, cuts the power, breaks and fills the disk, and sets the clock
    heal      nothing bad happens any more; clients end what they have begun, what waits becomes due
    check     everything is read, as any client can read it, and held against what was promised
    restart   the power goes a last time, and it is checked again

Which clients take part, and what fate does, is drawn for each seed: what is left out of one leaves more room to others.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import traceback
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

from halfmoon.errors import HalfmoonError
from halfmoon.testing.faulty_files import ProcessDied
from tests.kafka_messages import struct_of
from tests.slices import checked_snapshots, small_slices
from tests.torture import process
from tests.torture.fate import Fate
from tests.torture.loop import BEGIN_S, Clock, HangsError, VirtualLoop
from tests.torture.model import Model, Violation
from tests.torture.net import Client, LostError
from tests.torture.process import Machine
from tests.torture.producer import Producer

CREATE = 19
TOPIC_EXISTS = 36
HEALS_S = 900.0
"""So long after the last fault everything must be in order."""
STEPS = 8
"""Strokes of fate."""


class World:
    def __init__(self, seed: int, *, steps: int = STEPS, only: str = "", verbose: bool = False) -> None:
        """`steps`: strokes of fate. `only`: names of actors, with commas."""
        self.seed = seed
        self.dice = random.Random(seed)
        self.loop = VirtualLoop(self.dice)
        self.clock = Clock(self.loop)
        self.flush = "sync" if self.dice.random() < 0.8 else "interval"
        self.slices = small_slices() if self.dice.random() < 0.5 else contextlib.nullcontext()
        self.machine = Machine(self.loop, self.clock, process.settings(self.dice, self.flush))
        self.machine.on_died = self._died
        self.model = Model()
        self.steps = steps
        self.only = only
        self.verbose = verbose
        self.clients: list[Client] = []
        self.ending = False
        """Clients begin nothing new."""
        self.healed = False
        self.died = asyncio.Event()
        self.violations: list[str] = []
        self.history: list[str] = []
        self.fate = Fate(self)
        self.leaps = 0
        """How often somebody has set the clock."""
        self.largest_leap_s = 0.0
        """All of them together."""
        self.actors: list[str] = []

    @property
    def lasted_s(self) -> float:
        return self.loop.now_s - BEGIN_S

    @property
    def requests(self) -> int:
        return sum(client.requests for client in self.clients)

    @property
    def digest(self) -> int:
        """Of the history: the same for the same seed."""
        told = [*self.history, f"{self.loop.now_s:.9f} {self.requests} {sorted(self.model.counts.items())}"]
        return zlib.crc32("\n".join(told).encode())

    @property
    def clock_is_set(self) -> bool:
        """Whether that is among what may happen."""
        return self.fate.may_set_clock

    # -- what actors use -----------------------------------------------------------------------------------------------

    def client(self, name: str) -> Client:
        made = Client(self.machine, name)
        self.clients.append(made)
        return made

    async def producer(self, name: str) -> Producer:
        made = Producer(self.client(name), self.model, self.loop, self.clock.wall_ms)
        await made.begin()
        return made

    def note(self, what: str) -> None:
        line = f"{self.loop.now_s:12.6f} {what}"
        self.history.append(line)
        if self.verbose:
            print(line, flush=True)

    async def rest(self, most_s: float = 1.0) -> None:
        await asyncio.sleep(self.dice.uniform(0, most_s))

    async def create(self, client: Client, name: str, partitions: int, **configs: str) -> None:
        """Until the broker says that it is there."""
        settings = [
            struct_of(CREATE, "CreatableTopic.CreatableTopicConfig")(name=key.replace("__", "."), value=value)
            for key, value in configs.items()
        ]
        wanted = struct_of(CREATE, "CreatableTopic")(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=settings
        )
        while True:
            try:
                answer = await client.ask(CREATE, 5, topics=[wanted], timeout_ms=10_000, validate_only=False)
            except LostError:
                continue
            code = answer.topics[0].error_code
            if code in (0, TOPIC_EXISTS):
                return
            if code not in (7, 56):
                raise Violation(f"creating {name} got {code} {answer.topics[0].error_message}")
            await self.rest()

    def run_actor(self, name: str, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        async def run() -> None:
            try:
                await work()
            except asyncio.CancelledError:
                raise
            except Violation as broken:
                self.violate(f"{name}: {broken}")
            except Exception:
                self.violate(f"{name}: {traceback.format_exc()}")

        return self.loop.create_task(run())

    def violate(self, what: str) -> None:
        self.note(f"VIOLATION {what}")
        self.violations.append(what)
        self.loop.stop()

    # -- the process ---------------------------------------------------------------------------------------------------

    def _died(self) -> None:
        self.note("died at an operation of the disk")
        self.died.set()
        self._disconnect()

    def _disconnect(self) -> None:
        for client in self.clients:
            self.loop.call_later(self.loop.some_s(), client.drop)

    def end(self) -> None:
        """kill −9"""
        self.machine.end()
        self._disconnect()

    async def start(self) -> None:
        """Until it runs. What it finds may kill it again, or be too full to begin."""
        self.died.clear()
        while True:
            try:
                await self.machine.start()
            except ProcessDied:
                self.note("died while starting")
                self.machine.fs = self.machine.fs.kill() if self.dice.random() < 0.5 else self.machine.fs.power_loss()
                self._after()
            except HalfmoonError as error:
                raise Violation(f"it does not start: {error!r}") from error
            else:
                self.note("started")
                self.model.counts["starts"] += 1
                return

    def _after(self) -> None:
        """A new disk: the faults of the old one are gone, but for what they have done."""
        self.machine.fs.crash_at = 0

    # -- the whole -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Raises nothing; see `violations`."""
        gc.disable()
        handler = _Complaints(self)
        root = logging.getLogger("halfmoon")
        level, propagate = root.level, root.propagate
        root.addHandler(handler)
        root.setLevel(logging.INFO)
        root.propagate = False
        self.loop.set_exception_handler(self._unhandled)
        try:
            with self.machine.running(), checked_snapshots(), self.slices:
                self.loop.run_until_complete(self._whole())
        except (Violation, HangsError) as broken:
            self.violate(repr(broken))
        except Exception:
            if not self.violations:  # which stop the loop
                self.violate(traceback.format_exc())
        finally:
            root.removeHandler(handler)
            root.setLevel(level)
            root.propagate = propagate
            self.machine.end()
            self._end_tasks()
            gc.enable()

    def _end_tasks(self) -> None:
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        self.loop.set_exception_handler(lambda *_: None)
        with contextlib.suppress(HangsError, RuntimeError):
            self.loop.run_until_complete(asyncio.wait(tasks, timeout=1) if tasks else asyncio.sleep(0))
        self.loop.close()

    def _unhandled(self, loop: object, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if self.violations:
            return
        if isinstance(error, Violation):
            self.violate(str(error))
            return
        if self.machine.raised(error) or isinstance(error, (ProcessDied, LostError)):
            return
        said = "".join(traceback.format_exception(error)) if error is not None else context.get("message")
        self.violate(f"unhandled in the loop: {said}")

    async def _whole(self) -> None:
        from tests.torture.cast import cast

        await self.start()
        actors = await cast(self)
        self.actors = [actor.name for actor in actors]
        tasks = [self.run_actor(actor.name, actor.play) for actor in actors]
        fate = self.fate
        checked = "none"
        try:
            await fate.play()
            await fate.heal()
            self.ending = self.healed = True
            self.note("healed")
            _, open_ = await asyncio.wait(tasks, timeout=HEALS_S)
            if open_:
                names = [actor.name for actor, task in zip(actors, tasks, strict=True) if task in open_]
                raise Violation(f"not at an end {HEALS_S} s after the last fault: {names}")
            for last in (False, True):
                for actor in actors:
                    checked = actor.name
                    await asyncio.wait_for(actor.check(last), HEALS_S + 3 * self.largest_leap_s)
                if not last:
                    self.end()
                    await fate.pause_and_lose(gently=True)
                    await self.start()
        except TimeoutError as error:
            raise Violation(f"the check of {checked} did not end") from error
        except ProcessDied as error:
            raise Violation("the process died after the end of all faults") from error


class _Complaints(logging.Handler):
    """What the broker logs of errors that it did not expect."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.INFO)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        world = self._world
        if record.levelno >= logging.WARNING:
            world.note(f"log {record.levelname} {record.getMessage()}")
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, (OSError, ProcessDied)):
            world.violate(f"logged {record.getMessage()}: {''.join(traceback.format_exception(error))}")
