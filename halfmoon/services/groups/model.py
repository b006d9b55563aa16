"""A group and its members: who is in, who waits for what, what they agree on. No time and no decisions here.

Counts are kept, not counted: whether everybody has joined, and which protocols everybody supports, is asked at each
join, and a group may have ten thousand members. `Group.check` spells the invariants out; tests call it after every
step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum

from msgspec import Struct

from halfmoon.errors import Fault
from halfmoon.schema.groups import GroupRecord, Protocols, SavedMember
from halfmoon.services.common.deadlines import Timer
from halfmoon.services.groups.messages import UNKNOWN_MEMBER, JoinedMember
from halfmoon.services.groups.step import TimerAction
from halfmoon.services.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics


class State(Enum):
    """The states of a classic group, by the names that clients see (ClassicGroupState).

    Empty → PreparingRebalance → CompletingRebalance → Stable, from the last two back to PreparingRebalance, and from
    PreparingRebalance to Empty if nobody is left.
    """

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    """Members are joining; who is in the group is still open."""
    COMPLETING = "CompletingRebalance"
    """Members are known, their shares are not: the leader assigns."""
    STABLE = "Stable"
    DEAD = "Dead"
    """Never a state of a Group here: how a group that does not exist is described."""


class Member(Struct, eq=False):
    """One member. `join_token`, `sync_token` and `beat_token` are requests of its own that wait for an answer."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    session: Timer[TimerAction]
    heartbeat_timer: Timer[TimerAction]
    assignment: bytes = b""
    join_token: object | None = None
    sync_token: object | None = None
    beat_token: object | None = None
    is_new: bool = False
    """It has never been told its member id by a successful join, so it cannot send heartbeats yet."""

    def metadata(self, protocol: str) -> bytes:
        """What it joined with for `protocol`; empty if it does not support that."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def protocol_names(self) -> set[str]:
        return {name for name, _ in self.protocols}


class Group:
    """A classic group."""

    __slots__ = (
        "generation",
        "initial_delay_left_ms",
        "join_timer",
        "joining",
        "leader",
        "member_added",
        "members",
        "name",
        "pending",
        "previous_state",
        "protocol",
        "protocol_type",
        "state",
        "static_ids",
        "subscribed",
        "supported",
        "sync_timer",
        "unsynced",
    )

    def __init__(self, name: str, join_timer: Timer[TimerAction], sync_timer: Timer[TimerAction]) -> None:
        self.name = name
        self.state = State.EMPTY
        self.previous_state = State.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol = ""
        self.leader = UNKNOWN_MEMBER
        self.members: dict[str, Member] = {}
        self.static_ids: dict[str, str] = {}
        self.pending: dict[str, Timer[TimerAction]] = {}
        """Ids handed out with MEMBER_ID_REQUIRED, not used yet."""
        self.unsynced: set[str] = set()
        """Members of this generation that have not asked for their share yet."""
        self.joining = 0
        """How many members wait for the answer to a join."""
        self.supported: Counter[str] = Counter()
        """Protocol → how many members support it."""
        self.subscribed: frozenset[str] | None = None
        """Topics of the current generation; None: not known."""
        self.member_added = False
        """Somebody joined since the initial delay was last looked at."""
        self.initial_delay_left_ms = 0
        self.join_timer = join_timer
        self.sync_timer = sync_timer

    # -- questions ---------------------------------------------------------------------------------------------------

    @property
    def blank(self) -> bool:
        """Nothing has ever happened here: forgetting the group loses nothing."""
        return not self.members and not self.pending and self.generation == 0 and self.state is State.EMPTY

    @property
    def all_joined(self) -> bool:
        return self.joining == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of the members'."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=1)

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols has one in common with everybody else."""
        if not self.members:
            return bool(protocol_type) and bool(protocols)
        size = len(self.members)
        return protocol_type == self.protocol_type and any(self.supported[name] == size for name, _ in protocols)

    def select_protocol(self) -> str:
        """Each member votes for the first of its protocols that all support; the earliest winner among equals wins."""
        size = len(self.members)
        candidates = {name for name, count in self.supported.items() if count == size}
        votes: Counter[str] = Counter()
        for member in self.members.values():
            votes[next(name for name, _ in member.protocols if name in candidates)] += 1
        return max(votes, key=votes.__getitem__)

    def check_member(self, member_id: str, instance_id: str | None) -> Fault | None:
        """Whether the pair names a current member (ClassicGroup.validateMember)."""
        if instance_id is not None:
            current = self.static_ids.get(instance_id)
            if current is None:
                return Fault.UNKNOWN_MEMBER_ID
            if current != member_id:
                return Fault.FENCED_INSTANCE_ID
        return None if member_id in self.members else Fault.UNKNOWN_MEMBER_ID

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """All members with their metadata for the group's protocol, for the leader."""
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(self.protocol))
            for member in self.members.values()
        )

    def record(self) -> GroupRecord:
        """What to remember of the group."""
        return GroupRecord(
            group=self.name,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.leader,
            settled=self.state is State.STABLE,
            members=tuple(
                SavedMember(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    session_timeout_ms=member.session_timeout_ms,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    protocols=member.protocols,
                    assignment=member.assignment,
                )
                for member in self.members.values()
            ),
        )

    # -- changes -----------------------------------------------------------------------------------------------------

    def enter(self, state: State) -> None:
        self.previous_state = self.state
        self.state = state

    def add(self, member: Member) -> None:
        """Take a member in. Its protocols must have been checked, and its static id must be free."""
        assert member.member_id not in self.members
        if not self.members:
            self.protocol_type = member.protocol_type
        if member.instance_id is not None:
            assert member.instance_id not in self.static_ids
            self.static_ids[member.instance_id] = member.member_id
        if self.leader == UNKNOWN_MEMBER:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self.supported.update(member.protocol_names())
        if member.join_token is not None:
            self.joining += 1

    def remove(self, member_id: str) -> Member:
        """Take a member out. Its requests must have been answered; another member becomes the leader if it was."""
        member = self.members.pop(member_id)
        assert member.join_token is None
        assert member.sync_token is None
        self.supported.subtract(member.protocol_names())
        self.unsynced.discard(member_id)
        if member.instance_id is not None:
            del self.static_ids[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), UNKNOWN_MEMBER)
        return member

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member another id: it has been restarted."""
        assert member.instance_id is not None
        old_id = member.member_id
        del self.members[old_id]
        self.members[member_id] = member
        member.member_id = member_id
        self.static_ids[member.instance_id] = member_id
        if self.leader == old_id:
            self.leader = member_id
        if old_id in self.unsynced:
            self.unsynced.discard(old_id)
            self.unsynced.add(member_id)

    def update_protocols(self, member: Member, protocols: Protocols) -> None:
        self.supported.subtract(member.protocol_names())
        member.protocols = protocols
        self.supported.update(member.protocol_names())

    def set_join_token(self, member: Member, token: object | None) -> object | None:
        """Let a join wait, or with None stop waiting. Returns the token that was there."""
        before = member.join_token
        member.join_token = token
        self.joining += (token is not None) - (before is not None)
        return before

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is one who joined. False if nobody did."""
        leader = self.members.get(self.leader)
        if leader is None:
            return False
        if leader.join_token is None:
            joined = (member.member_id for member in self.members.values() if member.join_token is not None)
            elected = next(joined, None)
            if elected is None:
                return False
            self.leader = elected
        return True

    def next_generation(self) -> None:
        """Close the join phase: who is in now makes up the next generation."""
        self.generation += 1
        self.unsynced.clear()
        self.protocol = self.select_protocol() if self.members else ""
        self.subscribed = self._subscribed_topics()
        self.enter(State.COMPLETING if self.members else State.EMPTY)

    def restore_topics(self) -> None:
        """Read the topics again after the members came from a record."""
        self.subscribed = self._subscribed_topics()

    def _subscribed_topics(self) -> frozenset[str] | None:
        """Topics of all members together; None if some member's metadata cannot be read."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return frozenset()
        topics: set[str] = set()
        for metadata in {member.metadata(self.protocol) for member in self.members.values()}:
            of_member = subscribed_topics(metadata)
            if of_member is None:
                return None
            topics |= of_member
        return frozenset(topics)

    # -- invariants --------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert what must hold between any two events. Costs a walk over the members: for tests."""
        members = self.members
        assert all(key == member.member_id for key, member in members.items())
        assert self.joining == sum(member.join_token is not None for member in members.values())
        assert self.static_ids == {m.instance_id: m.member_id for m in members.values() if m.instance_id is not None}
        assert not set(self.pending) & set(members), "a member is pending or in, not both"
        assert self.unsynced <= set(members)
        assert (self.leader in members) if members else (self.leader == UNKNOWN_MEMBER)
        assert +self.supported == count_protocols(members.values())
        assert (self.state is State.PREPARING) or self.joining == 0, "joins wait only while members are joining"
        assert (self.state is State.COMPLETING) or not any(m.sync_token is not None for m in members.values())
        assert (self.state is State.PREPARING) == (self.join_timer.deadline_ms is not None)
        assert not self.unsynced or self.sync_timer.deadline_ms is not None
        if self.state is State.EMPTY:
            assert not members
        if self.state in (State.COMPLETING, State.STABLE):
            assert members
            assert self.supported[self.protocol] == len(members)
        for member in members.values():
            waits = member.join_token is not None or member.sync_token is not None
            assert waits or member.session.deadline_ms is not None, "a member that waits for nothing has a session"


def count_protocols(members: Iterable[Member]) -> Counter[str]:
    """How many of `members` support each protocol."""
    counts: Counter[str] = Counter()
    for member in members:
        counts.update(member.protocol_names())
    return counts
