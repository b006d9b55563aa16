"""The APIs of producers' transactions, in every version, over the real core and the real server."""

from __future__ import annotations

import uuid

import pytest

from halfmoon.core.records.batches import iter_records, parse_header
from halfmoon.plugins.allocate.averagely import averagely
from halfmoon.services.transactions import prepared
from tests.kafka_messages import made
from tests.services.transactions.transaction_bench import transactional_batch

PRODUCE, FETCH, LIST_OFFSETS, OFFSET_FETCH, COORDINATOR, INIT = 0, 1, 2, 9, 10, 22
ADD_PARTITIONS, ADD_OFFSETS, END, WRITE_MARKERS, COMMIT_OFFSETS = 24, 25, 26, 27, 28
DESCRIBE_PRODUCERS, DESCRIBE, LIST, HEARTBEAT = 61, 65, 66, 68

FENCED, OLD_EPOCH, CONCURRENT = 90, 47, 51


def versions(key: int, first: int = 0) -> list[int]:
    from halfmoon.adapters.kafka.api import registered

    api = registered()[key]
    return list(range(max(first, api.min_version), api.max_version + 1))


@pytest.fixture
def partitions(rig):
    return rig.topic("t", 2)


@pytest.fixture
def client(rig):
    return rig.client()


def init(client, version=5, name="x", timeout_ms=60_000, **who):
    answer = client.ask(INIT, version, transactional_id=name, transaction_timeout_ms=timeout_ms, **who)
    return answer.error_code, answer.producer_id, answer.producer_epoch


def add(client, version, producer_id, epoch, *indexes, topic="t", name="x", verify_only=False):
    """Error codes by partition."""
    wanted = made(ADD_PARTITIONS, "AddPartitionsToTxnTopic", name=topic, partitions=list(indexes))
    if version < 4:
        answer = client.ask(
            ADD_PARTITIONS, version, v3_and_below_transactional_id=name, v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch, v3_and_below_topics=[wanted],
        )  # fmt: skip
        topics = answer.results_by_topic_v3_and_below
    else:
        transaction = made(
            ADD_PARTITIONS, "AddPartitionsToTxnTransaction", transactional_id=name, producer_id=producer_id,
            producer_epoch=epoch, verify_only=verify_only, topics=[wanted],
        )  # fmt: skip
        answer = client.ask(ADD_PARTITIONS, version, transactions=[transaction])
        assert answer.error_code == 0
        (result,) = answer.results_by_transaction
        assert result.transactional_id == name
        topics = result.topic_results
    return {part.partition_index: part.partition_error_code for part in topics[0].results_by_partition}


def produce(client, rig, version, producer_id, epoch, sequence, *values, index=0, name="x"):
    """Error code and base offset."""
    topic = rig.broker.topic("t")
    records = transactional_batch(*values, producer_id=producer_id, epoch=epoch, sequence=sequence)
    part = made(PRODUCE, "TopicProduceData.PartitionProduceData", index=index, records=bytes(records))
    data = made(PRODUCE, "TopicProduceData", name="t", topic_id=uuid.UUID(bytes=topic.id), partition_data=[part])
    answer = client.ask(PRODUCE, version, transactional_id=name, acks=-1, timeout_ms=1_000, topic_data=[data])
    (found,) = answer.responses[0].partition_responses
    return found.error_code, found.base_offset


def end(client, version, producer_id, epoch, committed=True, name="x"):
    answer = client.ask(
        END, version, transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=committed
    )
    return answer.error_code, answer.producer_id, answer.producer_epoch


def commit_offsets(client, version, producer_id, epoch, *offsets, name="x", group="g", topic="t", **member):
    parts = [
        made(
            COMMIT_OFFSETS, "TxnOffsetCommitRequestTopic.TxnOffsetCommitRequestPartition", partition_index=index,
            committed_offset=offset, committed_leader_epoch=-1, committed_metadata=None,
        )
        for index, offset in offsets
    ]  # fmt: skip
    topics = [made(COMMIT_OFFSETS, "TxnOffsetCommitRequestTopic", name=topic, partitions=parts)]
    answer = client.ask(
        COMMIT_OFFSETS, version, transactional_id=name, group_id=group, producer_id=producer_id, producer_epoch=epoch,
        topics=topics, **member,
    )  # fmt: skip
    return {part.partition_index: part.error_code for part in answer.topics[0].partitions}


