"""Processes change one catalog, and hear of each other's changes."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from halfmoon.cluster.changes import Changes, NoChangeError
from halfmoon.cluster.placement import Layout
from halfmoon.cluster.shared import SharedCatalog
from halfmoon.cluster.sqlite_store import SqliteStore
from halfmoon.cluster.store import CatalogUnavailableError, CatalogUncertainError, Cluster, News
from halfmoon.config.settings import Settings, load_settings
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.hold import HoldService
from halfmoon.core.live import Live
from halfmoon.core.topic_administration import TopicAdministration
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema import control
from halfmoon.server.assembly import Sections
from halfmoon.server.workers import catalog as module
from halfmoon.server.workers.catalog import SharedCatalogDriver
from tests.cluster.engine.virtual import play

SHARDS = 4


class Process:
    """What one process has of the catalog."""

    def __init__(
        self, path: Path, seed: int = 1, *, insists: bool = False, now_s: Callable[[], float] = time.perf_counter
    ) -> None:
        settings = load_settings({}, {}, {})
        catalog = Catalog(settings)
        self.sections = Sections(catalog)
        self.shared = SharedCatalog(catalog)
        self.changes = Changes(self.shared, Layout.of_workers(SHARDS))
        self.store = SqliteStore(path)
        self.applied: list[set[int]] = []
        self.lost: list[Exception] = []
        self.driver = SharedCatalogDriver(
            self.store, self.shared, self.changes, self.applied.append, self.lost.append, insists=insists,
            now_s=now_s,
        )  # fmt: skip
        self.topics = TopicAdministration(
            catalog, self.changes, self.changes, HoldService(settings.hold), Live[Settings](settings),
            random.Random(seed).randbytes,
        )  # fmt: skip

    def names(self) -> list[str]:
        return list(self.shared.catalog.names())

    def create(self, name: str, partitions: int = 3) -> Callable[[], Any]:
        return lambda: self.topics.create_topic(name, partitions)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    SqliteStore.create(tmp_path / "catalog", Cluster("x", SHARDS))
    return tmp_path / "catalog"


def run(*scenario: Callable[[], Any]) -> None:
    async def all_of_it() -> None:
        for each in scenario:
            await each()

    asyncio.run(all_of_it())


def test_a_change_is_there_for_all(path: Path) -> None:
    async def scenario() -> None:
        one, other = Process(path), Process(path, 2)
        topic, position = await one.driver.change(one.create("a"))
        assert (topic.name, position, one.shared.version) == ("a", 1, 1)
        assert one.applied == [{topic.number}]
        assert other.names() == []
        await other.driver.catch_up()
        assert other.names() == ["a"]
        assert other.applied == [{topic.number}]
        assert other.shared.placements == one.shared.placements
        assert len(one.shared.placements[topic.number]) == 3
        # Whoever changes something has heard of all before.
        await one.driver.change(one.create("b"))
        later, _ = await other.driver.change(other.create("c"))
        assert later.number == 2
        await one.driver.catch_up()
        assert one.names() == other.names() == ["a", "b", "c"]
        assert one.shared.save() == other.shared.save()
        await one.driver.stop()
        await other.driver.stop()

    run(scenario)


def test_who_catches_up_at_the_same_time_does_so_with_one_look_that_began_after_all_asked(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        one, other = Process(path), Process(path, 2)
        looks = []
        reads, goes_on = threading.Event(), threading.Event()

        def read(after: int) -> Any:
            looks.append(after)
            found = store_read(after)
            reads.set()
            assert goes_on.wait(10)
            if len(looks) == 1:
                raise CatalogUnavailableError("the answer got lost")
            return found

        store_read = one.store.read
        monkeypatch.setattr(one.store, "read", read)
        first = asyncio.ensure_future(one.driver.catch_up())
        await asyncio.to_thread(reads.wait)
        await other.driver.change(other.create("a"))  # the look has not seen it
        others = [asyncio.ensure_future(one.driver.catch_up()) for _ in range(5)]
        await asyncio.sleep(0)
        goes_on.set()
        await asyncio.gather(*others)
        assert one.names() == ["a"]
        assert len(looks) == 2
        with pytest.raises(CatalogUnavailableError):
            await first
        await one.driver.stop()
        await other.driver.stop()

    run(scenario)


def test_a_process_that_changes_much_has_heard_of_the_catalog_all_the_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever catches up has to wait until all these changes are made."""
    threads = 0.1

    async def later(_self: Any, work: Callable[[], Any]) -> Any:
        await asyncio.sleep(threads)
        return work()

    async def story() -> None:
        loop = asyncio.get_running_loop()
        one = Process(path, now_s=loop.time)
        monkeypatch.setattr(SharedCatalogDriver, "_run", later)
        waiting = [asyncio.ensure_future(one.driver.change(one.create(f"t{n}"))) for n in range(100)]
        waiting.append(asyncio.ensure_future(one.driver.catch_up()))
        begun_s = loop.time()
        while not all(each.done() for each in waiting):
            assert loop.time() - one.driver.confirmed_s < 1
            await asyncio.sleep(threads)
        assert loop.time() - begun_s > 15
        for each in waiting:
            each.result()
        one.store.close()

    play(story())


