"""A node, or a shard, that runs in the loop: what drives it, and what plugins give it.

    open_node → Running → (plugins are told that it runs) → follow

How it is undone is told to `on_stop`, step by step; the caller does so, last first.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from halfmoon.adapters.tcp.turns import PLUGIN, Turns
from halfmoon.core.hold import Policy
from halfmoon.errors import BrokerError, StartError, StorageError
from halfmoon.server.cleaning import CleaningProcess
from halfmoon.server.observing import Observing
from halfmoon.server.plugin_features import features_of
from halfmoon.server.relaying import Relaying
from halfmoon.server.tick import Ticker
from halfmoon.services.common.leaving_out import LeavingOut
from halfmoon.services.following.service import Following

if TYPE_CHECKING:
    from pathlib import Path

    from halfmoon.core.hold import HoldService
    from halfmoon.hooks.plugins import Plugins
    from halfmoon.server.assembly import Node
    from halfmoon.server.plugin_host import Host

T = TypeVar("T")
logger = logging.getLogger("halfmoon.server")

OnStop = Callable[[Callable[[], object]], None]


async def to_its_end(work: Awaitable[T]) -> T:
    """It is waited for though whoever waits is cancelled: what a thread does, or the undoing of something, goes on, and
    what comes next must not come before."""
    done = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        await asyncio.wait([done])
        raise


async def undo(steps: list[Callable[[], object]]) -> None:
    """Last first. What one step raises is logged and does not keep the next from running.

    It is done to its end, in a task of its own: whoever undoes what it has begun may just have been cancelled, and in
    its task a database's errors pass for that (cluster/postgres/connecting.translated)."""
    await to_its_end(_undo(steps))


async def _undo(steps: list[Callable[[], object]]) -> None:
    while steps:
        step = steps.pop()
        try:
            result = step()
            if inspect.isawaitable(result):  # a compiled coroutine is none for `iscoroutine`
                await result
        except (Exception, asyncio.CancelledError):  # that something which it waited for was cancelled is one of them
            logger.exception("event=stop_failed step=%s", getattr(step, "__qualname__", step))


def open_node(node: Node, root: Path, *, unset_configs: Collection[str] = ()) -> None:
    """Recover it; `root`: its directory, for what goes wrong. Raises StartError."""
    try:
        report = node.open(_log_progress, unset_configs=unset_configs)
    except StartError:
        node.kernel.log.close()
        raise
    except (OSError, BrokerError, StorageError) as error:
        node.kernel.log.close()
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise StartError(f"data directory {root}: {reason}") from error
    if not report.clean and report.snapshot_position + report.end:
        logger.info(
            "event=recovered frames=%d end=%d torn_bytes=%d damaged=%s",
            report.frames, report.end, report.torn_bytes, report.damaged,
        )  # fmt: skip
    for problem in node.kernel.problems():
        logger.error("event=damaged problem=%s", problem)


class Part(NamedTuple):
    """A node that runs, or one of the shards of a process."""

    node: "Node"
    ticker: Ticker


class Running:
    def __init__(
        self,
        node: Node,
        cleaning: CleaningProcess | None,
        plugins: Plugins,
        host: Host,
        loop: asyncio.AbstractEventLoop,
        turns: Turns,
        on_stop: OnStop,
    ) -> None:
        """`node`: open. From now on it is driven, and moves messages. `host`: of the plugins.
        `cleaning`: None where the cleaner's tasks are to be done in a thread of this process. Raises StartError."""
        self.node = node
        self.host = host
        self._plugins = plugins
        kernel = node.kernel
        buffers = kernel.fetch_buffers

        def freed() -> None:
            loop.call_soon_threadsafe(buffers.retry)

        buffers.on_freed = freed
        plugins.guard.on_long = partial(turns.took, PLUGIN)
        self.ticker = Ticker(kernel, loop, turns)
        self.ticker.start()
        on_stop(self.ticker.stop)
        on_stop(self.ticker.settled)
        if cleaning is not None:
            node.cleaner.execute = cleaning.run
            on_stop(cleaning.stop)
        watch = plugins.errors.watch
        node.waiting.use(
            [*node.interceptors(), *watch("halfmoon_commitlog", plugins.interceptors, "before_put")],
            watch("halfmoon_relays", plugins.relays, "begin", "decide"),
        )
        node.groups.allocators = plugins.allocators
        self.following = Following(kernel.log, kernel.reader, kernel.catalog, kernel.turn, kernel.relays, kernel.logger)
        plugins.attach(host)
        plugins.guard.runs_here()
        try:
            node.extend([self.following.feature(), *features_of(plugins, node)])
        except (BrokerError, StorageError) as error:
            raise StartError(f"a feature of a plugin: {error}") from error
        node.start()
        self.relaying = Relaying(kernel.relays, loop)
        self.relaying.start()
        on_stop(self.relaying.stop)

    def follow(self, on_stop: OnStop) -> None:
        """Plugins follow the log, and have a say in what is answered. Raises StartError."""
        node, plugins = self.node, self._plugins
        owners = plugins.owners
        watched = plugins.errors.watch("halfmoon_dispatch", plugins.dispatchers, "on_batches")
        dispatchers = [(owners["halfmoon_dispatch", each.name], each) for each in watched]
        on_stop(self.following.stop)
        try:
            self.following.start(dispatchers, node.kernel.cluster_id)
        except OSError as error:
            raise StartError(f"data directory: plugins: {error}") from error
        if plugins.observers:
            Observing(node, plugins.observers, plugins.errors)
        if plugins.fetch_filters:
            node.services.add(leaving_out(plugins))


def leaving_out(plugins: Plugins) -> LeavingOut:
    """What plugins leave out of what is fetched."""
    return LeavingOut(plugins.fetch_filters, partial(plugins.errors.count_of, "halfmoon_fetch"))


def ask_policies(hold: HoldService, plugins: Plugins) -> None:
    """Plugins have a say in which arrivals answer a waiting request."""
    hold.policies = plugins.hold_policies
    logged: set[str] = set()

    def failed(policy: Policy, error: Exception) -> None:
        plugins.errors.count_of("halfmoon_hold", policy.name)
        if policy.name not in logged:
            logged.add(policy.name)
            logger.error("event=hold_policy_failed policy=%s", policy.name, exc_info=error)

    hold.on_policy_error = failed


def _log_progress(position: int, end: int) -> None:
    logger.info("event=recovering position=%d of=%d", position, end)