def fetch(client, rig, version, *, read_committed, offset=0):
    topic = rig.broker.topic("t")
    wanted = made(
        FETCH, "FetchTopic.FetchPartition", partition=0, current_leader_epoch=-1, fetch_offset=offset,
        last_fetched_epoch=-1, log_start_offset=-1, partition_max_bytes=1 << 20,
    )  # fmt: skip
    asked = made(FETCH, "FetchTopic", topic="t", topic_id=uuid.UUID(bytes=topic.id), partitions=[wanted])
    answer = client.ask(
        FETCH, version, replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20,
        isolation_level=int(read_committed), session_id=0, session_epoch=-1, topics=[asked], forgotten_topics_data=[],
        rack_id="",
    )  # fmt: skip
    return answer.responses[0].partitions[0]


def values(records) -> list[bytes]:
    found = []
    data = memoryview(bytes(records))
    while data:
        size = parse_header(data).batch_length + 12
        found += [record.value for record in iter_records(data[:size]) if not parse_header(data).attributes & 32]
        data = data[size:]
    return found


@pytest.mark.parametrize("version", versions(COORDINATOR, 4))
def test_this_node_is_the_coordinator(rig, client, version):
    answer = client.ask(COORDINATOR, version, key_type=1, coordinator_keys=["x"]).coordinators[0]
    assert (answer.error_code, answer.node_id) == (0, rig.broker.node_id)


@pytest.mark.parametrize("version", versions(INIT))
def test_taking_an_id_again_raises_the_epoch(client, version):
    code, producer_id, epoch = init(client, version)
    assert (code, epoch) == (0, 0)
    assert init(client, version) == (0, producer_id, 1)
    if version >= 3:
        assert init(client, version, producer_id=producer_id, producer_epoch=1) == (0, producer_id, 2)
        fenced = init(client, version, producer_id=producer_id, producer_epoch=0)
        assert fenced == (FENCED if version >= 4 else OLD_EPOCH, -1, -1)
    assert init(client, version, timeout_ms=900_001) == (50, -1, -1)


@pytest.mark.parametrize("version", versions(ADD_PARTITIONS))
def test_partitions_are_added_all_or_none(client, rig, partitions, version):
    _, producer_id, epoch = init(client)
    assert add(client, version, producer_id, epoch, 0, 1, 7) == {0: 55, 1: 55, 7: 3}
    assert add(client, version, producer_id, epoch, 0) == {0: 0}
    assert add(client, version, producer_id, epoch + 1, 0) == {0: FENCED if version >= 2 else OLD_EPOCH}
    assert add(client, version, producer_id + 1, epoch, 0) == {0: 49}
    assert add(client, version, producer_id, epoch, 0, name="nobody") == {0: 49}
    if version >= 4:
        assert add(client, version, producer_id, epoch, 0, 1, verify_only=True) == {0: 0, 1: 120}
        assert add(client, version, producer_id, epoch - 1, 0, verify_only=True) == {0: FENCED}
    assert rig.broker.state.transactions.by_name["x"].partitions == {(partitions[0].topic.number, 0): None}


@pytest.mark.parametrize("version", versions(PRODUCE, 3))
def test_batches_add_their_partition_from_version_12_on(client, rig, partitions, version):
    _, producer_id, epoch = init(client)
    expected = (0, 0) if version >= 12 else ((120 if version == 11 else 48), -1)
    assert produce(client, rig, version, producer_id, epoch, 0, b"a") == expected
    add(client, 3, producer_id, epoch, 1)
    assert produce(client, rig, version, producer_id, epoch, 0, b"a", index=1) == (0, 0)
    assert produce(client, rig, version, producer_id, epoch - 1, 1, b"b", index=1)[0] in (87, OLD_EPOCH)
    assert produce(client, rig, version, producer_id, epoch, 1, b"b", index=1, name=None) == (53, -1)
    assert produce(client, rig, version, producer_id, epoch, 1, b"b", index=1, name="y") == (49, -1)


