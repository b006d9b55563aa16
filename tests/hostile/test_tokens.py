"""Access tokens that nobody issued, storms of unknown keys, and a provider that does not answer."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from halfmoon.auth.oauth import message
from tests.fuzz.peer import ClosedError
from tests.hostile.secured import AUTHENTICATE, HANDSHAKE, LISTENER, Hostile, Start
from tests.security.authority import Authority
from tests.security.provider import Provider

METADATA = 3


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[Provider]:
    folder = tmp_path / "provider"
    folder.mkdir()
    with Provider(Authority(folder, "provider")).running() as running:
        yield running


@pytest.fixture
def found(hostile: Start, provider: Provider) -> Hostile:
    listener = {**LISTENER, "sasl": ["SCRAM-SHA-256", "OAUTHBEARER"]}
    return hostile(tls=False, listeners={"kafka": listener}, security={"oauth": provider.settings()})


def is_let_in(found: Hostile, token: str) -> bool:
    """Whether anything is answered afterwards. A refusal may look like an answer (RFC 7628), and the end comes next."""
    with found.stranger() as stranger:
        assert stranger.ask(HANDSHAKE, 1, mechanism="OAUTHBEARER").error_code == 0
        try:
            stranger.ask(AUTHENTICATE, 2, 20, auth_bytes=message(token))
            return bool(stranger.ask(METADATA, 9, topics=None).cluster_id)
        except ClosedError:
            return False


def by_public_key(provider: Provider) -> str:
    """HS256 whose secret is what everybody knows of the provider's key."""
    public = provider.keys["one"].public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )  # fmt: skip
    header, claims, _ = provider.token().split(".")
    header = base64.urlsafe_b64encode(json.dumps({"alg": "HS256", "kid": "one"}).encode()).decode().rstrip("=")
    algorithm = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    signature = algorithm.sign(f"{header}.{claims}".encode(), public)
    return f"{header}.{claims}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def test_tokens_that_nobody_issued(found: Hostile, provider: Provider) -> None:
    right = provider.token()
    other = rsa.generate_private_key(65537, 2048)
    shown = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(other))
    claims = jwt.decode(right, options={"verify_signature": False})
    now_s = int(time.time())
    tokens = [
        jwt.encode(claims, "", "none"),
        jwt.encode(claims, "", "none", {"kid": "one"}),
        by_public_key(provider),
        jwt.encode(claims, other, "RS256", {"kid": "one"}),
        jwt.encode(claims, other, "RS256", {"kid": "one", "jwk": shown}),
        jwt.encode(claims, other, "RS256", {"kid": "one", "jku": f"{provider.url}/jwks"}),
        jwt.encode(claims, other, "RS256", {"kid": "../../../../etc/passwd\0\n"}),
        provider.token(aud="another"), provider.token(iss="https://evil.example"), provider.token(exp=now_s - 60),
        provider.token(nbf=now_s + 600), provider.token(iat=now_s + 600), provider.token(sub=""),
        provider.token(sub=None), provider.token(sub={"a": 1}), provider.token(exp="never"), provider.token(exp=1e400),
        *(provider.token(sub=name) for name in ("local-admin", "ANONYMOUS")),
        ".".join(["e30"] * 3), "." * 1_000, "x" * 400_000,
        right[:-1], right + "A", right.replace(".", ".."),
    ]  # fmt: skip
    with found.watched(rounds=20):
        assert is_let_in(found, right)
        for number, token in enumerate(tokens):
            assert not is_let_in(found, token), number
    assert provider.asked["/jwks"] <= 3


def test_a_storm_of_unknown_keys_while_the_provider_hangs(found: Hostile, provider: Provider) -> None:
    assert is_let_in(found, provider.token())
    provider.hangs = True
    other = rsa.generate_private_key(65537, 2048)
    claims = jwt.decode(provider.token(), options={"verify_signature": False})
    tokens = [jwt.encode(claims, other, "RS256", {"kid": f"key {number}"}) for number in range(200)]
    before = provider.asked["/jwks"]
    with found.watched(rounds=20, besides="event=oauth_keys_failed"), ThreadPoolExecutor(50) as pool:
        storm = pool.map(partial(is_let_in, found), tokens)
        assert is_let_in(found, provider.token()), "a key that is known needs no provider"
        assert not any(storm)
    assert provider.asked["/jwks"] - before <= 2
