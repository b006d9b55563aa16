"""Transactions against a model, whatever happens: time-outs, zombies, requests repeated, crashes, losses of power.

The model knows, for each transaction, what was written in it and what its producer was told of its end. At any time a
reader of committed records gets each record of a transaction whose commit was answered, and none of one that was
aborted; of a commit that was never answered all records count or none does.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from halfmoon.errors import BrokerError, Fault
from halfmoon.testing.faulty_files import FaultyFileSystem
from tests.chance import trying
from tests.core.bench import VirtualClock, open_broker, partition_of, send, sync, turn
from tests.services.transactions.transaction_bench import TxnClient, committed_values, read_committed

PARTITIONS = 3
TIMEOUT_MS = 20_000
FENCED = {
    Fault.INVALID_PRODUCER_EPOCH,
    Fault.PRODUCER_FENCED,
    Fault.INVALID_TXN_STATE,
    Fault.TRANSACTION_ABORTABLE,
    Fault.OUT_OF_ORDER_SEQUENCE_NUMBER,
}
"""What a zombie, or whose transaction has timed out, may be told."""


@dataclass
class Transaction:
    written: list[tuple[int, bytes]] = field(default_factory=list)
    """(partition, value)"""
    offset: int | None = None
    """Its group's progress."""
    ended: bool | None = None
    """Whether it was committed; None while that is open, or unknown."""
    asked: bool | None = None
    """What its producer asked for, if it did."""
    answers: list[object] = field(default_factory=list)
    """To the end that it asked for."""
    crashed: bool = False
    """Since then; it will not be answered."""


class Producer(TxnClient):
    """A client with its present transaction."""

    now: Transaction | None = None


