"""AUTH_DELETE_USER (3003): a user, its delegation tokens and its access rules. It need not be there."""

from __future__ import annotations

from halfmoon.adapters.rocketmq.answers import DONE
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.core.steps import Pauses
from halfmoon.services.acls.rules import ANY, AclFilter
from halfmoon.services.acls.service import AccessRules
from halfmoon.services.credentials.users import Users


@request(3003, "AUTH_DELETE_USER", changes=True)
def handle(call: Call) -> None:
    call.work_out(_delete(call, call.text("username")), lambda _: call.when_known(DONE))


def _delete(call: Call, name: str) -> Pauses[None]:
    users, acls = call.services.get(Users), call.services.get(AccessRules)
    rules = yield from acls.find_slices(AclFilter(ANY, None, ANY, f"User:{name}", None, ANY, ANY))
    if users.look_up(name) is not None:
        users.delete(name)
    acls.change(removed=rules)
