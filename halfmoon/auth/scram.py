"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): credentials, the server's half and the client's.

    client first   n,[a=authzid],n=name,r=nonce[,extension=value…]
    server first   r=nonce,s=salt,i=iterations
    client final   c=channel binding,r=nonce[,…],p=proof
    server final   v=signature

As in Kafka (ScramSaslServer, ScramFormatter, ScramMessages):

- passwords and names are their UTF-8 bytes; they are not normalised by SASLprep;
- an authorization id must be the name;
- the extension `tokenauth=true` says that the name is the id of a delegation token; other extensions are ignored.

Otherwise than in Kafka, and as RFC 5802 has it: the proof covers the messages as they were sent, a
mandatory extension (`m=`) fails, and the channel binding must repeat the header of the first message. Names may have
any characters but NUL. A client may repeat its own nonce before the one that was given: librdkafka before 2.6.1 does,
which Kafka up to 3.9 lets in and Kafka 4 does not.

Nobody learns here who has a credential: for a name without one the server goes on with a salt that is the same each
time, does the same work, and fails at the last step.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import NamedTuple

from halfmoon.auth.errors import AuthenticationError
from halfmoon.auth.principals import Principal

MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384
LONGEST_NAME = 255
"""Of a user, in UTF-8 bytes."""
_LONGEST_MESSAGE, _LONGEST_NONCE = 8192, 1024
TOKEN = "tokenauth"


class Mechanism(NamedTuple):
    name: str
    number: int
    """Kafka's, in requests and answers."""
    digest: str
    size: int
    """Bytes of the hash."""


SHA_256 = Mechanism("SCRAM-SHA-256", 1, "sha256", 32)
SHA_512 = Mechanism("SCRAM-SHA-512", 2, "sha512", 64)
MECHANISMS: Mapping[str, Mechanism] = {each.name: each for each in (SHA_256, SHA_512)}
BY_NUMBER: Mapping[int, Mechanism] = {each.number: each for each in MECHANISMS.values()}


class Credential(NamedTuple):
    """What the server keeps in place of a password, for one mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def salted_password(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Takes milliseconds: for a thread, where there is a loop."""
    # A lone surrogate is no character: what was typed is no UTF-8 then. It must not raise here.
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode(errors="surrogatepass"), salt, iterations)


def credential_of(mechanism: Mechanism, salted: bytes, salt: bytes, iterations: int) -> Credential:
    """Of a salted password, which is what Kafka's AlterUserScramCredentials carries."""
    client_key = hmac.digest(salted, b"Client Key", mechanism.digest)
    server_key = hmac.digest(salted, b"Server Key", mechanism.digest)
    return Credential(salt, hashlib.new(mechanism.digest, client_key).digest(), server_key, iterations)


