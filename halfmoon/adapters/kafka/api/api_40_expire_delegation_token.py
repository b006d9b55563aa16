"""ExpireDelegationToken (40): by its owner or a renewer; a time below 0 removes it (KIP-48). Rules:
DelegationTokenControlManager."""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.delegation import NO_TIME_MS, id_of, tell, tokens_of
from halfmoon.adapters.kafka.errors import code_of
from halfmoon.adapters.kafka.protocol import ExpireDelegationTokenResponse
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import BrokerError


def _refused(error: Exception) -> object:
    return ExpireDelegationTokenResponse(error_code=code_of(error), expiry_timestamp_ms=NO_TIME_MS)


def handle(ctx: Context, request: Any) -> object:
    hmac = bytes(request.hmac)
    name = id_of(ctx, hmac)  # it may be gone afterwards
    try:
        expires_ms, position = tokens_of(ctx).set_expiry(hmac, ctx.peer.principal, request.expiry_time_period_ms)
    except BrokerError as error:
        tell(ctx, "delete", name, error)
        return _refused(error)
    tell(ctx, "delete", name)
    return ctx.after(position, ExpireDelegationTokenResponse(expiry_timestamp_ms=expires_ms), _refused)
