"""DescribeUserScramCredentials (50): which users have a SCRAM credential for which mechanism (KIP-554).

No user named, or None: all that have one. A user that is named twice, or has none, is answered with an error of its
own. Rules: ScramImage.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.duplicates import duplicates_in_slices
from halfmoon.adapters.kafka.durable import refuse, tells_state
from halfmoon.adapters.kafka.protocol import DescribeUserScramCredentialsResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.credentials.users import Users

_Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


@tells_state()
def handle(ctx: Context, request: Any) -> Slices[object]:
    users = ctx.services.get(Users)
    names = [user.name for user in request.users or ()]
    twice = yield from duplicates_in_slices(names)
    if not names:
        names = [user.name for user in users.all() if user.scram]
    results = []
    for name in dict.fromkeys(names):
        yield
        result = _Result(user=name, error_code=0, error_message=None, credential_infos=[])
        results.append(result)
        try:
            if name in twice:
                raise BrokerError(Fault.DUPLICATE_RESOURCE, f"user {name} is named twice")
            result.credential_infos = [
                DescribeUserScramCredentialsResponse.CredentialInfo(
                    mechanism=each.mechanism, iterations=each.iterations
                )
                for each in users.scram(name)
            ]
        except BrokerError as error:
            refuse(result, error)
    return DescribeUserScramCredentialsResponse(throttle_time_ms=0, error_code=0, error_message=None, results=results)
