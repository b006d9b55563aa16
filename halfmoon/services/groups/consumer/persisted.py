"""A new consumer group as the log tells it: changes put together. The catalog keeps one of these for each group."""

from __future__ import annotations

from halfmoon.schema.groups import ConsumerGroupChange, ConsumerMember, Place


class PersistedGroup:
    """What all changes of one group make up so far."""

    __slots__ = ("assignment_epoch", "epoch", "members", "name", "problem", "saved_ms", "targets", "topics")

    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = 0
        self.assignment_epoch = 0
        self.topics: tuple[tuple[int, int], ...] = ()
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, tuple[Place, ...]] = {}
        self.problem: str | None = None
        self.saved_ms = 0
        """When the last change was written (Unix ms)."""

    def apply(self, change: ConsumerGroupChange, saved_ms: int) -> None:
        """Make a change true. Applying it again changes nothing."""
        if change.replaces:
            self.members.clear()
            self.targets.clear()
        for member_id in change.gone:
            self.members.pop(member_id, None)
            self.targets.pop(member_id, None)
        self.members.update((member.member_id, member) for member in change.members)
        for step in change.steps:
            member = self.members.get(step.member_id)
            if member is not None:  # of a damaged log the record that says who it is may be lost
                self.members[step.member_id] = member.after(step)
        self.targets.update(change.targets)
        if change.topics is not None:
            self.topics = change.topics
        self.epoch, self.assignment_epoch, self.saved_ms = change.epoch, change.assignment_epoch, saved_ms
        self.problem = change.problem

    def whole(self) -> ConsumerGroupChange:
        """Everything, as one change."""
        return ConsumerGroupChange(
            group=self.name,
            epoch=self.epoch,
            assignment_epoch=self.assignment_epoch,
            replaces=True,
            topics=self.topics,
            members=tuple(self.members.values()),
            targets=tuple(self.targets.items()),
            problem=self.problem,
        )
