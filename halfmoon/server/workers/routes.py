"""How processes that ask each other are reached: workers by sockets in the file system, nodes by TLS.

Either way both ends know who the other one is: the kernel tells the user at the other end of a socket in the file
system; nodes show certificates of the cluster's own authority, and nobody else has one.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from halfmoon.server import admin_socket

MakeProtocol = Callable[[], asyncio.BaseProtocol]
CONNECT_S = 3.0
"""Where a network loses everything, TCP asks again at longer and longer intervals, and would do so long after it is
well again."""


class Routes(Protocol):
    async def connect(self, process: int, make: MakeProtocol) -> None:
        """Raises OSError, also where the other end is not who it should be."""
        ...

    async def listen(self, make: MakeProtocol) -> asyncio.Server:
        """Others can connect from now on. Raises OSError."""
        ...

    def is_welcome(self, transport: asyncio.BaseTransport) -> bool:
        """Whether who has connected is one of us."""
        ...


class SocketRoutes:
    """Of workers of one machine."""

    def __init__(self, loop: asyncio.AbstractEventLoop, me: int, sockets: Sequence[Path]) -> None:
        """`sockets`: of all processes, by their numbers."""
        self._loop = loop
        self._me = me
        self._sockets = sockets

    async def connect(self, process: int, make: MakeProtocol) -> None:
        await self._loop.create_unix_connection(make, str(self._sockets[process]))

    async def listen(self, make: MakeProtocol) -> asyncio.Server:
        made = admin_socket.listening_at(self._sockets[self._me])
        return await self._loop.create_unix_server(make, sock=made)

    def is_welcome(self, transport: asyncio.BaseTransport) -> bool:
        return admin_socket.is_ours(transport.get_extra_info("socket"))


class TlsRoutes:
    """Of nodes."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        bind: tuple[str, int],
        address_of: Callable[[int], tuple[str, int] | None],
        serving: ssl.SSLContext,
        connecting: ssl.SSLContext,
    ) -> None:
        """`bind`: where this node listens. `address_of`: a node's host and port; None: it is not known now. `serving`,
        `connecting`: both show a certificate of the cluster's authority, and take nobody without one."""
        self._loop = loop
        self._bind = bind
        self._address_of = address_of
        self._serving = serving
        self._connecting = connecting

    async def connect(self, process: int, make: MakeProtocol) -> None:
        address = self._address_of(process)
        if address is None:
            raise OSError(f"nobody knows where node {process} is")
        host, port = address
        # The authority is the cluster's own, so that a certificate of it says enough, whatever name it has.
        async with asyncio.timeout(CONNECT_S):
            await self._loop.create_connection(make, host, port, ssl=self._connecting, server_hostname=host)

    async def listen(self, make: MakeProtocol) -> asyncio.Server:
        host, port = self._bind
        return await self._loop.create_server(make, host, port, ssl=self._serving)

    def is_welcome(self, transport: asyncio.BaseTransport) -> bool:
        return bool(transport.get_extra_info("peercert"))


def contexts(authority: Path, certificate: Path, key: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For serving and for connecting, of PEM files. Raises OSError, ssl.SSLError."""
    made = []
    for purpose in (ssl.Purpose.CLIENT_AUTH, ssl.Purpose.SERVER_AUTH):
        context = ssl.create_default_context(purpose, cafile=str(authority))
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(certificate, key)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        made.append(context)
    return made[0], made[1]
