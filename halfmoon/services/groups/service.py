"""Groups with a memory: the coordinator's decisions carried out on the log, and the offsets that groups commit (B18).

The coordinator (`coordination`) decides; `journal` writes what it wants remembered, and lets an answer out only once
what it rests on is durable. Committed offsets are one table for all protocols, kept by the catalog (`state`).

Knows nothing of share groups: whether another kind of group has a name is asked of `names`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from halfmoon.config.settings import Settings
from halfmoon.core.append import Appender
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.clock import Clock
from halfmoon.core.features import Feature
from halfmoon.core.live import Live
from halfmoon.core.steps import Pauses
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema import control
from halfmoon.schema.control import Committed
from halfmoon.services.groups.allocation import AnyAllocator
from halfmoon.services.groups.consumer.messages import ConsumerGroupDescription, ConsumerHeartbeat
from halfmoon.services.groups.coordination import Coordination
from halfmoon.services.groups.journal import Asked, GroupJournal
from halfmoon.services.groups.messages import (
    ConsumerHeartbeatResult,
    HeartbeatResult,
    Join,
    JoinResult,
    Sync,
    SyncResult,
)
from halfmoon.services.groups.model import State
from halfmoon.services.groups.names import CLASSIC_TYPE, GroupDescription, GroupListing, GroupNames
from halfmoon.services.groups.state import GroupsState

LOOKED_AT = 5_000
"""Offsets that are looked at from one pause to the next, where groups expire."""

Left = list[tuple[str, str | None, Fault | None]]


class GroupService:
    """All groups of a broker, as adapters see them. Replies are callables; each is called once, in the loop's
    thread."""

    def __init__(
        self,
        coordinator: Coordination,
        journal: GroupJournal,
        state: GroupsState,
        catalog: Catalog,
        appender: Appender,
        names: GroupNames,
        clock: Clock,
        settings: Live[Settings],
        unstable: Callable[[str], set[tuple[int, int]]],
    ) -> None:
        """`unstable(group)`: partitions (topic number, partition) for which a transaction that is not decided has
        offsets of the group."""
        self.coordinator = coordinator
        self._journal = journal
        self._state = state
        self._catalog = catalog
        self._appender = appender
        self._names = names
        self._clock = clock
        self._settings = settings
        self.unstable = unstable
        names.register(self)
        self._gone_since: dict[str, int] = {}
        """Groups that do not exist, of which features remember something, and since when that is known (Unix ms)."""

    def feature(self) -> Feature:
        return Feature("groups", restore=self.restore, timed=self, retain=self.retain, warnings=self.warnings)

    @property
    def all_offsets(self) -> Mapping[str, Mapping[tuple[int, int], Committed]]:
        """Group → (topic number, partition) → what is committed there."""
        return self._state.offsets

    def restore(self) -> None:
        """Take up what the log remembers of groups. Called once, before the first request."""
        records = [record for record, _ in self._state.groups.values()]
        wholes = [group.whole() for group in self._state.consumer_groups.values()]
        self.coordinator.restore(records, wholes, self._clock.mono_ms())
        self._journal.arm()

    @property
    def allocators(self) -> Mapping[str, AnyAllocator]:
        """By what name which strategy shares partitions out, in groups where the broker does; to be set at start."""
        return self.coordinator.rebalancing.allocators

    @allocators.setter
    def allocators(self, allocators: Mapping[str, AnyAllocator]) -> None:
        self.coordinator.rebalancing.allocators = allocators

    # -- membership ----------------------------------------------------------------------------------------------------

    def join(self, join: Join, reply: Callable[[JoinResult], None]) -> None:
        if self._names.other_protocol.has_members(join.group) or self._names.taken_by_another(join.group, self):
            reply(JoinResult(Fault.INCONSISTENT_GROUP_PROTOCOL, join.member_id))
            return
        self._names.other_protocol.write_offsets(join.group)
        self._journal.write_again(join.group)
        self._journal.carry_out(self.coordinator.join(join, Asked(join.group, reply), self._clock.mono_ms()))

    def sync(self, sync: Sync, reply: Callable[[SyncResult], None]) -> None:
        self._journal.write_again(sync.group)
        self._journal.carry_out(self.coordinator.sync(sync, Asked(sync.group, reply), self._clock.mono_ms()))

    def heartbeat(self, group: str, generation: int, member_id: str, instance_id: str | None) -> Fault | None:
        self._journal.write_again(group)
        mono_ms = self._clock.mono_ms()
        fault, effects = self.coordinator.heartbeat(group, generation, member_id, instance_id, mono_ms)
        self._journal.carry_out(effects)
        return fault

    def await_rebalance(self, group: str, member_id: str, reply: Callable[[HeartbeatResult], None]) -> bool:
        """Answer a heartbeat, which `heartbeat` has just found in order, when there is something to say or the time is
        up. False: it is to be answered now."""
        effects = self.coordinator.await_rebalance(group, member_id, Asked(group, reply), self._clock.mono_ms())
        if effects is None:
            return False
        self._journal.carry_out(effects)
        return True

    def consumer_heartbeat(self, request: ConsumerHeartbeat, reply: Callable[[ConsumerHeartbeatResult], None]) -> None:
        """A member of the new protocol joins, stays or leaves."""
        refused = self._refused(request.group)
        if refused is not None:
            reply(ConsumerHeartbeatResult(Fault.GROUP_ID_NOT_FOUND, refused))
            return
        if request.epoch == 0:
            self._names.other_protocol.write_offsets(request.group)
        self._journal.write_again(request.group)
        asked = Asked(request.group, reply)
        self._journal.carry_out(self.coordinator.consumer_heartbeat(request, asked, self._clock.mono_ms()))

    def rights_changed(self) -> None:
        """Others may describe topics: patterns may find others with the next heartbeats."""
        self.coordinator.rebalancing.rights_changes += 1

    def takes_long(self, request: ConsumerHeartbeat) -> bool:
        """Whether `announce` is to be carried out before `consumer_heartbeat`."""
        return self.coordinator.takes_long(request) and self._refused(request.group) is None

    def announce(self, request: ConsumerHeartbeat) -> Pauses[ConsumerHeartbeat]:
        """What takes long in a heartbeat, in several turns (`Coordination.announce`). Returns the request for
        `consumer_heartbeat`."""
        request, effects = self.coordinator.announce(request, self._clock.mono_ms())
        self._journal.carry_out(effects)
        yield
        self._journal.carry_out(self.coordinator.save_again(request.group))
        yield
        return request

    def _refused(self, group: str) -> str | None:
        """Why a member of the new protocol cannot be in a group, if it cannot."""
        if self._names.taken_by_another(group, self):
            return f"Group {group} is not a consumer group."
        if self._names.other_protocol.has_members(group):
            return f"Group {group} has members that speak another protocol."
        return None

    def leave(self, group: str, members: Sequence[tuple[str, str | None]]) -> Left:
        """Per member what became of it: member id, instance id, and why it could not leave, if so."""
        self._journal.write_again(group)
        left, effects = self.coordinator.leave(group, members, self._clock.mono_ms())
        self._journal.carry_out(effects)
        return left

    def put_off(self, by_ms: int) -> None:
        """The clock has leapt, which is nobody's silence: sessions and rebalances end so much later."""
        self.coordinator.classic.rebalances.deadlines.put_off(by_ms)

    def expire(self, mono_ms: int) -> None:
        self._journal.carry_out(self.coordinator.expire(mono_ms))

    def send_away(self) -> None:
        """The shard goes to another process. Who waits for others of a group would wait here for ever."""
        self._journal.carry_out(self.coordinator.classic.send_away(self._clock.mono_ms()))

    def retain(self, now_ms: int) -> Iterator[None]:
        """The part of the retention walk that is groups'. Raises BrokerError."""
        yield from self.expire_offsets(now_ms)

    def next_deadline(self) -> int | None:
        return self.coordinator.next_deadline()

    # -- committed offsets ---------------------------------------------------------------------------------------------

    def commit(
        self,
        group: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        entries: Sequence[tuple[Partition, int, int, str]],
    ) -> int:
        """Store offsets of a group: (partition, offset, leader epoch, metadata) each.

        Returns the log position to wait for. Raises BrokerError where this member may not commit now (22, 25, 27, 113).
        """
        fault = self.check_commit(group, generation, member_id, instance_id)
        for stale in self.stale(group, generation, member_id, [entry[0] for entry in entries]).values():
            fault = fault or stale
        if fault is not None:
            speaks_other = self._names.other_protocol.has_members(group)
            raise BrokerError(
                fault, f"group '{group}' has members that speak another protocol" if speaks_other else None
            )
        return self.record(group, entries, reset=generation < 0)

    def check_commit(
        self,
        group: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        *,
        transactional: bool = False,
        knows_epochs: bool = True,
    ) -> Fault | None:
        """Whether somebody may commit offsets now: a member by its generation or member epoch, anybody (−1) where the
        group has no members. For OffsetCommit, and with `transactional` for TxnOffsetCommit.

        `knows_epochs`: the request is of a version that members of the new protocol may use. Single partitions may be
        refused nevertheless: see `stale`.
        """
        if self._appender.leaves:  # the request has waited for somebody, or for its turn, while the shard was closed
            return Fault.NOT_COORDINATOR
        self._names.other_protocol.write_offsets(group)
        if self._names.other_protocol.has_members(group):
            return Fault.UNKNOWN_MEMBER_ID
        if self._names.taken_by_another(group, self):
            return Fault.GROUP_ID_NOT_FOUND
        return self.coordinator.check_commit(
            group, generation, member_id, instance_id, self._clock.mono_ms(),
            has_offsets=group in self._state.offsets, transactional=transactional, knows_epochs=knows_epochs,
        )  # fmt: skip

    def stale(
        self, group: str, generation: int, member_id: str, partitions: Collection[Partition]
    ) -> dict[Partition, Fault]:
        """Of these partitions, those that a member may not commit any more, because its epoch is an old one."""
        places = {(each.topic.number, each.index): each for each in partitions}
        faults = self.coordinator.stale(group, generation, member_id, places)
        return {places[place]: fault for place, fault in faults.items()}

    def record(self, group: str, entries: Sequence[tuple[Partition, int, int, str]], *, reset: bool) -> int:
        """Store offsets unchecked, for protocols whose clients agree among themselves. As `commit`; with `reset` they
        are set by an operator, and may go back."""
        now_ms = self._clock.wall_ms()
        made = [(p.topic.number, p.index, Committed(offset, epoch, note, now_ms)) for p, offset, epoch, note in entries]
        return self._appender.append_control(control.OffsetsCommitted(group, made, reset=reset))

    def offsets(self, group: str) -> dict[Partition, Committed]:
        """The committed offsets of a group; empty for a group that has none."""
        self._names.other_protocol.write_offsets(group)
        found = {}
        for (number, index), committed in self._state.offsets.get(group, {}).items():
            partition = self._catalog.known_partition(number, index)
            if partition is not None:
                found[partition] = committed
        return found

    def committed(self, group: str) -> Mapping[tuple[int, int], Committed]:
        """The same by topic number and partition, as they stand; also of topics that are gone."""
        self._names.other_protocol.write_offsets(group)
        return self._state.offsets.get(group, {})

    def delete_offsets(self, group: str, partitions: Sequence[Partition]) -> int:
        """Remove committed offsets; returns the log position to wait for."""
        self._names.other_protocol.write_offsets(group)
        entries = [(p.topic.number, p.index) for p in partitions]
        return self._appender.append_control(control.OffsetsDeleted(group, entries))

    def check_offset_delete(self, group: str) -> Fault | None:
        if self._names.other_protocol.has_members(group):
            return Fault.NON_EMPTY_GROUP
        return self.coordinator.check_offset_delete(group, has_offsets=group in self._state.offsets)

    # -- operators -----------------------------------------------------------------------------------------------------

    def describe_consumer(self, group: str) -> ConsumerGroupDescription | None:
        """A group of the new protocol; None if there is none of that name."""
        return None if self._names.other_protocol.has_members(group) else self.coordinator.describe_consumer(group)

    def warnings(self) -> Sequence[str]:
        """Groups that keep an assignment because a strategy failed, a sentence each."""
        return self.coordinator.warnings()

    def exists(self, group: str) -> bool:
        return self.describe(group) is not None

    def listed(self, types: Sequence[str]) -> Iterator[GroupListing]:
        """See GroupKind. A group with members of another protocol is listed as theirs."""
        other = self._names.other_protocol
        theirs = set(other.groups()) if not types or CLASSIC_TYPE in types else set()
        for each in self.coordinator.listed(types, self._state.offsets):
            if each.group not in theirs:
                yield each
        for name in theirs:
            yield GroupListing(name, other.protocol_type, State.STABLE.value, CLASSIC_TYPE)

    def describe(self, group: str) -> GroupDescription | None:
        members = tuple(self._names.other_protocol.members(group))
        if members:
            return GroupDescription(group, State.STABLE.value, self._names.other_protocol.protocol_type, "", 0, members)
        return self.coordinator.describe(group, has_offsets=group in self._state.offsets)

    def delete(self, group: str) -> int | None:
        """Remove a group and its offsets; the log position to wait for, or None if there is no such group here. Raises
        BrokerError."""
        if self._names.taken_by_another(group, self):
            return None
        other = self._names.other_protocol
        other.write_offsets(group)
        has_offsets = group in self._state.offsets
        if self.coordinator.describe(group, has_offsets=has_offsets) is None and group not in self._names.remembered():
            return None
        if self.coordinator.is_active(group) or other.has_members(group):
            raise BrokerError(Fault.NON_EMPTY_GROUP)
        position = self._journal.delete(group)
        self.coordinator.delete(group, has_offsets)
        return position

    def expire_offsets(self, now_ms: int) -> Pauses[int]:
        """Delete groups that have been empty for longer than `$.groups.offsets_retention` (KIP-211), in slices. Returns
        how many.

        An empty group's time runs from when it became empty; that of a group that was never more than offsets from each
        commit.
        """
        retention_ms = self._settings.current.groups.offsets_retention_ms
        if retention_ms is None:
            return 0
        state = self._state
        offsets = state.offsets
        expired = looked = 0
        kinds: tuple[Mapping[str, object], ...] = (offsets, state.groups, state.consumer_groups)
        for known in kinds:
            for group in list(known):  # no set of all: 100,000 take 10 ms to be put together
                if known is not offsets and group in offsets:  # seen among these
                    continue
                looked += 10 + len(offsets.get(group, ()))
                if looked >= LOOKED_AT:
                    looked = 0
                    yield None
                if self._is_due(group, now_ms - retention_ms):
                    self.delete(group)
                    expired += 1
        return expired + self._expire_remembered(now_ms, retention_ms)

    def _is_due(self, group: str, before_ms: int) -> bool:
        """Whether nothing has happened in a group since then."""
        state = self._state
        if self.coordinator.is_active(group) or self._names.other_protocol.has_members(group) or self.unstable(group):
            return False
        # It may have been deleted since it was found.
        if group not in state.offsets and group not in state.groups and group not in state.consumer_groups:
            return False
        if group in state.groups and state.groups[group][1] > before_ms:
            return False
        if group in state.consumer_groups and state.consumer_groups[group].saved_ms > before_ms:
            return False
        return max((each.commit_ms for each in state.offsets.get(group, {}).values()), default=0) <= before_ms

    def _expire_remembered(self, now_ms: int, retention_ms: int) -> int:
        """What features remember of groups that do not exist; from when on they have not, nobody wrote down."""
        names = self._names
        only = {group for group in names.remembered() if not names.exists(group)}
        self._gone_since = {group: self._gone_since.get(group, now_ms) for group in only}
        due = [group for group, since_ms in self._gone_since.items() if since_ms + retention_ms <= now_ms]
        for group in due:
            self._journal.delete(group)
        return len(due)
