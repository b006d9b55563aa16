"""The faulty file system fails as it says: what the crash tests rest on."""

from __future__ import annotations

import errno
import random

import pytest

from halfmoon.core.storage.files import write_all
from halfmoon.testing.faulty_files import PAGE, FaultyFile, FaultyFileSystem, ProcessDied


@pytest.fixture
def fs() -> FaultyFileSystem:
    return FaultyFileSystem(random.Random(3))


def synced(fs: FaultyFileSystem, path: str, data: bytes) -> FaultyFile:
    file = fs.open(path, create=True)
    file.pwritev([data], 0)
    file.sync()
    fs.sync_directory("")
    return file


def content(fs: FaultyFileSystem, path: str) -> bytes:
    file = fs.open(path)
    return file.pread(file.size(), 0)


def test_a_kill_keeps_the_cache_and_still_owes_it_to_the_disk(fs: FaultyFileSystem) -> None:
    fs.open("f", create=True).pwritev([b"abc"], 0)
    after = fs.kill()
    assert content(after, "f") == b"abc"
    assert any("f" not in lost(after, seed).names for seed in range(20))


def lost(fs: FaultyFileSystem, seed: int) -> FaultyFileSystem:
    copy = fs.kill()
    copy.dice = random.Random(seed)
    return copy.power_loss()


def test_power_loss_keeps_what_was_synced_and_tears_the_rest(fs: FaultyFileSystem) -> None:
    old, new = b"o" * 3 * PAGE, b"n" * 3 * PAGE
    file = synced(fs, "f", old)
    file.pwritev([new], 0)
    seen = {content(lost(fs, seed), "f") for seed in range(200)}
    assert {old, new} < seen
    assert any(data[:512] == b"n" * 512 and data[PAGE - 512 : PAGE] == b"o" * 512 for data in seen), "no page was torn"
    file.sync()
    assert {content(lost(fs, seed), "f") for seed in range(50)} == {new}


def test_a_name_is_not_durable_before_its_folder_is_synced(fs: FaultyFileSystem) -> None:
    fs.open("log/f", create=True).sync()
    assert {"log/f" in lost(fs, seed).names for seed in range(50)} == {True, False}
    fs.sync_directory("log")
    assert all("log/f" in lost(fs, seed).names for seed in range(50))


def test_a_rename_is_one_step(fs: FaultyFileSystem) -> None:
    synced(fs, "a", b"a")
    synced(fs, "b", b"b")
    fs.rename("a", "b")
    for seed in range(50):
        after = lost(fs, seed)
        assert content(after, "b") == (b"b" if "a" in after.names else b"a")


def test_a_failed_sync_leaves_clean_pages_of_which_some_are_on_disk() -> None:
    left = set()
    for seed in range(50):
        fs = FaultyFileSystem(random.Random(seed))
        file = synced(fs, "f", b"o" * 2 * PAGE)
        file.pwritev([b"n" * 2 * PAGE], 0)
        fs.fail_sync = True
        with pytest.raises(OSError, match=r"Input/output"):
            file.sync()
        fs.fail_sync = False
        file.sync()
        assert content(fs, "f") == b"n" * 2 * PAGE
        on_disk = {content(lost(fs, each), "f") for each in range(5)}
        assert len(on_disk) == 1, "no page is dirty any more"
        left |= on_disk
    assert {found[::PAGE] for found in left} == {b"oo", b"on", b"no", b"nn"}


def test_a_spoiled_file_fails_and_others_do_not(fs: FaultyFileSystem) -> None:
    bad, good = synced(fs, "bad", b"x"), synced(fs, "good", b"x")
    fs.spoil("bad")
    with pytest.raises(OSError, match=r"Input/output"):
        bad.pwritev([b"y"], 0)
    with pytest.raises(OSError, match=r"Input/output"):
        fs.kill().open("bad").sync()
    good.pwritev([b"y"], 0)
    good.sync()


def test_space_is_taken_and_given_back(fs: FaultyFileSystem) -> None:
    fs.free = 1000
    file = fs.open("f", create=True)
    file.allocate(800)
    with pytest.raises(OSError, match="No space") as caught:
        fs.open("g", create=True).pwritev([b"x" * 300], 0)
    assert caught.value.errno == errno.ENOSPC
    file.pwritev([b"x" * 800], 0)  # what was allocated can be written
    fs.remove("f")
    assert fs.free_bytes() == 1000
    fs.open("h", create=True).pwritev([b"x" * 100], 0)
    fs.rename("h", "g")
    assert fs.free_bytes() == 900


def test_short_writes_write_something(fs: FaultyFileSystem) -> None:
    fs.short_writes = True
    file = fs.open("f", create=True)
    lengths = {file.pwritev([b"x" * 50, b"y" * 50], 0) for _ in range(200)}
    assert 0 not in lengths
    assert len(lengths) > 20
    assert write_all(file, [b"x" * 50, b"y" * 50], 0) == 100
    assert content(fs, "f") == b"x" * 50 + b"y" * 50


def test_a_process_dies_at_the_operation_it_is_told_to_and_does_nothing_afterwards(fs: FaultyFileSystem) -> None:
    file = synced(fs, "f", b"old")
    fs.crash_at = fs.operations + 2
    file.pwritev([b"new"], 0)
    with pytest.raises(ProcessDied):
        fs.remove("f")
    with pytest.raises(ProcessDied):
        file.sync()
    with pytest.raises(ProcessDied):
        file.pwritev([b"xxx"], 0)
    after = fs.kill()
    assert content(after, "f") == b"new"
    after.remove("f")  # another process, which lives


def test_dying_in_a_write_leaves_a_part_of_it(fs: FaultyFileSystem) -> None:
    seen = set()
    for seed in range(60):
        copy = fs.kill()
        copy.dice = random.Random(seed)
        copy.crash_at = 2
        file = copy.open("f", create=True)
        with pytest.raises(ProcessDied):
            file.pwritev([b"12345"], 0)
        seen.add(content(copy.kill(), "f"))
    assert seen == {b"12345"[:n] for n in range(6)}


def test_a_slice_keeps_a_mapping(fs: FaultyFileSystem) -> None:
    mapping = synced(fs, "f", b"abc").map()
    piece = mapping.view[:2]
    assert not mapping.release()
    assert piece == b"ab"
    piece.release()
    assert mapping.release()


def test_cold_reads_are_told_from_cached_ones(fs: FaultyFileSystem) -> None:
    file = synced(fs, "f", b"abc")
    buffer = memoryview(bytearray(2))
    assert file.pread_cached_into(buffer, 0)
    assert buffer == b"ab"
    fs.cold = True
    assert not file.pread_cached_into(buffer, 0)
    assert file.pread(2, 0) == b"ab"
