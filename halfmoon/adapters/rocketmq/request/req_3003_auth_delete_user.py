"""AUTH_DELETE_USER (3003): a user, its delegation tokens and its access rules. It need not be there."""

from __future__ import annotations

from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.schema.control import AclRule
from halfmoon.services.acls.rules import ANY, AclFilter
from halfmoon.services.acls.service import AccessRules
from halfmoon.services.credentials.users import Users


@request(3003, "AUTH_DELETE_USER", changes=True)
def handle(call: Call) -> None:
    name = call.text("username")
    users, acls = call.services.get(Users), call.services.get(AccessRules)

    def delete(rules: list[AclRule]) -> None:
        if users.look_up(name) is not None:
            users.delete(name)
        acls.change(removed=rules)

    rules = acls.find_slices(AclFilter(ANY, None, ANY, f"User:{name}", None, ANY, ANY))
    call.work_out(rules, lambda found: call.change(lambda _: delete(found)))
