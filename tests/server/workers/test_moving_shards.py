"""A shard moves from one process to another while both serve clients."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from halfmoon.adapters.kafka.protocol import (
    CreateTopicsRequest,
    JoinGroupRequest,
    ShareFetchRequest,
    TxnOffsetCommitRequest,
)
from halfmoon.cluster.asking import Told
from halfmoon.cluster.messages import ForgetShareGroups, JoinTransaction, Question, TransactionJoined
from halfmoon.cluster.placement import coordinator_of
from halfmoon.cluster.sqlite_store import SqliteStore
from halfmoon.cluster.store import Cluster
from halfmoon.config.settings import Settings, load_settings
from halfmoon.core.clean_mark import CLEAN_MARK
from halfmoon.core.hold import Held
from halfmoon.core.records.batches import build_batch
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.errors import BrokerError, Fault, LeaseLostError, StartError
from halfmoon.schema import control
from halfmoon.server.workers.plan import CATALOG, Plan
from halfmoon.server.workers.worker import Worker
from halfmoon.server.workers.worker_place import WorkerPlace
from halfmoon.testing.ports import free_ports
from tests.fuzz.remoting import SEND, SUCCESS, Remote, sending
from tests.server.asking import COORDINATOR, CREATE, NOT_COORDINATOR, NOT_LEADER, Asking
from tests.server.server_rig import played

SHARDS = 4
JOIN, INIT_PRODUCER, COMMIT_IN_TRANSACTION, DELETE_GROUPS, SHARE_HEARTBEAT, SHARE_FETCH = 11, 22, 28, 42, 76, 78


class Two(Asking):
    """Two workers that share four shards, in one loop."""

    def __init__(self, workers: list[Worker]) -> None:
        self.workers = workers
        self.lost: list[Exception] = []

    def address_of(self, number: int) -> tuple[str, int]:
        address = self.workers[number].kafka_address
        return address.host, address.port

    async def create(self, name: str) -> None:
        creatable = CreateTopicsRequest.CreatableTopic
        topic = creatable(name=name, num_partitions=SHARDS, replication_factor=1, assignments=[], configs=[])
        (found,) = (await self.ask(0, CREATE, 5, topics=[topic], timeout_ms=5000, validate_only=False)).topics
        assert found.error_code == 0

    def sent(self, shard: int) -> int:
        """The code that RocketMQ's broker of this shard answers."""
        with Remote(("127.0.0.1", self.workers[0].place.rocketmq_bind(shard).port)) as remote:
            return remote.tell(SEND, sending("t"), b"sent").code

    async def close(self, shard: int, source: int, target: int) -> None:
        """It is known where it comes to."""
        self.workers[source].place.moved(shard, target)
        await self.workers[source].close_shard(shard)

    async def move(self, shard: int, source: int, target: int) -> None:
        await self.close(shard, source, target)
        await self.workers[target].open_shard(shard)


