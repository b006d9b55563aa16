"""Share groups on the log: what is remembered, what is read, what becomes of what was given up."""

from __future__ import annotations

import logging
import random
from types import SimpleNamespace
from typing import Any

import pytest

from halfmoon.adapters.kafka.config_entries import STATIC_BROKER_CONFIG, group_entries
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.records.batch_header import HEADER_BYTES, assemble, parse_header
from halfmoon.core.records.batches import build_batch
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.share import dead_letters
from halfmoon.services.share.delivery_state import DeliveryState, Run
from halfmoon.services.share.membership import HeartbeatRequest
from halfmoon.services.share.parts import Part, Place
from halfmoon.services.share.reading import Loading
from halfmoon.services.share.share_partition import ACCEPT, REJECT, RELEASE, RENEW, Demand
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, batch, open_broker, partition_of, relay, send, turn
from tests.core.clean_bench import COMPACT, clean, put
from tests.services.share.share_bench import ENOUGH, GROUP, acknowledge, fetch, given, letters, part_of, shown
from tests.services.transactions.transaction_bench import TxnClient


class Bench:
    def __init__(self, **share: Any) -> None:
        self.clock = VirtualClock()
        self.fs = FaultyFileSystem(random.Random(1))
        self.share = {"auto_offset_reset": "earliest", **share}
        self.log: dict[str, Any] = {}
        self.broker = self.open()
        self.broker.create_topic("t", 1)
        turn(self.broker)

    def open(self) -> BareNode:
        return open_broker(self.fs, self.clock, sections={"groups": {"share": self.share}}, **self.log)

    def restart(self) -> None:
        """After kill −9."""
        turn(self.broker)
        self.fs = self.fs.kill()
        self.broker = self.open()

    def send(self, count: int, batches: int = 1) -> None:
        for number in range(batches):
            send(self.broker, "t", *(b"%d-%d" % (number, at) for at in range(count)))
        turn(self.broker)

    def pass_time(self, ms: int) -> None:
        self.clock.now_ms += ms
        self.broker.shares.expire(self.clock.now_ms)


@pytest.mark.parametrize(
    ("reset", "first"), [("earliest", 0), ("latest", 6), ("by_duration:PT10S", 4), ("by_duration:PT0.5S", 6)]
)
def test_where_a_group_begins_and_that_it_stays_there(reset: str, first: int) -> None:
    bench = Bench(auto_offset_reset=reset)
    for ago_ms in (20_000, 15_000, 5_000):
        rows = [(None, b"v", bench.clock.now_ms - ago_ms, ())] * 2
        partition = partition_of(bench.broker, "t")
        bench.broker.append(partition, memoryview(bytearray(build_batch(rows))), bench.clock.now_ms)
    turn(bench.broker)
    begun = bench.broker.shares.delivery.begin(
        GROUP, partition_of(bench.broker, "t"), bench.broker.shares.options(GROUP)
    )
    if callable(begun):
        begun = bench.broker.shares.delivery.begin_at(GROUP, partition_of(bench.broker, "t"), begun())
    assert begun.start == first
    bench.send(3)
    bench.restart()  # nothing was acknowledged
    assert part_of(bench.broker, "t").start == first


def test_an_acknowledgement_is_on_disk_before_it_is_answered() -> None:
    bench = Bench()
    bench.send(4)
    part = part_of(bench.broker, "t")
    fetch(bench.broker, part, "a")
    position = acknowledge(bench.broker, part, "a", 0, 1, ACCEPT)
    assert position > bench.broker.durable_position
    answered: list[BrokerError | None] = []
    bench.broker.when_durable(position, answered.append)
    assert not answered
    turn(bench.broker)
    assert answered == [None]


def test_what_cannot_be_written_down_has_not_happened() -> None:
    bench = Bench()
    bench.send(4)
    part = part_of(bench.broker, "t")
    fetch(bench.broker, part, "a")
    before = shown(part)
    bench.broker.log.failed = OSError("no more")
    with pytest.raises(BrokerError) as refused:
        acknowledge(bench.broker, part, "a", 0, 1, ACCEPT)
    assert refused.value.fault is Fault.KAFKA_STORAGE_ERROR
    assert shown(part) == before
    bench.broker.log.failed = None
    acknowledge(bench.broker, part, "a", 0, 1, ACCEPT)
    assert shown(part) == "start=2 2-3 acquired#1(a)"


