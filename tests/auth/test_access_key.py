"""RocketMQ's signatures: those that RocketMQ 5.3.3 has made (tests/interop/java/rocketmq/Signatures.java)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.auth.access_key import is_signed, signature

NOW, OLD, FIRST_NEW = 479, 399, 400
ALICE = {"AccessKey": "alice", "topic": "orders"}

VECTORS = [
    ("12345678", b"payload", {**ALICE, "b": "2", "a": "1"}, "Qhr8jXutQXPFpBLVnkQLqOp+tSo="),
    ("12345678", b"", {**ALICE, "b": "2", "a": "1"}, "H9TSRQb8Ogm3Jy3pQjuvsreN58k="),
    ("12345678", b"payload", {**ALICE, "Signature": "old"}, "Z99O+BH4H2dcvnDOecyNQ26yQdY="),
    ("geheim-ä", b"payload", {"AccessKey": "müller", "topic": "日本😀"}, "z3Sm2K+DJXpG7RkU/GSEWZI5d4U="),
    ("12345678", b"payload", {"AccessKey": "alice", "ａ": "1", "😀": "2"}, "f+Iwcn065ZJsirdHi5AyfuYfbe0="),
    ("12345678", b"", {"AccessKey": "alice", "Z": "1", "_": "2", "z": "3", "": "4"}, "+xwOfZPomsndiuflY6cTZ+FIjCM="),
]


@pytest.mark.parametrize(("secret", "body", "fields", "made"), VECTORS)
def test_as_rocketmq(secret, body, fields, made):
    assert signature(secret, fields, body, NOW) == made
    assert signature(secret, dict(reversed(fields.items())), memoryview(body), NOW) == made
    assert is_signed(secret, {**fields, "Signature": made}, body, NOW)


@pytest.mark.parametrize(
    ("secret", "body", "change"),
    [
        ("12345679", b"payload", {}),
        ("12345678", b"payloae", {}),
        ("12345678", b"payload", {"topic": "orders2"}),
        ("12345678", b"payload", {"more": "x"}),
        ("12345678", b"payload", {"Signature": ""}),
        ("12345678", b"payload", {"Signature": "Z99O+BH4H2dcvnDOecyNQ26yQdY"}),
        ("12345678", b"payload", {"Signature": "é\ud800"}),
    ],
)
def test_what_is_not_signed(secret, body, change):
    fields = {**ALICE, "Signature": "Z99O+BH4H2dcvnDOecyNQ26yQdY="}
    assert is_signed("12345678", fields, b"payload", NOW)

    assert not is_signed(secret, {**fields, **change}, body, NOW)


def test_a_request_without_a_signature_is_not_signed():
    assert not is_signed("", {}, b"", NOW)


def test_old_clients_do_not_sign_that_they_look_for_a_unique_key():
    asked = {**ALICE, "_UNIQUE_KEY_QUERY": "true"}

    assert signature("s", asked, b"", OLD) == signature("s", ALICE, b"", OLD)
    assert signature("s", asked, b"", FIRST_NEW) != signature("s", ALICE, b"", FIRST_NEW)


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5)), st.binary(max_size=9))
def test_no_request_raises(fields, body):
    assert not is_signed("secret", fields, body, NOW)