def test_what_could_not_be_read_is_not_heard(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_after: int) -> Any:
        raise CatalogUnavailableError("gone")

    async def scenario() -> None:
        one = Process(path)
        before = one.driver.confirmed_s
        monkeypatch.setattr(one.store, "read", fails)
        monkeypatch.setattr(one.store, "begin", fails)
        for each in (one.driver.catch_up(), one.driver.change(one.create("a"))):
            with pytest.raises(CatalogUnavailableError):
                await each
        assert one.driver.confirmed_s == before
        monkeypatch.undo()
        await one.driver.catch_up()
        caught_up = one.driver.confirmed_s
        assert caught_up > before
        await one.driver.change(one.create("a"))
        assert one.driver.confirmed_s > caught_up
        await one.driver.stop()

    run(scenario)


def test_a_change_is_over_when_others_know_it_or_before_where_nobody_needs_that(path: Path) -> None:
    async def scenario() -> None:
        one = Process(path)
        told: list[int] = []
        knows = asyncio.Event()

        async def tell(version: int) -> None:
            await knows.wait()
            told.append(version)

        one.driver.tell = tell
        await one.driver.change(one.create("a"), until_told=False)
        assert told == []
        waiting = asyncio.ensure_future(one.driver.change(one.create("b")))
        while one.shared.version < 2:
            await asyncio.sleep(0.01)
        assert not waiting.done()
        knows.set()
        await waiting
        assert sorted(told) == [1, 2]
        await one.driver.stop()

    run(scenario)


def test_two_cannot_both_make_a_topic(path: Path) -> None:
    async def scenario() -> None:
        processes = [Process(path, seed) for seed in range(4)]
        made = await asyncio.gather(
            *[each.driver.change(each.create("t")) for each in processes], return_exceptions=True
        )
        refused = [each for each in made if isinstance(each, BrokerError)]
        assert len(refused) == 3
        assert {each.fault for each in refused} == {Fault.TOPIC_ALREADY_EXISTS}
        for each in processes:
            await each.driver.catch_up()
        assert len({each.shared.save() for each in processes}) == 1
        for each in processes:
            await each.driver.stop()

    run(scenario)


def test_changes_of_one_process_take_turns(path: Path) -> None:
    async def scenario() -> None:
        one = Process(path)
        await asyncio.gather(*[one.driver.change(one.create(f"t{at}")) for at in range(20)])
        assert one.shared.version == 20
        assert len(one.names()) == 20
        await one.driver.stop()

    run(scenario)


