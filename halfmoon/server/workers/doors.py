"""Where clients come in to a worker: its own addresses, and those that all workers share."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from halfmoon.adapters.kafka.identity import Local
from halfmoon.adapters.tcp.tls import Tls
from halfmoon.auth.principals import LOCAL_ADMIN
from halfmoon.errors import StartError
from halfmoon.server import admin_socket
from halfmoon.server.descriptors import connections_that_fit, raise_limit

if TYPE_CHECKING:
    from halfmoon.adapters.kafka.server import Server
    from halfmoon.config.listener_settings import HttpListener
    from halfmoon.config.settings import Settings
    from halfmoon.server.http import HttpServer
    from halfmoon.server.http_access import Visitors
    from halfmoon.server.readings import App
    from halfmoon.server.workers.monitoring import WorkersMonitoring
    from halfmoon.server.workers.place import Place
    from halfmoon.server.workers.rocketmq_servers import RocketmqServers

logger = logging.getLogger("halfmoon.server")


class Doors:
    def __init__(
        self,
        settings: Settings,
        place: Place,
        admin: socket.socket | None,
        listening: Mapping[tuple[str, int], socket.socket],
        on_stop: Callable[[Callable[[], object]], None],
    ) -> None:
        """`admin`: the administrator's socket, which all workers listen on. `listening`: sockets that listen at this
        process's own addresses."""
        self._settings = settings
        self._place = place
        self._admin = admin
        self.listening = dict(listening)
        self._on_stop = on_stop

    async def open_kafka(self, kafka: Server) -> None:
        """Raises StartError."""
        place = self._place
        kafka.reuse_port = not place.is_cluster
        kafka.given = self.listening
        kafka.most_connections = connections_that_fit(raise_limit(), self._settings.limits.max_connections)
        self._on_stop(kafka.stop)
        await self._open_locally(kafka)
        for each in self._settings.listeners.of_kafka:
            door, addresses = kafka.doors[each.name], place.kafka_addresses(each)
            door.others = addresses
            _, door.port = addresses[kafka.core.node_id]
            for bind in place.kafka_binds(each):
                try:
                    await kafka.open_at(each, bind)
                except OSError as error:
                    raise _cannot_listen(bind, error) from error

    async def _open_locally(self, kafka: Server) -> None:
        path = self._place.local_socket()
        local, nodes = Local(LOCAL_ADMIN, admin_socket.is_ours), self._place.local_addresses()
        try:
            await kafka.open_locally(admin_socket.listening_at(path), local, nodes)
            if self._admin is not None:
                await kafka.open_locally(self._admin, local, nodes)
        except OSError as error:
            raise _cannot_listen(path, error) from error

    async def open_rocketmq(self, servers: RocketmqServers) -> None:
        """Raises StartError."""
        self._on_stop(servers.stop)
        try:
            await servers.start()
        except OSError as error:
            raise _cannot_listen("listeners.rocketmq", error) from error

    async def open_http(
        self, listener: HttpListener, app: App, monitoring: WorkersMonitoring, visitors: Visitors | None
    ) -> HttpServer:
        """Raises StartError."""
        from halfmoon.server.http import HttpServer  # prometheus-client costs start-up time, and few need it

        wall_ms = app.parts[0].node.kernel.clock.wall_ms
        tls = None if listener.tls is None else Tls("http", listener.tls, wall_ms)
        http = HttpServer(app, tls=tls, visitors=visitors, monitored=monitoring)
        http.reuse_port = not self._place.is_cluster
        bind = self._place.http_bind()
        try:
            await http.start(bind)
        except OSError as error:
            raise _cannot_listen(bind, error) from error
        self._on_stop(http.stop)
        return http


def _cannot_listen(where: object, error: OSError) -> StartError:
    return StartError(f"cannot listen on {where}: {error.strerror or error}")
