"""What a join means, from whom it comes and in which state it finds the group (GroupMetadataManager.classicGroupJoin).

    no member id     dynamic: gets an id, and with KIP-394 must come back with it; static: takes the place of the
                     member with its instance id, or is new
    a member id      pending: is taken in now; else it must be a member's, and a static one's own

A member that joins a Stable group again forces a rebalance only if it is the leader (it may have seen changes that
show in nobody's metadata) or comes with other protocols; otherwise it is told the current generation.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from halfmoon.errors import Fault
from halfmoon.schema.groups import Protocols
from halfmoon.services.groups.messages import UNKNOWN_MEMBER, Join, JoinResult
from halfmoon.services.groups.model import Group, Member, State
from halfmoon.services.groups.rebalance import Rebalances
from halfmoon.services.groups.step import Step
from halfmoon.services.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics

log = logging.getLogger(__name__)


class Joining:
    """Decides what becomes of a join."""

    def __init__(self, rebalances: Rebalances, new_member_id: Callable[[str], str]) -> None:
        self._rebalances = rebalances
        self._new_member_id = new_member_id

    def join(self, group: Group, join: Join, token: object, step: Step) -> None:
        """Answer `token` now or keep it waiting in the group."""
        known = join.member_id != UNKNOWN_MEMBER
        if not self._has_room(group, join):
            self._turn_away(group, join, step)
            step.reply(token, JoinResult(Fault.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER))
        elif not group.supports(join.protocol_type, join.protocols):
            step.reply(token, JoinResult(Fault.INCONSISTENT_GROUP_PROTOCOL, join.member_id))
        elif known:
            self._join_known(group, join, token, step)
        elif join.instance_id is not None:
            self._join_static(group, join, join.instance_id, token, step)
        else:
            self._join_dynamic(group, join, token, step)

    # -- room --------------------------------------------------------------------------------------------------------

    def _has_room(self, group: Group, join: Join) -> bool:
        """In a join phase those who have joined are counted, so that the last to rejoin an overfull group are out."""
        max_size = self._rebalances.settings.max_size
        instance_id = join.instance_id
        member_id = group.static_ids.get(instance_id, join.member_id) if instance_id is not None else join.member_id
        member = group.members.get(member_id)
        if group.state is State.EMPTY:
            return True
        if group.state is State.PREPARING:
            return (member is not None and member.join_token is not None) or group.joining < max_size
        return member is not None or len(group.members) < max_size

    def _turn_away(self, group: Group, join: Join, step: Step) -> None:
        if join.member_id in group.pending:
            self._rebalances.forget_pending(group, join.member_id)
        elif join.member_id in group.members:
            self._rebalances.drop(group, group.members[join.member_id], step)
        self._rebalances.complete_if_all_joined(group, step)

    # -- without a member id -----------------------------------------------------------------------------------------

    def _join_dynamic(self, group: Group, join: Join, token: object, step: Step) -> None:
        member_id = self._new_member_id(join.client_id)
        if not join.require_known_member:
            self._admit(group, member_id, join, token, step)
        elif len(group.pending) >= self._rebalances.settings.max_size:
            step.reply(token, JoinResult(Fault.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER))
        else:
            self._rebalances.expect(group, member_id, join.session_timeout_ms, step)
            step.reply(token, JoinResult(Fault.MEMBER_ID_REQUIRED, member_id))

    def _join_static(self, group: Group, join: Join, instance_id: str, token: object, step: Step) -> None:
        member_id = self._new_member_id(instance_id)
        current = group.static_ids.get(instance_id)
        if current is None:
            self._admit(group, member_id, join, token, step)
            return
        log.info(
            "event=member_replaced group=%s instance=%s member=%s before=%s",
            group.name,
            instance_id,
            member_id,
            current,
        )
        self._replace(group, group.members[current], member_id, join, token, step)

    def _replace(self, group: Group, member: Member, member_id: str, join: Join, token: object, step: Step) -> None:
        """A static member was restarted (KIP-345). In a stable group nobody else need notice."""
        rebalances = self._rebalances
        old_leader, old_protocols = group.leader, member.protocols
        rebalances.replace_static(group, member, member_id, step)
        member.client_id, member.client_host = join.client_id, join.client_host
        rebalances.update(group, member, join, token, step)
        if group.state is not State.STABLE:
            # While shares are being dealt out the leader may have the old id already: its deal would miss this member.
            rebalances.rebalance_or_complete(group, step, f"static member {member_id} is back")
        elif group.select_protocol() != group.protocol or not same_work(group, old_protocols, join.protocols):
            rebalances.prepare(group, step, f"static member {member_id} is back with another subscription")
        else:
            step.persist(group.record())
            rebalances.answer_join(group, member, step, _resumed(group, member, join, old_leader))

    # -- with a member id --------------------------------------------------------------------------------------------

    def _join_known(self, group: Group, join: Join, token: object, step: Step) -> None:
        if join.member_id in group.pending and join.instance_id is None:
            self._rebalances.forget_pending(group, join.member_id)
            self._admit(group, join.member_id, join, token, step)
            return
        fault = group.check_member(join.member_id, join.instance_id)
        if fault is not None:
            step.reply(token, JoinResult(fault, join.member_id))
            return
        member = group.members[join.member_id]
        unchanged = member.protocols == join.protocols
        leads = group.leader == member.member_id
        if (group.state is State.COMPLETING and unchanged) or (group.state is State.STABLE and unchanged and not leads):
            # It may have missed the answer to its first join.
            step.reply(token, self._rebalances.joined(group, member))
            return
        self._rebalances.update(group, member, join, token, step)
        why = "leader" if leads else "member"
        reason = f"{why} {member.member_id} joined again: {join.reason or 'no reason given'}"
        self._rebalances.rebalance_or_complete(group, step, reason)

    def _admit(self, group: Group, member_id: str, join: Join, token: object, step: Step) -> None:
        member = self._rebalances.new_member(group, member_id, join)
        reason = f"new member {member_id}: {join.reason or 'no reason given'}"
        self._rebalances.admit(group, member, token, step, reason)


def _resumed(group: Group, member: Member, join: Join, old_leader: str) -> JoinResult:
    """What a restarted static member of a stable group is told.

    A leader must not assign again, for its assignment would go nowhere. Who does not understand `skip_assignment` is
    therefore told that somebody else leads: its own old id (KIP-814).
    """
    leads = join.can_skip_assignment and group.leader == member.member_id
    return JoinResult(
        fault=None,
        member_id=member.member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader=group.leader if join.can_skip_assignment else old_leader,
        members=group.joined_members() if leads else (),
        skip_assignment=leads,
    )


def same_work(group: Group, before: Protocols, after: Protocols) -> bool:
    """Whether a static member that came back asks for the same work as before its restart.

    Kafka compares only which protocol would be selected; a member restarted with other topics then keeps its old share
    for ever. The metadata itself is too fine a measure: sticky assignors write into it what the member owned.
    """
    old, new = dict(before).get(group.protocol), dict(after).get(group.protocol)
    if old is None or new is None or old == new:
        return old == new
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return False
    topics = subscribed_topics(new)
    return topics is not None and topics == subscribed_topics(old)
