"""A shop that does not exist: orders, payments and what a right report must say about them. Pure Python, seeded.

Two things are kept apart, each with its own random numbers. The *plan* is what happened: who ordered when, and each
attempt to pay. The *delivery* is how the log heard of it: delays, retries that write a record twice, other events in
between. `truth` looks at the plan alone, so it shares no step with a job that joins the records.

    plan      order ──► declined ──► paid            at most one paid attempt, but for a few orders paid twice
    delivery  event time + delay < max_lateness_ms   the log's order; a copy comes up to duplicate_within_ms later

What is true of the log: a record is less than `max_lateness_ms` older than any before it, copies aside. Copies of an
order or a payment are equal in every byte and in time. All records of an order are in one partition, and orders take
turns in partitions, so that these stay close in time when a stream reads each in proportion to its length.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random
from typing import NamedTuple

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS

ORDER, PAYMENT, CART = "TagA", "TagB", "TagC"

FIRST_NUMBER = 10_000_000
"""Orders are numbered from here on; lower numbers were placed before the log began."""

PROVIDER_BEHIND_MS = 20 * SECOND_MS
"""A payment provider's clock may be so far behind the shop's: such a payment is dated before its order."""

CLOSING_AFTER_MS = 7 * 24 * HOUR_MS

_RHYTHM = (2, 1, 1, 1, 1, 2, 4, 6, 8, 9, 9, 10, 11, 10, 9, 9, 10, 11, 13, 15, 16, 13, 8, 4)
"""How much is bought in each hour of a region's own day."""

# Shares of all orders or, from _CART_SHARE on, of all records.
_WITHOUT_ID_SHARE = 0.001
_TOO_LATE_SHARE = 0.004
_BEHIND_SHARE = 0.003
_DECLINED_FIRST_SHARE = 0.06
_PAID_TWICE_SHARE = 0.004
_THROUGH_SHARE = 0.15  # of attempts during the outage: it is seldom complete
_COMES_BACK_SHARE = 0.45  # of those whose attempt failed in the outage
_CART_SHARE = 0.4
_COPY_SHARE = 0.01

_SORT_EVERY = 10_000


class Region(NamedTuple):
    name: str
    share: float
    utc_offset_h: int
    unpaid_share: float
    late_share: float


class Tier(NamedTuple):
    name: str
    share: float
    unpaid_factor: float
    median_amount: float


class Method(NamedTuple):
    name: str
    share: float
    median_min: float
    late_factor: float


REGIONS = (
    Region("europe", 0.44, 1, 0.030, 0.015),
    Region("americas", 0.31, -5, 0.045, 0.025),
    Region("asia", 0.18, 8, 0.025, 0.010),
    Region("oceania", 0.07, 10, 0.035, 0.020),
)
TIERS = (Tier("new", 0.45, 1.6, 24.0), Tier("regular", 0.40, 1.0, 38.0), Tier("gold", 0.15, 0.4, 75.0))
METHODS = (Method("card", 0.60, 1.2, 1.0), Method("wallet", 0.28, 0.4, 0.5), Method("transfer", 0.12, 4.0, 3.0))


class Record(NamedTuple):
    """One record; `number` is its order's and decides the partition."""

    timestamp_ms: int
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    tag: str
    number: int

    def partition(self, partitions: int) -> int:
        return self.number % partitions


class Attempt(NamedTuple):
    at_ms: int
    paid: bool


class Order(NamedTuple):
    """The plan of one order. An order without an id was written by a client that forgot the header KEYS."""

    number: int
    ordered_ms: int
    region: Region
    tier: Tier
    method: Method
    amount_cents: int
    attempts: list[Attempt]
    has_id: bool

    def property(self, name: str) -> str:
        """The header `region`, `tier` or `method`, by which reports may group."""
        return {"region": self.region.name, "tier": self.tier.name, "method": self.method.name}[name]


class Counts(NamedTuple):
    orders: int
    paid: int
    late: int
    missing: int


