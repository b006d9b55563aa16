"""What a change of a member sets going in a new consumer group, and what time does to it (KIP-848).

    a member comes, goes, subscribes otherwise,       the group epoch moves
    or the topics change
    a member is heard of, and the group epoch is      a strategy is asked, once: the targets are those of this epoch
    beyond the assignment's
    a member is heard of                              it takes its next step towards its target (`reconciliation`)

So nothing is told to members but in answers to them, and several changes between two heartbeats cost one assignment. A
large group is not assigned anew with each of a hundred members that start together: between two assignments there is a
pause that grows with it. Who joins meanwhile is a member with the last assignment's epoch, and has nothing yet. Classic
members are told to join again when it is over.

Time-outs, each of which fences the member (it is out, and what it held is free)
    session     it was not heard of
    revoke      it did not give up what it was to give up within its rebalance time-out
    join, sync  it speaks the classic protocol, was told to join again and did not, or joined and sent no sync

The rules are those of Kafka's GroupMetadataManager, the part about consumer groups. What differs:
- Topics are looked at with each heartbeat after they changed, not when a refresh is due.
- A strategy that fails leaves the last assignment as it is, and is asked again with the first heartbeat after
  `ASK_AGAIN_MS`; Kafka answers an error to whoever was heard of.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial

from halfmoon.schema.groups import UNREVOKED, ConsumerMember, Places
from halfmoon.services.common.deadlines import Deadlines, Timer
from halfmoon.services.groups.allocation import AnyAllocator
from halfmoon.services.groups.consumer import reconciliation, targets
from halfmoon.services.groups.consumer.messages import ConsumerHeartbeat
from halfmoon.services.groups.consumer.model import ConsumerGroup
from halfmoon.services.groups.consumer.settings import ConsumerSettings
from halfmoon.services.groups.consumer.subscriptions import Describes, Subscriptions
from halfmoon.services.groups.step import Step, TimerAction

log = logging.getLogger(__name__)

SESSION, REVOKE, JOIN, SYNC = "session", "revoke", "join", "sync"
_WHY = {
    SESSION: "its session ended without a heartbeat",
    REVOKE: "it did not give up in time what it was told to",
    JOIN: "it did not join again in time",
    SYNC: "it joined and sent no sync",
}
ASSIGNED_PER_MS, READ_PER_MS = 10, 100
"""Of members and partitions together, and of members times topics: 500 members and 2,000 partitions of one topic are
assigned four times a second at most, and four times in five seconds if they are those of 200 topics. Strategies that
are asked topic by topic take up to a tenth of the time for it."""
LONG = 2_000
"""Members and partitions together: some 4 ms to assign, and as many for a member that gets them all."""
ASK_AGAIN_MS = 5_000
"""After this time a strategy that failed is asked again."""
DEFAULT_REBALANCE_MS = 300_000
"""The rebalance time-out of a member that never said one."""


class Rebalancing:
    """Carries groups of the new protocol from one assignment to the next. Knows groups and timers, no requests."""

    def __init__(
        self, settings: ConsumerSettings, subscriptions: Subscriptions, deadlines: Deadlines[TimerAction]
    ) -> None:
        self.settings = settings
        self.subscriptions = subscriptions
        self.deadlines = deadlines
        self.allocators: Mapping[str, AnyAllocator] = {}
        self.groups: dict[str, ConsumerGroup] = {}
        self.on_removed: Callable[[ConsumerGroup, Step], bool] = lambda group, step: False
        """Called when a member has gone, before that is written down. Whether somebody else looks after the group now.
        """
        self.rights_changes = 0
        """Moves when others may describe topics."""
        self._timers: dict[tuple[str, str, str], Timer[TimerAction]] = {}
        self._members = 0

    # -- members -----------------------------------------------------------------------------------------------------

    @property
    def interval_ms(self) -> Callable[[str], int]:
        """A group's heartbeat interval as things stand."""
        return lambda name: self.settings.heartbeat_interval(name, self._members)

    def update(self, group: ConsumerGroup, member: ConsumerMember, owned: Places | None, step: Step) -> ConsumerMember:
        """A member is new, has been heard of, or wants something else; it says that it holds `owned` (None: it does not
        say). Returns it after its next step."""
        self.take_note(group, member, step)
        return self._reconcile(group, member, owned, step)

    def take_note(self, group: ConsumerGroup, member: ConsumerMember, step: Step) -> None:
        """The first part of `update`: the member is as it says, and the group is assigned anew where that is due."""
        before = group.members.get(member.member_id)
        changed = before is None or (before.topics, before.regex) != (member.topics, member.regex)
        if before is not None and (before.classic is None) != (member.classic is None):
            self.stop_all(group, member.member_id)  # what was expected of it by the other protocol
        self._members += before is None
        group.put(member)
        self.refresh(group, changed=changed)
        if self._may_assign(group, step):
            self._assign(group, step)
        else:
            self.ask_again(group, step)

    @property
    def _changes(self) -> int:
        """Moves when patterns may find other topics."""
        return self.subscriptions.topics.changes + self.rights_changes

    def may_describe(self, group: ConsumerGroup, regex: str, describes: Describes | None) -> None:
        """A member with this pattern is heard of. What it may describe counts from the next look at topics on; that is
        now if it is the first since the start."""
        if regex:
            if regex not in group.describes:
                group.seen_changes = None
            group.describes[regex] = describes

    def takes_long(self, group: ConsumerGroup | None, request: ConsumerHeartbeat) -> bool:
        """Whether a heartbeat may have a large group assigned."""
        topics = self.subscriptions.topics
        if (
            request.topics is None and request.regex is None and group is not None
            and group.epoch == group.assignment_epoch and group.seen_changes == self._changes
        ):  # fmt: skip
            return False
        if request.regex:
            return True  # what it finds is not known yet
        numbers = {number for name in request.topics or () if (number := topics.number(name)) is not None}
        size = sum(map(topics.partitions, numbers))
        if group is not None:
            size += len(group.members) + sum(group.topics.values())
        return size > LONG

    def is_behind(self, group: ConsumerGroup, member: ConsumerMember, step: Step) -> bool:
        """Whether there is an assignment that the member has not got to, or will be once it joins again."""
        return member.epoch < group.assignment_epoch or self._may_assign(group, step)

    def ask_again(self, group: ConsumerGroup, step: Step) -> None:
        """Somebody of the group was heard of: if the strategy failed, it may work by now."""
        if group.problem is not None and self._is_over(ASK_AGAIN_MS, group, step):
            self._assign(group, step)

    def _may_assign(self, group: ConsumerGroup, step: Step) -> bool:
        """Whether the group waits for an assignment, and it is not too soon after the last one."""
        if group.epoch == group.assignment_epoch:
            return False
        members, topics = len(group.members), group.topics
        pause_ms = (members + sum(topics.values())) // ASSIGNED_PER_MS + members * len(topics) // READ_PER_MS
        return self._is_over(pause_ms, group, step)

    def _is_over(self, pause_ms: int, group: ConsumerGroup, step: Step) -> bool:
        return group.assigned_ms is None or step.mono_ms >= group.assigned_ms + pause_ms

    def _assign(self, group: ConsumerGroup, step: Step) -> None:
        group.assigned_ms = step.mono_ms
        name = group.preferred_assignor() or self.settings.default_assignor
        targets.assign(group, name, self.allocators.get(name), self.subscriptions, self.settings.broker_name)
        if group.problem is None:
            log.info(
                "event=group_assigned group=%s epoch=%d members=%d assignor=%s",
                group.name,
                group.epoch,
                len(group.members),
                name,
            )

    def refresh(self, group: ConsumerGroup, *, changed: bool = False) -> None:
        """Move the group epoch if the topics that the group reads are others now, or `changed` says that it must."""
        topics = self.subscriptions.topics
        if changed or group.seen_changes != self._changes:
            is_all = self.subscriptions.look({regex for _, regex in group.wanted if regex})
            for regex in group.describes.keys() - {regex for _, regex in group.wanted}:
                del group.describes[regex]
            names = {name for each in group.wanted for name in targets.names_of(group, each, self.subscriptions)}
            numbers = (topics.number(name) for name in names)
            found = {number: topics.partitions(number) for number in numbers if number is not None}
            if found != group.topics:
                group.set_topics(found)
                changed = True
            group.seen_changes = self._changes if is_all else None
        if changed:
            group.bump()

    def _reconcile(
        self, group: ConsumerGroup, member: ConsumerMember, owned: Places | None, step: Step
    ) -> ConsumerMember:
        topics = self.subscriptions.topics
        after = reconciliation.reconcile(
            member, group.assignment_epoch, group.target(member.member_id), owned, group.owners.get,
            lambda number: topics.partitions(number) > 0,
        )  # fmt: skip
        if after is member:
            return member
        group.put(after)
        if after.classic is None:
            if after.state == UNREVOKED:
                self.start(group, after.member_id, REVOKE, rebalance_timeout(after), step)
            else:
                self.stop(group, after.member_id, REVOKE)
        return after

    def replace(self, group: ConsumerGroup, old: ConsumerMember, new: ConsumerMember) -> None:
        """A static member is back under another id: it has what the old one had."""
        target = group.targets.get(old.member_id)
        self.stop_all(group, old.member_id)
        group.remove(old.member_id)
        group.put(new)
        if target is not None:
            group.set_target(new.member_id, target)

    def fence(self, group: ConsumerGroup, member_id: str, step: Step) -> None:
        """Take a member out. The others share its work when they are heard of."""
        self.stop_all(group, member_id)
        group.remove(member_id)
        self._members -= 1
        if not group.members:
            group.problem = None
        if not self.on_removed(group, step):
            group.seen_changes = None  # perhaps nobody reads some topic any more
            group.bump()
            self.save(group, step)

    def save(self, group: ConsumerGroup, step: Step) -> None:
        """Have written down what has changed."""
        change = group.take_change()
        if change is not None:
            step.persist(change)

    # -- groups ------------------------------------------------------------------------------------------------------

    def take_in(self, group: ConsumerGroup) -> None:
        assert group.name not in self.groups
        self.groups[group.name] = group
        self._members += len(group.members)

    def take_out(self, group: ConsumerGroup) -> None:
        """Forget a group, with its timers."""
        del self.groups[group.name]
        self._members -= len(group.members)
        for member_id in group.members:
            self.stop_all(group, member_id)

    # -- time --------------------------------------------------------------------------------------------------------

    def heard(self, group: ConsumerGroup, member: ConsumerMember, step: Step) -> None:
        """The member is alive: its session starts anew."""
        classic = member.classic
        timeout_ms = self.settings.session_timeout(group.name) if classic is None else classic.session_timeout_ms
        self.start(group, member.member_id, SESSION, timeout_ms, step)

    def start(self, group: ConsumerGroup, member_id: str, kind: str, timeout_ms: int, step: Step) -> None:
        key = group.name, member_id, kind
        timer = self._timers.get(key)
        if timer is None:
            timer = self._timers[key] = Timer(partial(self._expired, group, member_id, kind))
        self.deadlines.set(timer, step.mono_ms + timeout_ms)

    def is_running(self, group: ConsumerGroup, member_id: str, kind: str) -> bool:
        return (group.name, member_id, kind) in self._timers

    def stop(self, group: ConsumerGroup, member_id: str, kind: str) -> None:
        timer = self._timers.pop((group.name, member_id, kind), None)
        if timer is not None:
            self.deadlines.cancel(timer)

    def stop_all(self, group: ConsumerGroup, member_id: str) -> None:
        for kind in _WHY:
            self.stop(group, member_id, kind)

    def _expired(self, group: ConsumerGroup, member_id: str, kind: str, step: Step) -> None:
        self.stop(group, member_id, kind)
        log.info("event=member_removed group=%s member=%s reason=%s", group.name, member_id, _WHY[kind])
        self.fence(group, member_id, step)


def rebalance_timeout(member: ConsumerMember) -> int:
    """How long the member has to follow the group."""
    return member.rebalance_timeout_ms if member.rebalance_timeout_ms > 0 else DEFAULT_REBALANCE_MS
