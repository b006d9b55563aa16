"""The Kafka listener."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from halfmoon.adapters.kafka.access import guarded
from halfmoon.adapters.kafka.api import registered
from halfmoon.adapters.kafka.auditing import recorded
from halfmoon.adapters.kafka.connection import Connection, Shared
from halfmoon.adapters.kafka.identity import Door, Local
from halfmoon.adapters.kafka.login import Sasl
from halfmoon.adapters.kafka.mechanisms import beginner
from halfmoon.adapters.kafka.registry import Api, ApiTable, offered
from halfmoon.adapters.kafka.routes import build_routes
from halfmoon.adapters.kafka.throttling import Throttling
from halfmoon.adapters.tcp.accepting import Arrival
from halfmoon.adapters.tcp.access import Access
from halfmoon.adapters.tcp.core import Core
from halfmoon.adapters.tcp.listener import Listener
from halfmoon.adapters.tcp.slices import Slicing
from halfmoon.adapters.tcp.tls import Tls
from halfmoon.adapters.tcp.turns import Turns
from halfmoon.auth.principal_rules import PrincipalRules
from halfmoon.auth.principals import user
from halfmoon.config.listener_settings import KafkaListener
from halfmoon.config.settings import Settings
from halfmoon.config.units import Address
from halfmoon.errors import StartError
from halfmoon.services.common.services import Services
from halfmoon.services.credentials.tokens import DelegationTokens
from halfmoon.services.credentials.users import Change, Users
from halfmoon.services.quotas.service import CONNECTIONS, Quotas, Throttle
from halfmoon.services.share.service import ShareService

if TYPE_CHECKING:
    from halfmoon.adapters.kafka.shards import Homes
    from halfmoon.auth.bearer_exchange import Verifier


class Server(Listener):
    """One listener. Create, start and stop it in its loop's thread."""

    log = logging.getLogger("halfmoon.kafka")

    def __init__(
        self,
        core: Core,
        services: Services,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        *,
        executor: Executor | None = None,
        access: Access | None = None,
        verifier: Verifier | None = None,
        turns: Turns | None = None,
        more_apis: Sequence[Api] = (),
        homes: Homes | None = None,
    ) -> None:
        """`executor` runs cold reads; None takes the loop's own. `access`: what plugins say of who may do what.
        `verifier`: of access tokens, where a listener takes them. `more_apis`: those of plugins; StartError where one
        has a key that is taken. `homes`: the shards of this process, if it has several."""
        super().__init__(core, services, settings, loop, executor=executor, turns=turns)
        self._settings = settings
        self._verifier = verifier
        apis = offered(registered(), services)
        for each in more_apis:
            if each.key in apis:
                raise StartError(f"API {each.key} ({each.name}) of a plugin: {apis[each.key].name} has this key")
            apis[each.key] = each
        self.routes = build_routes(apis, self.counters.requests)
        if homes is not None:
            from halfmoon.adapters.kafka.nearby import drop  # few processes have several shards
            from halfmoon.adapters.kafka.shard_routing import routed

            self.routes = routed(self.routes, homes)
            self.on_gone.append(partial(drop, services))
        if access is not None:
            self.routes = guarded(self.routes, (each.key for each in more_apis))
        if self.audit is not None:
            self.routes = recorded(self.routes, self.audit)
        quotas = services.find(Quotas)
        self.shared = Shared(
            ApiTable(apis), self.routes, services,
            Slicing(loop.call_soon, lambda: self.round_time), access=access, quotas=quotas,
        )  # fmt: skip
        self.authentications: Counter[tuple[str, str, str]] = Counter()
        """By the listener, the mechanism, and `ok` or `failed`."""
        self.doors = {each.name: self._door(each) for each in settings.listeners.of_kafka}
        """By their names."""
        users, tokens = services.find(Users), services.find(DelegationTokens)
        if users is not None and tokens is not None:
            users.on_change.append(self._user_changed)
            tokens.on_removed.append(self._token_removed)
        if quotas is not None:
            quotas.on_enabled.append(self._quotas_enabled)
            self._quotas_enabled()
        shares = services.find(ShareService)
        if shares is not None:
            self.on_gone.append(shares.drop)

    def _quotas_enabled(self) -> None:
        quotas = self.shared.quotas
        if quotas is not None and quotas.enabled and self.shared.throttling is None:
            self.shared.throttling = Throttling(quotas)

    def wait_ms(self, host: str) -> int:
        quotas = self.shared.quotas
        if quotas is None or not quotas.connections_limited:
            return 0
        wait_ms = quotas.connect(host)
        if wait_ms:
            quotas.count(Throttle(wait_ms, CONNECTIONS))
        return wait_ms

    def _door(self, listener: KafkaListener) -> Door:
        """Raises StartError."""
        tls = listener.tls
        rules = None
        if tls is not None and tls.client_auth != "none":
            rules = PrincipalRules(tls.principal_rules, self.services.get(Users).lets_in)
        return Door(listener.name, listener.advertise, self._sasl(listener), rules)

    def _sasl(self, listener: KafkaListener) -> Sasl | None:
        if listener.sasl is None:
            return None
        users, tokens = self.services.get(Users), self.services.get(DelegationTokens)

        def counted(mechanism: str, result: str) -> None:
            self.authentications[listener.name, mechanism, result] += 1

        begin = beginner(users, tokens, self._verifier)
        return Sasl(listener.sasl, begin, self.core.clock, random.random, listener.reauthenticate_ms, counted)

    def _user_changed(self, name: str, change: Change) -> None:
        """Whoever may not log in any more has no connection either."""
        if change in (Change.DISABLED, Change.DELETED):
            for each in list(self._connections):
                if isinstance(each, Connection) and each.principal == user(name):
                    each.abort(f"user '{name}' is {change.value}")

    def _token_removed(self, token_id: str) -> None:
        """Whoever has logged in by it has no connection either."""
        for each in list(self._connections):
            if isinstance(each, Connection) and each.token_id == token_id:
                each.abort("its delegation token is gone")

    async def start(self, bind: tuple[str, int]) -> tuple[str, int]:
        """Listen as `listeners.kafka` says, but at `bind`; returns the address, with the port that was chosen if
        `bind`'s is 0. Raises OSError, StartError."""
        return await self.open(structs.replace(self._settings.listeners.kafka, bind=Address(*bind)))

    async def open(self, listener: KafkaListener) -> tuple[str, int]:
        """Listen there, too. Raises OSError, StartError."""
        return await self.open_at(listener, listener.bind)

    async def open_at(self, listener: KafkaListener, bind: Address) -> tuple[str, int]:
        """Listen as this listener of the settings, but there. Raises OSError, StartError."""
        door = self.doors[listener.name]
        tls = None if listener.tls is None else Tls(listener.name, listener.tls, self.core.clock.wall_ms)
        if door.sasl is not None:
            self.expects_newcomers()

        def make(came_as: Arrival | None) -> Connection:
            return self.connection(door, came_as)

        return await self.listen(make, bind, tls)

    async def open_locally(self, made: socket.socket, local: Local, nodes: Mapping[int, str] | None = None) -> None:
        """Let clients in on this socket of the file system's. `nodes`: the paths of such sockets of all nodes by their
        ids, where there are several; then clients are sent there. Raises OSError."""
        door = Door("local", local=local)
        if nodes is not None:
            door.advertise = nodes[self.core.node_id], 0
            door.others = {node_id: (path, 0) for node_id, path in nodes.items()}
        await self.listen_on(lambda came_as: self.connection(door, came_as), made)

    def connection(self, door: Door | None = None, came_as: Arrival | None = None) -> Connection:
        """For a client that connects; `door`: where, None: at the first one."""
        return Connection(self, self.shared, door or self.doors[self._settings.listeners.kafka.name], came_as)
