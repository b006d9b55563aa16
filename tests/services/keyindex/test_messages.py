"""Finding messages by a key and by their place, and what became of them (B05)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest

from halfmoon.config.settings import load_settings
from halfmoon.core.records.batches import build_batch
from halfmoon.core.steps import Steps
from halfmoon.errors import BrokerError, Fault
from halfmoon.hooks.plugins import load_plugins
from halfmoon.plugins import BUILT_IN
from halfmoon.schema.snapshot import CLEAN_BASE
from halfmoon.server.plugin_host import Host
from halfmoon.services.keyindex.questions import EVENTS, Found, Results, Shown, What
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, open_broker, partition_of, relay, turn
from tests.core.clean_bench import COMPACT, clean, put
from tests.core.relay_bench import lose_derived, pass_ms, send

END = "halfmoon.transactions"


def reopen(fs: FaultyFileSystem, clock: VirtualClock, **settings: Any) -> BareNode:
    """With the built-in plugins as they are shipped."""
    loaded = load_plugins(load_settings({}, {}, {}), BUILT_IN, installed=[])
    broker = open_broker(fs, clock, interceptors=loaded.interceptors, relays=loaded.relays, **settings)
    for context in loaded.contexts:
        context.attach(Host(broker, "unused"))
    return broker


@pytest.fixture
def broker(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    return reopen(fs, clock)


def answer(steps: Steps[Any]) -> Any:
    value = None
    while True:
        try:
            load = steps.send(value)
        except StopIteration as stop:
            return stop.value
        value = load()


def find(broker: BareNode, topic: str, key: bytes, **limits: int) -> Results:
    found: Results = answer(broker.messages.find(partition_of(broker, topic).topic, key, **limits))
    return found


def show(broker: BareNode, topic: str, offset: int, index: int = 0) -> Shown:
    shown: Shown = answer(broker.messages.show(partition_of(broker, topic, index), offset))
    return shown


def history(broker: BareNode, topic: str, offset: int, index: int = 0) -> list[str]:
    events = show(broker, topic, offset, index).history
    assert list(events) == sorted(events, key=lambda event: event.at_ms)
    return [f"{e.what} {e.topic}-{e.partition}@{e.offset}{' ' if e.detail else ''}{e.detail}" for e in events]


def places(found: Results) -> list[str]:
    return [f"{m.topic}-{m.partition}@{m.offset}" for m in found.messages]


# -- by a key ----------------------------------------------------------------------------------------------------------


def test_messages_are_found_by_each_of_their_keys_the_newest_first(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 2)
    for at in range(3):
        clock.now_ms += 1_000
        send(broker, "t", (b"%d" % at, {"KEYS": f"order-{at} all", "UNIQ_KEY": f"u{at}"}), (b"-", {}), index=at % 2)
        relay(broker)
    assert places(find(broker, "t", b"all")) == ["t-0@2", "t-1@0", "t-0@0"]
    (message,) = find(broker, "t", b"order-1").messages
    assert message == Found(
        "t", 1, 0, 500, 0, clock.now_ms - 1_000, b"k", b"1", (("KEYS", b"order-1 all"), ("UNIQ_KEY", b"u1"))
    )
    assert places(find(broker, "t", b"u2")) == ["t-0@2"]
    for nobody in (b"order", b"order-1 all", b"-", b"k"):
        assert find(broker, "t", nobody) == Results((), False, 0)


def test_by_their_own_key_and_not_by_headers_that_are_only_data(broker: BareNode) -> None:
    broker.create_topic("t", 1, {"halfmoon.key.index": "true", "halfmoon.headers.enable": "false"})
    send(broker, "t", (b"v", {"KEYS": "header"}))
    relay(broker)
    assert places(find(broker, "t", b"k")) == ["t-0@0"]
    assert places(find(broker, "t", b"header")) == []


def test_by_time(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 1)
    times = []
    for _ in range(3):
        clock.now_ms += 1_000
        times.append(clock.now_ms)
        send(broker, "t", (b"v", {"KEYS": "a"}))
        relay(broker)
    assert places(find(broker, "t", b"a", from_ms=times[1])) == ["t-0@2", "t-0@1"]
    assert places(find(broker, "t", b"a", to_ms=times[1])) == ["t-0@1", "t-0@0"]
    assert places(find(broker, "t", b"a", from_ms=times[1], to_ms=times[1])) == ["t-0@1"]
    assert places(find(broker, "t", b"a", from_ms=times[2] + 1)) == []


def test_at_most_so_many(broker: BareNode) -> None:
    broker.create_topic("t", 1)
    for _ in range(3):
        send(broker, "t", *[(b"v", {"KEYS": "a"})] * 10)
    relay(broker)
    found = find(broker, "t", b"a", most=12)
    assert (len(found.messages), found.more) == (12, True)
    assert [message.offset for message in found.messages] == list(range(29, 17, -1))
    assert find(broker, "t", b"a", most=30).more is False


def test_answers_are_bounded_in_bytes(broker: BareNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfmoon.services.keyindex.messages.MOST_BYTES", 5_000)
    broker.create_topic("t", 1)
    for _ in range(5):
        send(broker, "t", (b"." * 2_000, {"KEYS": "a"}))
    relay(broker)
    found = find(broker, "t", b"a")
    assert (len(found.messages), found.more) == (2, True)


def test_what_is_gone_is_not_found(broker: BareNode) -> None:
    topic, _ = broker.create_topic("t", 1)
    send(broker, "t", (b"0", {"KEYS": "a"}), (b"1", {"KEYS": "a"}))
    relay(broker)
    broker.delete_records(topic.partitions[0], 1)
    assert places(find(broker, "t", b"a")) == ["t-0@1"]
    with pytest.raises(BrokerError) as refused:
        show(broker, "t", 0)
    assert refused.value.fault is Fault.OFFSET_OUT_OF_RANGE


def test_it_says_how_far_the_index_is_behind(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = reopen(fs, clock)
    broker.create_topic("t", 1)
    send(broker, "t", (b"0", {"KEYS": "a"}))
    turn(broker)
    assert find(broker, "t", b"a").behind_bytes > 0
    relay(broker)
    assert find(broker, "t", b"a").behind_bytes == 0
    again = reopen(fs.kill(), clock)
    assert find(again, "t", b"a").behind_bytes > 0
    relay(again)
    assert places(find(again, "t", b"a")) == ["t-0@0"]


def test_a_message_that_waits_is_found_where_it_waits(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 2)
    send(broker, "t", (b"v", {"KEYS": "a", "TIMER_DELAY_MS": "5000"}), index=1)
    relay(broker)
    (message,) = find(broker, "t", b"a").messages
    assert (message.topic, message.waits_for, message.due_ms) == ("halfmoon.timers", "t-1", clock.now_ms + 5_001)
    pass_ms(broker, clock, 6_000)
    (message,) = find(broker, "t", b"a").messages
    assert (message.topic, message.partition, message.waits_for, message.due_ms) == ("t", 1, None, -1)
    assert message.timestamp_type == 1


# -- by its place ------------------------------------------------------------------------------------------------------


def test_a_message_that_is_simply_there(broker: BareNode) -> None:
    broker.create_topic("t", 1)
    send(broker, "t", (b"a", {}), (b"b", {"mine": "x"}))
    relay(broker)
    shown = show(broker, "t", 1)
    assert (shown.message.value, shown.message.headers) == (b"b", (("mine", b"x"),))
    assert history(broker, "t", 1) == ["stored t-0@1"]


@pytest.mark.parametrize("offset", [-1, 2, 1 << 60])
def test_there_is_no_such_message(broker: BareNode, offset: int) -> None:
    broker.create_topic("t", 1)
    send(broker, "t", (b"a", {}), (b"b", {"mine": "x"}))
    relay(broker)
    with pytest.raises(BrokerError) as refused:
        show(broker, "t", offset)
    assert refused.value.fault is Fault.OFFSET_OUT_OF_RANGE


def test_the_place_of_one_that_was_diverted_is_none(broker: BareNode) -> None:
    broker.create_topic("t", 1)
    send(broker, "t", (b"a", {}), (b"b", {"DELAY": "1"}), (b"c", {}))
    relay(broker)
    assert show(broker, "t", 2).message.value == b"c"
    with pytest.raises(BrokerError):
        show(broker, "t", 1)


# -- what became of it -------------------------------------------------------------------------------------------------


def delayed(broker: BareNode, clock: VirtualClock) -> None:
    send(broker, "t", (b"x", {}), *[(b"%d" % at, {"DELAY": "1"}) for at in range(40)])
    relay(broker)
    pass_ms(broker, clock, 2_000)


def test_delayed(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 1)
    delayed(broker, clock)
    for offset in (1, 33):
        assert history(broker, "t", offset) == [
            f"waits SCHEDULE_TOPIC_XXXX-0@{offset - 1} for t-0",
            f"delivered t-0@{offset}",
        ]


def test_cancelled(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 1)
    send(broker, "t", (b"v", {"DELAY": "3", "UNIQ_KEY": "1"}), (b"w", {"DELAY": "3", "UNIQ_KEY": "2"}))
    relay(broker)
    (message,) = find(broker, "t", b"1").messages
    send(broker, "t", (b"", {"TIMER_DEL_UNIQKEY": "1"}))
    relay(broker)
    assert find(broker, "t", b"1").messages == ()
    (ended,) = find(broker, "t", b"1", ended=True).messages
    assert (ended.ended, ended.due_ms, ended.offset) == (True, -1, 0)
    assert history(broker, message.topic, 0, 2) == [
        "waits SCHEDULE_TOPIC_XXXX-2@0 for t-0",
        "ended SCHEDULE_TOPIC_XXXX-2@0 not to be delivered",
    ]
    assert history(broker, message.topic, 1, 2) == ["waits SCHEDULE_TOPIC_XXXX-2@1 for t-0"]


def half(broker: BareNode, name: str) -> None:
    send(broker, "t", (name.encode(), {"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": name}))
    relay(broker)


def end(broker: BareNode, name: str, state: str) -> None:
    if broker.topic(END) is None:
        broker.create_topic(END, 1)
    send(broker, END, (b"", {"PGROUP": "pg", "UNIQ_KEY": name, "TRAN_STATE": state}))
    relay(broker)


def test_half_asked_about_and_committed(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 1)
    half(broker, "a")
    (waiting,) = find(broker, "t", b"a").messages
    pass_ms(broker, clock, 20_000)
    assert history(broker, waiting.topic, waiting.offset) == [
        f"waits {waiting.topic}-0@0 for t-0",
        f"asked about {waiting.topic}-0@0 for the 1. time, in check.pg-0",
    ]
    end(broker, "a", "commit")
    assert places(find(broker, "t", b"a")) == ["t-0@0"]
    assert history(broker, "t", 0) == [
        f"waits {waiting.topic}-0@0 for t-0",
        f"asked about {waiting.topic}-0@0 for the 1. time, in check.pg-0",
        "delivered t-0@0",
    ]


def test_committed_with_a_delay_and_with_others(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 1)
    for name in ("a", "b"):
        half(broker, name)
    ends = [
        (b"", {"PGROUP": "pg", "UNIQ_KEY": name, "TRAN_STATE": state})
        for name, state in (("a", "rollback"), ("b", "commit"))
    ]
    send(broker, END, *ends)
    relay(broker)
    assert history(broker, "t", 0) == ["waits RMQ_SYS_TRANS_HALF_TOPIC-0@1 for t-0", "delivered t-0@0"]


def hand_back(broker: BareNode, clock: VirtualClock, of: str, *, group: str = "g", **headers: str) -> None:
    send(broker, f"retry.{group}", (b"v", {"RETRY_OF": of, "MAX_RECONSUME_TIMES": "2", **headers}))
    relay(broker)
    pass_ms(broker, clock, 60_000)


def test_retried_and_given_up(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 1)
    broker.create_topic("retry.g", 1)
    send(broker, "t", (b"other", {}), (b"v", {}))
    relay(broker)
    first = {"ORIGIN_MESSAGE_ID": "t/0/1"}
    hand_back(broker, clock, "t/0/0")
    hand_back(broker, clock, "t/0/1")
    hand_back(broker, clock, "retry.g/0/1", RECONSUME_TIME="1", **first)
    hand_back(broker, clock, "retry.g/0/2", RECONSUME_TIME="2", **first)
    told = [
        "stored t-0@1",
        "handed back SCHEDULE_TOPIC_XXXX-2@1 by g, for retry.g-0",
        "delivered retry.g-0@1",
        "handed back SCHEDULE_TOPIC_XXXX-3@0 by g, for retry.g-0",
        "delivered retry.g-0@2",
        "given up dlq.g-0@0 negatively acknowledged 2 times",
    ]
    assert history(broker, "dlq.g", 0) == told
    assert history(broker, "t", 1) == told
    assert history(broker, "retry.g", 2) == told


def test_handed_back_together(broker: BareNode, clock: VirtualClock) -> None:
    """Of a batch that is handed back each record goes its own way."""
    broker.create_topic("t", 1)
    broker.create_topic("retry.g", 1)
    send(broker, "t", *[(b"%d" % at, {}) for at in range(4)])
    relay(broker)
    rows = [
        (b"%d" % at, {"RETRY_OF": f"t/0/{at}"} | ({"DELAY": "-1"} if at == 2 else {"DELAY": str(at + 1)}))
        for at in range(4)
    ]
    send(broker, "retry.g", *rows)
    relay(broker)
    pass_ms(broker, clock, 60_000)
    assert history(broker, "t", 2) == ["stored t-0@2", "given up dlq.g-0@0 negatively acknowledged with DELAY=-1"]
    assert history(broker, "t", 3) == [
        "stored t-0@3",
        "handed back SCHEDULE_TOPIC_XXXX-3@0 by g, for retry.g-0",
        "delivered retry.g-0@2",
    ]


def test_a_view(broker: BareNode) -> None:
    broker.create_topic("t", 1)
    broker.create_topic("v", -1, {"halfmoon.view.source": "t", "halfmoon.view.prefix": "a"})
    send(broker, "t", (b"b", {}), (b"a", {"KEYS": "k"}))
    relay(broker)
    assert history(broker, "v", 0) == ["copied v-0@0 from t-0, [0:2]"]
    assert places(find(broker, "v", b"k")) == ["v-0@0"]


def test_undeliverable(broker: BareNode, clock: VirtualClock) -> None:
    topic, _ = broker.create_topic("t", 1)
    send(broker, "t", (b"v", {"DELAY": "1"}))
    relay(broker)
    broker.delete_topic(topic)
    pass_ms(broker, clock, 2_000)
    waits, gone = history(broker, "halfmoon.undeliverable", 0)
    assert waits == "waits SCHEDULE_TOPIC_XXXX-0@0 for t-0"
    assert gone.startswith("given up halfmoon.undeliverable-0@0 topic 't' was deleted")


@pytest.mark.parametrize("after", ["close", "kill", "power_loss"])
def test_histories_outlive_restarts_and_lost_files(fs: FaultyFileSystem, clock: VirtualClock, after: str) -> None:
    broker = reopen(fs, clock)
    broker.create_topic("t", 1)
    delayed(broker, clock)
    told = history(broker, "t", 7)
    ending: Callable[[], Any] = broker.close if after == "close" else getattr(fs, after)
    fs = ending() or fs
    lose_derived(fs)
    again = reopen(fs, clock)
    relay(again)
    assert history(again, "t", 7) == told


def test_what_was_moved(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """Waiting messages are moved out of old segments; their history goes on."""
    broker = reopen(fs, clock)
    broker.create_topic("t", 1, {"retention.bytes": "1"})
    send(broker, "t", (b"v", {"DELAY": "18", "KEYS": "a"}))
    relay(broker)
    for _ in range(300):
        send(broker, "t", (b"." * 2_000, {}))
        turn(broker)
    while not broker.housekeeping.retain():
        pass
    relay(broker)
    assert broker.waiting.moved == 1
    (message,) = find(broker, "t", b"a").messages
    assert message.offset == 1
    assert history(broker, message.topic, 1, 17)[-1] == "moved SCHEDULE_TOPIC_XXXX-17@1 for t-0"


# -- moved by the cleaner ----------------------------------------------------------------------------------------------


def test_messages_are_found_where_the_cleaner_has_put_them(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    settings = {"retention": "1h", "cleaner": {"min_dead_ratio": 0.2}}
    broker = reopen(fs, clock, **settings)
    broker.create_topic("t", 1, {"retention.ms": "-1"})
    broker.create_topic("short", 1)
    send(broker, "t", (b"now", {"KEYS": "k"}))
    send(broker, "t", (b"later", {"KEYS": "k", "DELAY": "1"}))
    relay(broker)
    pass_ms(broker, clock, 2_000)
    said = history(broker, "t", 1)
    assert [event.split()[0] for event in said] == ["waits", "delivered"]
    for _ in range(40):
        send(broker, "short", (b"x" * 9000, {}))
        relay(broker)
    clock.now_ms += 7_200_000
    while not broker.housekeeping.retain():
        pass
    relay(broker)
    clean(broker, clock)
    assert partition_of(broker, "t").moved_upto == 2
    relay(broker)

    def check() -> None:
        found = find(broker, "t", b"k")
        assert places(found) == ["t-0@1", "t-0@0"]
        assert found.behind_bytes == 0
        assert history(broker, "t", 1)[-1] == said[-1]

    check()
    assert broker.log.start > 0
    broker.close()
    key_files = [path for path in fs.names if path.startswith(f"keys/0{CLEAN_BASE}")]
    assert len(key_files) == 1
    fs = fs.kill()
    broker = reopen(fs, clock, **settings)
    assert not broker.key_index.behind_bytes
    check()
    broker.close()
    fs = fs.kill()
    lose_derived(fs)
    broker = reopen(fs, clock, **settings)
    assert broker.key_index.behind_bytes
    relay(broker)
    check()
    topic = broker.topic("t")
    assert topic is not None
    broker.delete_topic(topic)
    clean(broker, clock)
    assert not [path for path in fs.names if path.startswith((f"keys/0{CLEAN_BASE}", "cleaned/"))]


def test_what_compaction_has_taken_is_not_found(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = reopen(fs, clock)
    broker.create_topic("t", 1, COMPACT | {"halfmoon.key.index": "true"})
    for at in range(4):
        put(broker, "t", (b"k", b"%d" % at))
        relay(broker)
    put(broker, "t", (b"end", b""))
    relay(broker)
    assert len(find(broker, "t", b"k").messages) == 4
    clean(broker, clock)
    assert places(find(broker, "t", b"k")) == [], "the file is not looked into yet"
    relay(broker)
    assert places(find(broker, "t", b"k")) == ["t-0@3"]
    with pytest.raises(BrokerError):
        show(broker, "t", 1)


def test_of_a_batch_that_was_compacted_each_message_keeps_its_own_history(
    broker: BareNode, clock: VirtualClock
) -> None:
    broker.create_topic("t", 1, COMPACT)
    records = [(key, b"later", 500, (("DELAY", b"1"),)) for key in (b"a", b"b", b"c")]
    broker.append(partition_of(broker, "t"), memoryview(bytearray(build_batch(records))), clock.now_ms)
    relay(broker)
    pass_ms(broker, clock, 2_000)
    assert partition_of(broker, "t").high_watermark == 3
    before = [history(broker, "t", offset) for offset in range(3)]
    assert len({tuple(events) for events in before}) == 3
    put(broker, "t", (b"a", b"new"), (b"b", b"new"))
    put(broker, "t", (b"end", b""))
    relay(broker)
    clean(broker, clock)
    relay(broker)
    assert history(broker, "t", 2) == before[2]
    with pytest.raises(BrokerError):
        show(broker, "t", 0)


def test_every_word_of_the_wire_has_one_for_people() -> None:
    assert set(EVENTS) == set(get_args(What))
    assert len(set(EVENTS.values())) == len(EVENTS)