def test_how_often_records_were_given_out_is_not_forgotten_where_it_cannot_be_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Found by torture: without a session the catalog's older state came in place of it, and one was given out 6 times.

    The log takes nothing for a while, as where it finds no descriptor for its next segment."""
    bench = Bench()
    bench.send(2)
    broker, shares = bench.broker, bench.broker.shares
    part_of(broker, "t")
    broker.log.failed = OSError("no more")
    for times in range(1, 4):
        session = shares.sessions.begin(GROUP, "a", object())
        assert given(fetch(broker, part_of(broker, "t"), "a")) == {0: times, 1: times}
        shares.end_session(session)
        assert len(shares.delivery.parts.of_group(GROUP)) == 1
    assert caplog.text.count("event=share_state_not_written") == 1
    bench.pass_time(10_000)
    broker.log.failed = None
    due_ms = shares.next_deadline()
    assert due_ms is not None
    bench.pass_time(due_ms - bench.clock.now_ms)
    assert shares.delivery.parts.of_group(GROUP) == []
    bench.restart()
    assert given(fetch(bench.broker, part_of(bench.broker, "t"), "b")) == {0: 4, 1: 4}


def test_an_acknowledgement_brings_what_could_not_be_written(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.send(4)
    broker, shares = bench.broker, bench.broker.shares
    session = shares.sessions.begin(GROUP, "a", object())
    part = part_of(broker, "t")
    fetch(broker, part, "a", 2, exactly=True)
    broker.log.failed = OSError("no more")
    shares.end_session(session)
    broker.log.failed = None
    assert given(fetch(broker, part_of(broker, "t"), "b", 1, exactly=True)) == {0: 2}
    acknowledge(broker, part_of(broker, "t"), "b", 0, 0, ACCEPT)
    bench.restart()
    assert given(fetch(bench.broker, part_of(bench.broker, "t"), "c")) == {1: 2, 2: 1, 3: 1}


def test_a_lock_that_is_over_gives_the_records_to_others() -> None:
    bench = Bench()
    bench.send(2)
    bench.broker.shares.sessions.begin(GROUP, "a", object())
    part = part_of(bench.broker, "t")
    assert given(fetch(bench.broker, part, "a")) == {0: 1, 1: 1}
    assert fetch(bench.broker, part, "b") is None
    assert bench.broker.shares.next_deadline() == bench.clock.now_ms + 30_000
    bench.pass_time(29_999)
    assert fetch(bench.broker, part, "b") is None
    bench.pass_time(1)
    assert given(fetch(bench.broker, part, "b")) == {0: 2, 1: 2}
    bench.restart()
    assert given(fetch(bench.broker, part_of(bench.broker, "t"), "c")) == {0: 2, 1: 2}  # b's was not written down


def test_only_batches_with_something_for_the_member_are_sent() -> None:
    bench = Bench()
    bench.send(2, batches=4)
    part = part_of(bench.broker, "t")
    found = fetch(bench.broker, part, "a", 3)
    assert found is not None
    assert [piece[:8] for piece in found.slices] == [b"\0" * 8, b"\0" * 7 + b"\x02"]
    acknowledge(bench.broker, part, "a", 0, 0, RELEASE)
    acknowledge(bench.broker, part, "a", 1, 3, ACCEPT)
    found = fetch(bench.broker, part, "b", 3)
    assert found is not None
    assert given(found) == {0: 2, 4: 1, 5: 1}
    assert [int.from_bytes(piece[:8], "big") for piece in found.slices] == [0, 4]


def test_cold_records_are_read_in_a_thread_by_one_at_a_time() -> None:
    bench = Bench()
    bench.log = {"hot_bytes": 0}
    bench.send(2, batches=3)
    bench.restart()
    bench.fs.cold = True
    shares = bench.broker.shares
    part, options = part_of(bench.broker, "t"), shares.options(GROUP)
    demand = Demand(3, 500)
    loading = shares.delivery.fetch(part, "a", demand, 1 << 20, options)
    assert isinstance(loading, Loading)
    assert shares.delivery.fetch(part, "b", demand, 1 << 20, options) is None
    assert given(shares.delivery.loaded(part, "a", loading, loading.load(), demand, options)) == {
        0: 1,
        1: 1,
        2: 1,
        3: 1,
    }
    loading = shares.delivery.fetch(part, "b", demand, 1 << 20, options)
    assert isinstance(loading, Loading)
    shares.delivery.not_loaded(part)
    loading = shares.delivery.fetch(part, "b", demand, 1 << 20, options)
    assert isinstance(loading, Loading)
    assert given(shares.delivery.loaded(part, "b", loading, loading.load(), demand, options)) == {4: 1, 5: 1}


def load(bench: Bench, part: Part, most: int = 500) -> tuple[Loading, Demand]:
    """A fetch of member a that has to read from the disk."""
    demand = Demand(most, 500)
    found = bench.broker.shares.delivery.fetch(part, "a", demand, ENOUGH, bench.broker.shares.options(GROUP))
    assert isinstance(found, Loading)
    return found, demand


def loaded(bench: Bench, part: Part, loading: Loading, demand: Demand) -> dict[int, int]:
    shares = bench.broker.shares
    return given(shares.delivery.loaded(part, "a", loading, loading.load(), demand, shares.options(GROUP)))


def cold_bench(**share: Any) -> Bench:
    """Ten batches of two records, which have to be read from the disk."""
    bench = Bench(**share)
    bench.log = {"hot_bytes": 0}
    bench.send(2, batches=10)
    bench.restart()
    bench.fs.cold = True
    return bench


def take_away(broker: BareNode, how: str, partition: Partition, offset: int) -> None:
    """Have the share partition of GROUP replaced, by one that begins at the offset, or by none."""
    shares = broker.shares
    if how == "reset":
        shares.reset(GROUP, [(partition, offset)])
    elif how == "forget":
        shares.forget(GROUP, [partition])
    elif how == "delete group":
        shares.delete(GROUP)
    else:
        broker.delete_topic(partition.topic)


@pytest.mark.parametrize("how", ["reset", "forget", "delete group", "delete topic"])
def test_a_share_partition_that_was_replaced_while_it_was_read_for_is_of_no_effect(how: str) -> None:
    bench = cold_bench()
    broker, shares = bench.broker, bench.broker.shares
    partition = partition_of(broker, "t")
    shares.reset(GROUP, [(partition, 10)])
    part = part_of(broker, "t")
    loading, demand = load(bench, part)
    take_away(broker, how, partition, 0)
    turn(broker)
    assert loaded(bench, part, loading, demand) == {}
    shares.delivery.release(GROUP, "a")
    bench.pass_time(31_000)
    assert shares.next_deadline() is None
    bench.fs.cold = False
    bench.restart()
    assert bench.broker.shares.exists(GROUP) == (how != "delete group")
    if how != "delete topic":
        assert part_of(bench.broker, "t").start == 0


def test_what_was_aborted_is_known_from_before_the_disk_is_read() -> None:
    bench = Bench(isolation_level="read_committed")
    bench.log = {"hot_bytes": 0}
    client = TxnClient(bench.broker, "tx")
    client.init()
    bench.send(1)
    client.send("t", b"aborted")
    client.end(commit=False)
    bench.send(1)
    bench.restart()
    bench.fs.cold = True
    part = part_of(bench.broker, "t")
    loading, demand = load(bench, part)
    partition = partition_of(bench.broker, "t")
    partition.move(0, 3, None, compacted_upto=3)  # the cleaner was here, which takes the records and forgets of whom
    assert loaded(bench, part, loading, demand) == {0: 1, 3: 1}


def test_a_hole_in_the_log_is_passed_over_however_long_it_is() -> None:
    bench = Bench()
    broker = bench.broker
    broker.create_topic("c", 1, COMPACT)
    put(broker, "c", (b"first", b"v"))
    for number in range(30):
        put(broker, "c", *[(b"k", b"%d" % number)] * 20)
    put(broker, "c", (b"last", b"v"))
    turn(broker)
    part = part_of(broker, "c")
    assert given(fetch(broker, part, "b", 30)) == dict.fromkeys(range(41), 1)
    acknowledge(broker, part, "b", 1, 40, RELEASE)
    clean(broker, bench.clock)
    found: dict[int, int] = {}
    while part.start < partition_of(broker, "c").high_watermark:
        told = given(fetch(broker, part, "a", 10))
        assert told or not found
        found |= told
        for offset in told:
            acknowledge(broker, part, "a", offset, offset, ACCEPT)
        if 0 not in found:
            acknowledge(broker, part, "b", 0, 0, RELEASE)
    assert found == {0: 2, **dict.fromkeys(range(581, 602), 1)}


def test_a_group_that_stands_behind_the_last_record_waits_there() -> None:
    """Nothing but a hole is between its start and the end of the log."""
    bench = Bench()
    bench.send(1)
    part = part_of(bench.broker, "t")
    partition = partition_of(bench.broker, "t")
    fetch(bench.broker, part, "a")
    acknowledge(bench.broker, part, "a", 0, 0, ACCEPT)
    partition.queue.end_offset = partition.next_offset = 700  # all of that is compacted away
    assert fetch(bench.broker, part, "a") is None
    assert shown(part) == "start=700"
    bench.send(1)
    assert given(fetch(bench.broker, part, "a")) == {700: 1}


def test_what_a_damaged_disk_has_lost_is_passed_over_and_said(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.send(2, batches=3)
    part = part_of(bench.broker, "t")
    partition_of(bench.broker, "t").queue.lose(2, 4)
    with caplog.at_level(logging.ERROR, logger="halfmoon.broker"):
        assert given(fetch(bench.broker, part, "a")) == {0: 1, 1: 1}
        assert given(fetch(bench.broker, part, "a")) == {4: 1, 5: 1}
    assert "event=share_lost group=g partition=t-0 first=2 count=2" in caplog.text
    acknowledge(bench.broker, part, "a", 0, 1, ACCEPT)
    acknowledge(bench.broker, part, "a", 4, 5, ACCEPT)
    assert shown(part) == "start=6"


def ledger_of(bench: Bench) -> DeliveryState:
    (delivery_state,) = bench.broker.state.share.delivery_states[GROUP].values()
    return delivery_state


@pytest.mark.parametrize("dead_letters", [True, False])
def test_what_is_finished_behind_a_record_that_is_held_takes_no_room(dead_letters: bool) -> None:
    """Markers are between the records, which are accepted and rejected in turn."""
    bench = Bench(dead_letters=dead_letters)
    client = TxnClient(bench.broker, "tx")
    client.init()
    for number in range(20):
        client.send("t", b"%d" % number)
        client.end(commit=True)
        turn(bench.broker)
    part = part_of(bench.broker, "t")
    fetch(bench.broker, part, "a")
    for offset in range(2, 40, 2):
        acknowledge(bench.broker, part, "a", offset, offset, ACCEPT if offset % 4 else REJECT)
        relay(bench.broker)
    assert shown(part) == "start=0 0 acquired#1(a) 1-39 finished"
    acknowledge(bench.broker, part, "a", 0, 0, RENEW)
    assert len(ledger_of(bench).runs) <= 4
    bench.restart()
    assert given(fetch(bench.broker, part_of(bench.broker, "t"), "a")) == {0: 1}


def test_records_that_are_deleted_are_given_out_no_more() -> None:
    bench = Bench()
    bench.send(2, batches=3)
    part = part_of(bench.broker, "t")
    fetch(bench.broker, part, "a", 2)
    bench.broker.delete_records(partition_of(bench.broker, "t"), 3)
    turn(bench.broker)
    assert given(fetch(bench.broker, part, "b")) == {3: 1, 4: 1, 5: 1}
    acknowledge(bench.broker, part, "a", 0, 1, ACCEPT)  # which is too late, and no matter
    assert shown(part) == "start=3 3-5 acquired#1(b)"


def test_a_deleted_topic_is_forgotten_and_so_is_a_group() -> None:
    bench = Bench()
    bench.broker.create_topic("u", 1)
    bench.send(1)
    part_of(bench.broker, "t")
    part_of(bench.broker, "u")
    topic = bench.broker.topic("t")
    assert topic is not None
    bench.broker.delete_topic(topic)
    shares = bench.broker.shares
    assert [partition.topic.name for partition in shares.looked_at(GROUP)] == ["u"]
    assert [part.place.partition.topic.name for part in shares.delivery.parts.of_group(GROUP)] == ["u"]
    bench.broker.group_names.delete(GROUP)
    assert not shares.exists(GROUP)
    bench.restart()
    assert not bench.broker.shares.exists(GROUP)


def beat(member: str, epoch: int = 0, group: str = GROUP) -> HeartbeatRequest:
    return HeartbeatRequest(group, member, epoch, None, ("t",), "client", "/h")


def test_a_group_has_one_kind() -> None:
    bench = Bench()
    groups, names, shares = bench.broker.groups, bench.broker.group_names, bench.broker.shares
    groups.commit("classic", -1, "", None, [(partition_of(bench.broker, "t"), 1, -1, "")])
    with pytest.raises(BrokerError) as refused:
        shares.heartbeat(beat("m", group="classic"))
    assert refused.value.fault is Fault.GROUP_ID_NOT_FOUND
    shares.heartbeat(beat("m"))
    with pytest.raises(BrokerError) as refused:
        groups.commit(GROUP, -1, "", None, [(partition_of(bench.broker, "t"), 1, -1, "")])
    assert refused.value.fault is Fault.GROUP_ID_NOT_FOUND
    assert [(each.group, each.type, each.state) for each in names.list(types=["share"])] == [(GROUP, "share", "Stable")]
    assert [each.group for each in names.list()] == ["classic", GROUP]
    with pytest.raises(BrokerError) as refused:
        names.delete(GROUP)
    assert refused.value.fault is Fault.NON_EMPTY_GROUP


def test_a_silent_member_loses_what_it_holds() -> None:
    bench = Bench(record_lock_duration="60s")
    bench.send(2)
    shares = bench.broker.shares
    shares.heartbeat(beat("a"))
    session = shares.sessions.begin(GROUP, "a", object())
    part = part_of(bench.broker, "t")
    fetch(bench.broker, part, "a")
    bench.pass_time(45_000)
    assert shown(part) == "start=0 0-1 acquired#1(a)"
    turn(bench.broker)
    assert shown(part) == "start=0 0-1 available#1"
    assert shares.sessions.get(GROUP, "a") is None
    shares.sessions.end(session)  # twice does no harm


def test_who_leaves_loses_what_it_holds() -> None:
    bench = Bench()
    bench.send(2)
    shares = bench.broker.shares
    part = part_of(bench.broker, "t")
    shares.heartbeat(beat("a"))
    fetch(bench.broker, part, "a")
    shares.leave(GROUP, "a")
    assert shown(part) == "start=0 0-1 available#1"


def test_who_leaves_while_its_session_lasts_may_still_say_what_became_of_its_records() -> None:
    """As librdkafka does, by two connections."""
    bench = Bench()
    bench.send(2)
    shares = bench.broker.shares
    part = part_of(bench.broker, "t")
    shares.heartbeat(beat("a"))
    session = shares.sessions.begin(GROUP, "a", object())
    fetch(bench.broker, part, "a")
    shares.leave(GROUP, "a")
    assert shown(part) == "start=0 0-1 acquired#1(a)"
    assert shares.sessions.use(GROUP, "a", -1) is session
    shares.end_session(session)
    assert shown(part) == "start=0 0-1 available#1"


def test_whose_connection_goes_loses_what_it_holds() -> None:
    bench = Bench()
    bench.send(2)
    shares = bench.broker.shares
    owner = object()
    shares.sessions.begin(GROUP, "b", owner)
    fetch(bench.broker, part_of(bench.broker, "t"), "b")
    shares.drop(owner)
    assert shown(part_of(bench.broker, "t")) == "start=0 0-1 available#1"
    assert len(shares.sessions) == 0


# -- dead letters ------------------------------------------------------------------------------------------------------


def produce(bench: Bench, *rows: tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]) -> None:
    made = build_batch([(key, value, 7, headers) for key, value, headers in rows])
    bench.broker.append(partition_of(bench.broker, "t"), memoryview(bytearray(made)), bench.clock.now_ms)
    turn(bench.broker)


def test_a_rejected_record_has_one_dead_letter_with_both_kinds_of_headers() -> None:
    bench = Bench()
    produce(bench, (b"k", b"v", (("own", b"1"), ("halfmoon.reason", b"old"), ("__dlq.errors.group", b"old"))))
    part = part_of(bench.broker, "t")
    fetch(bench.broker, part, "a")
    acknowledge(bench.broker, part, "a", 0, 0, REJECT)
    assert shown(part) == "start=0 0 rejected#1"
    relay(bench.broker)
    assert shown(part) == "start=1"
    assert letters(bench.broker, "dlq.g") == [
        {
            "": b"v", "own": b"1", "RETRY_TOPIC": b"t", "ORIGIN_MESSAGE_ID": b"t/0/0", "__dlq.errors.topic": b"t",
            "__dlq.errors.partition": b"0", "__dlq.errors.offset": b"0", "__dlq.errors.group": b"g",
            "__dlq.errors.delivery.count": b"1", "__dlq.errors.message": b"Offset rejected by client.",
            "RECONSUME_TIME": b"1", "halfmoon.reason": b"rejected when given out for the 1. time",
        }
    ]  # fmt: skip
    bench.restart()
    relay(bench.broker)
    assert len(letters(bench.broker, "dlq.g")) == 1


def test_an_exhausted_record_says_so() -> None:
    bench = Bench(delivery_count_limit=2)
    bench.send(1)
    for _ in range(2):
        fetch(bench.broker, part_of(bench.broker, "t"), "a")
        bench.pass_time(30_000)
    relay(bench.broker)
    (letter,) = letters(bench.broker, "dlq.g")
    assert letter["__dlq.errors.message"] == b"Offset delivery count exceeded the threshold."
    assert (letter["__dlq.errors.delivery.count"], letter["halfmoon.reason"]) == (b"2", b"given out 2 times")


def test_many_letters_are_written_in_several_batches() -> None:
    bench = Bench()
    for _ in range(3):
        bench.send(170)
    part = part_of(bench.broker, "t")
    fetch(bench.broker, part, "a", 600)
    acknowledge(bench.broker, part, "a", 0, 509, REJECT)
    relay(bench.broker)
    assert [letter["__dlq.errors.offset"] for letter in letters(bench.broker, "dlq.g")] == [
        b"%d" % at for at in range(510)
    ]
    assert bench.broker.shares.dead_letters.written == 510


def test_a_group_may_want_no_copy_and_another_topic() -> None:
    bench = Bench()
    bench.broker.create_topic("dlq.all", 2)
    bench.broker.group_configs.alter(
        "g",
        {"errors.deadletterqueue.topic.name": "dlq.all", "errors.deadletterqueue.copy.record.enable": "false"},
    )
    produce(bench, (b"k", b"v", (("own", b"1"),)))
    part = part_of(bench.broker, "t")
    fetch(bench.broker, part, "a")
    acknowledge(bench.broker, part, "a", 0, 0, REJECT)
    relay(bench.broker)
    (letter,) = letters(bench.broker, "dlq.all")
    assert letter[""] is None
    assert "own" not in letter
    assert letter["__dlq.errors.offset"] == b"0"


def test_without_letters_a_rejected_record_is_only_finished() -> None:
    bench = Bench(dead_letters=False)
    bench.send(1)
    part = part_of(bench.broker, "t")
    fetch(bench.broker, part, "a")
    acknowledge(bench.broker, part, "a", 0, 0, REJECT)
    relay(bench.broker)
    assert shown(part) == "start=1"
    assert bench.broker.topic("dlq.g") is None


def test_what_is_owed_a_letter_is_written_after_a_restart() -> None:
    bench = Bench()
    bench.send(2)
    part = part_of(bench.broker, "t")
    fetch(bench.broker, part, "a")
    acknowledge(bench.broker, part, "a", 0, 1, REJECT)
    bench.restart()
    assert letters(bench.broker, "dlq.g") == []
    relay(bench.broker)
    assert len(letters(bench.broker, "dlq.g")) == 2
    assert shown(part_of(bench.broker, "t")) == "start=2"


def test_a_record_that_is_gone_before_its_letter_is_written_holds_up_nothing() -> None:
    bench = Bench()
    bench.send(2)
    part = part_of(bench.broker, "t")
    fetch(bench.broker, part, "a")
    acknowledge(bench.broker, part, "a", 0, 1, REJECT)
    bench.broker.delete_records(partition_of(bench.broker, "t"), 1)
    relay(bench.broker)
    assert [letter["__dlq.errors.offset"] for letter in letters(bench.broker, "dlq.g")] == [b"1"]
    assert bench.broker.shares.dead_letters.unwritten == 1
    assert shown(part) == "start=2"
    bench.restart()
    assert shown(part_of(bench.broker, "t")) == "start=2"


def test_a_topic_that_cannot_take_letters_holds_up_nothing() -> None:
    bench = Bench()
    bench.broker.create_topic("dlq.v", 1, {"halfmoon.view.source": "t", "halfmoon.view.prefix": "x"})
    bench.broker.group_configs.alter("g", {"errors.deadletterqueue.topic.name": "dlq.v"})
    bench.send(1)
    part = part_of(bench.broker, "t")
    fetch(bench.broker, part, "a")
    acknowledge(bench.broker, part, "a", 0, 0, REJECT)
    relay(bench.broker)
    assert shown(part) == "start=1"
    assert bench.broker.shares.dead_letters.unwritten == 1


def test_letters_do_not_go_round_in_circles() -> None:
    bench = Bench()
    bench.broker.create_topic("dlq.g", 1)
    send(bench.broker, "dlq.g", b"a letter")
    turn(bench.broker)
    part = part_of(bench.broker, "dlq.g")
    fetch(bench.broker, part, "a")
    acknowledge(bench.broker, part, "a", 0, 0, REJECT)
    relay(bench.broker)
    assert shown(part) == "start=1"
    assert len(letters(bench.broker, "dlq.g")) == 1


def test_a_batch_that_cannot_be_read_has_no_letter() -> None:
    bench = Bench()
    bench.log["validate"] = "header"
    bench.restart()
    made = bytearray(batch(b"x" * 100))
    made[-30:] = b"\xff" * 30
    header = parse_header(made)
    damaged = memoryview(bytearray(assemble(header, made[HEADER_BYTES:])))
    bench.broker.append(partition_of(bench.broker, "t"), damaged, bench.clock.now_ms)
    turn(bench.broker)
    part = part_of(bench.broker, "t")
    fetch(bench.broker, part, "a")
    acknowledge(bench.broker, part, "a", 0, 0, REJECT)
    relay(bench.broker)
    assert shown(part) == "start=1"
    assert bench.broker.shares.dead_letters.unwritten == 1


def step(broker: BareNode) -> None:
    loading = broker.relays.step()
    if loading is not None:
        loading.loaded(loading.load())


@pytest.mark.parametrize("steps", range(8))
@pytest.mark.parametrize("how", ["reset", "forget", "delete group", "delete topic"])
def test_what_an_operator_takes_away_is_owed_no_letters(how: str, steps: int) -> None:
    """At any moment of the mover, which is the only one of all groups."""
    bench = Bench()
    broker = bench.broker
    broker.create_topic("other", 1)
    turn(broker)
    bench.send(300)
    send(broker, "other", b"v")
    turn(broker)
    part = part_of(broker, "t")
    fetch(broker, part, "a")
    acknowledge(broker, part, "a", 0, 299, REJECT)
    for _ in range(steps):
        step(broker)
    partition = partition_of(broker, "t")
    take_away(broker, how, partition, 300)
    other = part_of(broker, "other", group="h")
    fetch(broker, other, "a")
    acknowledge(broker, other, "a", 0, 0, REJECT)
    for _ in range(20):
        if broker.relays.has_work:
            step(broker)
    assert not broker.relays.has_work
    turn(broker)
    written = letters(broker, "dlq.g")
    assert len(written) in (0, 200, 300)
    assert len(letters(broker, "dlq.h")) == 1
    bench.restart()
    relay(bench.broker)
    assert letters(bench.broker, "dlq.g") == written
    if how == "reset":
        assert part_of(bench.broker, "t").start == 300


def test_a_mover_that_stands_over_deleted_records_leaves_a_reset_as_it_is() -> None:
    bench = Bench()
    bench.send(300)
    broker, shares = bench.broker, bench.broker.shares
    partition = partition_of(broker, "t")
    part = part_of(broker, "t")
    fetch(broker, part, "a")
    acknowledge(broker, part, "a", 0, 299, REJECT)
    while not shares.dead_letters.written:
        step(broker)
    shares.reset(GROUP, [(partition, 290)])
    broker.delete_records(partition, 280)
    relay(broker)
    assert shares.dead_letters.unwritten == 0
    bench.restart()
    assert part_of(bench.broker, "t").start == 290


def test_letters_of_records_that_a_fetch_finds_deleted_are_counted_too() -> None:
    bench = Bench()
    bench.send(5)
    broker, shares = bench.broker, bench.broker.shares
    part = part_of(broker, "t")
    fetch(broker, part, "a")
    acknowledge(broker, part, "a", 0, 4, REJECT)
    broker.delete_records(partition_of(broker, "t"), 3)
    fetch(broker, part, "a")
    relay(broker)
    assert (shares.dead_letters.written, shares.dead_letters.unwritten) == (2, 3)


def test_letters_of_small_batches_of_large_records_are_made_by_and_by() -> None:
    """A step of the mover is bounded by what the records are once they are decompressed."""
    bench = Bench()
    broker = bench.broker
    partition = partition_of(broker, "t")
    for _ in range(10):
        made = build_batch([(None, b"\0" * 600_000, 7, ())], codec=4)
        broker.append(partition, memoryview(bytearray(made)), bench.clock.now_ms)
    turn(broker)
    part = part_of(broker, "t")
    fetch(broker, part, "a")
    acknowledge(broker, part, "a", 0, 9, REJECT)
    most = 0
    while broker.relays.has_work:
        before = broker.shares.dead_letters.written
        step(broker)
        most = max(most, broker.shares.dead_letters.written - before)
    turn(broker)
    assert most == 1
    assert [letter["__dlq.errors.offset"] for letter in letters(broker, "dlq.g")] == [b"%d" % at for at in range(10)]


def test_groups_take_turns_at_the_mover() -> None:
    bench = Bench()
    broker, shares = bench.broker, bench.broker.shares
    bench.send(500)
    for group in ("g", "h"):
        part = part_of(broker, "t", group=group)
        fetch(broker, part, "a")
        acknowledge(broker, part, "a", 0, 499 if group == "g" else 0, REJECT)
    while not letters(broker, "dlq.h"):
        step(broker)
        turn(broker)
    assert shares.dead_letters.written == 201


@pytest.mark.parametrize("what", ["read", "written"])
def test_a_group_whose_letters_cannot_be_made_holds_up_no_other(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    broker = bench.broker
    bench.send(500)
    for group in ("g", "h"):
        part = part_of(broker, "t", group=group)
        fetch(broker, part, "a")
        acknowledge(broker, part, "a", 0, 499, REJECT)
    first_partition, make = broker.first_partition, dead_letters.make

    def too_many(name: str) -> Partition:
        if name == "dlq.g":
            raise BrokerError(Fault.INVALID_PARTITIONS, "there are too many")
        return first_partition(name)

    def unreadable(slices: Any, place: Place, run: Run, *, copy: bool) -> dead_letters.DeadLetterBatch:
        if place.group == "g":
            raise OSError("no such sector")
        return make(slices, place, run, copy=copy)

    with monkeypatch.context() as failing:
        if what == "read":
            failing.setattr(dead_letters, "make", unreadable)
        else:
            failing.setattr(broker.administration, "first_partition", too_many)
        relay(broker)
        turn(broker)
        assert (len(letters(broker, "dlq.g")), len(letters(broker, "dlq.h"))) == (0, 500)
    bench.clock.now_ms += 1_000
    broker.relays.expire(bench.clock.now_ms)
    relay(broker)
    assert len(letters(broker, "dlq.g")) == 500


def test_what_is_owed_or_held_stays_in_memory_and_nothing_else() -> None:
    bench = Bench()
    broker, shares = bench.broker, bench.broker.shares
    bench.send(3)
    session = shares.sessions.begin(GROUP, "a", object())
    part = part_of(broker, "t")
    fetch(broker, part, "a")
    acknowledge(broker, part, "a", 0, 0, REJECT)
    shares.end_session(session)
    assert shares.delivery.parts.of_group(GROUP) == [part]
    relay(broker)
    assert shares.delivery.parts.of_group(GROUP) == []
    assert shares.next_deadline() is None
    seen = shares.delivery.parts.seen(GROUP, partition_of(broker, "t"))
    assert (seen is not None and seen.start, shares.delivery.parts.of_group(GROUP)) == (1, [])
    fetch(broker, part_of(broker, "t"), "b")  # who has no session: its lock ends
    bench.pass_time(30_000)
    assert shares.delivery.parts.of_group(GROUP) == []
    assert given(fetch(broker, part_of(broker, "t"), "c")) == {1: 3, 2: 3}


# -- transactions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("isolation", "decided", "after"),
    [
        ("read_uncommitted", {0: 1, 1: 1, 3: 1, 5: 1, 6: 1}, {}),
        ("read_committed", {0: 1, 1: 1, 5: 1}, {6: 1}),
    ],
)
def test_what_a_group_sees_of_transactions(isolation: str, decided: dict[int, int], after: dict[int, int]) -> None:
    """Markers stand at 2, 4 and 7; the record at 3 was aborted, the one at 6 is decided last."""
    bench = Bench(isolation_level=isolation)
    client = TxnClient(bench.broker, "tx")
    client.init()
    for values, commit in (((b"0", b"1"), True), ((b"3",), False)):
        client.send("t", *values)
        client.end(commit=commit)
        turn(bench.broker)
    bench.send(1)
    client.send("t", b"6")
    turn(bench.broker)
    part = part_of(bench.broker, "t")
    assert given(fetch(bench.broker, part, "a")) == decided
    client.end(commit=True)
    turn(bench.broker)
    assert given(fetch(bench.broker, part, "a")) == after
    for offset in (*decided, *after):
        acknowledge(bench.broker, part, "a", offset, offset, ACCEPT)
    assert fetch(bench.broker, part, "a") is None
    assert part.start == partition_of(bench.broker, "t").high_watermark == 8


def test_a_group_s_configurations_are_shown_as_they_hold() -> None:
    bench = Bench(record_lock_duration="20s")
    ctx = SimpleNamespace(core=bench.broker, services=bench.broker.services)
    shown_first = {each.name: each for each in group_entries(ctx, "a team")}
    lock = shown_first["share.record.lock.duration.ms"]
    assert (lock.value, lock.source) == ("20000", STATIC_BROKER_CONFIG)
    reset = shown_first["share.auto.offset.reset"]
    assert (reset.value, reset.source) == ("earliest", STATIC_BROKER_CONFIG)
    letters_to = shown_first["errors.deadletterqueue.topic.name"]
    assert letters_to.value == "dlq.a_x20_team"
    bench.broker.group_configs.alter("a team", {"share.record.lock.duration.ms": "10000"})
    assert bench.broker.shares.options("a team").terms.lock_ms == 10_000
    bench.broker.dynamic_configs.alter("", {"group.share.delivery.count.limit": "7"})
    assert bench.broker.shares.options("a team").terms.count_limit == 7
    after = {each.name: each.value for each in group_entries(ctx, "a team")}
    assert after["share.record.lock.duration.ms"] == "10000"
    assert after["share.delivery.count.limit"] == "7"
