"""Messages looked at: 100 B, TAGS and three properties, one in ten matching. The time is for one message."""

from __future__ import annotations

import json

import pyperf

from halfmoon.core.records.batches import build_batch
from halfmoon.core.records.compression import LZ4, NONE, ZSTD
from halfmoon.plugins.filter.sql92 import compile_sql
from halfmoon.plugins.filter.tag import compile_tags
from halfmoon.services.common.filtering import matching
from halfmoon.services.common.filters import MessageFilter

BATCHES = 10
"""For batches of one record, so that matching and others are both there."""

TAG = "wanted"
SQL = "TAGS = 'wanted' AND region IN ('HZ', 'SH') AND price BETWEEN 10 AND 20"
NO_NEEDLE = "NOT (TAGS <> 'wanted' OR price < 10 OR price > 20)"
"""The same cannot be told from bytes alone, so every record is read."""


JSON = "value.status = 'paid' AND value.total > 100 AND value.items[0].sku LIKE 'a%'"
JSON_NO_NEEDLE = "NOT (value.status <> 'paid' OR value.total < 100)"
"""Likewise, of values of 300 bytes."""


def add(runner: pyperf.Runner) -> None:
    for name, compiled in (
        ("tag", compile_tags(TAG)), ("SQL92, three conditions", compile_sql(SQL)),
        ("SQL92, every record read", compile_sql(NO_NEEDLE)),
    ):  # fmt: skip
        for codec_name, codec in (("", NONE), (", lz4", LZ4), (", zstd", ZSTD)):
            batch = _batch(range(100), codec)
            runner.bench_func(f"{name}, batches of 100{codec_name}", _look, compiled, [batch], inner_loops=100)
        ones = [_batch([number], NONE) for number in range(BATCHES)]
        runner.bench_func(f"{name}, batches of 1", _look, compiled, ones, inner_loops=BATCHES)
    values = build_batch((None, _order(number), 1_000 + number, ()) for number in range(100))
    for name, expression in (("one in ten parsed", JSON), ("every value parsed", JSON_NO_NEEDLE)):
        compiled = compile_sql(expression)
        runner.bench_func(f"SQL92 over JSON, {name}", _look, compiled, [values], inner_loops=100)


def _look(compiled: MessageFilter, batches: list[bytes]) -> None:
    for batch in batches:
        matching(batch, compiled)


def _order(number: int) -> bytes:
    order = {
        "id": f"order-{number}",
        "status": "paid" if number % 10 == 0 else "new",
        "total": 100.5 + number,
        "customer": {"name": "Ann Example", "country": "DE", "since": "2020-01-01"},
        "items": [{"sku": f"a-{item}", "quantity": 2, "price": 9.99} for item in range(4)],
    }
    return json.dumps(order).encode()


def _batch(numbers: range | list[int], codec: int) -> bytes:
    return build_batch(
        (
            (
                None,
                b"x" * 100,
                1_000 + number,
                [
                    ("TAGS", b"wanted" if number % 10 == 0 else b"other%d" % (number % 7)),
                    ("region", (b"HZ", b"SH")[number // 10 % 2]),
                    ("price", b"%d" % (10 + number % 11)),
                    ("KEYS", b"order-%d" % number),
                ],
            )
            for number in numbers
        ),
        codec=codec,
    )