@pytest.mark.parametrize("version", versions(END))
@pytest.mark.parametrize("committed", [True, False])
def test_the_end_of_a_transaction(client, rig, partitions, version, committed):
    _, producer_id, epoch = init(client)
    add(client, 3, producer_id, epoch, 0)
    assert produce(client, rig, 9, producer_id, epoch, 0, b"a", b"b") == (0, 0)
    assert partitions[0].stable_offset == 0
    told = (0, producer_id, epoch + 1) if version >= 5 else (0, -1, -1)
    assert end(client, version, producer_id, epoch, committed) == told
    assert partitions[0].stable_offset == 3
    assert end(client, version, producer_id, epoch, committed) == told, "repeated"
    assert end(client, version, producer_id, epoch, not committed) == (48, -1, -1)
    assert end(client, version, producer_id, epoch + 9, committed)[0] == (FENCED if version >= 2 else OLD_EPOCH)
    assert end(client, version, producer_id, epoch, committed, name="") == (42, -1, -1)
    assert end(client, version, producer_id, epoch, committed, name="nobody") == (49, -1, -1)


@pytest.mark.parametrize("version", versions(FETCH))
def test_readers_of_committed_records_are_told_what_was_aborted(client, rig, partitions, version):
    _, producer_id, epoch = init(client)
    for committed in (False, True, False):
        produce(client, rig, 12, producer_id, epoch, 0, b"no" if not committed else b"yes")
        _, producer_id, epoch = end(client, 5, producer_id, epoch, committed)
    produce(client, rig, 12, producer_id, epoch, 0, b"open")
    part = fetch(client, rig, version, read_committed=True)
    assert (part.high_watermark, part.last_stable_offset) == (7, 6)
    assert [(each.producer_id, each.first_offset) for each in part.aborted_transactions] == [
        (producer_id, 0), (producer_id, 4)
    ]  # fmt: skip
    assert values(part.records) == [b"no", b"yes", b"no"]
    later = fetch(client, rig, version, read_committed=True, offset=2)
    assert [each.first_offset for each in later.aborted_transactions] == [4]
    at_the_end = fetch(client, rig, version, read_committed=True, offset=6)
    assert (bytes(at_the_end.records), at_the_end.aborted_transactions) == (b"", [])
    everything = fetch(client, rig, version, read_committed=False)
    assert everything.aborted_transactions is None
    assert values(everything.records) == [b"no", b"yes", b"no", b"open"]


def test_a_parked_fetch_of_committed_records_waits_for_the_end(client, rig, partitions):
    _, producer_id, epoch = init(client)
    reader = rig.client()
    topic = rig.broker.topic("t")
    wanted = made(
        FETCH, "FetchTopic.FetchPartition", partition=0, current_leader_epoch=-1, fetch_offset=0,
        last_fetched_epoch=-1, log_start_offset=-1, partition_max_bytes=1 << 20,
    )  # fmt: skip
    asked = made(FETCH, "FetchTopic", topic="t", topic_id=uuid.UUID(bytes=topic.id), partitions=[wanted])
    request = reader.encode(
        FETCH, 12, replica_id=-1, max_wait_ms=30_000, min_bytes=100, max_bytes=1 << 20, isolation_level=1,
        session_id=0, session_epoch=-1, topics=[asked], forgotten_topics_data=[], rack_id="",
    )  # fmt: skip
    reader.feed(request)
    produce(client, rig, 12, producer_id, epoch, 0, b"a" * 200)
    assert reader.answers() == []
    end(client, 5, producer_id, epoch)
    (answer,) = reader.answers()
    assert values(answer.responses[0].partitions[0].records) == [b"a" * 200]


@pytest.mark.parametrize("version", versions(LIST_OFFSETS, 2))
def test_the_end_for_readers_of_committed_records(client, rig, partitions, version):
    _, producer_id, epoch = init(client)
    rig.append(partitions[0], b"plain")
    produce(client, rig, 12, producer_id, epoch, 0, b"open")
    for isolation, expected in ((0, 2), (1, 1)):
        wanted = made(
            LIST_OFFSETS, "ListOffsetsTopic.ListOffsetsPartition", partition_index=0, current_leader_epoch=-1,
            timestamp=-1,
        )  # fmt: skip
        topic = made(LIST_OFFSETS, "ListOffsetsTopic", name="t", partitions=[wanted])
        answer = client.ask(LIST_OFFSETS, version, replica_id=-1, isolation_level=isolation, topics=[topic])
        assert answer.topics[0].partitions[0].offset == expected


