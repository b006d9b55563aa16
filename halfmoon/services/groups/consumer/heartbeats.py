"""The new protocol's one request: a member joins, stays, subscribes otherwise, gives up what it was told to, leaves.

What it means is in the member epoch that it says:

    0     it joins, and holds nothing; a static member may be back under another id, if the old one has left
    > 0   it stays. Its epoch must be the one that it was told last, or the one before if that answer may have been
          lost and it holds nothing that it must not hold; else it is fenced and has to join anew
    −1    it leaves
    −2    a static member leaves for now: its share stays its own until its session ends
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from msgspec.structs import replace

from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.groups import JOIN, STABLE, ConsumerMember, Places
from halfmoon.services.common.patterns import InvalidPattern
from halfmoon.services.groups.consumer.messages import LEAVE_FOR_NOW, ConsumerHeartbeat
from halfmoon.services.groups.consumer.model import ConsumerGroup
from halfmoon.services.groups.consumer.rebalancing import REVOKE, Rebalancing
from halfmoon.services.groups.messages import ConsumerHeartbeatResult
from halfmoon.services.groups.step import Step

log = logging.getLogger(__name__)


class Heartbeats:
    """Decides what becomes of a heartbeat. Its refusals are BrokerErrors, raised before anything is changed."""

    def __init__(self, rebalancing: Rebalancing, new_member_id: Callable[[str], str]) -> None:
        self._rebalancing = rebalancing
        self._new_member_id = new_member_id

    def check(self, request: ConsumerHeartbeat) -> None:
        """Refuse what makes no sense whatever the group's state."""
        if not request.group:
            raise BrokerError(Fault.INVALID_REQUEST, "GroupId can't be empty.")
        if request.instance_id == "" or request.rack == "":
            raise BrokerError(Fault.INVALID_REQUEST, "InstanceId and RackId can't be empty.")
        if request.epoch < LEAVE_FOR_NOW:
            raise BrokerError(Fault.INVALID_REQUEST, f"MemberEpoch is {request.epoch}, which is invalid.")
        if request.epoch != JOIN and not request.member_id:
            raise BrokerError(Fault.INVALID_REQUEST, "MemberId can't be empty.")
        if request.epoch == LEAVE_FOR_NOW and request.instance_id is None:
            raise BrokerError(Fault.INVALID_REQUEST, "InstanceId can't be null.")
        if request.epoch == JOIN:
            if request.rebalance_timeout_ms == -1:
                raise BrokerError(Fault.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
            if request.owned is None or request.owned:
                raise BrokerError(Fault.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
            if request.topics is None and request.regex is None:
                raise BrokerError(
                    Fault.INVALID_REQUEST, "SubscribedTopicNames or SubscribedTopicRegex must be set when (re-)joining."
                )
        allocators = self._rebalancing.allocators
        if request.assignor is not None and request.assignor not in allocators:
            known = ", ".join(sorted(allocators))
            asked = request.assignor[:100]
            raise BrokerError(
                Fault.UNSUPPORTED_ASSIGNOR, f"no enabled plugin offers assignor '{asked}'; available: {known}"
            )
        try:
            self._rebalancing.subscriptions.check(request.regex or "")
        except InvalidPattern as error:
            raise BrokerError(
                Fault.INVALID_REGULAR_EXPRESSION, f"SubscribedTopicRegex is not a supported pattern: {error}"
            ) from None

    def announce(self, group: ConsumerGroup, request: ConsumerHeartbeat, step: Step) -> str:
        """A heartbeat is going to come (`heartbeat`): what it says is noted, and what that sets going for the group is
        done. Returns the member's id. Nothing is written down yet; whatever is written of the group next has it all."""
        member = _said(self._member(group, request), request)
        self._rebalancing.may_describe(group, member.regex, request.describes)
        self._rebalancing.take_note(group, member, step)
        self._rebalancing.heard(group, member, step)
        return member.member_id

    def heartbeat(self, group: ConsumerGroup, request: ConsumerHeartbeat, step: Step) -> ConsumerHeartbeatResult:
        """A member joins or stays."""
        rebalancing = self._rebalancing
        member = self._member(group, request)
        before = group.members.get(member.member_id)
        owned = frozenset() if request.epoch == JOIN else request.owned
        said = _said(member, request)
        rebalancing.may_describe(group, said.regex, request.describes)
        after = rebalancing.update(group, said, owned, step)
        rebalancing.heard(group, after, step)
        rebalancing.save(group, step)
        is_told = self._has_to_be_told(group, before, after, request.epoch == JOIN, owned) or request.is_full
        return ConsumerHeartbeatResult(
            fault=None,
            member_id=after.member_id,
            epoch=after.epoch,
            interval_ms=rebalancing.interval_ms(group.name),
            assigned=after.assigned if is_told else None,
        )

    @staticmethod
    def _has_to_be_told(
        group: ConsumerGroup, before: ConsumerMember | None, after: ConsumerMember, joins: bool, owned: Places | None
    ) -> bool:
        """What a member holds is told until it says that it has it. Kafka tells it once: if that answer comes later
        than the member waits for one (librdkafka: the heartbeat's interval), nobody reads what is new."""
        unconfirmed, member_id = group.unconfirmed, after.member_id
        moved = before is None or (after.assigned is not before.assigned and after.may_read() != before.may_read())
        if joins or moved:
            unconfirmed.add(member_id)
        if member_id in unconfirmed and owned is not None and owned == after.may_read():
            unconfirmed.discard(member_id)
        return member_id in unconfirmed

    def leave(self, group: ConsumerGroup, request: ConsumerHeartbeat, step: Step) -> ConsumerHeartbeatResult:
        """A member leaves, for good or for now."""
        member = self._known(group, request)
        if request.instance_id is not None and request.epoch == LEAVE_FOR_NOW:
            log.info("event=member_away group=%s instance=%s", group.name, request.instance_id)
            group.put(replace(member, epoch=LEAVE_FOR_NOW, state=STABLE, revoking=()))
            self._rebalancing.stop(group, member.member_id, REVOKE)
            self._rebalancing.save(group, step)
        else:
            log.info("event=member_left group=%s member=%s", group.name, member.member_id)
            self._rebalancing.fence(group, member.member_id, step)
        return ConsumerHeartbeatResult(fault=None, member_id=request.member_id, epoch=request.epoch)

    # -- who is it ---------------------------------------------------------------------------------------------------

    def _known(self, group: ConsumerGroup, request: ConsumerHeartbeat) -> ConsumerMember:
        if request.instance_id is None:
            member = group.members.get(request.member_id)
        else:
            member = group.static_member(request.instance_id)
            if member is not None and member.member_id != request.member_id:
                raise BrokerError(Fault.FENCED_INSTANCE_ID)
        if member is None:
            raise BrokerError(Fault.UNKNOWN_MEMBER_ID)
        return member

    def _member(self, group: ConsumerGroup, request: ConsumerHeartbeat) -> ConsumerMember:
        if request.epoch != JOIN:
            member = self._known(group, request)
            _check_epoch(member, request)
            return member
        instance_id = request.instance_id
        there = None if instance_id is None else group.static_member(instance_id)
        if there is None:
            known = group.members.get(request.member_id)
            if known is not None:
                return anew(known, known.member_id)
            if len(group.members) >= self._rebalancing.settings.max_size:
                raise BrokerError(Fault.GROUP_MAX_SIZE_REACHED)
            return ConsumerMember(request.member_id or self._new_member_id(request.client_id))
        if there.classic is None and there.epoch != LEAVE_FOR_NOW and there.member_id != request.member_id:
            raise BrokerError(
                Fault.UNRELEASED_INSTANCE_ID, f"instance id '{instance_id}' belongs to member {there.member_id}"
            )
        member_id = request.member_id or self._new_member_id(request.client_id)
        if member_id != there.member_id and member_id in group.members:
            raise BrokerError(Fault.INVALID_REQUEST, "another member has this id")
        log.info("event=member_replaced group=%s instance=%s member=%s", group.name, instance_id, member_id)
        member = anew(there, member_id)
        self._rebalancing.replace(group, there, member)
        return member


def anew(member: ConsumerMember, member_id: str) -> ConsumerMember:
    """A member that is back, perhaps under another id. It holds nothing, so there is nothing that it must give up, and
    what it gets now it has from now on."""
    return replace(member, member_id=member_id, epoch=JOIN, previous_epoch=JOIN, state=STABLE, assigned=(), revoking=())


def _check_epoch(member: ConsumerMember, request: ConsumerHeartbeat) -> None:
    if request.epoch == member.epoch:
        return
    missed = request.epoch == member.previous_epoch and request.owned is not None and request.owned <= member.may_read()
    if request.epoch > member.epoch or not missed:
        raise BrokerError(
            Fault.FENCED_MEMBER_EPOCH, f"the member's epoch is {member.epoch}, not {request.epoch}; it must join again"
        )


def _said(member: ConsumerMember, request: ConsumerHeartbeat) -> ConsumerMember:
    """The member with what the heartbeat says of it."""
    joins = request.epoch == JOIN
    timeout_ms = member.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
    after = replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack=member.rack if request.rack is None else request.rack,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=timeout_ms,
        topics=tuple(sorted(set(request.topics or ()))) if joins or request.topics is not None else member.topics,
        regex=request.regex or "" if joins or request.regex is not None else member.regex,
        assignor=member.assignor if request.assignor is None else request.assignor,
        classic=None,
    )
    return member if after == member else after
