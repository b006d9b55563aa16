"""The classic group coordinator: for consumer groups, Connect clusters, schema registries, and whoever else uses it.

Sans-I/O: an event comes in with the time at which it happens, effects come out (answers to send, records to make
durable). The coordinator owns membership and generations. It does not own offsets: those are in the broker's catalog,
and where it matters whether a group has any, the caller says so. It knows no socket, no clock, no log, no API version.

    effects = coordinator.join(join, token, mono_ms)      also: sync, leave, expire
    fault = coordinator.heartbeat(…)                       also: check_commit, check_offset_delete, delete
    coordinator.next_deadline()                            when to call expire next

What the caller owes
- Calls come from one thread, in the order of time: `mono_ms` never goes back.
- Effects are carried out in order. A Reply is sent once all Persists before it, of this call and of earlier ones, are
  durable. When the log fails, the answer is COORDINATOR_NOT_AVAILABLE instead.
- After a start `restore` is called once, with the last record of each group, before any other event.

Over a restart: generations go on from where they were, and members are members still. Those of a stable group go on
without noticing; where a rebalance had begun, all are told to join again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from halfmoon.errors import Fault
from halfmoon.schema.groups import GroupRecord, SavedMember
from halfmoon.services.groups import descriptions
from halfmoon.services.groups.joining import Joining
from halfmoon.services.groups.messages import UNKNOWN_MEMBER, Effect, GroupSettings, Join, JoinResult, Sync, SyncResult
from halfmoon.services.groups.model import Group, State
from halfmoon.services.groups.names import GroupDescription, GroupListing
from halfmoon.services.groups.rebalance import Rebalances
from halfmoon.services.groups.step import Step
from halfmoon.services.groups.subscription import CONSUMER_PROTOCOL_TYPE


class GroupCoordinator:
    """All classic groups of one node."""

    def __init__(self, settings: GroupSettings, new_member_id: Callable[[str], str]) -> None:
        """`new_member_id` makes an id that nobody has had before, from a client or instance id to begin it with."""
        self.settings = settings
        self._groups: dict[str, Group] = {}
        self._rebalances = Rebalances(settings, self._forget_if_blank)
        self._joining = Joining(self._rebalances, new_member_id)

    def reconfigure(self, settings: GroupSettings) -> None:
        """These hold from now on; deadlines that run already stay."""
        self.settings = self._rebalances.settings = settings

    # -- members' requests -------------------------------------------------------------------------------------------

    def join(self, join: Join, token: object, mono_ms: int) -> list[Effect]:
        """A member wants to be in the next generation. `token` is answered with a JoinResult, now or later.

        It may be any object but None.
        """
        assert token is not None
        step = Step(mono_ms)
        settings = self.settings
        group = self._groups.get(join.group)
        if not join.group:
            step.reply(token, JoinResult(Fault.INVALID_GROUP_ID, join.member_id))
        elif not settings.min_session_timeout_ms <= join.session_timeout_ms <= settings.max_session_timeout_ms:
            step.reply(token, JoinResult(Fault.INVALID_SESSION_TIMEOUT, join.member_id))
        elif group is None and join.member_id != UNKNOWN_MEMBER:
            step.reply(token, JoinResult(Fault.UNKNOWN_MEMBER_ID, join.member_id))
        else:
            if group is None:
                group = self._groups[join.group] = self._rebalances.new_group(join.group)
            self._joining.join(group, join, token, step)
            self._forget_if_blank(group)
        return step.effects

    def sync(self, sync: Sync, token: object, mono_ms: int) -> list[Effect]:
        """A member wants its share; the leader brings all. `token` is answered with a SyncResult, now or later."""
        assert token is not None
        step = Step(mono_ms)
        group = self._groups.get(sync.group)
        fault = self._check(group, sync.group, sync.generation, sync.member_id, sync.instance_id)
        if fault is None and group is not None and _differ(sync, group):
            fault = Fault.INCONSISTENT_GROUP_PROTOCOL
        if fault is None and group is not None and group.state is State.PREPARING:
            fault = Fault.REBALANCE_IN_PROGRESS
        if group is None or fault is not None:
            step.reply(token, SyncResult(fault or Fault.UNKNOWN_MEMBER_ID))
            return step.effects
        member = group.members[sync.member_id]
        if group.state is State.STABLE:
            self._rebalances.synced(group, member)
            step.reply(token, self._rebalances.share(group, member))
        else:
            self._rebalances.await_share(group, member, token, step)
            if group.leader == member.member_id:
                self._rebalances.settle(group, sync.assignments, step)
        return step.effects

    def heartbeat(
        self, group_id: str, generation: int, member_id: str, instance_id: str | None, mono_ms: int
    ) -> Fault | None:
        """A member is alive. REBALANCE_IN_PROGRESS tells it to join again."""
        group = self._groups.get(group_id)
        fault = self._check(group, group_id, generation, member_id, instance_id)
        if group is None or fault is not None:
            return fault
        self._rebalances.touch(group.members[member_id], Step(mono_ms))
        return Fault.REBALANCE_IN_PROGRESS if group.state is State.PREPARING else None

    def await_rebalance(self, group_id: str, member_id: str, token: object, mono_ms: int) -> list[Effect] | None:
        """A heartbeat that has just been found in order may wait. `token` is answered later, with a
        HeartbeatResult; None: it is to be answered now."""
        group = self._groups.get(group_id)
        if group is None or group.state is not State.STABLE or not self.settings.heartbeat_wait_ms:
            return None
        step = Step(mono_ms)
        self._rebalances.await_rebalance(group.members[member_id], token, step)
        return step.effects

    def leave(
        self, group_id: str, members: Sequence[tuple[str, str | None]], mono_ms: int
    ) -> tuple[list[tuple[str, str | None, Fault | None]], list[Effect]]:
        """Members (member id, instance id) leave; an operator may name static ones by their instance id alone."""
        step = Step(mono_ms)
        group = self._groups.get(group_id)
        if group is None:
            fault = Fault.UNKNOWN_MEMBER_ID if group_id else Fault.INVALID_GROUP_ID
            return [(member_id, instance_id, fault) for member_id, instance_id in members], []
        size = len(group.members)
        results = [
            (member_id, instance_id, self._leave(group, member_id, instance_id, step))
            for member_id, instance_id in members
        ]
        if len(group.members) < size:
            self._rebalances.member_gone(group, step, f"{size - len(group.members)} member(s) left")
        else:
            # A pending member that leaves concerns only a join phase that waits for it.
            self._rebalances.complete_if_all_joined(group, step)
        self._forget_if_blank(group)
        return results, step.effects

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
    ) -> Fault | None:
        """Whether offsets may be committed (ClassicGroup.validateOffsetCommit). A member's commit is a sign of life.

        In a transaction (`transactional`) nobody need say who they are, and a share may be on its way.

        Without a generation (negative) the commit is a simple consumer's or an operator's: nobody may be a member.
        GROUP_ID_NOT_FOUND: a generation of a group that has neither members nor offsets; before OffsetCommit v9 that is
        told as ILLEGAL_GENERATION.
        """
        group = self._groups.get(group_id)
        anonymous = generation < 0
        if group is None:
            if anonymous:
                return None
            return Fault.UNKNOWN_MEMBER_ID if has_offsets else Fault.GROUP_ID_NOT_FOUND
        if anonymous and (
            group.state is State.EMPTY or (transactional and member_id == UNKNOWN_MEMBER and instance_id is None)
        ):
            return None
        fault = self._check(group, group_id, generation, member_id, instance_id)
        if fault is None and group.state is State.COMPLETING and not transactional:
            # The member's generation is right and its share is on its way: it shall try again with the next one.
            return Fault.REBALANCE_IN_PROGRESS
        if fault is None:
            self._rebalances.touch(group.members[member_id], Step(mono_ms))
        return fault

    # -- time --------------------------------------------------------------------------------------------------------

    def expire(self, mono_ms: int) -> list[Effect]:
        """Do what is due at `mono_ms`: end join phases, sessions, and the wait for members that never came back."""
        step = Step(mono_ms)
        for timer in self._rebalances.deadlines.due(mono_ms):
            timer.action(step)
        return step.effects

    def send_away(self, mono_ms: int) -> list[Effect]:
        """Another process coordinates the groups from now on: who waits for an answer is told so, as Kafka does when a
        coordinator unloads its groups."""
        step = Step(mono_ms)
        for group in self._groups.values():
            self._rebalances.release(group, step, Fault.NOT_COORDINATOR, Fault.NOT_COORDINATOR)
        return step.effects

    def next_deadline(self) -> int | None:
        """When `expire` has something to do, at the earliest. None: never, as things stand."""
        return self._rebalances.deadlines.next_deadline()

    # -- restart -----------------------------------------------------------------------------------------------------

    def restore(self, records: Iterable[GroupRecord], mono_ms: int) -> None:
        """Take up the groups as they were recorded last. All sessions begin anew."""
        step = Step(mono_ms)
        for record in records:
            assert record.group not in self._groups, "one record for each group"
            group = self._groups[record.group] = self._rebalances.new_group(record.group)
            group.generation = record.generation
            group.protocol_type = record.protocol_type
            group.protocol = record.protocol
            for saved in record.members:
                self._restore_member(group, record, saved, step)
            if not group.members:
                continue
            group.leader = record.leader if record.leader in group.members else group.leader
            group.restore_topics()
            group.enter(State.STABLE)
            if not record.settled or record.forgotten:
                self._rebalances.resume_join_phase(group, step)

    def _restore_member(self, group: Group, record: GroupRecord, saved: SavedMember, step: Step) -> None:
        member = self._rebalances.new_member(
            group,
            saved.member_id,
            Join(
                group=group.name,
                member_id=saved.member_id,
                instance_id=saved.instance_id,
                client_id=saved.client_id,
                client_host=saved.client_host,
                session_timeout_ms=saved.session_timeout_ms,
                rebalance_timeout_ms=saved.rebalance_timeout_ms,
                protocol_type=record.protocol_type,
                protocols=saved.protocols,
            ),
        )
        member.assignment = saved.assignment
        group.add(member)
        self._rebalances.touch(member, step)

    # -- operators ---------------------------------------------------------------------------------------------------

    def list(
        self, states: Collection[str] = (), types: Collection[str] = (), offset_groups: Iterable[str] = ()
    ) -> list[GroupListing]:
        """Groups sorted by name, filtered by state and type (empty: all; letter case does not matter).

        `offset_groups` are the groups that have offsets; those that are nothing else are listed as Empty.
        """
        return descriptions.in_states(self.listed(types, offset_groups), states)

    def listed(self, types: Collection[str], offset_groups: Iterable[str]) -> Iterator[GroupListing]:
        """The same in no order, one by one: groups may come and go meanwhile."""
        return descriptions.listed(self._groups, types, offset_groups)

    def describe(self, group_id: str, *, has_offsets: bool = False) -> GroupDescription | None:
        """One group; None if it does not exist. A group that has only offsets is Empty."""
        return descriptions.describe(group_id, self._groups.get(group_id), has_offsets)

    def is_active(self, group_id: str) -> bool:
        """Whether the group has members, or is about to have: its offsets are in use."""
        group = self._groups.get(group_id)
        return group is not None and (group.state is not State.EMPTY or bool(group.pending))

    def subscribed_topics(self, group_id: str) -> frozenset[str] | None:
        """Topics that the group's members consume; None: they consume, and cannot be asked what."""
        group = self._groups.get(group_id)
        if group is None or group.protocol_type != CONSUMER_PROTOCOL_TYPE or group.state is State.EMPTY:
            return frozenset()
        return group.subscribed

    def check_offset_delete(self, group_id: str, *, has_offsets: bool) -> Fault | None:
        """Whether offsets of topics outside `subscribed_topics` may be deleted (ClassicGroup.validateOffsetDelete)."""
        group = self._groups.get(group_id)
        if group is None:
            return None if has_offsets else Fault.GROUP_ID_NOT_FOUND
        if group.state is not State.EMPTY and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return Fault.NON_EMPTY_GROUP
        return None

    def delete(self, group_id: str, has_offsets: bool) -> Fault | None:
        """Forget a group without members. The caller removes its record and its offsets, durably."""
        group = self._groups.get(group_id)
        if group is None:
            return None if has_offsets else Fault.GROUP_ID_NOT_FOUND
        if group.state is not State.EMPTY:
            return Fault.NON_EMPTY_GROUP
        self._rebalances.dissolve(group)
        del self._groups[group_id]
        return None

    # -- groups that change their protocol ---------------------------------------------------------------------------

    @property
    def rebalances(self) -> Rebalances:
        return self._rebalances

    def find(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    def begin_at(self, group_id: str, generation: int) -> None:
        """A group without members, whose generations go on from there."""
        assert group_id not in self._groups
        group = self._groups[group_id] = self._rebalances.new_group(group_id)
        group.generation = generation

    def take_out(self, group: Group, step: Step) -> None:
        """Forget a group; who waits for an answer is told to join again."""
        self._rebalances.release(group, step)
        del self._groups[group.name]

    def take_in(self, group: Group, step: Step, reason: str) -> None:
        """Look after a group that another coordinator had, and let it rebalance."""
        assert group.name not in self._groups
        self._groups[group.name] = group
        self._rebalances.prepare(group, step, reason)
        step.persist(group.record())

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _check(
        self, group: Group | None, group_id: str, generation: int, member_id: str, instance_id: str | None
    ) -> Fault | None:
        """Whether somebody is who they say, in the generation they say."""
        if group is None:
            return Fault.UNKNOWN_MEMBER_ID if group_id else Fault.INVALID_GROUP_ID
        fault = group.check_member(member_id, instance_id)
        if fault is None and generation != group.generation:
            return Fault.ILLEGAL_GENERATION
        return fault

    def _leave(self, group: Group, member_id: str, instance_id: str | None, step: Step) -> Fault | None:
        if member_id in group.pending:
            self._rebalances.forget_pending(group, member_id)
            return None
        if member_id == UNKNOWN_MEMBER and instance_id is not None:
            member_id = group.static_ids.get(instance_id, UNKNOWN_MEMBER)
        fault = group.check_member(member_id, instance_id)
        if fault is None:
            self._rebalances.drop(group, group.members[member_id], step)
        return fault

    def _forget_if_blank(self, group: Group) -> None:
        """A group to which nothing has ever happened leaves no trace, however many names a client tries."""
        if group.blank:
            self._groups.pop(group.name, None)


def _differ(sync: Sync, group: Group) -> bool:
    """KIP-559: a member that says which protocol it follows must follow the group's."""
    return (sync.protocol_type is not None and sync.protocol_type != group.protocol_type) or (
        sync.protocol is not None and sync.protocol != group.protocol
    )
