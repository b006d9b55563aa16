"""Connections that have not authenticated: how many, how long, and who has to go."""

from __future__ import annotations

from halfmoon.adapters.tcp.newcomers import LARGE_BYTES, SMALL_BYTES, Newcomers


class Someone:
    def __init__(self, host: str) -> None:
        self.peer_host = host
        self.ended = ""

    def abort(self, reason: str) -> None:
        self.ended = reason


def test_too_many_of_one_address_cost_that_address_its_oldest() -> None:
    here = Newcomers(lambda: 0, 10, 1_000)
    patient = Someone("b")
    here.add(patient)
    crowd = [Someone("a") for _ in range(30)]
    for each in crowd:
        here.add(each)
    assert len(here) == 10
    assert not patient.ended
    assert [bool(each.ended) for each in crowd] == [True] * 21 + [False] * 9
    assert here.evicted == 21


def test_their_time_is_over() -> None:
    now_ms = 0
    here = Newcomers(lambda: now_ms, 10, 1_000)
    first, second = Someone("a"), Someone("a")
    here.add(first)
    now_ms = 600
    here.add(second)
    here.expire()
    assert len(here) == 2
    now_ms = 1_000
    here.expire()
    assert first.ended
    assert not second.ended
    assert here.remove(second) == 600
    assert here.remove(second) is None
    now_ms = 10_000
    here.expire()
    assert not second.ended
    assert len(here) == 0


def test_who_changes_its_form_keeps_its_time() -> None:
    now_ms = 0
    here = Newcomers(lambda: now_ms, 10, 1_000)
    arrival, connection = Someone("a"), Someone("a")
    here.add(arrival)
    now_ms = 900
    here.add(connection, here.remove(arrival))
    now_ms = 1_000
    here.expire()
    assert connection.ended


def test_large_requests_of_all_together_are_few_bytes() -> None:
    newcomers = Newcomers(lambda: 0, 10, 1_000)
    first, second, third = (Someone("a") for _ in range(3))
    for each in (first, second, third):
        newcomers.add(each)
    assert newcomers.fits(first, LARGE_BYTES - 1_000_000)
    assert newcomers.fits(first, LARGE_BYTES - 1_000_000), "it is asked about the same request more than once"
    assert newcomers.fits(first, 70_000)
    assert newcomers.fits(second, 1_000_000)
    assert newcomers.large_bytes == LARGE_BYTES
    assert not newcomers.fits(second, 1_000_001)
    assert not newcomers.fits(third, SMALL_BYTES + 1)
    assert newcomers.fits(third, SMALL_BYTES)
    newcomers.remove(second)
    newcomers.remove(second)
    assert newcomers.fits(third, 1_000_000)
    assert newcomers.fits(second, 1 << 30), "it has shown who it is"
    for each in (first, third):
        newcomers.remove(each)
    assert newcomers.large_bytes == 0
