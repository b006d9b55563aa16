"""Members that speak the classic protocol, in a group where the broker assigns: while an application is upgraded, some
of its processes are old and some are new.

To such a member it looks like a classic group that somebody else leads:

    Join       it subscribes, and says what it holds; it is told its epoch as the generation, and that it does not lead
    Sync       it is told its share; what leaders send is not looked at
    Heartbeat  REBALANCE_IN_PROGRESS tells it to join again: there is another assignment, or it is time for one; it
               has something to give up; or what it waits for has become free. It has its rebalance time-out for that
    Leave      it goes; an operator may send away members of the new protocol, too

An eager member gives everything up before it joins, and says so by holding nothing; a cooperative one gives up what its
share does not hold any more, and joins again by itself. Both fit the steps of `reconciliation`.

Rules: GroupMetadataManager.classicGroupJoinToConsumerGroup and its neighbours. What differs: a member whose metadata
cannot be read is refused with INCONSISTENT_GROUP_PROTOCOL.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from msgspec.structs import replace

from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.groups import UNRELEASED, UNREVOKED, ClassicSide, ConsumerMember, Place, Places, Protocols
from halfmoon.services.groups.consumer.heartbeats import anew
from halfmoon.services.groups.consumer.model import ConsumerGroup
from halfmoon.services.groups.consumer.rebalancing import JOIN, SYNC, Rebalancing, rebalance_timeout
from halfmoon.services.groups.consumer.subscriptions import Topics
from halfmoon.services.groups.consumer_protocol import Subscription, assignment_bytes, parse_subscription
from halfmoon.services.groups.messages import UNKNOWN_MEMBER, Join, JoinResult, Sync, SyncResult
from halfmoon.services.groups.step import Step
from halfmoon.services.groups.subscription import CONSUMER_PROTOCOL_TYPE

log = logging.getLogger(__name__)


class ClassicMembers:
    """Answers the classic protocol's requests about groups of the new one."""

    def __init__(self, rebalancing: Rebalancing, new_member_id: Callable[[str], str]) -> None:
        self._rebalancing = rebalancing
        self._new_member_id = new_member_id

    def join(self, group: ConsumerGroup, join: Join, step: Step) -> JoinResult:
        """The answer comes at once: nobody has to wait for the others."""
        try:
            return self._join(group, join, step)
        except BrokerError as error:
            return JoinResult(error.fault, join.member_id)

    def _join(self, group: ConsumerGroup, join: Join, step: Step) -> JoinResult:
        rebalancing = self._rebalancing
        subscription = self._check(group, join)
        if join.member_id == UNKNOWN_MEMBER and join.instance_id is None and join.require_known_member:
            return JoinResult(Fault.MEMBER_ID_REQUIRED, self._new_member_id(join.client_id))
        member = self._member(group, join)
        said = replace(
            member,
            instance_id=member.instance_id if join.instance_id is None else join.instance_id,
            rack=subscription.rack or member.rack,
            client_id=join.client_id,
            client_host=join.client_host,
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            topics=tuple(sorted(set(subscription.topics))),
            regex="",
            assignor=None,
            classic=ClassicSide(join.session_timeout_ms, join.protocols),
        )
        owned = places_of(subscription.owned, rebalancing.subscriptions.topics)
        said = _holding(said, owned)
        after = rebalancing.update(group, member if said == member else said, owned, step)
        rebalancing.stop(group, after.member_id, JOIN)
        rebalancing.heard(group, after, step)
        rebalancing.start(group, after.member_id, SYNC, rebalance_timeout(after), step)
        rebalancing.save(group, step)
        return JoinResult(
            fault=None,
            member_id=after.member_id,
            generation=after.epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol=join.protocols[0][0],
        )

    def sync(self, group: ConsumerGroup, sync: Sync, step: Step) -> SyncResult:
        try:
            member = self._known(group, sync.member_id, sync.instance_id, sync.generation)
        except BrokerError as error:
            return SyncResult(error.fault)
        classic = member.classic
        assert classic is not None
        protocol, metadata = classic.protocols[0]
        if sync.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or sync.protocol not in (None, protocol):
            return SyncResult(Fault.INCONSISTENT_GROUP_PROTOCOL)
        if member.state != UNREVOKED and self._rebalancing.is_behind(group, member, step):
            self._expect_join(group, member, step)
            return SyncResult(Fault.REBALANCE_IN_PROGRESS)
        self._rebalancing.stop(group, member.member_id, SYNC)
        self._rebalancing.heard(group, member, step)
        subscription = parse_subscription(metadata)
        share = share_bytes(member.may_read(), subscription, self._rebalancing.subscriptions.topics)
        return SyncResult(None, CONSUMER_PROTOCOL_TYPE, protocol, share)

    def heartbeat(
        self, group: ConsumerGroup, generation: int, member_id: str, instance_id: str | None, step: Step
    ) -> Fault | None:
        try:
            member = self._known(group, member_id, instance_id, generation)
        except BrokerError as error:
            return error.fault
        self._rebalancing.heard(group, member, step)
        # Nobody else may be there to look at the topics, and to have a strategy asked again.
        self._rebalancing.refresh(group)
        self._rebalancing.ask_again(group, step)
        self._rebalancing.save(group, step)
        freed = member.state == UNRELEASED and not self._waits_for_others(group, member)
        if member.state == UNREVOKED or freed or self._rebalancing.is_behind(group, member, step):
            self._expect_join(group, member, step)
            return Fault.REBALANCE_IN_PROGRESS
        return None

    def leave(self, group: ConsumerGroup, member_id: str, instance_id: str | None, step: Step) -> Fault | None:
        try:
            # An operator may name a static member by its instance id alone.
            there = None if instance_id is None or member_id else group.static_member(instance_id)
            member = _member(group, there.member_id if there else member_id, instance_id)
        except BrokerError as error:
            return error.fault
        log.info("event=member_left group=%s member=%s", group.name, member.member_id)
        self._rebalancing.fence(group, member.member_id, step)
        return None

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _check(self, group: ConsumerGroup, join: Join) -> Subscription:
        """Raises BrokerError unless such a member fits in here."""
        names = {name for name, _ in join.protocols}
        others = group.classic_members
        common = any(group.supported[name] == others for name in names) if others else bool(names)
        if join.protocol_type != CONSUMER_PROTOCOL_TYPE or not common:
            raise BrokerError(Fault.INCONSISTENT_GROUP_PROTOCOL)
        subscription = parse_subscription(join.protocols[0][1])
        if subscription is None:
            raise BrokerError(Fault.INCONSISTENT_GROUP_PROTOCOL)
        known = join.member_id in group.members or (join.instance_id or "") in group.static_ids
        if not known and len(group.members) >= self._rebalancing.settings.max_size:
            raise BrokerError(Fault.GROUP_MAX_SIZE_REACHED)
        return subscription

    def _member(self, group: ConsumerGroup, join: Join) -> ConsumerMember:
        if join.instance_id is None:
            known = group.members.get(join.member_id)
            return known or ConsumerMember(join.member_id or self._new_member_id(join.client_id))
        there = group.static_member(join.instance_id)
        if join.member_id != UNKNOWN_MEMBER:
            if there is None:
                raise BrokerError(Fault.UNKNOWN_MEMBER_ID)
            if there.member_id != join.member_id:
                raise BrokerError(Fault.FENCED_INSTANCE_ID)
            return there
        member_id = self._new_member_id(join.instance_id)
        if there is None:
            return ConsumerMember(member_id)
        log.info("event=member_replaced group=%s instance=%s member=%s", group.name, join.instance_id, member_id)
        member = anew(there, member_id)
        self._rebalancing.replace(group, there, member)
        return member

    def _known(self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ConsumerMember:
        """The classic member that somebody says to be. Raises BrokerError."""
        member = _member(group, member_id, instance_id)
        if member.classic is None:
            raise BrokerError(Fault.UNKNOWN_MEMBER_ID)
        if generation != member.epoch:
            raise BrokerError(Fault.ILLEGAL_GENERATION)
        return member

    def _expect_join(self, group: ConsumerGroup, member: ConsumerMember, step: Step) -> None:
        """It has been told to join again, and has so long from the first time that it was told."""
        if not self._rebalancing.is_running(group, member.member_id, JOIN):
            self._rebalancing.start(group, member.member_id, JOIN, rebalance_timeout(member), step)

    def _waits_for_others(self, group: ConsumerGroup, member: ConsumerMember) -> bool:
        missing = group.target(member.member_id) - member.may_read()
        return any(group.owners.get(place, member.member_id) != member.member_id for place in missing)


def _member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    member = group.members.get(member_id) if instance_id is None else group.static_member(instance_id)
    if member is None:
        raise BrokerError(Fault.UNKNOWN_MEMBER_ID)
    if member.member_id != member_id:
        raise BrokerError(Fault.FENCED_INSTANCE_ID)
    return member


def _holding(member: ConsumerMember, owned: Places) -> ConsumerMember:
    """The member without what it does not hold any more. If that is its own still, it has it from now on."""
    kept = tuple(holding for holding in member.assigned if holding[:2] in owned)
    if kept == member.assigned or member.state == UNREVOKED:
        return member
    return replace(member, assigned=kept, state=UNRELEASED)


def places_of(partitions: dict[str, list[int]], topics: Topics) -> Places:
    """Partitions by topic name as places, as far as they exist."""
    found: set[Place] = set()
    for topic, indexes in partitions.items():
        number = topics.number(topic)
        if number is not None:
            count = topics.partitions(number)
            found.update((number, index) for index in indexes if 0 <= index < count)
    return frozenset(found)


def share_bytes(places: Places, subscription: Subscription | None, topics: Topics) -> bytes:
    """A share as the classic member reads it who subscribed so."""
    found: dict[str, list[int]] = {}
    for number, index in places:
        name = topics.name(number)
        if name is not None:
            found.setdefault(name, []).append(index)
    return assignment_bytes(0 if subscription is None else subscription.version, found)


def version_of(protocols: Protocols) -> Subscription | None:
    """The subscription of the protocol that a member likes best."""
    return parse_subscription(protocols[0][1]) if protocols else None
