"""When records expire: by headers, by their topic, and by the shorter of both."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.core.records.batches import batch_body, build_batch, parse_header, set_log_append_time
from halfmoon.services.common.lifetimes import FOREVER, End, acting_topic, ends_of, expires_ms, milliseconds
from tests.chance import trying

TTL, EXPIRES = "halfmoon.ttl.ms", "halfmoon.expires.ms"
Headers = tuple[tuple[str, bytes | None], ...]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"1", 1),
        (b"0042", 42),
        (b"9" * 18, 10**18 - 1),
        (b"0", None),
        (b"-1", None),
        (b"1.5", None),
        (b"", None),
        (b"9" * 19, None),
        (b"5s", None),
        (None, None),
    ],
)
def test_a_number_of_milliseconds(content: bytes | None, said: int | None) -> None:
    assert milliseconds(content) == said


@pytest.mark.parametrize(
    ("headers", "timestamp", "ttl_ms", "end_ms"),
    [
        ((), 1_000, FOREVER, None),
        ((), 1_000, 50, 1_050),
        (((TTL, b"20"),), 1_000, FOREVER, 1_020),
        (((TTL, b"20"),), 1_000, 50, 1_020),
        (((TTL, b"70"),), 1_000, 50, 1_050),
        (((TTL, b"20"), (TTL, b"30")), 1_000, FOREVER, 1_030),
        (((TTL, b"soon"),), 1_000, FOREVER, None),
        (((TTL, b"20"),), -1, 50, None),
        (((EXPIRES, b"900"),), 1_000, FOREVER, 900),
        (((EXPIRES, b"900"), (TTL, b"20")), 1_000, FOREVER, 900),
        (((EXPIRES, b"9000"), (TTL, b"20")), 1_000, FOREVER, 1_020),
        (((EXPIRES, b"900"),), -1, 50, 900),
    ],
)
def test_the_shortest_counts(headers: Headers, timestamp: int, ttl_ms: int, end_ms: int | None) -> None:
    assert expires_ms(headers, timestamp, ttl_ms) == end_ms


def test_a_redelivered_message_is_of_the_topic_it_came_from() -> None:
    assert acting_topic("orders", (("RETRY_TOPIC", b"other"),)) == "orders"
    assert acting_topic("retry.billing", (("RETRY_TOPIC", b"orders"),)) == "orders"
    assert acting_topic("retry.billing", ()) == "retry.billing"


def ends(rows: list[Any], ttl_ms: int = FOREVER, *, by_header: bool = True, append_ms: int = 0) -> list[End]:
    batch = bytearray(build_batch(rows))
    if append_ms:
        set_log_append_time(memoryview(batch), append_ms)
    header = parse_header(batch)
    return list(ends_of(bytes(batch_body(batch)), header, "t", ttl_ms, by_header=by_header))


def test_only_records_that_say_so_expire() -> None:
    rows = [(None, b"a", 10, ()), (None, b"b", 20, ((TTL, b"5"),)), (None, TTL.encode(), 30, ())]
    assert ends(rows) == [End(1, 25, "t")]
    assert ends(rows, by_header=False) == []
    assert ends(rows, 7) == [End(0, 17, "t"), End(1, 25, "t"), End(2, 37, "t")]
    assert ends(rows, 7, by_header=False) == [End(0, 17, "t"), End(1, 27, "t"), End(2, 37, "t")]


def test_the_brokers_timestamp_counts_where_the_batch_has_it() -> None:
    rows = [(None, b"a", 10, ((TTL, b"5"),)), (None, b"b", 20, ())]
    assert ends(rows, append_ms=1_000) == [End(0, 1_005, "t")]
    assert ends(rows, 7, append_ms=1_000) == [End(0, 1_005, "t"), End(1, 1_007, "t")]


TTLS = st.one_of(st.just(()), st.integers(1, 90).map(lambda ms: ((TTL, b"%d" % ms),)))


@given(st.lists(st.tuples(st.integers(-1, 1_000), TTLS), min_size=1, max_size=20), st.sampled_from([FOREVER, 1, 40]))
@trying(100)
def test_a_batch_is_the_sum_of_its_records(rows: list[tuple[int, Headers]], ttl_ms: int) -> None:
    made = [(None, b"v", timestamp, headers) for timestamp, headers in rows]
    wanted = [
        (at, end) for at, (ms, headers) in enumerate(rows) if (end := expires_ms(headers, ms, ttl_ms)) is not None
    ]
    assert [each[:2] for each in ends(made, ttl_ms)] == wanted
