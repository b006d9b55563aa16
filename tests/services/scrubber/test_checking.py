"""Frames of one file, judged piece by piece: the pieces' borders change nothing."""

from __future__ import annotations

import random

import pytest

from halfmoon.core.storage.frame import HEADER_BYTES, Frame, Kind, encode
from halfmoon.services.scrubber.checking import Corrupt, check
from tests.core.bench import batch

START = 5 * (1 << 24) - 3_000
"""So that a border of the search's windows lies among the frames."""


def frame_of(position: int, kind: Kind, payload: bytes, offset: int, provenance: bytes = b"") -> bytes:
    length = HEADER_BYTES + len(provenance) + len(payload)
    header = encode(kind, length, position, 0, 3, 1, 0, 1, offset, 1, 1, 0, payload_crc=0, provenance=provenance)
    return header + payload


def batch_at(offset: int, size: int) -> bytes:
    made = batch(b"x" * size)
    made[:8] = offset.to_bytes(8, "big")
    made[12:16] = (3).to_bytes(4, "big")
    return bytes(made)


def file_of(sizes: list[int], rest: int = 500) -> tuple[bytearray, list[tuple[int, int]]]:
    """A file's bytes, and where its batches stand."""
    data, places = bytearray(), []
    for offset, size in enumerate(sizes):
        position = START + len(data)
        data += frame_of(position, Kind.BATCH, batch_at(offset, size), offset, b"p" * (offset % 3 * 40))
        places.append((position, START + len(data)))
    end = encode(Kind.END, HEADER_BYTES + rest, START + len(data), 0, 3, -1, -1, 0, 0, 0, 0, 0)
    return data + end + bytes(rest), places


def walk(data: bytearray, piece_bytes: int, stop: int | None = None) -> tuple[list[Corrupt], list[Frame]]:
    """As the service does it."""
    end = START + len(data)
    at, lost_from, needs = START, None, 0
    corrupt: list[Corrupt] = []
    batches: list[Frame] = []
    for _ in range(len(data) + 10):
        if at >= end:
            assert lost_from is None
            return corrupt, batches
        high = min(at + max(piece_bytes, needs), end)
        found = check(memoryview(data)[at - START : high - START], at, end, lost_from, batches.append)
        corrupt += found.corrupt
        at, lost_from, needs = found.upto, found.lost_from, found.needs
    raise AssertionError("it makes no way")


PIECES = [HEADER_BYTES + 1, 200, 333, 1_000, 4_096, 1 << 20]


@pytest.mark.parametrize("piece_bytes", PIECES)
def test_a_whole_file(piece_bytes: int) -> None:
    data, places = file_of([10, 3_000, 0, 500, 200, 7_000])
    corrupt, batches = walk(data, piece_bytes)
    assert corrupt == []
    assert [(frame.position, frame.end) for frame in batches] == places


@pytest.mark.parametrize("piece_bytes", PIECES)
@pytest.mark.parametrize(
    "where", ["magic", "length", "provenance length", "list", "header crc", "payload", "last byte"]
)
def test_one_byte(piece_bytes: int, where: str) -> None:
    data, places = file_of([10, 3_000, 50, 500, 200, 70])
    low, high = places[2]
    at = {
        "magic": 0, "length": 10, "provenance length": 14, "list": HEADER_BYTES + 7, "header crc": 89,
        "payload": HEADER_BYTES + 80 + 30, "last byte": high - low - 1,
    }[where]  # fmt: skip
    data[low - START + at] ^= 0x41
    corrupt, batches = walk(data, piece_bytes)
    ((found_low, found_high, frame),) = corrupt
    assert (found_low, found_high) == (low, high)
    assert (frame is not None) == (where in ("payload", "last byte"))
    assert [each.base_offset for each in batches] == [0, 1, 3, 4, 5]


@pytest.mark.parametrize("piece_bytes", PIECES)
def test_neighbours_and_the_ends(piece_bytes: int) -> None:
    data, places = file_of([100] * 8)
    for nth in (0, 3, 4, 7):
        data[places[nth][0] - START] ^= 0x41
    assert [(low, high) for low, high, _ in walk(data, piece_bytes)[0]] == [
        places[0],
        (places[3][0], places[4][1]),
        places[7],
    ]
    data[places[7][1] - START] ^= 0x41  # the end frame: behind it is nothing
    assert walk(data, piece_bytes)[0][-1][:2] == (places[7][0], START + len(data))


@pytest.mark.parametrize("seed", range(40))
def test_pieces_of_any_size_find_the_same(seed: int) -> None:
    dice = random.Random(seed)
    data, _ = file_of([dice.choice((0, 60, 900, 5_000)) for _ in range(12)])
    for _ in range(dice.randrange(6)):
        at, count = dice.randrange(len(data)), dice.choice((1, 1, 4, 300))
        data[at : at + count] = dice.randbytes(len(data[at : at + count]))
    whole = walk(data, 1 << 20)
    for piece_bytes in (HEADER_BYTES + 1, 150, 700, 3_000):
        assert walk(data, piece_bytes) == whole
