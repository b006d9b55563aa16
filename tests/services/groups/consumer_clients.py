"""Consumers as the coordinator meets them: what they think that they own, and what they do next by themselves.

`owned` is what a consumer reads right now. A consumer of the new protocol does at its own pace what it is told; an
eager one of the classic protocol gives everything up before it joins, a cooperative one what its share does not hold.
"""

from __future__ import annotations

from collections.abc import Callable

from halfmoon.errors import Fault
from halfmoon.plugins.allocate.range import range_
from halfmoon.schema.groups import Places
from halfmoon.services.groups.allocation import Queue
from halfmoon.services.groups.consumer.classic import places_of
from halfmoon.services.groups.consumer.messages import ConsumerHeartbeat
from halfmoon.services.groups.consumer_protocol import assignment_bytes, parse_assignment, parse_subscription
from halfmoon.services.groups.coordination import Coordination
from halfmoon.services.groups.messages import ConsumerHeartbeatResult, Effect, Join, JoinResult, Sync, SyncResult
from tests.services.groups.consumer_script import FakeTopics, subscription_bytes

NOTHING: Places = frozenset()


class World:
    """What clients see of the broker."""

    def __init__(self, topics: FakeTopics) -> None:
        self.topics = topics
        self.now = 0
        self.coordination: Coordination
        self.deliver: Callable[[list[Effect]], None]


class NewClient:
    """A process that speaks the new protocol."""

    def __init__(
        self, world: World, member_id: str, instance_id: str | None, topics: tuple[str, ...], regex: str
    ) -> None:
        self.world = world
        self.member_id, self.instance_id = member_id, instance_id
        self.topics, self.regex = topics, regex
        self.epoch = 0
        self.owned: Places = NOTHING
        self.told: Places = NOTHING
        """What it was last told that it may read."""
        self.said: Places = NOTHING
        """What it last said that it owns."""
        self.says_all = True
        self.lost = False
        self.acted_ms = world.now

    def reads(self, topic: str) -> bool:
        import re

        return topic in self.topics or (bool(self.regex) and re.fullmatch(self.regex, topic) is not None)

    def step(self) -> None:
        self.reconcile()
        self.beat()

    def reconcile(self) -> None:
        self.owned = self.told

    def beat(self, lose: bool = False) -> None:
        world = self.world
        self.acted_ms = world.now
        whole = self.says_all or self.epoch == 0
        beat = ConsumerHeartbeat(
            group="g",
            member_id=self.member_id,
            epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=60_000 if whole else -1,
            topics=self.topics if whole else None,
            regex=self.regex if whole else None,
            owned=self.owned if whole or self.owned != self.said else None,
        )
        self.said, self.lost = self.owned, lose
        world.deliver(world.coordination.consumer_heartbeat(beat, self, world.now))
        if lose:
            self.says_all, self.lost = True, False

    def hear(self, result: ConsumerHeartbeatResult) -> None:
        if self.lost:
            return
        if result.fault is not None:
            assert result.fault in (
                Fault.FENCED_MEMBER_EPOCH, Fault.UNKNOWN_MEMBER_ID, Fault.UNRELEASED_INSTANCE_ID,
                Fault.FENCED_INSTANCE_ID, Fault.GROUP_ID_NOT_FOUND,
            )  # fmt: skip
            self.epoch, self.owned, self.told, self.says_all = 0, NOTHING, NOTHING, True
            return
        assert result.epoch >= self.epoch, "epochs never go back"
        self.epoch, self.says_all = result.epoch, False
        if result.assigned is not None:
            self.told = frozenset((number, index) for number, index, _ in result.assigned)

    def leave(self, for_now: bool) -> None:
        world = self.world
        self.owned = self.told = NOTHING
        if self.epoch > 0:
            epoch = -2 if for_now and self.instance_id is not None else -1
            beat = ConsumerHeartbeat(group="g", member_id=self.member_id, epoch=epoch, instance_id=self.instance_id)
            self.lost = True
            world.deliver(world.coordination.consumer_heartbeat(beat, self, world.now))

    def disconnected(self) -> None:
        self.says_all = True

    def forget_topic(self, number: int) -> None:
        self.owned = frozenset(place for place in self.owned if place[0] != number)
        self.told = frozenset(place for place in self.told if place[0] != number)


