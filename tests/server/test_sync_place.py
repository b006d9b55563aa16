"""Where an fdatasync runs, by what the disk did before and by how much there is to do."""

from __future__ import annotations

import pytest

from halfmoon.server.sync_place import FEW_REQUESTS, MOST_TRUST, QUICK_S, SMALL_BYTES, STALL_S, TRUSTED, SyncPlace


@pytest.fixture
def place() -> SyncPlace:
    """The disk has been quick for long."""
    found = SyncPlace()
    took(found, QUICK_S / 2, MOST_TRUST * 2)
    return found


def took(place: SyncPlace, seconds: float, times: int = 1, nbytes: int = SMALL_BYTES) -> None:
    for _ in range(times):
        place.took(seconds, nbytes)


def in_loop(place: SyncPlace) -> bool:
    return place.in_loop(SMALL_BYTES, FEW_REQUESTS)


def test_a_disk_that_nobody_knows_does_not_stop_the_loop() -> None:
    place = SyncPlace()
    assert not in_loop(place)
    took(place, QUICK_S, TRUSTED - 1)
    assert not in_loop(place)
    took(place, QUICK_S)
    assert in_loop(place)


def test_only_for_little_and_for_few(place: SyncPlace) -> None:
    assert in_loop(place)
    assert not place.in_loop(SMALL_BYTES + 1, 1)
    assert not place.in_loop(1, FEW_REQUESTS + 1)


def test_a_slow_sync_takes_the_trust_of_many_quick_ones(place: SyncPlace) -> None:
    took(place, QUICK_S * 2)
    assert not in_loop(place)
    took(place, QUICK_S / 2, TRUSTED)
    assert not in_loop(place)
    took(place, QUICK_S / 2, TRUSTED)
    assert in_loop(place)


def test_after_a_stall_it_stays_in_the_thread_for_long(place: SyncPlace) -> None:
    took(place, STALL_S)
    took(place, QUICK_S / 2, 900)
    assert not in_loop(place)
    took(place, QUICK_S / 2, 100)
    assert in_loop(place)


def test_stalls_add_up_to_no_more_than_one(place: SyncPlace) -> None:
    took(place, STALL_S, times=50)
    took(place, QUICK_S / 2, 1_000 + TRUSTED)
    assert in_loop(place)


def test_what_a_large_sync_took_says_nothing_of_a_small_one(place: SyncPlace) -> None:
    took(place, STALL_S, nbytes=SMALL_BYTES + 1)
    assert in_loop(place)


def test_a_disk_that_is_often_slow_is_never_trusted(place: SyncPlace) -> None:
    for _ in range(100):
        took(place, QUICK_S * 3)
        took(place, QUICK_S / 2, TRUSTED)
        assert not in_loop(place)