class Machine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 1 << 16), flush=st.sampled_from(["sync", "interval"]))
    def begin(self, seed: int, flush: str) -> None:
        self.clock = VirtualClock()
        self.flush = flush
        self.fs = FaultyFileSystem(random.Random(seed))
        self.transactions: list[Transaction] = []
        self.producers: list[Producer] = []
        self.plain: list[bytes] = []
        self.counter = 0
        self.offsets = {0}
        """Progress that the group may have."""
        self.open()
        self.broker.create_topic("t", PARTITIONS)
        turn(self.broker)

    def open(self) -> None:
        self.broker = open_broker(self.fs, self.clock, flush=self.flush)

    def value(self) -> bytes:
        self.counter += 1
        return b"%d" % self.counter

    # -- what producers do ---------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from("xyz"), bumps=st.booleans())
    def start(self, name: str, bumps: bool) -> None:
        """Somebody takes an id; whoever had it becomes a zombie."""
        producer = Producer(self.broker, name, bumps=bumps, timeout_ms=TIMEOUT_MS)
        producer.init()
        turn(self.broker)
        for other in self.producers:
            if other.name == name and other.now is not None:
                self.lost(other.now)
        self.producers.append(producer)

    def lost(self, transaction: Transaction) -> None:
        """Nobody can commit it any more."""
        if transaction.ended is None and transaction.asked is not True:
            transaction.ended = False

    @rule(which=st.integers(0, 20), index=st.integers(0, PARTITIONS - 1), count=st.integers(1, 3), settle=st.booleans())
    def write(self, which: int, index: int, count: int, settle: bool) -> None:
        producer = self.producer(which)
        if producer is None:
            return
        values = [self.value() for _ in range(count)]
        try:
            producer.send("t", *values, index=index)
        except BrokerError as error:
            self.refused(producer, error)
            return
        if producer.now is None:
            producer.now = Transaction()
            self.transactions.append(producer.now)
        producer.now.written += [(index, value) for value in values]
        if settle:
            turn(self.broker)

    @rule(which=st.integers(0, 20))
    def progress(self, which: int) -> None:
        producer = self.producer(which)
        if producer is None:
            return
        self.counter += 1
        try:
            producer.commit_offsets("g", "t", self.counter)
        except BrokerError as error:
            self.refused(producer, error)
            return
        if producer.now is None:
            producer.now = Transaction()
            self.transactions.append(producer.now)
        producer.now.offset = self.counter

    @rule(which=st.integers(0, 20), commit=st.booleans(), again=st.booleans(), heard=st.booleans())
    def end(self, which: int, commit: bool, again: bool, heard: bool) -> None:
        producer = self.producer(which)
        if producer is None or producer.now is None:
            return
        transaction = producer.now
        who = producer.producer_id, producer.epoch
        try:
            position = producer.end(commit=commit)
        except BrokerError as error:
            self.refused(producer, error)
            return
        transaction.asked = commit
        self.broker.when_durable(position, transaction.answers.append)
        if again:
            self.broker.transactions.end(producer.name, *who, commit=commit, bumps=producer.bumps)
        producer.now = None
        if heard:
            turn(self.broker)
            assert transaction.answers == [None]
            transaction.ended = commit
            if commit and transaction.offset is not None:
                self.offsets = {transaction.offset}
        elif commit and transaction.offset is not None:
            self.offsets.add(transaction.offset)

    @rule(index=st.integers(0, PARTITIONS - 1))
    def somebody_else_writes(self, index: int) -> None:
        value = self.value()
        send(self.broker, "t", value, index=index)
        turn(self.broker)
        self.plain.append(value)

    @rule(which=st.integers(0, 20))
    def go_on_after_an_error(self, which: int) -> None:
        """KIP-360: the next epoch, and what was open is aborted."""
        producer = self.producer(which)
        if producer is None:
            return
        try:
            producer.init(again=True)
        except BrokerError as error:
            self.refused(producer, error)
            return
        turn(self.broker)
        if producer.now is not None:
            self.lost(producer.now)
        producer.now = None

    def producer(self, which: int) -> Producer | None:
        return self.producers[which % len(self.producers)] if self.producers else None

    def refused(self, producer: Producer, error: BrokerError) -> None:
        assert error.fault in FENCED, error
        if producer.now is not None:
            self.lost(producer.now)
        self.retire(producer)

    def retire(self, producer: Producer) -> None:
        self.producers.remove(producer)

    # -- what happens to them ------------------------------------------------------------------------------------------

    @rule(ms=st.sampled_from([1_000, TIMEOUT_MS // 2, TIMEOUT_MS]))
    def time_passes(self, ms: int) -> None:
        self.clock.now_ms += ms
        self.broker.transactions.expire(self.clock.mono_ms())
        turn(self.broker)
        ongoing = {entry.name: entry for entry in self.broker.state.transactions.by_name.values() if entry.is_ongoing}
        for entry in ongoing.values():
            assert self.clock.wall_ms() - entry.start_ms < TIMEOUT_MS
        for producer in self.producers:
            entry = self.broker.state.transactions.by_name[producer.name]
            mine = entry.is_ongoing and (entry.producer_id, entry.epoch) == (producer.producer_id, producer.epoch)
            if producer.now is not None and not mine:
                self.lost(producer.now)

    @rule(how=st.sampled_from(["stop", "kill", "power loss"]))
    def restart(self, how: str) -> None:
        if how == "stop":
            self.broker.close()
        elif how == "kill":
            self.fs = self.fs.kill()
        else:
            if self.flush == "interval":  # what was acknowledged may be lost: make sure that it is on disk
                self.broker.write()
                sync(self.broker)
                self.broker.settle()
            self.fs = self.fs.power_loss()
        for transaction in self.transactions:
            transaction.crashed = True
        self.open()
        for producer in self.producers:
            producer.broker = self.broker
        # Producers whose last batches were lost find out by their sequence; simulate those that do not go on.
        for producer in list(self.producers):
            if producer.now is not None:
                producer.now.asked = False
                producer.now.ended = False
                try:
                    producer.abort()
                except BrokerError:
                    self.retire(producer)
                producer.now = None
        for producer in list(self.producers):
            if producer.name not in self.broker.state.transactions.by_name:
                self.retire(producer)  # it was never told that it had its id
        turn(self.broker)

    # -- what must hold ------------------------------------------------------------------------------------------------

    @invariant()
    def readers_see_each_committed_record_once_and_no_aborted_one(self) -> None:
        if not hasattr(self, "broker"):
            return
        seen: list[bytes] = []
        for index in range(PARTITIONS):
            partition = partition_of(self.broker, "t", index)
            assert partition.start_offset <= partition.stable_offset <= partition.high_watermark
            found = read_committed(self.broker, "t", index, max_bytes=300)
            assert [at for at, _ in found] == sorted(at for at, _ in found)
            seen += [value for _, value in found]
        assert len(seen) == len(set(seen)), "a record came twice"
        there = set(seen)
        for transaction in self.transactions:
            values = {value for _, value in transaction.written}
            if transaction.ended is True:
                stable = {value for index, value in transaction.written if self.is_stable(index, value)}
                assert stable <= there, "committed and not there"
            elif transaction.ended is False:
                assert not values & there, "aborted and there"
            elif not transaction.answers and not transaction.crashed:
                assert not values & there, "not durable and there"

    def is_stable(self, index: int, value: bytes) -> bool:
        """Whether a record is below what another transaction holds back."""
        partition = partition_of(self.broker, "t", index)
        return partition.stable_offset == partition.high_watermark

    @invariant()
    def progress_is_that_of_a_committed_transaction(self) -> None:
        if hasattr(self, "broker"):
            found = self.broker.groups.offsets("g").get(partition_of(self.broker, "t"))
            assert (found.offset if found is not None else 0) in self.offsets

    def teardown(self) -> None:
        """In the end everything is decided."""
        if not hasattr(self, "broker"):
            return
        self.clock.now_ms += 2 * TIMEOUT_MS
        self.broker.transactions.expire(self.clock.mono_ms())
        turn(self.broker)
        there: set[bytes] = set()
        for index in range(PARTITIONS):
            partition = partition_of(self.broker, "t", index)
            assert partition.stable_offset == partition.high_watermark
            there |= set(committed_values(self.broker, "t", index))
        for transaction in self.transactions:
            values = {value for _, value in transaction.written}
            if transaction.ended is None and transaction.asked is True:
                assert values <= there or not values & there, "half of a transaction"
            else:
                assert (values <= there) if transaction.ended else not values & there
        assert set(self.plain) <= there


Machine.TestCase.settings = trying(150)
TestTransactions = Machine.TestCase
