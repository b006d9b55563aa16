"""OAUTHBEARER (RFC 7628): the client's message, access tokens (JWT), and the provider's keys (JWKS).

    n,[a=authzid],^Aauth=Bearer TOKEN^A[extension=value^A…]^A

Rules of the message: Kafka's OAuthBearerClientInitialResponse; extensions are read and have no effect. A token must be
signed by an asymmetric algorithm that is configured, with a key of the provider; it needs `exp`, `iat`, `iss`, `aud`
and `sub`, issuer and audience being the configured ones, and the claim that names the user. No claim of a token is
believed before its signature is: which key it asks for (`kid`) is all that is read of it.

`KeySet` says when the provider is to be asked for its keys; the asking is the caller's. PyJWT and cryptography are of
the extra `halfmoon[auth]`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from halfmoon.auth.errors import AuthenticationError
from halfmoon.auth.principals import user
from halfmoon.auth.scram import LONGEST_NAME, Login, decode_name
from halfmoon.errors import StartError

LONGEST_MESSAGE = 512 * 1024
LONGEST_TOKEN = 64 * 1024
MOST_EXTENSIONS = 64
"""In a message; Kafka has no limit. Each costs a microsecond before anybody has authenticated."""
MOST_KEYS_BYTES = 64 * 1024
FETCH_PAUSE_MS = 10_000
"""Between two fetches of keys that unknown `kid`s have asked for."""
ALGORITHMS = frozenset(
    ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "ES256K", "EdDSA")
)
"""The asymmetric ones. With the others whoever can verify a token can also make one."""
_PRIVATE = frozenset(("d", "p", "q", "dp", "dq", "qi", "oth"))
"""Parts of a private key, which a provider should not have published."""
_KEY_TYPES = {"R": "RSA", "P": "RSA", "ES": "EC", "Ed": "OKP"}

REFUSED = b'{"status":"invalid_token"}'
"""The server's answer to a token that is not accepted; the client then sends ^A, and authentication fails."""
ACKNOWLEDGED = b"\x01"
"""What the client says to that."""

_AUTHZID = re.compile("(a=.+)?")
_LETTERS = re.compile("[A-Za-z]+")
_VALUE = re.compile("[\x21-\x7e \t\r\n]+")
_AUTH = re.compile(r"(\w+) +([-_~+/.a-zA-Z0-9]+=*)", re.ASCII)


class Bearer(NamedTuple):
    token: str
    authzid: str
    extensions: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Bearer(…, {self.authzid!r}, {self.extensions!r})"


def parse(message: bytes) -> Bearer:
    """Raises AuthenticationError."""
    if len(message) > LONGEST_MESSAGE:
        raise AuthenticationError(f"OAUTHBEARER: a message of {len(message)} bytes")
    try:
        header, *pairs, last, end = message.decode("ascii").split("\x01")
    except ValueError:  # no ASCII, or too few parts
        raise AuthenticationError("OAUTHBEARER: the message is malformed") from None
    flag, _, rest = header.partition(",")
    authzid, comma, more = rest.partition(",")
    if flag != "n" or not comma or more or last or end or not _AUTHZID.fullmatch(authzid):
        raise AuthenticationError("OAUTHBEARER: the message is malformed")
    if len(pairs) > 1 + MOST_EXTENSIONS:
        raise AuthenticationError(f"OAUTHBEARER: {len(pairs) - 1} extensions")
    found = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        if not (_LETTERS.fullmatch(key) and _VALUE.fullmatch(value)) or key in found:
            raise AuthenticationError("OAUTHBEARER: an extension is malformed")
        found[key] = value
    auth = _AUTH.fullmatch(found.pop("auth", ""))
    if auth is None or auth[1].lower() != "bearer":
        raise AuthenticationError("OAUTHBEARER: there is no bearer token")
    return Bearer(auth[2], decode_name(authzid[2:]), found)


def message(token: str, extensions: Mapping[str, str] | None = None) -> bytes:
    """What a client sends."""
    more = "".join(f"{key}={value}\x01" for key, value in (extensions or {}).items())
    return f"n,,\x01auth=Bearer {token}\x01{more}\x01".encode()


class Expected(NamedTuple):
    """What a token must say."""

    issuer: str
    audience: Sequence[str]
    """One of these."""
    algorithms: Sequence[str] = ("RS256", "ES256")
    sub_claim: str = "sub"
    """Which claim names the user."""
    skew_s: int = 30
    """How far the provider's clock may be from ours."""

    def check(self) -> None:
        """Raises StartError where anybody's token would do, or the extra is missing."""
        try:
            import cryptography  # noqa: F401
            import jwt  # noqa: F401
        except ImportError:
            raise StartError("OAUTHBEARER needs more libraries: pip install 'halfmoon[auth]'") from None
        if not self.issuer or not self.audience:
            raise StartError("OAUTHBEARER needs security.oauth.issuer and security.oauth.audience")
        if not self.algorithms:
            raise StartError("security.oauth.algorithms is empty")
        for name in self.algorithms:
            if name not in ALGORITHMS:
                raise StartError(f"security.oauth.algorithms: {name} is none of {', '.join(sorted(ALGORITHMS))}")


class _Key(NamedTuple):
    key: Any
    """As PyJWT takes it."""
    kind: str
    algorithm: str | None
    """The only one that it is for; None: all of its kind."""


