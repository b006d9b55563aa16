"""AUTH_DELETE_ACL (3008): what is said of a user and a resource, or of all resources."""

from __future__ import annotations

from halfmoon.adapters.rocketmq import policies
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.core.steps import Pauses
from halfmoon.remoting.codes import Code
from halfmoon.schema.control import AclRule
from halfmoon.services.acls.rules import ANY, AclFilter
from halfmoon.services.acls.service import AccessRules


@request(3008, "AUTH_DELETE_ACL", changes=True)
def handle(call: Call) -> None:
    acls = call.services.get(AccessRules)
    call.work_out(_found(call), lambda found: call.change(lambda _: acls.change(removed=found)))


def _found(call: Call) -> Pauses[list[AclRule]]:
    acls = call.services.get(AccessRules)
    principal = policies.SUBJECT + policies.subject_name(call.text("subject"))
    kind = call.text("policyType", "")
    if kind and kind.lower() != policies.CUSTOM.lower():
        raise policies.refused(f"policies of type {kind[:300]} are not offered; expected {policies.CUSTOM}")
    resource = call.text("resource", "")
    found: list[AclRule] = []
    if resource:
        for place in policies.places(resource, call.node.settings.cluster):
            for resource_type, name, pattern_type in place.keys:
                of_place = AclFilter(resource_type, name, pattern_type, principal, None, ANY, ANY)
                found += yield from acls.find_slices(of_place)
        found = [each for each in found if (each.resource_type, each.operation) in policies.SAYABLE]
    else:
        found += yield from acls.find_slices(AclFilter(ANY, None, ANY, principal, None, ANY, ANY))
    if not found:
        raise Refused(Code.SYSTEM_ERROR, f"there is no such rule of {principal[:300]}")
    return found
