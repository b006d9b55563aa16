"""Timers of many owners: one that raises keeps no other from its deadline, and is asked again."""

from __future__ import annotations

from halfmoon.core.timers import PAUSE_MS, Timers


class Owner:
    """Is due at a time, and fails as often as it is told to."""

    def __init__(self, deadline_ms: int, failures: int = 0) -> None:
        self.deadline_ms: int | None = deadline_ms
        self.failures = failures
        self.expired: list[int] = []

    def next_deadline(self) -> int | None:
        return self.deadline_ms

    def expire(self, mono_ms: int) -> None:
        if self.deadline_ms is None or self.deadline_ms > mono_ms:
            return
        self.expired.append(mono_ms)
        if self.failures:
            self.failures -= 1
            raise ValueError("broken")
        self.deadline_ms = None


def test_one_that_raises_keeps_no_other_from_its_deadline_and_is_asked_again_after_a_pause() -> None:
    timers, errors = Timers(), list[str]()
    timers.on_error = lambda error: errors.append(str(error))
    broken, whole = Owner(10, failures=1), Owner(10)
    timers.add(broken)
    timers.add(whole)
    assert timers.next_deadline() == 10
    timers.expire(10)
    assert (whole.expired, broken.expired, errors) == ([10], [10], ["broken"])
    assert timers.next_deadline() == 10 + PAUSE_MS, "not at once, again and again"
    timers.expire(11)
    assert broken.expired == [10]
    timers.expire(10 + PAUSE_MS)
    assert (broken.expired, timers.next_deadline(), errors) == ([10, 10 + PAUSE_MS], None, ["broken"])


def test_while_one_rests_the_others_keep_their_times() -> None:
    timers = Timers()
    broken, whole = Owner(10, failures=1), Owner(20)
    timers.add(broken)
    timers.add(whole)
    timers.expire(10)
    assert timers.next_deadline() == 20
    timers.expire(20)
    assert whole.expired == [20]
