"""A data directory of one process becomes one of shards: nothing is lost or doubled, and no record is copied."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from halfmoon.adapters.kafka.shard_messages import in_time
from halfmoon.cluster.placement import coordinator_of
from halfmoon.core.append_types import Piece
from halfmoon.core.catalog.topics import RemotePartition
from halfmoon.core.records.batches import parse_header
from halfmoon.core.steps import finish
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.core.storage.log_files import list_segments
from halfmoon.errors import BrokerError, StartError
from halfmoon.offline.verifying import verify
from halfmoon.plugins.store.delay.delays import LEVEL_TOPIC, TIMER_TOPIC
from halfmoon.plugins.store.transaction.half_messages import END_TOPIC, HALF_TOPIC
from halfmoon.schema import control
from halfmoon.schema.provenance import Provenance, SentBack, SourceRun
from halfmoon.schema.readable_topics import AUDIT_TOPIC
from halfmoon.schema.shards import OWN_PRODUCERS_BITS
from halfmoon.schema.snapshot import EMPTY
from halfmoon.server.nodes.importing import Importing
from halfmoon.server.workers.importing import BEFORE, MADE, Imported, import_directory
from halfmoon.services.internal_topics.state import OFFSETS_TOPIC
from halfmoon.services.keyindex.questions import Trace, everything
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, batch, partition_of, read_all, relay, turn
from tests.core.clean_bench import COMPACT, clean, put
from tests.core.relay_bench import pass_ms, send
from tests.server.nodes.unused import ClusterShards, MemoryUnused
from tests.server.workers.import_bench import SHARDS, Records, Shards, name_in, open_one, records_of
from tests.services.transactions.transaction_bench import TxnClient, committed_values

GROUPS = [name_in(shard) for shard in range(SHARDS)]
SHARE = [name_in(shard, "share") for shard in range(SHARDS)]
PRODUCERS = [name_in(shard, "txn") for shard in range(SHARDS)]
HOUR_MS = 3_600_000
LATE_MS = 100 * HOUR_MS


class Before:
    """What the directory had in it."""

    def __init__(self) -> None:
        self.records: Records = {}
        self.delayed: dict[bytes, tuple[str, int]] = {}
        """Value → where it goes."""
        self.half: dict[bytes, tuple[str, int]] = {}
        self.next_topic = 0
        self.next_producer = 0
        self.generation = 0


def fill(broker: BareNode, clock: VirtualClock) -> Before:
    """Everything there is, in several segments."""
    found = Before()
    for name, partitions, configs in (
        ("orders", 8, {}), ("gone", 3, {}), ("keyed", 4, COMPACT), (END_TOPIC, SHARDS, {}), ("retry.g0", 1, {}),
        ("indexed", 4, {"halfmoon.key.index": "true"}),
    ):  # fmt: skip
        broker.create_topic(name, partitions, configs)
    view = {"halfmoon.view.source": "orders", "halfmoon.view.prefix": "a"}
    broker.create_topic("orders.a", -1, view)
    for number in range(160):
        index = number % 8
        send(broker, "orders", (b"%s%d-" % (b"ab"[number % 2 :][:1], number) + b"x" * 3_000, {}), index=index)
        put(broker, "keyed", (b"k%d" % (number % 5), b"%d" % number), index=number % 4)
        send(broker, "indexed", (b"i%d" % number, {"KEYS": f"key{number}"}), index=number % 4)
        send(broker, "gone", (b"gone", {}), index=number % 3)
        relay(broker)
    clean(broker, clock)
    for index in range(8):
        send(broker, "orders", (b"once", {}), index=index, producer_id=9, producer_epoch=0, base_sequence=0)
    broker.delete_topic(broker.topic("gone"))
    for number in range(24):
        value, topic, index = b"late%d" % number, "orders", number % 8
        header = {"TIMER_DELAY_MS": str(HOUR_MS)} if number % 2 else {"DELAY": "18"}
        send(broker, topic, (value, header), index=index)
        found.delayed[value] = topic, index
        value = b"half%d" % number
        send(broker, topic, (value, {"TRAN_MSG": "true", "PGROUP": "shop", "UNIQ_KEY": f"u{number}"}), index=index)
        found.half[value] = topic, index
    relay(broker)
    groups(broker)
    broker.create_topic(OFFSETS_TOPIC, 50, {"cleanup.policy": "compact"}, internal=True)
    relay(broker)
    broker.create_topic(AUDIT_TOPIC, 1, internal=True)
    send(broker, AUDIT_TOPIC, (b"{}", {}))
    transactions(broker)
    unwritten(broker)
    broker.append_control(control.ResourceConfigsSet("group", "g0", {"consumer.session.timeout.ms": "46000"}))
    broker.append_control(control.QuotasSet([("user", "alice")], {"producer_byte_rate": 5_000_000.0}))
    broker.append_control(control.AclsChanged([control.AclRule(2, "orders", 3, "User:alice", "*", 3, 3)], []))
    broker.append_control(control.UsersChanged([control.User("alice", admin=True)], []))
    token = control.DelegationToken("t", "User:alice", "User:alice", [], 1, 1 << 50, 1 << 50)
    broker.append_control(control.TokensChanged([token], []))
    relay(broker)
    found.records = {place: rows for place, rows in records_of({0: broker}).items() if place[0] != OFFSETS_TOPIC}
    found.generation = broker.generation
    return found


def groups(broker: BareNode) -> None:
    number = partition_of(broker, "orders").topic.number
    for nth, group in enumerate(GROUPS):
        rows = [(number, index, control.Committed(10 + nth, -1, "", 1)) for index in range(8)]
        broker.append_control(control.OffsetsCommitted(group, rows))
        back = SentBack(group, (SourceRun(number, 1, 3, 2),))
        made = batch(b"again %d" % nth)
        proof = Provenance(sent_back=back)
        piece = Piece(partition_of(broker, "retry.g0"), made, parse_header(made), proof)
        broker.append_group([piece], broker.clock.wall_ms())
    for nth, group in enumerate(SHARE):
        broker.append_control(control.ShareGroupSaved(group, 3 + nth))
        for index in range(8):
            broker.append_control(control.ShareChanged(group, number, index, 2, [(4, 6, 2, 1)]))


def transactions(broker: BareNode) -> None:
    """One committed, one aborted, one ongoing, one prepared."""
    for nth, name in enumerate(PRODUCERS):
        producer = TxnClient(broker, name, bumps=False)
        producer.init()
        for index in range(3):
            producer.send("orders", b"a txn %d" % nth, index=index)
        producer.commit_offsets(GROUPS[0], "orders", 77 + nth, index=7)
        turn(broker)
        if nth < 2:
            producer.end(commit=nth == 0)
        elif nth == 3:
            identity = broker.transactions.by_name[name].identity
            broker.append_control(control.TransactionPrepared(name, identity, True, broker.clock.wall_ms()))
        turn(broker)


def unwritten(broker: BareNode) -> None:
    """Something is left to be written into Kafka's internal topic."""
    turn(broker)
    number = partition_of(broker, "orders").topic.number
    broker.append_control(control.OffsetsCommitted("left", [(number, 0, control.Committed(1, -1, "", 1))]))
    assert broker.state.internal_topics.unwritten


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def before(folder: Path, clock: VirtualClock) -> Before:
    broker = open_one(folder, clock)
    found = fill(broker, clock)
    found.next_topic = broker.catalog.next_topic_number
    found.next_producer = broker.catalog.next_producer_id
    broker.close()
    (folder / "plugins" / "follower").mkdir(parents=True)
    (folder / "plugins" / "follower" / "mine.position").write_bytes(b"how far it has come")
    (folder / "plugins" / "follower" / "own.txt").write_text("stays")
    return found


