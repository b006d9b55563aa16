"""Audit's topic in a process with several shards: a line goes to the partition in one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halfmoon.server.assembly import Node


class AuditLines:
    """See services/audit/service.Sink."""

    def __init__(self, nodes: Mapping[int, Node], owns: Callable[[int], bool]) -> None:
        """`nodes`: the shards that are open, as they are at each moment. `owns`: as of Place."""
        self._nodes = nodes
        self._owns = owns
        self._number: int | None = None
        """The shard that took the last line. A node has up to 256: they are not all looked at for each line."""
        self._lost = 0
        self._closing: list[Node] = []

    def put(self, line: bytes, *, echo: bool) -> None:
        number = self._number
        if number is None or not self._takes(number):
            number = self._number = self._first()
        if number is None:
            self._lost += not echo
        else:
            self._nodes[number].audit_topic.put(line, echo=echo)

    def _takes(self, number: int) -> bool:
        node = self._nodes.get(number)
        return node is not None and self._owns(number) and node.kernel.log.failed is None

    def _first(self) -> int | None:
        """Fast ones come first; before them, those that take writes: what a log that has failed does not is dropped."""
        nodes = self._nodes
        return min(
            filter(self._owns, nodes), key=lambda each: (nodes[each].kernel.log.failed is not None, each), default=None
        )

    def opened(self) -> None:
        """A shard has come: it may be faster than the one that took the last line."""
        self._number = None

    @contextmanager
    def closing(self, node: Node | None) -> Iterator[None]:
        """A shard goes, if it is open. It writes its lines when it is closed, or drops them; those count on."""
        if node is None or node in self._closing:
            yield
            return
        self._closing.append(node)
        try:
            yield
        finally:
            self._closing.remove(node)
            self._lost += node.audit_topic.dropped

    @property
    def dropped(self) -> int:
        """Lines, since the start."""
        found = [*self._closing, *(node for node in self._nodes.values() if node not in self._closing)]
        return self._lost + sum(node.audit_topic.dropped for node in found)
