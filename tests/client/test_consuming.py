"""Progress, concurrent consumption, and what takes too long: B18 to B20."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest

from halfmoon.client.engine.consumer_settings import ConsumerSettings
from halfmoon.client.engine.consuming import ConsumerCounters
from halfmoon.client.engine.listening import Context, Status
from halfmoon.client.engine.subscriptions import by_tags
from halfmoon.client.errors import ConfigError
from halfmoon.client.messages import Message, ReceivedMessage
from halfmoon.plugin import Queue
from halfmoon.remoting import command as wire
from halfmoon.remoting.command import Command
from halfmoon.remoting.message import StoredMessage, encode_stored
from tests.client.fake_broker import (
    NODE,
    QUERY_OFFSET,
    SEND,
    SEND_BACK,
    UPDATE_OFFSET,
    FakeBroker,
    many,
    pulled,
    stored,
)
from tests.client.test_pulling import Listener, MemoryFile
from tests.client.world import HALFMOON, Client, Takes, World, bodies

T = Queue("t", "b", 0)


# -- B18 -------------------------------------------------------------------------------------------------------------


def test_b18_progress_is_the_smallest_offset_that_is_not_dealt_with(
    world: World, broker: FakeBroker, client: Client
) -> None:
    broker.pulls = [pulled(0, 5, many(range(5)))]
    world.is_listening = False
    consuming = client.consumer("g", Listener(), "t")
    world.run_ms(10)
    works = {work.messages[0].queue_offset: work for work in client.submitted}
    known = []
    for offset in (3, 1, 0, 4, 2):
        client.engine(lambda work=works[offset]: work.finished(work, Status.SUCCESS, None))
        known.append(consuming.store.known(T))
    assert known == [0, 0, 2, 2, 5]


def test_b18_progress_is_told_every_five_seconds_and_only_forward(world: World, broker: FakeBroker) -> None:
    broker.pulls = [pulled(0, 5, many(range(5)))]
    consuming = world.client().consumer("g", Listener(), "t")
    world.run_ms(4_900)
    assert not broker.of(UPDATE_OFFSET)
    world.run_ms(200)
    assert [each["commitOffset"] for each in broker.fields(UPDATE_OFFSET)] == ["5"]
    assert broker.of(UPDATE_OFFSET)[0][1].is_oneway
    consuming.store.update(T, 3, only_forward=True)
    world.run_ms(10_000)
    assert [each["commitOffset"] for each in broker.fields(UPDATE_OFFSET)] == ["5"], "nothing new, nothing said"


def test_b18_broadcasting_progress_stands_in_a_file_and_counts_after_a_restart(world: World) -> None:
    world.topic("t", 2)
    file, first, second = MemoryFile(), Listener(), Listener()
    sender, reader = world.client(), world.client("same")
    reader.consumer("g", first, "t", file=file, model="broadcasting")
    world.send(sender, *[Message("t", b"%d" % number) for number in range(10)])
    world.until(lambda: len(first.seen) == 10)
    world.run_ms(5_000)
    assert sum(file.offsets.values()) == 10
    reader.kill()
    world.client("same").consumer("g", second, "t", file=file, model="broadcasting")
    world.send(sender, Message("t", b"new"))
    world.run_ms(1_000)
    assert bodies(second.seen) == [b"new"]


def test_b18_a_consumer_that_was_killed_loses_nothing(world: World) -> None:
    world.topic("t", 2)
    sender, first, second = world.client(), world.client(), Listener()
    seen: list[bytes] = []

    def slow(messages: Sequence[ReceivedMessage], context: Context) -> Takes:
        seen.extend(bodies(messages))
        return Takes(400, Status.SUCCESS)

    first.consumer("g", slow, "t")
    world.send(sender, *[Message("t", b"%d" % number) for number in range(100)])
    world.run_ms(300)
    first.kill()
    world.client().consumer("g", second, "t")
    world.until(lambda: set(seen) | set(bodies(second.seen)) == {b"%d" % number for number in range(100)})
    assert len(second.seen) == 100, "none was consumed to its end"


# -- B19 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("says", [Status.RECONSUME_LATER, None, Status.SUSPEND, "raise"])
def test_b19_what_is_not_consumed_is_handed_back(world: World, broker: FakeBroker, says: Status | str | None) -> None:
    broker.pulls = [pulled(0, 2, stored(0) + stored(1, UNIQ_KEY="u1"))]

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Status | None:
        if messages[0].queue_offset == 0:
            return Status.SUCCESS
        if isinstance(says, str):
            raise OSError("no")
        return says

    consuming = world.client().consumer("g", listener, "t")
    world.run_ms(10)
    (sent_back,) = broker.fields(SEND_BACK)
    assert sent_back == {
        "offset": "1001", "group": "g", "delayLevel": "0", "originMsgId": "u1", "originTopic": "t",
        "unitMode": "false", "maxReconsumeTimes": "16", "bname": "b",
        **({"errorClass": "builtins.OSError", "errorMessage": "no"} if says == "raise" else {}),
    }  # fmt: skip
    assert consuming.store.known(T) == 2, "it is dealt with: the broker has it"
    assert (consuming.counters.consumed, consuming.counters.failed, consuming.counters.nacked) == (1, 1, 1)


class NoTotalError(ValueError):
    pass


def test_the_broker_is_told_what_a_listener_raises(world: World, broker: FakeBroker) -> None:
    broker.send_back_code = 1
    broker.pulls = [pulled(0, 1, stored(0))]

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Status:
        raise NoTotalError("no\1total\n")

    world.client().consumer("g", listener, "t")
    world.run_ms(10)
    (fields,) = broker.fields(SEND_BACK)
    assert fields["errorClass"] == f"{__name__}.NoTotalError,builtins.ValueError"
    assert fields["errorMessage"] == "no\1total"
    (_, sent) = broker.of(SEND)[0]
    properties = dict(pair.split("\1") for pair in sent.fields["i"].split("\2") if pair)
    assert properties["RETRY_ERROR_CLASS"] == f"{__name__}.NoTotalError,builtins.ValueError"
    assert properties["RETRY_ERROR_MESSAGE"] == "no total"


def test_b19_of_a_batch_the_first_may_be_consumed(world: World, broker: FakeBroker) -> None:
    broker.pulls = [pulled(0, 5, many(range(5)))]

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Status:
        context.acknowledged, context.delay_level = 3, 7
        return Status.SUCCESS

    consuming = world.client().consumer("g", listener, "t", batch_size=5)
    world.run_ms(10)
    assert [(each["offset"], each["delayLevel"]) for each in broker.fields(SEND_BACK)] == [("1003", "7"), ("1004", "7")]
    assert consuming.store.known(T) == 5


def test_b19_what_cannot_be_handed_back_is_sent_to_the_retry_topic(world: World, broker: FakeBroker) -> None:
    broker.send_back_code = 1
    broker.pulls = [pulled(0, 1, stored(0, b"body", UNIQ_KEY="u", color="red"))]
    consuming = world.client().consumer("g", Listener(Status.RECONSUME_LATER), "t", max_reconsume_times=5)
    world.run_ms(10)
    (_, sent) = broker.of(SEND)[0]
    assert (sent.fields["b"], sent.fields["a"], sent.fields["j"], sent.fields["l"]) == (
        "%RETRY%g", "CLIENT_INNER_PRODUCER", "1", "5",
    )  # fmt: skip
    assert bytes(sent.body) == b"body"
    properties = dict(pair.split("\1") for pair in sent.fields["i"].split("\2") if pair)
    assert properties["RETRY_TOPIC"] == "t"
    assert properties["DELAY"] == "3"
    assert properties["color"] == "red"
    assert properties["UNIQ_KEY"] == "u"
    assert consuming.store.known(T) == 1


def test_b19_what_can_be_sent_nowhere_is_consumed_again_here_after_five_seconds(
    world: World, broker: FakeBroker
) -> None:
    broker.send_back_code = 1
    broker.answers[SEND] = (13, {}, b"")
    broker.pulls = [pulled(0, 1, stored(0))]
    seen: list[tuple[float, int]] = []

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Status:
        seen.append((world.now_ms, messages[0].reconsume_times))
        return Status.SUCCESS if len(seen) == 3 else Status.RECONSUME_LATER

    consuming = world.client().consumer("g", listener, "t")
    world.run_ms(4_000)
    assert consuming.store.known(T) == -1
    world.run_ms(10_000)
    assert seen == [(0, 0), (5_000, 1), (10_000, 2)]
    assert consuming.store.known(T) == 1


def test_b19_sixteen_retries_grow_and_then_it_is_a_dead_letter(world: World) -> None:
    """Levels 3 to 18: 10 s, 30 s, 1 m, 2 m, … 2 h. Four and three quarter hours in all."""
    world.topic("t", 1)
    sender = world.client()
    seen: list[tuple[float, int, str]] = []

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Status:
        (message,) = messages
        seen.append((world.now_ms, message.reconsume_times, message.topic))
        return Status.RECONSUME_LATER

    world.client().consumer("g", listener, "t")
    world.run_ms(1_000)
    world.send(sender, Message("t", b"x"))
    world.until(lambda: len(seen) == 17, 20_000_000)
    gaps = [round((after[0] - before[0]) / 1e3) for before, after in pairwise(seen)]
    assert gaps == [10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200]
    assert [times for _, times, _ in seen] == list(range(17))
    assert {topic for _, _, topic in seen} == {"t"}, "the listener sees the topic it was sent to"
    dead = Listener()
    world.client().consumer("undertakers", dead, "%DLQ%g")
    world.until(lambda: dead.seen)
    assert dead.seen[0].body == b"x"
    world.run_ms(10_000_000)
    assert len(seen) == 17


def test_b19_the_first_retry_of_a_new_group_comes_in_time(world: World) -> None:
    """RocketMQ's client hears of a new retry topic up to half a minute later."""
    world.topic("t", 1)
    sender = world.client()
    seen: list[float] = []

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Status:
        seen.append(world.now_ms)
        context.delay_level = 1
        return Status.RECONSUME_LATER if len(seen) == 1 else Status.SUCCESS

    world.client().consumer("g", listener, "t")
    world.send(sender, Message("t", b"x"))
    world.until(lambda: len(seen) == 2)
    assert seen[1] - seen[0] <= 1_100


