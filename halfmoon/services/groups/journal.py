"""What the coordinator decides, carried out: group states are written to the log, and answers wait until what they rest
on is durable.

A rebalance may answer thousands at once. Those for whom a turn of the loop is too short are answered in the next ones,
in the same order; what they are told was decided, and written, before.

A group of which the last change could not be written is refused every answer until a write succeeds: no member may be
told a generation that could come again after a crash.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, cast

from halfmoon.core.append import Appender
from halfmoon.core.clock import Clock
from halfmoon.core.timers import Timers
from halfmoon.core.turn import Turn
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema import control
from halfmoon.schema.groups import GroupRecord
from halfmoon.services.groups.coordination import Coordination
from halfmoon.services.groups.messages import (
    ConsumerHeartbeatResult,
    Effect,
    HeartbeatResult,
    JoinResult,
    Persist,
    SyncResult,
)


class Asked(NamedTuple):
    """A request that waits for an answer about a group: the token that the coordinator is given."""

    group: str
    reply: Callable[[Any], None]


class GroupJournal:
    """Of one broker."""

    def __init__(
        self,
        coordination: Coordination,
        appender: Appender,
        turn: Turn,
        timers: Timers,
        clock: Clock,
        put_off: Callable[[Callable[[], None]], bool],
        logger: logging.Logger,
    ) -> None:
        """`put_off(work)`: whether this turn has taken long enough, so that it does this later (HoldService)."""
        self._coordination = coordination
        self._appender = appender
        self._turn = turn
        self._timers = timers
        self._clock = clock
        self._put_off = put_off
        self._logger = logger
        self._written = 0
        """Where the last group state is."""
        self._unwritten: dict[str, BrokerError] = {}
        """Groups of which the last change could not be written, and why."""

    def carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Persist):
                saved = effect.record
                kind = control.GroupSaved if isinstance(saved, GroupRecord) else control.ConsumerGroupSaved
                try:
                    self._written = self._appender.append_control(kind(saved, self._clock.wall_ms()))
                except BrokerError as error:
                    if saved.group not in self._unwritten:
                        self._logger.error("event=group_not_written group=%s error=%s", saved.group, error)
                    self._unwritten[saved.group] = error
                    self._coordination.not_saved(saved.group)
                else:
                    self._unwritten.pop(saved.group, None)
            else:
                self._reply(cast(Asked, effect.token), effect.result)
        self.arm()

    def arm(self) -> None:
        """Have the coordinator called when it next has something to do."""
        deadline_ms = self._coordination.next_deadline()
        if deadline_ms is not None:
            self._timers.arm(deadline_ms)

    def write_again(self, group: str) -> None:
        """What could not be written of a group is tried again before anything else happens to it: a heartbeat that
        changes nothing would write nothing."""
        if group in self._unwritten:
            self.carry_out(self._coordination.save_again(group))

    def delete(self, group: str) -> int:
        """Write down that a group is gone; returns the log position to wait for. Raises BrokerError."""
        position = self._appender.append_control(control.GroupDeleted(group))
        self._unwritten.pop(group, None)
        return position

    def _reply(self, asked: Asked, result: JoinResult | SyncResult | HeartbeatResult | ConsumerHeartbeatResult) -> None:
        reply = asked.reply

        def send(error: BrokerError | None) -> None:
            if not self._put_off(partial(answer, error)):
                answer(error)

        def answer(error: BrokerError | None) -> None:
            if error is None:
                reply(result)
            elif isinstance(result, JoinResult):
                reply(JoinResult(Fault.COORDINATOR_NOT_AVAILABLE, result.member_id))
            elif isinstance(result, HeartbeatResult):
                reply(HeartbeatResult(Fault.COORDINATOR_NOT_AVAILABLE))
            elif isinstance(result, ConsumerHeartbeatResult):
                reply(ConsumerHeartbeatResult(Fault.COORDINATOR_NOT_AVAILABLE, str(error)))
            else:
                reply(SyncResult(Fault.COORDINATOR_NOT_AVAILABLE))

        unwritten = self._unwritten.get(asked.group)
        if unwritten is not None:
            send(unwritten)
        else:
            self._turn.when_durable(self._written, send)
