"""Java's `String.hashCode`, which RocketMQ's tag codes (B03) and its queue selector by hash (B27) are made of."""

from __future__ import annotations


def string_hash(text: str | None) -> int:
    """`s[0]·31^(n−1) + … + s[n−1]` over UTF-16 code units, wrapped to a signed 32-bit int; None and "" are 0."""
    if not text:
        return 0
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFF_FFFF
    return value - (1 << 32) if value & 0x8000_0000 else value