@dataclass(slots=True)
class Truth:
    """What a right report says.

    `counts` is by (start of the window in ms, the values of `by` …). `late` maps an order's id to when it was paid
    (ms), `paid_twice` to how many payments were made for it; `without_id` is a number of records.
    """

    counts: dict[tuple[int | str, ...], Counts] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    paid_twice: dict[str, int] = field(default_factory=dict)
    without_id: int = 0


@dataclass(slots=True, frozen=True)
class Shop:
    """`orders` orders from `start_ms` (UTC) on, spread over `hours` in the rhythm of days.

    `pay_within_ms` and `late_within_ms` are what the plan aims at, so that some payments fall on either side of each
    and a few on the very millisecond. A `slow_share` of the records arrives not at once but at any time up to
    `max_lateness_ms` after the event. The provider of `outage_region` is down for `outage_minutes`, from
    `outage_after_h` hours after the start on. With `closing` the log ends with an order and its payment a week after
    everything else: a stream that has read them has decided every other order.
    """

    seed: int
    orders: int
    start_ms: int
    hours: float = 48.0
    pay_within_ms: int = 15 * MINUTE_MS
    late_within_ms: int = 2 * HOUR_MS
    max_lateness_ms: int = 10 * MINUTE_MS
    slow_share: float = 0.03
    duplicate_within_ms: int = 20 * MINUTE_MS
    outage_region: str = "americas"
    outage_after_h: float = 20.25
    outage_minutes: int = 90
    closing: bool = False

    def records(self) -> Iterator[Record]:
        """All records in the order in which they arrive."""
        random = Random(f"{self.seed} delivery")
        arriving: list[tuple[int, Record]] = []
        self._deliver(arriving, random, self._before_the_log(random))
        for order in self.plan():
            if order.number % _SORT_EVERY == 0:
                # Whatever follows arrives later than this; and what is left is nearly sorted, so sorting is cheap.
                arriving.sort()
                done = bisect(arriving, (order.ordered_ms - PROVIDER_BEHIND_MS,))
                yield from (record for _, record in arriving[:done])
                del arriving[:done]
            self._deliver(arriving, random, _records_of(order, cart=random.random() < _CART_SHARE))
        arriving.sort()
        yield from (record for _, record in arriving)
        if self.closing:
            yield from self._closing(arriving[-1][0] + CLOSING_AFTER_MS)

    def truth(
        self,
        *,
        pay_within_ms: int,
        late_within_ms: int,
        window_ms: int,
        by: Sequence[str] = ("region",),
        clock_skew_ms: int = MINUTE_MS,
        as_of_ms: int | None = None,
    ) -> Truth:
        """What a report with these rules must say; of orders for which all time to pay ended before `as_of_ms`."""
        said = Truth()
        for order in self.plan():
            if as_of_ms is not None and order.ordered_ms + late_within_ms >= as_of_ms:
                continue
            if not order.has_id:
                said.without_id += 1
                continue
            earliest, latest = order.ordered_ms - clock_skew_ms, order.ordered_ms + late_within_ms
            times = [
                attempt.at_ms for attempt in order.attempts if attempt.paid and earliest <= attempt.at_ms <= latest
            ]
            paid = bool(times) and min(times) <= order.ordered_ms + pay_within_ms
            if not times:
                said.missing.add(order_id(order.number))
            elif not paid:
                said.late[order_id(order.number)] = min(times)
            if len(times) > 1:
                said.paid_twice[order_id(order.number)] = len(times)
            window: int | str = order.ordered_ms // window_ms * window_ms
            place = (window, *(order.property(name) for name in by))
            so_far = said.counts.get(place, Counts(0, 0, 0, 0))
            one = (1, paid, bool(times) and not paid, not times)
            said.counts[place] = Counts(*(count + more for count, more in zip(so_far, one, strict=True)))
        return said

    def plan(self) -> Iterator[Order]:
        """What happened, by time of order."""
        random = Random(f"{self.seed} plan")
        tiers, methods = _cumulated(TIERS), _cumulated(METHODS)
        for number, (ordered_ms, regions) in enumerate(self._times(random), FIRST_NUMBER):
            region = REGIONS[bisect(regions, random.random())]
            tier = TIERS[bisect(tiers, random.random())]
            method = METHODS[bisect(methods, random.random())]
            cents = 1 + int(100 * tier.median_amount * random.lognormvariate(0, 0.9))
            has_id = random.random() >= _WITHOUT_ID_SHARE
            attempts = self._attempts(random, ordered_ms, region, tier, method) if has_id else []
            yield Order(number, ordered_ms, region, tier, method, cents, attempts, has_id)

    def _times(self, random: Random) -> Iterator[tuple[int, list[float]]]:
        """Rising times of orders, each with the cumulated shares that the regions have of its hour's orders."""
        hours = [self._hour(self.start_ms + int(n * HOUR_MS)) for n in range(int(self.hours) + 1)]
        lengths = [min(1.0, self.hours - n) for n in range(len(hours))]
        ends = list(accumulate(weight * length for (weight, _), length in zip(hours, lengths, strict=True)))
        n = 0
        for i in range(self.orders):
            # One order in each of as many equal shares of the demand, anywhere in it.
            at = (i + random.random()) / self.orders * ends[-1]
            while at >= ends[n] and n + 1 < len(ends):
                n += 1
            weight, regions = hours[n]
            begin = ends[n] - weight * lengths[n]
            yield self.start_ms + int((n + (at - begin) / weight) * HOUR_MS), regions

    def _hour(self, at_ms: int) -> tuple[float, list[float]]:
        wanted = [r.share * _RHYTHM[(at_ms // HOUR_MS + r.utc_offset_h) % 24] for r in REGIONS]
        total = sum(wanted)
        return total, [upto / total for upto in accumulate(wanted[:-1])]

    def _attempts(self, random: Random, ordered_ms: int, region: Region, tier: Tier, method: Method) -> list[Attempt]:
        unpaid = region.unpaid_share * tier.unpaid_factor
        if random.random() < unpaid:
            return _declined(random, ordered_ms, ordered_ms + self.pay_within_ms, int(random.random() * 3))
        paid_ms = ordered_ms + self._delay(random, region, method)
        attempts: list[Attempt] = []
        if self._is_down(region, paid_ms) and random.random() >= _THROUGH_SHARE:
            attempts.append(Attempt(paid_ms, paid=False))
            if random.random() >= _COMES_BACK_SHARE:
                return attempts
            paid_ms = self._outage_end_ms + int(random.expovariate(1 / (15 * MINUTE_MS)))
        elif random.random() < _DECLINED_FIRST_SHARE:
            attempts += _declined(random, ordered_ms, paid_ms, 1 + int(random.random() * 2))
        attempts.append(Attempt(paid_ms, paid=True))
        if random.random() < _PAID_TWICE_SHARE:
            attempts.append(Attempt(paid_ms + SECOND_MS + int(random.random() * 90 * SECOND_MS), paid=True))
        return attempts

    def _delay(self, random: Random, region: Region, method: Method) -> int:
        """How long after the order it is paid, in ms, if nothing is in the way.

        Cutting at the limits puts a few payments exactly on them, which is where reports go wrong.
        """
        kind = random.random()
        late_share = region.late_share * method.late_factor
        if kind < late_share:
            after = self.pay_within_ms + 1 + int(random.expovariate(1 / (35 * MINUTE_MS)))
            return min(after, self.late_within_ms)
        if kind < late_share + _TOO_LATE_SHARE:
            return self.late_within_ms + 1 + int(random.random() ** 3 * self.late_within_ms)
        if kind < late_share + _TOO_LATE_SHARE + _BEHIND_SHARE:
            return -1 - int(random.random() * (PROVIDER_BEHIND_MS - 1))
        return min(int(method.median_min * MINUTE_MS * random.lognormvariate(0, 0.8)), self.pay_within_ms)

    def _deliver(self, arriving: list[tuple[int, Record]], random: Random, records: Iterable[Record]) -> None:
        """Add each record with the time at which it arrives, and some of them a second time."""
        for record in records:
            slow = random.random() < self.slow_share
            delay_ms = random.random() * (self.max_lateness_ms if slow else min(2 * SECOND_MS, self.max_lateness_ms))
            arrives_ms = record.timestamp_ms + int(delay_ms)
            arriving.append((arrives_ms, record))
            # Two orders without an id cannot be told from one that was written twice, so these have no copies.
            if random.random() < _COPY_SHARE and record.headers[1][0] == "KEYS":
                arriving.append((arrives_ms + 1 + int(random.random() * self.duplicate_within_ms), record))

    def _before_the_log(self, random: Random) -> Iterator[Record]:
        """Payments for orders that were placed before the log began."""
        for back in range(1, 2 + self.orders // 500):
            paid = Attempt(self.start_ms + int(random.random() * self.late_within_ms), paid=True)
            order = Order(FIRST_NUMBER - back, 0, REGIONS[0], TIERS[0], METHODS[0], 1_000 + back, [paid], has_id=True)
            yield from _payments(order)

    def _closing(self, at_ms: int) -> Iterator[Record]:
        paid = [Attempt(at_ms, paid=True)]
        last = Order(FIRST_NUMBER + self.orders, at_ms, REGIONS[0], TIERS[0], METHODS[0], 1, paid, has_id=True)
        return iter(_records_of(last, cart=False))

    def _is_down(self, region: Region, at_ms: int) -> bool:
        end_ms = self._outage_end_ms
        return region.name == self.outage_region and end_ms - self.outage_minutes * MINUTE_MS <= at_ms < end_ms

    @property
    def _outage_end_ms(self) -> int:
        return self.start_ms + int(self.outage_after_h * HOUR_MS) + self.outage_minutes * MINUTE_MS


def order_id(number: int) -> str:
    return f"O{number}"


def _records_of(order: Order, *, cart: bool) -> list[Record]:
    """The order's record, that of its cart if there is one, and one for each attempt to pay.

    The cart's carries the order's id too: only the tag tells them apart.
    """
    number, at_ms, region, tier, method = order[:5]
    key = order_id(number)
    kinds = (("region", region.name.encode()), ("tier", tier.name.encode()), ("method", method.name.encode()))
    keys = (("KEYS", key.encode()),)
    amount = f"{order.amount_cents / 100:.2f}"
    value = f'{{"order":"{key}","amount":{amount},"region":"{region.name}","tier":"{tier.name}"}}'
    headers = (("TAGS", ORDER.encode()), *(keys if order.has_id else ()), *kinds, ("amount", amount.encode()))
    records = [Record(at_ms, key.encode(), value.encode(), headers, ORDER, number)]
    if cart:
        headers = (("TAGS", CART.encode()), *keys, *kinds)
        records.append(Record(at_ms, key.encode(), f'{{"cart":"{key}"}}'.encode(), headers, CART, number))
    return records + _payments(order)


def _payments(order: Order) -> list[Record]:
    number, amount, method = order.number, f"{order.amount_cents / 100:.2f}", order.method.name
    key = order_id(number)
    records = []
    for n, (at_ms, paid) in enumerate(order.attempts, 1):
        status, payment_id = "paid" if paid else "declined", f"P{number}-{n}"
        value = f'{{"payment":"{payment_id}","order":"{key}","amount":{amount},"status":"{status}"}}'
        headers = (
            ("TAGS", PAYMENT.encode()),
            ("KEYS", key.encode()),
            ("method", method.encode()),
            ("status", status.encode()),
            ("payment_id", payment_id.encode()),
            ("amount", amount.encode()),
        )
        records.append(Record(at_ms, key.encode(), value.encode(), headers, PAYMENT, number))
    return records


def _declined(random: Random, from_ms: int, to_ms: int, count: int) -> list[Attempt]:
    """So many attempts in vain between two times, of which either may be the earlier one."""
    return [
        Attempt(at, paid=False)
        for at in sorted(from_ms + int(random.random() * (to_ms - from_ms)) for _ in range(count))
    ]


def _cumulated(kinds: Sequence[Tier | Method]) -> list[float]:
    return list(accumulate(kind.share for kind in kinds[:-1]))
