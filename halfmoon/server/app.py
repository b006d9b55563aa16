"""One broker process: settings in, a running node out, and everything stopped again in the right order.

Up:   data directory → recovery → loop driver → plugins → listeners → plugins' services → `ready`
Down: services → listeners (let answers out) → plugins → loop driver → broker (flush, checkpoint, clean mark) → lock
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from halfmoon.adapters.kafka.identity import Local
from halfmoon.adapters.kafka.registry import Api, Context
from halfmoon.adapters.kafka.server import Server
from halfmoon.adapters.tcp.access import Access, Rights
from halfmoon.adapters.tcp.tls import Tls
from halfmoon.adapters.tcp.turns import Turns
from halfmoon.auth.principals import LOCAL_ADMIN
from halfmoon.config.listener_settings import KafkaListener, RocketmqListener
from halfmoon.config.security_settings import authenticates, takes_tokens
from halfmoon.config.settings import Settings
from halfmoon.config.units import Address
from halfmoon.core import crc
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.errors import StartError
from halfmoon.hooks.plugins import Plugins, load_plugins
from halfmoon.hooks.types import KafkaApi, KafkaRequest
from halfmoon.plugins import BUILT_IN
from halfmoon.schema.shards import SHARED_CATALOG
from halfmoon.server import admin_socket, authorizing, first_user
from halfmoon.server.assembly import Node
from halfmoon.server.auditing import TURN_S, Auditing
from halfmoon.server.cleaning import CleaningProcess
from halfmoon.server.clock import SystemClock
from halfmoon.server.descriptors import HELD_BACK, connections_that_fit, raise_limit
from halfmoon.server.instruments import installed
from halfmoon.server.loop_lag import LoopLag
from halfmoon.server.measured_loop import MeasuredLoop
from halfmoon.server.needs import check_needs
from halfmoon.server.plugin_host import Host
from halfmoon.server.reloading import reload
from halfmoon.server.running import Part, Running, ask_policies, open_node, undo
from halfmoon.server.services import Services
from halfmoon.server.tls_files import LOOK_S, TlsFiles
from halfmoon.services.topic_configs import OF_PLUGINS

if TYPE_CHECKING:
    from halfmoon.adapters.rocketmq.server import Server as RocketmqServer
    from halfmoon.core.clock import Clock
    from halfmoon.core.metrics import Metrics
    from halfmoon.core.timers import Timers
    from halfmoon.server.access_tokens import AccessTokens
    from halfmoon.server.http import HttpServer
    from halfmoon.server.instruments import Instruments

logger = logging.getLogger("halfmoon.server")


class Listener(Protocol):
    async def start(self, bind: Address) -> tuple[str, int]: ...

    async def stop(self) -> None: ...


class App:
    """A node in the running event loop. `start` and `stop` once each."""

    def __init__(
        self,
        settings: Settings,
        *,
        plugins: Sequence[object] = (),
        unset_configs: Collection[str] = (),
        environment: Mapping[str, str] | None = None,
        instruments: Instruments | None = None,
    ) -> None:
        """`plugins`: plugin objects that are on whatever the settings say (the testing kit's way). `unset_configs`: as
        of Node.open. `environment`: what names the first user. `instruments`: those of the process if None."""
        self._instruments = instruments or installed()
        self._is_killed = False
        self.settings = settings
        self.process_number = 0
        self.common_timers: list[Timers] = []
        self._unset_configs = unset_configs
        self._environment = environment or {}
        self._extra_plugins = plugins
        self.kafka_address: Address | None = None
        self.admin_socket: Path | None = None
        """Where clients authenticate."""
        self.kafka_addresses: dict[str, Address] = {}
        """By the listener's name."""
        self.rocketmq: RocketmqServer | None = None
        self.rocketmq_address: Address | None = None
        self.namesrv_address: Address | None = None
        self.http: HttpServer
        """Where `listeners.http` is set."""
        self.http_address: Address | None = None
        self._undo: list[Callable[[], object]] = []
        self.turns = Turns()
        """The loop's, once it is started."""
        self.tls_files = TlsFiles(self._all_tls)
        self.auditing: Auditing | None = None
        """Where anything is recorded."""
        self.more_metrics: Metrics | None = None
        self.access_tokens: AccessTokens | None = None
        """Who verifies them, where clients come with them."""

    async def start(self) -> None:
        """Raises HalfmoonError (StartError mostly) with everything undone."""
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def check(self) -> None:
        """Start up to where clients and plugins' own tasks would begin, and stop again: what is wrong with the settings
        shows. Give it a data directory of its own. Raises HalfmoonError."""
        try:
            await self._open()
        finally:
            await self.stop()

    async def _start(self) -> None:
        await self._open()
        if self.node.audit is not None:
            self.auditing = Auditing(self.node.audit, self.node.audit_topic, self.settings, self.access)
            self._undo.append(partial(asyncio.to_thread, self.auditing.stop))
            self.ticker.every(TURN_S, self.auditing.turn)
        first_user.create(self.node.users, self._environment)
        settings, access = self.settings, self.access
        self.kafka_address = await self._listen(self.kafka, settings.listeners.kafka.bind)
        self.kafka_addresses = {settings.listeners.kafka.name: self.kafka_address}
        for each in settings.listeners.kafka_others:
            self.kafka_addresses[each.name] = await _bound(partial(self._open_kafka, each), each.bind)
        if any(authenticates(settings.listeners)) or settings.security.authorizes(settings.listeners):
            await self.open_locally()
        if settings.listeners.rocketmq is not None:
            await self._listen_rocketmq(settings.listeners.rocketmq, access)
        self._limit_connections(raise_limit())
        self.services = Services(self.plugins.services)
        if settings.listeners.http is not None:
            from halfmoon.server.http import HttpServer  # prometheus-client costs start-up time, and few need it
            from halfmoon.server.http_access import visitors_of

            http = settings.listeners.http
            tls = None if http.tls is None else Tls("http", http.tls, self._wall_ms())
            visitors = visitors_of(self.node.users, settings, access, self.access_tokens, self.node.audit)
            self.http = HttpServer(self, tls=tls, visitors=visitors)
            self.http_address = await self._listen(self.http, settings.listeners.http.bind)
        self.services.start()
        self._undo.append(self.services.stop)
        self.ticker.every(LOOK_S, self.tls_files.look)
        if self._instruments is not None:
            await self._instruments.began(self)
            self._undo.append(self._instruments.ended)
        # When this step of the start is over, which may be all of it.
        asyncio.get_running_loop().call_soon(setattr, self.turns, "paused", False)

    async def _open(self) -> None:
        """Recover, and make everything that a listener needs."""
        settings = self.settings
        loop = asyncio.get_running_loop()
        self.turns = turns = loop.turns if isinstance(loop, MeasuredLoop) else Turns()
        turns.paused = True
        warning = crc.fallback_warning(time.perf_counter)
        if warning is not None:
            logger.warning("event=slow_checksums reason=%s", warning)
        self.plugins: Plugins = load_plugins(settings, BUILT_IN, extra=self._extra_plugins)
        on = {plugin.name for plugin in self.plugins.infos if plugin.enabled}
        check_needs(settings, on)
        fs = OsFileSystem(settings.node.data_dir)
        fs.lock()
        self._undo.append(fs.unlock)
        if (fs.root / SHARED_CATALOG).exists():
            raise StartError(
                f"data directory {fs.root} has shards, which several workers share: serve it with --workers"
            )
        raise_limit()
        fs.held_back.hold(HELD_BACK)
        off = [name for name in OF_PLUGINS if name not in on]
        self.node = node = Node(
            fs, settings, self._clock(), os.urandom, off=off, more_topic_configs=self.plugins.topic_configs,
            more_group_configs=self.plugins.group_configs,
        )  # fmt: skip
        open_node(node, fs.root, unset_configs=self._unset_configs)
        self._undo.append(self._close_node)
        kernel = node.kernel
        self.loop_lag = LoopLag(loop)
        self.loop_lag.start()
        self._undo.append(self.loop_lag.stop)
        self.plugin_host = Host(node, fs.root)
        cleaning = CleaningProcess(fs.root, settings.log.cleaner.bytes_per_second)
        running = Running(node, cleaning, self.plugins, self.plugin_host, loop, turns, self._undo.append)
        self.ticker, self.following, self.relaying = running.ticker, running.following, running.relaying
        kernel.administration.on_changed = self.plugins.topic_changed
        self._undo.append(self._tell_plugins_of_the_end)
        self.plugins.started()
        for topic in kernel.catalog.topics():
            self.plugins.topic_changed(topic.name, "exists")
        running.follow(self._undo.append)
        ask_policies(kernel.hold, self.plugins)
        self.access = authorizing.access_of(
            node.common, kernel.catalog, kernel.clock, node.groups.rights_changed, settings, self.plugins,
            self.plugin_host,
        )  # fmt: skip
        self.plugin_host.rights = self._rights
        node.services.add(authorizing.answers(self.access, self.tls_files))
        if takes_tokens(settings.listeners):
            self._take_tokens(loop)
        watch = self.plugins.errors.watch
        more_apis = [kafka_api(each) for each in watch("halfmoon_kafka_apis", self.plugins.kafka_apis, "handler")]
        self.kafka = Server(
            kernel, node.services, settings, loop, access=self.access, verifier=self.access_tokens,
            more_apis=more_apis, turns=turns,
        )  # fmt: skip

    def _clock(self) -> Clock:
        machine = SystemClock()
        return machine if self._instruments is None else self._instruments.clock(machine)

    def _rights(self, principal: str, host: str) -> Rights | None:
        """What a client may do; None: everything."""
        return None if self.access is None else self.access.rights(principal, host)

    def _take_tokens(self, loop: asyncio.AbstractEventLoop) -> None:
        """Raises StartError."""
        from halfmoon.server.access_tokens import access_tokens  # few need it

        node = self.node
        lets_in = node.users.lets_in
        self.access_tokens = access_tokens(self.settings.security.oauth, loop, node.kernel.clock, lets_in)
        self._undo.append(self.access_tokens.stop)

    def _limit_connections(self, descriptors: int) -> None:
        """The listeners of both protocols share what descriptors there are."""
        listeners = [self.kafka, *([] if self.rocketmq is None else [self.rocketmq])]
        fit = connections_that_fit(descriptors, self.settings.limits.max_connections * len(listeners))
        for listener in listeners:
            listener.most_connections = fit // len(listeners)

    def reload(self, settings: Settings) -> None:
        """Let settings hold that were read anew, as far as they can change now; the log says which did, and which need
        a restart. Raises SettingError, and nothing has changed then."""
        found = reload(self.settings, settings)
        self.settings = found.settings
        self.node.reconfigure(found.settings)
        self.tls_files.reload()
        if self.access_tokens is not None:
            self.access_tokens.fetch()
        logger.info("event=reloaded changed=%s", ",".join(found.changed) or "none")
        for path in found.kept:
            logger.warning("event=setting_not_reloaded setting=%s reason=%s", path, "it needs a restart")

    @property
    def parts(self) -> Sequence[Part]:
        return [Part(self.node, self.ticker)]

    @property
    def rocketmqs(self) -> Sequence[RocketmqServer]:
        return [] if self.rocketmq is None else [self.rocketmq]

    def health(self) -> list[str]:
        """What is wrong, a sentence each; empty when nothing is."""
        return self.node.health() + self.services.problems()

    def warnings(self) -> list[str]:
        """What somebody should know although everything works, a sentence each."""
        of_tokens = [] if self.access_tokens is None else self.access_tokens.warnings()
        of_audit = [] if self.auditing is None else self.auditing.warnings()
        of_others = of_tokens + of_audit + authorizing.warnings(self.settings)
        return self.node.warnings() + self.tls_files.warnings() + of_others

    async def _listen_rocketmq(self, listener: RocketmqListener, access: Access | None) -> None:
        from halfmoon.adapters.rocketmq.server import Server as RocketmqServer  # few need it

        loop = asyncio.get_running_loop()
        self.rocketmq = server = RocketmqServer(
            self.node.kernel, self.node.services, self.settings, listener, self.plugins.allocators,
            self.plugins.filters, loop, access=access, turns=self.turns,
        )  # fmt: skip
        self.rocketmq_address = await self._listen(server, listener.bind)
        self.namesrv_address = await _bound(server.start_names, listener.namesrv)

    def _wall_ms(self) -> Callable[[], int]:
        return self.node.kernel.clock.wall_ms

    def _all_tls(self) -> list[Tls]:
        found = list(self.kafka.tls)
        if self.rocketmq is not None:
            found += self.rocketmq.tls
        if self.http_address is not None and self.http.tls is not None:
            found.append(self.http.tls)
        return found

    async def open_locally(self) -> None:
        """The administrator's socket, where it is not open yet. Raises StartError."""
        if self.admin_socket is not None:
            return
        path = admin_socket.path_of(self.settings.node.data_dir)
        try:
            made = admin_socket.listening_at(path)
            await self.kafka.open_locally(made, Local(LOCAL_ADMIN, admin_socket.is_ours))
        except OSError as error:
            raise StartError(f"cannot listen on {path}: {error.strerror or error}") from error
        self._undo.append(lambda: path.unlink(missing_ok=True))
        self.admin_socket = path
        if any(authenticates(self.settings.listeners)) and not self.node.users.all():
            logger.warning("event=no_users socket=%s advice=%s", path, "halfmoon user create NAME --admin")

    async def _open_kafka(self, door: KafkaListener, _bind: Address) -> tuple[str, int]:
        return await self.kafka.open(door)

    async def _listen(self, server: Listener, bind: Address) -> Address:
        address = await _bound(server.start, bind)
        self._undo.append(server.stop)
        return address

    async def stop(self) -> None:
        """Undo what `start` did, last first."""
        self.turns.paused = True
        await undo(self._undo)

    async def kill(self) -> None:
        """End as a process does that is killed: nobody gets an answer any more, what was not written yet is lost, and
        the next start has to recover. What this process holds, it gives back."""
        self._is_killed = True
        for listener in (self.kafka, *self.rocketmqs):
            listener.shut("the broker is killed")
        self.node.kernel.log.failed = OSError("the broker is killed")
        self._undo = [step for step in self._undo if step != self.ticker.settled]
        await self.stop()

    def _tell_plugins_of_the_end(self) -> None:
        if not self._is_killed:
            self.plugins.stopping()

    def _close_node(self) -> None:
        if self._is_killed:
            self.node.kernel.log.close()
        else:
            self.node.close()


def kafka_api(given: KafkaApi) -> Api:
    def handle(ctx: Context, body: memoryview) -> object:
        answer = given.handler(KafkaRequest(ctx.api_version, body, ctx.client_id, ctx.peer.peer_host))
        if not isinstance(answer, bytes):
            raise TypeError(f"the handler of {given.name} gave {answer!r}, expected bytes")
        return answer

    return Api(
        given.key, given.name, given.min_version, given.max_version, handle, raw=True, own=given.own,
        flexible_since=given.flexible_since,
    )  # fmt: skip


async def _bound(start: Callable[[Address], Awaitable[tuple[str, int]]], bind: Address) -> Address:
    """Raises StartError."""
    try:
        host, port = await start(bind)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        raise StartError(f"cannot listen on {bind}: {reason}") from error
    return Address(host, port)
