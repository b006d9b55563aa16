"""What is peculiar to threads, and to asyncio."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import InvalidStateError
from typing import Any

import pytest

import halfmoon.client.aio as aio
from halfmoon.client import (
    ConfigError,
    ConsumeFrom,
    Context,
    Message,
    NotRunningError,
    Producer,
    PushConsumer,
    ReceivedMessage,
    Status,
)
from halfmoon.client.threads import producers
from halfmoon.client.threads.pool import ListenerPool
from halfmoon.remoting import command as wire
from halfmoon.remoting.command import Command
from tests.client.live.conftest import Live, until
from tests.client.live.shells import Threads
from tests.client.world import route


@pytest.fixture
def live(namesrv: str) -> Any:
    made = Live(Threads(), namesrv)
    yield made
    made.close()


# -- threads ---------------------------------------------------------------------------------------------------------


def test_a_future_cannot_be_cancelled_and_nothing_breaks(topic: str, producer: Any) -> None:
    futures = [producer.send_async(Message(topic, b"x")) for _ in range(50)]
    assert not any(future.cancel() for future in futures)
    assert all(future.result(10) for future in futures)
    with pytest.raises(InvalidStateError):
        futures[0].set_result(None)
    assert producer.send(Message(topic, b"y"))


def test_a_callback_may_send_on_and_may_not_wait(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "MOST_IN_FLIGHT", 2)
    topic = live.topic()
    producer = live.producer()
    done = threading.Event()
    waited: list[BaseException] = []

    def chain(left: int, *, is_last: bool = False) -> None:
        def answered(result: Any, error: BaseException | None) -> None:
            if left == 50:
                try:
                    producer.send(Message(topic, b"never"))
                except RuntimeError as refused:
                    waited.append(refused)
            if left:
                chain(left - 1, is_last=is_last)
            elif is_last:
                done.set()

        producer.send_async(Message(topic, b"%d" % left), callback=answered)

    for _ in range(3):
        threading.Thread(target=chain, args=(20,), daemon=True).start()
    chain(50, is_last=True)
    assert done.wait(10)
    assert len(waited) == 1
    assert "the thread that it runs in" in str(waited[0])
    _, got = live.consume(topic)
    until(lambda: len(got) >= 51 + 3 * 21)
    assert b"never" not in got.bodies


def test_what_a_callback_raises_is_logged(topic: str, producer: Any, caplog: pytest.LogCaptureFixture) -> None:
    producer.send_async(Message(topic, b"x"), callback=lambda result, error: 1 / 0).result(10)
    until(lambda: "ZeroDivisionError" in caplog.text)
    assert producer.send(Message(topic, b"y"))


def test_a_listener_may_exit_and_the_pool_goes_on(live: Live, topic: str, producer: Any) -> None:

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Status:
        context.delay_level = 1
        if messages[0].reconsume_times == 0:
            raise SystemExit(1)
        return Status.SUCCESS

    consumer, got = live.consume(topic, listener=listener, threads=1)
    for number in range(3):
        producer.send(Message(topic, b"%d" % number))
    until(lambda: consumer.counters.consumed >= 3 + 1)
    assert len(got) == 6
    began = time.monotonic()
    consumer.close()
    assert time.monotonic() - began < 2


def test_what_answers_a_check_may_exit_and_the_pool_goes_on() -> None:
    works = ListenerPool("g", 1, lambda work, status, error: None)
    has_worked = threading.Event()
    works.submit([sys.exit])
    works.submit([has_worked.set])
    assert has_worked.wait(10)
    works.stop(10)


def test_an_async_producers_end_waits_for_what_it_sends(live: Live, topic: str) -> None:
    async def run() -> None:
        producer = aio.Producer("p", namesrv=live.namesrv)
        await producer.start()
        sends = [asyncio.ensure_future(producer.send(Message(topic, b"%d" % number))) for number in range(50)]
        await asyncio.sleep(0)  # they begin
        assert producer.in_flight == 50
        await producer.close()
        assert producer.in_flight == 0
        assert len({(await sent).message_id for sent in sends}) == 50

    asyncio.run(run())


def test_an_async_listener_is_told_where_it_belongs(live: Live, topic: str, caplog: pytest.LogCaptureFixture) -> None:

    async def listener(messages: Sequence[ReceivedMessage], context: Context) -> Status:
        return Status.SUCCESS

    consumer = live.start("PushConsumer", live.name("g"), listener, topic, consume_from=ConsumeFrom.FIRST)
    until(lambda: "halfmoon.client.aio" in caplog.text)
    assert consumer.counters.failed >= 1


def test_listeners_run_side_by_side(live: Live, topic: str, producer: Any) -> None:
    barrier = threading.Barrier(8, timeout=10)

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Status:
        barrier.wait()
        return Status.SUCCESS

    consumer, _ = live.consume(topic, listener=listener, threads=8)
    for number in range(16):
        producer.send(Message(topic, b"%d" % number))
    until(lambda: consumer.counters.consumed == 17)


def test_numbers_are_read_while_everything_moves(live: Live, topic: str, producer: Any) -> None:
    consumer, got = live.consume(topic)
    stop = threading.Event()
    errors: list[BaseException] = []

    def look() -> None:
        try:
            while not stop.is_set():
                assert consumer.lag >= 0
                assert consumer.in_flight >= 0
                assert consumer.cached >= 0
                assert len(consumer.queues) <= 5
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        producer.send_batch([Message(topic, b"x")] * 100)
    got.wait(1_000)
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors


def test_a_client_may_be_closed_by_its_listener(live: Live, topic: str, producer: Any) -> None:
    closed = threading.Event()

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Status:
        threading.Thread(target=lambda: (consumer.close(), closed.set()), daemon=True).start()
        return Status.SUCCESS

    consumer, _ = live.consume(topic, listener=listener)
    producer.send(Message(topic, b"x"))
    assert closed.wait(10)


def test_what_was_never_started_leaves_nothing_behind() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConfigError):
            PushConsumer("g", lambda messages, context: None, batch_size=0)
        with pytest.raises(ConfigError, match="unknown option 'thread'"):
            PushConsumer("g", lambda messages, context: None, thread=1)
        with pytest.raises(ConfigError, match="is no HOST:PORT"):
            Producer("p", namesrv="localhost")
        with pytest.raises(ConfigError, match=r"group 'a\.b'"):
            Producer("a.b")
        Producer("p").close()
        gc.collect()
    before = threading.active_count()
    producer = Producer("p")
    with pytest.raises(NotRunningError):
        producer.send(Message("t", b"x"))
    assert threading.active_count() == before


def test_a_start_that_fails_leaves_no_thread(namesrv: str) -> None:
    before = {thread.name for thread in threading.enumerate()}
    consumer = PushConsumer("g", lambda messages, context: None, namesrv=namesrv)
    maker = Live(Threads(), namesrv)
    consumer.subscribe(maker.topic(), sql="a >")
    with pytest.raises(Exception, match="23"):
        consumer.start()
    until(lambda: {thread.name for thread in threading.enumerate()} <= before)


@pytest.mark.parametrize("name", ["acknowledged", "delay_level"])
def test_a_context_without_sense_is_a_failure(
    live: Live, topic: str, producer: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Status:
        if messages[0].body == b"bad" and messages[0].reconsume_times == 0:
            setattr(context, name, None)
        return Status.SUCCESS

    consumer, got = live.consume(topic, listener=listener)
    producer.send(Message(topic, b"bad"))
    until(lambda: f"has set {name}" in caplog.text)
    producer.send(Message(topic, b"good"))
    until(lambda: b"good" in got.bodies)
    assert consumer.is_running


def test_a_thread_that_does_not_start_is_not_the_end(
    live: Live, topic: str, producer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[threading.Thread] = []
    start = threading.Thread.start

    def once(thread: threading.Thread) -> None:
        if thread.name.startswith("halfmoon-listener") and not refused:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", once)
    _, got = live.consume(topic)
    for number in range(10):
        producer.send(Message(topic, b"%d" % number))
    got.wait(10)
    assert refused


def test_listeners_of_lost_queues_are_not_called(live: Live, topic: str, producer: Any) -> None:
    producer.send_batch([Message(topic, b"%d" % number) for number in range(100)])
    gate = threading.Event()
    called: list[bytes] = []

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Status:
        called.extend(message.body for message in messages)
        gate.wait(10)
        return Status.SUCCESS

    consumer, got = live.consume(topic, listener=listener, threads=1)
    got.wait(1)
    until(lambda: consumer.cached > 50)
    consumer.pause()  # rebalancing may give us the queue again, and is not what this is about
    with consumer._shell.lock:
        for process_queue in consumer._consuming.queues.values():
            process_queue.drop()
    gate.set()
    until(lambda: consumer.in_flight == 0)
    assert len(called) <= 2


def test_a_client_is_not_used_after_a_fork(topic: str, producer: Any) -> None:
    producer.send(Message(topic, b"parent"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            producer.send(Message(topic, b"child"))
        except NotRunningError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert producer.send(Message(topic, b"parent again"))


def test_a_node_that_does_not_read_does_not_slow_others_down() -> None:
    """What waits for it is neither copied again and again, nor kept without a limit."""
    listening = socket.create_server(("127.0.0.1", 0))
    names = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{listening.getsockname()[1]}"
    stop = threading.Event()

    def serve() -> None:
        connection, _ = names.accept()
        with connection:
            while not stop.is_set():
                head = connection.recv(4, socket.MSG_WAITALL)
                if not head:
                    return
                asked = wire.decode(memoryview(connection.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)))
                said = Command(0, asked.opaque, wire.RESPONSE, body=route(("b", {0: address}, 1)))
                connection.sendall(wire.encode(said))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    producer = Producer("p", namesrv=f"127.0.0.1:{names.getsockname()[1]}", compress_over_bytes=0)
    producer.start()
    began = time.monotonic()
    for _ in range(1_500):
        producer.send_oneway(Message("t", bytes(20_000)))
    took_s = time.monotonic() - began
    stop.set()
    producer.close()
    for each in (listening, names):
        each.close()
    assert took_s < 10, "30 MB wait; copied with each send it would be 22 GB"


# -- asyncio ---------------------------------------------------------------------------------------------------------


def test_a_send_that_is_not_awaited_any_more_goes_on(live: Live, topic: str) -> None:

    async def run() -> None:
        async with aio.Producer("p", namesrv=live.namesrv) as producer:
            await producer.send(Message(topic, b"first"))
            task = asyncio.ensure_future(producer.send(Message(topic, b"second")))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await producer.send(Message(topic, b"third"))

    asyncio.run(run())
    _, got = live.consume(topic)
    assert sorted(got.wait(3)) == [b"first", b"second", b"third"]


def test_listeners_of_asyncio_are_cancelled_by_themselves_or_at_the_end(live: Live, topic: str) -> None:
    seen: list[tuple[bytes, int]] = []

    async def listener(messages: Sequence[ReceivedMessage], context: Context) -> Status:
        (message,) = messages
        context.delay_level = 1
        seen.append((message.body, message.reconsume_times))
        if message.body == b"cancels" and message.reconsume_times == 0:
            raise asyncio.CancelledError
        if message.body == b"long":
            await asyncio.sleep(3_600)
        return Status.SUCCESS

    async def run() -> float:
        async with aio.Producer("p", namesrv=live.namesrv) as producer:
            consumer = aio.PushConsumer(
                live.name("g"), listener, topic, namesrv=live.namesrv, consume_from=ConsumeFrom.FIRST, shutdown_ms=300
            )
            await consumer.start()
            await producer.send(Message(topic, b"cancels"))
            await producer.send(Message(topic, b"long"))
            while (b"cancels", 1) not in seen or (b"long", 0) not in seen:
                await asyncio.sleep(0.01)
            began = time.monotonic()
            await consumer.close()
            return time.monotonic() - began

    assert 0.2 < asyncio.run(asyncio.wait_for(run(), 30)) < 3


def test_a_close_that_is_cut_short_still_ends_everything(live: Live, topic: str) -> None:

    async def listener(messages: Sequence[ReceivedMessage], context: Context) -> Status:
        began.set()
        await asyncio.sleep(3_600)
        return Status.SUCCESS

    async def run() -> None:
        before = len(asyncio.all_tasks())
        consumer = aio.PushConsumer("g", listener, topic, namesrv=live.namesrv, consume_from=ConsumeFrom.FIRST)
        await consumer.start()
        await began.wait()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(consumer.close(), 0.2)
        assert not consumer.is_running
        while len(asyncio.all_tasks()) > before:
            await asyncio.sleep(0.01)

    began = asyncio.Event()
    asyncio.run(asyncio.wait_for(run(), 30))


def test_a_listeners_exception_is_logged_as_it_is(live: Live, topic: str, caplog: pytest.LogCaptureFixture) -> None:

    async def listener(messages: Sequence[ReceivedMessage], context: Context) -> Status:
        raise ZeroDivisionError("in an async listener")

    async def run() -> None:
        async with aio.PushConsumer(
            live.name("g"), listener, topic, namesrv=live.namesrv, consume_from=ConsumeFrom.FIRST
        ):
            while "ZeroDivisionError: in an async listener" not in caplog.text:
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(run(), 30))
    assert "TypeError" not in caplog.text


def test_a_poll_that_is_cancelled_takes_nothing(live: Live, topic: str) -> None:
    group = live.name("g")
    got: list[bytes] = []

    def lite() -> aio.LitePullConsumer:
        return aio.LitePullConsumer(group, {topic: "x"}, namesrv=live.namesrv, consume_from=ConsumeFrom.FIRST)

    async def run() -> int:
        async with lite() as one, aio.Producer("p", namesrv=live.namesrv) as producer:
            for number in range(30):
                waiting = asyncio.ensure_future(one.poll(5))
                await asyncio.sleep(0.002 * (number % 4))
                sending = asyncio.ensure_future(producer.send(Message(topic, b"%d" % number, tags="x")))
                await asyncio.sleep(0.001 * (number % 3))
                waiting.cancel()
                await sending
                await asyncio.wait([waiting])
                if not waiting.cancelled():
                    got.extend(message.body for message in waiting.result())
        async with lite() as two:
            while len(set(got)) < 30 and (messages := await two.poll(3)):
                got.extend(message.body for message in messages)
        return len(set(got))

    assert asyncio.run(asyncio.wait_for(run(), 60)) == 30


def test_a_plain_function_is_a_listener_too(live: Live, topic: str) -> None:
    seen: list[bytes] = []

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Status:
        seen.extend(message.body for message in messages)
        return Status.SUCCESS

    async def run() -> None:
        async with aio.PushConsumer("g", listener, topic, namesrv=live.namesrv, consume_from=ConsumeFrom.FIRST):
            while not seen:
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(run(), 30))


def test_no_more_listeners_at_a_time_than_were_agreed_on(live: Live, topic: str) -> None:
    live.producer().send_batch([Message(topic, b"x")] * 60)
    running = most = total = 0

    async def listener(messages: Sequence[ReceivedMessage], context: Context) -> Status:
        nonlocal running, most, total
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1
        total += 1
        return Status.SUCCESS

    async def run() -> None:
        async with aio.PushConsumer(
            live.name("g"), listener, topic, namesrv=live.namesrv, consume_from=ConsumeFrom.FIRST, threads=7
        ):
            while total < 61:
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(run(), 30))
    assert most == 7


def test_both_shells_have_the_same_names() -> None:
    import halfmoon.client

    assert set(aio.__all__) == set(halfmoon.client.__all__)
    for name in ("Producer", "TransactionProducer", "PushConsumer", "PullConsumer", "LitePullConsumer"):
        theirs = {each for each in dir(getattr(aio, name)) if not each.startswith("_")}
        ours = {each for each in dir(getattr(halfmoon.client, name)) if not each.startswith("_")}
        assert ours - theirs <= {"send_async"}
        assert theirs <= ours