class KeySet:
    """The provider's keys, by their ids. What was there last is kept while the provider is away."""

    def __init__(self) -> None:
        self._keys: dict[str | None, _Key] = {}
        self._asked_ms: int | None = None

    def replace(self, document: bytes) -> None:
        """Take a key set as the provider gave it (RFC 7517). Keys that are of no use here are left out. Raises
        AuthenticationError where nothing is left, or it is no key set; the keys from before stay then."""
        import jwt

        if len(document) > MOST_KEYS_BYTES:
            raise AuthenticationError(f"the key set has more than {MOST_KEYS_BYTES} bytes")
        try:
            found = msgspec.json.decode(document, type=dict[str, Any])["keys"]
        except (msgspec.DecodeError, KeyError, RecursionError) as error:
            raise AuthenticationError(f"this is no key set: {error}") from error
        keys: dict[str | None, _Key] = {}
        for each in found if isinstance(found, list) else ():
            if not isinstance(each, dict) or each.get("use", "sig") != "sig":
                continue
            kind, kid = each.get("kty"), each.get("kid")
            if not isinstance(kind, str) or kind not in _KEY_TYPES.values():
                continue
            try:
                made = jwt.PyJWK({name: value for name, value in each.items() if name not in _PRIVATE})
            except Exception:  # what a provider writes may be anything, and so is what that raises
                continue
            algorithm = each.get("alg") if kind == "RSA" else made.algorithm_name
            keys[kid if isinstance(kid, str) else None] = _Key(made.key, kind, algorithm)
        if not keys:
            raise AuthenticationError("the key set has no key that could be used")
        self._keys = keys

    def take(self, other: KeySet) -> None:
        """Its keys instead of ours."""
        self._keys = other._keys

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, kid: str | None) -> _Key | None:
        """A token without a `kid` is of the only key, if there is only one."""
        if kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(kid)

    def may_fetch(self, now_ms: int) -> bool:
        """Whether the provider may be asked now, which then counts as done: nobody makes us ask more often by sending
        tokens. Monotonic ms."""
        if self._asked_ms is not None and now_ms - self._asked_ms < FETCH_PAUSE_MS:
            return False
        self._asked_ms = now_ms
        return True


class RefusedTokenError(AuthenticationError):
    """The token is not accepted; the client is told so by `REFUSED`."""


class UnknownKeyError(RefusedTokenError):
    """The token is of a key that is not in the key set; a newer one may have it."""


def verify(token: str, keys: KeySet, expected: Expected, now_s: float) -> Login:
    """Who a token is of, and until when. Some 200 µs. `now_s`: Unix time. Raises RefusedTokenError,
    UnknownKeyError."""
    import jwt

    if len(token) > LONGEST_TOKEN:
        raise RefusedTokenError(f"OAUTHBEARER: a token of {len(token)} bytes")
    try:
        header = jwt.get_unverified_header(token)
        algorithm, kid = header.get("alg"), header.get("kid")
    except Exception as error:  # the library promises PyJWTError; a stranger's bytes are not to try this out
        raise RefusedTokenError(f"OAUTHBEARER: no token: {error}") from error
    if algorithm not in expected.algorithms or algorithm not in ALGORITHMS:
        raise RefusedTokenError(f"OAUTHBEARER: the token's algorithm {algorithm!r:.40} is not allowed")
    key = keys.find(kid)
    if key is None:
        raise UnknownKeyError(f"OAUTHBEARER: unknown key {kid!r:.80}")
    if not _fits(key, algorithm):
        raise RefusedTokenError(f"OAUTHBEARER: the key {kid!r:.80} is not for {algorithm}")
    try:
        claims = jwt.decode(
            token,
            key.key,
            algorithms=[algorithm],
            audience=list(expected.audience),
            issuer=expected.issuer,
            # Times are compared below, with the time that was given.
            options={
                "require": ["exp", "iat", "iss", "aud", "sub"], "verify_exp": False, "verify_iat": False,
                "verify_nbf": False,
            },
        )  # fmt: skip
    except Exception as error:  # as above
        raise RefusedTokenError(f"OAUTHBEARER: {error}") from error
    return _login(claims, expected, now_s)


def _fits(key: _Key, algorithm: str) -> bool:
    """Whether a key is of the algorithm's kind, and not meant for another one."""
    kind = next(kind for prefix, kind in _KEY_TYPES.items() if algorithm.startswith(prefix))
    return key.kind == kind and key.algorithm in (None, algorithm)


def _login(claims: Mapping[str, Any], expected: Expected, now_s: float) -> Login:
    expires, issued, begins = (_seconds(claims, name) for name in ("exp", "iat", "nbf"))
    assert expires is not None and issued is not None
    if expires + expected.skew_s <= now_s:
        raise RefusedTokenError("OAUTHBEARER: the token has expired")
    if max(issued, begins or 0) - expected.skew_s > now_s:
        raise RefusedTokenError("OAUTHBEARER: the token is of the future")
    name = claims.get(expected.sub_claim)
    name = name.strip() if isinstance(name, str) else ""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        size = 0
    if not 0 < size <= LONGEST_NAME:
        raise RefusedTokenError(f"OAUTHBEARER: the claim {expected.sub_claim} names no user")
    return Login(user(name), None, int(expires * 1000))


def _seconds(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None and name == "nbf":
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e12:
        raise RefusedTokenError(f"OAUTHBEARER: the claim {name} is no time")
    return value


def authenticate(asked: Bearer, keys: KeySet, expected: Expected, now_s: float) -> Login:
    """As `verify`; an authorization id must be the user's name. Raises AuthenticationError where it is not."""
    login = verify(asked.token, keys, expected, now_s)
    if asked.authzid and asked.authzid != login.principal.name:
        raise AuthenticationError("OAUTHBEARER: the authorization id is not the token's user")
    return login
