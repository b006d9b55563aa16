"""Users and rules for a broker that has processes of its own, by its administrator's socket: no password is needed."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from halfmoon.adapters.tcp.interposing import KIT
from halfmoon.kafka_wire.messages import REQUESTS, RESPONSES

if TYPE_CHECKING:
    from halfmoon.schema.control import AclRule
    from halfmoon.services.credentials.users import Upsertion

API_VERSIONS: Final = 18
"""Whose answer has no tagged fields in its header (KIP-511)."""
CREATE_ACLS: Final = 30
ALTER_USER_SCRAM_CREDENTIALS: Final = 51
TIMEOUT_S = 30.0


class AdminSocket:
    """What is refused raises RuntimeError."""

    def __init__(self, path: Path, client: str = KIT) -> None:
        """`path`: of the socket of one of its processes. `client`: the client id."""
        self.path = path
        self._client = client.encode()

    def set_passwords(self, made: Sequence[Upsertion]) -> None:
        """A user who is not there is made."""
        upsertion = REQUESTS[ALTER_USER_SCRAM_CREDENTIALS].ScramCredentialUpsertion
        for each in made:  # a request may say one thing about a user
            given = upsertion(
                name=each.name, mechanism=each.mechanism, iterations=each.iterations, salt=each.salt,
                salted_password=each.salted_password,
            )  # fmt: skip
            _check(self.ask(ALTER_USER_SCRAM_CREDENTIALS, deletions=[], upsertions=[given]).results)

    def add_rules(self, made: Sequence[AclRule]) -> None:
        creation = REQUESTS[CREATE_ACLS].AclCreation
        given = [
            creation(
                resource_type=each.resource_type, resource_name=each.resource_name,
                resource_pattern_type=each.pattern_type, principal=each.principal, host=each.host,
                operation=each.operation, permission_type=each.permission,
            )
            for each in made
        ]  # fmt: skip
        _check(self.ask(CREATE_ACLS, creations=given).results)

    def ask(self, key: int, /, **fields: Any) -> Any:
        """A request's answer, in the newest version that we know. Raises OSError."""
        return self.ask_in(REQUESTS[key].api.last_version, key, **fields)

    def ask_in(self, version: int, key: int, /, **fields: Any) -> Any:
        """As `ask`, in this version."""
        request, response = REQUESTS[key], RESPONSES[key]
        tags = b"\0" * request.api.is_flexible(version)
        head = struct.pack(">hhih", key, version, 1, len(self._client)) + self._client + tags
        said = head + request.encoder(version)(request(**fields))
        with socket.socket(socket.AF_UNIX) as made:
            made.settimeout(TIMEOUT_S)
            made.connect(str(self.path))
            made.sendall(struct.pack(">i", len(said)) + said)
            with made.makefile("rb") as answers:
                head = answers.read(4)
                if len(head) < 4:
                    raise ConnectionError("the broker closed the connection")
                answer = answers.read(*struct.unpack(">i", head))
        return response.decoder(version)(memoryview(answer)[4 + (len(tags) if key != API_VERSIONS else 0) :], 0)[0]


def _check(results: Sequence[Any]) -> None:
    for each in results:
        if each.error_code:
            raise RuntimeError(f"the broker refuses it: {each.error_message or each.error_code}")
