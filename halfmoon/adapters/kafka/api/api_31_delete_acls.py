"""DeleteAcls (31): forget the rules that match one of the filters, and tell which (services/acls/rules.py)."""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.api.api_29_describe_acls import acl_filter
from halfmoon.adapters.kafka.durable import each_of, refuse, tells_state
from halfmoon.adapters.kafka.protocol import DeleteAclsResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import BrokerError
from halfmoon.services.acls.service import AccessRules

_Result = DeleteAclsResponse.DeleteAclsFilterResult

AT_ONCE = 1_000
"""So many rules are removed by one record of the log, and in one turn of the loop."""


def _kept(result: Any, error: Exception) -> None:
    refuse(result, error)
    result.matching_acls = []


@tells_state(each_of("filter_results", _kept))
def handle(ctx: Context, request: Any) -> Slices[object]:
    results = []
    for asked in request.filters:
        result = _Result(error_code=0, error_message=None, matching_acls=[])
        results.append(result)
        try:
            found = yield from ctx.services.get(AccessRules).find_slices(acl_filter(asked))
            for first in range(0, len(found), AT_ONCE):
                ctx.services.get(AccessRules).change(removed=found[first : first + AT_ONCE])
                yield
        except BrokerError as error:
            refuse(result, error)
            continue
        matching = []
        for rule in found:
            matching.append(
                _Result.DeleteAclsMatchingAcl(
                    error_code=0,
                    error_message=None,
                    resource_type=rule.resource_type,
                    resource_name=rule.resource_name,
                    pattern_type=rule.pattern_type,
                    principal=rule.principal,
                    host=rule.host,
                    operation=rule.operation,
                    permission_type=rule.permission,
                )
            )
            yield
        result.matching_acls = matching
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=results)
