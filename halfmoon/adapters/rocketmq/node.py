"""What all RocketMQ connections of a broker share: members, locks, progress, windows of what is read, check-backs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from halfmoon.adapters.rocketmq import names
from halfmoon.adapters.rocketmq.checks import CheckBack
from halfmoon.adapters.rocketmq.ends import Ends
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.filters import Filters
from halfmoon.adapters.rocketmq.groups import ConsumersElsewhere, Groups
from halfmoon.adapters.rocketmq.members import Client, Members
from halfmoon.adapters.rocketmq.producers_elsewhere import ProducersElsewhere
from halfmoon.adapters.rocketmq.progress import AnyProgress, Progress, Told
from halfmoon.adapters.rocketmq.queue_locks import QueueLocks
from halfmoon.adapters.rocketmq.queues import Queues
from halfmoon.adapters.rocketmq.shard_progress import ShardProgress
from halfmoon.adapters.rocketmq.shard_topics import ShardTopics
from halfmoon.adapters.rocketmq.shards import Broker, Shards
from halfmoon.adapters.rocketmq.to_messages import MessageWriter
from halfmoon.adapters.rocketmq.to_records import RecordMaker
from halfmoon.adapters.rocketmq.windows import Windows
from halfmoon.adapters.tcp.access import Access
from halfmoon.adapters.tcp.core import Core
from halfmoon.config.listener_settings import RocketmqListener
from halfmoon.config.units import format_duration
from halfmoon.core.catalog.topics import Partition, Topic
from halfmoon.errors import BrokerError
from halfmoon.remoting.codes import Code
from halfmoon.remoting.message import Host
from halfmoon.schema.group_topics import check_topic
from halfmoon.services.audit.service import Audit
from halfmoon.services.common.filters import FilterCompiler
from halfmoon.services.common.services import Services
from halfmoon.services.groups.allocation import AnyAllocator
from halfmoon.services.groups.names import GroupNames
from halfmoon.services.groups.service import GroupService

log = logging.getLogger("halfmoon.rocketmq")

LOOPBACK = "127.0.0.1"
SWEEP_S = 10.0
"""How often silent clients and locks without an owner are looked for."""
MOST_NOT_MADE = 1_000
NOTIFY_CONSUMER_IDS_CHANGED = 40

Timer = Callable[[float, Callable[[], None]], object]
"""(seconds, callback): calls back once."""


class Node:
    def __init__(
        self,
        core: Core,
        services: Services,
        settings: RocketmqListener,
        allocators: Mapping[str, AnyAllocator],
        languages: Mapping[str, FilterCompiler],
        later: Timer,
        shards: Shards | None = None,
    ) -> None:
        """`shards`: where the core is one shard of several."""
        self.core = core
        self.shards = shards
        self.queues = Queues(core.catalog)
        self.services = services
        self.settings = settings
        self.allocators = allocators
        self.access: Access | None = None
        """Set where plugins say who may do what."""
        self.audit = services.find(Audit)
        """None where nothing is recorded."""
        self.later = later
        """later(seconds, callback) calls back once."""
        self.members = Members(settings.client_timeout_ms)
        self.locks = QueueLocks(settings.queue_lock_ms)
        self.filters = Filters(languages, self.spend)
        self.extra_cost = 0
        """What the request that is being handled has cost besides its bytes (see connection.REQUEST_COST)."""
        self.windows = Windows(core, services)
        self.progress: AnyProgress
        self.topics: ShardTopics | None = None
        """What makes topics, where other shards have them too."""
        if shards is None:
            self.progress = Progress(core, services.get(GroupService), later)
        else:
            self.progress = ShardProgress(core.catalog, shards.coordinators, later)
            self.topics = ShardTopics(core.catalog, shards.changes, shards.new_topic_id, shards.new_topic_configs)
        self.elsewhere = ConsumersElsewhere(settings.client_timeout_ms, core.clock.mono_ms)
        """Consumers that are connected to other shards, of the groups that this one coordinates."""
        self.records = RecordMaker()
        self.producers_elsewhere = ProducersElsewhere(
            None if shards is None else shards.producers, settings.client_timeout_ms, core.clock.mono_ms
        )
        self.checks = CheckBack(
            core, self.members, self.windows, self.producers_elsewhere, broker_name=settings.broker_name,
            queues=self.queues, group_topic=self._check_topic, writer_for=self.writer_for,
            may_answer=self.may_answer,
        )  # fmt: skip
        self.ends = Ends(core)
        self.messages_out = 0
        """Handed out to pulls."""
        self._resets: dict[tuple[str, Partition], int] = {}
        self._writers: dict[Host, MessageWriter] = {}
        self._known_at = -1
        """When the catalog had changed so often, the topics under their RocketMQ names were these."""
        self._sendable: dict[str, Topic] = {}
        self._readable: dict[str, Topic] = {}
        self._not_made: set[str] = set()
        """Topics of groups that could not be made, and were logged."""
        self._port = 0
        self._stopped = False

    def start(self, address: tuple[str, int]) -> None:
        """The broker listens there."""
        self._port = address[1]
        self.services.get(GroupNames).other_protocol = Groups(self.members, self.progress, self.elsewhere)
        self.later(SWEEP_S, self._sweep)

    def spend(self, cost: int) -> None:
        self.extra_cost += cost

    def stop(self) -> None:
        self._stopped = True
        self.progress.stop()

    def _sweep(self) -> None:
        if self._stopped:
            return
        try:
            mono_ms = self.core.clock.mono_ms()
            for connection in self.members.silent(mono_ms):
                timeout = format_duration(self.settings.client_timeout_ms)
                connection.abort(f"the client has not sent a heartbeat for {timeout}")
            self.locks.expire(mono_ms)
            self.checks.look_again()
            self.elsewhere.expire()
            self.producers_elsewhere.expire()
            if self.topics is not None:
                for name in self.topics.take_failed():
                    self.ensure_group_topic(name)
            for key in [key for key in self._resets if not self.members.has_consumers(key[0])]:
                del self._resets[key]
        finally:
            self.later(SWEEP_S, self._sweep)

    def put_off(self, by_ms: int) -> None:
        """The clock has leapt, which is nobody's silence: members, and their locks, expire so much later."""
        for known in (self.members, self.elsewhere, self.producers_elsewhere, self.locks):
            known.put_off(by_ms)

    def closed(self, connection: Client) -> None:
        """A connection is gone."""
        ids = {} if self.shards is None else self.members.consumer_ids(connection)
        for group in self.members.closed(connection):
            self.consumer_left(group, ids.get(group, ""))

    def consumer_left(self, group: str, client_id: str) -> None:
        """A group of consumers has a member less."""
        self.progress.write(group)
        if self.shards is not None and not self.members.has_consumer(group, client_id):
            self.shards.coordinators.consumer_left(group, client_id)  # behind what it has consumed
        self.tell_consumers(group)

    def tell_consumers(self, group: str) -> None:
        """The members of a group have changed: they are to share the queues anew (B22)."""
        known = self.members.consumer_group(group)
        if known is not None:
            for connection in list(known.members):
                connection.tell(NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group})

    def locks_changed(self, group: str) -> None:
        """Consumers of a group have locked queues, or given them up: the coordinator, to which they send what they have
        given up on, is to know whether they consume in order."""
        if self.shards is not None and not self.shards.coordinators.is_here(group):
            holds = self.locks.is_ordered(group, self.core.clock.mono_ms())
            self.shards.coordinators.in_order(group, holds_locks=holds)

    def is_ordered(self, group: str) -> bool:
        """Whether the group consumes in order."""
        return self.locks.is_ordered(group, self.core.clock.mono_ms()) or self.elsewhere.is_ordered(group)

    def pulled(self, messages: int) -> None:
        self.messages_out += messages

    # -- progress set from outside -----------------------------------------------------------------------------------

    def reset(self, group: str, entries: Sequence[tuple[Partition, int]], told: Told) -> None:
        """Set a group's progress. Its consumers are told when they pull next, which those whose pull is held do now.
        Raises BrokerError."""
        refused: list[BrokerError] = []

        def done(error: BrokerError | None) -> None:
            if error is not None:
                refused.append(error)
                for partition, _ in entries:
                    self._resets.pop((group, partition), None)
            told(error)

        self.progress.set(group, entries, done)
        if not refused and self.members.has_consumers(group):
            for partition, offset in entries:
                self._resets[group, partition] = offset
                self.core.hold.wake_partition(partition)

    def was_reset(self, group: str, partition: Partition) -> bool:
        """Whether its consumers have not heard yet; what they report meanwhile does not count."""
        return bool(self._resets) and (group, partition) in self._resets

    def take_reset(self, group: str, partition: Partition) -> int | None:
        """The offset that a consumer that pulls now has to go on from, if it was reset."""
        return self._resets.pop((group, partition), None) if self._resets else None

    # -- addresses ---------------------------------------------------------------------------------------------------

    def address_for(self, connection: Client) -> tuple[str, int]:
        """Where this client reaches the broker: as configured, or where it has reached us."""
        return self.settings.advertise or (connection.host, self._port)

    def may_answer(self, connection: Client, producers: str, topic: str) -> bool:
        """Whether a client may send half messages of this group to the topic, so that it may be asked about them."""
        if self.access is None:
            return True
        rights = self.access.rights(str(connection.principal), connection.peer_host)
        return rights.allows(("write", "transactional_id", producers)) and rights.allows(("write", "topic", topic))

    def writer_for(self, connection: Client | None) -> MessageWriter:
        """None: of another shard, which does not say at which address it has reached this machine."""
        if connection is None:
            return self._writer_at(Host.parse(*(self.settings.advertise or (LOOPBACK, self._port))))
        if connection.writer is None:
            connection.writer = self._writer(connection)
        return connection.writer

    def _writer(self, connection: Client) -> MessageWriter:
        host, port = self.address_for(connection)
        store = Host.parse(host, port)
        if not any(store.address):  # a name: the client has reached us at this address
            store = Host.parse(connection.host, port)
        return self._writer_at(store)

    def _writer_at(self, store: Host) -> MessageWriter:
        writer = self._writers.get(store)
        if writer is None:
            writer = self._writers[store] = MessageWriter(
                self.core.catalog, store, self.settings.cluster, self.queues,
                lambda topic, index: self._held_by(store, topic, index),
            )  # fmt: skip
        return writer

    def _held_by(self, store: Host, topic: Topic, index: int) -> tuple[Host, int] | None:
        """Where a partition is that is not here, as those see it who see us at `store`, and its number."""
        holder = None if self.shards is None else self.shards.brokers.holder(topic, index)
        if holder is None:
            return None
        return _host_of(holder.broker, store), holder.queue_number

    def host_of(self, broker: Broker, connection: Client) -> Host:
        """Where a client reaches another broker, for ids of messages."""
        return _host_of(broker, self.writer_for(connection).store)

    # -- topics ------------------------------------------------------------------------------------------------------

    def topic(self, rocketmq_name: str) -> Topic:
        """A topic that clients may see. Raises Refused(TOPIC_NOT_EXIST)."""
        topic = self.find_topic(rocketmq_name)
        if topic is None:
            raise Refused(Code.TOPIC_NOT_EXIST, f"topic[{rocketmq_name[:300]}] not exist, apply first please!")
        return topic

    def find_topic(self, rocketmq_name: str) -> Topic | None:
        try:
            topic = self.core.catalog.topic(names.from_rocketmq(rocketmq_name))
        except Refused:
            return None
        return None if topic is None or topic.internal else topic

    def sendable(self, rocketmq_name: str) -> Topic | None:
        """A topic that RocketMQ's producers may send to, if there is one. Raises Refused(MESSAGE_ILLEGAL,
        NO_PERMISSION)."""
        catalog = self.core.catalog
        if self._known_at != catalog.changes:
            self._known_at = catalog.changes
            self._sendable.clear()
            self._readable.clear()
        known = self._sendable.get(rocketmq_name)
        if known is not None:
            return known
        name = names.from_rocketmq(rocketmq_name)
        topic = catalog.by_name.get(name)
        if topic is not None:
            if topic.internal or not names.is_sendable(name):
                raise Refused(Code.NO_PERMISSION, f"the topic[{rocketmq_name}] is not for producers")
            self._sendable[rocketmq_name] = topic
        return topic

    def queue(self, rocketmq_name: str, queue_id: int) -> Partition:
        """Raises Refused(TOPIC_NOT_EXIST, INVALID_PARAMETER, NOT_LEADER_FOR_QUEUE)."""
        topic = self._readable.get(rocketmq_name) if self._known_at == self.core.catalog.changes else None
        if topic is None:
            topic = self.topic(rocketmq_name)
            if self._known_at == self.core.catalog.changes:
                self._readable[rocketmq_name] = topic
        queues = self.queues.of(topic)
        if not 0 <= queue_id < len(queues):
            raise Refused(
                Code.INVALID_PARAMETER,
                f"queueId[{queue_id}] is illegal, topic:[{rocketmq_name}] topicConfig.readQueueNums:[{len(queues)}]",
            )
        partition = queues[queue_id]
        self.check_owner(partition)
        return partition

    def check_owner(self, partition: Partition) -> None:
        """Raises Refused(NOT_LEADER_FOR_QUEUE) where another node owns the queue; the topic's route says which."""
        core = self.core
        if core.owners.owner_of(partition) != core.node_id:
            raise Refused(Code.NOT_LEADER_FOR_QUEUE, f"another node owns queue {partition.index} of the topic")

    def group_topic(self, name: str, told: Callable[[Topic | BrokerError], None], queues: int = 1) -> None:
        """A group's own topic, which is made if need be. Told at once where nobody else has to agree. Raises
        BrokerError."""
        topic = self.core.catalog.topic(name)
        if topic is not None:
            told(topic)
        elif self.topics is None:
            told(self.core.administration.create_topic(name, queues)[0])
        else:
            self.topics.make(name, queues, told)

    def _check_topic(self, group: str) -> None:
        """Have the topic made in which its producers are asked: each shard asks about its own. Raises BrokerError."""
        shards = self.shards

        def made(topic: Topic | BrokerError) -> None:
            if shards is not None and not isinstance(topic, BrokerError):
                self.checks.follow(group)

        self.group_topic(check_topic(group), made, 1 if shards is None else shards.total)

    def ensure_group_topic(self, name: str) -> None:
        def made(topic: Topic | BrokerError) -> None:
            if isinstance(topic, BrokerError):
                self._was_not_made(name, topic)
                if self.topics is not None:
                    self.topics.failed(name)

        try:
            self.group_topic(name, made)
        except BrokerError as error:
            self._was_not_made(name, error)

    def _was_not_made(self, name: str, error: BrokerError) -> None:
        if name not in self._not_made:
            if len(self._not_made) >= MOST_NOT_MADE:
                self._not_made.clear()
            self._not_made.add(name)
            log.warning("event=group_topic_not_created topic=%s error=%s", name, error)


def _host_of(broker: Broker, store: Host) -> Host:
    """A name is no address: that is ours then, which reaches the others too."""
    host = Host.parse(broker.host, broker.port)
    return host if any(host.address) else Host(store.address, broker.port)