@pytest.mark.parametrize("version", versions(ADD_OFFSETS))
def test_groups_are_added(client, rig, version):
    _, producer_id, epoch = init(client)

    def ask(**changed):
        fields = {"transactional_id": "x", "producer_id": producer_id, "producer_epoch": epoch, "group_id": "g"}
        return client.ask(ADD_OFFSETS, version, **(fields | changed)).error_code

    assert ask() == 0
    assert ask(producer_epoch=epoch + 1) == (FENCED if version >= 2 else OLD_EPOCH)
    assert ask(producer_id=producer_id + 1) == 49
    assert ask(transactional_id="") == 42
    assert ask(group_id="") == 24
    assert list(rig.broker.state.transactions.by_name["x"].groups) == ["g"]


@pytest.mark.parametrize("version", versions(COMMIT_OFFSETS))
def test_progress_with_a_transaction(client, rig, partitions, version):
    _, producer_id, epoch = init(client)
    if version < 5:
        missing = 120 if version >= 4 else 48
        assert commit_offsets(client, version, producer_id, epoch, (0, 7)) == {0: missing}
        client.ask(ADD_OFFSETS, 3, transactional_id="x", producer_id=producer_id, producer_epoch=epoch, group_id="g")
    assert commit_offsets(client, version, producer_id, epoch, (0, 7), (5, 1)) == {0: 0, 5: 3}
    assert commit_offsets(client, version, producer_id, epoch + 1, (0, 8)) == {0: OLD_EPOCH}
    assert commit_offsets(client, version, producer_id, epoch, (0, 8), group="") == {0: 24}
    if version >= 3:
        member = {"generation_id": 3, "member_id": "m", "group_instance_id": None}
        assert commit_offsets(client, version, producer_id, epoch, (0, 8), **member) == {0: 22}
    assert rig.broker.groups.offsets("g") == {}
    end(client, 5, producer_id, epoch)
    assert rig.broker.groups.offsets("g")[partitions[0]].offset == 7


@pytest.mark.parametrize("version", versions(COMMIT_OFFSETS, 3))
def test_a_member_with_an_old_epoch_commits_only_what_it_has_had_since(client, rig, partitions, version):
    """Java's producers take 22 for a reason to abort, and 113 for a fatal one."""
    rig.broker.groups.allocators = {"averagely": averagely}

    def beat(member_id, epoch=0, **said):
        joins = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
        fields = {"group_id": "g", "member_id": member_id, "member_epoch": epoch} | (said if epoch else joins)
        return client.ask(HEARTBEAT, 1, **fields)

    def commit(epoch, *offsets):
        return commit_offsets(client, version, producer_id, 0, *offsets, member_id="a", generation_id=epoch)

    def owned(*indexes):
        wanted = made(HEARTBEAT, "TopicPartitions", topic_id=uuid.UUID(bytes=rig.broker.topic("t").id))
        wanted.partitions = list(indexes)
        return {"topic_partitions": [wanted]}

    _, producer_id, _ = init(client)
    client.ask(ADD_OFFSETS, 3, transactional_id="x", producer_id=producer_id, producer_epoch=0, group_id="g")
    beat("a")
    beat("b")
    beat("a", 1)
    assert beat("a", 1, **owned(0)).member_epoch == 2
    assert commit(1, (0, 7)) == {0: 0}, "it has had it all the time"
    assert beat("b", 2).assignment.topic_partitions[0].partitions == [1]
    assert commit(1, (0, 8), (1, 8)) == {0: 22, 1: 22}, "all or nothing"
    assert commit(3, (0, 8)) == {0: 22}
    assert commit(-1, (0, 8)) == {0: 22}
    assert commit(2, (0, 9)) == {0: 0}
    end(client, 5, producer_id, 0)
    assert {each.index: found.offset for each, found in rig.broker.groups.offsets("g").items()} == {0: 9}