@pytest.fixture
def imported(folder: Path, before: Before, clock: VirtualClock) -> Imported:
    made = import_directory(folder, SHARDS, clock=clock)
    assert made is not None
    assert (made.transactions, made.transactional_ids) == (1, len(PRODUCERS))
    return made


@pytest.fixture(params=["workers", "cluster"])
def shards(
    request: pytest.FixtureRequest, folder: Path, tmp_path: Path, before: Before, clock: VirtualClock
) -> Iterator[Shards]:
    """Of several workers, or of a cluster."""
    if request.param == "workers":
        request.getfixturevalue("imported")
        opened = Shards(folder, clock)
        yield opened
        opened.close()
        return
    unused = MemoryUnused(SHARDS)
    made = asyncio.run(Importing(folder, unused, unused.store, clock=clock).run())
    assert (made.transactions, made.transactional_ids) == (1, len(PRODUCERS))
    with ClusterShards(unused, tmp_path / "cache", clock) as opened:
        yield opened


def test_every_record_is_where_it_was(shards: Shards, before: Before) -> None:
    found = records_of(shards.nodes)
    assert {place: rows[: len(before.records[place])] for place, rows in found.items()} == before.records
    for topic in shards.shared.catalog.by_number.values():
        for partition in topic.partitions:
            holders = [
                number for number, node in shards.nodes.items()
                if not isinstance(node.catalog.by_number[topic.number].partitions[partition.index], RemotePartition)
            ]  # fmt: skip
            assert holders == [shards.placed(topic.name, partition.index)]
    assert len({shards.placed("orders", index) for index in range(8)}) == SHARDS
    assert [shards.placed("orders.a", index) for index in range(8)] == [
        shards.placed("orders", index) for index in range(8)
    ]