class OldClient:
    """A process that speaks the classic protocol."""

    def __init__(
        self, world: World, instance_id: str | None, topics: tuple[str, ...], cooperative: bool, version: int
    ) -> None:
        self.world = world
        self.instance_id, self.topics, self.cooperative, self.version = instance_id, topics, cooperative, version
        self.member_id, self.generation = "", -1
        self.owned: Places = NOTHING
        self.joined_topics = topics
        self.phase = "to join"
        self.shares: dict[str, bytes] = {}
        self.leads = False
        self.dead = False
        self.seen_changes = world.topics.changes
        self.acted_ms = world.now
        self._waits: object = None

    def reads(self, topic: str) -> bool:
        return topic in self.topics

    def step(self) -> None:
        if self.dead:
            return
        if self.phase == "to join":
            self.join()
        elif self.phase == "to sync":
            self.sync()
        elif self.phase == "stable":
            self.beat()

    def join(self) -> None:
        world = self.world
        self.acted_ms = world.now
        if not self.cooperative:
            self.owned = NOTHING
        owned: dict[str, list[int]] = {}
        for number, index in sorted(self.owned):
            name = world.topics.name(number)
            if name is not None:
                owned.setdefault(name, []).append(index)
        self.phase, self.seen_changes = "joining", world.topics.changes
        self.joined_topics = self.topics
        join = Join(
            group="g", member_id=self.member_id, instance_id=self.instance_id, client_id="old", client_host="/h",
            session_timeout_ms=10_000, rebalance_timeout_ms=60_000, protocol_type="consumer",
            protocols=(("range", subscription_bytes(self.topics, owned)),),
            require_known_member=self.version >= 4, can_skip_assignment=False,
        )  # fmt: skip
        self._waits = token = (self, object())
        world.deliver(world.coordination.join(join, token, world.now))

    def sync(self) -> None:
        world = self.world
        self.acted_ms = world.now
        self.phase = "syncing"
        sync = Sync("g", self.generation, self.member_id, self.instance_id, "consumer", "range", self.shares)
        self._waits = token = (self, object())
        world.deliver(world.coordination.sync(sync, token, world.now))

    def beat(self) -> None:
        world = self.world
        self.acted_ms = world.now
        if self.topics != self.joined_topics or (self.leads and self.seen_changes != world.topics.changes):
            self.phase = "to join"
            return
        fault, effects = world.coordination.heartbeat("g", self.generation, self.member_id, self.instance_id, world.now)
        world.deliver(effects)
        self.refused(fault)

    def refused(self, fault: Fault | None) -> None:
        if fault is None:
            return
        if fault is Fault.FENCED_INSTANCE_ID:
            self.dead = True
        elif fault is Fault.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        elif fault not in (Fault.REBALANCE_IN_PROGRESS, Fault.ILLEGAL_GENERATION):
            raise AssertionError(fault)
        if fault is not Fault.REBALANCE_IN_PROGRESS:
            self.owned = NOTHING  # it has lost them
        self.phase, self.leads = "to join", False

    def hear(self, token: object, result: JoinResult | SyncResult) -> None:
        if token is not self._waits or self.dead:
            return
        if isinstance(result, JoinResult):
            self.joined(result)
        elif result.fault is not None:
            self.refused(result.fault)
        else:
            shared = parse_assignment(result.assignment)
            assert shared is not None
            share = places_of(shared, self.world.topics)
            gives_up = self.owned - share
            self.owned = share
            self.phase = "to join" if gives_up else "stable"

    def joined(self, result: JoinResult) -> None:
        if result.fault is Fault.MEMBER_ID_REQUIRED:
            self.member_id, self.phase = result.member_id, "to join"
        elif result.fault is not None:
            self.refused(result.fault)
        else:
            self.member_id, self.generation, self.phase = result.member_id, result.generation, "to sync"
            self.leads = bool(result.members)
            self.shares = self.assign(result) if result.members else {}

    def assign(self, result: JoinResult) -> dict[str, bytes]:
        """The leader's work: ranges; what somebody else still owns is left to nobody, for one round."""
        topics, members, owners = self.world.topics, {}, {}
        for member in result.members:
            said = parse_subscription(member.metadata)
            assert said is not None
            members[member.member_id] = said
            owners.update({(topic, index): member.member_id for topic, each in said.owned.items() for index in each})
        shares: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in members}
        for topic in sorted({topic for said in members.values() for topic in said.topics}):
            number = topics.number(topic)
            if number is None:
                continue
            readers = [member_id for member_id, said in members.items() if topic in said.topics]
            queues = [Queue(topic, "b", index) for index in range(topics.partitions(number))]
            for member_id, owned in range_(readers, queues).items():
                mine = [q.queue_id for q in owned if owners.get((topic, q.queue_id), member_id) == member_id]
                if mine:
                    shares[member_id][topic] = mine
        return {member_id: assignment_bytes(0, share) for member_id, share in shares.items()}

    def leave(self, for_now: bool) -> None:
        self.owned = NOTHING
        if self.member_id and not self.dead and (self.instance_id is None or not for_now):
            _, effects = self.world.coordination.leave("g", [(self.member_id, self.instance_id)], self.world.now)
            self.world.deliver(effects)

    def disconnected(self) -> None:
        if self.phase in ("joining", "syncing"):
            self.phase = "to join"

    def forget_topic(self, number: int) -> None:
        self.owned = frozenset(place for place in self.owned if place[0] != number)
