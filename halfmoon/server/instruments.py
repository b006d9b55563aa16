"""What the testing kit puts into a process of a broker: another clock, and a hold on what runs there.

A broker in production has none. One in a thread of a test is given its own; a process that the kit has started installs
one before anything else, for all brokers in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from halfmoon.adapters.kafka.server import Server
    from halfmoon.adapters.rocketmq.server import Server as RocketmqServer
    from halfmoon.core.clock import Clock
    from halfmoon.core.timers import Timers
    from halfmoon.server.running import Part


class Instrumented(Protocol):
    """What runs: server/app.App, or a worker. All of it is used in its loop."""

    kafka: Server

    process_number: int
    """Among those that share the topics."""
    common_timers: list[Timers]
    """Of what belongs to no part."""

    @property
    def parts(self) -> Sequence[Part]: ...

    @property
    def rocketmqs(self) -> Sequence[RocketmqServer]: ...


class Instruments(Protocol):
    def clock(self, machine: Clock) -> Clock:
        """What tells the broker the time, in the place of this clock."""
        ...

    async def began(self, broker: Instrumented) -> None:
        """In its loop, once it serves."""
        ...

    async def ended(self) -> None:
        """Before it is stopped."""
        ...


_installed: Instruments | None = None


def install(made: Instruments) -> None:
    """For the whole process, before a broker is made."""
    global _installed
    _installed = made


def installed() -> Instruments | None:
    return _installed


async def began(broker: Instrumented, on_stop: Callable[[Callable[[], object]], object]) -> None:
    """The broker serves. Where the process has instruments, they are told so, and of its end."""
    if _installed is not None:
        await _installed.began(broker)
        on_stop(_installed.ended)


def clock_over(machine: Clock) -> Clock:
    """A process's clock: the one that is installed, or this."""
    return machine if _installed is None else _installed.clock(machine)
