"""DeleteTopics where several shards share the topics: one that needs a topic keeps it."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from shard_rig import SHARDS
from two_processes import TwoProcesses

from halfmoon.adapters.kafka.protocol import DeleteTopicsRequest
from halfmoon.cluster.messages import AskDeletion, DeletionAnswered, Refusal
from halfmoon.core.catalog.topics import Topic
from halfmoon.core.features import TopicPolicies, TopicPolicy
from halfmoon.core.topic_administration import TopicAdministration
from halfmoon.errors import BrokerError, Fault
from halfmoon.server.workers.deletions import deletion_answers

POLICY_VIOLATION, REQUEST_TIMED_OUT, UNKNOWN_TOPIC = 44, 7, 3
ENDS = "halfmoon.transactions"
State = DeleteTopicsRequest.DeleteTopicState


@pytest.fixture
def two() -> TwoProcesses:
    two = TwoProcesses()
    for name in ("needed", "other", ENDS):
        two.topic(name, SHARDS)
    return two


def need(two: TwoProcesses, shard: int, *names: str) -> None:
    """A shard needs these topics, and no other."""

    def deleting(topic: Topic) -> None:
        if topic.name in names:
            raise BrokerError(Fault.POLICY_VIOLATION, f"shard {shard} needs {topic.name}")

    two.nodes[shard].kernel.administration.policies = TopicPolicies([TopicPolicy(deleting=deleting)])


def delete(two: TwoProcesses, *names: str) -> dict[str, tuple[int, str | None]]:
    """Sent to the first process."""
    client = two.client(0)
    client.feed(client.encode(20, 5, topic_names=list(names)))
    two.turn()
    (answer,) = client.answers()
    return {each.name: (each.error_code, each.error_message) for each in answer.responses}


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_shard_that_needs_it_keeps_it(two: TwoProcesses, shard: int) -> None:
    need(two, shard, "needed")
    assert delete(two, "needed", "other", "none") == {
        "needed": (POLICY_VIOLATION, f"shard {shard} needs needed"),
        "other": (0, None),
        "none": (UNKNOWN_TOPIC, "topic 'none' does not exist"),
    }
    for node in two.nodes.values():
        assert set(node.catalog.by_name) >= {"needed", ENDS}
    need(two, shard)
    assert delete(two, "needed") == {"needed": (0, None)}


def test_what_was_asked_of_topics_that_are_gone_is_forgotten(two: TwoProcesses) -> None:
    """The one who asked may not delete it, and another process has."""
    administration = two.rigs[0].front.administration
    kept, gone = (two.rigs[0].front.catalog.by_name[name] for name in ("needed", "other"))
    administration.refuse_deletions([kept.number, gone.number], {})
    two.change(lambda: TopicAdministration.delete_topic(administration, gone))
    administration.refuse_deletions([], {})
    assert list(administration._asked) == [kept.number]


def test_a_topic_that_is_named_by_its_id(two: TwoProcesses) -> None:
    need(two, 3, "needed")
    topic_id = UUID(bytes=two.rigs[0].front.catalog.by_name["needed"].id)
    client = two.client(0)
    client.feed(client.encode(20, 6, topics=[State(name=None, topic_id=topic_id)]))
    two.turn()
    ((result,),) = (answer.responses for answer in client.answers())
    assert (result.name, result.error_code) == ("needed", POLICY_VIOLATION)


def test_a_topic_that_this_process_has_not_heard_of_yet(two: TwoProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    """It learns of it with the change of the catalog that deletes it; a feature may have made it just now."""
    need(two, 3, "late")
    rig = two.rigs[0]
    administer = rig.administer

    def hear_first(work: Callable[[], object], told: Callable[[object], None]) -> None:
        if rig.front.catalog.topic("late") is None:
            two.topic("late", SHARDS)
        administer(work, told)

    monkeypatch.setattr(rig, "administer", hear_first)
    assert delete(two, "late") == {"late": (POLICY_VIOLATION, "shard 3 needs late")}


@pytest.mark.parametrize("error", [None, BrokerError(Fault.COORDINATOR_NOT_AVAILABLE)])
def test_a_shard_that_has_not_heard_of_it_yet_looks_first(two: TwoProcesses, error: BrokerError | None) -> None:
    need(two, 3, "late")
    number = 1 + max(two.nodes[3].catalog.by_number)

    def catch_up(told: Callable[[BrokerError | None], None]) -> None:
        if error is None:
            assert two.topic("late", SHARDS).number == number
        told(error)

    answers: list[object] = []
    deletion_answers(two.nodes[3], catch_up)[AskDeletion](AskDeletion([number]), answers.append)
    (answer,) = answers
    if error is not None:
        assert answer is error
    else:
        assert isinstance(answer, DeletionAnswered)
        assert answer.refused == [(number, Refusal("POLICY_VIOLATION", "shard 3 needs late"))]


def test_nothing_is_deleted_that_the_shards_were_not_asked_about(two: TwoProcesses) -> None:
    topic = two.rigs[0].front.catalog.topic("other")
    assert topic is not None
    with pytest.raises(BrokerError) as caught:
        two.change(lambda: two.rigs[0].front.administration.delete_topic(topic))
    assert caught.value.fault is Fault.UNKNOWN_TOPIC_OR_PARTITION


def test_where_a_shard_cannot_be_asked_only_topics_of_features_stay(two: TwoProcesses) -> None:
    provides = TopicPolicy(provides=lambda name: name == ENDS)
    two.rigs[0].front.administration.policies = TopicPolicies([provides])
    two.questions.unreachable = {1}
    found = delete(two, "other", ENDS)
    assert found["other"] == (0, None)
    assert found[ENDS][0] == REQUEST_TIMED_OUT
    two.questions.unreachable = set()
    assert delete(two, ENDS) == {ENDS: (0, None)}
