"""ListOffsets: first, next, by time, and who may ask what in which version."""

from __future__ import annotations

import pytest
from fake_admin_broker import FakeAdminBroker, versions

from halfmoon.adapters.kafka.protocol import ListOffsetsRequest
from halfmoon.errors import BrokerError, Fault

KEY = 2
Topic = ListOffsetsRequest.ListOffsetsTopic
Partition = Topic.ListOffsetsPartition
NOTHING = (0, -1, -1)


@pytest.fixture
def broker():
    broker = FakeAdminBroker()
    partition = broker.add("t").partitions[0]
    partition.start_offset, partition.stable_offset, partition.high_watermark = 5, 40, 50
    partition.epochs = [(1, 0), (2, 10), (3, 30)]
    return broker


def asking(timestamp: int, *, topic: str = "t", index: int = 0, epoch: int = -1) -> list[object]:
    wanted = Partition(partition_index=index, current_leader_epoch=epoch, timestamp=timestamp)
    return [Topic(name=topic, partitions=[wanted])]


def only(answer):
    (topic,) = answer.topics
    (result,) = topic.partitions
    return result


def told(answer) -> tuple[int, int, int]:
    result = only(answer)
    return result.error_code, result.offset, result.timestamp


@pytest.mark.parametrize("version", versions(KEY))
@pytest.mark.parametrize(
    ("timestamp", "since", "offset", "epoch"),
    [(-1, 1, 50, 3), (-2, 1, 5, 1), (-4, 8, 5, 1), (-5, 9, -1, -1), (-6, 11, -1, -1)],
)
def test_questions(client, version, timestamp, since, offset, epoch):
    answer = client.ask(KEY, version, topics=asking(timestamp))
    if version < since:
        assert told(answer) == (35, -1, -1)
        return
    assert told(answer) == (0, offset, -1)
    if version >= 4:
        assert only(answer).leader_epoch == epoch


def test_an_unknown_question(client):
    assert told(client.ask(KEY, 10, topics=asking(-7))) == (35, -1, -1)


@pytest.mark.parametrize("version", [v for v in versions(KEY) if v >= 2])
def test_read_committed_ends_at_the_stable_offset(client, version):
    assert told(client.ask(KEY, version, topics=asking(-1), isolation_level=1)) == (0, 40, -1)


@pytest.mark.parametrize("version", versions(KEY))
def test_by_time(client, broker, version):
    broker.topic("t").partitions[0].by_time[1000] = lambda: (12, 1001)
    answer = client.ask(KEY, version, topics=asking(1000))
    assert told(answer) == (0, 12, 1001)
    if version >= 4:
        assert only(answer).leader_epoch == 2


@pytest.mark.parametrize("version", versions(KEY))
def test_no_match_is_no_error(client, broker, version):
    broker.topic("t").partitions[0].by_time[2000] = lambda: None
    assert told(client.ask(KEY, version, topics=asking(1000))) == NOTHING
    assert told(client.ask(KEY, version, topics=asking(2000))) == NOTHING


def test_what_may_not_be_seen_yet_is_no_match(client, broker):
    broker.topic("t").partitions[0].by_time[1000] = lambda: (45, 1001)
    assert told(client.ask(KEY, 4, topics=asking(1000))) == (0, 45, 1001)
    assert told(client.ask(KEY, 4, topics=asking(1000), isolation_level=1)) == NOTHING


@pytest.mark.parametrize("version", [v for v in versions(KEY) if v >= 7])
def test_largest_timestamp(client, broker, version):
    assert told(client.ask(KEY, version, topics=asking(-3))) == NOTHING
    broker.topic("t").partitions[0].newest = lambda: (31, 9000)
    answer = client.ask(KEY, version, topics=asking(-3))
    assert told(answer) == (0, 31, 9000)
    assert only(answer).leader_epoch == 3


def test_searches_of_a_request_share_one_thread_and_fail_alone(client, broker):
    topic = broker.topic("t")
    topic.grow(3)

    def damaged() -> tuple[int, int]:
        raise BrokerError(Fault.CORRUPT_MESSAGE)

    topic.partitions[0].by_time[1] = damaged
    topic.partitions[2].by_time[1] = lambda: (0, 1)
    topic.partitions[2].high_watermark = 1
    wanted = [Partition(partition_index=index, timestamp=1) for index in range(3)]
    pending = client.send(KEY, 5, ListOffsetsRequest(topics=[Topic(name="t", partitions=wanted)]))
    assert pending.answer is None
    assert len(client.peer.jobs) == 1
    client.peer.run_threads()
    results = pending.answer.topics[0].partitions
    assert [(r.error_code, r.offset) for r in results] == [(2, -1), (0, -1), (0, 0)]


def test_a_search_that_breaks_answers_all_the_same(client, broker):
    def breaks() -> tuple[int, int]:
        raise RuntimeError

    broker.topic("t").partitions[0].by_time[1] = breaks
    assert told(client.ask(KEY, 5, topics=asking(1))) == (-1, -1, -1)


@pytest.mark.parametrize("version", versions(KEY))
@pytest.mark.parametrize(("topic", "index"), [("missing", 0), ("t", 1), ("t", -1)])
def test_unknown_partitions(client, version, topic, index):
    assert told(client.ask(KEY, version, topics=asking(-1, topic=topic, index=index))) == (3, -1, -1)


@pytest.mark.parametrize("version", [v for v in versions(KEY) if v >= 4])
@pytest.mark.parametrize(("epoch", "code"), [(-1, 0), (3, 0), (2, 74), (4, 75)])
def test_leader_epochs(client, version, epoch, code):
    assert only(client.ask(KEY, version, topics=asking(-1, epoch=epoch))).error_code == code


def test_a_partition_given_twice(client):
    twice = [Partition(partition_index=0, timestamp=-1)] * 2
    answer = client.ask(KEY, 7, topics=[Topic(name="t", partitions=twice)])
    assert [r.error_code for r in answer.topics[0].partitions] == [42, 42]
