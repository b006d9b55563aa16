"""AlterUserScramCredentials (51): set and delete SCRAM credentials (KIP-554; rules: services/credentials/users.py).

The client has salted the password; what is kept is made of that. Each user is answered once.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.durable import each_of, refuse, tells_state
from halfmoon.adapters.kafka.protocol import AlterUserScramCredentialsResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.services.credentials.users import Deletion, Upsertion, Users

_Result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


@tells_state(each_of("results"))
def handle(ctx: Context, request: Any) -> Slices[object]:
    deletions, upsertions = [], []
    for each in request.deletions:
        yield
        deletions.append(Deletion(each.name, each.mechanism))
    for each in request.upsertions:
        yield
        salt, salted = bytes(each.salt), bytes(each.salted_password)
        upsertions.append(Upsertion(each.name, each.mechanism, each.iterations, salt, salted))
    altered = yield from ctx.services.get(Users).alter_slices(deletions, upsertions)
    results = []
    for user, error in altered.items():
        yield
        result = _Result(user=user, error_code=0, error_message=None)
        results.append(result)
        if error is not None:
            refuse(result, error)
    return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=results)
