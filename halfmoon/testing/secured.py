"""What a broker for tests and its clients need to encrypt and to log in: certificates, users and rules, new each time.

The user `test` is a super user. Others have what a test allows them.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import weakref
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halfmoon.auth.development import HERE, make_authority, make_server
from halfmoon.auth.scram import MECHANISMS, MIN_ITERATIONS, salted_password
from halfmoon.schema.control import AclRule
from halfmoon.securing.clients import as_file, java, kafka_python
from halfmoon.securing.properties import Security
from halfmoon.services.acls.rules import ALLOW, ANY_NAME, CLUSTER_NAME, DENY, LITERAL, PREFIXED
from halfmoon.services.authorization.decisions import ALL, OPERATIONS, RESOURCE_TYPES
from halfmoon.services.credentials.users import Upsertion
from halfmoon.testing import temporary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from halfmoon.server.app import App

USER = "test"
MECHANISM = "SCRAM-SHA-256"

_OPERATIONS = {name.replace("_", ""): number for name, number in {"all": ALL, **OPERATIONS}.items()}


class Secured:
    def __init__(self) -> None:
        self._passwords = {USER: secrets.token_urlsafe(12)}
        self._folder = folder = temporary.make("halfmoon-tls-")
        weakref.finalize(self, temporary.remove, folder)
        now = datetime.now(UTC)
        authority = make_authority(now)
        server = make_server(authority, HERE, now)
        self._ca, cert, key = folder / "ca.crt", folder / "broker.crt", folder / "broker.key"
        key.touch(0o600)
        for path, data in ((self._ca, authority.certificate), (cert, server.certificate), (key, server.key)):
            path.write_bytes(data)
        listener = {"tls": {"cert": str(cert), "key": str(key)}, "sasl": [*MECHANISMS, "PLAIN"]}
        self.config = {"listeners": {"kafka": listener}, "security": {"super_users": [f"User:{USER}"]}}
        """Sections of broker.yaml."""

    def passwords(self, name: str = USER, password: str | None = None) -> list[Upsertion]:
        """What the broker is to have of this user's password; clients have it from now on. It is the user's own, or
        one by chance, where none is given."""
        chosen = password or self._passwords.get(name) or secrets.token_urlsafe(12)
        made = []
        for mechanism in MECHANISMS.values():
            salt = os.urandom(16)
            salted = salted_password(mechanism, chosen, salt, MIN_ITERATIONS)
            made.append(Upsertion(name, mechanism.number, MIN_ITERATIONS, salt, salted))
        self._passwords[name] = chosen
        return made

    def security(self, user: str) -> Security:
        return Security("SASL_SSL", MECHANISM, user, self._password(user), authorities=self._ca.read_text())

    def librdkafka(self, user: str) -> dict[str, Any]:
        return {
            "security.protocol": "SASL_SSL", "sasl.mechanism": MECHANISM, "sasl.username": user,
            "sasl.password": self._password(user), "ssl.ca.location": str(self._ca),
        }  # fmt: skip

    def kafka_python(self, user: str) -> dict[str, Any]:
        return kafka_python(self.security(user))

    def properties_file(self, user: str) -> Path:
        """A client.properties, which goes with the broker."""
        file = Path(tempfile.mkdtemp(prefix="client-", dir=self._folder)) / "client.properties"
        file.touch(0o600)
        file.write_text(as_file(java(self.security(user))))
        return file

    def _password(self, user: str) -> str:
        """Raises ValueError."""
        if user not in self._passwords:
            raise ValueError(f"there is no user {user!r}: broker.create_user({user!r})")
        return self._passwords[user]


def rules(
    user: str, resource: str, operations: tuple[str, ...], *, deny: bool = False, prefixed: bool = False
) -> list[AclRule]:
    """One for each operation. `resource`: `topic:orders`, `group:billing`, `transactional-id:shop`, `cluster`. Raises
    ValueError for words that access rules do not know."""
    kind, _, name = resource.partition(":")
    if kind == "cluster":
        name, prefixed = name or CLUSTER_NAME, False
    number = RESOURCE_TYPES.get(kind.replace("-", "_"))
    if number is None or not name:
        kinds = ", ".join(f"{each.replace('_', '-')}:NAME" for each in RESOURCE_TYPES if each != "cluster")
        raise ValueError(f"{resource!r} is no resource: {kinds}, cluster")
    unknown = [each for each in operations if _word(each) not in _OPERATIONS]
    if unknown or not operations:
        raise ValueError(f"{unknown[0]!r} is no operation of access rules" if unknown else "no operation was named")
    return [
        AclRule(
            number, name, PREFIXED if prefixed else LITERAL, f"User:{user}", ANY_NAME, _OPERATIONS[_word(each)],
            DENY if deny else ALLOW,
        )
        for each in operations
    ]  # fmt: skip


def _word(operation: str) -> str:
    return operation.lower().replace("_", "").replace("-", "")


def set_passwords(app: App, made: Sequence[Upsertion]) -> None:
    """In the broker's loop."""
    users, name = app.node.users, made[0].name
    if any(user.name == name for user in users.all()):
        users.set_passwords(name, made)
    else:
        users.create(name, made)