def test_what_comes_while_a_change_is_committed_is_not_part_of_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop turns meanwhile. A request that makes a topic on its way (Metadata) tries so, and then asks for a change
    of its own; a topic that was true here and not in the catalog would be lost with its records."""

    async def scenario() -> None:
        one = Process(path)
        committing, goes_on = asyncio.Event(), threading.Event()
        commit, loop = one.store.commit, asyncio.get_running_loop()

        def slow(records: Sequence[bytes]) -> int:
            loop.call_soon_threadsafe(committing.set)
            assert goes_on.wait(10)
            return commit(records)

        monkeypatch.setattr(one.store, "commit", slow)
        first = asyncio.ensure_future(one.driver.change(one.create("a")))
        await committing.wait()
        assert not one.changes.is_open
        with pytest.raises(NoChangeError):
            one.topics.create_topic("x", 1)
        told: list[BrokerError | None] = []
        one.changes.when_durable(one.changes.version, told.append)
        assert told == []
        goes_on.set()
        await first
        assert told == [None]
        assert one.names() == ["a"]
        other = Process(path, 2)
        await other.driver.catch_up()
        assert other.shared.save() == one.shared.save()
        await one.driver.stop()
        await other.driver.stop()

    run(scenario)


def test_an_answer_that_fails_keeps_no_other_from_being_given(path: Path) -> None:
    async def scenario() -> None:
        one = Process(path)
        told: list[BrokerError | None] = []

        def fails(error: BrokerError | None) -> None:
            raise ValueError("of this one")

        def work() -> None:
            one.topics.create_topic("a", 1)
            for each in (fails, told.append):
                one.changes.when_durable(one.changes.version, each)

        await one.driver.change(work)
        assert told == [None]
        assert len(one.applied) == 1
        await one.driver.stop()

    run(scenario)


def test_one_that_changes_nothing_makes_no_version(path: Path) -> None:
    async def scenario() -> None:
        one = Process(path)
        await one.driver.change(one.create("t"))
        with pytest.raises(BrokerError, match="exists"):
            await one.driver.change(one.create("t"))
        assert await one.driver.change(lambda: 7) == 7
        assert one.shared.version == 1
        await one.driver.stop()

    run(scenario)


def test_one_that_changes_nothing_is_over_though_the_catalog_could_not_be_let_go(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is lost, so it is not held any more. What has been done at a start is not to be done again."""

    async def scenario() -> None:
        one = Process(path, insists=True)
        abandon = one.store.abandon

        def lost() -> None:
            abandon()
            raise CatalogUnavailableError("connection is closed")

        monkeypatch.setattr(one.store, "abandon", lost)
        done: list[int] = []
        await one.driver.change_at_start(lambda: done.append(1))
        assert done == [1]
        assert await one.driver.change(lambda: 7) == 7
        await one.driver.change(one.create("t"))
        with pytest.raises(BrokerError, match="exists"):
            await one.driver.change(one.create("t"))
        await one.driver.stop()

    run(scenario)


def test_who_waits_is_told_when_it_is_committed(path: Path) -> None:
    async def scenario() -> None:
        one = Process(path)
        told: list[object] = []

        def work() -> None:
            _, position = one.topics.create_topic("t", 1)
            one.changes.when_durable(position, told.append)
            assert told == []

        await one.driver.change(work)
        assert told == [None]
        one.changes.when_durable(1, told.append)
        assert told == [None, None]
        await one.driver.stop()

    run(scenario)


def test_what_was_appended_before_an_error_is_committed(path: Path) -> None:
    """It is true here: handlers of requests about many topics go on after one that is refused."""

    async def scenario() -> None:
        one, other = Process(path), Process(path)

        def work() -> None:
            one.topics.create_topic("t", 1)
            raise ValueError("a mistake")

        with pytest.raises(ValueError, match="a mistake"):
            await one.driver.change(work)
        await other.driver.catch_up()
        assert other.names() == ["t"]
        await one.driver.stop()
        await other.driver.stop()

    run(scenario)


@pytest.mark.parametrize("made", [True, False])
def test_a_commit_that_nobody_has_heard_of(path: Path, made: bool) -> None:
    """If it was made, all is well; if not, this process knows a topic that does not exist."""

    async def scenario() -> None:
        one, other = Process(path), Process(path)
        commit = one.store.commit

        def silent(records: Sequence[bytes]) -> int:
            if made:
                commit(records)
            else:
                one.store.abandon()
            raise CatalogUnavailableError("no answer")

        one.store.commit = silent  # type: ignore[method-assign]
        told: list[Any] = []

        def work() -> None:
            one.changes.when_durable(one.topics.create_topic("t", 1)[1], told.append)

        if made:
            await one.driver.change(work)
            assert (told, one.lost) == ([None], [])
        else:
            with pytest.raises(CatalogUnavailableError):
                await one.driver.change(work)
            assert isinstance(told[0], BrokerError)
            assert len(one.lost) == 1
        await other.driver.catch_up()
        assert other.names() == (["t"] if made else [])
        await one.driver.stop()
        await other.driver.stop()

    run(scenario)


