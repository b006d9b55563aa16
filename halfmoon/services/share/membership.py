"""Who belongs to a share group, and which partitions each member reads: the ShareGroupHeartbeat of KIP-932.

A member joins with epoch 0 and an id of its own making, says heartbeat for heartbeat that it is alive, and leaves with
epoch −1. Whenever the members, what they subscribe to, or the topics themselves change, the group's epoch goes up and
the partitions are assigned anew; a member hears of it, and of the new epoch, with its next heartbeat. Since members
share partitions, nobody has to give anything back first.

The assignment is Kafka's `simple` assignor in what it promises: every partition has a reader, every member has a
partition of each topic it subscribes to, and the load is even to one.

A group's epoch is in the log before anyone is told it; members are not. After a restart they are unknown, join again at
once, and what they had acquired is available to all, as their locks went with the broker.

Pure: times are monotonic milliseconds that the caller passes in. Rules: GroupMetadataManager.shareGroupHeartbeat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from halfmoon.errors import BrokerError, Fault
from halfmoon.services.common.deadlines import Deadlines, Timer

JOIN_EPOCH, LEAVE_EPOCH = 0, -1

Assignment = dict[str, tuple[int, ...]]
"""Topic → partitions."""


class HeartbeatRequest(NamedTuple):
    """One heartbeat of a client. `topics` None: as before."""

    group: str
    member_id: str
    epoch: int
    rack: str | None
    topics: tuple[str, ...] | None
    client_id: str
    client_host: str


class HeartbeatResponse(NamedTuple):
    """The answer to one; `assignment` None: as before."""

    epoch: int
    assignment: Assignment | None


class Member:
    __slots__ = (
        "assigned", "client_host", "client_id", "epoch", "group", "id", "previous_epoch", "rack", "timer", "told",
        "topics",
    )  # fmt: skip

    def __init__(self, group: ShareGroup, member_id: str) -> None:
        self.group = group
        self.id = member_id
        self.epoch = 0
        """What it was told last."""
        self.previous_epoch = 0
        self.rack: str | None = None
        self.client_id = self.client_host = ""
        self.topics: frozenset[str] = frozenset()
        self.assigned: Assignment = {}
        self.told: Assignment | None = None
        self.timer: Timer[Member] = Timer(self)


class ShareGroup:
    """`epoch`: raised with each change. Members are in the order in which they have joined."""

    __slots__ = ("epoch", "members", "name", "seen", "size_of")

    def __init__(self, name: str, epoch: int) -> None:
        self.name = name
        self.epoch = epoch
        self.members: dict[str, Member] = {}
        self.seen = -1
        """Which state of the topics was looked at last."""
        self.size_of: dict[str, tuple[bytes, int]] = {}
        """What was assigned: topic → its id, and how many partitions it has."""

    @property
    def state(self) -> str:
        return "Stable" if self.members else "Empty"


class Topics(NamedTuple):
    """The topics of the broker, as they are now. `state` is another number after each change."""

    state: int
    find: Callable[[str], tuple[bytes, int] | None]
    """Its id and the number of its partitions; None if members cannot read such a topic."""


class ShareMembers:
    """All share groups that have, or had, members."""

    def __init__(self, save: Callable[[str, int], None], max_size: int) -> None:
        """`save(group, epoch)` writes a new epoch down. It raises BrokerError where it cannot."""
        self._save = save
        self._max_size = max_size
        self._sessions: Deadlines[Member] = Deadlines()
        self.groups: dict[str, ShareGroup] = {}

    def restore(self, epochs: Mapping[str, int]) -> None:
        for name, epoch in epochs.items():
            self.groups[name] = ShareGroup(name, epoch)

    def heartbeat(
        self, request: HeartbeatRequest, topics: Topics, session_timeout_ms: int, now_ms: int
    ) -> HeartbeatResponse:
        """Not for those who leave. Raises BrokerError."""
        group = self.groups.get(request.group)
        if request.epoch == JOIN_EPOCH:
            member, is_new = self._join(group, request)
        else:
            member, is_new = self._known(request.group, request.member_id), False
            if request.epoch > member.epoch or (
                request.epoch < member.epoch and request.epoch != member.previous_epoch
            ):
                raise BrokerError(
                    Fault.FENCED_MEMBER_EPOCH, f"the member's epoch is {member.epoch}, not {request.epoch}"
                )
        group = member.group
        subscribed = member.topics if request.topics is None else frozenset(request.topics)
        changed = is_new or subscribed != member.topics
        if not changed and group.seen != topics.state:
            changed = any(topics.find(name) != size for name, size in group.size_of.items()) or any(
                topics.find(name) is not None
                for each in group.members.values()
                for name in each.topics
                if name not in group.size_of
            )
        if changed:
            self._save(group.name, group.epoch + 1)
            group.epoch += 1
        group.seen = topics.state
        member.topics = subscribed
        member.rack, member.client_id, member.client_host = request.rack, request.client_id, request.client_host
        if is_new:
            group.members[member.id] = member
            self.groups[group.name] = group
        if changed:
            assign(group, topics)
        if member.epoch != group.epoch:
            member.previous_epoch, member.epoch = member.epoch, group.epoch
        self._sessions.set(member.timer, now_ms + session_timeout_ms)
        if request.epoch == JOIN_EPOCH or request.topics is not None or member.told != member.assigned:
            member.told = member.assigned
            return HeartbeatResponse(member.epoch, member.assigned)
        return HeartbeatResponse(member.epoch, None)

    def _join(self, group: ShareGroup | None, request: HeartbeatRequest) -> tuple[Member, bool]:
        if not request.topics:
            raise BrokerError(Fault.INVALID_REQUEST, "a member must subscribe when it joins")
        if group is None:
            group = ShareGroup(request.group, 0)
        member = group.members.get(request.member_id)
        if member is not None:
            return member, False
        if len(group.members) >= self._max_size:
            raise BrokerError(Fault.GROUP_MAX_SIZE_REACHED, f"the group has {self._max_size} members")
        return Member(group, request.member_id), True

    def _known(self, group: str, member_id: str) -> Member:
        found = self.groups.get(group)
        member = None if found is None else found.members.get(member_id)
        if member is None:
            raise BrokerError(Fault.UNKNOWN_MEMBER_ID, f"no member '{member_id}' in group '{group}'")
        return member

    def leave(self, group: str, member_id: str, topics: Topics) -> None:
        """Raises BrokerError."""
        self._remove(self._known(group, member_id), topics)

    def _remove(self, member: Member, topics: Topics) -> None:
        group = member.group
        self._save(group.name, group.epoch + 1)
        group.epoch += 1
        del group.members[member.id]
        self._sessions.cancel(member.timer)
        assign(group, topics)

    def expire(self, topics: Topics, now_ms: int, again_ms: int) -> list[tuple[str, str]]:
        """Remove those that were silent for too long: (group, member id). Where that cannot be written down, it is
        tried again after `again_ms`."""
        gone = []
        for timer in self._sessions.due(now_ms):
            member = timer.action
            try:
                self._remove(member, topics)
            except BrokerError:
                self._sessions.set(timer, now_ms + again_ms)
            else:
                gone.append((member.group.name, member.id))
        return gone

    def put_off(self, by_ms: int) -> None:
        """The clock has leapt, which is nobody's silence."""
        self._sessions.put_off(by_ms)

    def next_deadline(self) -> int | None:
        return self._sessions.next_deadline()

    def has_members(self, group: str) -> bool:
        found = self.groups.get(group)
        return found is not None and bool(found.members)

    def forget(self, group: str) -> None:
        """The group, which has no members, is deleted."""
        self.groups.pop(group, None)


def assign(group: ShareGroup, topics: Topics) -> None:
    """Work out anew which member reads what."""
    given: dict[str, Assignment] = {name: {} for name in group.members}
    group.size_of = {}
    for topic, members in sorted(_subscribers(group.members.values()).items()):
        found = topics.find(topic)
        if found is None:
            continue
        group.size_of[topic] = found
        for member, parts in zip(members, spread(len(members), found[1]), strict=True):
            given[member.id][topic] = parts
    for member in group.members.values():
        member.assigned = given[member.id]


def _subscribers(members: Iterable[Member]) -> dict[str, list[Member]]:
    found: dict[str, list[Member]] = {}
    for member in members:
        for topic in member.topics:
            found.setdefault(topic, []).append(member)
    return found


def spread(members: int, partitions: int) -> Sequence[tuple[int, ...]]:
    """The partitions of each member: all of them in turn, or the same again where there are fewer than members."""
    if partitions >= members:
        return [tuple(range(at, partitions, members)) for at in range(members)]
    return [(at % partitions,) for at in range(members)]
