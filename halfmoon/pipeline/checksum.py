"""One number for a set of records, whatever the order they are met in, computed alike in Python and in Spark.

Each record is written down as bytes, hashed, and the hashes are added up. Addition, not XOR: a record that came twice
must change the sum. Partition and offset are hashed too, so that a sum that agrees also says that every record stands
where the producer put it; "order-independent" is about who adds, not about the records.

    record  =  partition ";" offset ";" timestamp-ms ";" field(key) field(value) { field(name) field(value) }
    field   =  "-;"                         for null
            |  length-in-bytes ":" bytes ";"
    number  =  the first 15 hexadecimal digits (60 bits) of SHA-256(record)

Lengths make the form unambiguous: no two different records have the same bytes. Sixty bits fit a signed long, so that
Spark can make the number with built-in functions, and a million of them stay far below its 38 decimal digits.
`audit.py` is the same in Spark's words; a test compares the two over odd records.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

HEX_DIGITS = 15

Headers = tuple[tuple[str, bytes | None], ...]


def field(data: bytes | None) -> bytes:
    return b"-;" if data is None else b"%d:%b;" % (len(data), data)


def record_number(
    partition: int, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers
) -> int:
    """The record's share of the sum, below 2**60."""
    parts = [b"%d;%d;%d;" % (partition, offset, timestamp_ms), field(key), field(value)]
    for name, content in headers:
        parts.append(field(name.encode()))
        parts.append(field(content))
    return int(hashlib.sha256(b"".join(parts)).hexdigest()[:HEX_DIGITS], 16)


@dataclass(slots=True, frozen=True)
class Checksum:
    """How many records, and the sum of their numbers."""

    count: int = 0
    total: int = 0

    def __str__(self) -> str:
        """The last 64 bits of the sum, for people; comparing is for `==`."""
        return f"{self.total % 2**64:016x}"

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Checksum:
        count = total = 0
        for number in numbers:
            count += 1
            total += number
        return cls(count, total)
