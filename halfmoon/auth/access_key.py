"""RocketMQ's signatures: every request carries its user (`AccessKey`) and a `Signature`.

    base64(HMAC-SHA1(secret, values of the fields sorted by name, one after the other, + body))

All fields count but the signature; up to version 4.9.3 of the client also not `_UNIQUE_KEY_QUERY`, which those add
after they have signed. Neither names nor borders of the values are signed, nor the request's code: only TLS keeps
requests from being cut anew or sent again.

Rules: AclUtils, AclSigner, AclClientRPCHook, DefaultAuthenticationContextBuilder of RocketMQ 5.3.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Mapping

ACCESS_KEY, SIGNATURE = "AccessKey", "Signature"
_UNSIGNED_QUERY, _V4_9_3 = "_UNIQUE_KEY_QUERY", 399


def signature(secret: str, fields: Mapping[str, str], body: bytes | memoryview, version: int) -> str:
    """`version`: RocketMQ's number of the client, as in the request's header."""
    left_out = (SIGNATURE, _UNSIGNED_QUERY) if version <= _V4_9_3 else (SIGNATURE,)
    # Java sorts by UTF-16 units.
    names = sorted(fields, key=None if "".join(fields).isascii() else _in_java)
    signed = "".join([fields[name] for name in names if name not in left_out])
    content = b"".join((signed.encode(errors="surrogatepass"), body))
    return b64encode(hmac.digest(secret.encode(), content, "sha1")).decode()


def is_signed(secret: str, fields: Mapping[str, str], body: bytes | memoryview, version: int) -> bool:
    """Whether who sent this knows the secret."""
    claimed = fields.get(SIGNATURE, "")
    return hmac.compare_digest(
        claimed.encode(errors="surrogatepass"), signature(secret, fields, body, version).encode()
    )


def _in_java(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")
