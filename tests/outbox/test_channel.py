"""Half messages and their ends with a producer that answers what a test says, or nothing."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.future import Future

from halfmoon.client import Message, SendStatus, TransactionState
from halfmoon.kafka import NotStoredError
from halfmoon.outbox.aio.channel import AsyncKafkaChannel
from halfmoon.outbox.aio.rocketmq import Answering as AwaitedAnswering
from halfmoon.outbox.aio.rocketmq import AsyncRocketmqChannel
from halfmoon.outbox.channel import KafkaChannel
from halfmoon.outbox.messages import OutboxMessage
from halfmoon.outbox.rocketmq import Answering, RocketmqChannel
from halfmoon.outbox.table import State

MESSAGES = [OutboxMessage("orders", b"%d" % number, None, (("h", b"1"),), None) for number in range(3)]


class Sent:
    """What a producer was given, and what it says."""

    def __init__(self, *unanswered: str, refused: str = "") -> None:
        """`unanswered`, `refused`: values of half messages, and states of ends."""
        self.unanswered = unanswered
        self.refused = refused
        self.steps: list[str] = []

    def take(self, topic: str, value: bytes, headers: list[tuple[str, bytes]]) -> str:
        found = dict(headers)
        name = found["UNIQ_KEY"].decode()
        if "TRAN_STATE" in found:
            step = found["TRAN_STATE"].decode()
            self.steps.append(f"{step} {name}")
            assert topic == "halfmoon.transactions"
        else:
            step = value.decode()
            self.steps.append(f"half {name}")
            assert (topic, found["TRAN_MSG"], found["h"]) == ("orders", b"true", b"1")
        return step


class KafkaPythonProducer(Sent):
    def send(self, topic: str, value: bytes, headers: Any, **_: Any) -> Future:
        step, future = self.take(topic, value, headers), Future()
        if step == self.refused:
            future.failure(RuntimeError("refused"))
        elif step not in self.unanswered:
            future.success("stored")
        return future


class AiokafkaProducer(Sent):
    async def send(self, topic: str, value: bytes, headers: Any, **_: Any) -> Any:
        step, future = self.take(topic, value, headers), asyncio.get_running_loop().create_future()
        if step == self.refused:
            future.set_exception(RuntimeError("refused"))
        elif step not in self.unanswered:
            future.set_result("stored")
        return future


class Rig:
    kinds = ("called", "awaited", "called from a loop")

    def __init__(self, kind: str, *unanswered: str, refused: str = "", timeout_s: float = 30) -> None:
        made = AiokafkaProducer if kind == "awaited" else KafkaPythonProducer
        self.producer = made(*unanswered, refused=refused)
        self.kind, self._timeout_s = kind, timeout_s

    def deliver(self, state: State | BaseException | None, messages: Any = MESSAGES) -> None:
        def decide() -> State | None:
            self.producer.steps.append("decide")
            if isinstance(state, BaseException):
                raise state
            return state

        async def decide_awaited() -> State | None:
            return decide()

        async def run() -> None:
            channel = AsyncKafkaChannel("shop", self.producer, self._timeout_s)
            try:
                await channel.deliver("t", messages, decide_awaited)
            finally:
                for _ in range(3):  # a task for each end has begun by then
                    await asyncio.sleep(0)

        if self.kind == "called":
            KafkaChannel("shop", self.producer, self._timeout_s).deliver("t", messages, decide)
        else:
            asyncio.run(run())


HALVES = ["half t#0", "half t#1", "half t#2"]


@pytest.mark.parametrize("kind", Rig.kinds)
@pytest.mark.parametrize(("state", "end"), [(State.COMMITTED, "commit"), (State.ABANDONED, "rollback"), (None, None)])
def test_the_decision_is_told(kind: str, state: State | None, end: str | None) -> None:
    rig = Rig(kind)
    rig.deliver(state)
    told = [f"{end} t#{number}" for number in range(3)] if end else []
    assert rig.producer.steps == [*HALVES, "decide", *told]


@pytest.mark.parametrize("kind", Rig.kinds)
def test_a_refused_half_message_rolls_all_back(kind: str) -> None:
    rig = Rig(kind, refused="1")
    with pytest.raises(NotStoredError, match="refused"):
        rig.deliver(State.COMMITTED)
    assert rig.producer.steps == [*HALVES, "rollback t#0", "rollback t#1", "rollback t#2"]


@pytest.mark.parametrize("kind", Rig.kinds)
def test_one_without_an_answer_does_so_too(kind: str) -> None:
    rig = Rig(kind, "2", timeout_s=0.05)
    with pytest.raises(NotStoredError, match=r"no answer after 0\.05 s"):
        rig.deliver(State.COMMITTED)
    assert "decide" not in rig.producer.steps


@pytest.mark.parametrize("kind", Rig.kinds)
@pytest.mark.parametrize("said", ["unanswered", "refused"])
def test_an_end_that_is_not_stored_is_no_error(kind: str, said: str, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(kind, "commit", timeout_s=0.05) if said == "unanswered" else Rig(kind, refused="commit")
    with caplog.at_level(logging.WARNING, "halfmoon.outbox"):
        rig.deliver(State.COMMITTED)
    assert "event=end_not_stored transaction=t state=committed" in caplog.text


@pytest.mark.parametrize("kind", Rig.kinds)
def test_an_interrupted_decision_tells_nothing(kind: str) -> None:
    class InterruptedError(BaseException):
        pass

    rig = Rig(kind)
    with pytest.raises(InterruptedError):
        rig.deliver(InterruptedError())
    assert rig.producer.steps == [*HALVES, "decide"]


@pytest.mark.parametrize("kind", Rig.kinds)
def test_a_message_of_another_protocol(kind: str) -> None:
    rig = Rig(kind)
    with pytest.raises(TypeError, match=r"not a message of halfmoon\.client"):
        rig.deliver(State.COMMITTED, [MESSAGES[0], OutboxMessage("orders", None, None, (), None, whole=object())])
    assert "decide" not in rig.producer.steps


# ------------------------------------------------------------------------------------------------------------- RocketMQ


class RocketmqProducer:
    """halfmoon.client's, as far as the channel needs it: it calls the listener when a half message is stored."""

    def __init__(self, **failures: Any) -> None:
        """By the body of a message: an exception to raise `instead` of storing it or `after` the listener, or
        `less_safe`."""
        self.failures = failures
        self.told: list[tuple[bytes, TransactionState]] = []

    def send_in_transaction(self, message: Message, argument: Any) -> Any:
        if self.failures.get("instead") == message.body:
            raise RuntimeError("instead")
        sent = SimpleNamespace(status=SendStatus.OK)
        if self.failures.get("less_safe") == message.body:
            sent.status = SendStatus.FLUSH_DISK_TIMEOUT
            state = TransactionState.ROLLBACK
        else:
            state = argument()
        self.told.append((message.body, state))
        if self.failures.get("after") == message.body:
            raise RuntimeError("after")
        return SimpleNamespace(sent=sent, state=state)


