"""AUTH_GET_USER (3004): a user, or nothing where there is none. The password is not told."""

from __future__ import annotations

import msgspec

from halfmoon.adapters.rocketmq import users
from halfmoon.adapters.rocketmq.answers import DONE, Answer
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.services.credentials.users import Users


@request(3004, "AUTH_GET_USER")
def handle(call: Call) -> None:
    found = call.services.get(Users).look_up(call.text("username"))
    call.when_known(DONE if found is None else Answer(body=msgspec.json.encode(users.shown(found))))
