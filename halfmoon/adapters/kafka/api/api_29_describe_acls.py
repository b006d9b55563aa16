"""DescribeAcls (29): the rules that are kept and match a filter, by resource (KIP-140, KIP-290).

Which rules are kept, and which are not: services/acls/rules.py.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.durable import refuse, tells_state
from halfmoon.adapters.kafka.protocol import DescribeAclsResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import BrokerError
from halfmoon.services.acls import rules
from halfmoon.services.acls.service import AccessRules

_Resource = DescribeAclsResponse.DescribeAclsResource


@tells_state()
def handle(ctx: Context, request: Any) -> Slices[object]:
    response = DescribeAclsResponse(throttle_time_ms=0, error_code=0, error_message=None, resources=[])
    try:
        rules = yield from ctx.services.get(AccessRules).find_slices(acl_filter(request))
    except BrokerError as error:
        refuse(response, error)
        return response
    by_resource: dict[tuple[int, str, int], list[Any]] = {}
    for rule in rules:
        by_resource.setdefault((rule.resource_type, rule.resource_name, rule.pattern_type), []).append(
            _Resource.AclDescription(
                principal=rule.principal, host=rule.host, operation=rule.operation, permission_type=rule.permission
            )
        )
        yield
    response.resources = []
    for (kind, name, pattern), found in by_resource.items():
        response.resources.append(_Resource(resource_type=kind, resource_name=name, pattern_type=pattern, acls=found))
        yield
    return response


def acl_filter(asked: Any) -> rules.AclFilter:
    return rules.AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )
