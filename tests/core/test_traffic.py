"""Counters by topic, of which there are only so many."""

from __future__ import annotations

from halfmoon.core.traffic import MOST_TOPICS, Traffic, TrafficTable


class Topic:
    traffic: Traffic | None = None


def test_topics_beyond_the_limit_share_their_counters() -> None:
    table = TrafficTable(2)
    first, second, third, fourth = (Topic() for _ in range(4))
    for topic in (first, second, third, fourth):
        table.sent(topic, 10)
        table.sent(topic, 1)
    assert [topic.traffic.out_bytes for topic in (first, second)] == [11, 11]  # type: ignore[union-attr]
    assert third.traffic is fourth.traffic is table.others
    assert table.others.out_bytes == 22


def test_no_counter_goes_back_when_a_topic_is_deleted() -> None:
    table = TrafficTable(1)
    own, shared, new, idle = (Topic() for _ in range(4))
    table.sent(own, 10)
    table.sent(shared, 10)
    table.deleted(shared)
    table.deleted(idle)
    table.sent(shared, 5)
    assert table.others.out_bytes == 15, "what is still being sent counts there"
    table.deleted(own)
    table.sent(own, 5)
    assert table.others.out_bytes == 20
    table.sent(new, 1)
    assert new.traffic is not table.others, "the place of a deleted topic is free"
    assert new.traffic is not None
    assert new.traffic.out_bytes == 1


def test_so_many_topics_have_their_own() -> None:
    table = TrafficTable()
    topics = [Topic() for _ in range(5_000)]
    for topic in topics:
        table.of(topic)
    assert len({id(topic.traffic) for topic in topics}) == MOST_TOPICS + 1
