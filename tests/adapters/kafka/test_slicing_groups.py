"""Requests of groups that take long: others are served in between, and what happens meanwhile counts."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_rig import Rig, RigClient
from share_rig import ACCEPT, ACKNOWLEDGE, RELEASE, Member, acquired, produce
from test_slicing import element, ticking, turn, until_answered

from halfmoon.adapters.kafka.errors import code
from halfmoon.errors import Fault
from halfmoon.services.groups.messages import Join, JoinResult

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