def test_transactions_are_ended_and_their_ids_forgotten(shards: Shards) -> None:
    for index in range(3):
        partition = partition_of(shards.at("orders", index), "orders", index)
        assert partition.transactions is not None
        assert partition.transactions.open == {}
        assert partition.stable_offset == partition.high_watermark
        there = [value for value in committed_values(shards.at("orders", index), "orders", index) if b"txn" in value]
        assert there == [b"a txn 0", b"a txn 3"]
    for node in shards.nodes.values():
        assert node.transactions.by_name == {}
    number = shards.shared.catalog.by_name["orders"].number
    offsets = shards.nodes[0].state.groups.offsets[GROUPS[0]]
    assert offsets[number, 7].offset == 80  # of the last one, which was prepared to commit


def test_groups_are_where_they_are_coordinated(shards: Shards) -> None:
    number = shards.shared.catalog.by_name["orders"].number
    for at, node in shards.nodes.items():
        groups = node.state.groups.offsets
        assert [name for name in groups if name != "left"] == [GROUPS[at]]
        assert ("left" in groups) == (at == coordinator_of("left", SHARDS))
        assert [groups[GROUPS[at]][number, index].offset for index in range(7)] == [10 + at] * 7
        nacked = node.state.nacked.nacked
        assert list(nacked) == [GROUPS[at]]
        assert nacked[GROUPS[at]][number, 1].numbers() is not None
        assert node.state.share.epochs == {SHARE[at]: 3 + at}
        here = {(number, index) for index in range(8) if shards.placed("orders", index) == at}
        assert {
            group: set(places) for group, places in node.state.share.delivery_states.items() if places
        } == dict.fromkeys(SHARE, here)


def test_each_waiting_message_comes_once(shards: Shards, before: Before, clock: VirtualClock) -> None:
    shards.relay()
    waiting = dict.fromkeys((LEVEL_TOPIC, TIMER_TOPIC, HALF_TOPIC), 0)
    for name in waiting:
        for _, node in shards.holders(name):
            waiting[name] += sum(len(partition.pending or ()) for partition in node.topic(name).partitions)
    assert waiting == {LEVEL_TOPIC: 12, TIMER_TOPIC: 12, HALF_TOPIC: 24}
    for node in shards.nodes.values():
        pass_ms(node, clock, 3 * HOUR_MS)
    found = records_of(shards.nodes)
    delivered = [
        (value, place) for place, rows in found.items() for _, value in rows if value.startswith(b"late")
    ]  # fmt: skip
    assert sorted(delivered) == sorted(before.delayed.items())


