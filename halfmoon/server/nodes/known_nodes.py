"""The nodes of a cluster as one of them knows them: who lives, where they are reached, and who has gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from halfmoon.core.catalog.owners import OtherNode

if TYPE_CHECKING:
    from halfmoon.cluster.engine.database import Node
    from halfmoon.config.settings import Settings
    from halfmoon.config.units import Address


class ClientAddresses(msgspec.Struct):
    """Where clients reach a node, as it tells the others through the database."""

    kafka: dict[str, tuple[str, int]]
    """By listener."""
    rocketmq: tuple[str, int] | None = None
    """Of the first shard's broker; the others' ports follow."""


_client_addresses = msgspec.json.Decoder(ClientAddresses)


class _Gone(NamedTuple):
    node: OtherNode
    since_s: float
    """By the monotonic clock."""
    in_order: bool


class KnownNodes:
    def __init__(self, settings: Settings, me: int) -> None:
        self._settings = settings
        self._me = me
        self._links: dict[int, tuple[str, int]] = {}
        self._kafka: dict[str, dict[int, tuple[str, int]]] = {}
        self._rocketmq: dict[int, tuple[str, int]] = {}
        self._living: dict[int, OtherNode] = {}
        self._gone: dict[int, _Gone] = {}
        self.on_change: Callable[[int], None] | None = None
        """Told the number of a node that has come, has gone, or is reached elsewhere."""
        self._know(me, self.client_addresses(), settings.cluster.rack)

    def client_addresses(self) -> ClientAddresses:
        """This node's."""
        listeners = self._settings.listeners
        rocketmq = listeners.rocketmq
        return ClientAddresses(
            {each.name: _pair(each.advertise or each.bind) for each in listeners.of_kafka},
            None if rocketmq is None else _pair(rocketmq.advertise or rocketmq.bind),
        )

    @property
    def living(self) -> Mapping[int, OtherNode]:
        """As clients of the first listener reach them; this one is among them."""
        return self._living

    def knows(self, number: int) -> bool:
        """It lives, or has lived since this node started."""
        return number in self._living or number in self._gone

    def gone_since_s(self, number: int) -> float | None:
        """By the monotonic clock; None: it lives, or has not lived since this node started."""
        gone = self._gone.get(number)
        return None if gone is None else gone.since_s

    def gone(self, since_s: float, also: Collection[int]) -> Sequence[OtherNode]:
        """Those that have died since then (by the monotonic clock), and those of `also` that are gone in any way."""
        return [
            gone.node
            for number, gone in self._gone.items()
            if number in also or (gone.since_s > since_s and not gone.in_order)
        ]

    def link(self, number: int) -> tuple[str, int] | None:
        """Where it listens for other nodes."""
        return self._links.get(number)

    def kafka(self, listener: str) -> Mapping[int, tuple[str, int]]:
        return self._kafka[listener]

    def rocketmq(self, number: int) -> tuple[str, int] | None:
        """Of the first shard's broker."""
        return self._rocketmq.get(number)

    def found(self, nodes: Sequence[Node]) -> None:
        """These are all that the database knows of."""
        alive = {node.number: node for node in nodes if node.alive and node.number != self._me}
        # Its last start counts: rows of earlier ones stay for a while.
        left = {number for number, node in {node.number: node for node in nodes}.items() if node.draining}
        for number in [number for number in self._living if number not in alive and number != self._me]:
            self._gone[number] = _Gone(self._living.pop(number), time.monotonic(), number in left)
            self._links.pop(number, None)
            self._rocketmq.pop(number, None)
            self._tell(number)
        for number, node in alive.items():
            self._links[number] = node.host, node.port
            self._know(number, _client_addresses.decode(node.doors), node.rack)

    def _know(self, number: int, addresses: ClientAddresses, rack: str) -> None:
        self._gone.pop(number, None)
        for name, address in addresses.kafka.items():
            self._kafka.setdefault(name, {})[number] = address
        if addresses.rocketmq is not None:
            self._rocketmq[number] = addresses.rocketmq
        kafka = addresses.kafka.get(self._settings.listeners.kafka.name) or next(iter(addresses.kafka.values()))
        self._living[number] = OtherNode(number, kafka, "", addresses.rocketmq or (kafka[0], 0), rack or None)
        self._tell(number)

    def _tell(self, number: int) -> None:
        if self.on_change is not None:
            self.on_change(number)


def _pair(address: Address) -> tuple[str, int]:
    return address.host, address.port
