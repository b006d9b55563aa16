"""Share groups and records whose TTL is over: nobody gets them, and their dead letters are written once."""

from __future__ import annotations

import random
from typing import Any

import pytest

from halfmoon.core.records.batches import build_batch
from halfmoon.errors import BrokerError
from halfmoon.services.expiry import service as expiry
from halfmoon.services.share.reading import Loading
from halfmoon.services.share.share_partition import ACCEPT, RELEASE, Demand
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, append, open_broker, partition_of, read_all, relay, turn
from tests.core.clean_bench import clean
from tests.core.relay_bench import deaths, values
from tests.services.share.share_bench import ENOUGH, GROUP, acknowledge, fetch, given, letters, part_of, shown

TTL, ACTION = "halfmoon.ttl.ms", "halfmoon.ttl.action"
SECTIONS: dict[str, Any] = {"groups": {"share": {"auto_offset_reset": "earliest"}}}


class Bench:
    def __init__(self, **configs: str) -> None:
        self.clock = VirtualClock()
        self.fs = FaultyFileSystem(random.Random(1))
        self.broker = self.open()
        self.broker.create_topic("t", 1, {name.replace("_", "."): said for name, said in configs.items()})
        turn(self.broker)

    def open(self) -> BareNode:
        return open_broker(self.fs, self.clock, sections=SECTIONS)

    def restart(self) -> None:
        """After kill −9."""
        turn(self.broker)
        self.fs = self.fs.kill()
        self.broker = self.open()

    def send(self, *ttls: int | None, **fields: Any) -> None:
        """A batch of records with these TTLs, in ms from now on."""
        rows = [
            (None, b"%d" % at, self.clock.now_ms, () if ttl is None else ((TTL, b"%d" % ttl),))
            for at, ttl in enumerate(ttls)
        ]
        append(self.broker, partition_of(self.broker, "t"), memoryview(bytearray(build_batch(rows, **fields))))
        turn(self.broker)

    def given(self, member: str = "a") -> dict[int, int]:
        return given(fetch(self.broker, part_of(self.broker, "t"), member))

    @property
    def shown(self) -> str:
        return shown(part_of(self.broker, "t"))


def test_what_has_expired_is_given_to_nobody() -> None:
    bench = Bench()
    bench.send(100, 5_000, None, 100)
    bench.clock.now_ms += 99
    assert bench.given() == {0: 1, 1: 1, 2: 1, 3: 1}
    acknowledge(bench.broker, part_of(bench.broker, "t"), "a", 0, 3, RELEASE)
    bench.clock.now_ms += 1
    assert bench.given() == {1: 2, 2: 2}
    acknowledge(bench.broker, part_of(bench.broker, "t"), "a", 1, 2, ACCEPT)
    assert bench.shown == "start=4"
    assert bench.broker.expiry.counts == {("share", "dropped"): 2}
    relay(bench.broker)
    assert letters(bench.broker, "dlq.g") == []
    assert values(bench.broker, "t") == [b"0", b"1", b"2", b"3"], "a Fetch returns them"


def test_a_record_that_somebody_has_is_theirs() -> None:
    bench = Bench()
    bench.send(100, 100)
    assert bench.given() == {0: 1, 1: 1}
    bench.clock.now_ms += 1_000
    assert bench.given("b") == {}
    acknowledge(bench.broker, part_of(bench.broker, "t"), "a", 0, 0, ACCEPT)
    bench.clock.now_ms += 60_000
    bench.broker.shares.expire(bench.clock.now_ms)
    assert bench.given("b") == {}
    assert bench.shown == "start=2"
    assert bench.broker.expiry.counts == {("share", "dropped"): 1}


def test_the_topics_ttl_and_its_change() -> None:
    bench = Bench(halfmoon_ttl_ms="1000")
    bench.send(None, 10)
    bench.send(None)
    bench.clock.now_ms += 999
    assert bench.given() == {0: 1, 2: 1}
    acknowledge(bench.broker, part_of(bench.broker, "t"), "a", 0, 2, RELEASE)
    topic = bench.broker.topic("t")
    assert topic is not None
    bench.broker.alter_configs(topic, {TTL: "2000"})
    bench.clock.now_ms += 1
    assert bench.given() == {0: 2, 2: 2}
    acknowledge(bench.broker, part_of(bench.broker, "t"), "a", 0, 2, RELEASE)
    bench.broker.alter_configs(topic, {})
    bench.clock.now_ms += 1_000_000
    assert bench.given() == {0: 3, 2: 3}


