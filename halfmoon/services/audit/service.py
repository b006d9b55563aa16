"""What is recorded of what clients do, and where it goes. Pure: who asks is handed in, lines are handed to sinks.

    denied    what was refused, and who was not let in: at most limit.MOST a second of each, and a count of the rest
    changes   also what was allowed to change something
    all       also everything else that was allowed, and who was let in

Who answers requests asks for `records_changes` and `records_all` once: at `denied` nothing is paid for what is allowed,
and at `changes` nothing but by requests that change something.

A sink takes a line and never fails: what it cannot keep it counts as dropped. An event that is an echo, because it
comes of reading what a sink has written, is not written there again: a reader who is told that it has read would read
for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from halfmoon.config.security_settings import AuditLevel
from halfmoon.core.clock import Clock
from halfmoon.schema.readable_topics import AUDIT_TOPIC
from halfmoon.services.audit import lines
from halfmoon.services.audit.limit import Limit
from halfmoon.services.audit.lines import Decision, Use, Who

PRINCIPALS = 100
"""Who are refused something, and told apart in a second."""
ADDRESSES = 20
"""From which logins fail, likewise. Anybody may have many: all of them together get some 200 lines a second."""


class Why(NamedTuple):
    """What decides a question now."""

    allowed: bool
    reason: str
    rule: str = ""
    """As people write it; empty where no rule decides."""


Explain = Callable[[str, str, Use], Why]
"""(principal, address, what it would do)"""


class Sink(Protocol):
    def put(self, line: bytes, *, echo: bool) -> None: ...


def _unexplained(_principal: str, _host: str, _use: Use) -> Why:
    return Why(True, "")


class Audit:
    def __init__(self, level: AuditLevel, clock: Clock) -> None:
        """Give it `sinks`, and `explain` if somebody can."""
        self.records_changes = level != "denied"
        self.records_all = level == "all"
        self.sinks: tuple[Sink, ...] = ()
        self.explain: Explain = _unexplained
        self._clock = clock
        self._refusals = Limit(clock.mono_ms, PRINCIPALS)
        self._logins = Limit(clock.mono_ms, ADDRESSES)

    def denied(self, who: Who, host: str, api: str, uses: tuple[Use, ...]) -> None:
        """None of these was allowed; the last is the narrowest."""
        if not self._admits(self._refusals, who.principal):
            return
        # A plugin may be asked again for it, and have changed its mind.
        why = self._why(who, host, uses[-1])
        reason, rule = ("", "") if why.allowed else (why.reason, why.rule)
        self._put(lines.access(self._clock.wall_ms(), "denied", who, api, uses[-1], reason, rule))

    def allowed(self, who: Who, host: str, api: str, uses: tuple[Use, ...]) -> None:
        """One of these was allowed; the last is the narrowest, and says what it is about."""
        found = (self._why(who, host, use) for use in uses)
        why = next((each for each in found if each.allowed), Why(True, ""))
        operation, resource_type, name = use = uses[-1]
        echo = resource_type == "topic" and name == AUDIT_TOPIC and operation in ("read", "describe")
        self._put(lines.access(self._clock.wall_ms(), "allowed", who, api, use, why.reason, why.rule), echo=echo)

    def login_failed(self, who: Who, host: str, reason: str, claimed: str = "") -> None:
        """`claimed`: the principal that somebody said to be. It limits nothing, since anybody may say anything."""
        if self._admits(self._logins, host):
            self._put(lines.login(self._clock.wall_ms(), "denied", who, claimed, reason))

    def logged_in(self, who: Who) -> None:
        if self.records_all:
            self._put(lines.login(self._clock.wall_ms(), "allowed", who))

    def changed(self, who: Who, api: str, use: Use, decision: Decision = "allowed", reason: str = "") -> None:
        """Something was changed, or was not, that no rule decides about."""
        if decision == "denied" and not self._admits(self._refusals, who.principal):
            return
        if decision == "denied" or self.records_changes:
            self._put(lines.access(self._clock.wall_ms(), decision, who, api, use, reason, ""))

    def turn(self) -> None:
        """From time to time, so that the count of what was left out does not wait for the next refusal."""
        for of, count in (*self._refusals.ended(), *self._logins.ended()):
            self._put(lines.left_out(self._clock.wall_ms(), of, count))

    def _admits(self, limit: Limit, key: str) -> bool:
        self.turn()
        return limit.admits(key)

    def _why(self, who: Who, host: str, use: Use) -> Why:
        return Why(False, "") if use[2] is None else self.explain(who.principal, host, use)

    def _put(self, line: bytes, *, echo: bool = False) -> None:
        for sink in self.sinks:
            sink.put(line, echo=echo)
