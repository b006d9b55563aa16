"""CreateDelegationToken (38): a token by which somebody else may log in for a while (KIP-48).

Version 3 asks in the name of another, which takes CreateTokens on that user (KIP-373). Rules:
ControllerApis.handleCreateDelegationTokenRequest, DelegationTokenControlManager.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.delegation import NO_TIME_MS, owner_of, tell, tokens_of
from halfmoon.adapters.kafka.errors import code_of
from halfmoon.adapters.kafka.protocol import CreateDelegationTokenResponse
from halfmoon.adapters.kafka.registry import Context
from halfmoon.auth.principals import Principal
from halfmoon.errors import BrokerError, Fault


def handle(ctx: Context, request: Any) -> object:
    requester = ctx.peer.principal
    owner = owner_of(ctx, request.owner_principal_type, request.owner_principal_name)
    answer = CreateDelegationTokenResponse(
        principal_type=owner.kind, principal_name=owner.name, token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name, issue_timestamp_ms=NO_TIME_MS, expiry_timestamp_ms=NO_TIME_MS,
        max_timestamp_ms=NO_TIME_MS,
    )  # fmt: skip

    def refused(error: Exception) -> object:
        answer.error_code = code_of(error)
        answer.issue_timestamp_ms = answer.expiry_timestamp_ms = answer.max_timestamp_ms = NO_TIME_MS
        answer.token_id, answer.hmac = "", b""
        return answer

    try:
        tokens = tokens_of(ctx)
        if owner != requester and not ctx.demands(("create_tokens", "user", str(owner))):
            raise BrokerError(Fault.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        renewers = [Principal(each.principal_type, each.principal_name) for each in request.renewers]
        token, position = tokens.create(owner, requester, renewers, request.max_lifetime_ms)
    except BrokerError as error:
        tell(ctx, "create", "", error)
        return refused(error)
    tell(ctx, "create", token.said.id)
    answer.token_id, answer.hmac = token.said.id, token.hmac
    answer.issue_timestamp_ms = token.said.issued_ms
    answer.expiry_timestamp_ms, answer.max_timestamp_ms = token.said.expires_ms, token.said.max_ms
    return ctx.after(position, answer, refused)
