"""DescribeUserScramCredentials (50): there is no SASL here, and so nobody has a credential (KIP-554)."""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.duplicates import duplicates
from halfmoon.adapters.kafka.durable import refuse
from halfmoon.adapters.kafka.protocol import DescribeUserScramCredentialsResponse
from halfmoon.adapters.kafka.registry import Context, api
from halfmoon.errors import BrokerError, Fault

_Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


@api(50, "DescribeUserScramCredentials", 0, 0)
def describe_user_scram_credentials(ctx: Context, request: Any) -> object:
    names = [user.name for user in request.users or ()]
    twice = duplicates(names)
    results = []
    for name in dict.fromkeys(names):
        result = _Result(user=name, credential_infos=[])
        if name in twice:
            refuse(result, BrokerError(Fault.DUPLICATE_RESOURCE, f"user {name} is named twice"))
        else:
            refuse(result, BrokerError(Fault.RESOURCE_NOT_FOUND, f"user {name} has no credential"))
        results.append(result)
    return DescribeUserScramCredentialsResponse(throttle_time_ms=0, error_code=0, error_message="", results=results)
