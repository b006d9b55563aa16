"""What a transaction promises, by each client: Java, librdkafka, aiokafka, kafka-python."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count

import pytest

from tests.interop.transactions.kit import COMMITTED, DEADLINE_S, UNCOMMITTED, Kit, Producer

MakeTopic = Callable[..., str]
Committed = Callable[[str, str, int], dict[int, int]]
NOTHING = -1001

pytestmark = pytest.mark.timeout(120)


def test_what_is_committed_is_seen_by_all(kit: Kit, topic: str, name: str) -> None:
    producer = kit.producer(name)
    producer.transaction(topic, ["a", "b"])
    producer.transaction(topic, ["c"])
    for isolation in (COMMITTED, UNCOMMITTED):
        kit.read(topic, isolation).gets(["a", "b", "c"])


def test_what_is_aborted_is_seen_by_those_who_want_to(kit: Kit, topic: str, name: str) -> None:
    producer = kit.producer(name)
    producer.transaction(topic, ["a"], commit=False)
    producer.transaction(topic, ["b"])
    producer.transaction(topic, ["c", "d"], commit=False)
    producer.transaction(topic, ["e"])
    kit.read(topic, COMMITTED).gets(["b", "e"])
    kit.read(topic, UNCOMMITTED).gets(["a", "b", "c", "d", "e"])


def test_an_open_transaction_holds_up_what_follows(kit: Kit, topic: str, name: str) -> None:
    """A committed record waits behind another's open transaction, and both come in the order of the log."""
    first, second = kit.producer(f"{name}-1"), kit.producer(f"{name}-2")
    first.transaction(topic, ["before"])
    first.begin()
    first.write(topic, ["open"])
    second.transaction(topic, ["behind"])
    reading = kit.read(topic, COMMITTED)
    reading.gets(["before"], quiet_s=1.0)
    kit.read(topic, UNCOMMITTED).gets(["before", "open", "behind"])
    first.commit()
    reading.gets(["before", "open", "behind"])


def test_an_abort_lets_go_what_waited_behind_it(kit: Kit, topic: str, name: str) -> None:
    first, second = kit.producer(f"{name}-1"), kit.producer(f"{name}-2")
    first.begin()
    first.write(topic, ["open"])
    second.transaction(topic, ["behind"])
    reading = kit.read(topic, COMMITTED)
    reading.is_quiet(1.0)
    first.abort()
    reading.gets(["behind"])


def test_partitions_and_topics_together(kit: Kit, make_topic: MakeTopic, name: str) -> None:
    one, other = make_topic(3), make_topic()
    producer = kit.producer(name)
    for number, commit in enumerate((True, False, True, False, True)):
        producer.begin()
        for partition in range(3):
            producer.send(one, f"{number}.{partition}", partition)
        producer.send(other, str(number))
        producer.flush()
        (producer.commit if commit else producer.abort)()
    reading = kit.read(one, COMMITTED, partitions=3)
    reading.until(9)
    for partition in range(3):
        assert reading.values(partition) == [f"{number}.{partition}" for number in (0, 2, 4)]
    kit.read(other, COMMITTED).gets(["0", "2", "4"])


def test_empty_transactions(kit: Kit, topic: str, name: str) -> None:
    producer = kit.producer(name)
    for _ in range(3):
        producer.begin()
        producer.commit()
        producer.begin()
        producer.abort()
    producer.transaction(topic, ["a"])
    kit.read(topic).gets(["a"])


def test_many_in_a_row(kit: Kit, topic: str, name: str) -> None:
    """Each begins while the markers of the one before are still being written; every third is aborted."""
    producer = kit.producer(name)
    for number in range(60):
        producer.transaction(topic, [str(number)], commit=number % 3 != 1)
    kit.read(topic, COMMITTED).gets([str(number) for number in range(60) if number % 3 != 1])
    kit.read(topic, UNCOMMITTED).gets([str(number) for number in range(60)])


