"""A handful of clients do what they like to one group, in any order, with old or wrong numbers. What must hold always:

- the group's own invariants (Group.check), a generation that never goes back, not even over a restart;
- a request is answered once, and never later than the longest rebalance time-out after it came;
- who is told a share is told that of the current generation; who is told a generation, the current one;
- a heartbeat waits in a stable group only, and not for long;
- `expire` leaves nothing undone: the next deadline lies ahead.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from halfmoon.errors import Fault
from halfmoon.schema.groups import GroupRecord
from halfmoon.services.groups.coordinator import GroupCoordinator
from halfmoon.services.groups.messages import (
    Effect,
    GroupSettings,
    HeartbeatResult,
    Join,
    JoinResult,
    Persist,
    Sync,
    SyncResult,
)
from halfmoon.services.groups.model import State
from tests.chance import trying

LONGEST_REBALANCE_MS = 2_000
HEARTBEAT_WAIT_MS = 500
SETTINGS = GroupSettings(
    initial_rebalance_delay_ms=100, max_size=5, new_member_timeout_ms=1_500, heartbeat_wait_ms=HEARTBEAT_WAIT_MS
)
METADATA = st.sampled_from([b"\x00\x01\x00\x00\x00\x01\x00\x01t", b"\x00\x01\x00\x00\x00\x01\x00\x01u", b"junk"])
PROTOCOL = st.tuples(st.sampled_from(["range", "range", "sticky"]), METADATA)
PROTOCOLS = st.one_of(METADATA.map(lambda m: (("range", m),)), st.lists(PROTOCOL, max_size=2).map(tuple))


@dataclass(slots=True)
class Client:
    """One client process; `known` are member ids and generations it has been told of, the current one last."""

    number: int
    instance_id: str | None
    known: list[tuple[str, int]] = field(default_factory=lambda: [("", -1)])
    leads: dict[tuple[str, int], tuple[str, ...]] = field(default_factory=dict)
    """As which member it was told the members of which generation."""


@dataclass(slots=True)
class Request:
    client: Client
    asked_ms: int
    beats: bool = False
    answered: bool = False


CLIENTS = st.integers(0, 5)


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.ids = itertools.count(1)
        self.coordinator = GroupCoordinator(SETTINGS, lambda prefix: f"{prefix}-{next(self.ids)}")
        self.record: GroupRecord | None = None
        self.generation = 0
        self.clients = [Client(number, f"static-{number}" if number >= 3 else None) for number in range(6)]
        self.waiting: list[Request] = []

    # -- events

    @rule(
        number=CLIENTS,
        age=st.sampled_from([0, 0, 0, 1]),
        protocols=PROTOCOLS,
        session=st.sampled_from([1_000, 3_000]),
        rebalance=st.sampled_from([50, 500, LONGEST_REBALANCE_MS]),
        version=st.sampled_from([3, 4, 9]),
        restarted=st.booleans(),
    )
    def join(self, number, age, protocols, session, rebalance, version, restarted):
        client = self.clients[number]
        member_id, _ = ("", -1) if restarted else self.recall(client, age)
        join = Join(
            group="g",
            member_id=member_id,
            instance_id=client.instance_id if version >= 5 else None,
            client_id=f"client-{number}",
            client_host="h",
            session_timeout_ms=session,
            rebalance_timeout_ms=rebalance,
            protocol_type="consumer",
            protocols=protocols,
            require_known_member=version >= 4,
            can_skip_assignment=version >= 9,
        )
        self.carry_out(self.coordinator.join(join, self.request(client), self.now))

    @rule(number=CLIENTS, age=st.sampled_from([0, 0, 0, 1]), as_static=st.booleans())
    def sync(self, number, age, as_static):
        client = self.clients[number]
        member_id, generation = self.recall(client, age)
        members = client.leads.get((member_id, generation), ())
        shares = {member: f"{generation}:{self.owner(member)}".encode() for member in members}
        instance_id = client.instance_id if as_static else None
        sync = Sync("g", generation, member_id, instance_id, None, None, shares)
        self.carry_out(self.coordinator.sync(sync, self.request(client), self.now))

    @rule(number=CLIENTS, age=st.sampled_from([0, 0, 1]), commits=st.booleans(), waits=st.booleans())
    def heartbeat(self, number, age, commits, waits):
        member_id, generation = self.recall(self.clients[number], age)
        if commits:
            fault = self.coordinator.check_commit("g", generation, member_id, None, self.now)
        else:
            fault = self.coordinator.heartbeat("g", generation, member_id, None, self.now)
        group = self.coordinator._groups.get("g")
        if fault is None and generation >= 0:
            assert group is not None
            assert generation == group.generation
            member = group.members[member_id]
            assert member.session.deadline_ms == self.now + member.session_timeout_ms
            if waits and not commits:
                self.await_rebalance(self.clients[number], member_id)

    def await_rebalance(self, client, member_id):
        request = self.request(client, beats=True)
        effects = self.coordinator.await_rebalance("g", member_id, request, self.now)
        if effects is None:
            self.waiting.remove(request)
            assert self.coordinator._groups["g"].state is not State.STABLE
        else:
            self.carry_out(effects)

    @rule(number=CLIENTS, by_instance=st.booleans())
    def leave(self, number, by_instance):
        client = self.clients[number]
        member = ("", client.instance_id) if by_instance else (self.recall(client, 0)[0], None)
        results, effects = self.coordinator.leave("g", [member], self.now)
        assert [result[:2] for result in results] == [member]
        self.carry_out(effects)

    @rule(ms=st.sampled_from([1, 40, 100, 700, 3_000]))
    def tick(self, ms):
        end = self.now + ms
        while (deadline := self.coordinator.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.carry_out(self.coordinator.expire(self.now))
            ahead = self.coordinator.next_deadline()
            assert ahead is None or ahead > self.now
        self.now = end

    @precondition(lambda self: self.record is not None)
    @rule()
    def restart(self):
        """Connections break, and with them whatever waits; what was persisted is back."""
        self.waiting.clear()
        self.coordinator = GroupCoordinator(SETTINGS, lambda prefix: f"{prefix}-{next(self.ids)}")
        assert self.record is not None
        self.coordinator.restore([self.record], self.now)

    @rule(number=st.integers(3, 5), metadata=METADATA, version=st.sampled_from([5, 9]))
    def restart_static(self, number, metadata, version):
        self.join(number, 0, (("range", metadata),), 3_000, 500, version, True)

    @rule(numbers=st.sets(CLIENTS, min_size=1, max_size=4), metadata=METADATA, version=st.sampled_from([3, 9]))
    def cooperate(self, numbers, metadata, version):
        """Some clients do what clients do: join, wait, sync, followers first."""
        for number in sorted(numbers):
            client = self.clients[number]
            for _ in range(2):
                before = len(client.known)
                restarted = client.known[-1][0] == ""
                self.join(number, 0, (("range", metadata),), 3_000, 500, version, restarted)
                if len(client.known) == before:
                    break
        self.tick(600)
        for number in sorted(numbers, reverse=True):
            self.sync(number, 0, False)

    # -- what comes of them

    def request(self, client: Client, *, beats: bool = False) -> Request:
        request = Request(client, self.now, beats)
        self.waiting.append(request)
        return request

    def recall(self, client: Client, age: int) -> tuple[str, int]:
        return client.known[-1 - age] if age < len(client.known) else client.known[-1]

    def owner(self, member_id: str) -> str:
        """Who a share is for, by a name that a restarted static member keeps."""
        return member_id.rsplit("-", 1)[0] if member_id.startswith("static") else member_id

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Persist):
                self.record = effect.record
                continue
            request = effect.token
            assert isinstance(request, Request)
            assert not request.answered, "a request is answered once"
            request.answered = True
            self.waiting = [other for other in self.waiting if other is not request]
            if isinstance(effect.result, JoinResult):
                self.joined(request.client, effect.result)
            elif isinstance(effect.result, HeartbeatResult):
                assert request.beats
                if effect.result.fault is Fault.REBALANCE_IN_PROGRESS:
                    assert self.coordinator._groups["g"].state is not State.STABLE
            else:
                self.synced(request.client, effect.result)

    def joined(self, client: Client, result: JoinResult) -> None:
        if result.fault is Fault.MEMBER_ID_REQUIRED:
            client.known.append((result.member_id, -1))
        elif result.fault is Fault.UNKNOWN_MEMBER_ID:
            client.known.append(("", -1))
        if result.fault is not None:
            return
        assert self.record is not None
        assert result.generation == self.record.generation, "a generation is told only when it has been kept"
        group = self.coordinator._groups["g"]
        if result.generation == group.generation:
            assert bool(result.members) == (result.leader == result.member_id)
        client.known.append((result.member_id, result.generation))
        if not result.skip_assignment:
            members = tuple(member.member_id for member in result.members)
            client.leads[result.member_id, result.generation] = members

    def synced(self, client: Client, result: SyncResult) -> None:
        if result.fault is None:
            generation, _, owner = result.assignment.decode().partition(":")
            assert int(generation) == self.coordinator._groups["g"].generation
            assert owner in {self.owner(member_id) for member_id, _ in client.known}

    # -- always

    @invariant()
    def holds(self):
        group = self.coordinator._groups.get("g")
        if group is not None:
            group.check()
            assert group.generation >= self.generation
            self.generation = group.generation
        longest = max((self.now - request.asked_ms for request in self.waiting), default=0)
        assert longest <= LONGEST_REBALANCE_MS
        beats = [self.now - request.asked_ms for request in self.waiting if request.beats]
        if beats:
            assert group is not None
            assert group.state is State.STABLE
            assert max(beats) <= HEARTBEAT_WAIT_MS

    def teardown(self):
        self.tick(10_000)
        assert not self.waiting


TestGroups = Groups.TestCase
TestGroups.settings = trying(150, 60)