@pytest.mark.parametrize("version", versions(OFFSET_FETCH, 7))
@pytest.mark.parametrize("by_name", [True, False])
def test_whoever_requires_stable_progress_waits_for_the_end(client, rig, partitions, version, by_name):
    _, producer_id, epoch = init(client)
    rig.broker.groups.commit("g", -1, "", None, [(partitions[0], 3, -1, ""), (partitions[1], 4, -1, "")])
    commit_offsets(client, 5, producer_id, epoch, (0, 7))

    def ask(require_stable):
        asked = None
        if version < 8:
            if by_name:
                asked = [made(OFFSET_FETCH, "OffsetFetchRequestTopic", name="t", partition_indexes=[0, 1])]
            answer = client.ask(OFFSET_FETCH, version, group_id="g", topics=asked, require_stable=require_stable)
            topics = answer.topics
        else:
            if by_name:
                asked = [
                    made(
                        OFFSET_FETCH, "OffsetFetchRequestGroup.OffsetFetchRequestTopics", name="t",
                        topic_id=uuid.UUID(bytes=partitions[0].topic.id), partition_indexes=[0, 1],
                    )
                ]  # fmt: skip
            group = made(OFFSET_FETCH, "OffsetFetchRequestGroup", group_id="g", topics=asked)
            topics = client.ask(OFFSET_FETCH, version, groups=[group], require_stable=require_stable).groups[0].topics
        return [(part.partition_index, part.committed_offset, part.error_code) for part in topics[0].partitions]

    assert ask(False) == [(0, 3, 0), (1, 4, 0)]
    assert ask(True) == [(0, -1, 88), (1, 4, 0)]
    end(client, 5, producer_id, epoch)
    assert ask(True) == [(0, 7, 0), (1, 4, 0)]


@pytest.mark.parametrize("version", versions(OFFSET_FETCH, 1))
def test_progress_that_could_still_be_lost_with_its_transaction_is_not_told(client, rig, partitions, version):
    _, producer_id, epoch = init(client)
    commit_offsets(client, 5, producer_id, epoch, (0, 7))
    rig.turn()
    ended = {"transactional_id": "x", "producer_id": producer_id, "producer_epoch": epoch, "committed": True}
    client.feed(client.encode(END, 5, **ended))
    other = rig.client()
    if version < 8:
        named = made(OFFSET_FETCH, "OffsetFetchRequestTopic", name="t", partition_indexes=[0])
        asked = {"group_id": "g", "topics": [named]}
    else:
        asked = {"groups": [made(OFFSET_FETCH, "OffsetFetchRequestGroup", group_id="g", topics=None)]}
    if version >= 7:
        asked["require_stable"] = version % 2 == 0
    other.feed(other.encode(OFFSET_FETCH, version, **asked))
    assert other.answers() == []
    rig.turn()
    (answer,) = other.answers()
    (topic,) = answer.topics if version < 8 else answer.groups[0].topics
    assert [(part.partition_index, part.committed_offset) for part in topic.partitions] == [(0, 7)]


def test_how_producers_and_transactions_stand(client, rig, partitions):
    _, producer_id, epoch = init(client)
    _, other_id, _ = init(client, name="y")
    produce(client, rig, 12, producer_id, epoch, 0, b"a", b"b")
    (state, nobody, empty) = client.ask(DESCRIBE, 0, transactional_ids=["x", "nobody", ""]).transaction_states
    assert (state.error_code, state.transaction_state, state.producer_id, state.producer_epoch) == (
        0, "Ongoing", producer_id, 0
    )  # fmt: skip
    assert (state.transaction_timeout_ms, state.transaction_start_time_ms) == (60_000, rig.clock.now_ms)
    assert [(topic.topic, topic.partitions) for topic in state.topics] == [("t", [0])]
    assert (nobody.error_code, empty.error_code) == (105, 42)

    topic = made(DESCRIBE_PRODUCERS, "TopicRequest", name="t", partition_indexes=[0, 1, 7])
    parts = client.ask(DESCRIBE_PRODUCERS, 0, topics=[topic]).topics[0].partitions
    assert [part.error_code for part in parts] == [0, 0, 3]
    (found,) = parts[0].active_producers
    assert (found.producer_id, found.producer_epoch, found.last_sequence, found.current_txn_start_offset) == (
        producer_id, 0, 1, 0
    )  # fmt: skip
    end(client, 5, producer_id, epoch)
    parts = client.ask(DESCRIBE_PRODUCERS, 0, topics=[topic]).topics[0].partitions
    (found,) = parts[0].active_producers
    assert (found.producer_epoch, found.last_sequence, found.current_txn_start_offset) == (1, -1, -1)

    def listed(version=1, **filters):
        fields = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1} | filters
        if version < 1:
            del fields["duration_filter"]
        answer = client.ask(LIST, version, **fields)
        rows = [(row.transactional_id, row.transaction_state) for row in answer.transaction_states]
        return sorted(rows), answer.unknown_state_filters

    assert listed(0) == ([("x", "CompleteCommit"), ("y", "Empty")], [])
    assert listed(state_filters=["Empty", "Nonsense"]) == ([("y", "Empty")], ["Nonsense"])
    assert listed(producer_id_filters=[producer_id]) == ([("x", "CompleteCommit")], [])
    assert other_id != producer_id
    rig.clock.now_ms += 5_000
    assert listed(duration_filter=4_000)[0] == [("x", "CompleteCommit"), ("y", "Empty")]
    assert listed(duration_filter=6_000)[0] == [("y", "Empty")]
    for pattern, expected in ((None, ["x", "y"]), ("", ["x", "y"]), ("x|z", ["x"]), ("[a-y]", ["x", "y"]), ("z", [])):
        assert [name for name, _ in listed(2, transactional_id_pattern=pattern)[0]] == expected
    asked = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
    assert client.ask(LIST, 2, transactional_id_pattern="[", **asked).error_code == 128


