"""The RocketMQ listeners: one for the broker's requests, one for the name service."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import Executor

from halfmoon.adapters.rocketmq.connection import Connection
from halfmoon.adapters.rocketmq.node import Node
from halfmoon.adapters.rocketmq.registry import Port
from halfmoon.adapters.rocketmq.request import registered
from halfmoon.adapters.tcp.access import Access
from halfmoon.adapters.tcp.core import Core
from halfmoon.adapters.tcp.listener import Listener
from halfmoon.adapters.tcp.turns import Turns
from halfmoon.config.listener_settings import RocketmqListener
from halfmoon.config.settings import Settings
from halfmoon.services.common.filters import FilterCompiler
from halfmoon.services.common.services import Services
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
    ) -> None:
        """`languages`: filter language → its compiler. `executor` runs cold reads; None takes the loop's own.
        `access`: what plugins say of who may do what."""
        super().__init__(core, services, settings, loop, executor=executor, turns=turns)
        self.requests = registered()
        self.node = Node(
            core,
            services,
            listener,
            allocators,
            languages,
            lambda delay_s, callback: loop.call_later(delay_s, callback),
        )
        self.node.access = access

    def connection(self, port: Port) -> Connection:
        """For a client that connects."""
        return Connection(self, self.node, self.requests, port)

    async def start(self, bind: tuple[str, int]) -> tuple[str, int]:
        """Listen for the broker's requests; returns the address. Raises OSError."""
        address = await self.listen(lambda: self.connection(Port.BROKER), bind)
        self.node.start(address)
        return address

    async def start_names(self, bind: tuple[str, int]) -> tuple[str, int]:
        """Listen for the name service's, after `start`; returns the address. Raises OSError."""
        return await self.listen(lambda: self.connection(Port.NAMES), bind)

    async def stop(self) -> None:
        self.node.stop()
        await super().stop()