def test_half_messages_end_once(shards: Shards, before: Before, clock: VirtualClock) -> None:
    shards.relay()
    ends = [(b"", {"PGROUP": "shop", "UNIQ_KEY": f"u{number}", "TRAN_STATE": "commit"}) for number in range(24)]
    for _ in range(2):
        for node in shards.nodes.values():
            for each in ends:
                end_half(node, each)
            relay(node)
    found = records_of(shards.nodes)
    committed = [(value, place) for place, rows in found.items() for _, value in rows if value.startswith(b"half")]
    assert sorted(committed) == sorted(before.half.items())


def end_half(node: BareNode, row: tuple[bytes, dict[str, str]]) -> None:
    """In the shard's own partition; the message may wait in another."""
    with suppress(BrokerError):
        send(node, END_TOPIC, row, index=node.topic(END_TOPIC).here()[0].index)


def test_numbers_given_out_later_collide_with_nothing(shards: Shards, before: Before) -> None:
    catalog = shards.shared.catalog
    assert catalog.next_topic_number == before.next_topic
    assert "gone" in catalog.deleted.values()
    for number, node in shards.nodes.items():
        assert node.catalog.next_topic_number == before.next_topic
        assert node.allocate_producer_id()[0] >> OWN_PRODUCERS_BITS == number
        assert node.generation > before.generation
        assert node.catalog.next_producer_id >= before.next_producer
        topic, _ = node.create_topic("own", 1, internal=True)
        assert node.catalog.shard is not None
        assert node.catalog.shard.owns(topic.number)
        assert topic.number not in catalog.by_number
    queues = [partition.queue_number for topic in catalog.by_number.values() for partition in topic.partitions]
    assert len(queues) == len(set(queues))
    assert catalog.next_queue_number > max(queues)


def test_internal_topics_that_clients_read(shards: Shards, before: Before) -> None:
    """Kafka's go, and are made anew when somebody asks; of that of audit each shard has a partition."""
    catalog = shards.shared.catalog
    assert catalog.topic(OFFSETS_TOPIC) is None
    for number, node in shards.nodes.items():
        assert node.topic(OFFSETS_TOPIC) is None
        assert node.state.internal_topics.unwritten == {}
        assert [partition.index for partition in node.topic(AUDIT_TOPIC).here()] == [number]
    assert read_all(shards.nodes[0], AUDIT_TOPIC) == before.records[AUDIT_TOPIC, 0]
    shards.relay()
    assert [node.relays.problems() for node in shards.nodes.values()] == [[]] * SHARDS


def test_what_is_beside_the_log(folder: Path, imported: Imported) -> None:
    assert (folder / "node.key").exists()
    assert (folder / "plugins" / "follower" / "own.txt").read_text() == "stays"
    for number in range(SHARDS):
        shard = folder / f"shard-{number:02}"
        assert (shard / "plugins" / "follower" / "mine.position").read_bytes() == b"how far it has come"
        assert not (shard / "plugins" / "follower" / "own.txt").exists()
        assert not (shard / "node.key").exists()
    exposed = OsFileSystem(folder).exposed()
    assert exposed is None or exposed.endswith("own.txt"), "messages are their owner's alone"


def test_what_administrators_set_is_shared(shards: Shards) -> None:
    common = shards.common
    assert common.configs.overrides("group", "g0") == {"consumer.session.timeout.ms": "46000"}
    assert list(common.credentials.users) == ["alice"]
    assert all(bytes(slot) == bytes(EMPTY) for slot in shards.shared.catalog.unowned.values()), "what is the shards'"
    for node in shards.nodes.values():
        assert node.state.credentials.users == {}
        assert node.state.configs.configs == {}


