"""Groups with a memory: the coordinator's effects carried out on the log, and groups' progress (B18).

The coordinator (core/groups) decides; this module writes what it wants remembered, and lets an answer out only once
what it rests on is durable. Progress is one table for all protocols, kept by the catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from halfmoon.core.catalog.topics import Partition
from halfmoon.core.errors import BrokerError, Fault
from halfmoon.core.groups.consumer.messages import ConsumerGroupDescription, ConsumerHeartbeat, HeartbeatResult
from halfmoon.core.groups.consumer.settings import ConsumerSettings, GroupOverrides
from halfmoon.core.groups.coordination import Coordination
from halfmoon.core.groups.messages import (
    BeatResult,
    Effect,
    GroupDescription,
    GroupListing,
    GroupSettings,
    Join,
    JoinResult,
    MemberDescription,
    Persist,
    Sync,
    SyncResult,
)
from halfmoon.core.groups.model import State
from halfmoon.core.groups.views import GROUP_TYPE
from halfmoon.schema import control
from halfmoon.schema.control import Committed
from halfmoon.schema.groups import GroupRecord

if TYPE_CHECKING:
    from halfmoon.core.broker import Broker
    from halfmoon.core.catalog.catalog import Catalog
    from halfmoon.core.config import GroupsSettings
    from halfmoon.services.groups.allocation import AnyAllocator

Left = list[tuple[str, str | None, Fault | None]]


class ForeignGroups(Protocol):
    """Groups whose live members speak another protocol than Kafka's, and agree among themselves who reads what. A
    group's members speak one protocol at a time."""

    protocol_type: str

    def has_members(self, group: str) -> bool: ...

    def members(self, group: str) -> Sequence[MemberDescription]: ...

    def groups(self) -> Iterable[str]:
        """Those that have members."""
        ...

    def write_progress(self, group: str) -> None:
        """Somebody is about to look at a group's progress, or to change it: record what is not recorded yet."""
        ...


class _NoForeignGroups:
    protocol_type = ""

    def has_members(self, group: str) -> bool:
        return False

    def members(self, group: str) -> Sequence[MemberDescription]:
        return ()

    def groups(self) -> Iterable[str]:
        return ()

    def write_progress(self, group: str) -> None:
        pass


class _Asked(NamedTuple):
    """Who waits for an answer about which group."""

    group: str
    reply: Callable[[Any], None]