def test_a_commit_of_which_nobody_has_heard_is_told_once_it_is_certain(path: Path) -> None:
    """All see it in the database, but a synchronous standby may lack it."""

    async def scenario() -> None:
        one = Process(path, insists=True)
        commit, begin = one.store.commit, one.store.begin
        tried = 0

        def is_not_answered(records: Sequence[bytes]) -> int:
            commit(records)
            raise CatalogUnavailableError("no answer")

        def is_not_certain(after: int) -> News:
            nonlocal tried
            news = begin(after)
            if news.version is not None:
                tried += 1
                if tried < 3:
                    assert not change.done()
                    one.store.abandon()
                    raise CatalogUncertainError("no answer", news)
            return news

        one.store.commit = is_not_answered  # type: ignore[method-assign]
        one.store.begin = is_not_certain  # type: ignore[method-assign]
        change = asyncio.ensure_future(one.driver.change(one.create("t")))
        await change
        assert tried == 3
        assert not one.lost
        await one.driver.stop()

    run(scenario)


class Failing:
    """Two catalogs: what all see is in the one, and what a synchronous standby has is in the other. While that is away,
    nobody can say that what is new is there as well."""

    def __init__(self, path: Path, process: Process) -> None:
        self._standby = path.with_name("standby")
        process.store.copy(self._standby)
        self._process, self._read, self._begin = process, process.store.read, process.store.begin
        self.goes_away()

    def goes_away(self) -> None:
        store: Any = self._process.store
        store.read = lambda after: self._certain(self._read(after))
        store.begin = self._certain_and_held

    def _certain_and_held(self, after: int) -> News:
        try:
            return self._certain(self._begin(after))
        except CatalogUncertainError:
            self._process.store.abandon()
            raise

    def _certain(self, news: News) -> News:
        if news.version is not None:
            raise CatalogUncertainError("the standby does not answer", news)
        return news

    def is_back(self) -> None:
        store: Any = self._process.store
        store.read, store.begin = self._read, self._begin

    def takes_over(self) -> None:
        self._process.store.close()
        self._process.driver._store = self._process.store = SqliteStore(self._standby)


@pytest.mark.parametrize("takes_over", [False, True])
def test_what_all_see_and_a_standby_may_lack_is_applied_by_nobody(path: Path, takes_over: bool) -> None:
    async def scenario() -> None:
        author, other = Process(path), Process(path, 2, insists=True)
        await author.driver.change(author.create("a"))
        await other.driver.catch_up()
        standby = Failing(path, other)
        await author.driver.change(author.create("b"))  # and it is not told yet that it is made
        for each in (other.driver.catch_up(), other.driver.change(other.create("c"))):
            with pytest.raises(CatalogUncertainError):
                await each
        assert (other.names(), other.shared.version, len(other.applied)) == (["a"], 1, 1)
        if takes_over:
            standby.takes_over()
        else:
            standby.is_back()
        await other.driver.change(other.create("c"))
        assert other.names() == (["a", "c"] if takes_over else ["a", "b", "c"])
        assert other.lost == []
        await author.driver.stop()
        await other.driver.stop()

    run(scenario)


@pytest.mark.parametrize("of_rights", [False, True])
def test_who_sees_what_is_not_certain_has_heard_of_the_catalog_unless_somebody_may_lose_a_right_by_it(
    path: Path, of_rights: bool
) -> None:
    async def scenario() -> None:
        author, other = Process(path), Process(path, 2)
        Failing(path, other)
        before = other.driver.confirmed_s
        await other.driver.catch_up()
        nothing_new = other.driver.confirmed_s
        assert nothing_new > before
        record = control.AclsChanged([], []) if of_rights else control.ShardStarted(1, 1, 1)
        await author.driver.change(lambda: author.changes.append_control(record))
        with pytest.raises(CatalogUncertainError):
            await other.driver.catch_up()
        assert (other.driver.confirmed_s > nothing_new) is not of_rights
        await author.driver.stop()
        await other.driver.stop()

    run(scenario)


