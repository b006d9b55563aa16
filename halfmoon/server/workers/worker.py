"""One of several processes that share a data directory: what drives its shards, its listeners, and what it is asked.

Up:   catalog → recovery of the shards (`open_shards`) → they are told what they have missed → loop drivers, plugins →
      listeners
Down: listeners (let answers out) → plugins → loop drivers → shards (flush, checkpoint, clean mark) → catalog
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from halfmoon.adapters.kafka.identity import Local
from halfmoon.adapters.kafka.server import Server
from halfmoon.adapters.kafka.shard_asking import AllShards
from halfmoon.adapters.kafka.shown import ShownEntries
from halfmoon.adapters.tcp.tls import Tls
from halfmoon.adapters.tcp.turns import Turns
from halfmoon.auth.principals import LOCAL_ADMIN
from halfmoon.cluster.messages import CatalogChanged, Done
from halfmoon.cluster.receiving import PROCESS, Inbox
from halfmoon.cluster.store import CatalogUnavailableError
from halfmoon.config.security_settings import takes_tokens
from halfmoon.config.units import Address
from halfmoon.core.catalog.owners import OtherNode
from halfmoon.core.timers import Timers
from halfmoon.errors import BrokerError, Fault, StartError
from halfmoon.hooks.plugins import Plugins, load_plugins
from halfmoon.plugins import BUILT_IN
from halfmoon.schema.readable_topics import AUDIT_TOPIC
from halfmoon.server import admin_socket, authorizing, first_user
from halfmoon.server.app import kafka_api
from halfmoon.server.assembly import internal_topics
from halfmoon.server.auditing import TURN_S, Auditing
from halfmoon.server.deadlines import Deadlines
from halfmoon.server.descriptors import HELD_BACK, connections_that_fit, raise_limit
from halfmoon.server.loop_lag import LoopLag
from halfmoon.server.measured_loop import MeasuredLoop
from halfmoon.server.needs import check_needs
from halfmoon.server.reloading import reload
from halfmoon.server.running import Part, Running, ask_policies, leaving_out
from halfmoon.server.services import Services as PluginServices
from halfmoon.server.tls_files import LOOK_S, TlsFiles
from halfmoon.server.waking import wake_in_turns
from halfmoon.server.workers import transactions
from halfmoon.server.workers.asking_all import message_answers
from halfmoon.server.workers.catalog import SharedCatalogDriver
from halfmoon.server.workers.entries import entries_answers
from halfmoon.server.workers.hearing import hearing_answers
from halfmoon.server.workers.homes import LocalShards
from halfmoon.server.workers.links import Links
from halfmoon.server.workers.monitoring import WorkersMonitoring
from halfmoon.server.workers.open_shards import OpenShards
from halfmoon.server.workers.plugin_hosts import FrontHost, ShardHost
from halfmoon.server.workers.shares import finder, join_shares, share_answers
from halfmoon.services.audit.topic import CONFIGS as AUDIT_CONFIGS
from halfmoon.services.common.services import Services
from halfmoon.services.internal_topics.offering import OfferedTopics
from halfmoon.services.topic_configs import OF_PLUGINS

if TYPE_CHECKING:
    from halfmoon.adapters.rocketmq.server import Server as RocketmqServer
    from halfmoon.adapters.tcp.access import Access, Rights
    from halfmoon.cluster.asking import Told
    from halfmoon.config.listener_settings import HttpListener, KafkaListener, RocketmqListener
    from halfmoon.config.settings import Settings
    from halfmoon.server.access_tokens import AccessTokens
    from halfmoon.server.workers.plan import Plan
    from halfmoon.server.workers.rocketmq_servers import RocketmqServers

logger = logging.getLogger("halfmoon.server")

POLL_S = 1.0
"""So often the catalog is looked at, in case nobody has told that it has changed."""
TOLD_S = 1.0
"""So long a change waits for the other processes to know it, before its client is answered."""


class Worker:
    """In the running event loop. `start` and `stop` once each."""

    def __init__(
        self,
        settings: Settings,
        plan: Plan,
        *,
        unset_configs: Collection[str] = (),
        environment: Mapping[str, str] | None = None,
        admin: socket.socket | None = None,
        listening: Mapping[tuple[str, int], socket.socket] | None = None,
        on_lost: Callable[[Exception], None],
    ) -> None:
        """`admin`: the administrator's socket, which all workers listen on. `listening`: sockets that listen at this
        worker's own addresses. `on_lost`: this process knows something that the others do not, and must end."""
        self.settings = settings
        self.plan = plan
        self._unset_configs = unset_configs
        self._environment = environment or {}
        self._admin = admin
        self._listening = dict(listening or {})
        self._on_lost = on_lost
        self._undo: list[Callable[[], object]] = []
        self.turns = Turns()
        self.tls_files = TlsFiles(self._all_tls)
        self.access_tokens: AccessTokens | None = None
        self.auditing: Auditing | None = None
        self.rocketmqs: list[RocketmqServer] = []
        self._rocketmq: RocketmqServers | None = None
        self.access: Access | None = None
        self._polling: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises HalfmoonError (StartError mostly) with everything undone."""
        try:
            await self._open()
            await self._listen()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Undo what `start` did, last first. What one step raises is logged and does not keep the next from running."""
        self.turns.paused = True
        while self._undo:
            step = self._undo.pop()
            try:
                result = step()
                if asyncio.iscoroutine(result):
                    await result
            except Exception:
                logger.exception("event=stop_failed step=%s", getattr(step, "__qualname__", step))

    # -- opening -------------------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        settings, plan, on_stop = self.settings, self.plan, self._undo.append
        loop = asyncio.get_running_loop()
        self.turns = turns = loop.turns if isinstance(loop, MeasuredLoop) else Turns()
        turns.paused = True
        raise_limit()
        self.plugins: Plugins = load_plugins(settings, BUILT_IN)
        on = {plugin.name for plugin in self.plugins.infos if plugin.enabled}
        check_needs(settings, on)
        off = [name for name in OF_PLUGINS if name not in on]
        inboxes: dict[int, Inbox] = {}
        self.links = Links(
            loop, plan.worker, [plan.link(worker) for worker in range(plan.workers)], plan.owners(), inboxes,
            self._told_of,
        )  # fmt: skip
        self.shards = shards = OpenShards(
            settings, plan, self._members(), off, self.plugins.topic_configs, self.links, on_stop
        )  # fmt: skip
        next(iter(shards.file_systems.values())).held_back.hold(HELD_BACK)
        self.driver = SharedCatalogDriver(
            shards.store, shards.shared, shards.changes, shards.front.apply, self._on_lost
        )  # fmt: skip
        on_stop(self.driver.stop)
        self._join_shards(inboxes)
        await self._run_shards(loop)
        self.access = self._authorize()
        if shards.common.audit is not None:
            first = next(iter(shards.nodes.values()))
            self.auditing = Auditing(shards.common.audit, first.audit_topic, settings, self.access)
            on_stop(partial(asyncio.to_thread, self.auditing.stop))
            self.ticker.every(TURN_S, self.auditing.turn)
        if takes_tokens(settings.listeners):
            self._take_tokens(loop)
        watch = self.plugins.errors.watch
        of_plugins = [kafka_api(each) for each in watch("halfmoon_kafka_apis", self.plugins.kafka_apis, "handler")]
        self.kafka = Server(
            shards.front, self.answering, self.settings, loop, access=self.access, verifier=self.access_tokens,
            more_apis=of_plugins, turns=turns,
            homes=LocalShards(shards.front, shards.nodes, plan.shards, self._change, self.links, self._heard_by_all()),
        )  # fmt: skip
        if settings.listeners.rocketmq is not None:
            self._open_rocketmq(settings.listeners.rocketmq)

    def _heard_by_all(self) -> frozenset[str]:
        """Topics whose batches all shards hear of."""
        interceptors = [each for each in self.plugins.interceptors if each.heard_by_all]
        return frozenset(name for each in interceptors for name in each.topic_prefixes)

    def _open_rocketmq(self, listener: RocketmqListener) -> None:
        from halfmoon.server.workers.rocketmq_servers import RocketmqServers  # few need it

        self._rocketmq = servers = RocketmqServers(
            self.settings, listener, self.shards, self.plugins, self.driver, self.links, self.access, self.turns,
            self._in_thread, self._listening,
        )  # fmt: skip
        self.rocketmqs = list(servers.of.values())
        for number in self.shards.nodes:
            self._inboxes[number].add(servers.answers(number))

    def _members(self) -> list[OtherNode]:
        """All processes, as clients of the first listener reach them."""
        plan, kafka = self.plan, self.settings.listeners.kafka
        host = (kafka.advertise or kafka.bind).host
        ports = plan.kafka[kafka.name]
        return [OtherNode(plan.node_id(worker), (host, ports[worker]), "", (host, 0)) for worker in range(plan.workers)]

    def _join_shards(self, inboxes: dict[int, Inbox]) -> None:
        """What the shards have in common, and what they answer each other."""
        plan, shards = self.plan, self.shards
        all_shards = AllShards(self.links, plan.shards, frozenset(shards.nodes), finder(shards.shared))
        join_shares(shards.nodes, all_shards)
        for number, node in shards.nodes.items():
            inboxes[number] = Inbox(
                share_answers(node), transactions.answers(node), message_answers(node, self._rights, self._in_thread),
                entries_answers(node), hearing_answers(node, self._in_thread, asyncio.get_running_loop().call_soon),
            )  # fmt: skip
        self._inboxes = inboxes
        self.monitoring = WorkersMonitoring(self, self.links)
        inboxes[PROCESS] = inbox = Inbox({CatalogChanged: self._catalog_changed}, self.monitoring.answers())
        self.answer = inbox.answer

    async def _run_shards(self, loop: asyncio.AbstractEventLoop) -> None:
        shards, plan, on_stop = self.shards, self.plan, self._undo.append
        timers = Timers()
        timers.on_error = _failed
        shards.hold.on_deadline, shards.hold.on_error = timers.arm, _failed
        timers.add(shards.hold)
        timers.add(_InAChange(shards.common_timers, self._expire))
        shards.common_timers.on_deadline = timers.arm
        deadlines = Deadlines(timers, shards.clock, loop)
        wake_in_turns(shards.hold, self.turns)
        await self.driver.change(partial(shards.started, self._unset_configs, self._make_what_is_missing))
        counts: Counter[tuple[str, str]] = Counter()
        hosts: dict[int, ShardHost] = {}
        self.running: dict[int, Running] = {}
        for number, node in shards.nodes.items():
            plugins = load_plugins(self.settings, BUILT_IN)
            fs = shards.file_systems[number]
            hosts[number] = ShardHost(node, fs.root, shards.wanted, counts)
            self.running[number] = Running(node, fs, plugins, hosts[number], loop, self.turns, on_stop)
        shards.front.administration.use(shards.front.features.all)
        deadlines.start()
        on_stop(deadlines.stop)
        first = next(iter(self.running.values()))
        first.ticker.every(self.settings.hold.check_interval_ms / 1000, shards.hold.check)
        first.ticker.every(LOOK_S, self.tls_files.look)
        self.ticker = first.ticker
        self.plugin_host = FrontHost(shards.front, hosts, plan.shards, plan.path)
        self.plugins.attach(self.plugin_host)
        self.plugins.guard.runs_here()
        on_stop(self.plugins.stopping)
        await self.driver.change(self._tell_plugins)
        shards.front.administration.on_changed = self._topic_changed
        shards.wanted.bind(self.driver, shards.front.administration)
        for running in self.running.values():
            running.follow(on_stop)
        ask_policies(shards.hold, self.plugins)
        self.loop_lag = LoopLag(loop)
        self.loop_lag.start()
        on_stop(self.loop_lag.stop)
        first_node = next(iter(shards.nodes.values()))
        self.answering = Services(first_node.services)
        self.answering.add(ShownEntries())
        off = first_node.off
        self.answering.add(
            OfferedTopics(shards.front.catalog, shards.front.administration, internal_topics(off), plan.shards)
        )
        if self.plugins.fetch_filters:
            self.answering.add(leaving_out(self.plugins))

    def _make_what_is_missing(self) -> None:
        """In a change, so that one process makes it."""
        shards, listeners = self.shards, self.settings.listeners
        first_user.create(shards.common.users, self._environment)
        audit = shards.common.audit
        if audit is not None and self.settings.security.audits_to_topic(listeners):
            if shards.front.catalog.topic(AUDIT_TOPIC) is None:
                shards.front.administration.create_topic(AUDIT_TOPIC, configs=AUDIT_CONFIGS, internal=True)
            audit.sinks = (next(iter(shards.nodes.values())).audit_topic,)

    def _tell_plugins(self) -> None:
        """In a change: they may make topics."""
        self.plugins.started()
        for topic in self.shards.front.catalog.topics():
            self.plugins.topic_changed(topic.name, "exists")

    def _topic_changed(self, name: str, change: str) -> None:
        if self.plugins.on_topic_changed:
            self.soon(self.driver.change(lambda: self.plugins.topic_changed(name, change)))  # type: ignore[arg-type]

    def _authorize(self) -> Access | None:
        shards = self.shards
        rights_changed = shards.every_node(lambda node: node.groups.rights_changed())
        access = authorizing.access_of(
            shards.common,
            shards.front.catalog,
            shards.clock,
            rights_changed,
            self.settings,
            self.plugins,
            self.plugin_host,
        )
        answers = authorizing.answers(access, self.tls_files)
        for services in (self.answering, *(node.services for node in shards.nodes.values())):
            services.add(answers)
        return access

    def _take_tokens(self, loop: asyncio.AbstractEventLoop) -> None:
        """Raises StartError."""
        from halfmoon.server.access_tokens import access_tokens  # few need it

        shards = self.shards
        lets_in = shards.common.users.lets_in
        self.access_tokens = access_tokens(self.settings.security.oauth, loop, shards.clock, lets_in)
        self._undo.append(self.access_tokens.stop)

    # -- listening -----------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        plan, kafka = self.plan, self.kafka
        kafka.reuse_port = True
        kafka.given = self._listening
        fit = connections_that_fit(raise_limit(), self.settings.limits.max_connections)
        kafka.most_connections = fit
        self._undo.append(kafka.stop)
        path = plan.socket(plan.worker)
        try:
            made = admin_socket.listening_at(path)
            local = Local(LOCAL_ADMIN, admin_socket.is_ours)
            nodes = {plan.node_id(worker): str(plan.socket(worker)) for worker in range(plan.workers)}
            await kafka.open_locally(made, local, nodes)
            if self._admin is not None:
                await kafka.open_locally(self._admin, local, nodes)
            await self.links.start()
        except OSError as error:
            raise StartError(f"cannot listen on {path}: {error.strerror or error}") from error
        self._undo.append(self.links.stop)
        for each in self.settings.listeners.of_kafka:
            own, shared = plan.kafka[each.name], plan.bootstrap[each.name]
            door, host = kafka.doors[each.name], None if each.advertise is None else each.advertise.host
            door.port = own[plan.worker]
            door.others = {plan.node_id(worker): (host, port) for worker, port in enumerate(own)}
            for port in (own[plan.worker], shared):
                await self._open_kafka(each, port)
        if self._rocketmq is not None:
            await self._listen_rocketmq(self._rocketmq)
        self.services = PluginServices(self.plugins.services)
        if self.settings.listeners.http is not None:
            await self._listen_http(self.settings.listeners.http)
        self.services.start()
        self._undo.append(self.services.stop)
        self._polling = asyncio.get_running_loop().create_task(self._poll())
        self._undo.append(self._polling.cancel)
        self.driver.tell = self._tell_others
        asyncio.get_running_loop().call_soon(setattr, self.turns, "paused", False)

    async def _listen_rocketmq(self, servers: RocketmqServers) -> None:
        self._undo.append(servers.stop)
        try:
            await servers.start()
        except OSError as error:
            raise StartError(f"listeners.rocketmq: {error.strerror or error}") from error

    async def _open_kafka(self, listener: KafkaListener, port: int) -> None:
        bind = listener.bind._replace(port=port)
        try:
            await self.kafka.open_at(listener, bind)
        except OSError as error:
            raise StartError(f"cannot listen on {bind}: {error.strerror or error}") from error

    async def _listen_http(self, listener: HttpListener) -> None:
        from halfmoon.server.http import HttpServer  # prometheus-client costs start-up time, and few need it
        from halfmoon.server.http_access import visitors_of

        common = self.shards.common
        tls = None if listener.tls is None else Tls("http", listener.tls, self.shards.clock.wall_ms)
        visitors = visitors_of(common.users, self.settings, self.access, self.access_tokens, common.audit)
        self.http = HttpServer(self, tls=tls, visitors=visitors, monitored=self.monitoring)
        self.http.reuse_port = True
        bind = listener.bind._replace(port=self.plan.http)
        try:
            await self.http.start(bind)
        except OSError as error:
            raise StartError(f"cannot listen on {bind}: {error.strerror or error}") from error
        self._undo.append(self.http.stop)

    @property
    def parts(self) -> Sequence[Part]:
        return [Part(running.node, running.ticker) for running in self.running.values()]

    @property
    def kafka_address(self) -> Address:
        kafka = self.settings.listeners.kafka
        return Address((kafka.advertise or kafka.bind).host, self.plan.kafka[kafka.name][self.plan.worker])

    def _all_tls(self) -> list[Tls]:
        return [*self.kafka.tls, *(tls for server in self.rocketmqs for tls in server.tls)]

    def reload(self, settings: Settings) -> None:
        """As App.reload."""
        found = reload(self.settings, settings)
        self.settings = found.settings
        shards = self.shards
        shards.common.dynamic_configs.rebase(found.settings)
        for catalog in (shards.front.catalog, *(node.kernel.catalog for node in shards.nodes.values())):
            catalog.reconfigure(shards.live.current)
        self.tls_files.reload()
        if self.auditing is not None:
            self.auditing.reopen()
        if self.access_tokens is not None:
            self.access_tokens.fetch()
        logger.info("event=reloaded changed=%s", ",".join(found.changed) or "none")
        for path in found.kept:
            logger.warning("event=setting_not_reloaded setting=%s reason=%s", path, "it needs a restart")

    # -- the shared catalog --------------------------------------------------------------------------------------------

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            await self._catch_up()

    async def _catch_up(self) -> BrokerError | None:
        try:
            await self.driver.catch_up()
        except CatalogUnavailableError as error:
            logger.error("event=catalog_unavailable error=%s", error)
            return BrokerError(Fault.COORDINATOR_NOT_AVAILABLE, str(error))
        except Exception as error:
            self._on_lost(error)
            raise
        return None

    def _catalog_changed(self, question: CatalogChanged, told: Told) -> None:
        if question.version <= self.shards.shared.version:
            told(Done())
            return

        async def look() -> None:
            told(await self._catch_up() or Done())

        self.soon(look())

    async def _tell_others(self, version: int) -> None:
        """Returns when all who can be reached know it, or after TOLD_S."""
        loop = asyncio.get_running_loop()
        waiting = []
        for process, is_up in self.links.others().items():
            if is_up:
                future: asyncio.Future[object] = loop.create_future()
                waiting.append(future)
                self.links.ask_process(process, CatalogChanged(version), partial(_resolve, future))
        if waiting:
            await asyncio.wait(waiting, timeout=TOLD_S)

    def _told_of(self, process: int) -> None:
        """A process is connected: it may have missed something."""
        self.links.ask_process(process, CatalogChanged(self.shards.shared.version), _nobody)

    def _rights(self, principal: str, host: str) -> Rights | None:
        """What a client of another process may do here; None: everything."""
        return None if self.access is None else self.access.rights(principal, host)

    def _in_thread(self, work: Callable[[], object], then: Callable[[object, BaseException | None], None]) -> None:
        """As of adapters/tcp/steps.InThread."""

        def done(future: asyncio.Future[object]) -> None:
            if not future.cancelled():
                error = future.exception()
                then(None if error is not None else future.result(), error)

        asyncio.get_running_loop().run_in_executor(None, work).add_done_callback(done)

    def _change(self, work: Callable[[], object], told: Callable[[object], None]) -> None:
        """As of Homes."""

        async def change() -> None:
            try:
                made = await self.driver.change(work)
            except Exception as error:
                made = error
            told(made)

        self.soon(change())

    def _expire(self, mono_ms: int) -> None:
        self.soon(self.driver.change(lambda: self.shards.common_timers.expire(mono_ms)))

    # -- monitoring -----------------------------------------------------------------------------------------------

    def health(self) -> list[str]:
        """What is wrong, a sentence each; empty when nothing is."""
        found = []
        for number, node in self.shards.nodes.items():
            found += [f"shard {number}: {problem}" for problem in node.health()]
        return found + self.services.problems()

    def warnings(self) -> list[str]:
        """What somebody should know although everything works, a sentence each."""
        found = []
        for number, node in self.shards.nodes.items():
            found += [f"shard {number}: {warning}" for warning in node.warnings()]
        of_common = [text for each in self.shards.common.features() if each.warnings for text in each.warnings()]
        of_tokens = [] if self.access_tokens is None else self.access_tokens.warnings()
        return found + of_common + self.tls_files.warnings() + of_tokens + authorizing.warnings(self.settings)

    def soon(self, work: Coroutine[Any, Any, object]) -> None:
        """Have it carried out in the loop."""
        task = asyncio.get_running_loop().create_task(work)
        _tasks.add(task)
        task.add_done_callback(_ended)


class _InAChange:
    """Deadlines of what is changed in the shared catalog when its time has come."""

    def __init__(self, timers: Timers, expire: Callable[[int], None]) -> None:
        self._timers = timers
        self._expire = expire
        self._looked_ms = 0

    def next_deadline(self) -> int | None:
        deadline_ms = self._timers.next_deadline()
        return None if deadline_ms is None else max(deadline_ms, self._looked_ms + 1_000)

    def expire(self, mono_ms: int) -> None:
        deadline_ms = self.next_deadline()
        if deadline_ms is not None and deadline_ms <= mono_ms:
            self._looked_ms = mono_ms
            self._expire(mono_ms)


_tasks: set[asyncio.Task[object]] = set()
"""The loop itself would forget them."""


def _ended(task: asyncio.Task[object]) -> None:
    _tasks.discard(task)
    if not task.cancelled() and task.exception() is not None:
        logger.error("event=callback_failed", exc_info=task.exception())


def _resolve(future: asyncio.Future[object], answer: object) -> None:
    if not future.done():
        future.set_result(answer)


def _nobody(_answer: object) -> None: ...


def _failed(error: Exception) -> None:
    logger.error("event=callback_failed", exc_info=error)
