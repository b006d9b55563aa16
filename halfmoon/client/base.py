"""What the clients of both shells have in common: what they are made of, and what does not wait."""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from halfmoon.client.access import Access, Tls, access_of
from halfmoon.client.engine.consumer_settings import ConsumerSettings
from halfmoon.client.engine.consuming import ConsumerCounters
from halfmoon.client.engine.delays import DelayQueries
from halfmoon.client.engine.driver import Driver
from halfmoon.client.engine.kernel import Kernel
from halfmoon.client.engine.listening import Listener
from halfmoon.client.engine.lite_pulling import LitePulling, LiteSettings
from halfmoon.client.engine.network import Network
from halfmoon.client.engine.offsets import BrokerOffsets
from halfmoon.client.engine.producer_settings import Counters, ProducerSettings
from halfmoon.client.engine.pull_consuming import Pulling
from halfmoon.client.engine.subscriptions import Subscription, by_language, by_sql, by_tags
from halfmoon.client.engine.transactions import TransactionState
from halfmoon.client.errors import ConfigError, NotRunningError
from halfmoon.client.making import Making, check_group, settings_of, wall_ms
from halfmoon.client.messages import SendResult, SendStatus
from halfmoon.plugin import AnyAllocator, Queue

if TYPE_CHECKING:
    import ssl

DEFAULT_PRODUCER_GROUP = "DEFAULT_PRODUCER"
ADMIN_GROUP = "admin_ext_group"
"""Of who administers (MixAll.ADMIN_GROUP_NAME, DefaultMQAdminExt); no broker hears of it."""
POLL_S = 5.0
"""How long a poll waits (pollTimeoutMillis)."""
PULL_BATCH = 32

Topics = Mapping[str, str] | Sequence[str] | str
"""Topics to subscribe to: with their expressions, or for all messages."""
Namesrv = str | Sequence[str] | None
"""`HOST:PORT`s, in a list or with `;` between. None: the environment's NAMESRV_ADDR, else 127.0.0.1:9876."""

log = logging.getLogger("halfmoon.client")

T = TypeVar("T")


