"""Delegation tokens: HMACs as Kafka's DelegationTokenManager makes them, and a login by scramp's client."""

from __future__ import annotations

import hashlib
from base64 import b64encode

import pytest

from halfmoon.auth.delegation import token_credential, token_hmac, token_password
from halfmoon.auth.principals import user
from halfmoon.auth.scram import SHA_256, SHA_512, Found, Login, ScramClient, ScramServer, make_credential
from halfmoon.uuids import uuid_text


def hmac_sha512(key: bytes, data: bytes) -> bytes:
    """RFC 2104, written out."""
    key = key.ljust(128, b"\0")
    inner = hashlib.sha512(bytes(each ^ 0x36 for each in key) + data).digest()
    return hashlib.sha512(bytes(each ^ 0x5C for each in key) + inner).digest()


def test_the_hmac_is_of_the_id_under_the_secret():
    assert token_hmac(b"secret", "Mv37b2eUTYqvL0TKCBmJyA") == hmac_sha512(b"secret", b"Mv37b2eUTYqvL0TKCBmJyA")


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512], ids=lambda each: each.name)
def test_a_client_logs_in_with_id_and_hmac(mechanism):
    token = uuid_text(bytes(16))
    credential = token_credential(mechanism, b"secret", token)
    served = ScramServer(mechanism, lambda name, is_token: Found(credential, user("alice")), "sn", b"key")
    password = b64encode(hmac_sha512(b"secret", token.encode())).decode()
    client = ScramClient(mechanism, token, password, "cn", {"tokenauth": "true"})

    client.verify(served.final(client.final(served.first(client.first()))))

    assert served.login == Login(user("alice"), token)
    assert password == token_password(token_hmac(b"secret", token))
    assert credential == make_credential(mechanism, password, credential.salt, 4096)
    assert credential == token_credential(mechanism, b"secret", token)
