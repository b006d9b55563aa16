"""DescribeDelegationToken (41): there are no tokens (see CreateDelegationToken).

Rule: KafkaApis.handleDescribeTokensRequest on a PLAINTEXT listener.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.errors import code
from halfmoon.adapters.kafka.protocol import DescribeDelegationTokenResponse
from halfmoon.adapters.kafka.registry import Context, api
from halfmoon.errors import Fault


@api(41, "DescribeDelegationToken", 1, 3)
def describe_delegation_token(_ctx: Context, _request: Any) -> object:
    return DescribeDelegationTokenResponse(error_code=code(Fault.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED), tokens=[])