def test_dead_letters_say_why() -> None:
    bench = Bench(halfmoon_ttl_action="dead-letter")
    bench.send(100, None, 200)
    assert bench.given() == {0: 1, 1: 1, 2: 1}
    acknowledge(bench.broker, part_of(bench.broker, "t"), "a", 0, 2, RELEASE)
    bench.clock.now_ms += 100
    assert bench.given() == {1: 2, 2: 2}
    assert bench.shown == "start=0 0 expired#1 1-2 acquired#2(a)"
    relay(bench.broker)
    (letter,) = letters(bench.broker, "dlq.g")
    assert letter[""] == b"0"
    assert letter["halfmoon.reason"] == b"expired: its TTL was over (given out 1 times)"
    assert letter["__dlq.errors.message"] == b"Offset expired."
    assert letter["__dlq.errors.offset"] == b"0"
    assert letter["RECONSUME_TIME"] == b"1"
    assert TTL not in letter, "a dead letter has none"
    assert bench.shown == "start=1 1-2 acquired#2(a)"
    assert bench.broker.expiry.counts == {("share", "dead_lettered"): 1}
    assert bench.broker.shares.dead_letters.written == 1


def test_that_a_dead_letter_is_pending_survives() -> None:
    bench = Bench(halfmoon_ttl_action="dead-letter")
    bench.send(100, 100, None)
    bench.clock.now_ms += 100
    assert bench.given() == {2: 1}
    bench.restart()
    bench.clock.now_ms -= 100  # the clock is set back, and what was decided stays
    assert bench.shown == "start=0 0-1 expired"
    relay(bench.broker)
    assert [letter["__dlq.errors.offset"] for letter in letters(bench.broker, "dlq.g")] == [b"0", b"1"]
    assert bench.given() == {2: 1}
    bench.restart()
    relay(bench.broker)
    assert len(letters(bench.broker, "dlq.g")) == 2


def test_a_group_without_dead_letters_drops_them() -> None:
    bench = Bench(halfmoon_ttl_action="dead-letter")
    bench.broker.group_configs.alter(GROUP, {"errors.deadletterqueue.topic.name": ""})
    bench.send(100, None)
    bench.clock.now_ms += 100
    assert bench.given() == {1: 1}
    assert bench.broker.expiry.counts == {("share", "dropped"): 1}


