"""Half messages and check-back: B31 and B32, from the client's side."""

from __future__ import annotations

from itertools import pairwise

import pytest

from halfmoon.client.engine.producing import Producing
from halfmoon.client.engine.transactions import Check, Transactions, TransactionState
from halfmoon.client.errors import MessageError
from halfmoon.client.messages import Message, SendResult
from tests.client.fake_broker import END
from tests.client.test_pulling import Listener
from tests.client.world import Client, World, bodies

COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN


class Transactor:
    """A producer with transactions; what it is asked is remembered, and answered with `says`."""

    def __init__(self, world: World, client: Client, group: str = "tx") -> None:
        self.world = world
        self.client = client
        self.says: TransactionState | None = UNKNOWN
        self.checks: list[tuple[float, Check]] = []
        self.producing: Producing = client.producing(group)
        self.transactions = Transactions(self.producing, self.asked)

    def asked(self, check: Check) -> None:
        self.checks.append((self.world.now_ms, check))
        if self.says is not None:
            self.transactions.answer(check, self.says)

    def half(self, body: bytes, **more: str) -> SendResult:
        message = Message("t", body, tags="A", properties=more)
        result = self.world.wait(self.client.engine(lambda: self.transactions.send_half(message)))
        assert isinstance(result, SendResult)
        return result

    def end(self, result: SendResult, state: TransactionState) -> None:
        self.client.engine(lambda: self.transactions.end(result, state))
        self.world.settle()


def start() -> tuple[World, Transactor, Listener]:
    world = World()
    world.topic("t", 2)
    listener = Listener()
    world.client().consumer("g", listener, "t")
    return world, Transactor(world, world.client()), listener


def test_b31_a_half_message_is_seen_by_nobody_until_it_is_committed() -> None:
    world, transactor, listener = start()
    kept, dropped = transactor.half(b"kept", color="red"), transactor.half(b"dropped")
    world.run_ms(3_000)
    assert not listener.seen
    transactor.end(dropped, ROLLBACK)
    transactor.end(kept, COMMIT)
    world.run_ms(1_000)
    (message,) = listener.seen
    assert (message.body, message.tags, message.properties["color"]) == (b"kept", "A", "red")
    assert message.message_id == kept.message_id
    assert message.prepared_offset, "it says where its half stood"
    world.run_ms(3_600_000)
    assert bodies(listener.seen) == [b"kept"]
    assert not transactor.checks


def test_b32_a_half_without_an_end_is_asked_about() -> None:
    world, transactor, listener = start()
    sent = transactor.half(b"x", color="red")
    world.until(lambda: transactor.checks, 60_000)
    at_ms, check = transactor.checks[0]
    assert 6_000 <= at_ms <= 36_000
    message = check.message
    assert (message.body, message.topic, message.properties["color"]) == (b"x", "t", "red")
    assert message.message_id == sent.message_id
    transactor.says = COMMIT
    world.until(lambda: listener.seen, 60_000)
    assert bodies(listener.seen) == [b"x"]


def test_b32_after_fifteen_checks_it_is_given_up() -> None:
    world, transactor, listener = start()
    transactor.half(b"x")
    world.run_ms(3_600_000)
    assert len(transactor.checks) == 15
    times = [at_ms for at_ms, _ in transactor.checks]
    assert [round((after - before) / 1e3) for before, after in pairwise(times)] == [30] * 14
    given_up = Listener()
    world.client().consumer("undertakers", given_up, "TRANS_CHECK_MAX_TIME_TOPIC")
    world.until(lambda: given_up.seen)
    assert bodies(given_up.seen) == [b"x"]
    assert not listener.seen


def test_b32_another_producer_of_the_group_is_asked_when_the_first_is_dead() -> None:
    world, transactor, listener = start()
    transactor.half(b"x")
    transactor.client.kill()
    other = Transactor(world, world.client())
    other.says = COMMIT  # it has sent nothing, and brokers know of it all the same
    world.until(lambda: listener.seen, 120_000)
    assert len(other.checks) == 1


def test_b32_where_topics_are_not_made_by_sending_a_producer_names_its_own() -> None:
    world = World(topics__auto_create=False)
    world.topic("t", 1)
    transactor = Transactor(world, world.client())
    transactor.half(b"x")
    transactor.client.kill()
    silent = Transactor(world, world.client())
    named = world.client()
    asked: list[Check] = []
    Transactions(named.producing("tx", topics=("t",)), asked.append)
    world.until(lambda: asked, 120_000)
    assert not silent.checks


def test_b32_what_the_producer_does_not_answer_is_asked_again() -> None:
    world, transactor, listener = start()
    transactor.says = None
    transactor.half(b"x")
    world.until(lambda: len(transactor.checks) == 3, 120_000)
    transactor.says = ROLLBACK
    world.run_ms(3_600_000)
    assert len(transactor.checks) == 4
    assert not listener.seen


def test_b32_the_answer_says_what_the_broker_asked() -> None:
    world, transactor, _ = start()
    sent: list[tuple[int, dict[str, str]]] = []
    network = transactor.client.network
    oneway = network.oneway

    def spy(address: str, code: int, fields: dict[str, str], body: bytes = b"") -> None:
        sent.append((code, fields))
        oneway(address, code, fields, body)

    network.oneway = spy  # type: ignore[assignment]
    result = transactor.half(b"x")
    transactor.says = COMMIT
    world.until(lambda: transactor.checks, 60_000)
    ((code, fields),) = [each for each in sent if each[0] == END]
    _, check = transactor.checks[0]
    assert code == END
    assert fields == {
        "topic": "t", "producerGroup": "tx", "commitOrRollback": "8", "fromTransactionCheck": "true",
        "msgId": result.message_id, "transactionId": result.message_id, "bname": check.fields.get("bname", ""),
        "tranStateTableOffset": check.fields["tranStateTableOffset"],
        "commitLogOffset": check.fields["commitLogOffset"],
    }  # fmt: skip


def test_a_check_for_another_group_is_not_answered() -> None:
    world, transactor, _ = start()
    other = Transactor(world, transactor.client, "other")
    transactor.half(b"x")
    world.run_ms(120_000)
    assert not other.checks, "one client, two groups: the last producer has the handler, and knows its own"


def test_a_half_message_is_not_delayed() -> None:
    _, transactor, _ = start()
    with pytest.raises(MessageError, match="cannot be delayed"):
        transactor.transactions.send_half(Message("t", b"x", delay_level=3))


def test_the_end_of_a_message_that_was_never_a_half_is_an_error() -> None:
    world, transactor, _ = start()
    (sent,) = world.send(transactor.client, Message("t", b"x"))
    broken = SendResult(sent.status, sent.message_id, "nonsense", sent.queue, 0)
    with pytest.raises(ValueError, match="non-hexadecimal"):
        transactor.end(broken, COMMIT)