class _CatalogTopics:
    """The catalog's topics, as the coordinator looks at them (consumer/subscriptions.Topics)."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    @property
    def changes(self) -> int:
        return self._catalog.changes

    def number(self, name: str) -> int | None:
        topic = self._catalog.by_name.get(name)
        return None if topic is None else topic.number

    def name(self, number: int) -> str | None:
        topic = self._catalog.by_number.get(number)
        return None if topic is None else topic.name

    def partitions(self, number: int) -> int:
        topic = self._catalog.by_number.get(number)
        return 0 if topic is None else len(topic.partitions)

    def names(self) -> Iterable[str]:
        return (name for name, topic in self._catalog.by_name.items() if not topic.internal)


class GroupService:
    """All groups of a broker, as adapters see them. Replies are callables; each is called once, in the loop's
    thread."""

    def __init__(self, broker: Broker, new_member_id: Callable[[str], str]) -> None:
        self._broker = broker
        self.consumer_settings = ConsumerSettings(overrides=self._overrides)
        """Of groups of the new protocol."""
        self._set_consumer_settings()
        self.coordinator = Coordination(
            _limits(broker.settings.groups),
            self.consumer_settings,
            _CatalogTopics(broker.catalog),
            new_member_id,
        )
        self._persisted = 0
        self._unwritten: dict[str, BrokerError] = {}
        """Groups of which the last change could not be written, and why."""
        self.foreign: ForeignGroups = _NoForeignGroups()
        broker.live.subscribe(lambda settings: self.reconfigure())

    def reconfigure(self) -> None:
        """The broker's settings have changed."""
        self.coordinator.classic.reconfigure(_limits(self._broker.settings.groups))
        self._set_consumer_settings()

    def _set_consumer_settings(self) -> None:
        settings, groups = self.consumer_settings, self._broker.settings.groups
        rocketmq = self._broker.settings.listeners.rocketmq
        settings.session_timeout_ms = groups.consumer_session_timeout_ms
        settings.heartbeat_min_ms = groups.consumer_heartbeat_min_ms
        settings.heartbeat_max_ms = groups.consumer_heartbeat_max_ms
        settings.heartbeats_per_second = groups.consumer_heartbeats_per_second
        settings.max_size = groups.most_members
        settings.default_assignor = groups.default_assignor
        settings.broker_name = "halfmoon" if rocketmq is None else rocketmq.broker_name
        settings.may_upgrade = groups.migration_policy in ("bidirectional", "upgrade")
        settings.may_downgrade = groups.migration_policy in ("bidirectional", "downgrade")

    def _overrides(self, group: str) -> GroupOverrides:
        """What a group's own configuration says."""
        rules = self._broker.group_configs.of(group)
        return GroupOverrides(rules.consumer_session_timeout_ms, rules.consumer_heartbeat_interval_ms)

    def restore(self) -> None:
        """Take up what the log remembers of groups. Called once, before the first request."""
        broker = self._broker
        records = [record for record, _ in broker.state.groups.groups.values()]
        wholes = [group.whole() for group in broker.state.groups.consumer_groups.values()]
        self.coordinator.restore(records, wholes, broker.clock.mono_ms())
        self._ask_for_time()

    @property
    def allocators(self) -> Mapping[str, AnyAllocator]:
        """By what name which strategy shares partitions out, in groups where the broker does; to be set at start."""
        return self.coordinator.rebalancing.allocators

    @allocators.setter
    def allocators(self, allocators: Mapping[str, AnyAllocator]) -> None:
        self.coordinator.rebalancing.allocators = allocators

    # -- membership ------------------------------------------------------------------------------------------------

    def join(self, join: Join, reply: Callable[[JoinResult], None]) -> None:
        if self.foreign.has_members(join.group) or self._broker.shares.exists(join.group):
            reply(JoinResult(Fault.INCONSISTENT_GROUP_PROTOCOL, join.member_id))
            return
        self.foreign.write_progress(join.group)
        self._write_again(join.group)
        self._carry_out(self.coordinator.join(join, _Asked(join.group, reply), self._broker.clock.mono_ms()))

    def sync(self, sync: Sync, reply: Callable[[SyncResult], None]) -> None:
        self._write_again(sync.group)
        self._carry_out(self.coordinator.sync(sync, _Asked(sync.group, reply), self._broker.clock.mono_ms()))

    def heartbeat(self, group: str, generation: int, member_id: str, instance_id: str | None) -> Fault | None:
        self._write_again(group)
        mono_ms = self._broker.clock.mono_ms()
        fault, effects = self.coordinator.heartbeat(group, generation, member_id, instance_id, mono_ms)
        self._carry_out(effects)
        return fault

    def await_rebalance(self, group: str, member_id: str, reply: Callable[[BeatResult], None]) -> bool:
        """Answer a heartbeat, which `heartbeat` has just found in order, when there is something to say or the time is
        up. False: it is to be answered now."""
        effects = self.coordinator.await_rebalance(group, member_id, _Asked(group, reply), self._broker.clock.mono_ms())
        if effects is None:
            return False
        self._carry_out(effects)
        return True

    def consumer_heartbeat(self, beat: ConsumerHeartbeat, reply: Callable[[HeartbeatResult], None]) -> None:
        """A member of the new protocol joins, stays or leaves."""
        if self._broker.shares.exists(beat.group):
            reply(HeartbeatResult(Fault.GROUP_ID_NOT_FOUND, f"Group {beat.group} is not a consumer group."))
            return
        if self.foreign.has_members(beat.group):
            reply(
                HeartbeatResult(
                    Fault.GROUP_ID_NOT_FOUND, f"Group {beat.group} has members that speak another protocol."
                )
            )
            return
        if beat.epoch == 0:
            self.foreign.write_progress(beat.group)
        self._write_again(beat.group)
        asked = _Asked(beat.group, reply)
        self._carry_out(self.coordinator.consumer_heartbeat(beat, asked, self._broker.clock.mono_ms()))

    def leave(self, group: str, members: Sequence[tuple[str, str | None]]) -> Left:
        """Per member what became of it: member id, instance id, and why it could not leave, if so."""
        self._write_again(group)
        left, effects = self.coordinator.leave(group, members, self._broker.clock.mono_ms())
        self._carry_out(effects)
        return left

    def expire(self, mono_ms: int) -> None:
        self._carry_out(self.coordinator.expire(mono_ms))

    def retain(self, now_ms: int) -> Iterator[None]:
        """The part of the retention walk that is groups'. Raises BrokerError."""
        self.expire_offsets(now_ms)
        yield from ()

    def next_deadline(self) -> int | None:
        return self.coordinator.next_deadline()

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        broker = self._broker
        for effect in effects:
            if isinstance(effect, Persist):
                saved = effect.record
                kind = control.GroupSaved if isinstance(saved, GroupRecord) else control.ConsumerGroupSaved
                try:
                    self._persisted = broker.append_control(kind(saved, broker.clock.wall_ms()))
                except BrokerError as error:
                    # Nobody may be told a generation that could come again: refuse, until one is written.
                    if saved.group not in self._unwritten:
                        broker.logger.error("group state not written: group=%s error=%s", saved.group, error)
                    self._unwritten[saved.group] = error
                    self.coordinator.not_saved(saved.group)
                else:
                    self._unwritten.pop(saved.group, None)
            else:
                self._reply(cast(_Asked, effect.token), effect.result)
        self._ask_for_time()

    def _ask_for_time(self) -> None:
        deadline_ms = self.coordinator.next_deadline()
        if deadline_ms is not None:
            self._broker.on_deadline(deadline_ms)

    def _write_again(self, group: str) -> None:
        """What could not be written of a group is tried again before anything else happens to it: a heartbeat that
        changes nothing would write nothing."""
        if group in self._unwritten:
            self._carry_out(self.coordinator.save_again(group))

    def _reply(self, asked: _Asked, result: JoinResult | SyncResult | BeatResult | HeartbeatResult) -> None:
        reply = asked.reply

        def send(error: BrokerError | None) -> None:
            if error is None:
                reply(result)
            elif isinstance(result, JoinResult):
                reply(JoinResult(Fault.COORDINATOR_NOT_AVAILABLE, result.member_id))
            elif isinstance(result, BeatResult):
                reply(BeatResult(Fault.COORDINATOR_NOT_AVAILABLE))
            elif isinstance(result, HeartbeatResult):
                reply(HeartbeatResult(Fault.COORDINATOR_NOT_AVAILABLE, str(error)))
            else:
                reply(SyncResult(Fault.COORDINATOR_NOT_AVAILABLE))

        unwritten = self._unwritten.get(asked.group)
        if unwritten is not None:
            send(unwritten)
        else:
            self._broker.when_durable(self._persisted, send)

    # -- progress --------------------------------------------------------------------------------------------------

    def commit(
        self,
        group: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        entries: Sequence[tuple[Partition, int, int, str]],
    ) -> int:
        """Store a group's progress: (partition, offset, leader epoch, metadata) each.

        Returns the log position to wait for. Raises BrokerError where this member may not commit now (22, 25, 27, 113).
        """
        fault = self.check_commit(group, generation, member_id, instance_id)
        for stale in self.stale(group, generation, member_id, [entry[0] for entry in entries]).values():
            fault = fault or stale
        if fault is not None:
            is_foreign = self.foreign.has_members(group)
            raise BrokerError(fault, f"group '{group}' has members that speak another protocol" if is_foreign else None)
        return self.record(group, entries, reset=generation < 0)

    def unstable(self, group: str) -> set[tuple[int, int]]:
        """Partitions (topic number, partition) of which a transaction that is not decided has progress of the group."""
        return self._broker.state.transactions.unstable(group)

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
        broker = self._broker
        self.foreign.write_progress(group)
        if self.foreign.has_members(group):
            return Fault.UNKNOWN_MEMBER_ID
        if broker.shares.exists(group):
            return Fault.GROUP_ID_NOT_FOUND
        return self.coordinator.check_commit(
            group, generation, member_id, instance_id, broker.clock.mono_ms(),
            has_offsets=group in broker.state.groups.offsets, transactional=transactional, knows_epochs=knows_epochs,
        )  # fmt: skip

    def stale(
        self, group: str, generation: int, member_id: str, partitions: Collection[Partition]
    ) -> dict[Partition, Fault]:
        """Of these partitions, those that a member may not commit any more, because its epoch is an old one."""
        places = {(each.topic.number, each.index): each for each in partitions}
        faults = self.coordinator.stale(group, generation, member_id, places)
        return {places[place]: fault for place, fault in faults.items()}

    def record(self, group: str, entries: Sequence[tuple[Partition, int, int, str]], *, reset: bool) -> int:
        """Store progress as it comes, for protocols whose clients agree among themselves. As `commit`; with `reset` it
        is set from outside, and may go back."""
        now_ms = self._broker.clock.wall_ms()
        made = [(p.topic.number, p.index, Committed(offset, epoch, note, now_ms)) for p, offset, epoch, note in entries]
        return self._broker.append_control(control.OffsetsCommitted(group, made, reset=reset))

    def offsets(self, group: str) -> dict[Partition, Committed]:
        """A group's progress; empty for a group that has none."""
        self.foreign.write_progress(group)
        catalog = self._broker.catalog
        found = {}
        for (number, index), committed in self._broker.state.groups.offsets.get(group, {}).items():
            partition = catalog.partition(number, index)
            if partition is not None:
                found[partition] = committed
        return found

    def delete_offsets(self, group: str, partitions: Sequence[Partition]) -> int:
        """Forget progress; returns the log position to wait for."""
        self.foreign.write_progress(group)
        entries = [(p.topic.number, p.index) for p in partitions]
        return self._broker.append_control(control.OffsetsDeleted(group, entries))

    def check_offset_delete(self, group: str) -> Fault | None:
        if self.foreign.has_members(group):
            return Fault.NON_EMPTY_GROUP
        return self.coordinator.check_offset_delete(group, has_offsets=group in self._broker.state.groups.offsets)

    # -- operators -------------------------------------------------------------------------------------------------

    def describe_consumer(self, group: str) -> ConsumerGroupDescription | None:
        """A group of the new protocol; None if there is none of that name."""
        return None if self.foreign.has_members(group) else self.coordinator.describe_consumer(group)

    def warnings(self) -> Sequence[str]:
        """What somebody should know although everything works, a sentence each."""
        return self.coordinator.warnings()

    def list(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[GroupListing]:
        types = [each.lower() for each in types]
        found = {each.group: each for each in self.coordinator.list((), types, self._broker.state.groups.offsets)}
        for name in self.foreign.groups() if not types or GROUP_TYPE in types else ():
            found[name] = GroupListing(name, self.foreign.protocol_type, State.STABLE.value, GROUP_TYPE)
        for listing in self._broker.shares.listed():
            if not types or listing.type in types:
                found[listing.group] = listing
        wanted = {state.lower() for state in states}
        return [found[name] for name in sorted(found) if not wanted or found[name].state.lower() in wanted]

    def describe(self, group: str) -> GroupDescription | None:
        members = tuple(self.foreign.members(group))
        if members:
            return GroupDescription(group, State.STABLE.value, self.foreign.protocol_type, "", 0, members)
        return self.coordinator.describe(group, has_offsets=group in self._broker.state.groups.offsets)

    def delete(self, group: str) -> int:
        """Forget a group and its offsets; returns the log position to wait for. Raises BrokerError."""
        if self._broker.shares.exists(group):
            self._broker.shares.check_changeable(group)
            return self._broker.shares.delete(group)
        self.foreign.write_progress(group)
        has_offsets = group in self._broker.state.groups.offsets
        described = self.coordinator.describe(group, has_offsets=has_offsets)
        if described is None:
            raise BrokerError(Fault.GROUP_ID_NOT_FOUND)
        if self.coordinator.is_active(group) or self.foreign.has_members(group):
            raise BrokerError(Fault.NON_EMPTY_GROUP)
        position = self._broker.append_control(control.GroupDeleted(group))
        self.coordinator.delete(group, has_offsets)
        self._unwritten.pop(group, None)
        return position

    def expire_offsets(self, now_ms: int) -> int:
        """Delete groups that have been empty for longer than `$.groups.offsets_retention` (KIP-211). Returns how many.

        An empty group's time runs from when it became empty; that of a group that was never more than offsets from each
        commit.
        """
        retention_ms = self._broker.settings.groups.offsets_retention_ms
        if retention_ms is None:
            return 0
        state = self._broker.state.groups
        due = []
        for group in {*state.offsets, *state.groups, *state.consumer_groups}:
            if self.coordinator.is_active(group) or self.foreign.has_members(group) or self.unstable(group):
                continue
            last_ms = max((c.commit_ms for c in state.offsets.get(group, {}).values()), default=0)
            if group in state.groups:
                last_ms = max(last_ms, state.groups[group][1])
            elif group in state.consumer_groups:
                last_ms = max(last_ms, state.consumer_groups[group].saved_ms)
            if last_ms + retention_ms <= now_ms:
                due.append(group)
        for group in due:
            self.delete(group)
        return len(due)


def _limits(groups: GroupsSettings) -> GroupSettings:
    return GroupSettings(
        initial_rebalance_delay_ms=groups.initial_rebalance_delay_ms,
        min_session_timeout_ms=groups.min_session_timeout_ms,
        max_session_timeout_ms=groups.max_session_timeout_ms,
        max_size=groups.most_members,
        heartbeat_wait_ms=groups.heartbeat_wait_ms,
    )