class Shell(Driver, Protocol):
    """What a shell can do at once."""

    kernel: Kernel
    network: Network
    tls: ssl.SSLContext | None
    on_failure: Callable[[], object]

    def call(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """Have the engine do something."""

    def look(self, function: Callable[[], T]) -> T:
        """What the engine has, while nobody changes it; before it runs, and after, too."""


class Client(ABC):
    """What all of them have: a life."""

    _shell: Shell

    def __init__(
        self, group: str, namesrv: Namesrv, instance_name: str | None, access: Access, machine_room: str | None = None
    ) -> None:
        check_group(group)
        self.group = group
        self._shell = shell = self._new_shell()
        self._making = Making(shell, namesrv, instance_name, machine_room)
        shell.kernel = self._making.kernel
        shell.network = self._making.instance.network
        shell.network.sign = access.sign
        shell.tls = access.tls
        shell.on_failure = self._making.instance.close
        self._version = 0
        self._is_started = False
        self._is_closed = False

    @abstractmethod
    def _new_shell(self) -> Shell:
        """Asked once, at the beginning: it may use the group, and the settings, if there are any."""

    @property
    def client_id(self) -> str:
        """What brokers know us by."""
        return self._making.instance.client_id

    @property
    def is_running(self) -> bool:
        return self._is_started and not self._is_closed

    def _subscription(self, topic: str, expression: str, sql: str | None, language: str | None = None) -> Subscription:
        """Newer than all before, whatever the clock says: brokers keep the newest. Raises ConfigError."""
        self._version = max(wall_ms(), self._version + 1)
        if language is not None:
            if sql is not None:
                raise ConfigError(f"topic '{topic}': sql and language exclude each other")
            return by_language(topic, language, expression, self._version)
        if sql is not None:
            return by_sql(topic, sql, self._version)
        return by_tags(topic, expression, self._version)

    def _check_running(self) -> None:
        if not self.is_running:
            raise NotRunningError("the client is closed" if self._is_closed else "the client is not started")

    def _check_start(self) -> None:
        if self._is_started:
            raise NotRunningError("a client can be started only once")
        self._is_started = True


class ProducerParts(Client):
    """Of a producer."""

    def __init__(
        self, group: str = DEFAULT_PRODUCER_GROUP, *, namesrv: Namesrv = None, instance_name: str | None = None,
        access_key: str | None = None, secret_key: str | None = None, tls: Tls = None, **options: Any,
    ) -> None:  # fmt: skip
        settings = settings_of(ProducerSettings, options)
        super().__init__(group, namesrv, instance_name, access_of(access_key, secret_key, tls))
        self._producing = self._making.producing(group, settings)

    @property
    def counters(self) -> Counters:
        """What it has done so far."""
        return self._producing.counters

    @property
    def in_flight(self) -> int:
        """Sends that are neither acknowledged nor given up."""
        return self._producing.in_flight


class DelaysParts(Client):
    """Of a client that asks about scheduled messages."""

    def __init__(
        self, *, namesrv: Namesrv = None, instance_name: str | None = None, access_key: str | None = None,
        secret_key: str | None = None, tls: Tls = None,
    ) -> None:  # fmt: skip
        super().__init__(ADMIN_GROUP, namesrv, instance_name, access_of(access_key, secret_key, tls))
        self._queries = DelayQueries(self._making.instance)

    async def _nothing(self) -> None:
        """Nothing is asked of a broker to start, or to close."""


class TransactionResult(Struct, frozen=True):
    """What has come of a message that was sent in a transaction."""

    sent: SendResult
    state: TransactionState
    """As the broker was told; UNKNOWN: it is going to ask."""


def checked_state(state: object) -> TransactionState:
    """What a listener has said; UNKNOWN where that is nothing."""
    if isinstance(state, TransactionState):
        return state
    log.error("event=transaction_listener_failed returned=%r expected=TransactionState", state)
    return TransactionState.UNKNOWN


def refused_by(status: SendStatus) -> TransactionState | None:
    """What becomes of a half message that is not stored as safely as it should be: it is rolled back, and nothing is
    executed (DefaultMQProducerImpl.sendMessageInTransaction)."""
    return None if status is SendStatus.OK else TransactionState.ROLLBACK


def subscribed(topics: Topics) -> list[tuple[str, str]]:
    """Topics and expressions, in any of the ways to say them."""
    if isinstance(topics, str):
        return [(topics, "*")]
    if isinstance(topics, Mapping):
        return list(topics.items())
    return [(topic, "*") for topic in topics]


class PushConsumerParts(Client):
    """Of a push consumer."""

    def __init__(
        self, group: str, listener: Listener, topics: Topics = (), *, ordered: bool = False, namesrv: Namesrv = None,
        instance_name: str | None = None, access_key: str | None = None, secret_key: str | None = None, tls: Tls = None,
        machine_room: str | None = None, allocator: AnyAllocator | None = None,
        offset_dir: str | os.PathLike[str] | None = None, **options: Any,
    ) -> None:  # fmt: skip
        self.settings = settings_of(ConsumerSettings, options)
        if not callable(listener):
            raise ConfigError(f"the listener is {listener!r}, expected a function (messages, context)")
        super().__init__(group, namesrv, instance_name, access_of(access_key, secret_key, tls), machine_room)
        self._consuming = self._making.consuming(
            group, self.settings, listener, ordered=ordered, allocator=allocator, offset_dir=offset_dir
        )
        for topic, expression in subscribed(topics):
            self._consuming.subscribe(self._subscription(topic, expression, None))

    def subscribe(
        self, topic: str, expression: str = "*", *, sql: str | None = None, language: str | None = None
    ) -> None:
        """`*`, or tags with `||` between; or `sql`, an SQL92 expression on properties; or, with `language`, an
        expression in that filter language of a plugin of the broker. The last one for a topic counts. While the
        consumer runs, an expression that is wrong is only logged, but for tags. Raises ConfigError."""
        made = self._subscription(topic, expression, sql, language)
        self._changed(lambda: self._consuming.subscribe(made))

    def unsubscribe(self, topic: str) -> None:
        """Nothing of it any more."""
        self._changed(lambda: self._consuming.unsubscribe(topic))

    def _changed(self, change: Callable[[], None]) -> None:
        if not self._is_started:
            change()
            return
        self._check_running()

        def both() -> None:
            change()
            self._consuming.changed()

        self._shell.call(both)

    def pause(self) -> None:
        """Nothing is pulled any more; what was pulled is still consumed."""
        self._consuming.is_paused = True

    def resume(self) -> None:
        self._consuming.is_paused = False

    @property
    def counters(self) -> ConsumerCounters:
        """What it has done so far."""
        return self._consuming.counters

    @property
    def queues(self) -> list[Queue]:
        """Those that are ours now."""
        return self._shell.look(
            lambda: [queue for queue, each in self._consuming.queues.items() if not each.is_dropped]
        )

    @property
    def cached(self) -> int:
        """Messages that were pulled and are not dealt with."""
        return self._shell.look(lambda: sum(len(each) for each in self._consuming.queues.values()))

    @property
    def in_flight(self) -> int:
        """Messages that listeners have, or are to get next."""
        return self._shell.look(lambda: self._consuming.service.in_flight)

    @property
    def lag(self) -> int:
        """Messages in our queues that are not dealt with, as far as brokers have said."""
        return self._shell.look(lambda: sum(each.lag for each in self._consuming.queues.values()))


class PullConsumerParts(Client):
    """Of a pull consumer."""

    def __init__(
        self, group: str, *, namesrv: Namesrv = None, instance_name: str | None = None,
        access_key: str | None = None, secret_key: str | None = None, tls: Tls = None,
    ) -> None:  # fmt: skip
        super().__init__(group, namesrv, instance_name, access_of(access_key, secret_key, tls))
        instance = self._making.instance
        self._pulling = Pulling(instance, group, BrokerOffsets(instance, group))


class LitePullConsumerParts(Client):
    """Of a lite pull consumer."""

    def __init__(
        self, group: str, topics: Topics = (), *, namesrv: Namesrv = None, instance_name: str | None = None,
        access_key: str | None = None, secret_key: str | None = None, tls: Tls = None,
        machine_room: str | None = None, allocator: AnyAllocator | None = None,
        offset_dir: str | os.PathLike[str] | None = None, **options: Any,
    ) -> None:  # fmt: skip
        settings = self.settings = settings_of(LiteSettings, options)
        super().__init__(group, namesrv, instance_name, access_of(access_key, secret_key, tls), machine_room)
        store = self._making.store(group, is_broadcasting=settings.is_broadcasting, offset_dir=offset_dir)
        if allocator is not None:
            settings = replace(settings, strategy="")
        chosen = allocator or self._making.allocator(settings.strategy)
        self._pulling = LitePulling(self._making.instance, group, settings, chosen, store)
        for topic, expression in subscribed(topics):
            self._pulling.subscribe(self._subscription(topic, expression, None))

    def subscribe(
        self, topic: str, expression: str = "*", *, sql: str | None = None, language: str | None = None
    ) -> None:
        """`*`, or tags with `||` between; or `sql`, an SQL92 expression on properties; or, with `language`, an
        expression in that filter language of a plugin of the broker. The queues of the topic are shared among the
        members of the group. Raises ConfigError where queues were assigned."""
        self._now(self._pulling.subscribe, self._subscription(topic, expression, sql, language))

    def assign(
        self, queues: Sequence[Queue], expression: str = "*", *, sql: str | None = None, language: str | None = None
    ) -> None:
        """Read these queues, and no others, whoever else reads them; expressions as of `subscribe`. Raises ConfigError
        where topics were subscribed to."""
        wanted = {queue.topic: self._subscription(queue.topic, expression, sql, language) for queue in queues}
        self._now(self._pulling.assign, list(queues), wanted)

    def seek(self, queue: Queue, offset: int) -> None:
        """Go on at an offset. Raises ConfigError where the queue is not assigned."""
        self._now(self._pulling.seek, queue, offset)

    def pause(self, queues: Sequence[Queue]) -> None:
        """Neither pull nor poll these."""
        self._now(self._pulling.pause, list(queues), paused=True)

    def resume(self, queues: Sequence[Queue]) -> None:
        self._now(self._pulling.pause, list(queues), paused=False)

    def _now(self, function: Callable[..., None], *args: Any, **options: Any) -> None:
        if self._is_started:
            self._check_running()
            self._shell.call(function, *args, **options)
        else:
            function(*args, **options)

    @property
    def assignment(self) -> list[Queue]:
        """Queues that are read now."""
        return self._shell.look(lambda: self._pulling.assignment)