def test_a_zombie_is_fenced(kit: Kit, topic: str, name: str) -> None:
    """Whoever takes the id aborts what the one before it had open, and that one can do nothing more."""
    zombie = kit.producer(name)
    zombie.transaction(topic, ["before"])
    zombie.begin()
    zombie.write(topic, ["lost"])
    heir = kit.producer(name)
    heir.transaction(topic, ["heir"])
    kit.fenced(lambda: finish(zombie, topic))
    heir.transaction(topic, ["heir again"])
    kit.read(topic, COMMITTED).gets(["before", "heir", "heir again"])


def test_a_zombie_without_anything_open_is_fenced(kit: Kit, topic: str, name: str) -> None:
    zombie = kit.producer(name)
    zombie.transaction(topic, ["before"])
    heir = kit.producer(name)
    kit.fenced(lambda: (zombie.begin(), finish(zombie, topic)))
    heir.transaction(topic, ["heir"])
    kit.read(topic, COMMITTED).gets(["before", "heir"])


def test_a_transaction_over_its_time_is_aborted(kit: Kit, topic: str, name: str) -> None:
    late, other = kit.producer(f"{name}-late", timeout_ms=1_000), kit.producer(f"{name}-other")
    late.begin()
    late.write(topic, ["lost"])
    other.transaction(topic, ["behind"])
    kit.read(topic, COMMITTED).gets(["behind"])
    with pytest.raises(Exception):  # noqa: B017, PT011 - each client has a word of its own for it
        late.commit()
    kit.read(topic, COMMITTED).gets(["behind"])
    # The id is still good, for whoever begins anew.
    kit.producer(f"{name}-late").transaction(topic, ["anew"])
    kit.read(topic, COMMITTED).gets(["behind", "anew"])


def test_offsets_count_with_the_transaction(kit: Kit, make_topic: MakeTopic, name: str, committed: Committed) -> None:
    source, target = make_topic(), make_topic()
    producer = kit.producer(name)
    producer.transaction(source, ["a", "b", "c"])
    group = f"{name}-group"
    member = kit.member(group, source)
    member.take(3)

    producer.begin()
    producer.write(target, ["lost"])
    producer.send_offsets(member, source, {0: 2})
    producer.abort()
    assert committed(group, source, 1) == {0: NOTHING}

    producer.begin()
    producer.write(target, ["kept"])
    producer.send_offsets(member, source, {0: 3})
    producer.commit()
    assert committed(group, source, 1) == {0: 3}

    producer.begin()
    producer.send_offsets(member, source, {0: 1})
    producer.abort()
    assert committed(group, source, 1) == {0: 3}
    kit.read(target, COMMITTED).gets(["kept"])


def test_consume_transform_produce(kit: Kit, make_topic: MakeTopic, name: str, committed: Committed) -> None:
    """Every third transaction is aborted, and done again from what is committed: nothing twice, nothing missing."""
    source, target = make_topic(2), make_topic()
    records = [f"r{number}" for number in range(200)]
    filler = kit.producer(f"{name}-filler")
    filler.begin()
    for number, value in enumerate(records):
        filler.send(source, value, number % 2)
    filler.flush()
    filler.commit()

    group = f"{name}-group"
    member, producer = kit.member(group, source), kit.producer(name)
    done: set[str] = set()
    next_offsets: dict[int, int] = {}
    attempts = count(1)
    end = time.monotonic() + DEADLINE_S
    while len(done) < len(records):
        assert time.monotonic() < end, f"{len(done)} of {len(records)}"
        taken = member.take(1)
        producer.begin()
        for record in taken:
            producer.send(target, record.value)
        producer.flush()
        offsets = next_offsets | {record.partition: record.offset + 1 for record in taken}
        producer.send_offsets(member, source, offsets)
        if next(attempts) % 3 == 1:
            producer.abort()
            member.rewind(source)
        else:
            producer.commit()
            next_offsets = offsets
            done |= {record.value for record in taken}
    assert next(attempts) > 2, "nothing was aborted"
    reading = kit.read(target, COMMITTED)
    reading.until(len(records))
    reading.is_quiet()
    assert sorted(reading.values()) == sorted(records)
    assert committed(group, source, 2) == next_offsets


def finish(producer: Producer, topic: str) -> None:
    """What the owner of a transaction would do next."""
    producer.send(topic, "never")
    producer.commit()
