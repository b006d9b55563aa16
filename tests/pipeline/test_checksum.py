"""halfmoon.pipeline.checksum: what the number must tell apart. Its twin in Spark: tests/spark/test_audit.py."""

from __future__ import annotations

import hashlib
from itertools import permutations

from halfmoon.pipeline.checksum import Checksum, field, record_number

BASE = (0, 5, 1_000, b"key", b"value", (("TAGS", b"AA"),))
NEAR = [
    (1, 5, 1_000, b"key", b"value", (("TAGS", b"AA"),)),
    (0, 6, 1_000, b"key", b"value", (("TAGS", b"AA"),)),
    (0, 5, 1_001, b"key", b"value", (("TAGS", b"AA"),)),
    (0, 5, 1_000, None, b"value", (("TAGS", b"AA"),)),
    (0, 5, 1_000, b"", b"value", (("TAGS", b"AA"),)),
    (0, 5, 1_000, b"keyv", b"alue", (("TAGS", b"AA"),)),
    (0, 5, 1_000, b"key", None, (("TAGS", b"AA"),)),
    (0, 5, 1_000, b"key", b"value", (("TAGS", None),)),
    (0, 5, 1_000, b"key", b"value", (("TAGS", b"AA"), ("TAGS", b"AA"))),
    (0, 5, 1_000, b"key", b"value", ()),
]


def test_every_part_of_a_record_counts() -> None:
    assert len({record_number(*record) for record in [BASE, *NEAR]}) == len(NEAR) + 1


def test_the_bytes_are_as_documented() -> None:
    written = b"0;5;1000;3:key;5:value;4:TAGS;2:AA;"
    assert record_number(*BASE) == int(hashlib.sha256(written).hexdigest()[:15], 16)
    assert (field(None), field(b""), field(b"-;")) == (b"-;", b"0:;", b"2:-;;")


def test_order_does_not_count_but_repetition_does() -> None:
    numbers = [record_number(*record) for record in [BASE, *NEAR[:2]]]
    assert len({Checksum.of(order) for order in permutations(numbers)}) == 1
    assert Checksum.of([*numbers, numbers[0], numbers[0]]) != Checksum.of(numbers)
    assert Checksum.of([*numbers, numbers[0], numbers[0]]).total != Checksum.of(numbers).total
