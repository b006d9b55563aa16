"""Ids as Kafka's Uuid writes them."""

from __future__ import annotations

from collections.abc import Iterator

from halfmoon.uuids import new_uuid, uuid_text


def test_texts():
    assert uuid_text(bytes(range(16))) == "AAECAwQFBgcICQoLDA0ODw"
    assert uuid_text(b"\xff" * 16) == "_" * 21 + "w"


def test_none_begins_with_a_hyphen():
    """A command would take it for an option."""
    given: Iterator[bytes] = iter([b"\xf8" * 16, b"\xfb" * 16, b"\x0f\x88" * 8])
    assert uuid_text(b"\xf8" * 16).startswith("-")
    assert uuid_text(b"\xfb" * 16).startswith("-")
    assert new_uuid(lambda size: next(given)) == uuid_text(b"\x0f\x88" * 8)
