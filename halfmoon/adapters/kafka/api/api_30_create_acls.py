"""CreateAcls (30): keep rules that can be obeyed (services/acls/rules.py).

Those that cannot are refused each for itself. The others are kept as a whole or not at all, by one record, as in Kafka
(AclControlManager.createAcls): half of a request may allow what the other half denies. Only of more than `MOST_AT_ONCE`
are there several records, so that others have their turn. A rule that is known already is kept once.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.durable import each_of, refuse, tells_state
from halfmoon.adapters.kafka.protocol import CreateAclsResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import BrokerError
from halfmoon.schema.control import AclRule
from halfmoon.services.acls.service import AccessRules

MOST_AT_ONCE = 1_000
"""Rules of one record."""


@tells_state(each_of("results"))
def handle(ctx: Context, request: Any) -> Slices[object]:
    results = []
    acls = ctx.services.get(AccessRules)
    checked: list[tuple[AclRule, Any]] = []
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
        except BrokerError as error:
            refuse(result, error)
        else:
            checked.append((rule, result))
    for first in range(0, len(checked), MOST_AT_ONCE):
        part = checked[first : first + MOST_AT_ONCE]
        try:
            acls.change([rule for rule, _ in part])
        except BrokerError as error:
            for _, result in part:
                refuse(result, error)
        yield
    return CreateAclsResponse(throttle_time_ms=0, results=results)