def test_own_topics_stay_with_each_shard(shards: Shards, clock: VirtualClock) -> None:
    for _, node in shards.holders(TIMER_TOPIC):
        assert node.catalog.shard is not None
        assert node.topic(TIMER_TOPIC).number in node.catalog.shard.own
    assert shards.shared.catalog.topic(TIMER_TOPIC) is None
    assert len(list(shards.holders(TIMER_TOPIC))) == SHARDS
    at = shards.at("orders", 5)
    send(at, "orders", (b"later", {"TIMER_DELAY_MS": "60000"}), index=5)
    relay(at)
    pass_ms(at, clock, 61_000)
    assert b"later" in [value for _, value in read_all(at, "orders", 5)]


def test_views_go_on_where_they_were(shards: Shards, before: Before) -> None:
    for index in range(8):
        node = shards.at("orders", index)
        send(node, "orders", (b"a new", {}), (b"b new", {}), index=index)
        relay(node)
        seen = [value for _, value in read_all(node, "orders.a", index)]
        # What the transactions were, it sees when they are ended.
        known = [value for _, value in before.records.get(("orders.a", index), [])]
        assert seen[: len(known)] == known
        assert seen.count(b"a new") == 1
        assert b"b new" not in seen
        assert len(seen) == len(set(seen))


def test_a_producer_that_goes_on_is_known(shards: Shards) -> None:
    """It sends again what it does not know to be acknowledged, and then what follows."""
    for index in range(8):
        node = shards.at("orders", index)
        rows = read_all(node, "orders", index)
        (offset,) = [offset for offset, value in rows if value == b"once"]
        fields = {"index": index, "producer_id": 9, "producer_epoch": 0}
        assert send(node, "orders", (b"once", {}), base_sequence=0, **fields) == offset
        assert send(node, "orders", (b"next", {}), base_sequence=1, **fields) == rows[-1][0] + 1


def test_messages_are_found_once_and_their_history_is_told_once(shards: Shards) -> None:
    """Although the files that say where they are, are those of all shards."""
    shards.relay()
    for topic, key in (("indexed", "key7"), ("indexed", "key8"), ("orders", "u3"), ("orders", "u6")):
        found = [
            (message.value, message.topic)
            for node in shards.nodes.values()
            for message in finish(node.messages.find(node.topic(topic), key.encode(), ended=True)).messages
        ]
        assert len(found) == 1, found
    places = ((HALF_TOPIC, 0, 3),)
    histories = [finish(node.messages.trace(Trace(places), everything)) for node in shards.nodes.values()]
    assert [event.what for event in in_time(each.events for each in histories)] == ["waits"]
    assert {each.places for each in histories} == {()}, "each shard has other messages there from now on"


def test_each_shard_is_a_whole_data_directory(folder: Path, imported: Imported, clock: VirtualClock) -> None:
    for _ in range(2):
        for number in range(SHARDS):
            report = verify(folder / f"shard-{number:02}")
            assert report.ok, (number, report.problems)
            assert report.records > 100
        Shards(folder, clock).close()
    assert verify(folder / BEFORE).ok


def test_the_directory_of_before_is_one_still(
    folder: Path, imported: Imported, before: Before, clock: VirtualClock
) -> None:
    """It shares no byte with the shards that anybody writes to."""
    opened = Shards(folder, clock)
    found = records_of(opened.nodes)
    broker = open_one(folder / BEFORE, clock)
    for number in range(40):
        send(broker, "orders", (b"%d" % number + b"y" * 3_000, {}), index=number % 8)
        relay(broker)
    was = {place: rows for place, rows in records_of({0: broker}).items() if place in before.records}
    assert {place: rows[: len(before.records[place])] for place, rows in was.items()} == before.records
    broker.close()
    assert records_of(opened.nodes) == found
    opened.close()


def test_no_file_is_copied(folder: Path, imported: Imported) -> None:
    shared = list_segments(OsFileSystem(folder / BEFORE))[:-1]
    assert len(shared) > 3
    for _, path in shared:
        assert (folder / BEFORE / path).stat().st_nlink == SHARDS + 1
    assert not (folder / MADE).exists()
    assert not (folder / "log").exists()


