"""CreateDelegationToken (38): whoever has not authenticated gets no token, and nobody has.

Version 3 asks in the name of another (KIP-373). Rule: KafkaApis.handleCreateTokenRequest on a PLAINTEXT listener.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.errors import code
from halfmoon.adapters.kafka.protocol import CreateDelegationTokenResponse
from halfmoon.adapters.kafka.registry import Context, api
from halfmoon.errors import Fault

USER, ANONYMOUS = "User", "ANONYMOUS"
NO_TIME_MS = -1


@api(38, "CreateDelegationToken", 1, 3)
def create_delegation_token(_ctx: Context, request: Any) -> object:
    own = not request.owner_principal_name
    return CreateDelegationTokenResponse(
        error_code=code(Fault.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
        principal_type=USER if own else request.owner_principal_type or "",
        principal_name=ANONYMOUS if own else request.owner_principal_name,
        token_requester_principal_type=USER,
        token_requester_principal_name=ANONYMOUS,
        issue_timestamp_ms=NO_TIME_MS,
        expiry_timestamp_ms=NO_TIME_MS,
        max_timestamp_ms=NO_TIME_MS,
    )
