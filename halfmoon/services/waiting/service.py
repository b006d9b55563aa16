"""Messages that wait: for a time, for a decision, or to be consumed again (B29, B30, B38, B41).

    produced batch → interception → redirecting: what waits is appended to an internal topic
    queues (timing wheel) → deliveries: what is due is delivered, or a relay decides about it (deciding)
    reclaim: what waits in old segments is moved to the log's end

That a message waits is its partition's pending set, which is the kernel's. This service makes what else there is of
it: it knows no plugin, and no header by which somebody asks for a delay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from halfmoon.core.features import Feature, TopicPolicy
from halfmoon.services.waiting import metrics
from halfmoon.services.waiting.cancels import Cancels, OpenCancels, Place
from halfmoon.services.waiting.deciding import Deciding
from halfmoon.services.waiting.deliveries import Deliveries
from halfmoon.services.waiting.delivering import Delivering
from halfmoon.services.waiting.due_clock import DueClock
from halfmoon.services.waiting.expired import Expired, Lifetimes
from halfmoon.services.waiting.interception import Interception
from halfmoon.services.waiting.messages import WaitingMessages
from halfmoon.services.waiting.queues import WaitingQueues
from halfmoon.services.waiting.reclaim import SegmentReclaim
from halfmoon.services.waiting.redirecting import Redirecting
from halfmoon.services.waiting.rescheduling import Moved, Rescheduling, rules_of

if TYPE_CHECKING:
    from halfmoon.core.append import Appender
    from halfmoon.core.catalog.catalog import Catalog
    from halfmoon.core.catalog.topics import Partition, Topic
    from halfmoon.core.clock import Clock
    from halfmoon.core.partition_reader import PartitionReader
    from halfmoon.core.relay import Relays
    from halfmoon.core.storage.storage import WriteSide
    from halfmoon.core.topic_administration import TopicAdministration
    from halfmoon.core.turn import Turn
    from halfmoon.schema.provenance import Origin
    from halfmoon.services.common.group_events import GroupEvents
    from halfmoon.services.waiting.state import AttemptsState
    from halfmoon.services.waiting.types import PutInterceptor, Relay


class WaitingService:
    """Puts the parts together; they are the service's own, except for what is offered here."""

    def __init__(
        self,
        log: WriteSide,
        turn: Turn,
        catalog: Catalog,
        appender: Appender,
        reader: PartitionReader,
        administration: TopicAdministration,
        relays: Relays,
        clock: Clock,
        attempts: AttemptsState,
        cancels: OpenCancels,
        logger: logging.Logger,
    ) -> None:
        """`relays`: of the broker's tasks that move messages; those that plugins hand over are given to `use`.
        `cancels`: what the log says of cancelled messages."""
        self._appender = appender
        self._catalog = catalog
        self._logger = logger
        self._turn = turn
        self._clock = DueClock(clock)
        messages = WaitingMessages(reader, catalog, attempts, self._clock)
        self._delivering = Delivering(appender, administration, catalog, messages, self._clock, turn, logger)
        self._deciding = Deciding(appender, administration, catalog, messages, self._delivering, logger)
        self._queues = queues = WaitingQueues(catalog, self._deciding, attempts, self._clock)
        self.cancels = Cancels(log, catalog, appender, cancels)
        self._expired = Expired(appender, administration)
        self.deliveries = Deliveries(
            relays, queues, messages, self._deciding, self._delivering, catalog, self._clock, self.cancels,
            self._expired,
        )  # fmt: skip
        self.reclaim = SegmentReclaim(
            log, catalog, appender, reader, relays, attempts, self.deliveries, self._deciding, queues, self.cancels
        )
        self._redirecting = Redirecting(
            log, turn, appender, administration, catalog, queues, self._delivering, self.cancels
        )
        self._rescheduling = Rescheduling(catalog, appender, self.cancels, self._redirecting.waiting_partition)
        self.use((), ())
        appender.began_waiting = queues.waits_in

    # -- before the start ----------------------------------------------------------------------------------------------

    def use(self, interceptors: Sequence[PutInterceptor], relays: Sequence[Relay]) -> None:
        """What plugins hand over: who inspects produced batches, and who decides what becomes of waiting messages.
        Before the first batch and `start`."""
        self._interception = Interception(interceptors, self._redirecting, self._clock, self._logger)
        self._deciding.relays = self.cancels.relays = {relay.source: relay for relay in relays}
        self._queues.claimed = self._interception.scheduled_topics | self._deciding.relays.keys()
        self._redirecting.own_topics = {name: given for each in interceptors for name, given in each.own_topics.items()}
        self._queues.by_wall = frozenset(queue for each in interceptors for queue in each.clock_queues)
        self._rescheduling.rules = rules_of(interceptors)

    def ends_by(self, lifetimes: Lifetimes) -> None:
        """Messages expire: those that have are not delivered."""
        self._expired.lifetimes = lifetimes

    def watched_by(self, events: GroupEvents) -> None:
        """Who hears of what groups negatively acknowledge and give up."""
        self._redirecting.events = events

    def feature(self) -> Feature:
        reserves = TopicPolicy(reserves=lambda name: name in self._interception.scheduled_topics)
        return Feature(
            "waiting",
            start=self._start,
            arrived=self.deliveries.arrived,
            reclaim=self.reclaim.consider,
            families=metrics.FAMILIES,
            read_metrics=partial(metrics.read, self),
            topics=reserves,
            warnings=self._queues.warnings,
            while_off=Feature("waiting", warnings=self._left_waiting),
        )

    def _left_waiting(self) -> list[str]:
        count = sum(len(partition.pending) for partition in self._catalog.partitions() if partition.pending)
        return [f"services.waiting is off, and {count} messages wait"] if count else []

    def _start(self) -> None:
        self._appender.interceptor = self._interception
        self._clock.begin(self._turn.dispatch.last_store_ms)
        self.deliveries.start()
        self.reclaim.start()

    # -- what others ask -----------------------------------------------------------------------------------------------

    def is_waiting(self, partition: Partition, offset: int) -> bool:
        """Whether a message waits there, which may be visible or not yet: it was appended, and is not completed."""
        return offset in (partition.pending or ())

    def catch_up(self, topic: Topic) -> None:
        """Have the relay of this internal topic told of all that waits there and is visible, now."""
        self._queues.catch_up(topic)

    @property
    def decided_topics(self) -> Collection[str]:
        """Internal topics whose messages a relay decides about: they wait for something else than a time."""
        return self._deciding.relays.keys()

    @property
    def claimed_topics(self) -> Collection[str]:
        """Internal topics whose messages are delivered, or decided about; those of others wait on."""
        return self._queues.claimed

    @property
    def is_gathering(self) -> bool:
        """Messages have been read that are about to be appended: nobody else may complete what is due."""
        return self.deliveries.is_gathering

    # -- cancels -------------------------------------------------------------------------------------------------------

    def find_cancelled_by(self, find: Callable[[], None]) -> None:
        """From now on messages can be cancelled: `find` is called when a cancel has come whose messages are to be
        found."""
        self.cancels.find = find

    def complete(self, places: Iterable[Place]) -> None:
        """Complete those of these messages that wait: they are delivered nowhere. Raises BrokerError."""
        self.cancels.complete(places)

    @property
    def cancelled(self) -> int:
        """Messages that were not delivered because they are cancelled."""
        return self.cancels.completed

    # -- other times ---------------------------------------------------------------------------------------------------

    def reschedule(self, source: Partition, origin: Origin, batch: memoryview, moved: Sequence[Moved]) -> int:
        """As of Rescheduling.append. Not while `is_gathering`."""
        return self._rescheduling.append(source, origin, batch, moved)

    def most_ms(self, topic: str) -> int | None:
        """How far ahead messages that wait in this internal topic may be due; None: as far as anybody likes."""
        return self._rescheduling.most_ms(topic)

    @property
    def rescheduled(self) -> int:
        """Messages that were given another time."""
        return self._rescheduling.rescheduled

    # -- counters ------------------------------------------------------------------------------------------------------

    def waiting(self) -> int:
        """Messages that wait."""
        return self._queues.waiting()

    def waiting_in(self) -> Mapping[str, int]:
        """Messages that wait, by the internal topic in which they do."""
        return self._queues.waiting_in()

    @property
    def late_ms(self) -> int:
        """How late the next message is that is to be delivered; 0 where none is due."""
        return self._queues.times.overdue_ms()

    @property
    def delivered(self) -> int:
        return self._delivering.delivered

    @property
    def undeliverable(self) -> int:
        """Messages whose topic was gone when they were due."""
        return self._delivering.lost_targets

    @property
    def moved(self) -> int:
        """Messages that were moved out of old segments."""
        return self.reclaim.moved