def test_shards_are_whole_after_a_second_start_without_what_is_derived(
    folder: Path, imported: Imported, before: Before, clock: VirtualClock
) -> None:
    """The log alone says all of it."""
    for number in range(SHARDS):
        for path in ("checkpoint", "clean"):
            (folder / f"shard-{number:02}" / path).unlink()
        for path in (folder / f"shard-{number:02}" / "index").iterdir():
            path.unlink()
    opened = Shards(folder, clock)
    found = records_of(opened.nodes)
    assert {place: rows[: len(before.records[place])] for place, rows in found.items()} == before.records
    test_groups_are_where_they_are_coordinated(opened)
    test_each_waiting_message_comes_once(opened, before, clock)
    opened.close()


def let_expire(node: BareNode) -> None:
    """All that is in topics, but what waits; and the segments that this leaves dead."""
    for topic in node.catalog.topics():
        for partition in topic.here():
            if partition.high_watermark > partition.start_offset and partition.pending is None:
                move = (topic.number, partition.index, partition.high_watermark)
                node.append_control(control.StartOffsetsMoved([move]))
    for _ in range(3):
        relay(node)
        while not node.housekeeping.retain():
            pass
        node.housekeeping.drop_segments()
        relay(node)


def test_what_is_dead_in_each_shard_goes(folder: Path, imported: Imported, clock: VirtualClock) -> None:
    """A shard frees what others still need; the last one frees the disk."""
    first = list_segments(OsFileSystem(folder / "shard-00"))[0][1]
    shards = Shards(folder, clock)
    for number, node in shards.nodes.items():
        before = len(list_segments(OsFileSystem(folder / f"shard-{number:02}")))
        let_expire(node)
        assert len(list_segments(OsFileSystem(folder / f"shard-{number:02}"))) < before
        assert not (folder / f"shard-{number:02}" / first).exists()
        assert (folder / BEFORE / first).stat().st_nlink == SHARDS - number
        assert node.log._spare is None
    shards.close()


def test_each_shard_copies_what_lives_where_most_of_its_own_is_dead(shards: Shards, clock: VirtualClock) -> None:
    """Of a segment most is always dead for a shard. If each copied its part, all of it would be copied."""
    for node in shards.nodes.values():
        clean(node, clock)
        assert cleaned(node) == {"keyed"}
        before = node.log.start
        for topic in node.catalog.topics():
            for partition in topic.here():
                if topic.name != "indexed" and partition.pending is None and partition.high_watermark:
                    move = (topic.number, partition.index, partition.high_watermark)
                    node.append_control(control.StartOffsetsMoved([move]))
        node.create_topic("more", 1, internal=True)  # so that it is looked at again
        relay(node)
        values = {place: rows for place, rows in records_of({0: node}).items() if rows}
        for _ in range(3):
            relay(node)
            clean(node, clock)
        assert "indexed" in cleaned(node)
        assert node.log.start > before
        assert {place: rows for place, rows in records_of({0: node}).items() if rows} == values


def cleaned(node: BareNode) -> set[str]:
    """Topics of which something stands in compacted segments."""
    return {partition.topic.name for partition in node.catalog.partitions() if partition.cleaned}


def test_compaction_goes_on(shards: Shards, clock: VirtualClock) -> None:
    for index in range(4):
        node = shards.at("keyed", index)
        before = read_all(node, "keyed", index)
        for number in range(30):
            put(node, "keyed", (b"k%d" % (number % 2), b"new %d" % number), index=index)
            relay(node)
        clean(node, clock)
        found = read_all(node, "keyed", index)
        assert found[-1][1] == b"new 29"
        assert len(found) < len(before) + 30
        assert b"new 0" not in [value for _, value in found]


# -- what is refused ---------------------------------------------------------------------------------------------------


def refusal(folder: Path, shards: int = SHARDS) -> str:
    with pytest.raises(StartError) as caught:
        import_directory(folder, shards)
    return str(caught.value)


