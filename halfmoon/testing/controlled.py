"""What a test does to a broker that runs, and to what its clients see of it: time, failures, records."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from halfmoon.config.units import parse_duration

if TYPE_CHECKING:
    from halfmoon.testing.admin_socket import AdminSocket
    from halfmoon.testing.counting import Counting
    from halfmoon.testing.record import Record
    from halfmoon.testing.records import Records

EXACT_STEPS: Final = 1_000
"""So many times at which something is due are kept to the millisecond, in one `advance`; …"""
COARSE_STEPS: Final = 100
"""… what is left of it is passed in so many steps."""
SETTLED_TWICE: Final = 50
"""Looks at several processes until two in a row have seen no log grow."""

Duration = str | float | timedelta


class Failure:
    """What some requests meet instead of an answer. A context manager: it ends with the block."""

    def __init__(self, broker: ControlledBroker, rule: dict[str, Any], counting: Counting) -> None:
        self._broker = broker
        self.rule = rule
        self._counting = counting

    @property
    def met(self) -> int:
        """How many requests have met it."""
        return self._counting.met

    def stop(self) -> None:
        """No request meets it any more."""
        self._counting.end()
        self._broker._end_failure(self)

    def __enter__(self) -> Failure:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class ControlledBroker:
    """Of `Broker`, which says how its processes are asked."""

    def __init__(self) -> None:
        self._failures: list[Failure] = []
        self._counts: Path | None = None
        self._ahead_ms = 0

    def _ask(self, question: str, **told: Any) -> list[Any]:
        """All processes; what they answer. Raises ValueError for what makes no sense."""
        raise NotImplementedError

    def _state_changed(self) -> None:
        """`_ahead_ms` or `_rules` are others: for processes that start later."""
        raise NotImplementedError

    @property
    def administrators(self) -> list[AdminSocket]:
        """Where each of its processes is asked as by an administrator, without a password."""
        raise NotImplementedError

    # -- time ----------------------------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """The broker's time, Unix ms."""
        return time.time_ns() // 1_000_000 + self._ahead_ms

    def advance(self, duration: Duration, *, silent: bool = False) -> None:
        """Have this time pass for the broker: `"30m"`, seconds, or a timedelta.

        What is due meanwhile happens in its order, each thing at its time, and has happened when this returns: delays,
        redeliveries, time-outs of transactions, locks of share groups, check-backs, what expires. Clients are awake:
        members stay in their groups, and connections stay. `silent`: members have sent nothing meanwhile, so their
        sessions may end. The clock stays ahead, also over restarts.
        """
        left_ms = _milliseconds(duration)
        self._settle()
        exact = EXACT_STEPS
        coarse_ms = 0
        while left_ms > 0:
            due = [found for found in self._ask("due", silent=silent) if found is not None]
            step_ms = min(left_ms, max(1, coarse_ms, min(due, default=left_ms)))
            self._ahead_ms += step_ms
            self._state_changed()
            left_ms -= step_ms
            self._settle(self._ask("move", by_ms=step_ms, silent=silent))
            exact -= 1
            if not exact:
                coarse_ms = -(-left_ms // COARSE_STEPS)
        self._ask("retain")

    def _settle(self, ends: Sequence[int] = ()) -> None:
        """Until nothing is under way: what one process does may be another's to go on with. `ends`: how far their logs
        were when each was at rest."""
        if len(ends) == 1:
            return
        for _ in range(SETTLED_TWICE):
            again = self._ask("rest")
            if list(ends) == again or len(again) == 1:
                return
            ends = again

    # -- failures ------------------------------------------------------------------------------------------------------

    def fail_next(self, api: str, error: str | int, n: int = 1, *, client: str | None = None) -> Failure:
        """Answer the next `n` requests of an API with an error, without handling them.

        `api`: `Produce`, `Fetch`, `JoinGroup`, … or RocketMQ's `SEND_MESSAGE_V2`, …; `error`: a name of that protocol's
        (`NOT_LEADER_OR_FOLLOWER`, `SYSTEM_BUSY`) or its number. `client`: only requests with this client id. Raises
        ValueError for names that the broker does not know.
        """
        from halfmoon.testing.error_names import code_of  # few need it

        return self._fail("error", (api,), n, client, code=code_of(api, error))

    def latency(self, delay: Duration, *apis: str, client: str | None = None) -> Failure:
        """Answer later, by this, until that is stopped: requests of these APIs, or of all."""
        return self._fail("delay", apis, None, client, delay_s=_milliseconds(delay) / 1000)

    def disconnect(
        self, api: str | None = None, n: int = 1, *, handled: bool = False, client: str | None = None
    ) -> Failure | None:
        """Close connections: all at once, or those of the client with this id.

        `api`: not now, but in the place of the answer to the next `n` requests of it. `handled`: the request has done
        what it says, and its answer is lost; else it has done nothing.
        """
        if api is None:
            self._ask("cut", client=client)
            return None
        return self._fail("lose" if handled else "refuse", (api,), n, client)

    def heal(self) -> None:
        """No request meets a failure any more."""
        for failure in list(self._failures):
            failure.stop()

    def _fail(
        self, kind: str, apis: Sequence[str], n: int | None, client: str | None, code: int = 0, delay_s: float = 0.0
    ) -> Failure:
        from halfmoon.testing import temporary
        from halfmoon.testing.counting import Counting

        if self._counts is None:
            self._counts = temporary.make("halfmoon-failures-")
        path = self._counts / str(time.monotonic_ns())
        counting = Counting(path)
        counting.make(n)
        rule = {
            "kind": kind, "apis": list(apis), "client": client, "code": code, "delay_s": delay_s,
            "counting": str(path),
        }  # fmt: skip
        failure = Failure(self, rule, counting)
        self._failures.append(failure)
        try:
            self._ask("rules", rules=self._rules)
        except BaseException:
            self._failures.remove(failure)
            raise
        self._state_changed()
        return failure

    @property
    def _rules(self) -> list[Mapping[str, Any]]:
        return [each.rule for each in self._failures]

    def _end_failure(self, failure: Failure) -> None:
        if failure in self._failures:
            self._failures.remove(failure)
            self._state_changed()
            with contextlib.suppress(ValueError, OSError):  # it is not running
                self._ask("rules", rules=self._rules)

    # -- records -------------------------------------------------------------------------------------------------------

    def records(
        self,
        topic: str,
        *,
        partition: int | None = None,
        committed: bool = False,
        at_least: int = 0,
        timeout_s: float = 10.0,
    ) -> list[Record]:
        """What is in a topic now, by partition and offset: what a consumer would get from the beginning on.

        `committed`: without records of transactions that are open or aborted. `at_least`: wait until there are so many.
        Raises LookupError for a topic that is not there, TimeoutError."""
        return self._reader().read(topic, partition, committed=committed, at_least=at_least, timeout_s=timeout_s)

    def produce(
        self,
        topic: str,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, bytes | str | None] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Record:
        """Put a record into a topic, which is made if need be, as a producer does: returns it once it is acknowledged.
        The partition is that of the key as Java's clients have it, else the first. A delayed one has offset −1.
        Raises RuntimeError with the broker's error where it is refused."""
        stamp_ms = self.now_ms if timestamp_ms is None else timestamp_ms
        return self._reader().write(topic, value, key, headers or {}, partition, stamp_ms)

    def _reader(self) -> Records:
        from halfmoon.testing.records import Records

        return Records(self.administrators)


def _milliseconds(duration: Duration) -> int:
    """Raises ValueError."""
    if isinstance(duration, str):
        found = parse_duration(duration)
    elif isinstance(duration, timedelta):
        found = duration // timedelta(milliseconds=1)
    else:
        found = round(duration * 1000)
    if found < 0:
        raise ValueError(f"time does not go back: {duration}")
    return found
