"""The RocketMQ listeners: one for the broker's requests, one for the name service."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from concurrent.futures import Executor

from halfmoon.adapters.rocketmq.connection import Connection
from halfmoon.adapters.rocketmq.node import Node
from halfmoon.adapters.rocketmq.registry import Port
from halfmoon.adapters.rocketmq.request import registered
from halfmoon.adapters.rocketmq.shards import Shards
from halfmoon.adapters.rocketmq.signatures import Signatures
from halfmoon.adapters.tcp.accepting import Arrival
from halfmoon.adapters.tcp.access import Access
from halfmoon.adapters.tcp.core import Core
from halfmoon.adapters.tcp.listener import Listener
from halfmoon.adapters.tcp.tls import Tls
from halfmoon.adapters.tcp.turns import Turns
from halfmoon.auth.principal_rules import PrincipalRules
from halfmoon.auth.principals import user
from halfmoon.config.listener_settings import RocketmqListener
from halfmoon.config.settings import Settings
from halfmoon.core.live import subscribed
from halfmoon.services.common.filters import FilterCompiler
from halfmoon.services.common.services import Services
from halfmoon.services.credentials.users import Change, Users
from halfmoon.services.groups.allocation import AnyAllocator


class Server(Listener):
    """Both of a node's. Create, start and stop it in its loop's thread."""

    log = logging.getLogger("halfmoon.rocketmq")

    def __init__(
        self,
        core: Core,
        services: Services,
        settings: Settings,
        listener: RocketmqListener,
        allocators: Mapping[str, AnyAllocator],
        languages: Mapping[str, FilterCompiler],
        loop: asyncio.AbstractEventLoop,
        *,
        executor: Executor | None = None,
        access: Access | None = None,
        turns: Turns | None = None,
        shards: Shards | None = None,
    ) -> None:
        """`languages`: filter language → its compiler. `executor` runs cold reads; None takes the loop's own.
        `access`: what plugins say of who may do what. `shards`: where the core is one shard of several; the listener
        bears the name and the address of this one then. Raises StartError."""
        super().__init__(core, services, settings, loop, executor=executor, turns=turns)
        self._settings = listener
        self.requests = requests = registered()
        self.at_port = {port: {code: each for code, each in requests.items() if port in each.port} for port in Port}
        self.node = Node(
            core,
            services,
            listener,
            allocators,
            languages,
            lambda delay_s, callback: loop.call_later(delay_s, callback),
            shards,
        )
        self.node.access = access
        self.signatures: Signatures | None = None
        """Where clients have to say who they are."""
        self.rules: PrincipalRules | None = None
        """What makes a user of a client's certificate, where requests are not signed."""
        self._unsubscribe: Callable[[], None] = lambda: None
        tls = listener.tls
        if listener.auth:
            users = services.get(Users)
            self.signatures = Signatures(users, core.clock.mono_ms, random.random)
            self._unsubscribe = subscribed(users.on_change, self.signatures.user_changed)
        elif tls is not None and tls.client_auth != "none":
            users = services.get(Users)
            self.rules = PrincipalRules(tls.principal_rules, users.lets_in)
            self._unsubscribe = subscribed(users.on_change, self._user_changed)

    def _user_changed(self, name: str, change: Change) -> None:
        """As with Kafka's listeners, a user who is disabled has no connection either."""
        if change in (Change.DISABLED, Change.DELETED):
            for each in list(self._connections):
                if isinstance(each, Connection) and each.principal == user(name):
                    each.abort(f"user '{name}' is {change.value}")

    def connection(self, port: Port, came_as: Arrival | None = None) -> Connection:
        """For a client that connects."""
        return Connection(self, self.node, self.at_port[port], port, self.signatures, came_as, self.rules)

    async def start(self, bind: tuple[str, int]) -> tuple[str, int]:
        """Listen for the broker's requests; returns the address. Raises OSError, StartError."""
        address = await self._open(Port.BROKER, bind)
        self.node.start(address)
        return address

    async def start_names(self, bind: tuple[str, int]) -> tuple[str, int]:
        """Listen for the name service's, after `start`; returns the address. Raises OSError."""
        return await self._open(Port.NAMES, bind)

    async def _open(self, port: Port, bind: tuple[str, int]) -> tuple[str, int]:
        if self.signatures is not None:
            self.expects_newcomers()
        settings = self._settings.tls
        if settings is not None and not self.tls:
            self.tls.append(Tls("rocketmq", settings, self.core.clock.wall_ms))
        return await self.listen(
            lambda came_as: self.connection(port, came_as),
            bind,
            self.tls[0] if self.tls else None,
            takes_plain=settings is not None and settings.mode == "permissive",
        )

    async def stop(self) -> None:
        self.node.stop()
        await super().stop()
        self._unsubscribe()  # at the end: users change while connections are let out
