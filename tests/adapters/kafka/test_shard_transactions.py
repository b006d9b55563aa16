"""Transactions over the shards of two processes, as clients see them."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_rig import RigClient, batch
from shard_rig import HERE, SHARDS, THERE, name_in
from test_api_00_produce import fields, results
from test_api_transactions import add, commit_offsets, end, init, produce, versions
from two_processes import TwoProcesses

from halfmoon.adapters.kafka.api import api_28_txn_offset_commit
from halfmoon.cluster.messages import EndTransaction
from halfmoon.cluster.placement import Layout
from halfmoon.core import checking
from halfmoon.core.catalog.topics import Topic
from halfmoon.core.records import walk
from halfmoon.core.records.batches import build_batch
from halfmoon.server.workers.transactions import TransactionShards, answers
from halfmoon.services.transactions import prepared
from tests.core.bench import values
from tests.kafka_messages import made
from tests.services.transactions.transaction_bench import committed_values, transactional_batch

PRODUCE, OFFSET_FETCH, ADD_OFFSETS, WRITE_MARKERS, DESCRIBE, HEARTBEAT = 0, 9, 25, 27, 65, 68
NOT_LEADER, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, NOT_ENOUGH_REPLICAS, OLD_EPOCH = 6, 15, 16, 19, 47
CONCURRENT = 51
OUT_OF_ORDER = 45
UNSTABLE = 88

X = name_in(0, "x")
"""Coordinated in the first process, …"""
G = name_in(1, "g")
"""… and this group in the other."""


class Both(TwoProcesses):
    def __init__(self) -> None:
        super().__init__()
        for number, node in self.nodes.items():
            for rig in self.rigs:
                rig.shared.epochs[number] = node.kernel.generation
            shared = self.rigs[self.at(number)].shared
            node.transactions.use(TransactionShards(number, Layout.of_workers(SHARDS), shared, self.questions))
            self.questions.answers[number] |= answers(node)
        self.t = self.topic("t", SHARDS)
        self.clients = [self.client(process) for process in (0, 1)]

    @property
    def broker(self) -> Any:
        """For helpers that ask a rig for its topics."""
        return self.nodes[0]

    def index(self, shard: int) -> int:
        return self.index_in(self.t, shard)

    def turn(self) -> None:
        while True:
            super().turn()
            ready = [node.kernel.relays for node in self.nodes.values() if node.kernel.relays.has_work]
            if not ready:
                return
            for relays in ready:
                while relays.has_work:
                    assert relays.step() is None

    def pass_time(self, ms: int) -> None:
        super().pass_time(ms)
        for node in self.nodes.values():
            node.transactions.expire(self.clock.now_ms)
            node.kernel.relays.expire(self.clock.now_ms)
        self.turn()

    def committed(self, shard: int) -> list[bytes]:
        return committed_values(self.nodes[shard], "t", self.index(shard))  # type: ignore[arg-type]

    def at_shard(self, shard: int) -> RigClient:
        return self.clients[self.at(shard)]

    def produce(self, shard: int, version: int, who: tuple[int, int], sequence: int, *sent: bytes) -> int:  # type: ignore[override]
        """The error code."""
        found = produce(
            self.at_shard(shard), self, version, *who, sequence, *sent, index=self.index(shard), name=X
        )  # fmt: skip
        return int(found[0])


@pytest.fixture
def both() -> Both:
    return Both()


def begun(both: Both, version: int = 12) -> tuple[int, int]:
    """A producer id and its epoch, with a record in each shard."""
    code, producer_id, epoch = init(both.clients[0], name=X)
    assert code == 0
    if version < 12:
        assert set(add(both.clients[0], 3, producer_id, epoch, *range(SHARDS), name=X).values()) == {0}
    for shard in range(SHARDS):
        assert both.produce(shard, version, (producer_id, epoch), 0, b"one") == 0
    return producer_id, epoch


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", versions(PRODUCE, 3))
def test_records_in_all_shards_count_together(both: Both, version: int, committed: bool) -> None:
    producer_id, epoch = begun(both, version)
    assert [both.committed(shard) for shard in range(SHARDS)] == [[]] * SHARDS
    told = end(both.clients[0], 5 if version >= 12 else 3, producer_id, epoch, committed, name=X)
    assert told == ((0, producer_id, epoch + 1) if version >= 12 else (0, -1, -1))
    assert [both.committed(shard) for shard in range(SHARDS)] == [[b"one"] if committed else []] * SHARDS
    assert sum(sum(node.kernel.refused_batches.values()) for node in both.nodes.values()) == 0


@pytest.mark.parametrize("version", versions(28))
@pytest.mark.parametrize("committed", [True, False])
def test_progress_of_a_group_of_another_shard(both: Both, version: int, committed: bool) -> None:
    producer_id, epoch = begun(both)
    first, second = both.clients
    if version < 5:
        missing = 120 if version >= 4 else 48
        assert commit_offsets(second, version, producer_id, epoch, (0, 7), name=X, group=G) == {0: missing}
        added = first.ask(
            ADD_OFFSETS, 3, transactional_id=X, producer_id=producer_id, producer_epoch=epoch, group_id=G
        )  # fmt: skip
        assert added.error_code == 0
    assert commit_offsets(second, version, producer_id, epoch, (0, 7), (9, 1), name=X, group=G) == {0: 0, 9: 3}
    assert commit_offsets(second, version, producer_id, epoch + 1, (0, 8), name=X, group=G) == {0: OLD_EPOCH}
    assert fetched(second) == (UNSTABLE, -1)
    end(first, 5, producer_id, epoch, committed, name=X)
    assert fetched(second) == (0, 7 if committed else -1)


def fetched(client: RigClient) -> tuple[int, int]:
    topics = [made(OFFSET_FETCH, "OffsetFetchRequestTopic", name="t", partition_indexes=[0])]
    answer = client.ask(OFFSET_FETCH, 7, group_id=G, topics=topics, require_stable=True)
    (part,) = answer.topics[0].partitions
    return part.error_code, part.committed_offset


def test_the_group_is_looked_at_again_when_the_coordinator_has_answered(both: Both) -> None:
    producer_id, epoch = begun(both)
    second = both.clients[1]
    joins = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []}

    def beat(member_epoch: int) -> Any:
        return second.encode(HEARTBEAT, 1, group_id=G, member_id="m", member_epoch=member_epoch, **joins)

    second.feed(beat(0))
    both.turn()
    (joined,) = second.answers()
    assert joined.error_code == 0
    part = made(
        28, "TxnOffsetCommitRequestTopic.TxnOffsetCommitRequestPartition", partition_index=0, committed_offset=7,
        committed_leader_epoch=-1, committed_metadata=None,
    )  # fmt: skip
    topics = [made(28, "TxnOffsetCommitRequestTopic", name="t", partitions=[part])]
    request = second.encode(
        28, 5, transactional_id=X, group_id=G, producer_id=producer_id, producer_epoch=epoch, topics=topics,
        generation_id=joined.member_epoch, member_id="m", group_instance_id=None,
    )  # fmt: skip
    second.feed(request)
    both.rigs[1].turn()
    assert second.answers() == []
    leaver = both.client(1)
    leaver.feed(leaver.encode(HEARTBEAT, 1, group_id=G, member_id="m", member_epoch=-1, **joins))
    both.turn()
    (answer,) = second.answers()
    assert answer.topics[0].partitions[0].error_code == 25, "it is no member any more"
    assert both.nodes[1].state.transactions.remote == {}


def test_what_comes_later_on_a_connection_waits(both: Both) -> None:
    _, producer_id, epoch = init(both.clients[0], name=X)
    client, index, stream = both.clients[1], both.index(1), b""
    for sequence in range(3):
        sent = bytes(
            transactional_batch(b"%d" % sequence, producer_id=producer_id, epoch=epoch, sequence=sequence)
        )  # fmt: skip
        stream += client.encode(PRODUCE, 12, **fields((index, sent), transactional_id=X))
    client.feed(stream + client.encode(PRODUCE, 12, **fields((index, batch(b"plain")))))
    both.rigs[1].turn()
    assert both.partition(both.t, index).next_offset == 0
    assert len(both.questions.asked) == 1
    both.turn()
    assert [results(answer) for answer in client.answers()] == [[(index, 0, at, -1, 0)] for at in range(4)]
    assert len(both.questions.asked) == 1


def test_one_request_for_several_shards(both: Both) -> None:
    """Its parts wait for the coordinator each, and the next request for all of them."""
    _, producer_id, epoch = init(both.clients[0], name=X)
    client, indexes = both.clients[1], [both.index(shard) for shard in THERE]

    def request(sequence: int) -> bytes:
        sent = bytes(
            transactional_batch(b"%d" % sequence * 9_000, producer_id=producer_id, epoch=epoch, sequence=sequence)
        )  # fmt: skip
        return client.encode(PRODUCE, 12, **fields(*[(index, sent) for index in indexes], transactional_id=X))

    stream = b"".join(map(request, range(3)))
    while stream:
        if not client.transport.reading:
            both.rigs[1].turn()
            assert len(both.questions.asked) == 2, "each shard asks for itself"
            assert {both.partition(both.t, index).next_offset for index in indexes} == {0}
            both.turn()
        buffer = client.connection.get_buffer(-1)
        size = min(len(buffer), len(stream))
        buffer[:size] = stream[:size]
        client.connection.buffer_updated(size)
        stream = stream[size:]
    both.turn()
    found = [[row[1:3] for row in results(answer)] for answer in client.answers()]
    assert found == [[(0, at)] * 2 for at in range(3)]
    end(both.clients[0], 5, producer_id, epoch, name=X)
    assert [both.committed(shard) for shard in THERE] == [[b"%d" % at * 9_000 for at in range(3)]] * 2


@pytest.mark.parametrize("acks", [0, 1])
@pytest.mark.parametrize("more", [0, 50], ids=["small requests", "a request with a buffer of its own"])
def test_parts_that_take_long_in_two_shards_keep_what_they_need(
    monkeypatch: pytest.MonkeyPatch, acks: int, more: int
) -> None:
    """The first to be done lets neither the next request nor others' bytes in before the last."""
    monkeypatch.setattr(walk, "walk_compiled", None)
    monkeypatch.setattr(checking, "SLICE", 10)
    both = Both()
    first, second = (both.index(shard) for shard in HERE)
    quicker = [b"quick-%02d" % at for at in range(20)]
    longer = [b"%04d" % at + b"x" * 100 * more for at in range(200)]
    rows = [build_batch([(None, value, 1_000, ()) for value in sent]) for sent in (quicker, longer)]
    client = both.clients[0]
    requests = [
        fields((first, rows[0]), (second, rows[1]), acks=acks),
        fields((first, batch(b"last")), (second, batch(b"last")), acks=acks),
    ]
    stream = b"".join(client.encode(PRODUCE, 9, **request) for request in requests)
    while stream:
        if client.transport.reading:
            buffer = client.connection.get_buffer(-1)
            size = min(len(buffer), len(stream))
            buffer[:size] = stream[:size]
            client.connection.buffer_updated(size)
            stream = stream[size:]
        else:
            due, both.rigs[0].loop.soon[:] = list(both.rigs[0].loop.soon), []
            for each in due:
                each()
    both.turn()
    shards = [values(both.nodes[shard], "t", both.index(shard)) for shard in HERE]  # type: ignore[arg-type]
    assert shards == [[*quicker, b"last"], [*longer, b"last"]]
    assert len(client.answers()) == (2 if acks else 0)