def test_a_process_stops_although_nobody_has_heard_of_its_last_commit(path: Path) -> None:
    """Else it would wait for a database that is away as long as that is."""

    async def scenario() -> None:
        one = Process(path, insists=True)
        asked = asyncio.Event()
        loop = asyncio.get_running_loop()

        def gone(*_: object) -> None:
            raise CatalogUnavailableError("no answer")

        def lost(_: object) -> None:
            one.store.abandon()
            one.store.begin = gone  # type: ignore[method-assign, assignment]
            loop.call_soon_threadsafe(asked.set)
            gone()

        one.store.commit = lost  # type: ignore[method-assign, assignment]
        change = asyncio.ensure_future(one.driver.change(lambda: one.topics.create_topic("t", 1)))
        await asked.wait()
        later = asyncio.ensure_future(one.driver.catch_up())  # of a shard that is just being opened
        async with asyncio.timeout(20):
            one.driver.stop_insisting()
            with pytest.raises(CatalogUnavailableError):
                await change
            await later
            await one.driver.stop()

    run(scenario)


@pytest.mark.parametrize("topic", [False, True])
def test_a_commit_that_came_too_late_is_made_after_what_others_have_made_where_the_order_does_not_matter(
    path: Path, topic: bool
) -> None:
    """The database ends the transaction of a process that was held up in the middle of it."""

    async def scenario() -> None:
        one, other = Process(path), Process(path, 2)
        commit, late = one.store.commit, [True, True]

        def held_up(records: Sequence[bytes]) -> int:
            if not late:
                return commit(records)
            one.store.abandon()
            late.pop()
            store = SqliteStore(path)  # of another one
            version = 0
            while (news := store.begin(version)).version is not None:
                version = news.version
                store.abandon()
            store.commit([control.encode(control.ShardStarted(2, 7 + version, 2))])
            store.close()
            raise CatalogUnavailableError("ended for being idle")

        one.store.commit = held_up  # type: ignore[method-assign]
        one.driver._insists = True

        def work() -> None:
            one.changes.append_control(control.ShardStarted(1, 5, 1))
            one.changes.append_control(control.ShardStarted(2, 6, 1))
            if topic:
                one.topics.create_topic("t", 1)

        if topic:
            with pytest.raises(CatalogUnavailableError):
                await one.driver.change(work)
            assert len(one.lost) == 1
        else:
            await one.driver.change(work)
            assert not one.lost
            assert one.shared.version == 3
            await one.driver.change(one.create("t"))
            await other.driver.catch_up()
            for known in (one.shared, other.shared):
                assert (known.epochs, known.starters) == ({1: 5, 2: 8}, {1: 1, 2: 2})
            assert other.names() == one.names() == ["t"]
        await one.driver.stop()
        await other.driver.stop()

    run(scenario)


