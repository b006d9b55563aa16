"""Frames: the bytes, and that nothing wrong passes for one."""

from __future__ import annotations

import struct
from pathlib import Path

import crcmod.predefined
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.core.records.batch_header import stamp
from halfmoon.core.storage import frame
from halfmoon.core.storage.frame import (
    HEADER_BYTES,
    BadFrameError,
    Kind,
    UnknownVersionError,
    check_payload,
    decode,
    encode,
)
from halfmoon.testing import Broker
from tests.core.bench import batch


def control_frame(position: int = 5000, payload: bytes = b"payload", **fields: int) -> bytes:
    head = encode(
        Kind.CONTROL, HEADER_BYTES + len(payload), position, 4000, 3, -1, -1, 0, 0, 0, 0, 1_700_000_000_000,
        payload_crc=frame.control_crc(payload), **fields,
    )  # fmt: skip
    return head + payload


def test_the_bytes_are_where_the_picture_says() -> None:
    """Written down by hand from the module's head, with another CRC implementation."""
    crc = crcmod.predefined.mkPredefinedCrcFun("crc-32c")
    provenance = b"from elsewhere"
    fields = (
        b"HMf1" + bytes([1, 1]) + struct.pack("<H", 5) + struct.pack("<I", 92 + 14 + 100) + struct.pack("<I", 14)
        + struct.pack("<q", 1 << 40) + struct.pack("<q", (1 << 40) - 7) + struct.pack("<I", 12) + struct.pack("<i", 7)
        + struct.pack("<i", 2) + struct.pack("<i", 30) + struct.pack("<q", 1 << 33) + struct.pack("<I", 31)
        + struct.pack("<I", 32) + struct.pack("<q", 1_700_000_000_000) + struct.pack("<q", 1_700_000_000_001)
        + struct.pack("<H", 1) + struct.pack("<H", 3) + struct.pack("<I", 0xDEADBEEF)
    )  # fmt: skip
    assert len(fields) == 88
    expected = fields + struct.pack("<I", crc(fields + provenance)) + provenance
    made = encode(
        Kind.BATCH, 92 + 14 + 100, 1 << 40, (1 << 40) - 7, 12, 7, 2, 30, 1 << 33, 31, 32, 1_700_000_000_000,
        flags=5, due_ms=1_700_000_000_001, part=1, parts=3, payload_crc=0xDEADBEEF, provenance=provenance,
    )  # fmt: skip
    assert made == expected
    found = decode(memoryview(made + bytes(100)), 1 << 40, 1 << 40)
    assert found == (
        1, 5, 206, 14, 1 << 40, (1 << 40) - 7, 12, 7, 2, 30, 1 << 33, 31, 32,
        1_700_000_000_000, 1_700_000_000_001, 1, 3, 0xDEADBEEF,
    )  # fmt: skip
    assert found.payload_position == (1 << 40) + 106
    assert found.payload_length == 100
    assert found.end == (1 << 40) + 206


@given(st.data())
def test_a_frame_with_any_bit_flipped_is_none(data: st.DataObject) -> None:
    whole = bytearray(control_frame())
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    whole[bit // 8] ^= 1 << bit % 8
    view = memoryview(bytes(whole))
    with pytest.raises(BadFrameError):
        check_payload(decode(view, 5000, 5000), view[HEADER_BYTES:])


def test_a_frame_counts_only_where_it_says_it_stands() -> None:
    moved = memoryview(bytes(64) + control_frame(5000))
    decode(moved, 5000, 5000 - 64)
    with pytest.raises(BadFrameError, match="another place"):
        decode(moved, 64, 0)


@pytest.mark.parametrize("length", [0, 10, HEADER_BYTES - 1])
def test_a_header_cut_off_is_none(length: int) -> None:
    with pytest.raises(BadFrameError):
        decode(memoryview(control_frame())[:length], 5000, 5000)


def test_a_frame_must_end_within_the_segment() -> None:
    whole = memoryview(control_frame())
    decode(whole, 5000, 5000)
    with pytest.raises(BadFrameError, match="runs out"):
        decode(whole[:-1], 5000, 5000)


def test_a_provenance_list_longer_than_the_segment_is_not_followed() -> None:
    whole = bytearray(control_frame())
    struct.pack_into("<I", whole, 12, 1 << 30)
    with pytest.raises(BadFrameError, match="provenance"):
        decode(memoryview(bytes(whole)), 5000, 5000)


def test_a_batch_must_agree_with_its_frame() -> None:
    data = batch(b"value")
    stamp(data, 17, 3)
    head = encode(Kind.BATCH, HEADER_BYTES + len(data), 0, 0, 3, 1, 0, 1, 17, 1, 1, 0)
    found = decode(memoryview(head + bytes(data)), 0, 0)
    check_payload(found, data)
    for field, value in (("base_offset", 18), ("generation", 4)):
        with pytest.raises(BadFrameError, match="disagree"):
            check_payload(found._replace(**{field: value}), data)
    data[70] ^= 1
    with pytest.raises(BadFrameError, match="batch checksum"):
        check_payload(found, data)
    with pytest.raises(BadFrameError, match="too short"):
        check_payload(found, data[:60])


def test_a_whole_frame_of_an_unknown_version_is_refused_and_not_taken_for_damage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(frame, "VERSION", 9)
        whole = control_frame()
    with pytest.raises(UnknownVersionError, match="version 9 at 5000"):
        decode(memoryview(whole), 5000, 5000)
    damaged = bytearray(whole)
    damaged[40] ^= 1
    with pytest.raises(BadFrameError):
        decode(memoryview(bytes(damaged)), 5000, 5000)


@pytest.mark.parametrize("proof", [b"", b"P" * 23, frame.MAGIC * 5, b"P" * (frame.BEFORE_BYTES - HEADER_BYTES)])
def test_the_header_is_found_before_the_payload(proof: bytes) -> None:
    head = encode(
        Kind.BATCH, HEADER_BYTES + len(proof) + 100, 5000, 4000, 3, 1, 0, 1, 0, 1, 1, 1_700_000_000_000,
        provenance=proof,
    )  # fmt: skip
    payload_position = 5000 + HEADER_BYTES + len(proof)
    before = (bytes(frame.BEFORE_BYTES) + head)[-frame.BEFORE_BYTES :]
    assert frame.before_payload(before, payload_position) == (1_700_000_000_000, proof)
    assert frame.before_payload(before, payload_position + 1) is None
    assert frame.before_payload(before[-HEADER_BYTES + 1 :], payload_position) is None


def test_a_header_too_far_before_the_payload_is_not_found() -> None:
    proof = b"P" * (frame.BEFORE_BYTES - HEADER_BYTES + 1)
    head = encode(
        Kind.BATCH, HEADER_BYTES + len(proof) + 100, 5000, 4000, 3, 1, 0, 1, 0, 1, 1, 1, provenance=proof
    )  # fmt: skip
    assert frame.before_payload(head[-frame.BEFORE_BYTES :], 5000 + HEADER_BYTES + len(proof)) is None


def test_a_segment_has_as_much_before_its_first_batch_as_is_read(tmp_path: Path) -> None:
    with Broker(data_dir=str(tmp_path)) as broker:
        assert broker.app is not None
        first = broker.app.node.kernel.log.end
    smallest_head = decode(memoryview((tmp_path / "log" / f"{0:020}").read_bytes()), 0, 0).length
    assert smallest_head <= first
    assert smallest_head + HEADER_BYTES >= frame.BEFORE_BYTES