class AwaitedRocketmqProducer(RocketmqProducer):
    async def send_in_transaction(self, message: Message, argument: Any) -> Any:  # type: ignore[override]
        decided: list[TransactionState] = []
        if message.body not in (self.failures.get("instead"), self.failures.get("less_safe")):
            decided.append(await argument())
        return super().send_in_transaction(message, lambda: decided[0])


def by_rocketmq(kind: str, state: State | None, **failures: Any) -> list[tuple[bytes, TransactionState]]:
    """Deliver; what the broker is told, from the last message to the first."""
    made = RocketmqProducer(**failures) if kind == "called" else AwaitedRocketmqProducer(**failures)
    producer: Any = made

    async def decide() -> State | None:
        return state

    try:
        if kind == "called":
            RocketmqChannel(producer, Answering()).deliver("t", MESSAGES, lambda: state)
        else:
            asyncio.run(AsyncRocketmqChannel(producer, AwaitedAnswering()).deliver("t", MESSAGES, decide))
    except Exception as error:
        error.told = made.told  # type: ignore[attr-defined]
        raise
    return made.told


@pytest.mark.parametrize("kind", ["called", "awaited"])
class TestRocketmq:
    @pytest.mark.parametrize(
        ("state", "said"),
        [
            (State.COMMITTED, TransactionState.COMMIT), (State.ABANDONED, TransactionState.ROLLBACK),
            (None, TransactionState.UNKNOWN),
        ],
    )  # fmt: skip
    def test_the_decision_is_told_of_each(self, kind: str, state: State | None, said: TransactionState) -> None:
        assert by_rocketmq(kind, state) == [(b"2", said), (b"1", said), (b"0", said)]

    @pytest.mark.parametrize("failures", [{"instead": b"2"}, {"less_safe": b"2"}])
    def test_one_that_is_not_stored_rolls_the_others_back(self, kind: str, failures: Any) -> None:
        with pytest.raises((RuntimeError, NotStoredError)) as raised:
            by_rocketmq(kind, State.COMMITTED, **failures)
        told = raised.value.told  # type: ignore[attr-defined]
        assert {state for _, state in told} == {TransactionState.ROLLBACK}
        assert [body for body, _ in told if body != b"2"] == [b"1", b"0"]

    def test_what_fails_after_the_decision_changes_nothing(self, kind: str) -> None:
        commit = TransactionState.COMMIT
        assert by_rocketmq(kind, State.COMMITTED, after=b"2") == [(b"2", commit), (b"1", commit), (b"0", commit)]
