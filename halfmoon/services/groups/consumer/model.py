"""A new consumer group: its members, who holds what, who is to get what, and what of that is not written down yet.

Three epochs, which only grow:

    group epoch        moves when members, their subscriptions or the topics change
    assignment epoch   the group epoch that the targets were worked out for
    member epoch       the assignment that a member has got to, or is on its way from

    member epoch ≤ assignment epoch ≤ group epoch

No time and no decisions here. `ConsumerGroup.check` spells the invariants out; tests call it after every step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

from msgspec.structs import replace

from halfmoon.schema.groups import ConsumerGroupChange, ConsumerMember, Place, Places
from halfmoon.services.groups.consumer.messages import LEAVE_FOR_NOW
from halfmoon.services.groups.consumer.reconciliation import in_order, is_reconciled
from halfmoon.services.groups.consumer.subscriptions import Describes

Wants: TypeAlias = tuple[tuple[str, ...], str]
"""Names of topics and a pattern, of which there may be none."""
EMPTY, ASSIGNING, RECONCILING, STABLE = "Empty", "Assigning", "Reconciling", "Stable"
"""States of a group, by the names that clients see (ConsumerGroupState)."""


class ConsumerGroup:
    """Everything known of one group. Changed by `put`, `remove` and the setters below, so that `take_change` knows."""

    __slots__ = (
        "_gone",
        "_moved",
        "_moved_epoch",
        "_new_members",
        "_new_targets",
        "_new_topics",
        "_unsaved",
        "assigned_ms",
        "assignment_epoch",
        "classic_members",
        "describes",
        "epoch",
        "members",
        "name",
        "owners",
        "problem",
        "seen_changes",
        "static_ids",
        "supported",
        "targets",
        "topics",
        "unconfirmed",
        "wanted",
    )

    def __init__(self, name: str, epoch: int = 0) -> None:
        self.name = name
        self.epoch = epoch
        self.assignment_epoch = epoch
        self.members: dict[str, ConsumerMember] = {}
        self.static_ids: dict[str, str] = {}
        self.targets: dict[str, Places] = {}
        self.topics: dict[int, int] = {}
        """Topic number → partitions, of the topics that the members read, as the targets know them."""
        self.owners: dict[Place, str] = {}
        """Who holds a place, or has not given it up yet."""
        self.wanted: dict[Wants, tuple[tuple[str, ...], int]] = {}
        """What members subscribe to → its names, once for all of them, since there may be thousands; how many members.
        """
        self.describes: dict[str, Describes | None] = {}
        """What a pattern finds: what the member may describe who was heard of last of those that have it, as in Kafka.
        Not remembered by the log: patterns that are not here find what they have found."""
        self.classic_members = 0
        """How many of the members speak the classic protocol."""
        self.supported: Counter[str] = Counter()
        """Classic protocol → how many of them support it."""
        self.seen_changes: int | None = None
        """Changes of topics and of rights when the group last looked."""
        self.assigned_ms: int | None = None
        """When a strategy was asked last, since the start."""
        self.problem: str | None = None
        """Why the last assignment was kept instead of a new one. Written down with what else changes."""
        self.unconfirmed: set[str] = set()
        """Members that have not said yet that they hold what they were told last: that answer may be lost. Not
        remembered by the log: after a start it may be anybody's."""
        self._new_members: set[str] = set()
        self._moved: set[str] = set()
        self._new_targets: set[str] = set()
        self._gone: set[str] = set()
        self._new_topics = False
        self._moved_epoch = False
        self._unsaved = True

    @classmethod
    def restored(cls, whole: ConsumerGroupChange) -> ConsumerGroup:
        """The group as it was remembered."""
        group = cls(whole.group, whole.epoch)
        group.assignment_epoch = whole.assignment_epoch
        group.topics = dict(whole.topics or ())
        group.problem = whole.problem
        for member in whole.members:
            group.put(member)
        group.unconfirmed.update(group.members)
        group.targets = {member_id: frozenset(places) for member_id, places in whole.targets}
        group.take_change()
        return group

    # -- questions ---------------------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        if not self.members:
            return EMPTY
        if self.epoch > self.assignment_epoch:
            return ASSIGNING
        reconciled = all(is_reconciled(member, self.assignment_epoch) for member in self.members.values())
        return STABLE if reconciled else RECONCILING

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        member_id = self.static_ids.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target(self, member_id: str) -> Places:
        return self.targets.get(member_id, frozenset())

    def preferred_assignor(self) -> str | None:
        """What most members ask for; the first in the alphabet among equals. None: nobody asks."""
        votes = Counter(member.assignor for member in self.members.values() if member.assignor)
        return min(votes, key=lambda name: (-votes[name], name)) if votes else None

    # -- changes -----------------------------------------------------------------------------------------------------

    def put(self, member: ConsumerMember) -> None:
        """Take a member in, or replace what was known of it."""
        member_id = member.member_id
        before = self.members.get(member_id)
        if before is member:
            return
        if before is not None:
            self._forget(before)
        wants = member.topics, member.regex
        topics, count = self.wanted.get(wants, (member.topics, 0))
        self.wanted[wants] = topics, count + 1
        if topics is not member.topics:
            member = replace(member, topics=topics)
        if member.instance_id is not None:
            assert member.instance_id not in self.static_ids
            self.static_ids[member.instance_id] = member_id
        if member.classic is not None:
            self.classic_members += 1
            self.supported.update({name for name, _ in member.classic.protocols})
        if before is None or not _hold_the_same(before, member):
            if before is not None:
                self._free(before)
            places = member.holds()
            assert self.owners.keys().isdisjoint(places), f"what is given to {member_id} is held by another"
            self.owners.update(dict.fromkeys(places, member_id))
        self.members[member_id] = member
        if before is not None and before.after(member.step()) == member:
            self._moved.add(member_id)
        else:
            self._new_members.add(member_id)
        self._gone.discard(member_id)

    def remove(self, member_id: str) -> ConsumerMember:
        """Take a member out, with its target. What it held is free."""
        member = self.members.pop(member_id)
        self._forget(member)
        self._free(member)
        self.targets.pop(member_id, None)
        self.unconfirmed.discard(member_id)
        self._new_members.discard(member_id)
        self._moved.discard(member_id)
        self._new_targets.discard(member_id)
        self._gone.add(member_id)
        return member

    def _forget(self, member: ConsumerMember) -> None:
        """All but what it holds."""
        wants = member.topics, member.regex
        topics, count = self.wanted.pop(wants)
        if count > 1:
            self.wanted[wants] = topics, count - 1
        if member.instance_id is not None:
            del self.static_ids[member.instance_id]
        if member.classic is not None:
            self.classic_members -= 1
            self.supported.subtract({name for name, _ in member.classic.protocols})

    def _free(self, member: ConsumerMember) -> None:
        for place in member.holds():
            del self.owners[place]

    def set_target(self, member_id: str, places: Places) -> None:
        if self.targets.get(member_id) != places:
            self.targets[member_id] = places
            self._new_targets.add(member_id)

    def set_topics(self, topics: dict[int, int]) -> None:
        self.topics = topics
        self._new_topics = True

    def bump(self) -> None:
        self.epoch += 1
        self._moved_epoch = True

    def assigned(self) -> None:
        """The targets are those for the group epoch."""
        self.assignment_epoch = self.epoch
        self._moved_epoch = True

    # -- memory ------------------------------------------------------------------------------------------------------

    def not_saved(self) -> None:
        """What was taken last was not written down: the next change is to be everything."""
        self._unsaved = True

    def take_change(self) -> ConsumerGroupChange | None:
        """What is different since the last call, to be written down; None if nothing is."""
        whole = self._unsaved
        members_changed = self._new_members or self._moved or self._gone
        if not (whole or members_changed or self._new_targets or self._new_topics or self._moved_epoch):
            return None
        members: Iterable[str] = self.members if whole else sorted(self._new_members)
        moved = () if whole else sorted(self._moved - self._new_members)
        targets: Iterable[str] = self.targets if whole else sorted(self._new_targets)
        change = ConsumerGroupChange(
            group=self.name,
            epoch=self.epoch,
            assignment_epoch=self.assignment_epoch,
            replaces=whole,
            topics=tuple(sorted(self.topics.items())) if whole or self._new_topics else None,
            members=tuple(self.members[member_id] for member_id in members),
            targets=tuple((member_id, tuple(in_order(self.targets[member_id]))) for member_id in targets),
            gone=() if whole else tuple(sorted(self._gone)),
            problem=self.problem,
            steps=tuple(self.members[member_id].step() for member_id in moved),
        )
        self._new_members.clear()
        self._moved.clear()
        self._new_targets.clear()
        self._gone.clear()
        self._new_topics = self._moved_epoch = self._unsaved = False
        return change

    # -- invariants --------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert what must hold between any two events. Costs a walk over the members: for tests."""
        assert self.assignment_epoch <= self.epoch
        assert set(self.targets) <= set(self.members)
        assert not self.static_ids.keys() - {member.instance_id for member in self.members.values()}
        held: dict[Place, str] = {}
        targeted: set[Place] = set()
        for member_id, member in self.members.items():
            assert member.member_id == member_id
            assert member.epoch <= self.assignment_epoch
            assert member.epoch >= 0 or (member.epoch == LEAVE_FOR_NOW and member.instance_id is not None)
            assert not member.may_read() & frozenset((n, i) for n, i, _ in member.revoking)
            for place in member.holds():
                assert place not in held, f"{place} is held by {held[place]} and {member_id}"
                held[place] = member_id
            assert not targeted & self.target(member_id), "two members have one target"
            targeted |= self.target(member_id)
        assert held == self.owners
        assert self.classic_members == sum(member.classic is not None for member in self.members.values())
        wanted = Counter((member.topics, member.regex) for member in self.members.values())
        assert wanted == {wants: count for wants, (_, count) in self.wanted.items()}
        supported = Counter(
            name for m in self.members.values() if m.classic for name in {name for name, _ in m.classic.protocols}
        )
        assert +self.supported == supported


def _hold_the_same(one: ConsumerMember, other: ConsumerMember) -> bool:
    return one.assigned is other.assigned and one.revoking is other.revoking
