"""A Halfmoon without logins to put the questions to: who asks is told by the address that they come from, and a plugin
answers by access rules, as the broker will."""

from __future__ import annotations

import socket
from collections.abc import Iterable

from halfmoon.plugin import hookimpl
from halfmoon.schema.control import AclRule, AclsChanged
from halfmoon.services.acls.state import AclsState
from halfmoon.services.authorization.service import Authorization
from tests.interop.access.client import Connection
from tests.interop.access.world import World

ADMIN, ALICE, BOB = "127.0.0.1", "127.0.0.2", "127.0.0.3"
LEFT_OUT = frozenset({17, 36, 38, 39, 40, 41, 64, 80, 81, 88, 89})
"""APIs that need a login, or that Halfmoon does not have."""


class ByAddress:
    """The plugin."""

    api_version = 1

    def __init__(self) -> None:
        self.acls = AclsState()
        self.authorization = Authorization(self.acls, lambda principal: principal == ADMIN)

    @hookimpl
    def halfmoon_authorize(self, client_host: str, operation: str, resource_type: str, resource: str) -> bool:
        return self.authorization.allows(client_host, client_host, operation, resource_type, resource)


class FromAddress(Connection):
    def __init__(self, bootstrap: str, user: str, password: str, *, token: bool = False) -> None:
        host, _, port = bootstrap.rpartition(":")
        source = ALICE if user.endswith("-alice") else BOB if user.endswith("-bob") else ADMIN
        self._socket = socket.create_connection((host, int(port)), 30, source_address=(source, 0))
        self._correlation_id = 0


class WorldByAddress(World):
    connect = FromAddress

    def __init__(self, bootstrap: str, plugin: ByAddress) -> None:
        self._acls = plugin.acls
        super().__init__(bootstrap, "admin", "")

    @property
    def principal(self) -> str:
        return ALICE

    def grant(self, rights: Iterable[str]) -> None:
        rules = [self._rule(right) for right in rights]
        self._acls.apply(AclsChanged([
            AclRule(
                each["resource_type"], each["resource_name"], each["resource_pattern_type"], each["principal"],
                each["host"], each["operation"], each["permission_type"],
            )
            for each in rules
        ], list(self._acls.rules)))  # fmt: skip

    def _make_user(self, name: str) -> None:
        pass

    def _delete_users(self) -> None:
        pass
