"""What the four APIs of delegation tokens share: who may ask (KIP-48, KIP-373).

A token is for somebody who has authenticated, and not by a token. Rule: KafkaApis.allowTokenRequests.
"""

from __future__ import annotations

from halfmoon.adapters.kafka.registry import Context
from halfmoon.auth.principals import Principal
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.audit.service import Audit
from halfmoon.services.credentials.tokens import DelegationTokens

NO_TIME_MS = -1


def tokens_of(ctx: Context) -> DelegationTokens:
    """Raises BrokerError(DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)."""
    peer = ctx.peer
    if not peer.mechanism or peer.token_id is not None:
        raise BrokerError(Fault.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    return ctx.services.get(DelegationTokens)


def id_of(ctx: Context, hmac: bytes) -> str:
    """Of the token that a request means, whoever asks; empty where there is none."""
    return ctx.services.get(DelegationTokens).id_of(hmac)


def tell(ctx: Context, operation: str, token_id: str, refusal: BrokerError | None = None) -> None:
    """Have audit know who has made, renewed or removed a token, or was not to. Its HMAC is a secret, its id is not."""
    audit = ctx.services.find(Audit)
    if audit is None or (refusal is not None and refusal.fault not in _REFUSALS):
        return
    use = operation, "delegation_token", token_id
    api = _APIS[operation]
    if refusal is None:
        audit.changed(ctx.peer.who(), api, use)
    else:
        audit.changed(ctx.peer.who(), api, use, "denied", refusal.fault.name)


_APIS = {"create": "CreateDelegationToken", "alter": "RenewDelegationToken", "delete": "ExpireDelegationToken"}
_REFUSALS = (
    Fault.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    Fault.DELEGATION_TOKEN_OWNER_MISMATCH,
    Fault.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
)


def owner_of(ctx: Context, kind: str | None, name: str | None) -> Principal:
    """Who is named; where nobody is, who asks."""
    return Principal(kind or "", name) if name else ctx.peer.principal