def test_b19_a_limit_of_the_consumers_own(world: World) -> None:
    world.topic("t", 1)
    sender, seen = world.client(), Listener(Status.RECONSUME_LATER)
    world.client().consumer("g", seen, "t", max_reconsume_times=2)
    world.run_ms(1_000)
    world.send(sender, Message("t", b"x"))
    world.run_ms(3_600_000)
    assert len(seen.seen) == 3
    dead = Listener()
    world.client().consumer("undertakers", dead, "%DLQ%g")
    world.until(lambda: dead.seen)


def test_b19_level_minus_one_is_a_dead_letter_at_once(world: World) -> None:
    world.topic("t", 1)
    sender, dead = world.client(), Listener()

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> None:
        context.delay_level = -1

    world.client().consumer("g", listener, "t")
    world.send(sender, Message("t", b"x"))
    world.run_ms(1_000)
    world.client().consumer("undertakers", dead, "%DLQ%g")
    world.until(lambda: dead.seen, 5_000)


def test_b19_broadcasting_failures_are_logged_and_dropped(
    world: World, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.pulls = [pulled(0, 2, many(range(2)))]
    file = MemoryFile()
    consuming = world.client().consumer(
        "g", Listener(Status.RECONSUME_LATER), "t", file=file, model="broadcasting", batch_size=2
    )
    world.run_ms(10)
    assert consuming.counters.dropped == 2
    assert not broker.of(SEND_BACK)
    assert consuming.store.known(T) == 2
    assert "message_dropped" in caplog.text


def test_b19_a_listener_that_makes_no_sense_is_told_so(
    world: World, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.pulls = [pulled(0, 1, stored(0))]

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Status:
        raise ZeroDivisionError("in the listener")

    world.client().consumer("g", listener, "t")
    world.run_ms(10)
    assert "ZeroDivisionError: in the listener" in caplog.text


# -- B20 -------------------------------------------------------------------------------------------------------------


def test_b20_what_a_listener_has_for_fifteen_minutes_is_handed_back_sixteen_at_a_time(
    world: World, broker: FakeBroker
) -> None:
    broker.pulls = [pulled(0, 20, many(range(20)))]
    consuming = world.client().consumer("g", lambda messages, context: Takes(7_200_000, Status.SUCCESS), "t")
    minute = 60_000
    world.run_ms(29 * minute)
    assert not broker.of(SEND_BACK), "at the first look, after 15 minutes, nothing is over 15 minutes old"
    world.run_ms(2 * minute)
    handed_back = broker.fields(SEND_BACK)
    assert len(handed_back) == 16
    assert {each["delayLevel"] for each in handed_back} == {"3"}
    assert consuming.store.known(T) == 16
    world.run_ms(15 * minute)
    assert len(broker.of(SEND_BACK)) == 20
    assert consuming.counters.expired == 20
    assert consuming.store.known(T) == 20
    world.run_ms(120 * minute)
    assert consuming.counters.consumed == 0, "what they say later does not count"


def test_b20_of_a_batch_what_was_handed_back_counts_no_more(world: World, broker: FakeBroker) -> None:
    """One of three cannot be handed back: the listener's word is still wanted for it."""
    broker.pulls = [pulled(0, 3, many(range(3)))]
    hour = 3_600_000
    consuming = world.client().consumer("g", lambda messages, context: Takes(hour, None), "t", batch_size=3)
    world.run_ms(1_000)
    broker.answers[SEND] = (13, {}, b"")
    answer = broker.answer
    broker.master.answer = lambda command: (
        (1, {}, b"") if command.code == SEND_BACK and command.fields["offset"] == "1001" else answer(command)
    )
    world.run_ms(hour - 2_000)
    assert consuming.counters.expired == 2
    assert consuming.store.known(T) == 1
    broker.master.answer = answer
    world.run_ms(hour)
    assert [each["offset"] for each in broker.fields(SEND_BACK)].count("1000") == 1
    assert consuming.store.known(T) == 3
    assert consuming.counters.failed == 1


def test_b18_progress_that_cannot_be_written_is_tried_again(
    world: World, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.pulls = [pulled(0, 3, many(range(3)))]

    class Full(MemoryFile):
        is_full = True

        def save(self, offsets: object) -> None:
            if self.is_full:
                raise OSError("no space left on device")
            super().save(offsets)

    file = Full()
    client = world.client()
    consuming = client.consumer("g", Listener(), "t", file=file, model="broadcasting")
    world.run_ms(11_000)
    assert caplog.text.count("no space left on device") == 2
    file.is_full = False
    world.run_ms(5_000)
    assert file.offsets == {T: 3}
    file.is_full = True
    consuming.store.update(T, 9, only_forward=True)
    client.do(consuming.close())


def test_b20_what_was_not_begun_is_not_late(world: World, broker: FakeBroker) -> None:
    broker.pulls = [pulled(0, 3, many(range(3)))]
    world.is_listening = False
    world.client().consumer("g", Listener(), "t")
    world.run_ms(120 * 60_000)
    assert not broker.of(SEND_BACK)


# -- what is not ours any more ---------------------------------------------------------------------------------------


def test_a_dropped_queue_that_is_ours_again_is_taken_anew_and_a_reset_is_kept(
    world: World, broker: FakeBroker, client: Client
) -> None:
    broker.pulls = [pulled(0, 5, many(range(5)))]
    world.is_listening = False
    consuming = client.consumer("g", Listener(), "t")
    world.run_ms(10)
    client.run(consuming.begin_at(T, 3))
    world.run_ms(10)
    assert [each["commitOffset"] for each in broker.fields(UPDATE_OFFSET)] == ["3"]
    assert consuming.owned("t"), "at once, and not after two minutes"


def test_what_a_held_pull_finds_does_not_count_for_a_new_expression(world: World) -> None:
    world.topic("t", 1)
    client, listener = world.client(), Listener()
    consuming = client.consumer("g", listener, {"t": "a"})
    world.run_ms(1_000)

    def change() -> None:
        consuming.subscribe(by_tags("t", "b", consuming.subscriptions["t"].version + 1))
        consuming.changed()

    client.engine(change)
    world.run_ms(100)
    world.send(world.client("sender"), *[Message("t", b"%d" % number, tags="b") for number in range(10)])
    world.run_ms(60_000)
    assert sorted(bodies(listener.seen)) == [b"%d" % number for number in range(10)]


def test_progress_that_was_said_over_a_lost_connection_is_said_again(
    world: World, broker: FakeBroker, client: Client
) -> None:
    broker.pulls = [pulled(0, 3, many(range(3)))]
    client.consumer("g", Listener(), "t")
    world.run_ms(5_500)
    assert len(broker.of(UPDATE_OFFSET)) == 1
    for link in client.links:
        if link.node is broker.master:
            link.cut()
    world.run_ms(10_000)
    assert [each["commitOffset"] for each in broker.fields(UPDATE_OFFSET)] == ["3", "3"]


def test_one_answer_without_sense_starves_nobody_else(world: World, broker: FakeBroker) -> None:
    answer = broker.answer
    broker.master.answer = lambda command: (
        (0, {"offset": "x"}, b"")
        if command.code == QUERY_OFFSET and command.fields["topic"] == "bad"
        else answer(command)
    )
    broker.pulls = [pulled(0, 1, stored(0))]
    listener = Listener()
    world.client().consumer("g", listener, {"bad": "*", "t": "*"})
    world.run_ms(1_000)
    assert len(listener.seen) == 1


def test_a_peer_that_has_gone_without_a_word_is_noticed(world: World, broker: FakeBroker) -> None:
    """Heartbeats are not answered, and nothing else comes: the connection is only believed in."""
    listener = Listener()
    world.client().consumer("g", listener, "t")
    world.run_ms(1_000)
    silent, speaking = (lambda command: None), broker.answer
    links = len(broker.master.links)
    broker.master.answer = silent
    world.run_ms(40_000)
    broker.master.answer = speaking
    broker.pulls = [pulled(0, 1, stored(0))]
    world.run_ms(20_000)
    assert len(broker.master.links) > links
    assert len(listener.seen) == 1


def test_a_body_that_cannot_be_read_stops_no_queue(world: World, broker: FakeBroker) -> None:
    garbage = encode_stored(
        StoredMessage(0, 0, 1, 1, 0x301, 0, NODE, 0, NODE, 0, 0, b"no zlib", b"t", b"")
    )  # fmt: skip
    broker.pulls = [pulled(0, 3, stored(0) + garbage + stored(2))]
    listener = Listener()
    world.client().consumer("g", listener, "t")
    world.run_ms(100)
    assert [(message.queue_offset, message.system_flags) for message in listener.seen] == [(0, 0), (1, 0x301), (2, 0)]


@pytest.mark.parametrize(
    ("option", "value"),
    [("persist_ms", 0), ("rebalance_ms", 0), ("consume_timeout_ms", 0), ("shutdown_ms", -1), ("hold_ms", 120_000)],
)
def test_options_have_bounds(option: str, value: int) -> None:
    with pytest.raises(ConfigError, match=option):
        ConsumerSettings(**{option: value, "pull_timeout_ms": 200_000})


# -- the end ---------------------------------------------------------------------------------------------------------


def test_closing_waits_for_listeners_and_stores_progress(world: World) -> None:
    world.topic("t", 1)
    sender, client = world.client(), world.client()
    began: list[bytes] = []

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Takes:
        began.extend(bodies(messages))
        return Takes(2_000, Status.SUCCESS)

    consuming = client.consumer("g", listener, "t")
    world.send(sender, *[Message("t", b"%d" % number) for number in range(3)])
    world.run_ms(100)
    client.do(consuming.close())
    assert 1_800 < world.now_ms < 2_500
    again = Listener()
    world.client().consumer("g", again, "t")
    world.run_ms(10_000)
    assert not again.seen
    assert consuming.counters.consumed == 3


def test_closing_does_not_wait_for_ever(world: World) -> None:
    world.topic("t", 1)
    sender, client = world.client(), world.client()
    consuming = client.consumer("g", lambda messages, context: Takes(1e9, Status.SUCCESS), "t", shutdown_ms=5_000)
    world.send(sender, Message("t", b"x"))
    world.run_ms(100)
    client.do(consuming.close())
    assert 5_000 <= world.now_ms < 6_000
    again = Listener()
    world.client().consumer("g", again, "t")
    world.until(lambda: again.seen, 5_000)


def test_what_no_listener_has_yet_is_left_to_others(world: World) -> None:
    world.topic("t", 1)
    sender, client = world.client(), world.client()
    world.send(sender, *[Message("t", b"%d" % number) for number in range(10)])
    world.is_listening = False
    consuming = client.consumer("g", Listener(), "t")
    world.run_ms(100)
    first = client.submitted[0]
    first.began_ms = client.kernel.now_ms
    closing = client.run(consuming.close())
    world.run_ms(10)
    client.engine(lambda: first.finished(first, Status.SUCCESS, None))
    world.wait(closing)
    assert all(work.is_over for work in client.submitted[1:])
    world.is_listening = True
    again = Listener()
    world.client().consumer("g", again, "t")
    world.run_ms(1_000)
    assert bodies(again.seen) == [b"%d" % number for number in range(1, 10)]
    assert consuming.store.known(Queue("t", HALFMOON, 0)) == 1


# -- what nodes ask --------------------------------------------------------------------------------------------------


def test_running_info_says_what_is_in_the_process_queues(world: World, broker: FakeBroker, client: Client) -> None:
    broker.pulls = [pulled(0, 5, many(range(5)))]
    world.is_listening = False
    client.consumer("g", Listener(), "t")
    world.run_ms(10)
    said: list[bytes] = []
    (link,) = [link for link in client.links if link.node is broker.master]
    client.write = lambda connection, data: said.append(data)  # type: ignore[method-assign]
    link.say(wire.encode(Command(307, 99, 0, fields={"clientId": client.instance.client_id, "consumerGroup": "g"})))
    answer = wire.decode(memoryview(said[0])[4:])
    assert (answer.opaque, answer.code, answer.is_response) == (99, 0, True)
    body = bytes(answer.body)
    assert b'{"brokerName":"b","queueId":0,"topic":"t"}:{"cachedMsgCount":5,"cachedMsgMaxOffset":4' in body
    start = body.index(b'"properties":') + len(b'"properties":')
    properties = json.JSONDecoder().raw_decode(body[start:].decode())[0]
    assert properties["PROP_CONSUMEORDERLY"] == "false"
    assert int(properties["PROP_CONSUMER_START_TIMESTAMP"]) == world.rig.clock.now_ms - 10, (
        "Unix ms, as mqadmin needs it"
    )


def test_a_reset_begins_anew_at_another_offset(world: World) -> None:
    world.topic("t", 1)
    sender, client, listener = world.client(), world.client(), Listener()
    consuming = client.consumer("g", listener, "t")
    world.send(sender, *[Message("t", b"%d" % number) for number in range(10)])
    world.until(lambda: len(listener.seen) == 10)
    link = next(link for link in client.links if link.connection.address.endswith(":10911"))
    body = b'{"offsetTable":[{"topic":"t","brokerName":"halfmoon","queueId":0,"offset":4}]}'
    table = b'{"offsetTable":{{"brokerName":"halfmoon","queueId":0,"topic":"t"}:4}}'
    link.say(wire.encode(Command(220, 7, wire.ONEWAY, fields={"topic": "t", "group": "g"}, body=table)))
    world.until(lambda: len(listener.seen) == 16, 30_000)
    assert bodies(listener.seen[10:]) == [b"%d" % number for number in range(4, 10)]
    link.say(wire.encode(Command(220, 8, wire.ONEWAY, fields={"topic": "t", "group": "g"}, body=body)))
    world.until(lambda: len(listener.seen) == 22, 30_000)
    assert consuming.owned("t")


def test_a_request_that_is_not_for_clients_is_refused(broker: FakeBroker, client: Client) -> None:
    client.consumer("g", Listener(), "t")
    said: list[bytes] = []
    (link,) = [link for link in client.links if link.node is broker.master]
    client.write = lambda connection, data: said.append(data)  # type: ignore[method-assign]
    link.say(wire.encode(Command(999, 5, 0)))
    answer = wire.decode(memoryview(said[0])[4:])
    assert (answer.opaque, answer.code) == (5, 3)


def test_the_old_name_of_nacked_works_and_warns() -> None:
    with pytest.warns(DeprecationWarning, match="nacked"):
        assert ConsumerCounters(nacked=3).sent_back == 3
