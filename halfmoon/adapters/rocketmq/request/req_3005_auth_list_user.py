"""AUTH_LIST_USER (3005): the users whose names contain a text, or all."""

from __future__ import annotations

import msgspec

from halfmoon.adapters.rocketmq import users
from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.core.steps import Pauses
from halfmoon.remoting.codes import Code
from halfmoon.services.credentials.users import Users

EVERY = 1_000
"""Users from one pause to the next."""


@request(3005, "AUTH_LIST_USER")
def handle(call: Call) -> None:
    def answered(found: list[dict[str, str]]) -> None:
        call.when_known(Answer(body=msgspec.json.encode(found)))

    call.work_out(_matching(call, call.text("filter", "")), answered)


def _matching(call: Call, wanted: str) -> Pauses[list[dict[str, str]]]:
    found = []
    for at, user in enumerate(list(call.services.get(Users).all())):
        if wanted in user.name:
            found.append(users.shown(user))
        if len(found) > users.MOST:
            raise Refused(Code.INVALID_PARAMETER, f"more than {users.MOST} users: ask for fewer by a filter")
        if not at % EVERY:
            yield
    return sorted(found, key=lambda each: each["username"])
