"""What the four APIs of delegation tokens share: who may ask (KIP-48, KIP-373).

A token is for somebody who has authenticated, and not by a token. Rule: KafkaApis.allowTokenRequests.
"""

from __future__ import annotations

from halfmoon.adapters.kafka.registry import Context
from halfmoon.auth.principals import Principal
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.credentials.tokens import DelegationTokens

NO_TIME_MS = -1


def tokens_of(ctx: Context) -> DelegationTokens:
    """Raises BrokerError(DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)."""
    peer = ctx.peer
    if not peer.mechanism or peer.token_id is not None:
        raise BrokerError(Fault.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    return ctx.services.get(DelegationTokens)


def owner_of(ctx: Context, kind: str | None, name: str | None) -> Principal:
    """Who is named; where nobody is, who asks."""
    return Principal(kind or "", name) if name else ctx.peer.principal
