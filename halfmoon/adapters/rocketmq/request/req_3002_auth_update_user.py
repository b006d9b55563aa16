"""AUTH_UPDATE_USER (3002): what is said of a user takes the place of what was; the rest stays."""

from __future__ import annotations

from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.adapters.rocketmq.shards import Administered
from halfmoon.adapters.rocketmq.users import UserInfo
from halfmoon.services.credentials.users import Users


@request(3002, "AUTH_UPDATE_USER", changes=True)
def handle(call: Call) -> None:
    name, said = call.text("username"), call.body(UserInfo)
    users = call.services.get(Users)
    admin, disabled = said.admin, said.disabled

    def work(_: Administered) -> None:
        users.find(name)
        if said.password:
            users.set_secret(name, said.password)
        if admin is not None or disabled is not None:
            users.set_flags(name, disabled=disabled, admin=admin)

    call.change(work)
