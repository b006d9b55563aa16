"""OAUTHBEARER: the message as Kafka takes it, and tokens that must not be accepted. The oracle of signatures is
cryptography itself: tokens are put together by hand where PyJWT would not sign them."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.auth import oauth
from halfmoon.auth.errors import AuthenticationError
from halfmoon.auth.oauth import Bearer, Expected, KeySet, UnknownKeyError, authenticate, parse, verify
from halfmoon.auth.principals import user
from halfmoon.auth.scram import Login
from halfmoon.errors import StartError

NOW = 1_700_000_000
RSA = rsa.generate_private_key(65537, 2048)
OTHER_RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
EXPECTED = Expected("https://idp.example", ["kafka"])
CLAIMS = {"iss": "https://idp.example", "aud": "kafka", "sub": "alice", "iat": NOW - 60, "exp": NOW + 600}


def jwk(key: Any, kid: str | None = None, **more: object) -> dict[str, object]:
    algorithm = {"RSA": jwt.algorithms.RSAAlgorithm, "EC": jwt.algorithms.ECAlgorithm}
    kind = "RSA" if isinstance(key, rsa.RSAPrivateKey) else "EC" if isinstance(key, ec.EllipticCurvePrivateKey) else ""
    made = algorithm.get(kind, jwt.algorithms.OKPAlgorithm).to_jwk(key.public_key(), as_dict=True)
    return {**made, **({"kid": kid} if kid else {}), **more}


def key_set(*keys: Mapping[str, object]) -> KeySet:
    made = KeySet()
    made.replace(json.dumps({"keys": list(keys)}).encode())
    return made


KEYS = key_set(jwk(RSA, "r"), jwk(EC, "e"))


def token(key: Any = RSA, algorithm: str = "RS256", kid: str | None = "r", **claims: Any) -> str:
    """Claims that are None are left out."""
    said = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    return jwt.encode(said, key, algorithm, {"kid": kid} if kid else None)


def by_hand(header: Mapping[str, object], signature: bytes = b"", **claims: Any) -> str:
    return signed(header, lambda data: signature, **claims)


def signed(header: Mapping[str, object], sign: Any, **claims: Any) -> str:
    def part(data: bytes) -> str:
        return urlsafe_b64encode(data).rstrip(b"=").decode()

    body = f"{part(json.dumps(header).encode())}.{part(json.dumps({**CLAIMS, **claims}).encode())}"
    return f"{body}.{part(sign(body.encode()))}"


# -- the message ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "bearer"),
    [
        (b"n,,\x01auth=Bearer abc.def\x01\x01", Bearer("abc.def", "", {})),
        (b"n,,\x01auth=bEARER  a==\x01\x01", Bearer("a==", "", {})),
        (b"n,a=al=2Cice,\x01auth=Bearer a\x01\x01", Bearer("a", "al,ice", {})),
        (
            b"n,,\x01traceId=123\x01auth=Bearer a\x01Pool=x y\x01\x01",
            Bearer("a", "", {"traceId": "123", "Pool": "x y"}),
        ),
    ],
)
def test_a_message(message, bearer):
    assert parse(message) == bearer


def test_the_number_of_extensions_is_limited():
    many = {"x" * length: "y" for length in range(1, oauth.MOST_EXTENSIONS + 1)}

    assert parse(oauth.message("a", many)).extensions == many
    with pytest.raises(AuthenticationError, match="65 extensions"):
        parse(oauth.message("a", many | {"z": "y"}))


def test_our_own_message():
    assert parse(oauth.message("a.b.c", {"x": "y"})) == Bearer("a.b.c", "", {"x": "y"})
    assert "secret" not in repr(parse(oauth.message("secret")))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer a\x01",
        b"n,,\x01auth=Bearer a",
        b"n,,auth=Bearer a\x01\x01",
        b"y,,\x01auth=Bearer a\x01\x01",
        b"p=x,,\x01auth=Bearer a\x01\x01",
        b"n,b=x,\x01auth=Bearer a\x01\x01",
        b"n,a=,\x01auth=Bearer a\x01\x01",
        b"n,a=x,y\x01auth=Bearer a\x01\x01",
        b"n,,\x01auth=Basic a\x01\x01",
        b"n,,\x01auth=Bearera\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01x=y\x01\x01",
        b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01",
        b"n,,\x01auth=Bearer a\x01x1=y\x01\x01",
        b"n,,\x01auth=Bearer a\x01x=\x01\x01",
        b"n,,\x01auth=Bearer a\x01x=\xff\x01\x01",
        b"n,,\x01auth=Bearer a\x01x=\x7f\x01\x01",
        b"n,,\x01auth=Bearer " + b"a" * 1_000_000 + b"\x01\x01",
    ],
)
def test_malformed_messages(message):
    with pytest.raises(AuthenticationError):
        parse(message)


@given(
    st.one_of(
        st.binary(max_size=60),
        st.lists(st.sampled_from([b"n", b",", b"\x01", b"a=", b"auth=", b"Bearer ", b"x", b"=", b"\xff"])).map(
            b"".join
        ),
    )
)
def test_no_other_error(message):
    try:
        assert parse(message).token
    except AuthenticationError:
        pass


# -- tokens that are accepted ------------------------------------------------------------------------------------------


def test_a_token():
    assert verify(token(), KEYS, EXPECTED, NOW) == Login(user("alice"), None, (NOW + 600) * 1000)
    assert verify(token(EC, "ES256", "e"), KEYS, EXPECTED, NOW).principal == user("alice")
    assert verify(token(aud=["x", "kafka"]), KEYS, EXPECTED, NOW).principal == user("alice")


def test_another_claim_names_the_user():
    expected = EXPECTED._replace(sub_claim="preferred_username")

    assert verify(token(preferred_username=" bob "), KEYS, expected, NOW).principal == user("bob")
    with pytest.raises(AuthenticationError, match="preferred_username"):
        verify(token(), KEYS, expected, NOW)


def test_ed25519():
    keys = key_set(jwk(ED, "d"))

    assert verify(token(ED, "EdDSA", "d"), keys, EXPECTED._replace(algorithms=["EdDSA"]), NOW)
    with pytest.raises(AuthenticationError, match="not allowed"):
        verify(token(ED, "EdDSA", "d"), keys, EXPECTED, NOW)


def test_a_token_without_a_kid_is_of_the_only_key():
    assert verify(token(kid=None), key_set(jwk(RSA)), EXPECTED, NOW)
    assert verify(token(kid=None), key_set(jwk(RSA, "r")), EXPECTED, NOW)
    with pytest.raises(UnknownKeyError):
        verify(token(kid=None), KEYS, EXPECTED, NOW)


def test_clocks_may_differ_by_the_skew():
    assert verify(token(exp=NOW - 29), KEYS, EXPECTED, NOW)
    assert verify(token(iat=NOW + 30), KEYS, EXPECTED, NOW)
    assert verify(token(nbf=NOW + 30), KEYS, EXPECTED, NOW)
    for wrong in ({"exp": NOW - 30}, {"iat": NOW + 31}, {"nbf": NOW + 31}):
        with pytest.raises(AuthenticationError, match=r"expired|future"):
            verify(token(**wrong), KEYS, EXPECTED, NOW)


def test_the_authorization_id_is_the_user():
    assert authenticate(Bearer(token(), "alice", {}), KEYS, EXPECTED, NOW)
    with pytest.raises(AuthenticationError, match="authorization id"):
        authenticate(Bearer(token(), "bob", {}), KEYS, EXPECTED, NOW)


# -- tokens that are not -----------------------------------------------------------------------------------------------


def public_pem() -> bytes:
    return RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


REFUSED = {
    "alg none": lambda: by_hand({"alg": "none", "kid": "r"}),
    "alg None": lambda: by_hand({"alg": "None", "kid": "r"}),
    "no alg": lambda: by_hand({"kid": "r"}),
    "alg null": lambda: by_hand({"alg": None, "kid": "r"}),
    "alg list": lambda: by_hand({"alg": ["RS256"], "kid": "r"}),
    "HS256 by the public key": lambda: signed(
        {"alg": "HS256", "kid": "r"}, lambda data: hmac.digest(public_pem(), data, "sha256")
    ),
    "RS384, which is not configured": lambda: token(algorithm="RS384"),
    "another's key under a known kid": lambda: token(OTHER_RSA),
    "a key of its own in the header": lambda: signed(
        {"alg": "RS256", "kid": "r", "jwk": jwk(OTHER_RSA)}, lambda data: hashlib.sha256(data).digest()
    ),
    "RS256 by an EC key's kid": lambda: token(kid="e"),
    "ES256 by an RSA key's kid": lambda: token(EC, "ES256", "r"),
    "no signature": lambda: token().rpartition(".")[0] + ".",
    "signature cut": lambda: token()[:-4],
    "other claims": lambda: ".".join((token().split(".")[0], token(sub="admin").split(".")[1], token().split(".")[2])),
    "crit": lambda: jwt.encode(CLAIMS, RSA, "RS256", {"kid": "r", "crit": ["x"], "x": 1}),
    "kid is no text": lambda: by_hand({"alg": "RS256", "kid": ["r"]}),
    "kid is null, of two keys": lambda: by_hand({"alg": "RS256", "kid": None}),
    "wrong iss": lambda: token(iss="https://other.example"),
    "iss list": lambda: by_hand({"alg": "RS256", "kid": "r"}, iss=["https://idp.example"]),
    "no iss": lambda: token(iss=None),
    "wrong aud": lambda: token(aud="other"),
    "part of the aud": lambda: token(aud="kafka2"),
    "aud empty": lambda: token(aud=[]),
    "no aud": lambda: token(aud=None),
    "no sub": lambda: token(sub=None),
    "sub empty": lambda: token(sub=" "),
    "sub long": lambda: token(sub="a" * 256),
    "sub surrogate": lambda: token(sub="\ud800"),
    "no exp": lambda: token(exp=None),
    "no iat": lambda: token(iat=None),
    "exp text": lambda: token(exp="soon"),
    "exp true": lambda: token(exp=True),
    "exp negative": lambda: token(exp=-5),
    "exp far": lambda: token(exp=1e300),
    "expired": lambda: token(exp=NOW - 3600),
    "of tomorrow": lambda: token(iat=NOW + 86400),
    "empty": lambda: "",
    "dots": lambda: "...",
    "two parts": lambda: "a.b",
    "no base64": lambda: "!.!.!",
    "1 MB": lambda: token(x="y" * 1_000_000),
    "1 MB of dots": lambda: "." * 1_000_000,
    "deep": lambda: signed({"alg": "RS256", "kid": "r"}, lambda data: b"", x=None).replace(".", "." + "W1tb" * 9000, 1),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    if case == "sub surrogate":
        made = signed({"alg": "RS256", "kid": "r"}, lambda data: sign_rsa(data), sub="\ud800")
    else:
        made = REFUSED[case]()
    with pytest.raises(AuthenticationError):
        verify(made, KEYS, EXPECTED, NOW)


def sign_rsa(data: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA256

    return RSA.sign(data, PKCS1v15(), SHA256())


def test_a_token_by_hand_is_as_good_as_one_of_pyjwt():
    """So what is refused above is not refused for the hand."""
    assert verify(signed({"alg": "RS256", "kid": "r"}, sign_rsa), KEYS, EXPECTED, NOW)


def test_a_symmetric_algorithm_is_not_accepted_even_where_it_is_configured():
    secret = signed({"alg": "HS256", "kid": "r"}, lambda data: hmac.digest(public_pem(), data, "sha256"))

    with pytest.raises(AuthenticationError, match="not allowed"):
        verify(secret, KEYS, EXPECTED._replace(algorithms=["HS256"]), NOW)


@given(st.text(max_size=80))
def test_no_other_error_of_tokens(text):
    with pytest.raises(AuthenticationError):
        verify(text, KEYS, EXPECTED, NOW)


@given(st.integers(0, 10_000), st.characters(codec="ascii"))
def test_a_changed_letter_is_refused(at, letter):
    made = token()
    at %= len(made) - 1  # the last letter has bits that say nothing
    changed = made[:at] + letter + made[at + 1 :]
    if changed != made:
        with pytest.raises(AuthenticationError):
            verify(changed, KEYS, EXPECTED, NOW)


# -- keys --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys": 5}',
        b'{"keys": []}',
        b'{"keys": [5, {"kty": "x"}, {"kty": "RSA"}]}',
        b'{"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "r"}]}',
        b"[" * 60_000,
        b" " * 65_537,
    ],
)
def test_what_is_no_key_set_leaves_the_keys_as_they_are(document):
    keys = key_set(jwk(RSA, "r"))

    with pytest.raises(AuthenticationError):
        keys.replace(document)

    assert verify(token(), keys, EXPECTED, NOW)


def test_keys_that_are_of_no_use_are_left_out():
    keys = key_set(
        {"kty": "oct", "k": "c2VjcmV0", "kid": "s"},
        {"kty": "RSA", "kid": "broken", "n": "!", "e": "AQAB"},
        jwk(OTHER_RSA, "r", use="enc"),
        jwk(RSA, "r", use="sig"),
    )

    assert verify(token(), keys, EXPECTED, NOW)
    for kid in ("s", "broken"):
        with pytest.raises(UnknownKeyError):
            verify(token(kid=kid), keys, EXPECTED, NOW)


def test_a_key_that_is_for_one_algorithm_is_for_no_other():
    expected = EXPECTED._replace(algorithms=["RS256", "PS256"])

    assert verify(token(algorithm="PS256"), key_set(jwk(RSA, "r")), expected, NOW)
    with pytest.raises(AuthenticationError, match="not for PS256"):
        verify(token(algorithm="PS256"), key_set(jwk(RSA, "r", alg="RS256")), expected, NOW)


def test_a_private_key_that_was_published_verifies_as_its_public_one():
    private = jwt.algorithms.RSAAlgorithm.to_jwk(RSA, as_dict=True)

    assert verify(token(), key_set({**private, "kid": "r"}), EXPECTED, NOW)


def test_new_keys_replace_the_old():
    keys = key_set(jwk(RSA, "r"))
    keys.replace(json.dumps({"keys": [jwk(OTHER_RSA, "n")]}).encode())

    assert verify(token(OTHER_RSA, kid="n"), keys, EXPECTED, NOW)
    with pytest.raises(UnknownKeyError):
        verify(token(), keys, EXPECTED, NOW)


def test_unknown_kids_ask_the_provider_once_in_ten_seconds():
    keys = KeySet()
    asked = [now_ms for now_ms in range(0, 30_000, 10) if keys.may_fetch(now_ms)]

    assert asked == [0, 10_000, 20_000]


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"issuer": ""}, "issuer"),
        ({"audience": []}, "audience"),
        ({"algorithms": []}, "empty"),
        ({"algorithms": ["HS256"]}, "HS256"),
        ({"algorithms": ["none"]}, "none"),
        ({"algorithms": ["RS256", "HS512"]}, "HS512"),
    ],
)
def test_what_lets_anybody_in_stops_the_start(change, says):
    EXPECTED.check()
    with pytest.raises(StartError, match=says):
        EXPECTED._replace(**change).check()


def test_the_extra_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "jwt", None)
    with pytest.raises(StartError, match=r"halfmoon\[auth\]"):
        EXPECTED.check()
