"""The order in which a local transaction and its messages end, whatever fails in between; without a database and a
broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from halfmoon.kafka import NotStoredError
from halfmoon.outbox import BaseOutbox, OutboxError, State, Transaction
from halfmoon.outbox.aio.outbox import AsyncBaseOutbox
from halfmoon.outbox.messages import MOST_MESSAGES
from tests.outbox.fakes import NOW, AwaitedChannel, AwaitedDatabase, DatabaseError, FakeChannel, FakeDatabase, Steps


class Rig:
    """An outbox; what it is asked, in words that it shares with the awaited one."""

    def __init__(self) -> None:
        self.steps = Steps()
        self.database = FakeDatabase(self.steps)
        self.channel = FakeChannel(self.steps)
        self.time_s = 0.0
        self.outbox: Any = self.make("shop")

    def make(self, group: str) -> Any:
        return BaseOutbox(
            group, self.channel, self.database, commit_within_s=60, now=lambda: NOW, clock=lambda: self.time_s
        )

    def block(self, body: Callable[[Transaction], object], transaction_id: str | None = None) -> None:
        with self.outbox.transaction(transaction_id=transaction_id) as tx:
            body(tx)

    def answer(self, check: Any) -> State | None:
        found: State | None = self.outbox.answer(check)
        return found

    def clean(self, older_than: timedelta) -> int:
        return int(self.outbox.clean(older_than))

    def run(self, transaction_id: str | None = "t", messages: int = 1) -> None:
        def body(tx: Transaction) -> None:
            for number in range(messages):
                tx.send("orders", b"%d" % number, b"key", [("h", b"1")])

        self.block(body, transaction_id)

    @property
    def values(self) -> list[bytes | None]:
        return [message.value for message in self.channel.delivered]


class AwaitedRig(Rig):
    def make(self, group: str) -> Any:
        return AsyncBaseOutbox(
            group, AwaitedChannel(self.channel), AwaitedDatabase(self.database), commit_within_s=60, now=lambda: NOW,
            clock=lambda: self.time_s,
        )  # fmt: skip

    def block(self, body: Callable[[Transaction], object], transaction_id: str | None = None) -> None:
        async def run() -> None:
            async with self.outbox.transaction(transaction_id=transaction_id) as tx:
                body(tx)

        asyncio.run(run())

    def answer(self, check: Any) -> State | None:
        found: State | None = asyncio.run(self.outbox.answer(check))
        return found

    def clean(self, older_than: timedelta) -> int:
        return int(asyncio.run(self.outbox.clean(older_than)))


@pytest.fixture(params=[Rig, AwaitedRig], ids=["called", "awaited"])
def rig(request: pytest.FixtureRequest) -> Rig:
    made: Rig = request.param()
    return made


def test_the_row_comes_before_the_half_messages_and_these_before_the_commit(rig: Rig) -> None:
    rig.run(messages=2)
    assert rig.steps.taken == ["insert", "half messages", "commit", "committed"]
    assert rig.database.rows == {"t": State.COMMITTED}
    assert rig.values == [b"0", b"1"]
    assert (rig.channel.delivered[0].key, rig.channel.delivered[0].headers) == (b"key", (("h", b"1"),))


def test_without_messages_it_is_a_plain_transaction(rig: Rig) -> None:
    rig.run(messages=0)
    assert rig.steps.taken == ["commit"]
    assert rig.database.rows == {}
    rig.steps.failures["commit"] = DatabaseError("refused")
    with pytest.raises(DatabaseError, match="refused"):
        rig.run(messages=0)
    assert rig.steps.taken == ["commit", "commit", "rollback"]


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt()])
def test_nothing_is_sent_where_the_block_raises(rig: Rig, error: BaseException) -> None:
    def body(tx: Transaction) -> None:
        tx.send("orders", b"1")
        raise error

    with pytest.raises(type(error)):
        rig.block(body)
    assert rig.steps.taken == ["rollback"]
    rig.steps.failures["rollback"] = DatabaseError("lost")  # does not hide what was raised
    with pytest.raises(type(error)):
        rig.block(body)


@pytest.mark.parametrize(
    ("step", "error"), [("insert", DatabaseError("refused")), ("half messages", NotStoredError("refused"))]
)
def test_what_fails_before_the_commit_rolls_back(rig: Rig, step: str, error: Exception) -> None:
    rig.steps.failures[step] = error
    with pytest.raises(type(error), match="refused"):
        rig.run()
    assert rig.steps.taken[-1] == "rollback"
    assert "commit" not in rig.steps.taken
    assert (rig.database.rows, rig.values) == ({}, [])


def test_a_commit_that_is_refused_drops_the_messages(rig: Rig) -> None:
    rig.steps.failures["commit"] = DatabaseError("a deferred constraint")
    with pytest.raises(DatabaseError, match="deferred"):
        rig.run()
    assert rig.steps.taken == ["insert", "half messages", "commit", "rollback", "look", "abandon", "abandoned"]
    assert (rig.database.rows, rig.values) == ({"t": State.ABANDONED}, [])


def test_a_commit_whose_answer_was_lost_is_one(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.steps.failures["commit"] = DatabaseError("the connection is lost")
    rig.database.commits_before_it_fails = True
    rig.run()
    assert rig.values == [b"0"]
    assert "event=answer_to_commit_lost transaction=t" in caplog.text


def test_what_a_hook_raises_after_the_commit_is_raised_and_the_messages_are_delivered(rig: Rig) -> None:
    rig.steps.failures["commit"] = RuntimeError("an event of the session")
    rig.database.commits_before_it_fails = True
    with pytest.raises(RuntimeError, match="event"):
        rig.run()
    assert rig.values == [b"0"]


def test_where_nobody_knows_the_broker_is_told_nothing(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.steps.failures.update(commit=DatabaseError("the connection is lost"), look=DatabaseError("away"))
    with pytest.raises(DatabaseError, match="lost"):
        rig.run()
    assert rig.steps.taken == ["insert", "half messages", "commit", "rollback", "look"]
    assert "event=outcome_unknown transaction=t error=away" in caplog.text


def test_an_interrupt_in_the_commit_leaves_it_to_the_check_back(rig: Rig) -> None:
    rig.steps.failures["commit"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        rig.run()
    assert rig.steps.taken == ["insert", "half messages", "commit", "rollback"]


def test_half_messages_that_take_too_long_are_not_committed(rig: Rig) -> None:
    def wait() -> None:
        rig.time_s += 60.1

    rig.steps.before["half messages"] = wait
    with pytest.raises(OutboxError, match="more than 60 s"):
        rig.run()
    assert rig.steps.taken == ["insert", "half messages", "rollback", "abandoned"]
    assert rig.values == []


def test_a_transaction_that_was_abandoned_meanwhile_is_refused(rig: Rig) -> None:
    assert rig.answer("t#0") is State.ABANDONED
    with pytest.raises(DatabaseError, match="taken"):
        rig.run()
    assert rig.values == []


class TestCheckBacks:
    def test_of_a_committed_one(self, rig: Rig) -> None:
        rig.run(messages=12)
        assert rig.answer("t#11") is State.COMMITTED
        assert rig.channel.told == [("t#11", State.COMMITTED)]

    def test_of_an_unknown_one_which_never_will_be(self, rig: Rig) -> None:
        assert rig.answer("a # b#0") is State.ABANDONED
        assert rig.answer("a # b#1") is State.ABANDONED
        assert rig.database.rows == {"a # b": State.ABANDONED}
        assert rig.steps.taken == ["look", "abandon", "look"]

    def test_of_one_that_commits_between_look_and_insert(self, rig: Rig) -> None:
        rig.steps.before["abandon"] = lambda: rig.database.rows.update(t=State.COMMITTED)
        assert rig.answer("t#0") is State.COMMITTED

    @pytest.mark.parametrize("step", ["look", "abandon"])
    def test_the_database_does_not_answer(self, rig: Rig, step: str, caplog: pytest.LogCaptureFixture) -> None:
        rig.steps.failures[step] = DatabaseError("locked")
        assert rig.answer("t#0") is None
        assert rig.channel.told == []
        assert "event=check_back_not_answered transaction=t#0 error=locked" in caplog.text

    def test_the_broker_does_not_store_the_answer(self, rig: Rig) -> None:
        rig.channel.stores_ends = False
        assert rig.answer("t#0") is None

    def test_of_another_program_of_the_group(self, rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
        assert rig.answer("order-7") is None
        assert rig.channel.told == []
        assert "event=check_back_of_another transaction=order-7" in caplog.text

    def test_of_none(self, rig: Rig) -> None:
        with pytest.raises(ValueError, match="no check-back"):
            rig.answer(None)


class TestTheLoop:
    class Consumer:
        """Of confluent-kafka, as far as is needed."""

        def __init__(self, rig: Rig, records: list[Any]) -> None:
            self._rig, self._records = rig, records
            self.topics: list[str] = []

        def subscribe(self, topics: list[str]) -> None:
            self.topics = topics

        def consume(self, most: int, timeout: float) -> list[Any]:
            if not self._records:
                self._rig.stop()
            return [self._records.pop(0)] if self._records else []

        def commit(self, offsets: list[Any], asynchronous: bool) -> None: ...

        def close(self) -> None: ...

    def test_it_answers_and_removes_old_rows_every_hour(self, caplog: pytest.LogCaptureFixture) -> None:
        rig = Rig()
        passing = iter([0.0, 0.0, 3_599.0, 3_600.0, 3_600.0, 3_601.0])
        rig.outbox._clock = lambda: next(passing)
        consumer = self.Consumer(rig, [])
        loop = rig.outbox.check_back_loop(consumer)
        rig.stop = loop.stop  # type: ignore[attr-defined]
        loop._on_poll()
        loop._on_poll()
        loop._on_poll()
        loop._on_poll()
        assert rig.steps.taken == ["remove before 25 Dec"] * 2
        rig.steps.failures["remove before 25 Dec"] = DatabaseError("away")
        rig.outbox._clock = lambda: 10_000.0
        loop.run()
        assert consumer.topics == ["check.shop"]
        assert "event=rows_not_removed error=away" in caplog.text


def test_clean(rig: Rig) -> None:
    counts = [1_000, 1_000, 17]

    def remove(group: str, before: object, most: int) -> int:
        assert (group, before, most) == ("shop", NOW - timedelta(days=30), 1_000)
        return counts.pop(0)

    rig.database.remove = remove
    assert rig.clean(timedelta(days=30)) == 2_017


def test_what_is_refused_before_anything_is_sent(rig: Rig) -> None:
    def never(tx: Transaction) -> None:
        raise AssertionError

    with pytest.raises(ValueError, match="group ''"):
        rig.make("")
    with pytest.raises(ValueError, match="transaction 'nnn"):
        rig.block(never, "n" * 256)
    with pytest.raises(ValueError, match="NUL"):
        rig.block(never, "a\0b")
    kept: list[Transaction] = []

    def body(tx: Transaction) -> None:
        kept.append(tx)
        with pytest.raises(TypeError, match="value is str"):
            tx.send("orders", "paid")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="key is int"):
            tx.send("orders", None, 7)  # type: ignore[arg-type]
        for _ in range(MOST_MESSAGES):
            tx.send("orders")
        with pytest.raises(ValueError, match="at most 10000"):
            tx.send("orders")

    rig.block(body)
    with pytest.raises(ValueError, match="has ended"):
        kept[0].send("orders")
    assert rig.steps.taken[0] == "rollback"


def test_ids_are_made_where_none_is_given(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        rig.run(None)
        rig.run(None)
    assert len(rig.database.rows) == 2
    assert {len(name) for name in rig.database.rows} == {32}
