"""AlterUserScramCredentials (51): there is no SASL here, so a credential could never be used, and is refused (KIP-554).

Each user is answered once, as in Kafka.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.durable import refuse
from halfmoon.adapters.kafka.protocol import AlterUserScramCredentialsResponse
from halfmoon.adapters.kafka.registry import Context, api
from halfmoon.errors import BrokerError, Fault

_Result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


@api(51, "AlterUserScramCredentials", 0, 0)
def alter_user_scram_credentials(ctx: Context, request: Any) -> object:
    errors = {
        each.name: BrokerError(Fault.RESOURCE_NOT_FOUND, f"user {each.name} has no credential")
        for each in request.deletions
    } | {
        each.name: BrokerError(Fault.UNSUPPORTED_SASL_MECHANISM, "Halfmoon has no SASL") for each in request.upsertions
    }
    results = []
    for user, error in errors.items():
        result = _Result(user=user)
        refuse(result, error)
        results.append(result)
    return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=results)
