"""Which brokers have which queues of a topic: asked of a name server, kept, and asked again every 30 s (B36, B37).

(org.apache.rocketmq.client.impl.factory.MQClientInstance, …impl.producer.TopicPublishInfo.)
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from halfmoon.client.engine.kernel import Kernel, Pending
from halfmoon.client.engine.network import Network
from halfmoon.client.errors import BrokerRefusedError, ClientError, RouteError, TopicUnknownError
from halfmoon.plugin import Queue
from halfmoon.remoting.codes import Code, RequestCode
from halfmoon.remoting.command import Command

T = TypeVar("T")

REFRESH_MS = 30_000
TIMEOUT_MS = 3_000
READ, WRITE = 4, 2
"""Bits of a queue's permission (PermName)."""
MASTER = 0
MOST_QUEUES = 65_536
DEFAULT_TOPIC = "TBW102"
"""What producers ask about to learn how topics are made that do not exist yet (TopicValidator)."""

log = logging.getLogger("halfmoon.client.routes")

_BARE_NUMBER = re.compile(rb"([{,])\s*(\d+)\s*:")


class BrokerData(Struct):
    brokerName: str  # noqa: N815 (the wire's names, here and below)
    brokerAddrs: dict[str, str] = {}  # noqa: N815


class QueueData(Struct):
    brokerName: str  # noqa: N815
    perm: int = READ | WRITE
    readQueueNums: int = 0  # noqa: N815
    writeQueueNums: int = 0  # noqa: N815


class RouteData(Struct):
    brokerDatas: list[BrokerData] = []  # noqa: N815
    queueDatas: list[QueueData] = []  # noqa: N815


class ClusterInfo(Struct):
    brokerAddrTable: dict[str, BrokerData] = {}  # noqa: N815


class Route(Struct, frozen=True):
    """Of one topic."""

    readable: tuple[Queue, ...]
    writable: tuple[Queue, ...]
    """Queues whose master is there."""
    brokers: Mapping[str, Mapping[int, str]]
    """Broker's name → node's id → address."""


def decode_route(topic: str, body: bytes) -> Route:
    """Raises RouteError. fastjson writes numbers as keys without quotation marks, which is no JSON."""
    try:
        data = msgspec.json.decode(_BARE_NUMBER.sub(rb'\1"\2":', body), type=RouteData)
        brokers = {
            each.brokerName: {int(node): address for node, address in each.brokerAddrs.items()}
            for each in data.brokerDatas
        }
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RouteError(f"topic '{topic}': an unreadable route: {error}") from None
    readable: list[Queue] = []
    writable: list[Queue] = []
    for queues in sorted(data.queueDatas, key=lambda each: each.brokerName):
        nodes = brokers.get(queues.brokerName)
        if not nodes:
            continue
        if max(queues.readQueueNums, queues.writeQueueNums) > MOST_QUEUES:
            raise RouteError(f"topic '{topic}': a route with over {MOST_QUEUES} queues of one broker is not believed")
        if queues.perm & READ:
            readable += [Queue(topic, queues.brokerName, number) for number in range(queues.readQueueNums)]
        if queues.perm & WRITE and MASTER in nodes:
            writable += [Queue(topic, queues.brokerName, number) for number in range(queues.writeQueueNums)]
    return Route(tuple(readable), tuple(writable), brokers)


def decode_brokers(body: bytes) -> Mapping[str, Mapping[int, str]]:
    """Broker's name → node's id → address (ClusterInfo). Raises RouteError."""
    try:
        data = msgspec.json.decode(_BARE_NUMBER.sub(rb'\1"\2":', body), type=ClusterInfo)
        return {
            name: {int(node): address for node, address in each.brokerAddrs.items()}
            for name, each in data.brokerAddrTable.items()
        }
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RouteError(f"an unreadable list of brokers: {error}") from None


class NameServers:
    """One of several, until it fails."""

    def __init__(self, kernel: Kernel, network: Network, addresses: Sequence[str]) -> None:
        self._kernel = kernel
        self._network = network
        self._addresses = list(addresses)
        self._at = 0

    async def route(self, topic: str) -> Route:
        """Raises RouteError: no name server knows the topic, or none answers."""

        def told(answer: Command) -> Route | None:
            if answer.code == Code.TOPIC_NOT_EXIST:
                raise TopicUnknownError(f"no name server knows topic '{topic}'")
            return decode_route(topic, bytes(answer.body)) if answer.code == Code.SUCCESS else None

        return await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, f"topic '{topic}'", told)

    async def ask(
        self, code: int, fields: Mapping[str, str], what: str, told: Callable[[Command], T | None]
    ) -> T:  # fmt: skip
        """What `told` makes of the first answer of which it makes something. Raises RouteError, which says `what` was
        asked about: no name server answers."""
        errors: list[str] = []
        try:
            return await self._ask_all(code, fields, what, told, errors)
        except TopicUnknownError:
            raise
        except RouteError:
            # None can be reached at the moment: what is left of the shortest pause is waited for, once.
            wait_ms = min(self._network.wait_ms(address) for address in self._addresses)
            if not wait_ms:
                raise
        await self._kernel.sleep_ms(wait_ms)
        return await self._ask_all(code, fields, what, told, errors)

    async def _ask_all(
        self, code: int, fields: Mapping[str, str], what: str, told: Callable[[Command], T | None], errors: list[str]
    ) -> T:  # fmt: skip
        first = self._at
        for step in range(len(self._addresses)):
            at = (first + step) % len(self._addresses)
            address = self._addresses[at]
            asked_ms = self._kernel.now_ms
            try:
                answer = await self._network.request(address, code, fields, timeout_ms=TIMEOUT_MS)
            except ClientError as error:
                errors.append(str(error))
                self._network.give_up_if_silent(address, asked_ms)
                continue
            self._at = at
            found = told(answer)
            if found is not None:
                return found
            errors.append(str(BrokerRefusedError(answer.code, answer.remark, address)))
        raise RouteError(f"{what}: no name server answers: {'; '.join(errors)}")


