"""Requests of groups that take long: others are served in between, and what happens meanwhile counts."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_rig import Rig, RigClient
from share_rig import ACCEPT, ACKNOWLEDGE, RELEASE, Member, acquired, produce
from test_slicing import element, ticking, turn, until_answered

from halfmoon.adapters.kafka.errors import code
from halfmoon.adapters.tcp.round_time import RoundTime
from halfmoon.errors import Fault
from halfmoon.plugins.allocate.averagely import averagely
from halfmoon.services.groups.consumer.messages import ConsumerHeartbeat
from halfmoon.services.groups.consumer.model import ConsumerGroup
from halfmoon.services.groups.messages import Join, JoinResult

LEAVES = -1
"""The epoch with which a member leaves."""

MANY = 1_000
METADATA = {"topics": [], "allow_auto_topic_creation": False}


@pytest.fixture
def rig() -> Rig:
    made = Rig(groups__share__auto_offset_reset="earliest")
    made.broker.create_topic("t", 2)
    ticking(made)
    return made


class TestShareAcknowledge:
    """Many records, one by one."""

    def member(self, rig: Rig) -> Member:
        for index in range(2):
            produce(rig, MANY, index)
        member = Member(rig, "m" * 22)
        for index in range(2):
            assert member.fetch(max_records=MANY, index=index) == [(0, MANY - 1, 1)]
        return member

    def begin(self, member: Member, *indexes: int, epoch: int | None = None) -> None:
        """The first turn of a request that acknowledges all of these partitions."""
        partitions = [
            element(
                79, "AcknowledgeTopic.AcknowledgePartition", partition_index=index, acknowledgement_batches=[
                    element(79, "AcknowledgeTopic.AcknowledgePartition.AcknowledgementBatch", first_offset=offset,
                            last_offset=offset, acknowledge_types=[(ACCEPT, RELEASE)[offset % 2]])
                    for offset in range(MANY)
                ],
            )
            for index in indexes
        ]  # fmt: skip
        topics = [element(79, "AcknowledgeTopic", topic_id=member.topic_id, partitions=partitions)]
        said = {
            "group_id": "g", "member_id": member.name, "is_renew_ack": False, "topics": topics,
            "share_session_epoch": member.epoch if epoch is None else epoch,
        }  # fmt: skip
        member.client.feed(member.client.encode(ACKNOWLEDGE, 2, **said))
        turn(member.rig)

    def errors(self, answer: Any) -> list[int]:
        assert answer.error_code == 0
        return [part.error_code for topic in answer.responses for part in topic.partitions]

    def unfinished(self, rig: Rig, index: int) -> int:
        topic = rig.broker.topic("t")
        assert topic is not None
        part = rig.broker.shares.delivery.parts.known("g", topic.partitions[index])
        assert part is not None
        return part.unfinished

    def test_others_are_answered_first(self, rig: Rig) -> None:
        member, other = self.member(rig), rig.client()
        self.begin(member, 0, 1)
        other.feed(other.encode(3, 9, **METADATA))
        came = until_answered(rig, member.client, other)
        answered = [next(at for at, answers in enumerate(came) if answers[who]) for who in (0, 1)]
        assert answered[1] + 10 < answered[0]
        assert self.errors(came[answered[0]][0][0]) == [0, 0]
        assert [self.unfinished(rig, index) for index in range(2)] == [MANY // 2] * 2

    def test_a_member_that_is_gone_meanwhile_has_nothing_to_acknowledge(self, rig: Rig) -> None:
        member = self.member(rig)
        self.begin(member, 0, 1)
        while self.unfinished(rig, 0) == MANY:
            turn(rig)
        rig.broker.shares.member_gone("g", member.name)
        came = until_answered(rig, member.client)
        (answer,) = [answer for (answers,) in came for answer in answers]
        assert self.errors(answer) == [0, code(Fault.INVALID_RECORD_STATE)]
        assert self.unfinished(rig, 1) == MANY, "all of a partition, or nothing"

    def test_a_topic_may_go_meanwhile(self, rig: Rig) -> None:
        member = self.member(rig)
        self.begin(member, 0)
        topic = rig.broker.topic("t")
        assert topic is not None
        rig.broker.delete_topic(topic)
        came = until_answered(rig, member.client)
        (answer,) = [answer for (answers,) in came for answer in answers]
        assert self.errors(answer) == [code(Fault.UNKNOWN_TOPIC_ID)]

    def test_the_end_of_a_session_does_not_take_from_the_next_one(
        self, rig: Rig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        member, again = self.member(rig), Member(rig, "m" * 22)
        produce(rig, 5)
        sessions, used = rig.broker.shares.sessions, list[Any]()
        use = sessions.use
        monkeypatch.setattr(sessions, "use", lambda *said: used.append(said) or use(*said))
        self.begin(member, 1, epoch=-1)
        while not used:
            turn(rig)
        monkeypatch.setattr(rig, "turn", lambda: turn(rig))
        again.send(max_wait_ms=0)
        monkeypatch.undo()
        came = until_answered(rig, member.client, again.client)
        answers = [answer for _, answers in came for answer in answers]
        assert acquired(answers[0]) == [(MANY, MANY + 4, 1)]
        assert self.errors(again.acknowledge(MANY, MANY, ACCEPT)) == [0]

    def test_a_connection_that_closes_ends_it(self, rig: Rig) -> None:
        member = self.member(rig)
        self.begin(member, 0, 1)
        member.client.connection.connection_lost(None)
        until_answered(rig)
        assert [self.unfinished(rig, index) for index in range(2)] == [MANY, MANY]
        assert Member(rig, "n" * 22).fetch(max_records=MANY) == [(0, MANY - 1, 2)]

    @pytest.mark.parametrize("early", [False, True])
    def test_a_fetch_that_brings_them_waits_and_is_hurried(self, rig: Rig, early: bool) -> None:
        """By the next request on its connection, or by a server that stops, even while it is worked at."""
        member, other = self.member(rig), rig.client()
        acks = [(offset, offset, ACCEPT) for offset in range(MANY)]
        piece = element(78, "FetchTopic", topic_id=member.topic_id, partitions=[
            element(78, "FetchTopic.FetchPartition", partition_index=0, acknowledgement_batches=[
                element(78, "FetchTopic.FetchPartition.AcknowledgementBatch", first_offset=first, last_offset=last,
                        acknowledge_types=[kind])
                for first, last, kind in acks
            ])
        ])  # fmt: skip
        said = {
            "group_id": "g", "member_id": member.name, "share_session_epoch": member.epoch, "max_wait_ms": 500,
            "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 100, "batch_size": 100, "share_acquire_mode": 0,
            "is_renew_ack": False, "topics": [piece], "forgotten_topics_data": [],
        }  # fmt: skip
        member.client.feed(member.client.encode(78, 2, **said))
        other.feed(other.encode(3, 9, **METADATA))
        if early:
            member.client.connection._hurry()
        came = until_answered(rig, member.client, other)
        assert [len(answers) for _, answers in came].index(1) + 3 < len(came)
        answers = [answer for answers, _ in came for answer in answers]
        assert len(answers) == early
        assert self.unfinished(rig, 0) == 0
        if not early:
            member.client.feed(member.client.encode(3, 9, **METADATA))
            answers = [answer for (each,) in until_answered(rig, member.client) for answer in each]
            assert len(answers) == 2
        (part,) = answers[0].responses[0].partitions
        assert (part.acknowledge_error_code, part.acquired_records) == (0, [])


class TestSyncGroup:
    """A leader brings the shares of a thousand members."""

    def joined(self, rig: Rig) -> JoinResult:
        found: list[JoinResult] = []
        protocols = (("range", b""),)
        rig.broker.groups.join(
            Join("g", "", None, "c", "h", 10_000, 10_000, "consumer", protocols, False), found.append
        )
        rig.clock.now_ms += 3_000
        rig.broker.groups.expire(rig.clock.mono_ms())
        rig.turn()
        return found[0]

    def begin(self, client: RigClient, who: JoinResult) -> None:
        shares = [
            element(14, "SyncGroupRequestAssignment", member_id=member_id, assignment=b"a" * 10)
            for member_id in (*(f"m{n}" for n in range(MANY)), who.member_id)
        ]
        said = {"group_id": "g", "generation_id": who.generation, "member_id": who.member_id, "assignments": shares}
        client.feed(client.encode(14, 4, group_instance_id=None, **said))
        turn(client.rig)

    def test_others_are_answered_first(self, rig: Rig) -> None:
        client, other = rig.client(), rig.client()
        self.begin(client, self.joined(rig))
        other.feed(other.encode(3, 9, **METADATA))
        came = until_answered(rig, client, other)
        answered = [next(at for at, answers in enumerate(came) if answers[who]) for who in (0, 1)]
        assert answered[1] + 10 < answered[0]
        assert came[answered[0]][0][0].assignment == b"a" * 10

    def test_a_leader_that_leaves_meanwhile_has_nothing_to_say(self, rig: Rig) -> None:
        client, who = rig.client(), self.joined(rig)
        self.begin(client, who)
        rig.broker.groups.leave("g", [(who.member_id, None)])
        came = until_answered(rig, client)
        (answer,) = [answer for (answers,) in came for answer in answers]
        assert answer.error_code == code(Fault.UNKNOWN_MEMBER_ID)


class TestConsumerGroupHeartbeat:
    """A member of which 3,000 partitions are assigned."""

    WIDE = 3_000

    def begin(self, rig: Rig, client: RigClient, member: str = "m", epoch: int = 0, **said: Any) -> None:
        """The first turn of a heartbeat, of those that it takes."""
        rig.broker.topic("wide") or rig.broker.create_topic("wide", self.WIDE)
        full: dict[str, Any] = {
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": ["wide"],
            "topic_partitions": [],
        }
        fields = {"group_id": "g", "member_id": member, "member_epoch": epoch} | full | said
        client.feed(client.encode(68, 1, **fields))

    def end(self, rig: Rig, *clients: RigClient) -> list[Any]:
        """The one answer of each."""
        came = until_answered(rig, *clients)
        return [next(answers[at][0] for answers in came if answers[at]) for at in range(len(clients))]

    def assigned(self, answer: Any) -> int:
        assert answer.error_code == 0, answer
        return sum(len(topic.partitions) for topic in answer.assignment.topic_partitions)

    def group(self, rig: Rig) -> ConsumerGroup:
        group = rig.broker.groups.coordinator.rebalancing.groups["g"]
        group.check()
        return group

    @pytest.fixture(autouse=True)
    def slow(self, rig: Rig) -> None:
        """Each step takes a turn."""
        rig.broker.groups.allocators = {"averagely": averagely}
        now = 0

        def tick() -> float:
            nonlocal now
            now += 1
            return now / 100

        rig.server.round_time = RoundTime(rig.loop.call_soon, tick)

    def test_others_are_answered_first(self, rig: Rig) -> None:
        client, other = rig.client(), rig.client()
        self.begin(rig, client)
        other.feed(other.encode(3, 9, **METADATA))
        came = until_answered(rig, client, other)
        answered = [next(at for at, answers in enumerate(came) if answers[who]) for who in (0, 1)]
        assert answered[1] < answered[0]
        assert self.assigned(came[answered[0]][0][0]) == self.WIDE
        assert len(self.group(rig).owners) == self.WIDE

    @pytest.mark.parametrize("steps", [0, 1])
    def test_another_joins_meanwhile(self, rig: Rig, steps: int) -> None:
        """As if it had come after the first, which holds what it was given before that."""
        first, second = rig.client(), rig.client()
        self.begin(rig, first)
        for _ in range(steps):
            turn(rig)
        self.begin(rig, second, "n")
        answers = self.end(rig, first, second)
        assert self.assigned(answers[0]) == self.WIDE
        assert self.assigned(answers[1]) == 0
        group = self.group(rig)
        assert set(group.owners.values()) == {"m"}

    @pytest.mark.parametrize("steps", [0, 1])
    def test_its_topic_is_deleted_meanwhile(self, rig: Rig, steps: int) -> None:
        client = rig.client()
        self.begin(rig, client)
        for _ in range(steps):
            turn(rig)
        topic = rig.broker.topic("wide")
        assert topic is not None
        rig.broker.delete_topic(topic)
        (answer,) = self.end(rig, client)
        assert answer.error_code == 0
        assert answer.assignment.topic_partitions == []
        self.group(rig)

    def test_it_leaves_meanwhile(self, rig: Rig) -> None:
        client = rig.client()
        self.begin(rig, client)
        (answer,) = self.end(rig, client)
        rig.broker.create_topic("more", self.WIDE)
        self.begin(rig, client, epoch=answer.member_epoch, subscribed_topic_names=["more", "wide"])
        rig.broker.groups.consumer_heartbeat(ConsumerHeartbeat("g", "m", LEAVES), lambda left: None)
        (answer,) = self.end(rig, client)
        assert answer.error_code == code(Fault.UNKNOWN_MEMBER_ID)
        group = self.group(rig)
        assert (group.members, group.owners, group.targets) == ({}, {}, {})

    def test_its_connection_closes_meanwhile(self, rig: Rig) -> None:
        """It is a member, which holds nothing, until its session ends."""
        client = rig.client()
        self.begin(rig, client)
        client.connection.connection_lost(None)
        until_answered(rig)
        group = self.group(rig)
        assert (list(group.members), group.owners) == (["m"], {})
        rig.clock.now_ms += 60_000
        rig.broker.groups.expire(rig.clock.mono_ms())
        assert (group.members, group.targets) == ({}, {})
        rig.turn()
        again = rig.client()
        self.begin(rig, again, "n")
        assert self.assigned(self.end(rig, again)[0]) == self.WIDE
        saved = rig.broker.state.groups.consumer_groups["g"].whole()
        assert [member.member_id for member in saved.members] == ["n"]

    def test_a_small_group_takes_no_pause(self, rig: Rig) -> None:
        client = rig.client()
        self.begin(rig, client, subscribed_topic_names=["t"])
        assert list(self.group(rig).owners.values()) == ["m", "m"]
        assert self.assigned(self.end(rig, client)[0]) == 2
