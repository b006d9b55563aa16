"""Rules for requests (adapters/tcp/interposing.py) of all listeners of a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from halfmoon.adapters.kafka.interposing import Interposing

if TYPE_CHECKING:
    from halfmoon.adapters.tcp.interposing import Rule
    from halfmoon.server.instruments import Instrumented

Later = Callable[[float, Callable[[], object]], object]
"""(seconds, callback)"""


class Interposed:
    def __init__(self, broker: Instrumented, later: Later) -> None:
        self._broker = broker
        self._later = later
        self._kafka = Interposing(broker.kafka.routes, later)
        self._rocketmq: dict[int, Any] = {}
        """By the id of the server, of which a node has others as shards come and go."""

    def set(self, rules: Sequence[Rule]) -> None:
        """These, in the place of those of before. Raises ValueError for an API that no listener has; nothing has
        changed then."""
        listeners = [self._kafka, *self._of_rocketmq()]
        known = frozenset[str]().union(*(each.apis for each in listeners))
        for rule in rules:
            for api in sorted(rule.apis - known):
                raise ValueError(f"no listener of this broker has {api!r}")
        for listener in listeners:
            listener.set(rules)

    def _of_rocketmq(self) -> list[Any]:
        servers = self._broker.rocketmqs
        if servers:
            from halfmoon.adapters.rocketmq.interposing import Interposing as OfRocketmq  # few need it

            for server in servers:
                if id(server) not in self._rocketmq:
                    self._rocketmq[id(server)] = OfRocketmq(server.at_port, self._later)
        return list(self._rocketmq.values())