def test_what_cannot_be_written_is_written_later(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(halfmoon_ttl_action="dead-letter")
    bench.send(100, None)
    part = part_of(bench.broker, "t")
    turn(bench.broker)
    bench.clock.now_ms += 100
    bench.broker.log.failed = OSError("no more")
    assert bench.given() == {1: 1}
    assert part.is_unwritten
    assert caplog.text.count("event=share_state_not_written") == 1
    bench.broker.log.failed = None
    bench.clock.now_ms += 2_000
    bench.broker.shares.expire(bench.clock.now_ms)
    bench.restart()
    relay(bench.broker)
    assert len(letters(bench.broker, "dlq.g")) == 1


def test_a_backlog_that_has_expired_is_passed_over_a_bit_at_a_time() -> None:
    bench = Bench()
    for _ in range(50):
        bench.send(*[10] * 20)
    bench.send(None)
    bench.clock.now_ms += 10
    part, options = part_of(bench.broker, "t"), bench.broker.shares.options(GROUP)
    delivery = bench.broker.shares.delivery
    rounds = 0
    while delivery.could_give(part, options) and fetch(bench.broker, part, "a", 20) is None:
        rounds += 1
    assert rounds == 2, "of 20 batches each, before others have their turn"
    assert bench.shown == "start=1000 1000 acquired#1(a)"


@pytest.mark.parametrize("codec", range(5))
def test_large_batches_are_opened_in_a_thread_and_once(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "THREAD_BYTES", 500)
    monkeypatch.setattr(expiry, "LARGE_BYTES", 1_000)
    bench = Bench()
    bench.send(*[100, None] * 500, codec=codec)
    delivery, part = bench.broker.shares.delivery, part_of(bench.broker, "t")
    options, demand = bench.broker.shares.options(GROUP), Demand(500, 500)
    bench.clock.now_ms += 100
    loading = delivery.fetch(part, "a", demand, ENOUGH, options)
    assert isinstance(loading, Loading)
    assert delivery.fetch(part, "b", demand, ENOUGH, options) is None, "the same is being read"
    found = delivery.loaded(part, "a", loading, loading.load(), demand, options)
    assert list(given(found)) == list(range(1, 1_000, 2))
    other = part_of(bench.broker, "t", group="other")
    again = delivery.fetch(other, "b", demand, ENOUGH, options)
    assert not isinstance(again, Loading)
    assert list(given(again)) == list(range(1, 1_000, 2))


def test_a_plain_batch_without_a_ttl_is_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(*_: Any, **__: Any) -> Any:
        raise AssertionError("its records are looked at")

    bench = Bench()
    bench.send(None, None)
    monkeypatch.setattr(expiry, "ends_of", looked)
    assert bench.given() == {0: 1, 1: 1}


def test_of_a_compacted_batch_only_its_gaps_are_left() -> None:
    bench = Bench(cleanup_policy="compact", halfmoon_ttl_ms="100")
    partition = partition_of(bench.broker, "t")
    for value in (b"a", b"b", b"c"):
        rows = [(b"k%d" % at, value, bench.clock.now_ms, ()) for at in range(3 if value == b"a" else 2)]
        append(bench.broker, partition, memoryview(bytearray(build_batch(rows))))
        turn(bench.broker)
    clean(bench.broker, bench.clock)
    bench.clock.now_ms += 100
    assert [record for record, _ in read_all(bench.broker, "t")] == [2, 3, 4, 5, 6]
    assert set(bench.given()) == {0, 1}, "members acknowledge these as gaps, as always"
    assert bench.broker.expiry.counts == {("share", "dropped"): 5}


# -- crashes -----------------------------------------------------------------------------------------------------------


def play(fs: FaultyFileSystem, clock: VirtualClock, told: dict[int, str]) -> None:
    """Rounds in which of six records two expire before anybody has them, two are accepted and two are held on to."""
    broker = open_broker(fs, clock, sections=SECTIONS)
    broker.create_topic("t", 1, {ACTION: "dead-letter"})
    turn(broker)
    for number in range(5):
        rows = [
            (None, b"x" * 3_000, clock.now_ms, ((TTL, b"100"),) if at in (1, 4) else ()) for at in range(6)
        ]  # fmt: skip
        append(broker, partition_of(broker, "t"), memoryview(bytearray(build_batch(rows))))
        turn(broker)
        clock.now_ms += 100
        part, base = part_of(broker, "t"), 6 * number
        assert list(given(fetch(broker, part, "a"))) == [base, base + 2, base + 3, base + 5]

        def answered(error: BrokerError | None, base: int = base) -> None:
            if error is None:
                told.update(dict.fromkeys((base + 2, base + 3), "accepted"))

        broker.when_durable(acknowledge(broker, part, "a", base + 2, base + 3, ACCEPT), answered)
        relay(broker)


@pytest.mark.timeout(300)
def test_dying_at_any_operation_doubles_no_dead_letter_and_loses_none() -> None:
    for fs, clock, told in deaths(play, dict[int, str], least=50):
        broker = open_broker(fs, clock, sections=SECTIONS)
        turn(broker)
        topic = broker.topic("t")
        if topic is None:
            assert not told
            continue
        part = part_of(broker, "t")
        end = topic.partitions[0].high_watermark
        clock.now_ms += 100
        seen: set[int] = set()
        while part.start < end:
            found = given(fetch(broker, part, "z"))
            assert found or part.dead_letters_pending or part.start == end
            for offset in found:
                assert offset not in told, f"offset {offset} was accepted and came again"
                assert offset % 6 not in (1, 4), f"offset {offset} has expired"
                acknowledge(broker, part, "z", offset, offset, ACCEPT)
            seen |= found.keys()
            relay(broker)
        dead = sorted(int(letter["__dlq.errors.offset"] or b"") for letter in letters(broker, "dlq.g"))
        assert dead == [offset for offset in range(end) if offset % 6 in (1, 4)]
