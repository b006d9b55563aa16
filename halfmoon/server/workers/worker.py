"""One of several processes, each of which clients see as a broker: a worker of a data directory, or a node of a
cluster. What drives its shards, its listeners, and what it is asked.

Up:   catalog → recovery of the shards (`open_shards`) → they are told what they have missed → loop drivers, plugins →
      listeners
Down: listeners (let answers out) → plugins → loop drivers → shards (flush, checkpoint, clean mark) → catalog
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from halfmoon.adapters.kafka.server import Server
from halfmoon.adapters.kafka.shard_asking import AllShards
from halfmoon.adapters.kafka.shown import ShownEntries
from halfmoon.adapters.tcp.tls import Tls
from halfmoon.adapters.tcp.turns import Turns
from halfmoon.cluster.asking import PatientAsking
from halfmoon.cluster.messages import CatalogChanged
from halfmoon.cluster.receiving import PROCESS, Inbox
from halfmoon.config.security_settings import takes_tokens
from halfmoon.config.units import Address
from halfmoon.errors import BrokerError, Fault
from halfmoon.hooks.plugins import load_plugins
from halfmoon.plugins import BUILT_IN
from halfmoon.schema.readable_topics import AUDIT_TOPIC
from halfmoon.server import authorizing, first_user, instruments
from halfmoon.server.app import kafka_api
from halfmoon.server.assembly import internal_topics
from halfmoon.server.auditing import TURN_S, Auditing
from halfmoon.server.descriptors import raise_limit
from halfmoon.server.loop_lag import LoopLag
from halfmoon.server.measured_loop import MeasuredLoop
from halfmoon.server.needs import check_needs
from halfmoon.server.reloading import reload
from halfmoon.server.running import Part, leaving_out, undo
from halfmoon.server.services import Services as PluginServices
from halfmoon.server.tls_files import LOOK_S, TlsFiles
from halfmoon.server.workers import transactions
from halfmoon.server.workers.asking_all import message_answers
from halfmoon.server.workers.audit_lines import AuditLines
from halfmoon.server.workers.catalog import SharedCatalogDriver
from halfmoon.server.workers.catalog_news import CatalogNews
from halfmoon.server.workers.confirmed import confirmed
from halfmoon.server.workers.deletions import deletion_answers
from halfmoon.server.workers.doors import Doors
from halfmoon.server.workers.entries import entries_answers
from halfmoon.server.workers.hearing import hearing_answers
from halfmoon.server.workers.homes import LocalShards
from halfmoon.server.workers.links import Links
from halfmoon.server.workers.monitoring import WorkersMonitoring
from halfmoon.server.workers.open_shards import OpenShards, read_all
from halfmoon.server.workers.quota_news import EVERY_S, QuotaNews
from halfmoon.server.workers.running_shards import RunningShards
from halfmoon.server.workers.shares import JoinedShares, share_answers
from halfmoon.server.workers.tasks import in_thread
from halfmoon.services.audit.topic import CONFIGS as AUDIT_CONFIGS
from halfmoon.services.common.services import Services
from halfmoon.services.internal_topics.offering import OfferedTopics
from halfmoon.services.topic_configs import OF_PLUGINS

if TYPE_CHECKING:
    from halfmoon.adapters.rocketmq.server import Server as RocketmqServer
    from halfmoon.adapters.tcp.access import Access, Rights
    from halfmoon.config.listener_settings import RocketmqListener
    from halfmoon.config.settings import Settings
    from halfmoon.core.metrics import Metrics
    from halfmoon.server.access_tokens import AccessTokens
    from halfmoon.server.workers.place import Place
    from halfmoon.server.workers.rocketmq_servers import RocketmqServers

logger = logging.getLogger("halfmoon.server")


class Worker:
    """In the running event loop. `start` and `stop` once each."""

    _quota_news: QuotaNews

    def __init__(
        self,
        settings: Settings,
        place: Place,
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
        self.place = place
        self._unset_configs = unset_configs
        self._environment = environment or {}
        self._on_lost = on_lost
        self._undo: list[Callable[[], object]] = []
        self._doors = Doors(settings, place, admin, listening or {}, self._undo.append)
        self.turns = Turns()
        self._http_tls: Tls | None = None
        self.tls_files = TlsFiles(self._all_tls)
        self.access_tokens: AccessTokens | None = None
        self.auditing: Auditing | None = None
        self.more_metrics: Metrics | None = None
        self._rocketmq: RocketmqServers | None = None
        self.access: Access | None = None
        self._inboxes: dict[int, Inbox] = {}
        self.more_problems: Callable[[], Sequence[str]] = tuple
        self.more_warnings: Callable[[], Sequence[str]] = tuple
        """What else is wrong, and what else is worth a warning, a sentence each."""
        self.is_stale: Callable[[], bool] = lambda: False
        """Whether what is known here of users and rights may be of long ago: nobody is told anything then."""

    async def start(self) -> None:
        """Raises HalfmoonError (StartError mostly) with everything undone."""
        try:
            await self._open()
            await self._listen()
            await instruments.began(self, self._undo.append)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Undo what `start` did, last first."""
        self.turns.paused = True
        await undo(self._undo)

    # -- opening -------------------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        settings, place, on_stop = self.settings, self.place, self._undo.append
        loop = asyncio.get_running_loop()
        self.turns = turns = loop.turns if isinstance(loop, MeasuredLoop) else Turns()
        turns.paused = True
        raise_limit()
        self.plugins = plugins = load_plugins(settings, BUILT_IN)
        on = {plugin.name for plugin in plugins.infos if plugin.enabled}
        check_needs(settings, on)
        off = [name for name in OF_PLUGINS if name not in on]
        self.links = Links(
            loop, place.me, place.members, place.routes(loop), place.owners, self._inboxes,
            lambda process: self.news.connected(process),
        )  # fmt: skip
        store, news = await read_all(place)
        self.shards = shards = OpenShards(
            settings, place, store, news, off, plugins.topic_configs, plugins.group_configs, self.links, on_stop,
        )  # fmt: skip
        self.process_number, self.common_timers = place.me, [shards.common_timers]
        self.in_thread = partial(in_thread, shards.client_threads)
        await shards.open_first()
        self._audit_lines = AuditLines(shards.nodes, place.owns)
        self.driver = SharedCatalogDriver(
            shards.store, shards.shared, shards.changes, shards.front.apply, self._on_lost, insists=place.is_cluster,
            now_s=turns.now,
        )  # fmt: skip
        on_stop(self.driver.stop)
        self.news = CatalogNews(shards.shared, self.driver, self.links, self._on_lost)
        self._join_shards()
        self.running = RunningShards(settings, shards, self.plugins, self.driver, turns, on_stop)
        await self.running.start(self._unset_configs, self._make_what_is_missing)
        self.ticker, self.plugin_host = self.running.ticker, self.running.host
        self.ticker.every(LOOK_S, self.tls_files.look)
        self.ticker.every(EVERY_S, self._quota_news.turn)
        self.loop_lag = LoopLag(loop)
        self.loop_lag.start()
        on_stop(self.loop_lag.stop)
        self.services = PluginServices(self.plugins.services)
        self.answering = self._answering_services()
        self.access = self._authorize()
        self.running.authorize(self._rights)
        if shards.common.audit is not None:
            self.auditing = Auditing(shards.common.audit, self._audit_lines, settings, self.access)
            on_stop(partial(asyncio.to_thread, self.auditing.stop))
            self.ticker.every(TURN_S, self.auditing.turn)
        if takes_tokens(settings.listeners):
            self._take_tokens(loop)
        watch = self.plugins.errors.watch
        of_plugins = [kafka_api(each) for each in watch("halfmoon_kafka_apis", self.plugins.kafka_apis, "handler")]
        self.kafka = Server(
            shards.front, self.answering, self.settings, loop, executor=shards.client_threads, access=self.access,
            verifier=self.access_tokens, more_apis=of_plugins, turns=turns, homes=self._homes,
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
            self._doors.listening, self._rights,
        )  # fmt: skip
        for number in self.shards.nodes:
            self._inboxes[number].add(servers.answers(number))

    @property
    def rocketmqs(self) -> Sequence[RocketmqServer]:
        return [] if self._rocketmq is None else list(self._rocketmq.of.values())

    def _join_shards(self) -> None:
        """What the shards have in common, and what they answer each other."""
        place, shards, loop = self.place, self.shards, asyncio.get_running_loop()
        patient = PatientAsking(self.links, loop.call_later, loop.time)
        all_shards = AllShards(patient, place.shards, shards.nodes.keys(), shards.shared.shard_of)
        self._shares = JoinedShares(all_shards, self.links, self.settings.groups.share.max_sessions)
        for number in shards.nodes:
            self._join(number)
        self._homes = LocalShards(
            shards.front, shards.nodes, place.layout, self.news.change, self.links, self._heard_by_all(), place.confirm
        )
        self.monitoring = WorkersMonitoring(self, self.links)
        self._quota_news = QuotaNews(shards.common.quotas, self.links, shards.clock, place.me)
        self._inboxes[PROCESS] = inbox = Inbox(
            {CatalogChanged: self.news.heard}, self.monitoring.answers(), self._quota_news.answers()
        )
        self.answer, self.answer_also = inbox.answer, inbox.add

    def _join(self, number: int) -> None:
        node, soon = self.shards.nodes[number], asyncio.get_running_loop().call_soon
        self._shares.add(node)
        self._inboxes[number] = Inbox(
            confirmed(self.place.confirm, share_answers(node)), transactions.answers(node), entries_answers(node),
            message_answers(node, self._rights, self.in_thread, soon), deletion_answers(node, self.news.catch_up),
            hearing_answers(node, self.in_thread, soon),
        )  # fmt: skip

    async def open_shard(self, number: int) -> None:
        """A shard that another process had is this one's from now on. Raises StartError, CatalogUnavailableError,
        OSError; then it is closed again."""
        await self.driver.catch_up()  # whoever had it may have told it of more than is known here
        try:
            node = await self.shards.open(number)
            node.kernel.appender.was_elsewhere()
            self._join(number)
            self.running.add(number)
            node.services.add(self._authorization)
            if self._rocketmq is not None:
                self._rocketmq.add(number)
                self._inboxes[number].add(self._rocketmq.answers(number))
            self.shards.front.add(node.kernel)
            self._homes.add(number, node)
            # Last: whoever believes that it is here finds it.
            await self.running.announce(number)
            self.place.moved(number, self.place.me)
            self._audit_lines.opened()
            if self._rocketmq is not None:
                await self._rocketmq.open(number)
        except BaseException:
            await self.close_shard(number)
            raise

    async def close_shard(self, number: int) -> None:
        """A shard that this process has goes to another one: to whom the catalog says, if it does. Not the first."""
        shards, place = self.shards, self.place
        node = shards.nodes.get(number)
        if place.owners[number] == place.me:
            place.moved(number, -1)
        self._homes.remove(number)
        self._inboxes.pop(number, None)
        if node is not None:
            shards.front.remove(node.kernel)
            node.kernel.appender.leaves = True
            node.groups.send_away()
            node.transactions.send_away()
            self._shares.remove(node)
        if self._rocketmq is not None:
            await self._rocketmq.remove(number)
        with self._audit_lines.closing(node):
            await self.running.remove(number)
            await shards.close(number)

    def _answering_services(self) -> Services:
        """What requests are answered with that are about no shard."""
        shards, front = self.shards, self.shards.front
        first = shards.nodes[shards.first]
        found = Services(first.services)
        found.add(ShownEntries())
        found.add(OfferedTopics(front.catalog, front.administration, internal_topics(first.off), self.place.shards))
        if self.plugins.fetch_filters:
            found.add(leaving_out(self.plugins))
        return found

    def _make_what_is_missing(self) -> None:
        """In a change, so that one process makes it."""
        shards, listeners = self.shards, self.settings.listeners
        first_user.create(shards.common.users, self._environment)
        audit = shards.common.audit
        if audit is not None and self.settings.security.audits_to_topic(listeners):
            if shards.front.catalog.topic(AUDIT_TOPIC) is None:
                shards.front.administration.create_topic(AUDIT_TOPIC, configs=AUDIT_CONFIGS, internal=True)
            audit.sinks = (self._audit_lines,)

    def _authorize(self) -> Access | None:
        shards = self.shards
        rights_changed = shards.every_node(lambda node: node.groups.rights_changed())
        access = authorizing.access_of(
            shards.common, shards.front.catalog, shards.clock, rights_changed, self.settings, self.plugins,
            self.plugin_host,
        )  # fmt: skip
        self._authorization = answers = authorizing.answers(access, self.tls_files)
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

    async def _listen(self) -> None:
        listeners, doors = self.settings.listeners, self._doors
        await self.links.start()
        self._undo.append(self.links.stop)  # after the listeners: what they have in the air may need the others
        await doors.open_kafka(self.kafka)
        if self._rocketmq is not None:
            await doors.open_rocketmq(self._rocketmq)
        if listeners.http is not None:
            from halfmoon.server.http_access import visitors_of  # few need it

            common = self.shards.common
            visitors = visitors_of(
                common.users, self.settings, self.access, self.access_tokens, common.audit, lambda: self.is_stale()
            )
            self.http = await doors.open_http(listeners.http, self, self.monitoring, visitors)
            self._http_tls = self.http.tls
        self.services.start()
        self._undo.append(self.services.stop)
        self.news.start()
        self._undo.append(self.news.stop)
        asyncio.get_running_loop().call_soon(setattr, self.turns, "paused", False)

    @property
    def parts(self) -> Sequence[Part]:
        return self.running.parts

    @property
    def kafka_address(self) -> Address:
        kafka = self.settings.listeners.kafka
        host, port = self.place.kafka_addresses(kafka)[self.shards.identity.node_id]
        return Address(host or kafka.bind.host, port)

    def _all_tls(self) -> list[Tls]:
        of_http = [] if self._http_tls is None else [self._http_tls]
        return [*self.kafka.tls, *(tls for server in self.rocketmqs for tls in server.tls), *of_http]

    def reload(self, settings: Settings) -> None:
        """As App.reload."""
        found = reload(self.settings, settings)
        self.settings = found.settings
        shards = self.shards
        shards.common.dynamic_configs.rebase(found.settings)
        for catalog in (shards.front.catalog, *(node.kernel.catalog for node in shards.nodes.values())):
            catalog.reconfigure(shards.live.current)
        self.tls_files.reload()
        if self.access_tokens is not None:
            self.access_tokens.fetch()
        logger.info("event=reloaded changed=%s", ",".join(found.changed) or "none")
        for path in found.kept:
            logger.warning("event=setting_not_reloaded setting=%s reason=%s", path, "it needs a restart")

    def _rights(self, principal: str, host: str) -> Rights | None:
        """What a client of another process may do here; None: everything. Raises BrokerError."""
        if self.is_stale():
            raise BrokerError(Fault.NOT_LEADER_OR_FOLLOWER, "this process does not know who may do what")
        return None if self.access is None else self.access.rights(principal, host)

    # -- monitoring -----------------------------------------------------------------------------------------------

    def health(self) -> list[str]:
        """What is wrong, a sentence each; empty when nothing is."""
        found = []
        for number, node in self.shards.nodes.items():
            found += [f"shard {number}: {problem}" for problem in node.health()]
        return [*found, *self.more_problems(), *self.services.problems()]

    def warnings(self) -> list[str]:
        """What somebody should know although everything works, a sentence each."""
        found = []
        for number, node in self.shards.nodes.items():
            found += [f"shard {number}: {warning}" for warning in node.warnings()]
        of_common = [text for each in self.shards.common.features() if each.warnings for text in each.warnings()]
        of_tokens = [] if self.access_tokens is None else self.access_tokens.warnings()
        found += self.more_warnings()
        return found + of_common + self.tls_files.warnings() + of_tokens + authorizing.warnings(self.settings)
