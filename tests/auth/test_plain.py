"""PLAIN: Kafka's rules for the message, and passwords verified against SCRAM credentials that scramp made."""

from __future__ import annotations

import pytest
import scramp
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.auth.errors import AuthenticationError
from halfmoon.auth.plain import Plain, parse, verification
from halfmoon.auth.principals import user
from halfmoon.auth.scram import SHA_256, SHA_512, Credential, Found, Login

KEY = b"the node's secret"


def found(mechanism, *, usable: bool = True):
    salt, stored_key, server_key, iterations = scramp.ScramMechanism(mechanism.name).make_auth_info("s3cret")
    return {mechanism: Found(Credential(salt, stored_key, server_key, iterations), user("alice"), usable)}


@pytest.mark.parametrize("message", [b"\0alice\0s3cret", b"alice\0alice\0s3cret"])
def test_a_message(message):
    assert parse(message) == Plain("alice", "s3cret")


def test_a_password_is_not_shown():
    assert "s3cret" not in repr(parse(b"\0alice\0s3cret"))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"alice",
        b"\0alice",
        b"\0\0s3cret",
        b"\0alice\0",
        b"\0alice\0s3cret\0",
        b"bob\0alice\0s3cret",
        b"\0alice\0\xff",
        b"\0" + b"a" * 256 + b"\0s3cret",
        b"\0alice\0" + b"p" * 1025,
        b"\0alice\0" + b"p" * 65536,
    ],
)
def test_malformed_messages(message):
    with pytest.raises(AuthenticationError):
        parse(message)


@given(st.binary(max_size=40))
def test_no_other_error(message):
    try:
        assert parse(message).name
    except AuthenticationError:
        pass


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512], ids=lambda each: each.name)
def test_a_password_is_verified(mechanism):
    assert verification(Plain("alice", "s3cret"), found(mechanism), KEY)() == Login(user("alice"))
    for password in ("S3cret", "s3cret ", "x"):
        with pytest.raises(AuthenticationError):
            verification(Plain("alice", password), found(mechanism), KEY)()


def test_disabled_and_unknown_users_fail_with_the_right_password_too():
    with pytest.raises(AuthenticationError):
        verification(Plain("alice", "s3cret"), found(SHA_256, usable=False), KEY)()
    with pytest.raises(AuthenticationError):
        verification(Plain("bob", "s3cret"), {}, KEY)()


def test_an_unknown_user_takes_the_work_of_a_known_one(monkeypatch):
    from halfmoon.auth import scram

    asked = []
    derive = scram.hashlib.pbkdf2_hmac

    def count(digest, password, salt, iterations):
        asked.append((digest, iterations))
        return derive(digest, password, salt, iterations)

    monkeypatch.setattr(scram.hashlib, "pbkdf2_hmac", count)
    for known in ({}, found(SHA_256)):
        with pytest.raises(AuthenticationError):
            verification(Plain("alice", "wrong"), known, KEY)()

    assert asked[-1] == asked[-2] == ("sha256", 4096)
