"""DescribeDelegationToken (41): one's own tokens, and those that Describe on the token, or DescribeTokens on its owner,
shows (KIP-48, KIP-373). Rules: KafkaApis.handleDescribeTokensRequest, DelegationTokenManager.filterToken."""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.delegation import tokens_of
from halfmoon.adapters.kafka.durable import tells_state
from halfmoon.adapters.kafka.errors import code_of
from halfmoon.adapters.kafka.protocol import DescribeDelegationTokenResponse
from halfmoon.adapters.kafka.registry import Context
from halfmoon.auth.principals import Principal, parse
from halfmoon.errors import BrokerError
from halfmoon.schema.control import DelegationToken
from halfmoon.services.credentials.tokens import Token

_Shown = DescribeDelegationTokenResponse.DescribedDelegationToken


@tells_state()
def handle(ctx: Context, request: Any) -> object:
    owners = None
    if request.owners is not None:
        owners = [Principal(each.principal_type, each.principal_name) for each in request.owners]

    def may(token: DelegationToken) -> bool:
        # Without an authorizer nobody sees others' tokens: whoever has one is its owner.
        return ctx.rights is not None and (
            ctx.allows("describe", "delegation_token", token.id) or ctx.allows("describe_tokens", "user", token.owner)
        )

    try:
        tokens = tokens_of(ctx)
        found = [] if owners == [] else tokens.describe(ctx.peer.principal, owners, may)
    except BrokerError as error:
        return DescribeDelegationTokenResponse(error_code=code_of(error), tokens=[])
    return DescribeDelegationTokenResponse(error_code=0, tokens=list(map(_shown, found)))


def _shown(token: Token) -> object:
    said = token.said
    owner, requester = parse(said.owner), parse(said.requester)
    return _Shown(
        principal_type=owner.kind, principal_name=owner.name, token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name, issue_timestamp=said.issued_ms, expiry_timestamp=said.expires_ms,
        max_timestamp=said.max_ms, token_id=said.id, hmac=token.hmac,
        renewers=[
            _Shown.DescribedDelegationTokenRenewer(principal_type=each.kind, principal_name=each.name)
            for each in map(parse, said.renewers)
        ],
    )  # fmt: skip