def test_a_coordinator_that_cannot_be_reached(both: Both) -> None:
    _, producer_id, epoch = init(both.clients[0], name=X)
    both.questions.unreachable = {0}
    assert both.produce(1, 12, (producer_id, epoch), 0, b"one") == NOT_ENOUGH_REPLICAS
    codes = commit_offsets(both.clients[1], 5, producer_id, epoch, (0, 7), name=X, group=G)
    assert codes == {0: COORDINATOR_NOT_AVAILABLE}
    both.questions.unreachable = set()
    both.questions.answers_get_lost = {0}
    assert both.produce(1, 12, (producer_id, epoch), 0, b"one") == NOT_ENOUGH_REPLICAS
    both.questions.answers_get_lost = set()
    assert both.produce(1, 12, (producer_id, epoch), 0, b"one") == 0
    end(both.clients[0], 5, producer_id, epoch, name=X)
    assert both.committed(1) == [b"one"]


def test_offsets_of_a_group_whose_shard_goes_to_another_process(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first wait for the transaction's coordinator, the next ones for their turn of the loop."""
    monkeypatch.setattr(api_28_txn_offset_commit, "AT_ONCE", 1)
    _, producer_id, epoch = init(both.clients[0], name=X)
    client, node = both.clients[1], both.nodes[1]
    part = "TxnOffsetCommitRequestTopic.TxnOffsetCommitRequestPartition"
    parts = [
        made(28, part, partition_index=at, committed_offset=7, committed_leader_epoch=-1, committed_metadata=None)
        for at in range(3)
    ]
    topics = [made(28, "TxnOffsetCommitRequestTopic", name="t", partitions=parts)]
    client.feed(client.encode(
        28, 5, transactional_id=X, group_id=G, producer_id=producer_id, producer_epoch=epoch, topics=topics
    ))  # fmt: skip
    both.rigs[1].turn()
    end = node.kernel.log.end
    node.kernel.appender.leaves = True
    node.transactions.send_away()
    both.rigs[1].turn()
    (answer,) = client.answers()
    assert [each.error_code for each in answer.topics[0].partitions] == [NOT_COORDINATOR] * 3
    both.turn()
    assert node.kernel.log.end == end
    assert len(both.questions.asked) == 1


def test_the_end_is_answered_when_all_shards_have_it(both: Both) -> None:
    producer_id, epoch = begun(both)
    both.questions.unreachable = {3}
    client, other = both.clients[0], both.client(0)
    ended = {"transactional_id": X, "producer_id": producer_id, "producer_epoch": epoch, "committed": True}
    client.feed(client.encode(26, 5, **ended))
    both.turn()
    assert client.answers() == []
    assert other.ask(26, 5, **ended).error_code == CONCURRENT
    assert init(other, name=X)[0] == CONCURRENT
    (state,) = other.ask(DESCRIBE, 0, transactional_ids=[X]).transaction_states
    assert (state.transaction_state, [sorted(each.partitions) for each in state.topics]) == (
        "PrepareCommit", [list(range(SHARDS))],
    )  # fmt: skip
    assert [both.committed(shard) for shard in range(SHARDS)] == [[b"one"]] * 3 + [[]]
    both.questions.unreachable = set()
    both.pass_time(prepared.ASK_AGAIN_MS)
    (answer,) = client.answers()
    assert (answer.error_code, answer.producer_epoch) == (0, epoch + 1)
    assert both.committed(3) == [b"one"]
    assert {type(asked) for _, asked in both.questions.asked[-1:]} == {EndTransaction}


def test_who_waits_for_an_end_is_sent_to_the_coordinators_next_process(both: Both) -> None:
    producer_id, epoch = begun(both)
    both.questions.unreachable = {3}
    client = both.clients[0]
    ended = {"transactional_id": X, "producer_id": producer_id, "producer_epoch": epoch, "committed": True}
    client.feed(client.encode(26, 5, **ended))
    both.turn()
    assert client.answers() == []
    both.nodes[0].kernel.appender.leaves = True
    both.nodes[0].transactions.send_away()
    both.rigs[0].turn()
    (answer,) = client.answers()
    assert (answer.error_code, answer.producer_id) == (NOT_COORDINATOR, -1)


def markers(client: RigClient, version: int, *asked: tuple[int, int, list[tuple[str, list[int]]]]) -> list[Any]:
    """[(topic, partition, code), …] of each marker."""
    wanted = []
    for producer_id, epoch, topics in asked:
        made_topics = [
            made(WRITE_MARKERS, "WritableTxnMarker.WritableTxnMarkerTopic", name=name, partition_indexes=indexes)
            for name, indexes in topics
        ]
        wanted.append(
            made(
                WRITE_MARKERS, "WritableTxnMarker", producer_id=producer_id, producer_epoch=epoch,
                transaction_result=False, topics=made_topics, coordinator_epoch=0,
            )
        )  # fmt: skip
    answer = client.ask(WRITE_MARKERS, version, markers=wanted)
    assert [each.producer_id for each in answer.markers] == [each[0] for each in asked]
    return [
        sorted(
            (topic.name, part.partition_index, part.error_code) for topic in each.topics for part in topic.partitions
        )
        for each in answer.markers
    ]


@pytest.mark.parametrize("version", versions(WRITE_MARKERS))
def test_operators_end_what_hangs_where_it_lies(both: Both, version: int) -> None:
    producer_id, epoch = begun(both)
    asked = [("t", list(range(SHARDS))), ("nowhere", [0])]
    codes = {both.index(shard): 0 if shard in HERE else NOT_LEADER for shard in range(SHARDS)}
    expected = [("nowhere", 0, 3), *(("t", index, codes[index]) for index in range(SHARDS))]
    assert markers(both.clients[0], version, (producer_id, epoch, asked), (7, 0, asked[1:])) == [
        expected, [("nowhere", 0, 3)],
    ]  # fmt: skip
    decided = [both.partition(both.t, both.index(shard)) for shard in range(SHARDS)]
    assert [each.stable_offset == each.high_watermark for each in decided] == [shard in HERE for shard in range(SHARDS)]
    assert markers(both.clients[0], version) == []
    end(both.clients[0], 5, producer_id, epoch, name=X)
    assert [both.committed(shard) for shard in range(SHARDS)] == [[], [b"one"], [], [b"one"]]


def test_a_topic_that_goes_while_the_coordinator_is_asked(both: Both) -> None:
    _, producer_id, epoch = init(both.clients[0], name=X)
    u: Topic = both.topic("u", SHARDS)
    index = both.index_in(u, 1)
    client = both.clients[1]
    sent = bytes(transactional_batch(b"a", producer_id=producer_id, epoch=epoch, sequence=0))
    client.feed(client.encode(PRODUCE, 12, **fields((index, sent), topic="u", transactional_id=X)))
    both.rigs[1].turn()
    first = both.rigs[0]
    both.change(lambda: first.delete(first.shared.catalog.by_name["u"]))
    (answer,) = client.answers()
    assert results(answer)[0][:2] == (index, 3)
    assert end(both.clients[0], 5, producer_id, epoch, name=X)[0] == 0


def test_a_batch_is_not_the_first_while_one_before_it_is_to_be_sent_again(both: Both) -> None:
    """The first has no answer of the coordinator, the second has: together they would change their places."""
    _, producer_id, epoch = init(both.clients[0], name=X)
    u: Topic = both.topic("u", SHARDS)
    index = both.index_in(u, 1)
    client = both.clients[1]

    def send(sequence: int) -> int:
        sent = bytes(transactional_batch(b"v", producer_id=producer_id, epoch=epoch, sequence=sequence))
        client.feed(client.encode(PRODUCE, 12, **fields((index, sent), topic="u", transactional_id=X)))
        both.turn()
        (answer,) = client.answers()
        return int(results(answer)[0][1])

    both.questions.unreachable = {0}
    assert send(0) not in (0, OUT_OF_ORDER)
    both.questions.unreachable = set()
    assert send(1) == OUT_OF_ORDER
    assert [send(0), send(1)] == [0, 0]
    assert end(both.clients[0], 5, producer_id, epoch, name=X)[0] == 0
    assert both.partition(u, index).stable_offset == 3


def test_who_is_not_the_producer_holds_no_place(both: Both) -> None:
    """Its epoch would fence the one who is."""
    _, producer_id, epoch = init(both.clients[0], name=X)
    u: Topic = both.topic("u", SHARDS)
    index = both.index_in(u, 1)
    client = both.clients[1]
    codes = []
    for sent_epoch in (epoch + 5, epoch):
        sent = bytes(transactional_batch(b"v", producer_id=producer_id, epoch=sent_epoch, sequence=0))
        client.feed(client.encode(PRODUCE, 12, **fields((index, sent), topic="u", transactional_id=X)))
        both.turn()
        (answer,) = client.answers()
        codes.append(int(results(answer)[0][1]))
    assert codes == [OLD_EPOCH, 0]
