"""The outbox's producer in RocketMQ's protocol: `halfmoon.client`'s, whose listener is the outbox.

    with OutboxProducer("shop", namesrv="127.0.0.1:9876", topics=["orders"]) as producer:
        outbox = Outbox("shop", producer, engine)
        with outbox.transaction() as tx:
            tx.session.add(Order(...))
            tx.send(Message("orders", b"order 7 was paid", tags="paid"))

The broker asks a connected producer of the group, so there is no topic of check-backs to consume: whoever has an
OutboxProducer with an outbox answers.

The client calls its listener when a half message is stored, in the same thread. So several messages are sent one inside
the other's listener; the innermost commits the local transaction, and each tells the broker on the way out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from halfmoon.client import Message, ReceivedMessage, TransactionProducer, TransactionState
from halfmoon.kafka import NotStoredError
from halfmoon.outbox.messages import OutboxMessage, name_of
from halfmoon.outbox.table import State

NAME = "HALFMOON_OUTBOX"
"""The property that says which transaction a message belongs to."""
MOST_MESSAGES = 50
"""Of one transaction: each takes some of the stack."""

STATES = {State.COMMITTED: TransactionState.COMMIT, State.ABANDONED: TransactionState.ROLLBACK}

log = logging.getLogger("halfmoon.outbox")


class OutboxProducer(TransactionProducer):
    """A TransactionProducer for an outbox. `options`: those of a TransactionProducer. Name the topics (`topics=[…]`),
    so that the broker can ask this producer before it has sent anything."""

    def __init__(self, group: str, **options: Any) -> None:
        self._answering = Answering()
        super().__init__(group, self._answering, **options)

    def outbox_channel(self, group: str) -> RocketmqChannel:
        """Called by an outbox. Raises ValueError where its group is another one."""
        check_group(group, self.group)
        return RocketmqChannel(self, self._answering)


class Answering:
    """A TransactionListener. Its argument is what is to be done when the half message is stored."""

    def __init__(self) -> None:
        self.answer: Callable[[Any], State | None] = lambda check: None

    def execute_local_transaction(self, message: Message, argument: Any) -> TransactionState:
        state: TransactionState = argument()
        return state

    def check_local_transaction(self, message: ReceivedMessage) -> TransactionState:
        return said(self.answer(message))


class RocketmqChannel:
    check_topic = ""

    def __init__(self, producer: OutboxProducer, answering: Answering) -> None:
        self._producer = producer
        self._answering = answering

    def deliver(
        self, transaction_id: str, messages: Sequence[OutboxMessage], decide: Callable[[], State | None]
    ) -> None:
        made = made_messages(transaction_id, messages)
        errors: list[Exception] = []
        decided: list[TransactionState] = []

        def send(number: int) -> TransactionState:
            """This message and those behind it."""
            if number == len(made):
                decided.append(said(decide()))
                return decided[0]
            was_called = False

            def go_on() -> TransactionState:
                nonlocal was_called
                was_called = True
                try:
                    return send(number + 1)
                except Exception as error:
                    errors.append(error)
                    return decided[0] if decided else TransactionState.ROLLBACK

            result = self._producer.send_in_transaction(made[number], go_on)
            if not was_called:
                raise less_safe(result.sent.status)
            return result.state

        send(0)
        if errors and not decided:
            raise errors[0]

    def transaction_of(self, check: Any) -> str:
        return name_in(check)

    def end(self, name: str, state: State) -> bool:
        return True  # the listener's answer says it

    def answer_by(self, answer: Callable[[Any], State | None]) -> None:
        self._answering.answer = partial(answered, answer)


def said(state: State | None) -> TransactionState:
    return TransactionState.UNKNOWN if state is None else STATES[state]


def answered(answer: Callable[[Any], State | None], check: Any) -> State | None:
    try:
        return answer(check)
    except ValueError as error:
        log.warning("event=not_a_check_back error=%s", error)
        return None


def name_in(check: Any) -> str:
    """Raises ValueError."""
    name = check.properties.get(NAME)
    if not name:
        raise ValueError(f"the message has no property {NAME}: no outbox has sent it")
    return str(name)


def check_group(group: str, of_producer: str) -> None:
    if group != of_producer:
        raise ValueError(f"the outbox's group is {group!r}, the producer's {of_producer!r}: the broker asks the latter")


def less_safe(status: Any) -> NotStoredError:
    return NotStoredError(f"a half message is stored less safely than the broker promises: {status.name}")


def made_messages(transaction_id: str, messages: Sequence[OutboxMessage]) -> list[Message]:
    """Raises ValueError."""
    if len(messages) > MOST_MESSAGES:
        raise ValueError(f"with RocketMQ's protocol a transaction sends at most {MOST_MESSAGES} messages")
    return [_made(name_of(transaction_id, number), each) for number, each in enumerate(messages)]


def _made(name: str, each: OutboxMessage) -> Message:
    if each.whole is not None:
        whole: Message = each.whole
        return Message(
            whole.topic, whole.body, whole.tags, whole.keys, {**whole.properties, NAME: name}, whole.flag,
            whole.sharding_key, whole.delay_level, whole.delay_ms, whole.deliver_at_ms, whole.wait_for_disk,
        )  # fmt: skip
    if each.partition is not None:
        raise ValueError("RocketMQ's protocol has queues: a partition cannot be chosen")
    properties = {header: (content or b"").decode() for header, content in each.headers}
    return Message(
        each.topic, each.value or b"", properties={**properties, NAME: name},
        sharding_key=None if each.key is None else each.key.decode(),
    )  # fmt: skip
