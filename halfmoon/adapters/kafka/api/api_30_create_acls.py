"""CreateAcls (30): keep rules that can be obeyed, each for itself (services/acls/rules.py).

One that is known already is kept once.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.durable import each_of, refuse, tells_state
from halfmoon.adapters.kafka.protocol import CreateAclsResponse, Slices
from halfmoon.adapters.kafka.registry import Context, api
from halfmoon.errors import BrokerError
from halfmoon.schema.control import AclRule
from halfmoon.services.acls.service import AccessRules


@api(30, "CreateAcls", 1, 3, service=AccessRules)
@tells_state(each_of("results"))
def create_acls(ctx: Context, request: Any) -> Slices[object]:
    results = []
    acls = ctx.services.get(AccessRules)
    for asked in request.creations:
        yield
        result = CreateAclsResponse.AclCreationResult(error_code=0, error_message=None)
        results.append(result)
        rule = AclRule(
            asked.resource_type,
            asked.resource_name,
            asked.resource_pattern_type,
            asked.principal,
            asked.host,
            asked.operation,
            asked.permission_type,
        )
        try:
            acls.check(rule)
            acls.change([rule])
        except BrokerError as error:
            refuse(result, error)
    return CreateAclsResponse(throttle_time_ms=0, results=results)
