"""What every catalog that processes share must do, whatever keeps it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from halfmoon.cluster.store import CatalogLostError, CatalogStore, Change, News

Open = Callable[[], CatalogStore]
FORGET = "delete from change where version = (select max(version) from change)"
_spawning = multiprocessing.get_context("spawn")


def change(store: CatalogStore, *records: bytes, after: int = 0) -> int:
    store.begin(after)
    return store.commit(records)


def count_up(open_store: Open, times: int, done: Any) -> None:
    """In a process of its own: each change holds what it was made from."""
    store = open_store()
    seen = 0
    for _ in range(times):
        news = store.begin(seen)
        seen = news.version or seen
        seen = store.commit([b"%d" % (seen + 1)])
    store.close()
    done.put(seen)


def hold_and_wait(open_store: Open, held: Any) -> None:
    """In a process of its own, which is killed in the middle of a change."""
    open_store().begin(0)
    held.set()
    signal.pause()


def commit_and_die(open_store: Open) -> None:
    change(open_store(), b"told")
    os.kill(os.getpid(), signal.SIGKILL)


class CatalogContract:
    """Subclasses give the fixture `open_store`: opens the same catalog again and again. It can be pickled. `go_back`:
    forgets the last change."""

    @pytest.fixture
    def store(self, open_store: Open) -> Any:
        store = open_store()
        yield store
        store.close()

    @pytest.fixture
    def other(self, open_store: Open) -> Any:
        store = open_store()
        yield store
        store.close()

    def test_an_empty_one_has_no_news(self, store: CatalogStore) -> None:
        assert store.read(0) == News(None, [])
        assert store.read(0).version is None

    def test_changes_are_numbered_and_everybody_reads_them(self, store: CatalogStore, other: CatalogStore) -> None:
        assert change(store, b"a", b"b") == 1
        assert change(other, b"c") == 2
        assert store.read(0) == News(None, [Change(1, (b"a", b"b")), Change(2, (b"c",))])
        assert store.read(1) == News(None, [Change(2, (b"c",))])
        assert store.read(2).version is None

    def test_whoever_changes_it_is_told_what_it_has_not_seen(self, store: CatalogStore, other: CatalogStore) -> None:
        change(store, b"a")
        change(store, b"b")
        assert other.begin(1) == News(None, [Change(2, (b"b",))])
        assert other.commit([b"c"]) == 3

    def test_what_is_abandoned_never_was(self, store: CatalogStore, other: CatalogStore) -> None:
        store.begin(0)
        store.abandon()
        store.abandon()
        assert change(other, b"a") == 1

    def test_who_only_looked_at_it_is_in_nobody_s_way(self, store: CatalogStore, other: CatalogStore) -> None:
        change(store, b"a")
        assert other.begin(0).version == 1
        other.abandon()
        assert store.begin(1).version is None
        store.abandon()
        assert store.read(0).version == 1

    def test_one_holds_it_at_a_time(self, store: CatalogStore, other: CatalogStore) -> None:
        store.begin(0)
        found: list[News] = []
        waiting = threading.Thread(target=lambda: found.append(other.begin(0)))
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
        store.commit([b"a"])
        waiting.join(10)
        assert found == [News(None, [Change(1, (b"a",))])]
        other.abandon()

    def test_reading_waits_for_nobody_and_shows_what_is_committed(
        self, store: CatalogStore, other: CatalogStore
    ) -> None:
        change(store, b"a", after=0)
        store.begin(1)
        assert other.read(0).version == 1
        store.commit([b"b"])
        assert other.read(0).version == 2

    def test_a_snapshot_stands_for_what_was_before_it(self, store: CatalogStore, other: CatalogStore) -> None:
        for record in (b"a", b"b", b"c"):
            change(store, record)
        store.keep(2, b"a and b")
        assert other.read(0) == News((2, b"a and b"), [Change(3, (b"c",))])
        assert other.read(1) == News((2, b"a and b"), [Change(3, (b"c",))])
        assert other.read(2) == News(None, [Change(3, (b"c",))])
        assert other.read(3).version is None
        store.keep(1, b"older")
        assert other.read(0).snapshot == (2, b"a and b")
        store.keep(3, b"all")
        assert other.read(0) == News((3, b"all"), [])
        assert other.read(0).version == 3
        assert change(other, b"d") == 4
        assert other.read(3) == News(None, [Change(4, (b"d",))])

    def test_the_last_changes_stay_beside_a_snapshot(self, store: CatalogStore, other: CatalogStore) -> None:
        for record in (b"a", b"b", b"c", b"d"):
            change(store, record)
        store.keep(4, b"all", 2)
        assert other.read(0) == other.read(1) == News((4, b"all"), [])
        assert other.read(2) == News(None, [Change(3, (b"c",)), Change(4, (b"d",))])
        assert other.read(3) == News(None, [Change(4, (b"d",))])
        assert other.read(4).version is None
        assert change(other, b"e") == 5
        assert other.read(0) == News((4, b"all"), [Change(5, (b"e",))])

    def test_one_that_went_back_says_so_to_those_who_know_more(self, store: CatalogStore, other: CatalogStore) -> None:
        """To read nothing new there would be to know for ever what nobody else does."""
        for record in (b"a", b"b", b"c", b"d"):
            change(store, record)
        for ask in (store.read, store.begin):
            with pytest.raises(CatalogLostError, match="the catalog ends at version 4, and version 5 was there"):
                ask(5)
        assert change(other, b"e", after=4) == 5, "nobody holds it"
        assert store.read(5).version is None
        assert store.begin(5).version is None
        store.abandon()
        store.keep(5, b"all")
        assert store.read(5).version is None
        with pytest.raises(CatalogLostError):
            store.read(6)

    @pytest.mark.parametrize("by", ["commit", "read", "begin"])
    def test_one_that_went_back_and_was_changed_since_has_another_change_under_a_version(
        self, store: CatalogStore, other: CatalogStore, go_back: Callable[[], None], by: str
    ) -> None:
        change(other, b"a")
        if by == "commit":
            change(store, b"b", after=1)
        else:
            change(other, b"b", after=1)
            assert getattr(store, by)(1).version == 2
            store.abandon()
        go_back()
        change(other, b"b", after=1)
        assert store.read(2).version is None, "the very same was made again"
        go_back()
        change(other, b"x", after=1)
        change(other, b"y", after=2)
        for ask in (store.read, store.begin):
            with pytest.raises(CatalogLostError, match="the catalog has another version 2 than there was"):
                ask(2)
        assert change(other, b"z", after=3) == 4, "nobody holds it"

    def test_what_is_in_it_is_there_when_it_is_opened_again(self, store: CatalogStore, open_store: Open) -> None:
        change(store, bytes(range(256)) * 5_000)
        store.close()
        again = open_store()
        assert again.read(0).changes[0].records == (bytes(range(256)) * 5_000,)
        assert again.cluster == store.cluster
        again.close()

    def test_processes_make_changes_one_after_the_other(self, open_store: Open, store: CatalogStore) -> None:
        """Each decides on what is true: no change is made from something else than what stands before it."""
        done = _spawning.Queue()
        processes = [_spawning.Process(target=count_up, args=(open_store, 25, done)) for _ in range(2)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(60)
        assert max(done.get(timeout=10) for _ in processes) == 50
        assert [each.records for each in store.read(0).changes] == [(b"%d" % number,) for number in range(1, 51)]

    def test_a_process_that_is_killed_lets_go(self, open_store: Open, store: CatalogStore) -> None:
        held = _spawning.Event()
        process = _spawning.Process(target=hold_and_wait, args=(open_store, held))
        process.start()
        assert held.wait(30)
        process.kill()
        process.join(10)
        assert store.begin(0).version is None
        assert store.commit([b"a"]) == 1

    def test_what_was_committed_outlives_the_process(self, open_store: Open, store: CatalogStore) -> None:
        process = _spawning.Process(target=commit_and_die, args=(open_store,))
        process.start()
        process.join(30)
        assert process.exitcode == -signal.SIGKILL
        assert store.read(0).changes == [Change(1, (b"told",))]
