"""What the kit has in each process of a broker: its clock, and the rules for its requests.

The test's process asks it by `answer`, in the broker's loop: directly where the broker is a thread of that process,
else over a socket (`remote`). Each question is JSON, and so is its answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from halfmoon.core.hold import HoldService
from halfmoon.services.groups.service import GroupService
from halfmoon.services.share.service import ShareService
from halfmoon.testing.moved_clock import MovedClock
from halfmoon.testing.state import State

if TYPE_CHECKING:
    from halfmoon.adapters.tcp.interposing import Rule
    from halfmoon.core.clock import Clock
    from halfmoon.core.timers import Timers
    from halfmoon.server.instruments import Instrumented
    from halfmoon.server.interposing import Interposed

QUIET_S: Final = 5.0
"""What has not come to rest by then is not waited for."""
CALM: Final = 3
"""Looks in a row that have to find nothing to do."""
LOOK_S: Final = 0.0005


class Instrument:
    """See server/instruments.Instruments."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._clock: MovedClock | None = None
        self._broker: Instrumented | None = None
        self._interposed: Interposed | None = None

    def clock(self, machine: Clock) -> Clock:
        self._clock = MovedClock(machine, self._state.ahead_ms)
        return self._clock

    async def began(self, broker: Instrumented) -> None:
        self._broker = broker
        self._spare_connections()
        if self._state.rules:
            self.set_rules(self._state.rules)

    async def ended(self) -> None:
        self._broker = self._interposed = None

    async def answer(self, question: str, told: Mapping[str, Any]) -> Any:
        """Raises ValueError for what makes no sense."""
        match question:
            case "due":
                return self.due_ms(silent=told["silent"])
            case "move":
                self.move(told["by_ms"], silent=told["silent"])
                return await self.rest()
            case "rest":
                return await self.rest()
            case "retain":
                return await self.retain()
            case "rules":
                return self.set_rules(told["rules"])
            case "cut":
                return self.cut(told["client"])
            case "pid":
                return os.getpid()
        raise ValueError(f"nobody knows {question!r}")

    # -- time ----------------------------------------------------------------------------------------------------------

    def due_ms(self, *, silent: bool) -> int | None:
        """In how many milliseconds something is due; None: nothing waits for a time. What clients wait for at most is
        none of it. Nor is their silence, unless they are `silent`."""
        spared: tuple[type[Any], ...] = (HoldService,) if silent else (HoldService, GroupService)
        now_ms = self._now().mono_ms()
        found = [
            deadline_ms - now_ms
            for timers in self._timers()
            for owner in timers.owners
            if not isinstance(owner, spared) and (deadline_ms := owner.next_deadline()) is not None
        ]
        # What is due already and was not done has failed, and rests.
        return min((left_ms for left_ms in found if left_ms > 0), default=None)

    def move(self, by_ms: int, *, silent: bool) -> None:
        """Have so much time pass at once. `silent`: nobody has sent anything meanwhile; else members of groups are not
        missed for it."""
        self._now().ahead_ms += by_ms
        broker = self._running()
        self._spare_connections()
        if not silent:
            for part in broker.parts:
                part.node.groups.put_off(by_ms)
                shares = part.node.services.find(ShareService)
                if shares is not None:
                    shares.put_off(by_ms)
            for server in broker.rocketmqs:
                server.node.put_off(by_ms)
        for timers in self._timers():
            timers.on_deadline(0)  # whatever was set before, by the time of before

    async def rest(self) -> int:
        """Returns when nothing is under way that was due: how far the logs have come, in all."""
        loop = asyncio.get_running_loop()
        until_s, calm = loop.time() + QUIET_S, 0
        while calm < CALM and loop.time() < until_s:
            for part in self._running().parts:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(part.ticker.settled(), QUIET_S)
            await asyncio.sleep(0 if calm else LOOK_S)
            calm = calm + 1 if self._is_at_rest() else 0
        return sum(part.node.kernel.log.end for part in self._running().parts)

    def _is_at_rest(self) -> bool:
        now_ms = self._now().mono_ms()
        return all(
            part.node.kernel.relays.is_idle and part.node.kernel.log.written == part.node.kernel.log.end
            for part in self._running().parts
        ) and not any(_is_due(timers, now_ms) for timers in self._timers())

    async def retain(self) -> None:
        """What runs once a minute: what is too old goes."""
        for part in self._running().parts:
            while not part.node.kernel.housekeeping.retain():
                await asyncio.sleep(0)
            part.ticker.begin_job()

    def _timers(self) -> Iterator[Timers]:
        broker = self._running()
        for part in broker.parts:
            yield part.node.kernel.timers
        yield from broker.common_timers

    def _spare_connections(self) -> None:
        """They grow old by the machine's clock: no client has slept."""
        broker = self._running()
        for server in (broker.kafka, *broker.rocketmqs):
            server.clock = self._now().machine

    # -- requests ------------------------------------------------------------------------------------------------------

    def set_rules(self, rules: Sequence[Mapping[str, Any]]) -> None:
        """In the place of those of before. Raises ValueError for an API that nobody has."""
        if self._interposed is None:
            from halfmoon.server.interposing import Interposed  # few need it

            self._interposed = Interposed(self._running(), asyncio.get_running_loop().call_later)
        made = [_rule(each) for each in rules]
        self._interposed.set(made)

    def cut(self, client: str | None) -> int:
        """Close connections: how many they were."""
        broker = self._running()
        return sum(server.cut(client) for server in (broker.kafka, *broker.rocketmqs))

    def _running(self) -> Instrumented:
        if self._broker is None:
            raise ValueError("the broker is not running")
        return self._broker

    def _now(self) -> MovedClock:
        assert self._clock is not None
        return self._clock


def _is_due(timers: Timers, now_ms: int) -> bool:
    deadline_ms = timers.next_deadline()
    return deadline_ms is not None and deadline_ms <= now_ms


def _rule(told: Mapping[str, Any]) -> Rule:
    from halfmoon.adapters.tcp.interposing import Rule
    from halfmoon.testing.counting import Counting

    apis: Collection[str] = told["apis"]
    counting = told["counting"]
    return Rule(
        told["kind"], frozenset(apis), told["client"], Counting(counting).take, told["code"], told["delay_s"]
    )  # fmt: skip
