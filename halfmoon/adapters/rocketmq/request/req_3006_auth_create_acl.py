"""AUTH_CREATE_ACL (3006): what a user may do with resources, in place of what was said of these before."""

from __future__ import annotations

from halfmoon.adapters.rocketmq import policies
from halfmoon.adapters.rocketmq.answers import DONE
from halfmoon.adapters.rocketmq.policies import Acl
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.core.steps import Pauses
from halfmoon.services.acls.rules import ANY, AclFilter
from halfmoon.services.acls.service import AccessRules
from halfmoon.services.credentials.users import Users


@request(3006, "AUTH_CREATE_ACL", changes=True)
def handle(call: Call) -> None:
    call.work_out(put(call), lambda _: call.when_known(DONE))


def put(call: Call) -> Pauses[None]:
    said = call.body(Acl)
    name = policies.subject_name(call.text("subject", "") or said.subject)
    call.services.get(Users).find(name)
    acls = call.services.get(AccessRules)
    principal = policies.SUBJECT + name
    wanted = policies.rules_of(principal, said, call.node.settings.cluster)
    added, before = [], []
    for place, rules in wanted.items():
        yield
        for rule in rules:
            acls.check(rule)
        added += rules
        for resource_type, resource, pattern_type in place.keys:
            of_place = AclFilter(resource_type, resource, pattern_type, principal, None, ANY, ANY)
            before += yield from acls.find_slices(of_place)
    new = set(added)
    removed = [each for each in before if each not in new and (each.resource_type, each.operation) in policies.SAYABLE]
    acls.change(added, removed)
