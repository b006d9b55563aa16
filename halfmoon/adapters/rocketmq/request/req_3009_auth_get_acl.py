"""AUTH_GET_ACL (3009): what a user may do, in RocketMQ's words. The remark says how many rules these do not have."""

from __future__ import annotations

import msgspec

from halfmoon.adapters.rocketmq import policies
from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.core.steps import Pauses
from halfmoon.schema.control import AclRule
from halfmoon.services.acls.rules import ANY, AclFilter
from halfmoon.services.acls.service import AccessRules


@request(3009, "AUTH_GET_ACL")
def handle(call: Call) -> None:
    principal = policies.SUBJECT + policies.subject_name(call.text("subject"))

    def answered(rules: list[AclRule]) -> None:
        if len(rules) > policies.MOST_RULES:
            raise policies.refused(f"more than {policies.MOST_RULES} rules")
        acl, unsaid = policies.said_of(principal, rules, call.node.settings.cluster)
        body = msgspec.json.encode(acl) if acl.policies else b""
        call.when_known(Answer(remark=unsaid_remark(unsaid), body=body))

    call.work_out(_rules(call, principal), answered)


def _rules(call: Call, principal: str) -> Pauses[list[AclRule]]:
    acls = call.services.get(AccessRules)
    return (yield from acls.find_slices(AclFilter(ANY, None, ANY, principal, None, ANY, ANY)))


def unsaid_remark(unsaid: int) -> str | None:
    return f"{unsaid} rules cannot be said in RocketMQ's words: halfmoon acl list has them" if unsaid else None
