"""Everything that reads the log gets on where reads come late, and where half of them fail: nothing is lost, nothing
comes twice, and what can be read is not held up for long by what cannot.

Each story runs over every engine. In its middle the node is killed, so that the log has to be read again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from halfmoon.config.settings import load_settings
from halfmoon.core.records.batches import build_batch
from halfmoon.core.relay import LONGEST_PAUSE_MS
from halfmoon.core.steps import Steps
from halfmoon.core.storage.storage import MakeStorage
from halfmoon.errors import NotHereYetError
from halfmoon.hooks.plugins import load_plugins
from halfmoon.plugins import BUILT_IN
from halfmoon.server.plugin_host import Host
from halfmoon.services.share.reading import Loading
from halfmoon.services.share.share_partition import REJECT, Demand
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from halfmoon.testing.storages import FailingReader, LateReader
from tests.core import relay_bench
from tests.core.bench import VirtualClock, open_broker, partition_of, read_all, relay, turn
from tests.core.storage.contract.engines import TRIES, insist
from tests.services.following.bench import Notebook, follow, is_whole
from tests.services.share.share_bench import ENOUGH, GROUP
from tests.services.transactions.transaction_bench import TxnClient

END = "halfmoon.transactions"


class World:
    """A node with its built-in plugins over one engine."""

    def __init__(self, make: MakeStorage) -> None:
        self.make = make
        self.clock = VirtualClock()
        self.fs = FaultyFileSystem(random.Random(1))
        self.broker = self.open()

    def open(self) -> BareNode:
        loaded = load_plugins(load_settings({}, {}, {}), BUILT_IN, installed=[])
        with over(self.make):
            share = {"groups": {"share": {"auto_offset_reset": "earliest"}}}
            broker = open_broker(
                self.fs, self.clock, sections=share, interceptors=loaded.interceptors, relays=loaded.relays, hot_bytes=0
            )
        for context in loaded.contexts:
            context.attach(Host(broker, "unused"))
        return broker

    def killed(self) -> None:
        turn(self.broker)
        self.fs = self.fs.kill()
        self.broker = self.open()

    def send(self, topic: str, *rows: relay_bench.Row, **fields: Any) -> None:
        """As a client whose request is answered when it can be."""
        for _ in range(TRIES):
            try:
                relay_bench.send(self.broker, topic, *rows, **fields)
            except NotHereYetError as error:
                insist(error.load)
            else:
                return
        raise AssertionError("it never comes here")

    def pass_ms(self, passed_ms: int) -> None:
        relay_bench.pass_ms(self.broker, self.clock, passed_ms)

    def settle(self) -> None:
        """Whatever has failed is tried again until nothing is left to be moved."""
        relay(self.broker)
        for _ in range(TRIES):
            if not self.broker.relays.problems():
                return
            self.pass_ms(LONGEST_PAUSE_MS)
        raise AssertionError(self.broker.relays.problems())

    def values(self, topic: str) -> list[bytes]:
        return sorted(value for _, value in insist(lambda: read_all(self.broker, topic)))

    def ask(self, steps: Any) -> Any:
        """The answer to a request that is worked out in steps; it is sent again where reading has failed."""
        return insist(lambda: answer(steps()))

    def was_hard(self) -> bool:
        """Whether reads came late, or some have failed."""
        reader = self.broker.reader
        if isinstance(reader, FailingReader):
            return reader.failed > 0
        return not isinstance(reader, LateReader) or reader.cold_reads > 0


@contextmanager
def over(make: MakeStorage) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BareNode, "storage", staticmethod(make))
        yield


def answer(steps: Steps[Any]) -> Any:
    value = None
    while True:
        try:
            load = steps.send(value)
        except StopIteration as stop:
            return stop.value
        value = load()


@pytest.fixture
def world(make: MakeStorage) -> World:
    return World(make)


def test_delayed_messages_are_delivered_once(world: World) -> None:
    world.broker.create_topic("t", 1)
    for number in range(30):
        world.send("t", (b"%02d" % number, {"DELAY": "1"}))
    world.settle()
    world.killed()
    assert world.values("t") == []
    world.pass_ms(2_000)
    world.settle()
    world.pass_ms(600_000)
    world.settle()
    assert world.values("t") == [b"%02d" % number for number in range(30)]
    assert world.was_hard()


def test_cancelled_messages_are_not_delivered(world: World) -> None:
    world.broker.create_topic("t", 1)
    for number in range(20):
        world.send("t", (b"%02d" % number, {"DELAY": "5", "UNIQ_KEY": f"u{number}"}))
    world.settle()
    world.killed()
    for number in range(0, 20, 2):
        world.send("t", (b"", {"TIMER_DEL_UNIQKEY": f"u{number}", "TIMER_DELAY_MS": "1000"}))
    world.settle()
    world.pass_ms(600_000)
    world.settle()
    found = [value for value in world.values("t") if value]
    assert found == [b"%02d" % number for number in range(1, 20, 2)]
    assert world.was_hard()


def test_one_delayed_message_that_cannot_be_read_holds_up_no_other(world: World) -> None:
    """Its disk block is bad: whatever reads it fails, for good."""
    world.broker.create_topic("t", 1)
    for number in range(5):
        world.send("t", (b"%02d" % number, {"DELAY": "1"}))
    turn(world.broker)
    waiting = next(topic for topic in world.broker.catalog.topics() if topic.internal and topic.partitions[0].pending)
    (bad, _), *_ = waiting.partitions[0].queue.places(2, 1, min_one=True)
    reader = world.broker.reader
    if isinstance(reader, FailingReader):
        reader.share = 0.0
    load, read = reader.load, reader.read

    def refuse() -> Any:
        raise OSError(5, "bad block")

    def is_bad(places: Any) -> bool:
        return any(position <= bad < position + length for position, length in places)

    world.broker.partition_reader.load_at = lambda places: refuse if is_bad(places) else load(places)
    world.broker.partition_reader.read_at = lambda places: (
        read(places)._replace(slices=(), cold=refuse) if is_bad(places) else read(places)
    )
    world.pass_ms(5_000)
    assert world.values("t") == [b"00", b"01", b"03", b"04"]
    world.broker.partition_reader.load_at, world.broker.partition_reader.read_at = load, read
    world.pass_ms(60_000)
    assert world.values("t") == [b"00", b"01", b"02", b"03", b"04"]


def test_half_messages_are_committed_after_a_restart(world: World) -> None:
    """The batch that ends them finds nothing here: neither their names, nor themselves."""
    world.broker.create_topic("t", 1)
    world.broker.create_topic(END, 1)
    names = [f"{number:02}" for number in range(50)]
    for name in names:
        world.send("t", (name.encode(), {"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": name}))
    world.settle()
    world.killed()
    said = [(name, "rollback" if int(name) % 5 == 0 else "commit") for name in names]
    world.send(END, *[(b"", {"PGROUP": "pg", "UNIQ_KEY": name, "TRAN_STATE": state}) for name, state in said])
    world.settle()
    assert world.values("t") == [name.encode() for name, state in said if state == "commit"]
    assert world.was_hard()


def test_half_messages_are_asked_about(world: World) -> None:
    world.broker.create_topic("t", 1)
    for name in ("a", "b", "c"):
        world.send("t", (name.encode(), {"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": name}))
    world.settle()
    world.killed()
    world.pass_ms(20_000)
    world.settle()
    assert set(world.values("check.pg")) == {b"a", b"b", b"c"}


def test_retries_come_again_once_and_end_as_dead_letters(world: World) -> None:
    world.broker.create_topic("t", 1)
    rows = [(b"%02d" % number, {}) for number in range(10)]
    world.send("t", *rows)
    world.broker.create_topic("retry.g", 1)
    for number in range(10):
        for _ in range(2):  # the client sends it again
            given_up = {"DELAY": "-1"} if number % 2 else {}
            world.send("retry.g", (b"%02d" % number, {"RETRY_OF": f"t/0/{number}", **given_up}))
    world.settle()
    world.killed()
    world.pass_ms(600_000)
    world.settle()
    assert world.values("retry.g") == [b"%02d" % number for number in range(0, 10, 2)]
    assert world.values("dlq.g") == [b"%02d" % number for number in range(1, 10, 2)]
    assert world.was_hard()


def test_views_hold_what_their_filter_lets_through_once(world: World) -> None:
    world.broker.create_topic("t", 1)
    for number in range(200):
        world.send("t", (b"%s%03d" % (b"a" if number % 2 else b"b", number), {}))
    turn(world.broker)
    world.killed()
    configs = {"halfmoon.view.source": "t", "halfmoon.view.prefix": "a"}
    world.broker.create_topic("v", 1, configs)
    world.settle()
    world.killed()
    world.send("t", (b"a-late", {}))
    world.settle()
    assert world.values("v") == sorted([b"a%03d" % number for number in range(1, 200, 2)] + [b"a-late"])
    assert world.was_hard()


def test_a_dispatcher_is_shown_every_batch_once(world: World) -> None:
    world.broker.create_topic("t", 1)
    for number in range(150):
        world.send("t", (b"%03d" % number + b"v" * 1_000, {}))
    turn(world.broker)
    client = TxnClient(world.broker, "tx")
    client.init()
    client.send("t", b"in a transaction")
    world.send("t", (b"behind it", {}))
    turn(world.broker)
    world.killed()
    notebook = Notebook()
    follow(world.broker, notebook)
    world.settle()
    assert len(notebook.rows) == 150  # what follows waits for the transaction
    client.broker = world.broker
    client.commit()
    for number in range(20):
        world.send("t", (b"%03d" % number, {}))
    world.settle()
    assert is_whole(world.broker, notebook, "t")
    assert world.was_hard()


def test_messages_are_found_by_key_and_by_place(world: World) -> None:
    world.broker.create_topic("t", 1, {"halfmoon.key.index": "true"})
    for number in range(100):
        rows = [(b"key-%d" % number, b"value-%d" % number, 1_000, ())]
        world.broker.append(partition_of(world.broker, "t"), memoryview(bytearray(build_batch(rows))), 0)
    turn(world.broker)
    world.killed()
    relay_bench.lose_derived(world.fs)
    world.fs = world.fs.kill()
    world.broker = world.open()
    world.settle()
    partition, messages = partition_of(world.broker, "t"), world.broker.messages
    for number in (0, 57, 99):
        found = world.ask(lambda key=b"key-%d" % number: messages.find(partition.topic, key))
        assert ([message.offset for message in found.messages], found.behind_bytes) == ([number], 0)
        shown = world.ask(lambda offset=number: messages.show(partition, offset))
        assert shown.message.value == b"value-%d" % number
    assert world.was_hard()


def test_share_groups_get_every_record_and_write_dead_letters_once(world: World) -> None:
    world.broker.create_topic("t", 1)
    for number in range(40):
        world.send("t", (b"%02d" % number, {}))
    turn(world.broker)
    world.killed()
    shares, partition = world.broker.shares, partition_of(world.broker, "t")
    options = shares.options(GROUP)
    begun = shares.delivery.begin(GROUP, partition, options)
    assert not callable(begun)
    given: list[int] = []
    demand = Demand(10, 10, False)
    while (found := shares.delivery.fetch(begun, "m", demand, ENOUGH, options)) is not None:
        if isinstance(found, Loading):
            try:
                slices = found.load()
            except OSError:
                shares.delivery.not_loaded(begun)
                continue
            found = shares.delivery.loaded(begun, "m", found, slices, demand, options)
        given += [offset for piece in found.acquired for offset in range(piece.first, piece.end)]
    assert given == list(range(40))
    shares.delivery.acknowledge(begun, "m", [(0, 40, REJECT)], options)
    turn(world.broker)
    world.killed()
    world.settle()
    assert world.values(f"dlq.{GROUP}") == [b"%02d" % number for number in range(40)]
    assert world.was_hard()


def test_times_are_searched_for(world: World) -> None:
    world.broker.create_topic("t", 1)
    for number in range(20):
        rows = [(None, b"v", 1_000 * number, ())]
        world.broker.append(partition_of(world.broker, "t"), memoryview(bytearray(build_batch(rows))), 0)
    turn(world.broker)
    world.killed()
    partition = partition_of(world.broker, "t")
    for number in (0, 7, 19):
        search = world.broker.batch_for_time(partition, 1_000 * number - 500)
        assert search is not None
        assert insist(search) == (number, 1_000 * number)
    newest = world.broker.max_timestamp(partition)
    assert newest is not None
    assert insist(newest) == (19, 19_000)


def test_old_segments_are_reclaimed_from_under_scheduled_messages(world: World) -> None:
    world.broker.create_topic("t", 1)
    world.broker.create_topic("bulk", 1, {"retention.bytes": "1"})
    for number in range(60):
        world.send("t", (b"%02d" % number, {"DELAY": "18"}))
        world.send("bulk", (b"x" * 20_000, {}))
        turn(world.broker)
    start = world.broker.log.start
    for _ in range(TRIES):
        while not world.broker.housekeeping.retain():
            pass
        world.settle()
        turn(world.broker)
        if world.broker.log.start > start and world.broker.waiting.moved:
            break
    assert world.broker.waiting.moved > 0
    assert world.broker.log.start > start
    world.killed()
    world.pass_ms(3 * 3_600_000)
    for _ in range(TRIES):
        world.settle()
        if len(world.values("t")) >= 60:
            break
        world.pass_ms(10_000)
    assert world.values("t") == [b"%02d" % number for number in range(60)]