@asynccontextmanager
async def two_workers(folder: Path, settings: Settings) -> AsyncIterator[Two]:
    folder.mkdir()
    SqliteStore.create(folder / CATALOG, Cluster("a-cluster", SHARDS))
    name = settings.listeners.kafka.name
    one, two, shared, namesrv, *rocketmq = free_ports(4 + SHARDS)
    found = Two([])
    async with AsyncExitStack() as stack:
        for number in range(2):
            plan = Plan(str(folder), number, 2, SHARDS, {name: [one, two]}, {name: shared}, rocketmq, namesrv)
            worker = Worker(settings, WorkerPlace(settings, plan), on_lost=found.lost.append)
            await worker.start()
            stack.push_async_callback(worker.stop)
            found.workers.append(worker)
        for worker in found.workers:
            await worker.links.connected(5)
        yield found
    assert not found.lost


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Callable[[Two], Any]], None]:
    def play(story: Callable[[Two], Any]) -> None:
        async def run() -> None:
            bind = {"kafka": {"bind": "127.0.0.1:0"}, "rocketmq": {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0"}}
            settings = load_settings({"listeners": bind, "log": {"segment_bytes": "1MiB", "low_disk_bytes": 0}}, {}, {})
            async with two_workers(tmp_path / "data", settings) as two:
                await story(two)

        played(run())

    return play


def test_a_batch_that_a_client_sent_while_its_shard_moved_does_not_overtake_the_one_before(run: Any) -> None:
    """librdkafka would take that for stored as well."""

    async def story(two: Two) -> None:
        await two.create("t")
        first = next(iter(two.workers[0].shards.nodes))
        of_one = {
            two.workers[0].shards.front.shard_of(_topic(two, "t"), index): index
            for index, (node, _) in (await two.leaders(0, "t")).items()
            if node == 1
        }
        stays = of_one.pop(first)
        ((shard, moves),) = of_one.items()

        async def send(worker: int, index: int, sequence: int) -> int:
            return await two.produce(
                worker, "t", index, b"%d" % sequence, producer_id=77, producer_epoch=0, base_sequence=sequence
            )

        await two.close(shard, 0, 1)
        assert await send(1, moves, 0) == NOT_LEADER
        await two.workers[1].open_shard(shard)
        assert [await send(1, moves, sequence) for sequence in (1, 0, 1, 3)] == [NOT_LEADER, 0, 0, NOT_LEADER]
        assert await two.values(1, "t", moves) == [b"0", b"1"]
        assert await send(0, stays, 1) == 0, "of a shard that was always here a producer may have expired"

    run(story)


def test_a_shard_moves_and_takes_everything_along(run: Any) -> None:
    async def story(two: Two) -> None:
        await two.create("t")
        before = await two.leaders(0, "t")
        assert before == await two.leaders(1, "t")
        of_first = [index for index, (node, _) in before.items() if node == 1]
        assert len(of_first) == 2
        shards = {index: two.workers[0].shards.front.shard_of(_topic(two, "t"), index) for index in before}
        moving = next(index for index in of_first if shards[index] != next(iter(two.workers[0].shards.nodes)))
        for index in before:
            assert await two.produce(0 if index in of_first else 1, "t", index, b"before") == 0
        await two.move(shards[moving], 0, 1)
        assert await two.values(0, "t", moving) == NOT_LEADER
        assert await two.produce(0, "t", moving, b"to the wrong one") == NOT_LEADER
        assert await two.values(1, "t", moving) == [b"before"]
        assert await two.produce(1, "t", moving, b"after") == 0
        for worker in (0, 1):
            after = await two.leaders(worker, "t")
            assert after[moving] == (2, before[moving][1] + 1)
            assert {index: found for index, found in after.items() if index != moving} == {
                index: found for index, found in before.items() if index != moving
            }
        await two.move(shards[moving], 1, 0)
        assert await two.values(0, "t", moving) == [b"before", b"after"]
        assert (await two.leaders(1, "t"))[moving] == (1, before[moving][1] + 2)

    run(story)


def test_topics_that_are_made_while_it_is_nobodys_are_there_afterwards(run: Any) -> None:
    async def story(two: Two) -> None:
        first, second = list(two.workers[0].shards.nodes)
        await two.close(second, 0, 1)
        await two.create("u")
        await two.workers[1].open_shard(second)
        for index, (node, _) in (await two.leaders(0, "u")).items():
            assert await two.produce(node - 1, "u", index, b"v") == 0
        assert sorted(two.workers[1].shards.nodes) == sorted({*range(SHARDS)} - {first})

    run(story)


def test_who_waits_for_a_rebalance_is_sent_to_the_next_coordinator(run: Any) -> None:
    async def story(two: Two) -> None:
        moving = list(two.workers[0].shards.nodes)[1]
        group = next(name for at in range(100) if coordinator_of(name := f"g{at}", SHARDS) == moving)
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")
        waiting = asyncio.ensure_future(two.ask(
            0, JOIN, 2, group_id=group, session_timeout_ms=30_000, rebalance_timeout_ms=300_000, member_id="",
            protocol_type="consumer", protocols=[protocol],
        ))  # fmt: skip
        groups = two.workers[0].shards.nodes[moving].groups
        async with asyncio.timeout(5):
            while groups.next_deadline() is None:  # it waits for other members, by the initial delay of 3 s
                await asyncio.sleep(0.001)
        await two.move(moving, 0, 1)
        async with asyncio.timeout(1):
            assert (await waiting).error_code == NOT_COORDINATOR

    run(story)


def test_who_waits_for_records_of_a_share_group_is_sent_to_the_next_process(run: Any) -> None:
    """Those of other shards are waited for on the same connection: else the records at the next process would wait for
    this member, or for others, as long as the request does."""

    async def story(two: Two) -> None:
        await two.create("t")
        worker = two.workers[0]
        topic, moving = _topic(two, "t"), list(worker.shards.nodes)[1]
        shard_of = worker.shards.front.shard_of
        (index,) = [index for index in range(SHARDS) if shard_of(topic, index) == moving]
        fetched = ShareFetchRequest.FetchTopic
        waiting = asyncio.ensure_future(two.ask(
            0, SHARE_FETCH, 1, group_id="s", member_id="m" * 22, share_session_epoch=0, max_wait_ms=60_000, min_bytes=1,
            max_bytes=1 << 20, max_records=10, batch_size=10, share_acquire_mode=0, is_renew_ack=False,
            topics=[fetched(topic_id=UUID(bytes=topic.id), partitions=[fetched.FetchPartition(partition_index=index)])],
            forgotten_topics_data=[],
        ))  # fmt: skip
        async with asyncio.timeout(5):
            while not len(worker.shards.hold):
                await asyncio.sleep(0.001)
        await two.move(moving, 0, 1)
        async with asyncio.timeout(1):
            (answered,) = (await waiting).responses
        assert [part.error_code for part in answered.partitions] == [NOT_LEADER]

    run(story)


def test_who_waits_for_a_transactions_coordinator_is_sent_to_the_next_process(run: Any) -> None:
    """What the coordinator answers later is not written: the log is closed, and nobody would be told of it."""

    async def story(two: Two) -> None:
        await two.create("t")
        worker, coordinator = two.workers[0], next(iter(two.workers[1].shards.nodes))
        moving = list(worker.shards.nodes)[1]
        group = next(name for at in range(100) if coordinator_of(name := f"g{at}", SHARDS) == moving)
        name = next(name for at in range(100) if coordinator_of(name := f"x{at}", SHARDS) == coordinator)
        producer = await two.ask(
            1, INIT_PRODUCER, 4, transactional_id=name, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )  # fmt: skip
        ask, asked = worker.links.ask, asyncio.get_running_loop().create_future()

        def hold(shard: int, question: Question, told: Told) -> None:
            if isinstance(question, JoinTransaction):
                asked.set_result(told)
            else:
                ask(shard, question, told)

        worker.links.ask = hold  # type: ignore[method-assign]
        of_topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        part = of_topic.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=7, committed_leader_epoch=-1, committed_metadata=None
        )
        waiting = asyncio.ensure_future(two.ask(
            0, COMMIT_IN_TRANSACTION, 5, transactional_id=name, group_id=group, producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch, topics=[of_topic(name="t", partitions=[part])],
        ))  # fmt: skip
        async with asyncio.timeout(5):
            told = await asked
        log = worker.shards.nodes[moving].kernel.log
        await two.close(moving, 0, 1)
        end = log.end
        told(TransactionJoined(1, []))
        assert log.end == end
        async with asyncio.timeout(5):
            (answered,) = (await waiting).topics
        assert [part.error_code for part in answered.partitions] == [NOT_COORDINATOR]
        await two.workers[1].open_shard(moving)

    run(story)


def test_answers_that_wait_for_the_last_sync_of_a_shard_are_given_in_the_loop(run: Any) -> None:
    async def story(two: Two) -> None:
        moving = list(two.workers[0].shards.nodes)[1]
        kernel = two.workers[0].shards.nodes[moving].kernel
        answered: list[tuple[object, bool]] = []
        here = threading.get_ident()

        async def stopped() -> None:
            """The shard's last sync is over, and this came after it."""
            position = kernel.appender.append_control(control.GroupDeleted("nobody"))
            kernel.turn.when_durable(
                position, lambda error: answered.append((error, threading.get_ident() == here))
            )  # fmt: skip

        running = two.workers[0].running
        remove = running.remove

        async def removed(number: int) -> None:
            await remove(number)
            await stopped()

        running.remove = removed  # type: ignore[method-assign]
        await two.close(moving, 0, 1)
        running.remove = remove  # type: ignore[method-assign]
        assert answered == [(None, True)]
        await two.workers[1].open_shard(moving)

    run(story)


def test_what_comes_during_the_last_sync_of_a_shard_is_told_in_the_loop(run: Any) -> None:
    """What another shard answers, say. Whoever waits for messages may wait for those of other shards, too: the thread
    that closes this one would tell them while the loop is at the same."""

    async def story(two: Two) -> None:
        await two.create("t")
        shards, running = two.workers[0].shards, two.workers[0].running
        moving = list(shards.nodes)[1]
        kernel = shards.nodes[moving].kernel
        of_topic = [each for each in kernel.catalog.partitions() if each.topic.name == "t"]
        (partition,) = [each for each in of_topic if not each.is_remote()]
        loop, told = threading.get_ident(), list[tuple[str, bool]]()
        remove, in_thread = running.remove, shards._in_thread
        left = ["the sync", "the sync of what came during that"]

        def a_batch() -> bytearray:
            return bytearray(build_batch([(None, b"v", 1_700_000_000_000, ())]))

        def tell(what: str, *error: object) -> None:
            assert error in ((), (None,))
            told.append((what, threading.get_ident() == loop))

        async def removed(number: int) -> None:
            await remove(number)
            kernel.appender.append_control(control.GroupDeleted("nobody"))
            kernel.turn.when_durable(kernel.log.end, partial(tell, "before"))
            held = Held((partition,), len(a_batch()) + 1, 1 << 60, None, partial(tell, "woken by both"))
            shards.hold.park(held, kernel.clock.mono_ms())
            shards._in_thread = come  # type: ignore[method-assign]

        async def come(work: Callable[[], object]) -> None:
            if left:
                position = kernel.appender.append_relayed(partition, a_batch())
                kernel.turn.when_durable(position, partial(tell, f"came during {left.pop(0)}"))
            await in_thread(work)

        running.remove = removed  # type: ignore[method-assign]
        await two.close(moving, 0, 1)
        running.remove, shards._in_thread = remove, in_thread  # type: ignore[method-assign]
        assert told == [
            ("before", True),
            ("came during the sync", True),
            ("came during the sync of what came during that", True),
            ("woken by both", True),
        ]
        await two.workers[1].open_shard(moving)
        assert await two.values(1, "t", partition.index) == [b"v", b"v"]

    run(story)


@pytest.mark.parametrize("error", [OSError("the disk"), RuntimeError("a bug"), asyncio.CancelledError()])
def test_a_shard_whose_last_sync_does_not_end_well_is_closed_all_the_same(run: Any, error: BaseException) -> None:
    """And whoever waits is told. Else a connection would wait for ever. What was to be synced counts as lost: the next
    sync would not know of it."""

    async def story(two: Two) -> None:
        shards, running = two.workers[0].shards, two.workers[0].running
        moving = list(shards.nodes)[1]
        kernel, folder = shards.nodes[moving].kernel, shards.files[moving].root
        remove, in_thread = running.remove, shards._in_thread
        heard: list[Fault | None] = []

        async def removed(number: int) -> None:
            await remove(number)
            position = kernel.appender.append_control(control.GroupDeleted("nobody"))
            kernel.turn.when_durable(position, lambda error: heard.append(None if error is None else error.fault))
            shards._in_thread = failing  # type: ignore[method-assign]

        async def failing(_work: Callable[[], object]) -> None:
            shards._in_thread = in_thread  # type: ignore[method-assign]
            raise error

        running.remove = removed  # type: ignore[method-assign]
        await two.close(moving, 0, 1)
        running.remove = remove  # type: ignore[method-assign]
        assert heard == [Fault.KAFKA_STORAGE_ERROR]
        assert not (folder / CLEAN_MARK).exists()
        await two.workers[1].open_shard(moving)

    run(story)


def test_a_batch_that_comes_while_a_shard_is_being_closed_is_refused(run: Any) -> None:
    """It was on its way to the log: its records were looked at in a thread, say. The state that is kept would have
    it."""

    async def story(two: Two) -> None:
        await two.create("t")
        moving = list(two.workers[0].shards.nodes)[1]
        kernel, running = two.workers[0].shards.nodes[moving].kernel, two.workers[0].running
        of_topic = [each for each in kernel.catalog.partitions() if each.topic.name == "t"]
        (partition,) = [each for each in of_topic if not each.is_remote()]
        remove = running.remove
        refused: list[Fault] = []

        async def removed(number: int) -> None:
            await remove(number)
            with pytest.raises(BrokerError) as caught:
                kernel.append(partition, memoryview(bytearray(build_batch([(None, b"v", 1_700_000_000_000, ())]))), 0)
            refused.append(caught.value.fault)

        running.remove = removed  # type: ignore[method-assign]
        await two.close(moving, 0, 1)
        running.remove = remove  # type: ignore[method-assign]
        assert refused == [Fault.NOT_LEADER_OR_FOLLOWER]
        assert partition.next_offset == 0
        await two.workers[1].open_shard(moving)

    run(story)


def test_who_waits_for_other_shards_while_the_group_s_is_closed_is_sent_to_the_next_coordinator(run: Any) -> None:
    """What the others say comes when the log is closed: nobody would write that the group is deleted, and neither this
    request would be answered nor any that is behind it on its connection."""

    async def story(two: Two) -> None:
        await two.create("t")
        worker = two.workers[0]
        moving = list(worker.shards.nodes)[1]
        group = next(name for at in range(100) if coordinator_of(name := f"s{at}", SHARDS) == moving)
        for epoch in (0, -1):
            beat = await two.ask(
                0, SHARE_HEARTBEAT, 1, group_id=group, member_id="m" * 22, member_epoch=epoch, rack_id=None,
                subscribed_topic_names=["t"],
            )  # fmt: skip
            assert beat.error_code == 0
        ask, asked, held = worker.links.ask, asyncio.Event(), []

        def hold(shard: int, question: Question, told: Told) -> None:
            if isinstance(question, ForgetShareGroups):
                held.append(partial(ask, shard, question, told))
                asked.set()
            else:
                ask(shard, question, told)

        worker.links.ask = hold  # type: ignore[method-assign]
        waiting = asyncio.ensure_future(two.ask(0, DELETE_GROUPS, 2, groups_names=[group]))
        async with asyncio.timeout(5):
            await asked.wait()
        log = worker.shards.nodes[moving].kernel.log
        await two.close(moving, 0, 1)
        end = log.end
        for go_on in held:
            go_on()
        async with asyncio.timeout(5):
            (answered,) = (await waiting).results
        assert answered.error_code == NOT_COORDINATOR
        assert log.end == end
        await two.workers[1].open_shard(moving)
        (deleted,) = (await two.ask(1, DELETE_GROUPS, 2, groups_names=[group])).results
        assert deleted.error_code == 0

    run(story)


def test_audit_lines_that_a_lost_shard_drops_are_counted(run: Any) -> None:
    """They were to be written when it was closed."""

    async def story(two: Two) -> None:
        worker = two.workers[0]
        moving = list(worker.shards.nodes)[1]
        node = worker.shards.nodes[moving]
        node.kernel.log.failed = LeaseLostError("another process has it")
        node.audit_topic.put(b"a line", echo=False)
        await two.close(moving, 0, 1)
        assert worker._audit_lines.dropped == 1

    run(story)


def test_groups_and_scheduled_messages_move_along(run: Any) -> None:
    async def story(two: Two) -> None:
        await two.create("t")
        moving = list(two.workers[0].shards.nodes)[1]
        group = next(name for at in range(100) if coordinator_of(name := f"g{at}", SHARDS) == moving)
        leaders = await two.leaders(0, "t")
        index = next(at for at in leaders if two.workers[0].shards.front.shard_of(_topic(two, "t"), at) == moving)
        assert await two.commit(0, group, "t", index, 7) == 0
        assert await two.produce(0, "t", index, b"later", [("TIMER_DELAY_MS", b"1500")]) == 0
        assert await two.values(0, "t", index) == []
        await two.move(moving, 0, 1)
        assert await two.commit(0, group, "t", index, 8) == NOT_COORDINATOR
        for worker in (0, 1):
            (found,) = (await two.ask(worker, COORDINATOR, 4, key_type=0, coordinator_keys=[group])).coordinators
            assert (found.error_code, found.node_id) == (0, 2)
        assert await two.committed(1, group, "t", index) == 7
        assert await two.commit(1, group, "t", index, 8) == 0
        while (values := await two.values(1, "t", index)) == []:
            await asyncio.sleep(0.05)
        assert values == [b"later"]

    run(story)


def test_clients_of_rocketmq_find_the_shard_where_it_is(run: Any) -> None:
    async def story(two: Two) -> None:
        await two.create("t")
        moving = list(two.workers[0].shards.nodes)[1]
        for worker in (0, 1, 0):
            await two.move(moving, worker, 1 - worker)
            for each in two.workers:
                assert len(each.rocketmqs) == len(each.shards.nodes)
            for shard in range(SHARDS):
                assert await asyncio.to_thread(two.sent, shard) == SUCCESS
        index = next(at for at in range(4) if two.workers[0].shards.front.shard_of(_topic(two, "t"), at) == moving)
        assert await two.values(1, "t", index) == [b"sent"] * 3

    run(story)


def test_a_shard_whose_folder_cannot_be_used_leaves_the_others_closed_in_good_order(tmp_path: Path) -> None:
    folder = tmp_path / "data"

    async def run() -> None:
        async with two_workers(folder, load_settings({"listeners": {"kafka": {"bind": "127.0.0.1:0"}}}, {}, {})):
            pass

    played(run())
    marks = [(folder / f"shard-{number:02}" / CLEAN_MARK) for number in range(SHARDS)]
    assert [mark.exists() for mark in marks] == [True] * SHARDS
    shutil.rmtree(folder / "shard-02")
    (folder / "shard-02").write_text("a file")
    with pytest.raises(StartError, match="shard-02"):
        played(started_again(folder))
    assert marks[0].exists()
    again = OsFileSystem(folder / "shard-00")
    again.lock()
    again.unlock()


async def started_again(folder: Path) -> None:
    settings = load_settings({"listeners": {"kafka": {"bind": "127.0.0.1:0"}}}, {}, {})
    one, two, shared = free_ports(3)
    name = settings.listeners.kafka.name
    plan = Plan(str(folder), 0, 2, SHARDS, {name: [one, two]}, {name: shared})
    await Worker(settings, WorkerPlace(settings, plan), on_lost=lambda error: None).start()


def test_a_shard_that_another_process_has_opened_meanwhile_is_its_own(run: Any) -> None:
    """A process may stand still for longer than its lease before it can say that it has a shard."""

    async def story(two: Two) -> None:
        one, other = two.workers
        shard = next(number for number in other.shards.nodes if number != other.shards.first)
        await two.close(shard, 1, 0)
        later = control.ShardStarted(shard, 99, 1)
        await other.driver.change(lambda: other.shards.changes.append_control(later))
        with pytest.raises(LeaseLostError):
            await one.open_shard(shard)
        assert one.place.owners[shard] == 1
        assert shard not in one.shards.nodes

    run(story)


def _topic(two: Two, name: str) -> Any:
    return two.workers[0].shards.front.catalog.by_name[name]
