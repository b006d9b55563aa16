"""HalfmoonMessages in two processes: whichever is asked, all shards have a say."""

from __future__ import annotations

import struct

import msgspec
import pytest
from shard_rig import HERE, SHARDS, name_in
from two_processes import TwoProcesses

from halfmoon.adapters.kafka.shard_messages import in_time, merged
from halfmoon.adapters.tcp.access import Rights, Use
from halfmoon.core.catalog.topics import Topic
from halfmoon.core.records.batches import build_batch
from halfmoon.hooks.features import NackedMessages
from halfmoon.schema.provenance import GivenUp, SourceRun
from halfmoon.services.keyindex.history import HIDDEN
from halfmoon.services.keyindex.questions import Answer, Event, Find, Found, Nacked, NackedOffsets, Results, Show, Trace
from tests.core.relay_bench import send

KEY = 18502


class Some:
    """Rights to everything but what is named: (operation, resource)."""

    principal = "User:u"

    def __init__(self, *refused: tuple[str, str]) -> None:
        self._refused = refused
        self.demanded: list[Use] = []

    def allows(self, use: Use) -> bool:
        return (use[0], use[2]) not in self._refused

    def allows_either(self, *uses: Use) -> bool:
        return any(map(self.allows, uses))

    def demands(self, uses: tuple[Use, ...]) -> bool:
        self.demanded += uses
        return self.allows_either(*uses)


@pytest.fixture
def two() -> TwoProcesses:
    return TwoProcesses()


@pytest.fixture
def topic(two: TwoProcesses) -> Topic:
    return two.topic("t", 4)


def put(two: TwoProcesses, topic: Topic, index: int, *values: bytes, key: str = "a") -> None:
    """One after the other, a second apart."""
    for value in values:
        two.clock.now_ms += 1_000
        send(two.nodes[two.shard_of(topic, index)], topic.name, (value, {"KEYS": key}), index=index)
    two.relay()


def ask(two: TwoProcesses, question: msgspec.Struct | bytes, process: int = 0, rights: Rights | None = None) -> Answer:
    client = two.client(process)
    client.connection._rights = rights
    body = question if isinstance(question, bytes) else msgspec.json.encode(question)
    request = struct.pack(">hhih", KEY, 0, 7, -1) + body
    client.feed(struct.pack(">i", len(request)) + request)
    two.turn()
    (frame,) = client.frames()
    return msgspec.json.decode(frame[4:], type=Answer)


def values(answer: Answer) -> list[bytes | None]:
    assert answer.results is not None, answer
    return [found.value for found in answer.results.messages]


# -- by a key ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("process", [0, 1])
def test_messages_are_found_in_all_shards_the_newest_first(two: TwoProcesses, topic: Topic, process: int) -> None:
    for number in range(8):
        put(two, topic, number % 4, b"%d" % number)
    put(two, topic, 0, b"another", key="b")
    answer = ask(two, Find("t", b"a"), process)
    assert values(answer) == [b"7", b"6", b"5", b"4", b"3", b"2", b"1", b"0"]
    assert answer.results is not None
    assert [found.partition for found in answer.results.messages] == [3, 2, 1, 0] * 2
    assert (answer.results.more, answer.results.behind_bytes) == (False, 0)
    answer = ask(two, Find("t", b"a", most=3), process)
    assert values(answer) == [b"7", b"6", b"5"]
    assert answer.results is not None
    assert answer.results.more


def test_a_shard_that_cannot_be_reached_has_no_answer_given(two: TwoProcesses, topic: Topic) -> None:
    put(two, topic, 0, b"v")
    two.questions.unreachable.add(3)
    answer = ask(two, Find("t", b"a"))
    assert (answer.results, answer.fault) == (None, "NOT_LEADER_OR_FOLLOWER")
    assert "shard 3" in answer.message


def test_what_is_no_question_asks_nobody(two: TwoProcesses, topic: Topic) -> None:
    for body in (b"{", b"", msgspec.json.encode(Trace((("t", 0, 0),)))):
        assert ask(two, body).fault == "INVALID_REQUEST"
    assert ask(two, Find("t", b"")).fault == "INVALID_REQUEST"
    assert two.questions.asked == []
    assert ask(two, Find("nowhere", b"a")).fault == "UNKNOWN_TOPIC_OR_PARTITION"


def test_who_may_not_read_is_refused_once(two: TwoProcesses, topic: Topic) -> None:
    rights = Some(("read", "t"))
    answer = ask(two, Find("t", b"a"), rights=rights)
    assert answer.fault == "TOPIC_AUTHORIZATION_FAILED"
    assert rights.demanded == [("read", "topic", "t")]
    assert two.questions.asked == []


def found(store_ms: int, size: int = 1) -> Found:
    return Found("t", 0, 0, 0, 0, store_ms, None, b"v" * size, ())


def test_nothing_is_told_that_is_older_than_what_is_left_out() -> None:
    cut = Results((found(9), found(5)), True, 1)
    whole = Results((found(7), found(5), found(3)), False, 2)
    assert merged([cut, whole], 10) == Results((found(9), found(7), found(5), found(5)), True, 3)
    assert merged([whole, Results((), False, 0)], 10) == whole
    assert merged([whole, whole], 2) == Results((found(7), found(7)), True, 4)
    large = Results((found(2, 5 << 20),), False, 0)
    assert merged([large, large, whole], 10) == Results((*whole.messages, found(2, 5 << 20)), True, 2)