class Routes:
    """What is known of the topics that somebody here is interested in."""

    def __init__(self, kernel: Kernel, servers: NameServers) -> None:
        self._kernel = kernel
        self._servers = servers
        self._routes: dict[str, Route] = {}
        self._nodes: dict[str, Mapping[int, str]] = {}
        """Of each broker, as the newest route says."""
        self._asking: dict[str, Pending[Route]] = {}
        self._wanted: dict[str, None] = {}
        self._refreshing: Pending[None] | None = None
        self.on_changed: Callable[[str, Route], None] = lambda topic, route: None
        """A topic's queues, or where they are, are others than before."""

    async def all_brokers(self) -> Mapping[str, Mapping[int, str]]:
        """Broker's name → node's id → address, of all that a name server knows. Raises RouteError."""

        def told(answer: Command) -> Mapping[str, Mapping[int, str]] | None:
            return decode_brokers(bytes(answer.body)) if answer.code == Code.SUCCESS else None

        return await self._servers.ask(RequestCode.GET_BROKER_CLUSTER_INFO, {}, "brokers", told)

    def known(self, topic: str) -> Route | None:
        return self._routes.get(topic)

    def want(self, topic: str) -> None:
        """Keep its route up to date."""
        self._wanted[topic] = None

    def forget(self, topic: str) -> None:
        self._wanted.pop(topic, None)

    def put(self, topic: str, route: Route) -> None:
        """It is this one, for want of a better one."""
        self._nodes.update(route.brokers)
        if self._routes.get(topic) != route:
            self._routes[topic] = route
            self.on_changed(topic, route)

    async def get(self, topic: str) -> Route:
        """The known one, or one that is asked for now. Raises RouteError."""
        return self._routes.get(topic) or await self.ask(topic)

    async def ask(self, topic: str) -> Route:
        """Ask a name server; those who want the same at the same time share the answer. Raises RouteError."""
        asking = self._asking.get(topic)
        if asking is None:
            asking = self._asking[topic] = self._kernel.spawn(self._ask(topic), f"route of {topic}")
        return await asking

    async def _ask(self, topic: str) -> Route:
        try:
            route = await self._servers.route(topic)
        finally:
            del self._asking[topic]
        self.put(topic, route)
        return route

    async def learn(self, topic: str) -> None:
        """Ask, if it is not known; it may not exist yet."""
        if self.known(topic) is None:
            try:
                await self.ask(topic)
            except RouteError as error:
                log.warning("event=route_unknown topic=%s error=%s", topic, error)

    async def refresh(self) -> None:
        """Ask about all that are wanted; those who want that at the same time share it. What cannot be learnt stays as
        it was."""
        if self._refreshing is None:
            self._refreshing = self._kernel.spawn(self._refresh(), "routes")
        await self._refreshing

    async def _refresh(self) -> None:
        try:
            for topic in list(self._wanted):
                try:
                    await self.ask(topic)
                except TopicUnknownError as error:
                    log.debug("event=route_unknown topic=%s error=%s", topic, error)
                except ClientError as error:
                    log.warning("event=route_unknown topic=%s error=%s", topic, error)
        finally:
            self._refreshing = None

    async def keep_fresh(self, interval_ms: int) -> None:
        """Until it is cancelled."""
        while True:
            await self._kernel.sleep_ms(interval_ms)
            await self.refresh()

    # -- addresses ---------------------------------------------------------------------------------------------------

    def nodes(self, broker: str) -> Mapping[int, str]:
        """Node's id → address, of a broker in any of the routes."""
        return self._nodes.get(broker, {})

    def master(self, broker: str) -> str | None:
        return self.nodes(broker).get(MASTER)

    def readable(self, broker: str, wanted: int = MASTER) -> tuple[str, int] | None:
        """Address and id of the node wanted; else of the next one; else of any (B37: MQClientInstance
        .findBrokerAddressInSubscribe)."""
        nodes = self.nodes(broker)
        for node in (wanted, wanted + 1):
            if node in nodes:
                return nodes[node], node
        return next(((address, node) for node, address in nodes.items()), None)

    def brokers(self) -> dict[str, Mapping[int, str]]:
        """All that occur in a route that is wanted."""
        found: dict[str, Mapping[int, str]] = {}
        for topic in self._wanted:
            route = self._routes.get(topic)
            if route is not None:
                found.update(route.brokers)
        return found
