"""AUTH_CREATE_ACL (3006): what a user may do with resources, in place of what was said of these before."""

from __future__ import annotations

from halfmoon.adapters.rocketmq import policies
from halfmoon.adapters.rocketmq.policies import Acl
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.core.steps import Pauses
from halfmoon.schema.control import AclRule
from halfmoon.services.acls.rules import ANY, AclFilter
from halfmoon.services.acls.service import AccessRules
from halfmoon.services.credentials.users import Users


@request(3006, "AUTH_CREATE_ACL", changes=True)
def handle(call: Call) -> None:
    acls = call.services.get(AccessRules)
    call.work_out(_found(call), lambda found: call.change(lambda _: acls.change(*found)))


def _found(call: Call) -> Pauses[tuple[list[AclRule], list[AclRule]]]:
    """The rules that are to be, and those that are not to be any more."""
    said = call.body(Acl)
    name = policies.subject_name(call.text("subject", "") or said.subject)
    call.services.get(Users).find(name)
    acls = call.services.get(AccessRules)
    principal = policies.SUBJECT + name
    wanted = policies.rules_of(principal, said, call.node.settings.cluster)
    added: list[AclRule] = []
    before: list[AclRule] = []
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
    return added, removed