# -- by a place --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("process", [0, 1])
@pytest.mark.parametrize("index", range(4))
def test_a_message_is_shown_by_its_shard(two: TwoProcesses, topic: Topic, process: int, index: int) -> None:
    put(two, topic, index, b"0", b"1")
    shown = ask(two, Show("t", index, 1), process).shown
    assert shown is not None
    assert (shown.message.partition, shown.message.offset, shown.message.value) == (index, 1, b"1")
    assert [(event.what, event.partition, event.offset) for event in shown.history] == [("stored", index, 1)]
    assert ask(two, Show("t", index, 2), process).fault == "OFFSET_OUT_OF_RANGE"


def test_places_that_are_nowhere(two: TwoProcesses, topic: Topic) -> None:
    for question in (Show("t", 9, 0), Show("t", -1, 0), Show("nowhere", 0, 0)):
        assert ask(two, question).fault == "UNKNOWN_TOPIC_OR_PARTITION"


def give_up(two: TwoProcesses, topic: Topic, index: int, shard: int) -> tuple[Topic, int]:
    """A dead letter of message 0, written in another shard: its topic and partition there."""
    letters = two.topic("dlq.g", 4)
    node = two.nodes[shard]
    target = two.partition(letters, two.index_in(letters, shard))
    made = bytearray(build_batch([(None, b"letter", 1_000, (("halfmoon.reason", b"too often"),))]))
    two.clock.now_ms += 1_000
    given_up = GivenUp("g", (SourceRun(topic.number, index, 0, 1),))
    node.kernel.appender.append_relayed(target, made, given_up=given_up)
    two.relay()
    return letters, target.index


@pytest.mark.parametrize("shard", range(4))
def test_a_history_goes_on_in_other_shards(two: TwoProcesses, topic: Topic, shard: int) -> None:
    put(two, topic, 0, b"v")
    letters, index = give_up(two, topic, 0, shard)
    for process in (0, 1):
        shown = ask(two, Show("t", 0, 0), process).shown
        assert shown is not None
        assert [(event.what, event.topic, event.partition, event.detail) for event in shown.history] == [
            ("stored", "t", 0, ""),
            ("given up", letters.name, index, "too often"),
        ]


def test_what_who_asks_may_not_see_is_hidden_in_each_shard(two: TwoProcesses, topic: Topic) -> None:
    put(two, topic, two.index_in(topic, 1), b"v")
    give_up(two, topic, two.index_in(topic, 1), 3)
    asked: list[tuple[str, str]] = []

    def rights(principal: str, host: str) -> Rights:
        asked.append((principal, host))
        return Some(("read", "t"), ("describe", "dlq.g"))

    two.rights = rights
    shown = ask(two, Show("t", two.index_in(topic, 1), 0), 0, Some(("read", "t"), ("describe", "dlq.g"))).shown
    assert shown is not None
    assert (shown.message.hidden, shown.message.value) == (True, None)
    assert [event.what for event in shown.history] == ["stored", "hidden"]
    assert set(asked) == {("User:ANONYMOUS", "10.0.0.9")}


def test_shards_have_topics_of_their_own(two: TwoProcesses, topic: Topic) -> None:
    """Of one name: the first that has something there shows it."""
    index = two.index_in(topic, 3)
    send(two.nodes[3], "t", (b"later", {"DELAY": "1", "KEYS": "a"}), index=index)
    two.relay()
    answer = ask(two, Find("t", b"a"))
    assert answer.results is not None
    (waits,) = answer.results.messages
    assert waits.waits_for == f"t-{index}"
    assert ask(two, Find(waits.topic, b"a")).results == Results((), False, 0)  # it is on its way to another
    shown = ask(two, Show(waits.topic, waits.partition, waits.offset)).shown
    assert shown is not None
    assert shown.message == waits
    assert [event.what for event in shown.history] == ["waits"]
    assert ask(two, Show(waits.topic, waits.partition, 9)).fault == "OFFSET_OUT_OF_RANGE"


def test_hidden_events_stay_where_they_are() -> None:
    def at(ms: int) -> Event:
        return Event("stored", ms)

    found = in_time([[at(1), HIDDEN, at(5)], [HIDDEN, at(3)], [HIDDEN]])
    assert found == (at(1), HIDDEN, HIDDEN, at(3), at(5), HIDDEN)


# -- what groups have negatively acknowledged --------------------------------------------------------------------------


def test_what_groups_have_handed_back_is_asked_of_all_shards(two: TwoProcesses, topic: Topic) -> None:
    groups = [name_in(shard) for shard in range(SHARDS)]
    for shard, node in two.nodes.items():
        rows = [(groups[shard], "t", shard, [(shard, 1)])]
        node.services.add(NackedMessages(lambda topics, rows=rows: lambda: rows))  # type: ignore[misc]
    two.rights = lambda principal, host: Some(("describe", groups[1]))
    answer = ask(two, Nacked(("t",)))
    expected = {groups[shard]: NackedOffsets(groups[shard], "t", shard, ((shard, 1),)) for shard in range(SHARDS)}
    del expected[groups[1]]
    assert answer.nacked == tuple(expected[group] for group in sorted(expected))
    refused = ask(two, Nacked(("t",)), rights=Some(("describe", "t")))
    assert refused.fault == "TOPIC_AUTHORIZATION_FAILED"


def test_services_that_are_off(two: TwoProcesses, topic: Topic) -> None:
    assert ask(two, Nacked(("t",))).fault == "UNSUPPORTED_VERSION"
    assert {shard for shard, _ in two.questions.asked} <= set(range(SHARDS)) - set(HERE)
