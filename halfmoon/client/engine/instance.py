"""What the producers and consumers of one client share: connections, routes, heartbeats, what nodes ask of us (B24).

(org.apache.rocketmq.client.impl.factory.MQClientInstance, …impl.ClientRemotingProcessor.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from halfmoon.client.engine.driver import Driver
from halfmoon.client.engine.kernel import Kernel
from halfmoon.client.engine.network import Connection, Network
from halfmoon.client.engine.routes import MASTER, REFRESH_MS, NameServers, Routes
from halfmoon.client.errors import BrokerRefusedError, ClientError
from halfmoon.remoting.codes import Code, RequestCode
from halfmoon.remoting.command import Command

HEARTBEAT_MS = 30_000
TIMEOUT_MS = 3_000
CLIENT_LIMITS = (("heartbeat_ms", 100, 60_000), ("route_refresh_ms", 100, 3_600_000))
"""Bounds of the options that all clients have. A broker drops who is silent for two minutes."""

log = logging.getLogger("halfmoon.client")

Asked = Callable[[Connection, Command], None]


class Instance:
    """One client, as brokers see it."""

    def __init__(self, kernel: Kernel, driver: Driver, client_id: str, name_servers: Sequence[str]) -> None:
        self.kernel = kernel
        self.driver = driver
        self.client_id = client_id
        self.network = Network(kernel, driver)
        self.network.on_request = self._asked
        self.network.on_lost = self._lost
        self.routes = Routes(kernel, NameServers(kernel, self.network, name_servers))
        self.producer_groups: list[str] = []
        self.consumers: dict[str, Callable[[], Mapping[str, Any]]] = {}
        """Consumer group → () → what a heartbeat says of it."""
        self.handlers: dict[int, Asked] = {}
        """What nodes may ask, by code."""
        self.versions: dict[str, int] = {}
        """Of brokers, by address, as their answers to heartbeats say."""
        self.refused: dict[str, BrokerRefusedError] = {}
        """Nodes that do not take us: address → why."""
        self._is_started = False
        self.when_lost: list[Callable[[], None]] = []
        """Called when a connection was lost."""
        self._reconnecting: set[str] = set()
        self._telling: set[str] = set()
        """Nodes that have a heartbeat to answer."""

    def start(self, heartbeat_ms: int = HEARTBEAT_MS, route_refresh_ms: int = REFRESH_MS) -> None:
        """Routes are kept fresh and heartbeats sent from now on, so often; more than once does no harm."""
        if not self._is_started:
            self._is_started = True
            self.kernel.keep(lambda: self.routes.keep_fresh(route_refresh_ms), "routes")
            self.kernel.keep(lambda: self._keep_alive(heartbeat_ms), "heartbeats")

    # -- heartbeats --------------------------------------------------------------------------------------------------

    async def _keep_alive(self, interval_ms: int) -> None:
        while True:
            await self.kernel.sleep_ms(interval_ms)
            await self.heartbeat()

    def _heartbeat_body(self) -> bytes:
        return msgspec.json.encode(
            {
                "clientID": self.client_id,
                "producerDataSet": [{"groupName": group} for group in self.producer_groups],
                "consumerDataSet": [said() for said in self.consumers.values()],
                "heartbeatFingerprint": 0,
                "withoutSub": False,
            }
        )

    def addresses(self) -> list[str]:
        """Of the nodes that are told of us: consumers read from slaves, too; producers speak to masters alone."""
        return [
            address
            for nodes in self.routes.brokers().values()
            for node, address in nodes.items()
            if self.consumers or node == MASTER
        ]

    async def heartbeat(self) -> None:
        """To all nodes at once. Those that cannot be reached are told next time."""
        if self.consumers or self.producer_groups:
            await self.all_of([self._heartbeat_to(address) for address in self.addresses()], "heartbeat")

    def tell_new(self) -> None:
        """Tell nodes of us that have not heard of us yet, without waiting for it."""
        if self._is_started and (self.consumers or self.producer_groups):
            for address in self.addresses():
                if address not in self.versions and address not in self._telling:
                    self.kernel.spawn(self._heartbeat_to(address), "heartbeat")

    async def _heartbeat_to(self, address: str) -> None:
        self._telling.add(address)
        asked_ms = self.kernel.now_ms
        try:
            answer = await self.network.request(
                address, RequestCode.HEART_BEAT, {}, self._heartbeat_body(), timeout_ms=TIMEOUT_MS
            )
        except ClientError as error:
            log.info("event=heartbeat_failed address=%s error=%s", address, error)
            self.network.give_up_if_silent(address, asked_ms)
            return
        finally:
            self._telling.discard(address)
        if answer.code == Code.SUCCESS:
            self.versions[address] = answer.version
            self.refused.pop(address, None)
        else:
            self.refused[address] = BrokerRefusedError(answer.code, answer.remark, address)
            log.warning("event=heartbeat_refused address=%s code=%d remark=%s", address, answer.code, answer.remark)

    async def all_of(self, flows: Sequence[Any], name: str) -> list[Any]:
        """Run them side by side; their results, once all are done. The first error is raised."""
        tasks = [self.kernel.spawn(flow, name) for flow in flows]
        return [await task for task in tasks]

    def check_taken(self) -> None:
        """Raises BrokerRefusedError where no node takes us, and one has said why."""
        if self.refused and not self.versions:
            raise next(iter(self.refused.values()))

    def _lost(self, address: str) -> None:
        """A broker has forgotten us with the connection: it is told again as soon as it can be reached."""
        for tell in self.when_lost:
            tell()
        if self._is_started and address in self.addresses() and address not in self._reconnecting:
            self._reconnecting.add(address)
            self.kernel.spawn(self._reconnect(address), f"reconnect to {address}")

    async def _reconnect(self, address: str) -> None:
        try:
            for _ in range(100):
                await self.kernel.sleep_ms(self.network.wait_ms(address) + 10)
                if address not in self.addresses():
                    return
                before = self.versions.pop(address, None)
                await self._heartbeat_to(address)
                if address in self.versions:
                    return
                if before is not None:
                    self.versions[address] = before
                # Its queues may be another node's now, as in a cluster whose shards move: the next refresh is far away.
                await self.routes.refresh()
        finally:
            self._reconnecting.discard(address)

    # -- what nodes ask ----------------------------------------------------------------------------------------------

    def _asked(self, connection: Connection, command: Command) -> None:
        handler = self.handlers.get(command.code)
        if handler is None:
            remark = f"request code {command.code} is not for this client"
            self.network.answer(connection, command, Code.REQUEST_CODE_NOT_SUPPORTED, remark)
            return
        try:
            handler(connection, command)
        except Exception as error:
            log.exception("event=request_failed code=%d address=%s", command.code, connection.address)
            self.network.answer(connection, command, Code.SYSTEM_ERROR, str(error))

    # -- the end -----------------------------------------------------------------------------------------------------

    async def unregister(self, *, producer: str = "", consumer: str = "") -> None:
        """Tell all nodes that we are no member of the group any more."""
        fields = {"clientID": self.client_id}
        if producer:
            fields["producerGroup"] = producer
        if consumer:
            fields["consumerGroup"] = consumer
        await self.all_of([self._unregister_from(address, fields) for address in self.addresses()], "unregister")

    async def _unregister_from(self, address: str, fields: Mapping[str, str]) -> None:
        try:
            await self.network.request(address, RequestCode.UNREGISTER_CLIENT, fields, timeout_ms=TIMEOUT_MS)
        except ClientError as error:
            log.info("event=unregister_failed address=%s error=%s", address, error)

    def close(self) -> None:
        """At once: whoever wants an orderly end has had it before."""
        self.kernel.cancel_all()
        self.kernel.run_ready()
        self.network.close()
