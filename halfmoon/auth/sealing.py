"""Secrets that must be had again in plain, encrypted: those of RocketMQ's signatures (AES-256-GCM, extra
`halfmoon[auth]`).

    version 1, 1 byte · nonce 12 bytes · ciphertext · tag 16 bytes

Whose secret it is belongs to what is authenticated: nobody's secret can be put in place of another's.
"""

from __future__ import annotations

from halfmoon.auth.errors import AuthenticationError
from halfmoon.errors import HalfmoonError

NONCE_BYTES = 12
_VERSION = b"\x01"


class MissingExtraError(HalfmoonError):
    """The extra `halfmoon[auth]` is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "RocketMQ's secrets are kept encrypted, which needs more libraries: pip install 'halfmoon[auth]'"
        )


def seal(key: bytes, owner: str, secret: str, nonce: bytes) -> bytes:
    """`key`: 32 bytes. `nonce`: random, and never used again with this key. Raises MissingExtraError."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise MissingExtraError from None
    return _VERSION + nonce + AESGCM(key).encrypt(nonce, secret.encode(), owner.encode())


def unseal(key: bytes, owner: str, sealed: bytes) -> str:
    """Raises AuthenticationError where it was sealed by another key or for somebody else, or is damaged;
    MissingExtraError."""
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise MissingExtraError from None
    nonce, encrypted = sealed[1 : 1 + NONCE_BYTES], sealed[1 + NONCE_BYTES :]
    try:
        if sealed[:1] != _VERSION:
            raise InvalidTag
        return AESGCM(key).decrypt(nonce, encrypted, owner.encode()).decode()
    except (InvalidTag, ValueError):  # ValueError: too short
        raise AuthenticationError(f"the secret of '{owner}' was sealed by another key, or is damaged") from None
