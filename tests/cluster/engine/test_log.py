"""A shard's log over a cache: what is beside it, what is fetched when, and what is found damaged. What every engine
promises is tested in tests/core/storage/contract."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from halfmoon.cluster.engine import cached_files
from halfmoon.cluster.engine import log as shard_log
from halfmoon.cluster.engine.cached_files import AT_ONCE, BLOCK_BYTES
from halfmoon.cluster.engine.caching import Cache
from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.engine.pieces import IN_DATABASE, Durability
from halfmoon.core import clean_mark
from halfmoon.core.clean_files import data_path, index_path, open_segment
from halfmoon.core.storage.files import OsFileSystem, read_file, write_file
from halfmoon.core.storage.frame import Kind
from halfmoon.core.storage.storage import Place, Storage
from halfmoon.errors import BrokerError, Fault, LeaseLostError
from halfmoon.schema.snapshot import CLEAN_BASE
from halfmoon.testing.faulty_files import FaultyFileSystem
from tests.cluster.engine.one_shard import OneShard, one_shard
from tests.core.storage.contract.engines import opened
from tests.core.storage.contract.test_storage import commit, filled, put


@pytest.fixture(params=list(Durability))
def shard(request: pytest.FixtureRequest) -> Iterator[OneShard]:
    with one_shard(request.param) as shard:
        yield shard


def new_fs() -> FaultyFileSystem:
    return FaultyFileSystem(random.Random(1))


def taken(shard: OneShard, **log: Any) -> Storage:
    """By a node with an empty cache."""
    return opened(shard.make, new_fs(), **log)


def test_another_node_reads_what_one_has_committed(shard: OneShard) -> None:
    rows = filled(taken(shard), 100)
    storage = taken(shard, hot_bytes=1 << 30)
    assert next(place for place, _ in rows)[0] >= storage.log.start
    for place, value in rows:
        found = storage.reader.read([place])
        slices = found.slices if found.cold is None else found.cold()
        assert value in bytes(slices[0])
    assert storage.log.generation == 2


def test_what_another_node_wrote_is_not_taken_to_be_here(shard: OneShard) -> None:
    """Although it stands at the end of the log, where the local disk has everything in memory."""
    rows = filled(taken(shard, segment_bytes=16 << 20), 20, 1 << 20)
    storage = shard.make(new_fs(), shard.settings(segment_bytes=16 << 20, hot_bytes=1 << 30))
    storage.log.open()
    storage.log.resume(storage.log.segments[-1].end, storage.log.lease(1))
    place, value = rows[-1]
    load = storage.reader.bring(place[0], place[0] + place[1])
    assert load is not None
    load()
    found = storage.reader.read([place])
    assert value in bytes((found.slices if found.cold is None else found.cold())[0])
    mine, data = put(storage, 20, b"mine"), b"mine"
    commit(storage)
    found = storage.reader.read([mine])
    assert found.cold is None
    assert data in bytes(found.slices[0])


def test_a_start_fetches_what_it_scans_and_no_more(shard: OneShard) -> None:
    first = taken(shard, segment_bytes=16 << 20)
    filled(first, 40, 1 << 20)
    end = first.log.end
    assert end > 8 * BLOCK_BYTES
    fs = new_fs()
    storage = shard.make(fs, shard.settings(segment_bytes=16 << 20))
    storage.log.open()
    before = shard.store.fetched_bytes
    storage.log.recover(end - 1_000, end)
    assert shard.store.fetched_bytes - before <= 2 * BLOCK_BYTES


def test_files_beside_the_log_go_with_the_shard(shard: OneShard) -> None:
    fs = taken(shard).log.fs
    fs.make_directory("index")
    write_file(fs, "checkpoint", [b"one"])
    write_file(fs, "index/1", [b"rows"])
    write_file(fs, "index/2", [b"more"])
    write_file(fs, "checkpoint", [b"two"])
    fs.remove("index/1")
    fs.sync_directory("index")
    other = taken(shard).log.fs
    assert read_file(other, "checkpoint") == b"two"
    assert read_file(other, "index/1") is None
    assert other.listdir("index") == ["2"]
    other.rename("index/2", "index/3")
    other.sync_directory("index")
    third = taken(shard).log.fs
    assert third.listdir("index") == ["3"]
    assert read_file(third, "index/3") == b"more"


def test_a_start_fetches_files_beside_the_log_several_at_a_time_and_no_compacted_messages(shard: OneShard) -> None:
    fs = taken(shard).log.fs
    names = [f"index/{number:020d}-{number + 1:020d}" for number in range(40)]
    compacted = data_path(CLEAN_BASE)
    fs.make_directory("index")
    fs.make_directory("cleaned")
    for at, name in enumerate(names):
        write_file(fs, name, [b"%d" % at])
    messages = bytes(range(256)) * (BLOCK_BYTES // 100)
    write_file(fs, compacted, [messages])
    write_file(fs, index_path(CLEAN_BASE), [b"rows"])
    fs.sync_directory("index")
    fs.sync_directory("cleaned")
    shard.store.most_at_once, before = 0, shard.store.fetched_bytes
    other = taken(shard).log.fs
    assert read_file(other, names[7]) == b"7"
    assert shard.store.most_at_once == AT_ONCE
    assert shard.store.fetched_bytes - before < BLOCK_BYTES
    before = shard.store.fetched_bytes
    assert [read_file(other, name) for name in names] == [b"%d" % at for at in range(len(names))]
    assert read_file(other, index_path(CLEAN_BASE)) == b"rows"
    assert other.listdir("cleaned") == sorted(path.rpartition("/")[2] for path in (compacted, index_path(CLEAN_BASE)))
    assert shard.store.fetched_bytes == before, "they are here"
    file = other.open(compacted)
    assert file.size() == len(messages)
    assert file.pread(10, BLOCK_BYTES + 7) == messages[BLOCK_BYTES + 7 :][:10]
    assert shard.store.fetched_bytes - before == BLOCK_BYTES
    assert file.pread(len(messages), 0) == messages
    assert read_file(taken(shard).log.fs, compacted) == messages


def test_files_of_many_bytes_are_fetched_one_by_one(shard: OneShard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_files, "AT_ONCE_BYTES", 1_000)
    fs = taken(shard).log.fs
    fs.make_directory("index")
    for number in range(4):
        write_file(fs, f"index/{number}", [bytes([number]) * 900])
    fs.sync_directory("index")
    shard.store.most_at_once = 0
    other = taken(shard).log.fs
    assert [read_file(other, f"index/{number}") for number in range(4)] == [bytes([n]) * 900 for n in range(4)]
    assert shard.store.most_at_once == 1


def test_nobody_who_opens_a_log_waits_until_its_indexes_are_kept(shard: OneShard) -> None:
    filled(taken(shard), 3)
    fs = new_fs()
    storage = shard.make(fs, shard.settings())
    storage.log.open()
    beside = storage.log.fs
    stored = len(shard.store.objects)
    beside.make_directory("index")
    for number in range(3):
        write_file(beside, f"index/{number}", [b"made of the log"])
    beside.remove("index/1")
    assert len(shard.store.objects) == stored
    storage.log.resume(storage.log.segments[-1].end, storage.log.lease(1))
    assert len(shard.store.objects) == stored
    write_file(beside, "checkpoint", [b"one"])
    assert taken(shard).log.fs.listdir("index") == ["0", "2"]


def test_what_is_written_while_a_log_is_closed_is_kept_with_its_checkpoint_in_one_transaction(shard: OneShard) -> None:
    storage = taken(shard)
    filled(storage, 3)
    fs = storage.log.fs
    fs.make_directory("index")
    write_file(fs, "index/old", [b"rows"])
    puts: list[list[str]] = []
    put_files = shard.database.put_files

    async def counted(number: int, epoch: int, files: Any) -> bool:
        puts.append([file.path for file in files])
        return bool(await put_files(number, epoch, files))

    shard.database.put_files = counted
    assert shard.backing is not None
    shard.backing.closing()
    write_file(fs, "index/new", [b"all rows"])
    fs.remove("index/old")
    fs.sync_directory("index")
    assert puts == []
    write_file(fs, "checkpoint", [b"one"])
    assert puts == [["checkpoint", "index/new"]]
    clean_mark.leave(fs, 5)
    assert len(puts) == 1, "the mark is not kept"
    other = taken(shard).log.fs
    assert other.listdir("index") == ["new"]
    assert read_file(other, "checkpoint") == b"one"
    assert clean_mark.read(other) == -1


def test_rows_are_read_many_at_a_time(shard: OneShard) -> None:
    first = taken(shard)
    rows = [row for _ in range(30) for row in filled(first, 1)]
    asked = Asked(shard)
    assert read(taken(shard), rows)
    assert len(asked.calls) == (1 if shard.kind is Durability.FAST else 0)


def test_rows_that_become_objects_while_they_are_read_are_read_there(shard: OneShard) -> None:
    first = taken(shard)
    rows = [row for _ in range(30) for row in filled(first, 1)]
    asked = Asked(shard)
    asked.moves = True
    assert read(taken(shard), rows)
    assert all(piece.key != IN_DATABASE for piece in shard.pieces()[: len(rows)])


def read(storage: Storage, rows: list[tuple[Place, bytes]]) -> bool:
    for place, value in rows:
        found = storage.reader.read([place])
        slices = found.slices if found.cold is None else found.cold()
        if value not in bytes(slices[0]):
            return False
    return True


class Asked:
    """Who asks the database for rows, and what happens just then."""

    def __init__(self, shard: OneShard) -> None:
        self.calls: list[tuple[int, int]] = []
        self.moves = False
        """Before it answers, rows become an object each; the owner hears of it a moment later."""
        self._shard = shard
        self._frames = shard.database.frames
        shard.database.frames = self._asked

    async def _asked(self, number: int, start: int, end: int) -> Any:
        self.calls.append((start, end))
        shard = self._shard
        moves, self.moves = self.moves, False
        if moves:
            for row, frames in await self._frames(number, start, end):
                key = f"m/{row.start}"
                await shard.store.put(key, frames)
                moved = [row._replace(key=key)]
                epoch = shard.database.shards[0].head.epoch
                assert await shard.database.replace(number, epoch, [row], moved, [(key, len(frames))])
                assert shard.backing is not None
                asyncio.get_running_loop().call_later(0.1, shard.backing.pieces.replace, [row], moved)
        return await self._frames(number, start, end)


def test_who_has_lost_the_shard_changes_no_file_of_it(shard: OneShard) -> None:
    old = taken(shard)
    write_file(old.log.fs, "checkpoint", [b"mine"])
    new = taken(shard)
    with pytest.raises(LeaseLostError):
        write_file(old.log.fs, "checkpoint", [b"late"])
    old.log.fs.remove("checkpoint")
    with pytest.raises(LeaseLostError):
        old.log.fs.sync_directory("")
    assert read_file(new.log.fs, "checkpoint") == b"mine"


def test_who_has_lost_the_shard_commits_nothing(shard: OneShard) -> None:
    old = taken(shard)
    filled(old, 3)
    new = taken(shard)
    put(old, 3)
    old.log.write()
    job = old.log.sync_job()
    assert job is not None
    with pytest.raises(LeaseLostError) as lost:
        job.run()
    old.log.finish_sync(job, lost.value)
    assert isinstance(old.log.failed, LeaseLostError)
    end = new.log.end
    put(new, 3)
    commit(new)
    assert taken(shard).log.end > end


def test_expired_segments_go_from_the_database_and_their_objects_are_dead(shard: OneShard) -> None:
    storage = taken(shard)
    filled(storage, 200)
    log = storage.log
    log.remove_oldest()
    while (remove := log.begin_removal()) is not None:
        log.removed(remove())
    pieces = shard.pieces()
    assert pieces[0].start == log.start > 0
    assert taken(shard).log.start == log.start
    keys = {piece.key for piece in pieces} - {IN_DATABASE}
    assert keys == shard.objects_alive()


def test_the_mover_is_told_in_its_words_that_something_is_not_here_any_more(shard: OneShard) -> None:
    storage = taken(shard)
    filled(storage, 200)
    log: Any = storage.log
    first = log.start
    log.remove_oldest()
    with pytest.raises(OSError, match="have expired"):
        log.bytes_of(first, first + 10)
    last = log.active_segment()
    assert len(log.bytes_of(last, last + 10)) == 10
    log.close()
    with pytest.raises(OSError, match=f"{last}|Bad file descriptor"):
        log.bytes_of(last, last + 10)


def test_a_damaged_object_is_found(shard: OneShard) -> None:
    rows = filled(taken(shard), 3)
    shard.damage()
    with pytest.raises(OSError, match="damaged"):
        taken(shard)
    assert rows


def test_what_expires_while_it_is_fetched_is_not_read_as_zeroes(shard: OneShard) -> None:
    rows = filled(taken(shard, segment_bytes=16 << 20), 20, 1 << 20)
    storage = shard.make(new_fs(), shard.settings(segment_bytes=16 << 20))
    log: Any = storage.log
    log.open()
    log.resume(log.segments[-1].end, log.lease(1))
    (position, length), _ = rows[2]
    load = storage.reader.bring(position, position + length)
    assert load is not None
    log.backing.pieces.drop(log.segments[1].start)
    with pytest.raises(OSError, match="gone"):
        load()


def test_what_is_forgotten_comes_back_when_it_is_read(shard: OneShard) -> None:
    storage = taken(shard, segment_bytes=1 << 20, hot_bytes=1)
    log: Any = storage.log
    rows = filled(storage, 40, 100_000)
    assert len(log.segments) > 3
    place, value = rows[0]
    (sent,) = storage.reader.read([place]).slices
    before = log.cached_bytes
    assert before == sum(segment.size for segment in log.segments)
    cached = log.cached(1)
    assert [each.segment for each in cached] == log.segments[:-1]
    for each in cached:
        log.forget(each.segment)
    assert log.cached_bytes == log.segments[-1].size
    assert log.cached(1) == []
    assert value in bytes(sent), "a slice that is being sent stays what it is"
    for place, value in rows:
        found = storage.reader.read([place])
        slices = found.slices if found.cold is None else found.cold()
        assert value in bytes(slices[0])
    assert log.cached_bytes == before
    del sent, found, slices
    while (remove := log.begin_removal()) is not None:
        log.removed(remove())
    for each in log.cached(1):
        log.forget(each.segment)
    while (remove := log.begin_removal()) is not None:
        log.removed(remove())
    for place, value in reversed(rows):
        found = storage.reader.read([place])
        assert value in bytes((found.slices if found.cold is None else found.cold())[0])
    put(storage, 40)
    commit(storage)


def removed(log: Any) -> int:
    """How many files were removed."""
    count = 0
    while (remove := log.begin_removal()) is not None:
        log.removed(remove())
        count += 1
    return count


def test_what_is_forgotten_gives_its_disk_back_without_the_database(shard: OneShard, tmp_path: Path) -> None:
    """Which may be away for hours. What has expired waits for it, and holds up nothing else."""
    storage = opened(shard.make, OsFileSystem(tmp_path), segment_bytes=1 << 20, hot_bytes=1)
    log: Any = storage.log
    filled(storage, 60, 100_000)
    drop, calls, away = shard.database.drop, [], True

    async def asked(number: int, epoch: int, before: int) -> bool:
        calls.append(before)
        if away:
            raise DatabaseUnavailableError("away")
        return bool(await drop(number, epoch, before))

    shard.database.drop = asked
    files = [segment.file for segment in log.segments[1:3]]
    log.forget(log.segments[1])
    assert removed(log) == 1
    assert calls == []
    log.remove_oldest()
    log.forget(log.segments[1])
    log.removed(log.begin_removal()())
    assert calls == []
    for file in files:
        with pytest.raises(OSError, match="Bad file descriptor"):
            file.size()
    expired = log.begin_removal()
    with pytest.raises(OSError, match="away"):
        expired()
    away = False
    calls.clear()
    log.remove_oldest()
    assert removed(log) == 2
    assert calls == [log.start], "once for all that has expired"
    assert shard.pieces()[0].start == log.start
    log.forget(log.segments[1])
    assert removed(log) == 1
    assert calls == [log.start]
    log.close()


def test_what_is_hot_or_not_committed_is_not_forgotten(shard: OneShard) -> None:
    storage = taken(shard, segment_bytes=1 << 20, hot_bytes=1)
    log: Any = storage.log
    filled(storage, 40, 100_000)
    assert log.cached(log.end) == []
    second_last = log.segments[-2]
    assert second_last not in [each.segment for each in log.cached(log.end - second_last.end + 1)]
    assert second_last in [each.segment for each in log.cached(log.end - second_last.end)]
    flushed, end = log.flushed, log.end
    for number in range(40, 80):
        put(storage, number, b"x" * 100_000)
    log.write()
    assert log.flushed == flushed
    assert log.end > end
    assert all(each.segment.end <= flushed for each in log.cached(1))


def test_a_log_that_is_behind_takes_no_more_batches_until_some_is_committed(
    shard: OneShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_log, "MOST_WAITING_BYTES", 200_000)
    storage = taken(shard, segment_bytes=16 << 20)
    for offset in range(3):
        put(storage, offset, b"v" * 100_000)
    storage.log.write()
    with pytest.raises(BrokerError, match="wait for the object store or the database") as refused:
        put(storage, 3)
    assert refused.value.fault is Fault.KAFKA_STORAGE_ERROR
    end = storage.log.end
    storage.log.append(Kind.CONTROL, -1, -1, 0, 0, 0, 0, 0, b"control")  # what the broker says itself it may
    assert storage.log.end > end
    commit(storage)
    put(storage, 3)
    commit(storage)
    assert storage.log.flushed == storage.log.end


@pytest.mark.parametrize("waits", [True, False])
def test_what_is_much_is_committed_in_parts_that_end_where_a_write_did(
    shard: OneShard, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_log, "COMMIT_BYTES", 250_000)
    storage = taken(shard, segment_bytes=16 << 20)
    commit(storage)
    before, ends = len(shard.pieces()), [storage.log.end]
    for offset, size in enumerate((100_000, 100_000, 100_000, 400_000, 100_000)):
        put(storage, offset, b"v" * size)
        storage.log.write()
        ends.append(storage.log.written)
    parts = 0
    while (job := storage.log.sync_job()) is not None:
        if waits:
            job.run()
        else:
            begun = threading.Event()
            assert shard.backing is not None
            shard.backing.call_in_loop(partial(job.begin, lambda _error, begun=begun: begun.set()))
            assert begun.wait(10)
        storage.log.finish_sync(job, None)
        parts += 1
    assert storage.log.flushed == storage.log.end
    assert parts == (1 if waits else 4)
    pieces = shard.pieces()[before:]
    assert [piece.end for piece in pieces] == [ends[2], ends[3], ends[4], ends[5]]
    put(storage, 5)
    commit(storage)
    assert storage.log.flushed == storage.log.end


def test_a_commit_for_which_nothing_is_left_ends_at_once(shard: OneShard) -> None:
    storage = taken(shard)
    put(storage, 0)
    storage.log.write()
    late, job = storage.log.sync_job(), storage.log.sync_job()
    assert late is not None
    assert job is not None
    job.run()
    storage.log.finish_sync(job, None)
    pieces = shard.pieces()
    late.run()
    storage.log.finish_sync(late, None)
    assert storage.log.flushed == storage.log.end
    assert shard.pieces() == pieces
    put(storage, 1)
    commit(storage)


def test_a_cache_is_kept_to_its_limit_and_the_oldest_goes_first(shard: OneShard) -> None:
    storage = taken(shard, segment_bytes=1 << 20, hot_bytes=1)
    log: Any = storage.log
    filled(storage, 60, 100_000)
    whole = log.cached_bytes
    cache = Cache(whole, 1)
    cache.turn([log])
    assert log.cached_bytes == whole
    cache = Cache(whole // 2, 1)
    cache.turn([log])
    assert log.cached_bytes <= whole // 2
    assert cache.forgotten_bytes == whole - log.cached_bytes
    kept = [each.segment.start for each in log.cached(1)]
    assert kept == [segment.start for segment in log.segments[:-1]][-len(kept) :]
    Cache(1, 1).turn([log])
    assert log.cached_bytes == log.segments[-1].size


def compacted(shard: OneShard, files: int) -> tuple[Any, list[bytes]]:
    """The log of a node that has taken the shard over, with compacted segments that the one before wrote; and what is
    in each."""
    fs = taken(shard).log.fs
    fs.make_directory("cleaned")
    data = [shard_bytes(number, 3 * BLOCK_BYTES - 100) for number in range(files)]
    for number, messages in enumerate(data):
        write_file(fs, data_path(CLEAN_BASE + (number << 30)), [messages])
    log: Any = taken(shard, hot_bytes=1).log
    for number in range(files):
        log.add_cleaned(open_segment(log.fs, CLEAN_BASE + (number << 30)))
    return log, data


def shard_bytes(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


def test_compacted_messages_count_in_the_cache_and_make_way(shard: OneShard) -> None:
    log, data = compacted(shard, 2)
    first, second = log.cleaned
    before = log.cached_bytes
    assert first.file.pread(10, 0) == data[0][:10]
    assert second.file.pread(len(data[1]), 0) == data[1]
    assert log.cached_bytes - before == BLOCK_BYTES + len(data[1])
    assert [each.segment for each in log.cached(1)] == [first, second]
    cache = Cache(before + len(data[1]), 1)
    cache.turn([log])
    assert [each.segment for each in log.cached(1)] == [second], "what came first goes first"
    Cache(0, 1).turn([log])
    assert log.cached_bytes == before
    assert removed(log) == 2
    for segment, messages in zip(log.cleaned, data, strict=True):
        assert not segment.mapping.in_memory(0, segment.size)
        assert segment.file.pread(segment.size, 0) == messages


def test_compacted_messages_that_were_written_here_make_way_once_they_are_in_the_store(shard: OneShard) -> None:
    log: Any = taken(shard, hot_bytes=1).log
    fs, before = log.fs, log.cached_bytes
    fs.make_directory("cleaned")
    path, data = data_path(CLEAN_BASE), shard_bytes(1, BLOCK_BYTES + 100)
    aside = fs.open(f"{path}.new", create=True)
    aside.pwritev([data], 0)
    aside.close()
    fs.rename(f"{path}.new", path)
    log.add_cleaned(open_segment(fs, CLEAN_BASE))
    assert log.cached_bytes - before == len(data)
    assert log.cached(1) == []
    fs.sync_directory("cleaned")
    (cached,) = log.cached(1)
    sent = cached.segment.view[:10]
    log.forget(cached.segment)
    assert log.cached_bytes == before
    assert bytes(sent) == data[:10], "a slice that is being sent stays what it is"
    assert log.cleaned[0].file.pread(len(data), 0) == data
    sent.release()
    assert removed(log) == 1


def test_what_one_who_has_a_file_open_brings_here_is_here_for_all_who_have(shard: OneShard) -> None:
    """The cleaner opens files itself."""
    log, (data,) = compacted(shard, 1)
    (segment,) = log.cleaned
    before, fetched = log.cached_bytes, shard.store.fetched_bytes
    other = log.fs.open(data_path(CLEAN_BASE))
    assert other.pread(len(data), 0) == data
    assert log.cached_bytes - before == len(data)
    assert segment.file.pread(len(data), 0) == data
    assert shard.store.fetched_bytes - fetched == len(data)
    log.forget(segment)
    assert log.cached_bytes == before
    assert other.pread(len(data), 0) == data
    assert shard.store.fetched_bytes - fetched == len(data)
    assert segment.file.pread(len(data), 0) == data
    assert shard.store.fetched_bytes - fetched == 2 * len(data)
