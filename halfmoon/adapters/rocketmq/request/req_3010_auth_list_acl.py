"""AUTH_LIST_ACL (3010): what users may do, in RocketMQ's words: those whose subjects and resources contain texts."""

from __future__ import annotations

import msgspec

from halfmoon.adapters.rocketmq import policies
from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.policies import Acl, Policy
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.adapters.rocketmq.request.req_3009_auth_get_acl import unsaid_remark
from halfmoon.core.steps import Pauses
from halfmoon.schema.control import AclRule
from halfmoon.services.acls.rules import ANY, AclFilter
from halfmoon.services.acls.service import AccessRules


@request(3010, "AUTH_LIST_ACL")
def handle(call: Call) -> None:
    def answered(found: tuple[list[Acl], int]) -> None:
        acls, unsaid = found
        call.when_known(Answer(remark=unsaid_remark(unsaid), body=msgspec.json.encode(acls)))

    call.work_out(_matching(call, call.text("subjectFilter", ""), call.text("resourceFilter", "")), answered)


def _matching(call: Call, subject: str, resource: str) -> Pauses[tuple[list[Acl], int]]:
    rules = yield from call.services.get(AccessRules).find_slices(AclFilter(ANY, None, ANY, None, None, ANY, ANY))
    by_principal: dict[str, list[AclRule]] = {}
    count = 0
    for at, rule in enumerate(rules):
        if rule.principal.startswith(policies.SUBJECT) and subject in rule.principal:
            by_principal.setdefault(rule.principal, []).append(rule)
            count += 1
            if count > policies.MOST_RULES:
                raise policies.refused(f"more than {policies.MOST_RULES} rules: ask for fewer by a filter")
        if not at % 1_000:
            yield
    found, unsaid = [], 0
    for principal, of_principal in by_principal.items():
        yield
        acl, more = policies.said_of(principal, of_principal, call.node.settings.cluster)
        unsaid += more
        entries = [each for policy in acl.policies for each in policy.entries if resource in each.resource]
        if entries:
            found.append(Acl(principal, [Policy(policies.CUSTOM, entries)]))
    return found, unsaid
