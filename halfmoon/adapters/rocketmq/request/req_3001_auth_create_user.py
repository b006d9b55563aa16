"""AUTH_CREATE_USER (3001): a user, whose password is the secret of signatures."""

from __future__ import annotations

from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.adapters.rocketmq.shards import Administered
from halfmoon.adapters.rocketmq.users import UserInfo
from halfmoon.remoting.codes import Code
from halfmoon.services.credentials.users import Users


@request(3001, "AUTH_CREATE_USER", changes=True)
def handle(call: Call) -> None:
    name, said = call.text("username"), call.body(UserInfo)
    password = said.password
    if not password:
        raise Refused(Code.INVALID_PARAMETER, "the password is empty")
    users = call.services.get(Users)
    admin, disabled = bool(said.admin), bool(said.disabled)

    def work(_: Administered) -> None:
        users.create(name, admin=admin, secret=password)
        if disabled:
            users.set_flags(name, disabled=True)

    call.change(work)
