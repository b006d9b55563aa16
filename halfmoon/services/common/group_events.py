"""Who hears what groups do with single messages: observers of plugins (hook `halfmoon_observers`).

One for all services, empty where nobody listens. What is called must not raise.
"""

from __future__ import annotations

from collections.abc import Callable

Told = Callable[[str, str, int, int], None]
"""(group, topic, partition, messages)"""


class GroupEvents:
    __slots__ = ("acknowledged", "dead_lettered", "redelivered")

    def __init__(self) -> None:
        self.acknowledged: tuple[Told, ...] = ()
        """A member of a share group has accepted them."""
        self.redelivered: tuple[Told, ...] = ()
        """The group is to get them again: it has released or negatively acknowledged them, or held them for too
        long."""
        self.dead_lettered: tuple[Told, ...] = ()
        """They went to the group's dead-letter topic."""


def tell(told: tuple[Told, ...], group: str, topic: str, partition: int, messages: int) -> None:
    if messages:
        for each in told:
            each(group, topic, partition, messages)
