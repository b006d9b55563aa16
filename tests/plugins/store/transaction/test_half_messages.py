"""Half messages: committed, rolled back, asked about; each ends once, whatever happens (B31, B32, B40, B41)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

import halfmoon.testing
from halfmoon.core.records.batches import build_batch
from halfmoon.core.steps import finish
from halfmoon.errors import BrokerError, Fault, TakesLongError
from halfmoon.hooks.context import PluginContext
from halfmoon.plugins.store.transaction.half_messages import END_TOPIC, GIVEN_UP_TOPIC, HALF_TOPIC
from halfmoon.plugins.store.transaction.plugin import TransactionSettings, halfmoon_commitlog, halfmoon_relays
from halfmoon.schema.group_topics import check_topic
from halfmoon.server.plugin_host import Host
from halfmoon.services.waiting import delivering
from halfmoon.services.waiting.deciding import DECIDED
from halfmoon.services.waiting.types import PutInterceptor
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, open_broker, partition_of, relay, turn
from tests.core.relay_bench import deaths, found, lose_derived, pass_ms, send, values
from tests.services.waiting.test_deliveries import TwoClocks

SETTINGS = TransactionSettings(timeout_ms=1_000, check_interval_ms=5_000, check_max=3)
CHECKS = check_topic("shop")


def reopen(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    ctx = PluginContext("transaction", SETTINGS)
    interceptors: list[PutInterceptor] = halfmoon_commitlog(ctx)
    broker = open_broker(fs, clock, interceptors=interceptors, relays=halfmoon_relays(ctx))
    ctx.attach(Host(broker, "unused"))
    return broker


@pytest.fixture
def broker(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    broker = reopen(fs, clock)
    broker.create_topic("orders", 2)
    broker.create_topic(END_TOPIC, 1)
    return broker


def half(key: str, **more: str) -> dict[str, str]:
    return {"TRAN_MSG": "true", "PGROUP": "shop", "UNIQ_KEY": key, **more}


def end(broker: BareNode, state: str, *keys: str, **fields: int) -> None:
    base = send(
        broker, END_TOPIC, *[(b"", {"PGROUP": "shop", "UNIQ_KEY": key, "TRAN_STATE": state}) for key in keys], **fields
    )
    assert base == -1
    relay(broker)


def waiting(broker: BareNode) -> int:
    return len(partition_of(broker, HALF_TOPIC).pending or ())


def test_nobody_sees_a_half_message_until_it_is_committed(broker: BareNode, clock: VirtualClock) -> None:
    assert send(broker, "orders", (b"v", half("k", mine="x")), index=1) == -1
    relay(broker)
    assert values(broker, "orders", 1) == []
    clock.now_ms += 500
    end(broker, "commit", "k")
    ((offset, value, timestamp, headers),) = found(broker, "orders", 1)
    assert (offset, value, timestamp) == (0, b"v", clock.now_ms)
    assert headers == {"PGROUP": b"shop", "UNIQ_KEY": b"k", "mine": b"x"}
    pass_ms(broker, clock, 10**7)
    assert len(found(broker, "orders", 1)) == 1
    assert values(broker, CHECKS) == []
    assert waiting(broker) == 0


def test_a_message_that_is_rolled_back_is_gone(broker: BareNode, clock: VirtualClock) -> None:
    send(broker, "orders", (b"v", half("k")))
    relay(broker)
    end(broker, "rollback", "k")
    pass_ms(broker, clock, 10**7)
    assert values(broker, "orders") == []
    assert values(broker, CHECKS) == []
    assert waiting(broker) == 0


def test_what_has_ended_leaves_nothing_behind_in_memory(fs: FaultyFileSystem) -> None:
    """Found by a soak: messages that came while the clock was set back were remembered for ever."""
    clock = TwoClocks()
    broker = reopen(fs, clock)
    broker.create_topic("orders", 2)
    broker.create_topic(END_TOPIC, 1)
    clock.leap_ms = -3_600_000
    for number in range(10):
        send(broker, "orders", (b"v", half(f"k{number}")))
        relay(broker)
    schedule = broker.waiting._queues.times
    assert schedule.shifted == 10
    for number in range(10):
        end(broker, ("commit", "rollback")[number % 2], f"k{number}")
    pass_ms(broker, clock, 10**7)
    assert waiting(broker) == 0
    assert schedule.shifted == 0


def test_the_first_end_counts(broker: BareNode, clock: VirtualClock) -> None:
    send(broker, "orders", (b"a", half("a")), (b"b", half("b")))
    relay(broker)
    end(broker, "commit", "a", "a")
    end(broker, "rollback", "b")
    for state in ("commit", "rollback", "unknown"):
        end(broker, state, "a", "b", "never heard of")
    assert values(broker, "orders") == [b"a"]


def test_who_does_not_say_is_asked_and_in_the_end_the_message_is_given_up(
    broker: BareNode, clock: VirtualClock
) -> None:
    send(broker, "orders", (b"v", half("k")))
    relay(broker)
    pass_ms(broker, clock, 999)
    assert values(broker, CHECKS) == []
    pass_ms(broker, clock, 1)
    ((_, value, _, headers),) = found(broker, CHECKS)
    assert value == b"v"
    assert headers == {"PGROUP": b"shop", "UNIQ_KEY": b"k", "TRAN_CHECK_TIMES": b"1", "REAL_TOPIC": b"orders"}
    pass_ms(broker, clock, 10_000)
    assert [row[3]["TRAN_CHECK_TIMES"] for row in found(broker, CHECKS)] == [b"1", b"2", b"3"]
    end(broker, "unknown", "k")
    assert waiting(broker) == 1
    pass_ms(broker, clock, 5_000)
    assert len(found(broker, CHECKS)) == 3
    ((_, value, _, headers),) = found(broker, GIVEN_UP_TOPIC)
    assert (value, headers["TRAN_CHECK_TIMES"], headers["REAL_TOPIC"]) == (b"v", b"3", b"orders")
    end(broker, "commit", "k")
    assert values(broker, "orders") == []
    assert waiting(broker) == 0


@pytest.mark.parametrize("state", ["commit", "rollback"])
def test_the_answer_to_a_check_ends_it(broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock, state: str) -> None:
    send(broker, "orders", (b"v", half("k")), (b"w", half("l")))
    relay(broker)
    pass_ms(broker, clock, 6_000)
    assert len(found(broker, CHECKS)) == 4
    fs = fs.power_loss()
    lose_derived(fs)
    broker = reopen(fs, clock)
    relay(broker)
    end(broker, state, "k")
    pass_ms(broker, clock, 20_000)
    checks = [(row[1], row[3]["TRAN_CHECK_TIMES"]) for row in found(broker, CHECKS)]
    assert checks[:4] == [(b"v", b"1"), (b"w", b"1"), (b"v", b"2"), (b"w", b"2")]
    assert set(checks[4:]) <= {(b"v", b"3"), (b"w", b"3")}, "the count is not forgotten"
    assert values(broker, "orders") == ([b"v"] if state == "commit" else [])
    assert values(broker, GIVEN_UP_TOPIC) == [b"w"]


def test_an_end_right_behind_its_message(broker: BareNode) -> None:
    """It is on disk, and the relay has not had a turn."""
    send(broker, "orders", (b"v", half("k")))
    turn(broker)
    end(broker, "commit", "k")
    assert values(broker, "orders") == [b"v"]


def test_many_in_one_batch(broker: BareNode) -> None:
    rows = [(b"%03d" % number, half(f"k{number}")) for number in range(300)]
    send(broker, "orders", *rows, (b"plain", {}))
    relay(broker)
    assert values(broker, "orders") == [b"plain"]
    end(broker, "commit", *[f"k{number}" for number in range(0, 300, 2)])
    end(broker, "rollback", *[f"k{number}" for number in range(1, 300, 2)])
    assert values(broker, "orders")[1:] == [b"%03d" % number for number in range(0, 300, 2)]
    assert waiting(broker) == 0


@pytest.mark.parametrize("restart", [False, True])
def test_a_commit_and_a_rollback_in_one_batch(
    broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock, restart: bool
) -> None:
    send(broker, "orders", (b"a", half("a")), (b"b", half("b")))
    relay(broker)
    rows = [
        (b"", {"PGROUP": "shop", "UNIQ_KEY": key, "TRAN_STATE": state})
        for key, state in (("a", "rollback"), ("b", "commit"))
    ]
    send(broker, END_TOPIC, *rows)
    relay(broker)
    if restart:
        fs = fs.power_loss()
        lose_derived(fs)
        broker = reopen(fs, clock)
        relay(broker)
    assert values(broker, "orders") == [b"b"]
    assert waiting(broker) == 0


def test_how_often_somebody_was_asked_survives_a_clean_stop(
    broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock
) -> None:
    send(broker, "orders", (b"v", half("k")))
    relay(broker)
    pass_ms(broker, clock, 6_000)
    broker.close()
    broker = reopen(fs, clock)
    relay(broker)
    pass_ms(broker, clock, 30_000)
    assert [row[3]["TRAN_CHECK_TIMES"] for row in found(broker, CHECKS)] == [b"1", b"2", b"3"]
    assert values(broker, GIVEN_UP_TOPIC) == [b"v"]


def test_a_half_message_that_is_sent_again_is_one(broker: BareNode, clock: VirtualClock) -> None:
    for _ in range(2):
        send(broker, "orders", (b"v", half("k")))
        relay(broker)
    assert waiting(broker) == 1
    end(broker, "commit", "k")
    pass_ms(broker, clock, 10**7)
    assert values(broker, "orders") == [b"v"]


def test_a_disk_that_is_full_at_the_end_of_a_transaction(broker: BareNode, clock: VirtualClock) -> None:
    send(broker, "orders", (b"v", half("k")))
    relay(broker)
    broker.log.low_disk = True
    with pytest.raises(BrokerError):
        end(broker, "commit", "k")
    broker.log.low_disk = False
    pass_ms(broker, clock, 1_000)
    assert len(found(broker, CHECKS)) == 1
    end(broker, "commit", "k")
    assert values(broker, "orders") == [b"v"]


def test_a_topic_that_is_gone(broker: BareNode) -> None:
    topic = broker.topic("orders")
    assert topic is not None
    send(broker, "orders", (b"v", half("k")))
    relay(broker)
    broker.delete_topic(topic)
    end(broker, "commit", "k")
    assert values(broker, "halfmoon.undeliverable") == [b"v"]


@pytest.mark.parametrize(
    ("topic", "headers", "said"),
    [
        ("orders", {"TRAN_MSG": "true", "PGROUP": "g"}, "a transaction needs header UNIQ_KEY"),
        ("orders", {"TRAN_MSG": "true", "UNIQ_KEY": "k"}, "a transaction needs header PGROUP"),
        (END_TOPIC, {"PGROUP": "g", "UNIQ_KEY": "k"}, "header TRAN_STATE is b'', not commit, rollback or unknown"),
        (END_TOPIC, {"PGROUP": "g", "UNIQ_KEY": "k", "TRAN_STATE": "maybe"}, "not commit, rollback or unknown"),
        (END_TOPIC, {"TRAN_STATE": "commit", "UNIQ_KEY": "k"}, "a transaction needs header PGROUP"),
    ],
)
def test_what_makes_no_sense_is_refused(broker: BareNode, topic: str, headers: dict[str, str], said: str) -> None:
    with pytest.raises(BrokerError) as caught:
        send(broker, topic, (b"v", headers))
    assert caught.value.fault is Fault.INVALID_RECORD
    assert said in caught.value.message


def test_what_does_not_say_true_is_an_ordinary_record(broker: BareNode) -> None:
    assert send(broker, "orders", (b"v", {"TRAN_MSG": "false"})) == 0


@pytest.mark.timeout(300)
def test_dying_at_any_operation_ends_each_once() -> None:
    def play(fs: FaultyFileSystem, clock: VirtualClock, ended: dict[str, bool]) -> None:
        """`ended`: what was acknowledged, and whether it was a commit."""
        broker = reopen(fs, clock)
        for name in ("orders", END_TOPIC):
            if broker.topic(name) is None:
                broker.create_topic(name, 1)
        sequence: dict[str, int] = {"orders": 0, END_TOPIC: 0}

        def put(topic: str, *rows: Any) -> None:
            send(broker, topic, *rows, producer_id=9, producer_epoch=0, base_sequence=sequence[topic])
            sequence[topic] += len(rows)

        for number in range(10):
            key, commit = f"{number:02}", number % 3 != 0
            put("orders", (key.encode(), half(key)), (bytes(9_000), {}))
            relay(broker)
            pass_ms(broker, clock, 1_200 if number % 4 == 0 else 10)
            state = {"PGROUP": "shop", "UNIQ_KEY": key, "TRAN_STATE": "commit" if commit else "rollback"}
            put(END_TOPIC, (b"", state))
            broker.when_durable(
                broker.log.end, lambda error, key=key, commit=commit: None if error else ended.update({key: commit})
            )  # type: ignore[misc]
            relay(broker)
            if number == 6:
                broker.close()
                broker = reopen(fs, clock)

    for fs, clock, ended in deaths(play, dict[str, bool], least=80):
        broker = reopen(fs, clock)
        relay(broker)
        if broker.topic("orders") is None:
            continue
        there = [(value or b"").decode() for value in values(broker, "orders") if value is not None and len(value) == 2]
        assert len(there) == len(set(there))
        assert all((key in there) == commit for key, commit in ended.items())
        pass_ms(broker, clock, 60_000)
        given_up = values(broker, GIVEN_UP_TOPIC) if broker.topic(GIVEN_UP_TOPIC) is not None else []
        assert len(given_up) <= 1, "all but the last were ended"
        assert not {(value or b"").decode() for value in given_up} & set(ended)
        there_again = [value for value in values(broker, "orders") if value is not None and len(value) == 2]
        assert len(there_again) == len(there)
        if broker.topic(HALF_TOPIC) is not None:
            assert waiting(broker) == 0


def test_a_commit_whose_batch_is_refused_may_be_sent_again(broker: BareNode) -> None:
    send(broker, "orders", (b"v", half("k")))
    relay(broker)
    commit = {"PGROUP": "shop", "UNIQ_KEY": "k", "TRAN_STATE": "commit"}
    with pytest.raises(BrokerError, match="record 1"):
        send(broker, END_TOPIC, (b"", commit), (b"", {**commit, "TRAN_STATE": "maybe"}))
    broker.log.low_disk = True
    with pytest.raises(BrokerError):
        send(broker, END_TOPIC, (b"", commit))
    broker.log.low_disk = False
    end(broker, "commit", "k")
    assert values(broker, "orders") == [b"v"]


def test_a_commit_right_after_a_restart(fs: FaultyFileSystem, clock: VirtualClock, broker: BareNode) -> None:
    send(broker, "orders", (b"v", half("k")))
    relay(broker)
    broker.close()
    broker = reopen(fs, clock)
    send(broker, END_TOPIC, (b"", {"PGROUP": "shop", "UNIQ_KEY": "k", "TRAN_STATE": "commit"}))
    relay(broker)
    assert values(broker, "orders") == [b"v"]
    assert waiting(broker) == 0


def roll(broker: BareNode) -> None:
    broker.waiting.reclaim._upto = broker.log.end
    broker.relays.wake(broker.waiting.reclaim)
    relay(broker)


def test_a_commit_after_the_message_was_moved(broker: BareNode) -> None:
    send(broker, "orders", (b"v", half("k")))
    relay(broker)
    roll(broker)
    assert broker.waiting.moved == 1
    end(broker, "commit", "k")
    assert values(broker, "orders") == [b"v"]
    assert waiting(broker) == 0


def say(broker: BareNode, state: str, key: str) -> None:
    """As `end`, in the middle of a turn."""
    assert send(broker, END_TOPIC, (b"", {"PGROUP": "shop", "UNIQ_KEY": key, "TRAN_STATE": state})) == -1


@pytest.mark.parametrize(("state", "left"), [("commit", [b"v"]), ("rollback", [])])
@pytest.mark.parametrize("moves", [1, 2])
def test_an_end_while_the_message_is_being_moved(
    broker: BareNode, clock: VirtualClock, moves: int, state: str, left: list[bytes]
) -> None:
    """Found by torture: at its old place it waited no more, at its new one it was not visible yet."""
    send(broker, "orders", (b"v", half("k")))
    relay(broker)
    for _ in range(moves - 1):
        roll(broker)
    broker.waiting.reclaim._upto = broker.log.end
    finish(broker.waiting.reclaim.run())
    assert broker.waiting.moved == moves
    say(broker, state, "k")
    relay(broker)
    pass_ms(broker, clock, 10**7)
    assert values(broker, "orders") == left
    assert values(broker, CHECKS) == []
    assert waiting(broker) == 0


@pytest.mark.parametrize(("state", "left"), [("commit", [b"v"]), ("rollback", [])])
def test_an_end_in_the_turn_of_the_message(
    broker: BareNode, clock: VirtualClock, state: str, left: list[bytes]
) -> None:
    send(broker, "orders", (b"v", half("k")))
    say(broker, state, "k")
    pass_ms(broker, clock, 10**7)
    assert values(broker, "orders") == left
    assert values(broker, CHECKS) == []
    assert waiting(broker) == 0


def test_a_moved_message_is_asked_about(broker: BareNode, clock: VirtualClock) -> None:
    send(broker, "orders", (b"v", half("k")))
    relay(broker)
    roll(broker)
    pass_ms(broker, clock, 1_000)
    assert values(broker, CHECKS) == [b"v"]
    say(broker, "commit", "k")
    pass_ms(broker, clock, 10**7)
    assert values(broker, "orders") == [b"v"]


def test_a_half_message_that_is_sent_twice_is_one(broker: BareNode, clock: VirtualClock) -> None:
    send(broker, "orders", (b"v", half("k")), (b"v", half("k")))
    send(broker, "orders", (b"v", half("k")))
    relay(broker)
    assert waiting(broker) == 1
    end(broker, "commit", "k")
    pass_ms(broker, clock, 10_000)
    end(broker, "commit", "k")
    assert values(broker, "orders") == [b"v"]


def test_of_many_messages_some_are_committed_by_one_batch(broker: BareNode) -> None:
    """Whichever frames they stand in, in the order they were sent."""
    for base in (0, 50):
        send(broker, "orders", *[(b"%d" % n, half(f"k{n}")) for n in range(base, base + 50)])
    relay(broker)
    end(broker, "commit", *[f"k{n}" for pair in zip(range(0, 50, 2), range(50, 100, 2), strict=True) for n in pair])
    assert values(broker, "orders") == [b"%d" % n for n in range(0, 100, 2)]
    assert waiting(broker) == 50


@pytest.mark.parametrize("group", ["x" * 300, "x" * 244])
def test_a_producer_group_that_no_topic_can_be_named_after(broker: BareNode, group: str) -> None:
    with pytest.raises(BrokerError, match="record 0: header PGROUP") as caught:
        send(broker, "orders", (b"v", {**half("k"), "PGROUP": group}))
    assert caught.value.fault is Fault.INVALID_RECORD


def test_more_in_one_batch_than_can_be_done(broker: BareNode) -> None:
    with pytest.raises(BrokerError, match="10000 half messages"):
        send(broker, "orders", *[(b"", half(f"{n}")) for n in range(10_001)])
    with pytest.raises(BrokerError, match="10000 half messages"):
        end(broker, "commit", *map(str, range(10_001)))


def test_a_message_that_cannot_be_asked_about_holds_up_no_other(broker: BareNode, clock: VirtualClock) -> None:
    """The topic of its checks is a view, which nobody produces to."""
    broker.create_topic(CHECKS, configs={"halfmoon.view.source": "orders", "halfmoon.view.prefix": "x"})
    send(broker, "orders", (b"v", half("k")), (b"w", {**half("k"), "PGROUP": "other"}))
    send(broker, "orders", (b"x", {**half("j"), "PGROUP": "other"}))
    relay(broker)
    pass_ms(broker, clock, 1_000)
    assert values(broker, check_topic("other")) == [b"w", b"x"]
    assert not broker.relays.problems()
    pass_ms(broker, clock, 4_000)
    assert values(broker, check_topic("other")) == [b"w", b"x"], "not asked about again before its time"
    end(broker, "commit", "k")
    assert values(broker, "orders") == [b"v"]


def test_what_is_lost_to_rot_holds_up_no_other(broker: BareNode) -> None:
    for key in "abc":
        send(broker, "orders", (key.encode(), half(key)))
    relay(broker)
    partition_of(broker, HALF_TOPIC).queue.lose(1, 2)
    end(broker, "commit", "a", "b", "c")
    assert values(broker, "orders") == [b"a", b"c"]


def test_restarts_are_no_reason_to_ask_again(fs: FaultyFileSystem, clock: VirtualClock, broker: BareNode) -> None:
    send(broker, "orders", (b"v", half("k")))
    relay(broker)
    pass_ms(broker, clock, 1_000)
    for _ in range(4):
        broker.close()
        broker = reopen(fs, clock)
        pass_ms(broker, clock, 10)
    assert len(found(broker, CHECKS)) == 1
    assert broker.topic(GIVEN_UP_TOPIC) is None
    pass_ms(broker, clock, 5_000)
    assert len(found(broker, CHECKS)) == 2


def test_checks_are_counted_on_when_the_message_is_moved(broker: BareNode, clock: VirtualClock) -> None:
    send(broker, "orders", (b"v", half("k")))
    relay(broker)
    for _ in range(6):
        pass_ms(broker, clock, 5_001)
        roll(broker)
    assert [headers["TRAN_CHECK_TIMES"] for *_, headers in found(broker, CHECKS)] == [b"1", b"2", b"3"]
    assert values(broker, GIVEN_UP_TOPIC) == [b"v"]


def test_ends_are_remembered_of_an_idempotent_producer(broker: BareNode) -> None:
    for sequence in range(5):
        end(broker, "unknown", f"{sequence}", producer_id=7, producer_epoch=0, base_sequence=sequence)
    for sequence in range(5):  # sent again after a lost connection
        end(broker, "unknown", f"{sequence}", producer_id=7, producer_epoch=0, base_sequence=sequence)
    producers = partition_of(broker, END_TOPIC).producers
    assert producers is not None
    positions = [batch.end_position for batch in producers.by_id[7].batches]
    assert positions == sorted(set(positions))
    assert positions[0] > 0


def test_messages_too_large_to_be_committed_at_once(broker: BareNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivering, "RELEASED_BYTES", 10_000)
    for key in "abc":
        send(broker, "orders", (key.encode() + bytes(4_000), half(key)))
    send(broker, "orders", (b"d" + bytes(11_000), half("d")))
    relay(broker)
    with pytest.raises(BrokerError) as caught:
        end(broker, "commit", "a", "b", "c")
    assert caught.value.fault is Fault.MESSAGE_TOO_LARGE  # a client makes two batches of it then
    end(broker, "commit", "a", "b")
    end(broker, "commit", "c")
    end(broker, "commit", "d")
    assert [value[:1] for value in values(broker, "orders") if value] == [b"a", b"b", b"c", b"d"]


def test_many_messages_that_are_committed_together_are_several_batches(broker: BareNode) -> None:
    send(broker, "orders", *[(b"%d" % n, half(f"{n}")) for n in range(2_500)])
    relay(broker)
    end(broker, "commit", *map(str, range(2_500)))
    assert values(broker, "orders") == [b"%d" % n for n in range(2_500)]
    assert len(partition_of(broker, "orders").queue.places(0, 1 << 30, min_one=True)) == 3


def test_a_groups_check_topic_is_made_with_its_first_half_message(broker: BareNode) -> None:
    """Who subscribes to it learns of it before it is asked."""
    send(broker, "orders", (b"a", half("1")), (b"b", {**half("2"), "PGROUP": "till"}), (b"c", {}))
    assert broker.topic(CHECKS) is not None
    assert broker.topic(check_topic("till")) is not None
    send(broker, "orders", (b"d", half("3")))
    assert values(broker, CHECKS) == []


def test_half_messages_are_taken_where_no_more_topics_can_be_made(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    ctx = PluginContext("transaction", SETTINGS)
    interceptors: list[PutInterceptor] = halfmoon_commitlog(ctx)
    limit = {"limits": {"max_partitions": 4}}
    broker = open_broker(fs, clock, sections=limit, interceptors=interceptors, relays=halfmoon_relays(ctx))
    ctx.attach(Host(broker, "unused"))
    broker.create_topic("orders", 2)
    broker.create_topic(END_TOPIC, 1)
    send(broker, "orders", (b"a", half("1")))
    assert waiting(broker) == 1


class TestDeletion:
    """Of the topics without which half messages could not end."""

    def delete(self, admin: AdminClient, topic: str) -> str | None:
        (told,) = admin.delete_topics([topic]).values()
        try:
            told.result(10)
        except KafkaException as error:
            return str(error.args[0].name())
        return None

    def send(self, address: str, topic: str, **headers: str) -> None:
        producer = Producer({"bootstrap.servers": address, "allow.auto.create.topics": True})
        errors: list[object] = []
        producer.produce(topic, b"v", headers=headers, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(10) == 0
        assert errors == [None]

    def test_is_refused_while_half_messages_wait(self) -> None:
        with halfmoon.testing.Broker() as running:
            address = running.bootstrap_servers
            admin = AdminClient({"bootstrap.servers": address})
            self.send(address, "orders", **half("1"))
            self.send(address, "orders", **{**half("2"), "PGROUP": "till"})
            for topic in (END_TOPIC, CHECKS):
                assert self.delete(admin, topic) == "POLICY_VIOLATION"
            self.send(address, END_TOPIC, PGROUP="shop", UNIQ_KEY="1", TRAN_STATE="commit")
            assert self.delete(admin, CHECKS) is None, "those of another group wait"
            assert self.delete(admin, END_TOPIC) == "POLICY_VIOLATION"
            self.send(address, END_TOPIC, PGROUP="till", UNIQ_KEY="2", TRAN_STATE="rollback")
            assert self.delete(admin, END_TOPIC) is None

    def test_is_refused_after_a_restart_too(self, tmp_path: Path) -> None:
        with halfmoon.testing.Broker(data_dir=str(tmp_path)) as running:
            self.send(running.bootstrap_servers, "orders", **half("1"))
        with halfmoon.testing.Broker(data_dir=str(tmp_path)) as running:
            admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
            for topic in (END_TOPIC, CHECKS):
                assert self.delete(admin, topic) == "POLICY_VIOLATION"


@pytest.mark.parametrize("asks", ["half", "end"])
def test_after_a_restart_with_many_half_messages_the_first_request_holds_up_nobody(
    fs: FaultyFileSystem, clock: VirtualClock, asks: str
) -> None:
    """It waits until they are known; others have their turns meanwhile."""
    broker = reopen(fs, clock)
    broker.create_topic("orders", 2)
    count = 1_000
    send(broker, "orders", *[(b"%d" % at, half(str(at))) for at in range(count)])
    turn(broker)
    broker.close()
    broker = reopen(fs, clock)
    if asks == "half":
        topic, headers = "orders", half("0")
    else:
        topic, headers = END_TOPIC, {"PGROUP": "shop", "UNIQ_KEY": "7", "TRAN_STATE": "commit"}
    row = (None, b"again", 5, tuple((name, text.encode()) for name, text in headers.items()))
    batch = memoryview(bytearray(build_batch([row])))
    partition = partition_of(broker, topic)
    with pytest.raises(TakesLongError) as caught:
        broker.append(partition, batch, clock.wall_ms())
    slices, pauses, value = caught.value.steps(batch), 0, None
    with suppress(StopIteration):
        while True:
            load = slices.send(value)
            value = None if load is None else load()
            pauses += load is None
    assert pauses >= count // DECIDED
    broker.append(partition, batch, clock.wall_ms())
    relay(broker)
    assert waiting(broker) == (count if asks == "half" else count - 1)
    assert values(broker, "orders") == ([] if asks == "half" else [b"7"])
