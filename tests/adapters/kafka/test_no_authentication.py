"""A client that is told to use SASL, or asks for delegation tokens, is told that there is none: as by a Kafka whose
listener is PLAINTEXT."""

from __future__ import annotations

import struct

import pytest
from kafka_rig import Rig

from halfmoon.adapters.kafka.protocol import REQUESTS

ILLEGAL_SASL_STATE, NOT_ALLOWED = 34, 64
HANDSHAKE, AUTHENTICATE, CREATE, RENEW, EXPIRE, DESCRIBE = 17, 36, 38, 39, 40, 41


@pytest.mark.parametrize("version", [0, 1])
def test_the_handshake_names_no_mechanism(version: int) -> None:
    client = Rig().client()
    answer = client.ask(HANDSHAKE, version, mechanism="PLAIN")
    assert (answer.error_code, answer.mechanisms) == (ILLEGAL_SASL_STATE, [])
    assert not client.transport.closed


def test_the_bytes_of_a_handshake() -> None:
    """Written by hand from SaslHandshakeRequest.json and SaslHandshakeResponse.json."""
    client = Rig().client()
    client.feed(bytes.fromhex("00000012 0011 0001 00000007 0001 78 0005") + b"PLAIN")
    (frame,) = client.frames()
    assert frame == struct.pack(">ihi", 7, ILLEGAL_SASL_STATE, 0)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_authenticating(version: int) -> None:
    answer = Rig().client().ask(AUTHENTICATE, version, auth_bytes=b"\0alice\0secret")
    assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (ILLEGAL_SASL_STATE, b"", 0)
    assert "PLAINTEXT" in answer.error_message


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("owner", [None, "alice"])
def test_no_token_is_made(version: int, owner: str | None) -> None:
    renewer = REQUESTS[CREATE].CreatableRenewers(principal_type="User", principal_name="bob")
    said = {"owner_principal_type": owner and "User", "owner_principal_name": owner} if version >= 3 else {}
    answer = Rig().client().ask(CREATE, version, renewers=[renewer], max_lifetime_ms=-1, **said)
    assert (answer.error_code, answer.token_id, answer.hmac) == (NOT_ALLOWED, "", b"")
    assert (answer.principal_type, answer.principal_name) == ("User", said.get("owner_principal_name") or "ANONYMOUS")
    assert answer.token_requester_principal_name == ("ANONYMOUS" if version >= 3 else "")
    assert (answer.issue_timestamp_ms, answer.expiry_timestamp_ms, answer.max_timestamp_ms) == (-1, -1, -1)


@pytest.mark.parametrize("version", [1, 2])
def test_no_token_is_renewed_or_expired(version: int) -> None:
    client = Rig().client()
    renewed = client.ask(RENEW, version, hmac=b"h", renew_period_ms=1)
    expired = client.ask(EXPIRE, version, hmac=b"h", expiry_time_period_ms=1)
    for answer in renewed, expired:
        assert (answer.error_code, answer.expiry_timestamp_ms) == (NOT_ALLOWED, -1)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_no_token_is_described(version: int) -> None:
    answer = Rig().client().ask(DESCRIBE, version, owners=None)
    assert (answer.error_code, answer.tokens) == (NOT_ALLOWED, [])
