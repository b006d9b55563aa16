"""Ways to spoil a request: lies in one token, changed bytes, cuts, and batches whose checksum is right all the same."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

from halfmoon.core.crc import crc32c
from halfmoon.core.records.batches import HEADER_BYTES
from tests.fuzz.grammar import Kind, Token, join

LENGTHS = (-1, -2, -(2**31), 2**31 - 1, 2**31 - 4, 2**24, 2**16, 32767, -32768, 1, 0)
VARINTS = (
    b"\x00", b"\x01", b"\x7f", b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x08", b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x7f", b"\xff" * 9 + b"\x01", b"\xff" * 64, b"\x80" * 5 + b"\x00", b"\x80\x00",
)  # fmt: skip
NUMBERS = (0, 1, -1, -2, 127, -128, 32767, -32768, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))

CRC_AT, CRC_START = 17, 21
BATCH_FIELDS = {"length": (8, ">i"), "magic": (16, ">b"), "attributes": (21, ">h"), "last delta": (23, ">i"),
                "base time": (27, ">q"), "max time": (35, ">q"), "producer": (43, ">q"), "epoch": (51, ">h"),
                "sequence": (53, ">i"), "count": (57, ">i")}  # fmt: skip


def lie(chance: Random, tokens: list[Token]) -> bytes:
    """Put something hostile in the place of one to three tokens. The four of the header's beginning stay."""
    changed = list(tokens)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        index = chance.randrange(3, len(changed))
        changed[index] = Token(changed[index].kind, hostile(chance, changed[index]), changed[index].compact)
    return join(changed)


def hostile(chance: Random, token: Token) -> bytes:
    """Other bytes in the place of a token's."""
    size = len(token.data)
    if token.kind is Kind.TAGS or (token.kind is Kind.LENGTH and token.compact):
        return chance.choice(VARINTS)
    if token.kind is Kind.LENGTH:
        return chance.choice(LENGTHS).to_bytes(8, "big", signed=True)[-size:]
    if token.kind is Kind.RECORDS:
        return lying_batch(chance, token.data)
    if token.kind is Kind.NUMBER:
        return chance.choice(NUMBERS).to_bytes(8, "big", signed=True)[-size:]
    raw = token.data
    return chance.choice((b"", chance.randbytes(size), b"\xff" * size, raw * 3, raw[:-1], b"\xc3\x28" * 9))


def flip(chance: Random, tokens: list[Token]) -> bytes:
    """Change some bytes anywhere behind the version."""
    body = bytearray(join(tokens))
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        body[chance.randrange(4, len(body))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    return bytes(body)


def cut(chance: Random, tokens: list[Token]) -> bytes:
    """The beginning of a request, framed as if it were all."""
    body = join(tokens)
    return body[: chance.randrange(4, len(body))]


def shuffle(chance: Random, tokens: list[Token]) -> bytes:
    """Leave tokens out, or say them twice."""
    changed = list(tokens)
    for _ in range(chance.choice((1, 2, 4))):
        index = chance.randrange(4, len(changed)) if len(changed) > 4 else 3
        if chance.random() < 0.5 and len(changed) > 5:
            del changed[index]
        else:
            changed[index:index] = changed[index : index + chance.choice((1, 3))]
    return join(changed)


def noise(chance: Random, tokens: list[Token]) -> bytes:
    """An honest header, and random bytes behind it."""
    return join(tokens[:5]) + chance.randbytes(chance.randrange(200))


MUTATIONS: tuple[Callable[[Random, list[Token]], bytes], ...] = (lie, lie, lie, flip, cut, shuffle, noise)


def lying_batch(chance: Random, batch: bytes) -> bytes:
    """A batch that says what is not so; its checksum is right, so that the lie is believed at first."""
    changed = bytearray(batch)
    if len(changed) < HEADER_BYTES:
        return bytes(changed)
    for _ in range(chance.choice((1, 1, 2))):
        if chance.random() < 0.5:
            at, layout = BATCH_FIELDS[chance.choice(list(BATCH_FIELDS))]
            size = struct.calcsize(layout)
            changed[at : at + size] = chance.choice(NUMBERS).to_bytes(8, "big", signed=True)[-size:]
        elif len(changed) > HEADER_BYTES:
            at = chance.randrange(HEADER_BYTES, len(changed))
            changed[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    if chance.random() < 0.1:
        changed = changed[: chance.randrange(len(changed))]
    if chance.random() < 0.1:
        changed += bytes(changed)
    return sealed(changed) if chance.random() < 0.9 else bytes(changed)


def sealed(batch: bytearray) -> bytes:
    """With the checksum that belongs to these bytes."""
    if len(batch) >= CRC_START:
        struct.pack_into(">I", batch, CRC_AT, crc32c(memoryview(batch)[CRC_START:]))
    return bytes(batch)
