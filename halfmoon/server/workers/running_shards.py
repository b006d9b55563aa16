"""What drives the shards of a process, and what plugins give each of them, and the process.

A plugin is loaded once for each shard, for its hooks about messages, and once for all the others (`plugin_hosts`).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

from halfmoon.core.timers import Timers
from halfmoon.errors import LeaseLostError
from halfmoon.hooks.plugins import Plugins, load_plugins
from halfmoon.plugins import BUILT_IN
from halfmoon.server.cleaning import CleaningProcess
from halfmoon.server.deadlines import Deadlines
from halfmoon.server.running import OnStop, Part, Running, ask_policies, undo
from halfmoon.server.waking import wake_in_turns
from halfmoon.server.workers.catalog_news import ChangedInTime
from halfmoon.server.workers.plugin_hosts import FrontHost, ShardHost
from halfmoon.server.workers.tasks import failed, soon

if TYPE_CHECKING:
    from halfmoon.adapters.tcp.turns import Turns
    from halfmoon.config.settings import Settings
    from halfmoon.hooks.types import TopicChange
    from halfmoon.server.plugin_host import RightsOf
    from halfmoon.server.workers.catalog import SharedCatalogDriver
    from halfmoon.server.workers.open_shards import OpenShards

logger = logging.getLogger("halfmoon.server")


class RunningShards:
    def __init__(
        self,
        settings: Settings,
        shards: OpenShards,
        plugins: Plugins,
        driver: SharedCatalogDriver,
        turns: Turns,
        on_stop: OnStop,
    ) -> None:
        """`plugins`: those of the process."""
        self._settings = settings
        self._shards = shards
        self._plugins = plugins
        self._driver = driver
        self._turns = turns
        self._on_stop = on_stop
        self._running: dict[int, Running] = {}
        self._undo: dict[int, list[Callable[[], object]]] = {}
        self._unfollow: dict[int, list[Callable[[], object]]] = {}
        """How what follows a shard's log is stopped."""
        self._counts: Counter[tuple[str, str]] = Counter()
        self._hosts: dict[int, ShardHost] = {}
        self._rights: RightsOf | None = None
        self._unannounced: set[int] = set()
        self._announcing = asyncio.Lock()
        # Of all workers together no more than of one process: a compaction takes a core, and memory for its keys.
        rate = settings.log.cleaner.bytes_per_second
        self._cleaner_rate = rate and max(1, rate // shards.place.here)
        self._one_by_one = threading.Lock()

    def authorize(self, rights: RightsOf) -> None:
        """It is known from now on what clients may do: see Host.rights."""
        self._rights = self.host.rights = rights
        for host in self._hosts.values():
            host.rights = rights

    async def start(self, unset_configs: Collection[str], make: Callable[[], object]) -> None:
        """`make`: in the first change of the shared catalog, what else is missing there. Raises StartError,
        CatalogUnavailableError."""
        shards, plugins, on_stop = self._shards, self._plugins, self._on_stop
        front = shards.front
        loop = asyncio.get_running_loop()
        deadlines = self._deadlines(loop)
        await self._driver.change_at_start(partial(shards.started, unset_configs, make))
        on_stop(self._stop_all)
        for number in shards.nodes:
            self._run(number)
        front.administration.use(front.features.all)
        deadlines.start()
        on_stop(deadlines.stop)
        self.ticker = self._running[shards.first].ticker
        self.ticker.every(self._settings.hold.check_interval_ms / 1000, shards.hold.check)
        self.host = FrontHost(front, self._hosts, shards.place.layout, shards.place.folder)
        plugins.attach(self.host)
        plugins.guard.runs_here()
        on_stop(plugins.stopping)
        await self._driver.change_at_start(self._tell_plugins)
        front.administration.on_changed = self._topic_changed
        shards.wanted.bind(self._driver, front.administration)
        on_stop(self._unfollow_all)
        for number in shards.nodes:
            self._follow(number)
        ask_policies(shards.hold, plugins)

    def _run(self, number: int) -> None:
        """Raises StartError."""
        shards = self._shards
        node, files = shards.nodes[number], shards.files[number]
        host = self._hosts[number] = ShardHost(node, files.root, shards.wanted, self._counts, shards.client_threads)
        if self._rights is not None:
            host.rights = self._rights
        is_whole = files.is_whole
        cleaning = CleaningProcess(files.root, self._cleaner_rate, self._one_by_one) if is_whole else None
        plugins = load_plugins(self._settings, BUILT_IN)
        on_stop = self._undo.setdefault(number, []).append
        loop = asyncio.get_running_loop()
        self._running[number] = Running(node, cleaning, plugins, host, loop, self._turns, on_stop)

    def _follow(self, number: int) -> None:
        """Raises StartError."""
        self._running[number].follow(self._unfollow.setdefault(number, []).append)

    def add(self, number: int) -> None:
        """A shard that was opened runs from now on. Raises StartError."""
        self._run(number)
        self._follow(number)

    async def announce(self, number: int) -> None:
        """It is in the catalog that it is this process's, and the others hear of it soon. Raises
        CatalogUnavailableError; LeaseLostError where another process has opened it since."""
        await self._announce(number)
        if self._shards.shared.epochs.get(number) != self._shards.nodes[number].kernel.generation:
            # This process stood still for longer than its lease.
            raise LeaseLostError(f"another process has opened shard {number} meanwhile")

    async def _announce(self, number: int) -> None:
        # One change for all that are opened at a time: a node that takes over has several.
        self._unannounced.add(number)
        async with self._announcing:
            if number not in self._unannounced:
                return
            numbers, self._unannounced = self._unannounced, set()
            try:
                await self._driver.change(lambda: self._shards.began(numbers), until_told=False)
            except BaseException:
                self._unannounced |= numbers - {number}
                raise

    async def remove(self, number: int) -> None:
        """It runs no more. Not the first."""
        await undo(self._unfollow.pop(number, []))
        await undo(self._undo.pop(number, []))
        self._running.pop(number, None)
        self._hosts.pop(number, None)

    async def _stop_all(self) -> None:
        for number in reversed(list(self._undo)):
            await undo(self._undo[number])

    async def _unfollow_all(self) -> None:
        for number in reversed(list(self._unfollow)):
            await undo(self._unfollow[number])

    @property
    def parts(self) -> Sequence[Part]:
        return [Part(running.node, running.ticker) for running in self._running.values()]

    def _deadlines(self, loop: asyncio.AbstractEventLoop) -> Deadlines:
        """Of what the shards have in common."""
        shards = self._shards
        timers = Timers()
        timers.on_error = failed
        shards.hold.on_deadline, shards.hold.on_error = timers.arm, failed
        timers.add(shards.hold)
        timers.add(ChangedInTime(shards.common_timers, self._driver))
        shards.common_timers.on_deadline = timers.arm
        wake_in_turns(shards.hold, self._turns)
        return Deadlines(timers, shards.clock, loop)

    def _tell_plugins(self) -> None:
        """In a change: they may make topics."""
        self._plugins.started()
        for topic in self._shards.front.catalog.topics():
            self._plugins.topic_changed(topic.name, "exists")

    def _topic_changed(self, name: str, change: TopicChange) -> None:
        if self._plugins.on_topic_changed:
            soon(self._driver.change(lambda: self._plugins.topic_changed(name, change)))
