"""The first administrator of a broker that nobody can reach by its socket: in a container.

HALFMOON_BOOTSTRAP_USER and HALFMOON_BOOTSTRAP_PASSWORD_FILE, only while there is no user. Later they say nothing:
whoever changes the password changes it by `halfmoon user passwd`, and a start must not change it back. So the file need
not be there any more then.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from halfmoon.auth.scram import MECHANISMS, MIN_ITERATIONS, salted_password
from halfmoon.errors import BrokerError, StartError
from halfmoon.services.credentials.users import Upsertion, Users

logger = logging.getLogger("halfmoon.auth")

USER_VARIABLE = "HALFMOON_BOOTSTRAP_USER"
PASSWORD_VARIABLE = "HALFMOON_BOOTSTRAP_PASSWORD_FILE"
SALT_BYTES = 32
"""As of the salts that a broker makes up for users that do not exist: see scram.unknown_credential."""
_LONGEST = 1024


def create(users: Users, environment: Mapping[str, str]) -> None:
    """Raises StartError."""
    name, file = environment.get(USER_VARIABLE), environment.get(PASSWORD_VARIABLE)
    if not name and not file:
        return
    if not name or not file:
        missing, given = (USER_VARIABLE, PASSWORD_VARIABLE) if file else (PASSWORD_VARIABLE, USER_VARIABLE)
        raise StartError(f"{given} is set, and {missing} is not: both make the first user")
    if users.count:
        logger.info("event=bootstrap_user_ignored user=%s reason=users_exist users=%d", name, users.count)
        return
    password = _read(file)
    made = []
    for mechanism in MECHANISMS.values():
        salt = os.urandom(SALT_BYTES)
        key = salted_password(mechanism, password, salt, MIN_ITERATIONS)
        made.append(Upsertion(name, mechanism.number, MIN_ITERATIONS, salt, key))
    try:
        users.create(name, made, admin=True)
    except BrokerError as error:
        raise StartError(f"{USER_VARIABLE}: {error}") from error
    logger.warning("event=bootstrap_user_created user=%s admin=true", name)


def _read(file: str) -> str:
    """One line; its end does not count. Raises StartError."""
    try:
        with Path(file).open("rb") as opened:
            data = opened.read(_LONGEST + 3)
    except OSError as error:
        raise StartError(f"{PASSWORD_VARIABLE}: {file}: {error.strerror}") from error
    try:
        password = data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise StartError(f"{PASSWORD_VARIABLE}: {file}: not UTF-8") from None
    if not 0 < len(password.encode()) <= _LONGEST or "\0" in password or "\n" in password:
        raise StartError(f"{PASSWORD_VARIABLE}: {file}: a password is one line of 1 to {_LONGEST} bytes")
    return password
