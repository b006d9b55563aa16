"""RenewDelegationToken (39): there are no tokens (see CreateDelegationToken).

Rule: KafkaApis.handleRenewTokenRequest on a PLAINTEXT listener.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.errors import code
from halfmoon.adapters.kafka.protocol import RenewDelegationTokenResponse
from halfmoon.adapters.kafka.registry import Context, api
from halfmoon.errors import Fault


@api(39, "RenewDelegationToken", 1, 2)
def renew_delegation_token(_ctx: Context, _request: Any) -> object:
    return RenewDelegationTokenResponse(
        error_code=code(Fault.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED), expiry_timestamp_ms=-1
    )
