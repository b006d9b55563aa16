"""Delegation tokens (KIP-48): their ids, their HMACs, and the SCRAM credentials by which they log in.

A client logs in by SCRAM with the token's id as its name, the HMAC in base64 as its password, and the extension
`tokenauth=true`. The HMAC is made anew from the id and the node's secret whenever it is needed, and is kept nowhere.

Rules: DelegationTokenManager, DelegationTokenControlManager.
"""

from __future__ import annotations

import hmac
from base64 import b64encode

from halfmoon.auth.scram import Credential, Mechanism, make_credential


def token_hmac(secret: bytes, token: str) -> bytes:
    """Who has it, has the token. `secret`: of the node."""
    return hmac.digest(secret, token.encode(errors="surrogatepass"), "sha512")


def token_password(made: bytes) -> str:
    """What a client logs in with."""
    return b64encode(made).decode()


def token_credential(mechanism: Mechanism, secret: bytes, token: str) -> Credential:
    """Takes milliseconds. The salt follows from the token too, so that the credential is the same each time."""
    made = token_hmac(secret, token)
    return make_credential(mechanism, token_password(made), hmac.digest(made, b"salt", "sha256"))