def test_what_is_no_directory_of_one_process_is_refused(folder: Path, tmp_path: Path, clock: VirtualClock) -> None:
    assert "no such directory" in refusal(folder)
    folder.mkdir()
    assert "no data directory" in refusal(folder)
    assert "from 1 to 256" in refusal(folder, 257)
    open_one(folder, clock).close()
    (folder / "before-import").mkdir()
    assert "earlier import" in refusal(folder)
    (folder / "before-import").rmdir()
    (folder / "shard-00").mkdir()
    assert "no catalog.sqlite" in refusal(folder)
    (folder / "shard-00").rmdir()
    meta = folder / "meta.json"
    said = meta.read_text()
    meta.write_text(said.replace('"format":1', '"format":2'))
    assert "newer" in refusal(folder)
    meta.write_text(said)
    other = OsFileSystem(folder)
    other.lock()
    assert "in use by another broker" in refusal(folder)
    other.unlock()
    assert import_directory(folder, SHARDS) is not None
    assert "already" in refusal(folder)


def test_a_damaged_log_is_refused(folder: Path, before: Before) -> None:
    first = list_segments(OsFileSystem(folder))[0][1]
    (folder / first).rename(folder / "away")
    said = refusal(folder)
    assert "halfmoon log verify" in said
    assert "halfmoon log repair" in said
    assert not (folder / "catalog.sqlite").exists()


def test_too_little_disk_is_refused(folder: Path, before: Before, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OsFileSystem, "free_bytes", lambda _: 1 << 20)
    assert "1 MiB are free" in refusal(folder)


def test_where_the_disk_is_too_small_transactions_go_on(
    folder: Path, before: Before, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = open_one(folder, clock)
    found = {name: (entry.identity, entry.is_ongoing) for name, entry in broker.transactions.by_name.items()}
    assert any(is_ongoing for _, is_ongoing in found.values())
    broker.close()
    with monkeypatch.context() as patch:
        patch.setattr(OsFileSystem, "free_bytes", lambda _: 1 << 20)
        assert "1 MiB are free" in refusal(folder)
    broker = open_one(folder, clock)
    assert {name: (one.identity, one.is_ongoing) for name, one in broker.transactions.by_name.items()} == found
    broker.close()


@pytest.mark.parametrize("name", ["link", "fsync"])
def test_an_import_that_fails_leaves_nothing(
    folder: Path, before: Before, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    call, calls = getattr(os, name), 0

    def failing(*given: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 40:
            raise OSError(errno.EXDEV, "another file system")
        call(*given)

    monkeypatch.setattr(os, name, failing)
    with pytest.raises(StartError, match=r"another file system|could not be written"):
        import_directory(folder, SHARDS, clock=clock)
    assert not list(folder.glob("shard-*"))
    assert not (folder / MADE).exists()
    assert not (folder / "catalog.sqlite").exists()
    broker = open_one(folder, clock)
    found = records_of({0: broker})
    assert {place: rows for place, rows in found.items() if place[0] != OFFSETS_TOPIC} == {
        place: found[place] for place in before.records
    }
    broker.close()
    assert import_directory(folder, SHARDS, clock=clock) is not None


def test_an_import_of_all_shards_there_are(folder: Path, clock: VirtualClock) -> None:
    broker = open_one(folder, clock)
    broker.create_topic("t", 32)
    for index in range(32):
        send(broker, "t", (b"%d" % index, {}), index=index)
    turn(broker)
    broker.close()
    made = import_directory(folder, 16)
    assert made is not None
    assert made.shards == 16
    with sqlite3.connect(folder / "catalog.sqlite") as catalog:
        assert catalog.execute("select id, shards from cluster").fetchone() == (made.cluster_id, 16)
    opened = Shards(folder, clock, 16)
    assert {place: [value for _, value in rows] for place, rows in records_of(opened.nodes).items()} == {
        ("t", index): [b"%d" % index] for index in range(32)
    }
    opened.close()
