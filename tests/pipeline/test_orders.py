"""halfmoon.pipeline.orders: the same again for a seed, what it promises of the log, and its truth counted again."""

from __future__ import annotations

import itertools
import json
from collections import Counter

import pytest

from halfmoon.pipeline.orders import CART, FIRST_NUMBER, HOUR_MS, MINUTE_MS, ORDER, PAYMENT, Counts, Shop, Truth

START_MS = 1_772_323_200_000  # 2026-03-01, midnight in UTC
RULES = {"pay_within_ms": 15 * MINUTE_MS, "late_within_ms": 2 * HOUR_MS, "window_ms": HOUR_MS}
SHOP = Shop(1, 20_000, START_MS)


@pytest.fixture(scope="module")
def records():
    return list(SHOP.records())


@pytest.fixture(scope="module")
def truth():
    return SHOP.truth(**RULES)


def recounted(records, by, pay_within_ms, late_within_ms, window_ms, clock_skew_ms, as_of_ms) -> Truth:
    """The truth by brute force: from what stands in the records, with no help from the plan."""
    placed, paid, said, counts = {}, {}, Truth(), {}
    for record in records:
        headers = dict(record.headers)
        if headers["TAGS"] == b"TagA" and "KEYS" in headers:
            placed[headers["KEYS"]] = (record.timestamp_ms, *(headers[name].decode() for name in by))
        elif headers["TAGS"] == b"TagA":
            said.without_id += record.timestamp_ms + late_within_ms < as_of_ms
        elif headers["TAGS"] == b"TagB" and headers["status"] == b"paid":
            paid.setdefault(headers["KEYS"], {})[headers["payment_id"]] = record.timestamp_ms
    for key, (at, *values) in placed.items():
        if at + late_within_ms >= as_of_ms:
            continue
        after = sorted(t - at for t in paid.get(key, {}).values() if -clock_skew_ms <= t - at <= late_within_ms)
        outcome = "missing" if not after else "paid" if after[0] <= pay_within_ms else "late"
        counts.setdefault((at - at % window_ms, *values), Counter()).update(["orders", outcome])
        if outcome == "missing":
            said.missing.add(key.decode())
        if outcome == "late":
            said.late[key.decode()] = at + after[0]
        if len(after) > 1:
            said.paid_twice[key.decode()] = len(after)
    said.counts = {place: Counts(*(count[name] for name in Counts._fields)) for place, count in counts.items()}
    return said


def test_a_seed_says_it_all(records) -> None:
    assert list(SHOP.records()) == records
    assert list(itertools.islice(Shop(2, 20_000, START_MS).records(), 100)) != records[:100]


@pytest.mark.parametrize(
    ("by", "as_of_ms", "limits"),
    [
        (("region",), None, {}),
        (("region", "tier", "method"), START_MS + 24 * HOUR_MS, {}),
        ((), START_MS + 30 * HOUR_MS, {"pay_within_ms": MINUTE_MS, "late_within_ms": MINUTE_MS, "window_ms": 1_000}),
        (("tier",), None, {"late_within_ms": 5 * HOUR_MS, "clock_skew_ms": 0}),
    ],
)
def test_the_truth_is_what_the_records_say(records, by, as_of_ms, limits) -> None:
    said = SHOP.truth(by=by, as_of_ms=as_of_ms, **{**RULES, **limits})
    again = {"clock_skew_ms": MINUTE_MS, **RULES, **limits}
    assert said == recounted(records, by, as_of_ms=as_of_ms or START_MS + 1_000 * HOUR_MS, **again)
    assert said.counts
    assert said.missing


def test_nothing_is_later_than_was_promised(records) -> None:
    seen, latest, lateness, copies = set(), 0, [], 0
    for record in records:
        if record in seen:
            assert latest - record.timestamp_ms <= SHOP.max_lateness_ms + SHOP.duplicate_within_ms
            copies += 1
        else:
            lateness.append(latest - record.timestamp_ms)
        seen.add(record)
        latest = max(latest, record.timestamp_ms)
    assert 0.9 * SHOP.max_lateness_ms < max(lateness) < SHOP.max_lateness_ms
    assert 0.005 < copies / len(records) < 0.02


def test_without_lateness_the_log_is_in_the_order_of_events() -> None:
    times = [
        record.timestamp_ms for record in Shop(3, 2_000, START_MS, max_lateness_ms=0, duplicate_within_ms=0).records()
    ]
    assert all(later >= earlier - 1 for earlier, later in itertools.pairwise(times))


def test_shares_are_believable(truth) -> None:
    orders, paid, late, missing = (sum(c[n] for c in truth.counts.values()) for n in range(4))
    assert orders == paid + late + missing == 20_000 - truth.without_id
    assert 0.90 < paid / orders < 0.95
    assert 0.01 < late / orders < 0.05
    assert 0.03 < missing / orders < 0.08
    assert 0 < truth.without_id < 60
    assert 30 < len(truth.paid_twice) < 200


def test_the_day_has_a_rhythm_and_the_outage_a_dip(truth) -> None:
    europe = {place[0]: c.orders for place, c in truth.counts.items() if place[1] == "europe"}
    assert europe[START_MS + 19 * HOUR_MS] > 5 * europe[START_MS + 2 * HOUR_MS]
    share = {place: c.paid / c.orders for place, c in truth.counts.items()}
    assert share[START_MS + 21 * HOUR_MS, "americas"] < 0.6 < 0.85 < share[START_MS + 23 * HOUR_MS, "americas"]
    assert share[START_MS + 21 * HOUR_MS, "europe"] > 0.85


def test_records_are_what_their_headers_say(records) -> None:
    tags = Counter(record.tag for record in records)
    assert set(tags) == {ORDER, PAYMENT, CART}
    for record in records:
        value, headers = json.loads(record.value), dict(record.headers)
        assert headers["TAGS"].decode() == record.tag
        assert headers.get("KEYS", record.key) == record.key == b"O%d" % record.number
        assert 0 <= record.partition(4) < 4
        if record.tag == PAYMENT:
            assert (value["status"], value["payment"]) == (headers["status"].decode(), headers["payment_id"].decode())
    assert Counter(dict(r.headers)["status"] for r in records if r.tag == PAYMENT)[b"declined"] > 500
    assert any(record.number < FIRST_NUMBER for record in records), "payments for orders before the log"


def test_a_few_payments_stand_on_the_limits_and_before_their_orders(records) -> None:
    ordered = {record.key: record.timestamp_ms for record in records if record.tag == ORDER}
    after = [r.timestamp_ms - ordered[r.key] for r in records if r.tag == PAYMENT and r.key in ordered]
    assert after.count(SHOP.pay_within_ms) > 5
    assert after.count(SHOP.late_within_ms) > 1
    assert any(-20_000 <= ms < 0 for ms in after)
    assert any(ms > SHOP.late_within_ms for ms in after)


def test_closing_events_are_no_part_of_the_truth() -> None:
    shop = Shop(1, 500, START_MS, closing=True)
    *log, order, payment = shop.records()
    assert log == list(Shop(1, 500, START_MS).records())
    assert (order.tag, payment.tag, order.key) == (ORDER, PAYMENT, payment.key)
    assert order.timestamp_ms > max(record.timestamp_ms for record in log) + 24 * HOUR_MS
    assert shop.truth(**RULES) == Shop(1, 500, START_MS).truth(**RULES)
