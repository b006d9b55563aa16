"""How a group gets from one generation to the next, and what time does to it.

    join phase    PreparingRebalance. Members join and wait. It ends when all known members have joined, or after the
                  longest rebalance time-out; dynamic members who have not joined by then are out, static ones stay
                  (KIP-345). A group that was empty waits `initial_rebalance_delay_ms` instead, and as long again while
                  new members keep coming, up to the rebalance time-out in all (KIP-134).
    sync phase    CompletingRebalance. Everybody has the new generation; the leader assigns and sends the shares with
                  its Sync. Who has not sent a Sync within the rebalance time-out is out (KAFKA-12890), also after the
                  group became Stable.

Sessions: a member that waits for an answer to its join or sync is alive as far as we can tell; the session of any other
ends when it has not been heard of for its session time-out.

Heartbeats: where the client can do without the answer for a while, a heartbeat of a stable group waits for a rebalance,
or until just before the client would send the next. So members learn of a rebalance when it begins, and not up to an
interval later.

The rules are those of Kafka's GroupMetadataManager, the part about classic groups. What differs:
- Each new generation is persisted *before* its number is told to anybody, not with the assignment after it: a
  generation seen by a client never comes again after a restart.
- A request that a later one of the same member replaces is answered with REBALANCE_IN_PROGRESS, not left unanswered.
- A static member that stays away while the others rebalance keeps its old session deadline; Kafka starts it anew each
  time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from halfmoon.errors import Fault
from halfmoon.services.common.deadlines import Deadlines, Timer
from halfmoon.services.groups.messages import (
    UNKNOWN_MEMBER,
    GroupSettings,
    HeartbeatResult,
    Join,
    JoinResult,
    SyncResult,
)
from halfmoon.services.groups.model import Group, Member, State
from halfmoon.services.groups.step import Step, TimerAction

log = logging.getLogger(__name__)


class Rebalances:
    """Carries groups through their phases. Knows groups and timers, not which groups there are."""

    def __init__(self, settings: GroupSettings, on_blank: Callable[[Group], None]) -> None:
        """`on_blank` is told of a group that time has left without anything worth keeping."""
        self.settings = settings
        self._on_blank = on_blank
        self.deadlines: Deadlines[TimerAction] = Deadlines()

    # -- groups and members ------------------------------------------------------------------------------------------

    def new_group(self, name: str) -> Group:
        """A group in state Empty, generation 0, not kept anywhere yet."""
        group = Group(name, Timer(_nothing), Timer(_nothing))
        group.sync_timer.action = partial(self._sync_expired, group)
        return group

    def new_member(self, group: Group, member_id: str, join: Join) -> Member:
        member = Member(
            member_id=member_id,
            instance_id=join.instance_id,
            client_id=join.client_id,
            client_host=join.client_host,
            session_timeout_ms=join.session_timeout_ms,
            rebalance_timeout_ms=max(1, join.rebalance_timeout_ms),
            protocol_type=join.protocol_type,
            protocols=join.protocols,
            session=Timer(_nothing),
            heartbeat_timer=Timer(_nothing),
        )
        member.session.action = partial(self._session_expired, group, member)
        member.heartbeat_timer.action = partial(self._answer_heartbeat, member)
        return member

    def touch(self, member: Member, step: Step) -> None:
        """The member has been heard of: its session starts anew."""
        self.deadlines.set(member.session, step.mono_ms + member.session_timeout_ms)

    def drop(self, group: Group, member: Member, step: Step, fault: Fault = Fault.UNKNOWN_MEMBER_ID) -> None:
        """Take a member out and answer what it waits for; what that means for the others is the caller's to say."""
        self.answer_join(group, member, step, JoinResult(fault, UNKNOWN_MEMBER))
        self._answer_sync(member, step, SyncResult(fault))
        self._answer_heartbeat(member, step, fault)
        self.deadlines.cancel(member.session)
        group.remove(member.member_id)

    def dissolve(self, group: Group) -> None:
        """Forget all timers of a group without members."""
        assert not group.members
        for timer in (group.join_timer, group.sync_timer, *group.pending.values()):
            self.deadlines.cancel(timer)
        group.pending.clear()

    def release(
        self, group: Group, step: Step, fault: Fault = Fault.REBALANCE_IN_PROGRESS, beat: Fault | None = None
    ) -> None:
        """Let go of a group that somebody else looks after from now on. Who waits is told `fault`, or for a heartbeat
        `beat`."""
        for member in group.members.values():
            self.answer_join(group, member, step, JoinResult(fault, member.member_id))
            self._answer_sync(member, step, SyncResult(fault))
            self._answer_heartbeat(member, step, beat)
            self.deadlines.cancel(member.session)
        for timer in (group.join_timer, group.sync_timer, *group.pending.values()):
            self.deadlines.cancel(timer)

    # -- pending ids -------------------------------------------------------------------------------------------------

    def expect(self, group: Group, member_id: str, timeout_ms: int, step: Step) -> None:
        """Remember an id handed out with MEMBER_ID_REQUIRED; a join phase waits for it, but not for ever."""
        timer: Timer[TimerAction] = Timer(partial(self._pending_expired, group, member_id))
        group.pending[member_id] = timer
        self.deadlines.set(timer, step.mono_ms + timeout_ms)

    def forget_pending(self, group: Group, member_id: str) -> None:
        self.deadlines.cancel(group.pending.pop(member_id))

    def _pending_expired(self, group: Group, member_id: str, step: Step) -> None:
        log.info(
            "event=member_removed group=%s member=%s reason=%s", group.name, member_id, "it got an id and did not join"
        )
        del group.pending[member_id]
        self.complete_if_all_joined(group, step)
        if group.blank:
            self._on_blank(group)

    # -- join phase --------------------------------------------------------------------------------------------------

    def admit(self, group: Group, member: Member, token: object, step: Step, reason: str) -> None:
        """Take a new member in and let its join wait."""
        member.is_new = True
        member.join_token = token
        group.add(member)
        if group.state is State.PREPARING and group.previous_state is State.EMPTY:
            group.member_added = True
        # It cannot send heartbeats before it has its answer, and we do not see it disconnect while it waits.
        self.deadlines.set(member.session, step.mono_ms + self.settings.new_member_timeout_ms)
        self.rebalance_or_complete(group, step, reason)

    def update(self, group: Group, member: Member, join: Join, token: object, step: Step) -> None:
        """A member has joined again, perhaps with other protocols: let this join wait."""
        group.update_protocols(member, join.protocols)
        member.session_timeout_ms = join.session_timeout_ms
        member.rebalance_timeout_ms = max(1, join.rebalance_timeout_ms)
        replaced = group.set_join_token(member, token)
        if replaced is not None:
            step.reply(replaced, JoinResult(Fault.REBALANCE_IN_PROGRESS, member.member_id))

    def replace_static(self, group: Group, member: Member, member_id: str, step: Step) -> None:
        """A static member came back under a new id: whoever still uses the old one is fenced."""
        self.answer_join(group, member, step, JoinResult(Fault.FENCED_INSTANCE_ID, member.member_id))
        self._answer_sync(member, step, SyncResult(Fault.FENCED_INSTANCE_ID))
        self._answer_heartbeat(member, step, Fault.FENCED_INSTANCE_ID)
        group.rename(member, member_id)
        member.is_new = False
        self.touch(member, step)

    def rebalance_or_complete(self, group: Group, step: Step, reason: str) -> None:
        """Something changed that all must hear of: start a join phase, or see whether this ends the running one."""
        if group.state is State.PREPARING:
            self.complete_if_all_joined(group, step)
        else:
            self.prepare(group, step, reason)

    def prepare(self, group: Group, step: Step, reason: str) -> None:
        """Start a join phase."""
        log.info("event=rebalance_started group=%s generation=%d reason=%s", group.name, group.generation, reason)
        if group.state is State.COMPLETING:
            for member in group.members.values():
                member.assignment = b""
                if self._answer_sync(member, step, SyncResult(Fault.REBALANCE_IN_PROGRESS)):
                    self.touch(member, step)
        group.unsynced.clear()
        self.deadlines.cancel(group.sync_timer)
        initial = group.state is State.EMPTY
        group.enter(State.PREPARING)
        for member in group.members.values():
            self._answer_heartbeat(member, step, Fault.REBALANCE_IN_PROGRESS)
        if initial:
            delay_ms = self.settings.initial_rebalance_delay_ms
            group.member_added = False
            group.initial_delay_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._wait_for_joins(group, step, delay_ms, partial(self._initial_delay_over, group, delay_ms))
        elif group.all_joined:
            self._complete_join(group, step)
        else:
            self._wait_for_joins(group, step, group.rebalance_timeout_ms, partial(self._complete_join, group))

    def complete_if_all_joined(self, group: Group, step: Step) -> None:
        """End the join phase if nobody is missing. The initial one lasts its time: nobody knows who is to come."""
        if group.state is State.PREPARING and group.previous_state is not State.EMPTY and group.all_joined:
            self._complete_join(group, step)

    def resume_join_phase(self, group: Group, step: Step) -> None:
        """After a restart: give the members that are known the time to join again."""
        group.enter(State.PREPARING)
        self._wait_for_joins(group, step, group.rebalance_timeout_ms, partial(self._complete_join, group))

    def _wait_for_joins(self, group: Group, step: Step, wait_ms: int, action: TimerAction) -> None:
        group.join_timer.action = action
        self.deadlines.set(group.join_timer, step.mono_ms + wait_ms)

    def _initial_delay_over(self, group: Group, waited_ms: int, step: Step) -> None:
        if group.member_added and group.initial_delay_left_ms > 0:
            group.member_added = False
            wait_ms = min(self.settings.initial_rebalance_delay_ms, group.initial_delay_left_ms)
            group.initial_delay_left_ms = max(group.initial_delay_left_ms - waited_ms, 0)
            self._wait_for_joins(group, step, wait_ms, partial(self._initial_delay_over, group, wait_ms))
        else:
            self._complete_join(group, step)

    def _complete_join(self, group: Group, step: Step) -> None:
        """End the join phase with those who are there."""
        self.deadlines.cancel(group.join_timer)
        missing = [
            member for member in group.members.values() if member.join_token is None and member.instance_id is None
        ]
        for member in missing:
            log.info(
                "event=member_removed group=%s member=%s reason=%s", group.name, member.member_id, "no join in time"
            )
            self.drop(group, member, step)
        if group.members and not group.elect_joined_leader():
            # Only static members are left and none has joined: wait until one does or their sessions end.
            self._wait_for_joins(group, step, group.rebalance_timeout_ms, partial(self._complete_join, group))
            return
        group.next_generation()
        step.persist(group.record())
        log.info("event=rebalanced group=%s generation=%d members=%d", group.name, group.generation, len(group.members))
        if not group.members:
            return
        for member in group.members.values():
            if self.answer_join(group, member, step, self.joined(group, member)):
                self.touch(member, step)
                member.is_new = False
            group.unsynced.add(member.member_id)
        self.deadlines.set(group.sync_timer, step.mono_ms + group.rebalance_timeout_ms)

    def joined(self, group: Group, member: Member) -> JoinResult:
        """The current generation, told to one of its members."""
        leads = group.leader == member.member_id
        return JoinResult(
            fault=None,
            member_id=member.member_id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol=group.protocol,
            leader=group.leader,
            members=group.joined_members() if leads else (),
        )

    # -- sync phase --------------------------------------------------------------------------------------------------

    def await_share(self, group: Group, member: Member, token: object, step: Step) -> None:
        """A member waits for the leader's assignment."""
        replaced, member.sync_token = member.sync_token, token
        if replaced is not None:
            step.reply(replaced, SyncResult(Fault.REBALANCE_IN_PROGRESS))
        self.synced(group, member)

    def synced(self, group: Group, member: Member) -> None:
        """A member has asked for its share."""
        group.unsynced.discard(member.member_id)
        if not group.unsynced:
            self.deadlines.cancel(group.sync_timer)

    def settle(self, group: Group, assignments: dict[str, bytes], step: Step) -> None:
        """The leader has assigned: the group is stable, and everybody who waits gets its share."""
        assert group.state is State.COMPLETING
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        group.enter(State.STABLE)
        step.persist(group.record())
        for member in group.members.values():
            if self._answer_sync(member, step, self.share(group, member)):
                # Its session may have run out while it waited, which counts for nothing.
                self.touch(member, step)

    def share(self, group: Group, member: Member) -> SyncResult:
        return SyncResult(None, group.protocol_type, group.protocol, member.assignment)

    def _sync_expired(self, group: Group, step: Step) -> None:
        missing = [group.members[member_id] for member_id in group.members if member_id in group.unsynced]
        for member in missing:
            log.info(
                "event=member_removed group=%s member=%s reason=%s", group.name, member.member_id, "no sync in time"
            )
            self.drop(group, member, step)
        self.prepare(group, step, "members sent no sync in time")

    # -- sessions ----------------------------------------------------------------------------------------------------

    def member_gone(self, group: Group, step: Step, reason: str) -> None:
        """A member was dropped: the others share its work, or need no longer wait for it."""
        if group.state in (State.STABLE, State.COMPLETING):
            self.prepare(group, step, reason)
        else:
            self.complete_if_all_joined(group, step)

    def _session_expired(self, group: Group, member: Member, step: Step) -> None:
        waits = member.join_token is not None or member.sync_token is not None
        if waits and not member.is_new:
            return  # It waits for us. The session starts again with the answer.
        log.info("event=member_removed group=%s member=%s reason=%s", group.name, member.member_id, "no heartbeat")
        self.drop(group, member, step)
        self.member_gone(group, step, f"session of member {member.member_id} ended")

    # -- heartbeats --------------------------------------------------------------------------------------------------

    def await_rebalance(self, member: Member, token: object, step: Step) -> None:
        """Answer the heartbeat with the next rebalance, or in time for the member to be sure that we are there."""
        self._answer_heartbeat(member, step)
        member.beat_token = token
        wait_ms = min(self.settings.heartbeat_wait_ms, member.session_timeout_ms // 3)
        self.deadlines.set(member.heartbeat_timer, step.mono_ms + wait_ms)

    def _answer_heartbeat(self, member: Member, step: Step, fault: Fault | None = None) -> None:
        token, member.beat_token = member.beat_token, None
        if token is not None:
            self.deadlines.cancel(member.heartbeat_timer)
            step.reply(token, HeartbeatResult(fault))

    # -- answers -----------------------------------------------------------------------------------------------------

    def answer_join(self, group: Group, member: Member, step: Step, result: JoinResult) -> bool:
        token = group.set_join_token(member, None)
        if token is not None:
            step.reply(token, result)
        return token is not None

    def _answer_sync(self, member: Member, step: Step, result: SyncResult) -> bool:
        token, member.sync_token = member.sync_token, None
        if token is not None:
            step.reply(token, result)
        return token is not None


def _nothing(step: Step) -> None:
    """The action of a timer that is not set yet."""