def test_a_change_is_made_though_nobody_waits_for_it_any_more(path: Path) -> None:
    """And the catalog is let go."""

    async def scenario() -> None:
        one, other = Process(path), Process(path)
        other.store.begin(0)
        change = asyncio.create_task(one.driver.change(one.create("t")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        change.cancel()
        with pytest.raises(asyncio.CancelledError):
            await change
        other.store.abandon()
        await one.driver.change(one.create("u"))
        await other.driver.change(other.create("v"))
        assert other.names() == ["t", "u", "v"]
        await one.driver.stop()
        await other.driver.stop()

    run(scenario)


def test_what_cannot_be_applied_lets_the_catalog_go(path: Path) -> None:
    async def scenario() -> None:
        one, other = Process(path), Process(path)
        await other.driver.change(other.create("t"))

        def fail(_: set[int]) -> None:
            raise ValueError("a mistake")

        broken = SharedCatalogDriver(one.store, one.shared, one.changes, fail, one.lost.append)
        with pytest.raises(ValueError, match="a mistake"):
            await broken.change(one.create("u"))
        await other.driver.change(other.create("v"))
        assert other.names() == ["t", "v"]
        await broken.stop()
        await other.driver.stop()

    run(scenario)


def test_a_process_ends_where_the_catalog_went_back(path: Path) -> None:
    async def scenario() -> None:
        one = Process(path)
        await one.driver.change(one.create("t"))
        one.store.copy(path.with_name("earlier"))
        await one.driver.change(one.create("u"))
        one.driver._store = SqliteStore(path.with_name("earlier"))
        for _ in range(2):
            with pytest.raises(CatalogUnavailableError, match="ends at version 1, and version 2 was there"):
                await one.driver.catch_up()
            with pytest.raises(CatalogUnavailableError, match="ends at version 1, and version 2 was there"):
                await one.driver.change(one.create("v"))
        assert [str(error) for error in one.lost] == [
            "the catalog ends at version 1, and version 2 was there: the database has lost commits"
        ]
        await one.driver.stop()
        one.store.close()

    run(scenario)


def test_a_commit_whose_end_is_asked_of_a_catalog_that_went_back_has_ended(path: Path) -> None:
    async def scenario() -> None:
        one = Process(path, insists=True)
        await one.driver.change(one.create("t"))
        one.store.copy(path.with_name("earlier"))
        await one.driver.change(one.create("u"))

        def silent(_: Sequence[bytes]) -> int:
            one.driver._store = SqliteStore(path.with_name("earlier"))
            raise CatalogUnavailableError("no answer")

        one.store.commit = silent  # type: ignore[method-assign]
        async with asyncio.timeout(10):
            with pytest.raises(CatalogUnavailableError):
                await one.driver.change(one.create("v"))
        assert one.lost
        await one.driver.stop()
        one.store.close()

    run(scenario)


def test_many_changes_become_a_snapshot(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 5)
    monkeypatch.setattr(module, "BEHIND", 2)

    async def scenario() -> None:
        one, other = Process(path), Process(path, 2)
        restored: list[str] = []
        other.shared.on_restore = lambda: lambda: restored.append("restored")
        for at in range(12):
            await one.driver.change(one.create(f"t{at}"))
            if at < 8:
                await other.driver.catch_up()
        assert restored == [], "who lacks the last changes only reads them one by one"
        assert len(other.applied) >= 8
        assert other.store.read(8).snapshot is None, "two are left of those that are in the snapshot"
        assert other.store.read(7).snapshot is not None
        other.shared.version = 7
        await other.driver.catch_up()
        assert restored == ["restored"]
        assert other.shared.save() == one.shared.save()
        await other.driver.stop()
        news = one.store.read(0)
        assert news.snapshot is not None
        assert (news.snapshot[0], [each.version for each in news.changes]) == (10, [11, 12])
        late = Process(path)
        await late.driver.catch_up()
        assert late.shared.save() == one.shared.save()
        await late.driver.change(late.create("last"))
        assert late.store.read(0).snapshot == news.snapshot
        await one.driver.stop()
        await late.driver.stop()

    run(scenario)


def test_views_lie_where_their_source_does(path: Path) -> None:
    """Also the partitions that come later, of both."""

    async def scenario() -> None:
        one = Process(path)
        source, _ = await one.driver.change(one.create("source", 5))
        shards = one.shared.placements[source.number]
        view = control.TopicCreated(1, "view", bytes(16), 5, {}, False, control.Binding(0, [0] * 5), 5)
        await one.driver.change(partial(one.changes.append_control, view))
        assert one.shared.placements[1] == shards
        await one.driver.change(partial(one.topics.add_partitions, source, 9))
        assert len(one.shared.placements[0]) == 9
        assert one.shared.placements[0][:5] == shards
        assert one.shared.placements[1] == one.shared.placements[0]
        await one.driver.change(partial(one.topics.delete_topic, one.shared.catalog.by_name["view"]))
        assert list(one.shared.placements) == [0]
        await one.driver.stop()

    run(scenario)


def test_nobody_changes_the_catalog_by_the_way(path: Path) -> None:
    async def scenario() -> None:
        one = Process(path)
        with pytest.raises(NoChangeError):
            one.topics.create_topic("t", 1)

    run(scenario)
