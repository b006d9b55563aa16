"""What a broker for tests and its clients need to encrypt and to log in: certificates and a user, new each time.

The user is a super user: who may do what is the test's to say, with users and rules of its own.
"""

from __future__ import annotations

import os
import secrets
import shutil
import ssl
import tempfile
import weakref
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from halfmoon.auth.development import HERE, make_authority, make_server
from halfmoon.auth.scram import MECHANISMS, MIN_ITERATIONS, salted_password
from halfmoon.services.credentials.users import Upsertion, Users

USER = "test"
MECHANISM = "SCRAM-SHA-256"


class Secured:
    def __init__(self) -> None:
        self._password = secrets.token_urlsafe(12)
        folder = Path(tempfile.mkdtemp(prefix="halfmoon-tls-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
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

    def create_user(self, users: Users) -> None:
        """In the broker's loop, at each start: on data that are kept, the user may be there with another password."""
        made = []
        for mechanism in MECHANISMS.values():
            salt = os.urandom(16)
            salted = salted_password(mechanism, self._password, salt, MIN_ITERATIONS)
            made.append(Upsertion(USER, mechanism.number, MIN_ITERATIONS, salt, salted))
        if any(user.name == USER for user in users.all()):
            users.set_passwords(USER, made)
        else:
            users.create(USER, made)

    def librdkafka(self) -> dict[str, Any]:
        return {
            "security.protocol": "SASL_SSL", "sasl.mechanism": MECHANISM, "sasl.username": USER,
            "sasl.password": self._password, "ssl.ca.location": str(self._ca),
        }  # fmt: skip

    def kafka_python(self) -> dict[str, Any]:
        return {
            "security_protocol": "SASL_SSL", "sasl_mechanism": MECHANISM, "sasl_plain_username": USER,
            "sasl_plain_password": self._password, "ssl_context": ssl.create_default_context(cafile=str(self._ca)),
        }  # fmt: skip
