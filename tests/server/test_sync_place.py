"""Where an fdatasync runs, by what the disk did before and by how much there is to do."""

from __future__ import annotations

import pytest

from halfmoon.server.sync_place import FEW_REQUESTS, QUICK_S, SMALL_BYTES, STALL_S, SYNCS_AFTER_STALL, SyncPlace


@pytest.fixture
def place() -> SyncPlace:
    """The disk has been quick for long."""
    found = SyncPlace()
    took(found, QUICK_S / 4, 100)
    return found


def took(place: SyncPlace, seconds: float, times: int = 1, nbytes: int = SMALL_BYTES) -> None:
    for _ in range(times):
        place.took(seconds, nbytes)


def in_loop(place: SyncPlace) -> bool:
    return place.in_loop(SMALL_BYTES, FEW_REQUESTS)


def test_a_disk_that_nobody_knows_does_not_stop_the_loop() -> None:
    place = SyncPlace()
    assert not in_loop(place)
    took(place, QUICK_S / 4, 4)
    assert not in_loop(place)
    took(place, QUICK_S / 4, 20)
    assert in_loop(place)


def test_only_for_little_and_for_few(place: SyncPlace) -> None:
    assert in_loop(place)
    assert not place.in_loop(SMALL_BYTES + 1, 1)
    assert not place.in_loop(1, FEW_REQUESTS + 1)


def test_a_slow_one_now_and_then_changes_nothing(place: SyncPlace) -> None:
    for _ in range(100):
        took(place, QUICK_S * 3)
        assert in_loop(place)
        took(place, QUICK_S / 4, 19)


def test_slow_ones_send_it_to_the_thread_until_quick_ones_prevail(place: SyncPlace) -> None:
    took(place, QUICK_S * 2, 20)
    assert not in_loop(place)
    took(place, QUICK_S / 4, 5)
    assert not in_loop(place)
    took(place, QUICK_S / 4, 20)
    assert in_loop(place)


def test_a_disk_that_is_often_slow_is_never_trusted() -> None:
    place = SyncPlace()
    for _ in range(100):
        took(place, QUICK_S * 3)
        assert not in_loop(place)
        took(place, QUICK_S / 2)
        assert not in_loop(place)


def test_after_a_stall_it_stays_in_the_thread_for_long(place: SyncPlace) -> None:
    took(place, STALL_S)
    took(place, QUICK_S / 4, SYNCS_AFTER_STALL - 1)
    assert not in_loop(place)
    took(place, QUICK_S / 4)
    assert in_loop(place)


def test_many_stalls_weigh_no_more_than_one(place: SyncPlace) -> None:
    took(place, STALL_S * 100, times=50)
    took(place, QUICK_S / 4, SYNCS_AFTER_STALL)
    assert in_loop(place)


def test_what_a_large_sync_took_says_nothing_of_a_small_one(place: SyncPlace) -> None:
    took(place, STALL_S, times=50, nbytes=SMALL_BYTES + 1)
    assert in_loop(place)


def test_a_large_one_that_was_quick_counts() -> None:
    place = SyncPlace()
    took(place, QUICK_S / 4, times=50, nbytes=SMALL_BYTES + 1)
    assert in_loop(place)