@pytest.mark.parametrize("version", versions(WRITE_MARKERS, 1))
def test_an_operator_aborts_in_single_partitions(client, rig, partitions, version):
    _, producer_id, epoch = init(client)
    produce(client, rig, 12, producer_id, epoch, 0, b"a")

    def ask(result, given_epoch=epoch, index=0):
        topic = made(WRITE_MARKERS, "WritableTxnMarker.WritableTxnMarkerTopic", name="t", partition_indexes=[index])
        one = made(
            WRITE_MARKERS, "WritableTxnMarker", producer_id=producer_id, producer_epoch=given_epoch,
            transaction_result=result, topics=[topic], coordinator_epoch=0, transaction_version=0,
        )  # fmt: skip
        (marker,) = client.ask(WRITE_MARKERS, version, markers=[one]).markers
        return marker.topics[0].partitions[0].error_code

    assert ask(True) == 42
    assert ask(False, epoch - 1) == OLD_EPOCH
    assert ask(False, index=9) == 3
    assert partitions[0].stable_offset == 0
    assert ask(False) == 0
    assert partitions[0].stable_offset == 2


def test_features_say_that_ends_raise_the_epoch(client):
    software = {"client_software_name": "rig", "client_software_version": "1.0"}
    for version in (3, 4):
        answer = client.ask(18, version, **software)
        supported = [(each.name, each.min_version, each.max_version) for each in answer.supported_features or []]
        assert (("transaction.version", 0, 2) in supported) == (version >= 4)
        finalized = [(each.name, each.max_version_level) for each in answer.finalized_features]
        assert ("transaction.version", 2) in finalized
        assert answer.finalized_features_epoch >= 0


def test_a_disk_that_fails_is_told_as_a_coordinator_to_be_asked_again(client, rig, partitions):
    _, producer_id, epoch = init(client)
    produce(client, rig, 12, producer_id, epoch, 0, b"a")
    rig.fs.fail_sync = True
    client.feed(
        client.encode(END, 5, transactional_id="x", producer_id=producer_id, producer_epoch=epoch, committed=True)
    )
    rig.turn()
    (answer,) = client.answers()
    assert (answer.error_code, answer.producer_id) == (15, -1)


@pytest.mark.parametrize("version", versions(END))
def test_a_large_transaction_is_answered_when_it_has_ended(rig, client, partitions, monkeypatch, version):
    monkeypatch.setattr(prepared, "MARKERS_AT_ONCE", 0)
    rig.broker.start()
    rig.turns()
    _, producer_id, epoch = init(client)
    add(client, 3, producer_id, epoch, 0)
    assert produce(client, rig, 9, producer_id, epoch, 0, b"one") == (0, 0)
    other, admin = rig.client(), rig.client()
    said = {"transactional_id": "x", "producer_id": producer_id, "producer_epoch": epoch, "committed": True}
    client.feed(client.encode(END, version, **said))
    rig.turn()
    assert client.answers() == [], "it is prepared"
    assert init(other) == (CONCURRENT, -1, -1)
    assert end(other, version, producer_id, epoch)[0] == CONCURRENT
    described = admin.ask(DESCRIBE, 0, transactional_ids=["x"]).transaction_states[0]
    assert described.transaction_state == "PrepareCommit"
    relays = rig.broker.kernel.relays
    while relays.has_work:
        assert relays.step() is None
    assert client.answers() == [], "it is not durable"
    rig.turn()
    (answer,) = client.answers()
    assert answer.error_code == 0
    assert partitions[0].stable_offset == partitions[0].high_watermark == 2
    assert init(other) == (0, producer_id, epoch + 1 + (version >= 5))
