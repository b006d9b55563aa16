"""Audit's topic in a process with several shards: a line goes to the partition in one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halfmoon.server.assembly import Node


class AuditLines:
    """See services/audit/service.Sink."""

    def __init__(self, nodes: Mapping[int, Node], owns: Callable[[int], bool]) -> None:
        """`nodes`: the shards that are open, as they are at each moment. `owns`: as of Place."""
        self._nodes = nodes
        self._owns = owns
        self._lost = 0
        self._closing: list[Node] = []

    def put(self, line: bytes, *, echo: bool) -> None:
        nodes = self._nodes
        # Fast ones come first; before them, those that take writes: what a log that has failed does not is dropped.
        number = min(
            filter(self._owns, nodes), key=lambda each: (nodes[each].kernel.log.failed is not None, each), default=None
        )
        if number is None:
            self._lost += not echo
        else:
            nodes[number].audit_topic.put(line, echo=echo)

    def closing(self, node: Node) -> None:
        """A shard goes. It writes its lines when it is closed, or drops them."""
        if node not in self._closing:
            self._closing.append(node)

    def closed(self, node: Node) -> None:
        """It has gone: what it has dropped counts on."""
        self._closing.remove(node)
        self._lost += node.audit_topic.dropped

    @property
    def dropped(self) -> int:
        """Lines, since the start."""
        found = [*self._closing, *(node for node in self._nodes.values() if node not in self._closing)]
        return self._lost + sum(node.audit_topic.dropped for node in found)