def make_credential(mechanism: Mechanism, password: str, salt: bytes, iterations: int = MIN_ITERATIONS) -> Credential:
    """Takes milliseconds: for a thread, where there is a loop."""
    return credential_of(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


def unknown_credential(mechanism: Mechanism, key: bytes, name: str) -> Credential:
    """For a name that has none: always the same for this `key`, which is the node's secret; no password has it."""

    def made(purpose: str) -> bytes:
        return hmac.digest(key, f"{mechanism.name} {purpose} {name}".encode(errors="surrogatepass"), "sha512")

    size = mechanism.size
    return Credential(made("salt")[:32], made("stored")[:size], made("server")[:size], MIN_ITERATIONS)


class Found(NamedTuple):
    """What is known of a name."""

    credential: Credential
    principal: Principal
    usable: bool = True
    """False of a user that is disabled: it fails as if the password were wrong."""
    expires_ms: int | None = None
    """Unix ms; None: never."""


class Login(NamedTuple):
    """Who has authenticated."""

    principal: Principal
    token_id: str | None = None
    """Of the delegation token that was used."""
    expires_ms: int | None = None


Find = Callable[[str, bool], Found | None]
"""(name, whether it is the id of a delegation token)"""


class ScramServer:
    """One authentication: `first`, then `final`, which returns the last message and sets `login`. Both raise
    AuthenticationError, and nothing else; after that the object is of no use."""

    def __init__(self, mechanism: Mechanism, find: Find, nonce: str, unknown_key: bytes) -> None:
        """`nonce`: printable and unguessable. `unknown_key`: a secret of the node, see `unknown_credential`."""
        self._mechanism = mechanism
        self._find = find
        self._nonce = nonce
        self._unknown_key = unknown_key
        self._state: _Begun | None = None
        self.login: Login | None = None
        self.claimed = ""
        """Whom the first message names."""

    def first(self, message: bytes) -> bytes:
        asked = _read_first(message)
        self.claimed = asked.name
        imagined = unknown_credential(self._mechanism, self._unknown_key, asked.name)
        found = self._find(asked.name, asked.is_token)
        credential = imagined if found is None else found.credential
        nonce = asked.nonce + self._nonce
        answer = f"r={nonce},s={b64encode(credential.salt).decode()},i={credential.iterations}"
        self._state = _Begun(asked, found, credential, nonce, answer)
        return answer.encode()

    def final(self, message: bytes) -> bytes:
        state, self._state = self._state, None
        if state is None:
            raise AuthenticationError("SCRAM: a final message before the first")
        asked, found, credential, nonce, answer = state
        binding, final_nonce, signed, proof = _read_final(message)
        if binding != asked.header.encode():
            raise AuthenticationError("SCRAM: the channel binding is not that of the first message")
        # Where the client's own is there twice (librdkafka's issue 4895; kcat of Debian 12), ours is at its end all the
        # same, which prevents a replay, and the proof covers what was sent.
        if final_nonce not in (nonce, asked.nonce + nonce):
            raise AuthenticationError("SCRAM: the nonce is not the one that was given")
        if len(proof) != self._mechanism.size:
            raise AuthenticationError("SCRAM: the proof has the wrong length")
        digest = self._mechanism.digest
        proven = f"{asked.bare},{answer},{signed}".encode()
        client_key = _xor(proof, hmac.digest(credential.stored_key, proven, digest))
        signature = hmac.digest(credential.server_key, proven, digest)
        is_right = hmac.compare_digest(hashlib.new(digest, client_key).digest(), credential.stored_key)
        if found is None or not found.usable or not is_right:
            reason = "is unknown" if found is None else "has another password" if not is_right else "is disabled"
            what = "token" if asked.is_token else "user"
            raise AuthenticationError(f"{self._mechanism.name}: {what} '{asked.name}' {reason}")
        self.login = Login(found.principal, asked.name if asked.is_token else None, found.expires_ms)
        return b"v=" + b64encode(signature)


class ScramClient:
    """The client's side: `first`, `final`, `verify`. The last two raise AuthenticationError."""

    def __init__(
        self,
        mechanism: Mechanism,
        name: str,
        password: str,
        nonce: str,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        """`nonce`: printable, without commas, and unguessable. `extensions`: {"tokenauth": "true"} for a token."""
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        more = "".join(f",{key}={value}" for key, value in (extensions or {}).items())
        self._bare = f"n={encode_name(name)},r={nonce}{more}"
        self._signature = b""

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def final(self, message: bytes) -> bytes:
        """Takes milliseconds."""
        text = _text(message)
        nonced, salted_by, counted, *_ = _parts(text, 3)
        nonce, salt, count = _value(nonced, "r"), _value(salted_by, "s"), _value(counted, "i")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise AuthenticationError("SCRAM: the server's nonce does not begin with ours")
        iterations = int(count) if count.isascii() and count.isdigit() and len(count) < 10 else 0
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise AuthenticationError(f"SCRAM: the server asks for {count or 'no'} iterations")
        digest = self._mechanism.digest
        salted = salted_password(self._mechanism, self._password, _base64(salt), iterations)
        client_key = hmac.digest(salted, b"Client Key", digest)
        server_key = hmac.digest(salted, b"Server Key", digest)
        signed = f"c={b64encode(b'n,,').decode()},r={nonce}"
        proven = f"{self._bare},{text},{signed}".encode()
        self._signature = hmac.digest(server_key, proven, digest)
        proof = _xor(client_key, hmac.digest(hashlib.new(digest, client_key).digest(), proven, digest))
        return f"{signed},p={b64encode(proof).decode()}".encode()

    def verify(self, message: bytes) -> None:
        text = _text(message)
        if text.startswith("e="):
            raise AuthenticationError(f"SCRAM: the server answers {text[2:]!r}")
        signature = _base64(_value(text.split(",")[0], "v"))
        if not self._signature or not hmac.compare_digest(signature, self._signature):
            raise AuthenticationError("SCRAM: the server does not know the password")


def encode_name(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def decode_name(encoded: str) -> str:
    """Raises AuthenticationError where a `=` is neither `=2C` nor `=3D`."""
    if "=" in encoded.replace("=2C", "").replace("=3D", ""):
        raise AuthenticationError("SCRAM: the name has a = that is not escaped")
    return encoded.replace("=2C", ",").replace("=3D", "=")


class _First(NamedTuple):
    header: str
    """The GS2 header, which the final message repeats."""
    bare: str
    name: str
    nonce: str
    is_token: bool


class _Begun(NamedTuple):
    asked: _First
    found: Found | None
    credential: Credential
    nonce: str
    answer: str


def _read_first(message: bytes) -> _First:
    text = _text(message)
    flag, authzid, named, nonced, *extensions = _parts(text, 4)
    if flag not in ("n", "y"):  # p: channel binding, which is of mechanisms that are not offered
        raise AuthenticationError("SCRAM: channel binding is not supported, or the message is malformed")
    name = decode_name(_value(named, "n"))
    if len(name.encode()) > LONGEST_NAME:
        raise AuthenticationError(f"SCRAM: the name has more than {LONGEST_NAME} bytes")
    if authzid and decode_name(_value(authzid, "a")) != name:
        raise AuthenticationError("SCRAM: the authorization id is not the name")
    nonce = _printable(_value(nonced, "r"))
    found = _extensions(extensions)
    header = f"{flag},{authzid},"
    return _First(header, text.removeprefix(header), name, nonce, found.get(TOKEN, "").lower() == "true")


def _read_final(message: bytes) -> tuple[bytes, str, str, bytes]:
    """Channel binding, nonce, what is signed, proof."""
    text = _text(message)
    bound, nonced, *extensions, proof = _parts(text, 3)
    _extensions(extensions)
    signed = text.removesuffix(f",{proof}")
    return _base64(_value(bound, "c")), _printable(_value(nonced, "r")), signed, _base64(_value(proof, "p"))


def _parts(text: str, least: int) -> list[str]:
    parts = text.split(",")
    if len(parts) < least:
        raise AuthenticationError("SCRAM: the message is malformed")
    return parts


def _extensions(parts: list[str]) -> dict[str, str]:
    found = {}
    for part in parts:
        key, _, value = part.partition("=")
        if not (key.isascii() and key.isalpha() and value):
            raise AuthenticationError("SCRAM: an extension is malformed")
        found[key] = value
    return found


def _text(message: bytes) -> str:
    if len(message) > _LONGEST_MESSAGE:
        raise AuthenticationError(f"SCRAM: a message of {len(message)} bytes")
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise AuthenticationError("SCRAM: the message is not UTF-8") from None
    if "\0" in text:
        raise AuthenticationError("SCRAM: NUL in the message")
    return text


def _value(part: str, key: str) -> str:
    name, _, value = part.partition("=")
    if name != key or not value:
        raise AuthenticationError(f"SCRAM: expected {key}=…")
    return value


def _printable(nonce: str) -> str:
    if len(nonce) > _LONGEST_NONCE or not (nonce.isascii() and nonce.isprintable()) or " " in nonce:
        raise AuthenticationError("SCRAM: the nonce is malformed")
    return nonce


def _base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise AuthenticationError("SCRAM: not base64") from None


def _xor(first: bytes, second: bytes) -> bytes:
    return (int.from_bytes(first, "big") ^ int.from_bytes(second, "big")).to_bytes(len(first), "big")
