"""Users as `mqadmin createUser` and its kin say them (UserInfo). Their password is the secret of signatures."""

from __future__ import annotations

from msgspec import Struct

from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.remoting.codes import Code
from halfmoon.schema.control import User

MOST = 10_000
"""In one answer: a megabyte."""


class UserInfo(Struct):
    username: str = ""
    password: str = ""
    userType: str = ""  # noqa: N815 (the wire's names, here and below)
    userStatus: str = ""  # noqa: N815

    @property
    def admin(self) -> bool | None:
        """None: nothing is said. Raises Refused."""
        return _one_of("userType", self.userType, normal=False, super=True)

    @property
    def disabled(self) -> bool | None:
        """None: nothing is said. Raises Refused."""
        return _one_of("userStatus", self.userStatus, enable=False, disable=True)


def _one_of(field: str, said: str, **values: bool) -> bool | None:
    if not said:
        return None
    found = values.get(said.lower())
    if found is None:
        raise Refused(Code.INVALID_PARAMETER, f"{field} '{said[:300]}' is none of {', '.join(values)}")
    return found


def shown(user: User) -> dict[str, str]:
    """Without the password, which RocketMQ shows."""
    return {
        "username": user.name,
        "userType": "Super" if user.admin else "Normal",
        "userStatus": "disable" if user.disabled else "enable",
    }
