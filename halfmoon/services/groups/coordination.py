"""All consumer groups of a node: of the classic protocol, and of the new one in which the broker assigns (KIP-848).

A name is a group of one of the two kinds. This is the door to both: it sends each request to the coordinator of the
kind, and lets groups change it while members live (`consumer/migration`). What a caller owes, and what it gets, is as
`GroupCoordinator` says; so are the methods that both have.

    classic JoinGroup, SyncGroup, …    to a group of the new protocol: `consumer/classic`
    ConsumerGroupHeartbeat             to a classic group: an upgrade, if the policy allows it
    a group without members            becomes the kind that whoever comes next speaks; its offsets stay
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TypeVar

from msgspec.structs import replace

from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.groups import JOIN, UNREVOKED, ConsumerGroupChange, GroupRecord, Place
from halfmoon.services.groups.consumer import migration
from halfmoon.services.groups.consumer.classic import ClassicMembers
from halfmoon.services.groups.consumer.heartbeats import Heartbeats
from halfmoon.services.groups.consumer.messages import (
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    ConsumerMemberDescription,
)
from halfmoon.services.groups.consumer.model import EMPTY, ConsumerGroup
from halfmoon.services.groups.consumer.rebalancing import REVOKE, Rebalancing, rebalance_timeout
from halfmoon.services.groups.consumer.settings import ConsumerSettings
from halfmoon.services.groups.consumer.subscriptions import Subscriptions, Topics
from halfmoon.services.groups.consumer.targets import names_of
from halfmoon.services.groups.coordinator import GroupCoordinator
from halfmoon.services.groups.descriptions import in_states
from halfmoon.services.groups.messages import (
    ConsumerHeartbeatResult,
    Effect,
    GroupSettings,
    Join,
    JoinResult,
    Persist,
    Record,
    Sync,
)
from halfmoon.services.groups.model import Group
from halfmoon.services.groups.names import GroupDescription, GroupListing, MemberDescription
from halfmoon.services.groups.step import Step
from halfmoon.services.groups.subscription import CONSUMER_PROTOCOL_TYPE

log = logging.getLogger(__name__)

DoneT = TypeVar("DoneT")
Act = Callable[[ConsumerGroup, ConsumerHeartbeat, Step], DoneT]
CONSUMER_TYPE = "consumer"
"""The type of a group of the new protocol, in the words of ListGroups v5."""


class Coordination:
    """Groups of both kinds."""

    def __init__(
        self,
        settings: GroupSettings,
        consumer_settings: ConsumerSettings,
        topics: Topics,
        new_member_id: Callable[[str], str],
    ) -> None:
        self.settings = consumer_settings
        self.classic = GroupCoordinator(settings, new_member_id)
        self._topics = topics
        self._subscriptions = Subscriptions(topics)
        self.rebalancing = Rebalancing(consumer_settings, self._subscriptions, self.classic.rebalances.deadlines)
        """Its `allocators` are to be set before the first request."""
        self.rebalancing.on_removed = self._downgrade_if_last
        self._heartbeats = Heartbeats(self.rebalancing, new_member_id)
        self._classic_members = ClassicMembers(self.rebalancing, new_member_id)
        self._consumer = self.rebalancing.groups

    # -- the classic protocol ----------------------------------------------------------------------------------------

    def join(self, join: Join, token: object, mono_ms: int) -> list[Effect]:
        group = self._consumer.get(join.group)
        if group is not None and not group.members:
            # It is what the next one speaks. That is written down with the first generation.
            self.rebalancing.take_out(group)
            self.classic.begin_at(group.name, group.epoch)
            group = None
        if group is None:
            return self.classic.join(join, token, mono_ms)
        step = Step(mono_ms)
        settings = self.classic.settings
        if not settings.min_session_timeout_ms <= join.session_timeout_ms <= settings.max_session_timeout_ms:
            step.reply(token, JoinResult(Fault.INVALID_SESSION_TIMEOUT, join.member_id))
            return step.effects
        result = self._classic_members.join(group, join, step)
        self._downgrade_if_last(group, step)
        step.reply(token, result)
        return step.effects

    def sync(self, sync: Sync, token: object, mono_ms: int) -> list[Effect]:
        group = self._consumer.get(sync.group)
        if group is None:
            return self.classic.sync(sync, token, mono_ms)
        step = Step(mono_ms)
        step.reply(token, self._classic_members.sync(group, sync, step))
        return step.effects

    def heartbeat(
        self, group_id: str, generation: int, member_id: str, instance_id: str | None, mono_ms: int
    ) -> tuple[Fault | None, list[Effect]]:
        group = self._consumer.get(group_id)
        if group is None:
            return self.classic.heartbeat(group_id, generation, member_id, instance_id, mono_ms), []
        step = Step(mono_ms)
        return self._classic_members.heartbeat(group, generation, member_id, instance_id, step), step.effects

    def await_rebalance(self, group_id: str, member_id: str, token: object, mono_ms: int) -> list[Effect] | None:
        """In a group of the new protocol no heartbeat waits: what concerns one member does not concern all."""
        return self.classic.await_rebalance(group_id, member_id, token, mono_ms)

    def leave(
        self, group_id: str, members: Sequence[tuple[str, str | None]], mono_ms: int
    ) -> tuple[list[tuple[str, str | None, Fault | None]], list[Effect]]:
        step = Step(mono_ms)
        results: list[tuple[str, str | None, Fault | None]] = []
        for at, (member_id, instance_id) in enumerate(members):
            group = self._consumer.get(group_id)
            if group is None:  # it was none, or is none any more: the last member of the new protocol has left
                rest, effects = self.classic.leave(group_id, members[at:], mono_ms)
                return results + rest, step.effects + effects
            results.append((member_id, instance_id, self._classic_members.leave(group, member_id, instance_id, step)))
        return results, step.effects

    # -- the new protocol --------------------------------------------------------------------------------------------

    def takes_long(self, request: ConsumerHeartbeat) -> bool:
        """Whether a heartbeat may set going what takes long: then it is to be announced."""
        return request.epoch >= JOIN and self.rebalancing.takes_long(self._consumer.get(request.group), request)

    def announce(self, request: ConsumerHeartbeat, mono_ms: int) -> tuple[ConsumerHeartbeat, list[Effect]]:
        """The first part of a heartbeat that takes long: the group is assigned anew. `save_again` and, with the request
        that is returned, `consumer_heartbeat` follow in other turns, as if the member had said the same twice: whatever
        happens in between, its answer is right."""
        step = Step(mono_ms)
        try:
            self._heartbeats.check(request)
            request = replace(request, member_id=self._in_group(request, step, self._heartbeats.announce))
        except BrokerError:
            pass  # which `consumer_heartbeat` tells
        return request, step.effects

    def consumer_heartbeat(self, request: ConsumerHeartbeat, token: object, mono_ms: int) -> list[Effect]:
        """A member of the new protocol joins, stays or leaves. `token` is answered with a ConsumerHeartbeatResult."""
        step = Step(mono_ms)
        try:
            self._heartbeats.check(request)
            result = self._heartbeat(request, step)
        except BrokerError as error:
            result = ConsumerHeartbeatResult(error.fault, error.message)
        step.reply(token, result)
        return step.effects

    def _heartbeat(self, request: ConsumerHeartbeat, step: Step) -> ConsumerHeartbeatResult:
        group = self._consumer.get(request.group)
        if request.epoch < JOIN:
            if group is None:
                raise BrokerError(Fault.GROUP_ID_NOT_FOUND, f"Group {request.group} not found.")
            return self._heartbeats.leave(group, request, step)
        return self._in_group(request, step, self._heartbeats.heartbeat)

    def _in_group(self, request: ConsumerHeartbeat, step: Step, what: Act[DoneT]) -> DoneT:
        """Do something with the group of a member that joins or stays."""
        group = self._consumer.get(request.group)
        if group is None:
            if request.epoch != JOIN:
                raise BrokerError(Fault.GROUP_ID_NOT_FOUND, f"Group {request.group} is not a consumer group.")
            group = self._upgraded(request.group, step)
        try:
            return what(group, request, step)
        finally:
            if not group.members and not group.epoch:
                self.rebalancing.take_out(group)  # a group to which nothing has ever happened leaves no trace

    def _upgraded(self, name: str, step: Step) -> ConsumerGroup:
        """A group of the new protocol in place of the classic one, or of none. Raises BrokerError."""
        classic = self.classic.find(name)
        if classic is None:
            group = ConsumerGroup(name)
        else:
            group = self._upgrade(classic, step)
        self.rebalancing.take_in(group)
        for member in group.members.values():
            self.rebalancing.heard(group, member, step)
        return group

    def _upgrade(self, classic: Group, step: Step) -> ConsumerGroup:
        refused = None
        if classic.members:
            if not self.settings.may_upgrade:
                refused = "the policy does not allow it"
            elif len(classic.members) >= self.settings.max_size:
                refused = "it has too many members"
        group = None if refused else migration.upgraded(classic, self._topics)
        if group is None:
            refused = refused or "its members are no consumers, or cannot be understood"
            raise BrokerError(Fault.GROUP_ID_NOT_FOUND, f"Group {classic.name} stays a classic group: {refused}.")
        if classic.members:
            log.info("event=group_upgraded group=%s generation=%d", classic.name, group.epoch)
        self.classic.take_out(classic, step)
        return group

    def _downgrade_if_last(self, group: ConsumerGroup, step: Step) -> bool:
        """Where only classic members are left, they go on as a classic group. Whether they do."""
        members = group.members
        if not members or group.classic_members < len(members) or not self.settings.may_downgrade:
            return False
        log.info("event=group_downgraded group=%s epoch=%d", group.name, group.epoch)
        self.rebalancing.take_out(group)
        classic = migration.downgraded(group, self.classic.rebalances, self._topics, step)
        self.classic.take_in(classic, step, "the last member of the new protocol is gone")
        return True

    # -- commits -----------------------------------------------------------------------------------------------------

    def check_commit(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        mono_ms: int,
        *,
        has_offsets: bool = False,
        transactional: bool = False,
        knows_epochs: bool = True,
    ) -> Fault | None:
        """Whether offsets may be committed by somebody of this generation, or member epoch.

        An epoch that the member is beyond is not refused here, but per partition (`stale`). `knows_epochs`: the request
        is new enough for members of the new protocol. See GroupCoordinator.check_commit and
        ConsumerGroup.validateOffsetCommit.
        """
        group = self._consumer.get(group_id)
        if group is None or (generation < 0 and not group.members):
            return self.classic.check_commit(
                group_id, generation, member_id, instance_id, mono_ms,
                has_offsets=has_offsets, transactional=transactional,
            )  # fmt: skip
        if transactional and generation < 0 and not member_id and instance_id is None:
            return None
        member = group.members.get(member_id)
        if member is None:
            return Fault.UNKNOWN_MEMBER_ID
        if member.classic is None and not knows_epochs and not transactional:
            return Fault.UNSUPPORTED_VERSION
        if generation > member.epoch:
            return Fault.STALE_MEMBER_EPOCH if member.classic is None else Fault.ILLEGAL_GENERATION
        if member.classic is not None:
            self.rebalancing.heard(group, member, Step(mono_ms))
        return None

    def stale(self, group_id: str, generation: int, member_id: str, places: Iterable[Place]) -> dict[Place, Fault]:
        """Of these, what a member may not commit any more with an epoch that it is beyond: what it does not hold, or
        has got since (KIP-1251). For a commit that `check_commit` allows."""
        group = self._consumer.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if member is None or generation >= member.epoch:
            return {}
        fault = Fault.STALE_MEMBER_EPOCH if member.classic is None else Fault.ILLEGAL_GENERATION
        since = {(number, index): epoch for number, index, epoch in (*member.assigned, *member.revoking)}
        return {place: fault for place in places if place not in since or generation < since[place]}

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> Fault | None:
        """Whether offsets may be read by somebody with this member epoch; without one (negative), by anybody."""
        group = self._consumer.get(group_id)
        if group is None or (member_id is None and epoch < 0):
            return None
        member = group.members.get(member_id or "")
        if member is None:
            return Fault.UNKNOWN_MEMBER_ID
        if member.epoch != epoch:
            return Fault.STALE_MEMBER_EPOCH if member.classic is None else Fault.ILLEGAL_GENERATION
        return None

    def check_offset_delete(self, group_id: str, *, has_offsets: bool) -> Fault | None:
        if group_id in self._consumer:
            return None
        return self.classic.check_offset_delete(group_id, has_offsets=has_offsets)

    # -- time and restarts -------------------------------------------------------------------------------------------

    def expire(self, mono_ms: int) -> list[Effect]:
        """Do what is due at `mono_ms`, in groups of both kinds."""
        return self.classic.expire(mono_ms)

    def next_deadline(self) -> int | None:
        return self.classic.next_deadline()

    def restore(self, records: Iterable[GroupRecord], wholes: Iterable[ConsumerGroupChange], mono_ms: int) -> None:
        """Take up the groups as they were recorded last. Members go on with their generations and epochs; all sessions
        begin anew."""
        self.classic.restore(records, mono_ms)
        step = Step(mono_ms)
        for whole in wholes:
            group = ConsumerGroup.restored(whole)
            self.rebalancing.take_in(group)
            for member in group.members.values():
                self.rebalancing.heard(group, member, step)
                if member.state == UNREVOKED and member.classic is None:
                    self.rebalancing.start(group, member.member_id, REVOKE, rebalance_timeout(member), step)

    def not_saved(self, group_id: str) -> None:
        """A Persist of this group could not be written: the next one is to say everything."""
        group = self._consumer.get(group_id)
        if group is not None:
            group.not_saved()

    def save_again(self, group_id: str) -> list[Effect]:
        """What could not be written, as it stands now."""
        group, classic = self._consumer.get(group_id), self.classic.find(group_id)
        record: Record | None = None
        if classic is not None:
            record = classic.record()
        elif group is not None:
            record = group.take_change()
        return [] if record is None else [Persist(record)]

    # -- operators ---------------------------------------------------------------------------------------------------

    def list(
        self, states: Collection[str] = (), types: Collection[str] = (), offset_groups: Iterable[str] = ()
    ) -> list[GroupListing]:
        return in_states(self.listed(types, offset_groups), states)

    def listed(self, types: Collection[str], offset_groups: Iterable[str]) -> Iterator[GroupListing]:
        """The same in no order, one by one: groups may come and go meanwhile."""
        yield from self.classic.listed(types, (name for name in offset_groups if name not in self._consumer))
        if not types or CONSUMER_TYPE in {each.lower() for each in types}:
            for name in list(self._consumer):
                group = self._consumer.get(name)
                if group is not None:
                    yield GroupListing(name, CONSUMER_PROTOCOL_TYPE, group.state, CONSUMER_TYPE)

    def describe(self, group_id: str, *, has_offsets: bool = False) -> GroupDescription | None:
        """A group of either kind, as far as both have the same. None if it does not exist."""
        group = self._consumer.get(group_id)
        if group is None:
            return self.classic.describe(group_id, has_offsets=has_offsets)
        members = tuple(
            MemberDescription(m.member_id, m.instance_id, m.client_id, m.client_host, b"", b"")
            for m in group.members.values()
        )
        return GroupDescription(
            group_id, group.state, CONSUMER_PROTOCOL_TYPE, self._assignor(group), group.epoch, members, CONSUMER_TYPE
        )

    def describe_consumer(self, group_id: str) -> ConsumerGroupDescription | None:
        """A group of the new protocol; None if there is none of that name."""
        group = self._consumer.get(group_id)
        if group is None:
            return None
        return ConsumerGroupDescription(
            group=group_id,
            state=group.state,
            epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor=self._assignor(group),
            members=tuple(
                ConsumerMemberDescription(member, tuple(sorted(group.target(member.member_id))))
                for member in group.members.values()
            ),
        )

    def _assignor(self, group: ConsumerGroup) -> str:
        return group.preferred_assignor() or self.settings.default_assignor

    def warnings(self) -> Sequence[str]:
        """Groups that keep an assignment because a strategy failed, a sentence each."""
        return [group.problem for group in self._consumer.values() if group.problem is not None]

    def is_active(self, group_id: str) -> bool:
        """Whether the group has members, or is about to have: its offsets are in use."""
        group = self._consumer.get(group_id)
        return bool(group.members) if group is not None else self.classic.is_active(group_id)

    def subscribed_topics(self, group_id: str) -> frozenset[str] | None:
        """Topics that the group's members consume; None: they consume, and cannot be asked what."""
        group = self._consumer.get(group_id)
        if group is None:
            return self.classic.subscribed_topics(group_id)
        self._subscriptions.look({regex for _, regex in group.wanted if regex})
        names = (names_of(group, each, self._subscriptions) for each in group.wanted)
        return frozenset().union(*names)

    def delete(self, group_id: str, has_offsets: bool) -> Fault | None:
        """Forget a group without members. The caller removes its record and its offsets, durably."""
        group = self._consumer.get(group_id)
        if group is None:
            return self.classic.delete(group_id, has_offsets)
        if group.state != EMPTY:
            return Fault.NON_EMPTY_GROUP
        self.rebalancing.take_out(group)
        return None
