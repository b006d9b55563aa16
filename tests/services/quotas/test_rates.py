"""Rates over windows and token buckets: what they measure, and that whoever waits as told keeps to the bound."""

from __future__ import annotations

import random

import pytest

from halfmoon.services.quotas.rates import Rate, TokenBucket


def test_a_rate_is_measured_over_ten_windows_at_least() -> None:
    rate = Rate(11, 1000)
    rate.record(1000, 0)
    assert rate.elapsed_ms(0) == 10_000
    assert rate.per_second(0) == 100
    assert rate.per_second(500) == pytest.approx(1000 / 10.5)
    assert rate.per_second(1000) == 100  # a whole window is over, and one less is missing


def test_what_is_older_than_the_windows_is_forgotten() -> None:
    rate = Rate(3, 1000)
    rate.record(600, 0)
    rate.record(300, 1_500)
    assert rate.per_second(2_900) == pytest.approx(900 / 2.9)
    assert rate.per_second(3_000) == 300 / 2.5  # the first window's last event is three windows ago
    assert rate.per_second(60_000) == 0


def test_events_in_one_window_are_one_sample() -> None:
    rate = Rate(3, 1000)
    for at_ms in range(0, 1000, 100):
        rate.record(1, at_ms)
    assert rate.per_second(2_000) == 5
    assert rate.per_second(3_899) > 0
    assert rate.per_second(3_900) == 0


def test_what_is_taken_back_does_not_count() -> None:
    rate = Rate(11, 1000)
    rate.record(5_000, 0)
    rate.record(-5_000, 10)
    assert rate.per_second(20) == 0


def test_the_wait_brings_the_rate_to_the_bound() -> None:
    rate = Rate(11, 1000)
    rate.record(30_000, 100)
    wait_ms = rate.throttle_ms(1000, 100)
    assert wait_ms == 20_000
    assert rate.throttle_ms(1000, 100 + 20_000) == 0
    assert rate.throttle_ms(1_000_000, 100) == 0


@pytest.mark.parametrize("size", [100, 5_000, 10_000])
@pytest.mark.parametrize("seed", range(3))
def test_who_waits_as_told_keeps_to_the_bound(size: int, seed: int) -> None:
    """After the first windows, which may be filled at once, within 5 % of 10,000 a second.

    `size` is up to a second's worth. With larger requests it comes to up to 20 % more, as in Kafka, because a window is
    forgotten as a whole.
    """
    chance = random.Random(seed)
    rate, now_ms, sent, begun_ms = Rate(11, 1000), 0, 0, 0
    while now_ms < 180_000:
        value = chance.randint(size // 2, size)
        rate.record(value, now_ms)
        if now_ms >= 30_000:
            begun_ms = begun_ms or now_ms
            sent += value
        now_ms += max(rate.throttle_ms(10_000, now_ms), 1)
    assert sent / (now_ms - begun_ms) * 1000 == pytest.approx(10_000, rel=0.05)


def test_a_bucket_is_full_at_first_and_may_be_in_debt() -> None:
    bucket = TokenBucket(10)
    assert bucket.tokens(2, 5) == 20
    bucket.take(26, 2, 5)
    assert bucket.tokens(2, 5) == -6
    assert bucket.throttle_ms(2, 5) == 3_000
    assert bucket.throttle_ms(2, 1_005) == 2_000
    assert bucket.throttle_ms(2, 3_005) == 0
    assert bucket.tokens(2, 1_000_000) == 20
