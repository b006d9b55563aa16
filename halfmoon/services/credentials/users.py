"""Users: their SCRAM credentials, their secrets of RocketMQ's signatures, and whether they may log in.

Rules of credentials: ScramControlManager and ScramImage (KIP-554). Beyond these a user may be disabled, and may be an
administrator. One that has lost its last credential is still there, and cannot log in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from msgspec.structs import replace

from halfmoon.auth import principals, sealing
from halfmoon.auth.errors import AuthenticationError
from halfmoon.auth.principals import USER, Principal
from halfmoon.auth.scram import (
    BY_NUMBER,
    LONGEST_NAME,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    Credential,
    Found,
    Mechanism,
    credential_of,
)
from halfmoon.core.append_types import ControlLog
from halfmoon.core.features import Feature
from halfmoon.core.steps import Pauses, finish
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.control import ScramCredential, TokensChanged, User, UsersChanged
from halfmoon.services.credentials.node_key import NodeKey
from halfmoon.services.credentials.state import CredentialsState

EVERY, AT_ONCE = 64, 100
"""Users from one pause to the next, and in one record."""
_LONGEST_SALT, _LONGEST_SECRET = 1024, 1024
_SEALING = "rocketmq secrets"


class Change(Enum):
    """What has become of a user."""

    CREATED = "created"
    CREDENTIALS = "credentials"
    """One was set or deleted, or the secret was."""
    DISABLED = "disabled"
    ENABLED = "enabled"
    ADMIN = "admin"
    """It is an administrator now, or is none any more."""
    DELETED = "deleted"


Listener = Callable[[str, Change], None]
"""Called in the loop, once the change is made and before it is durable. It must not raise."""


class Upsertion(NamedTuple):
    """A credential that is to be set, as Kafka's AlterUserScramCredentials carries it."""

    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class Deletion(NamedTuple):
    name: str
    mechanism: int


class Users:
    """All users of a node. `state` has what the log says of them."""

    def __init__(
        self,
        state: CredentialsState,
        appender: ControlLog,
        key: NodeKey,
        random_bytes: Callable[[int], bytes],
        exposed: Callable[[], str | None],
    ) -> None:
        """`exposed`: a file of the data directory that others may read, if there is one."""
        self._state = state
        self._appender = appender
        self._key = key
        self._random_bytes = random_bytes
        self._exposed = exposed
        self._secrets: dict[bytes, str | None] = {}
        """Opened ones, by what is kept of them; None: it cannot be opened."""
        self._makeshift = b""
        self.on_change: list[Listener] = []

    def feature(self) -> Feature:
        return Feature("credentials", restore=self._key.load, warnings=self._warnings)

    # -- asking --------------------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        return len(self._state.users)

    def all(self) -> Collection[User]:
        return self._state.users.values()

    def find(self, name: str) -> User:
        """Raises BrokerError(RESOURCE_NOT_FOUND)."""
        found = self._state.users.get(name)
        if found is None:
            raise BrokerError(Fault.RESOURCE_NOT_FOUND, f"there is no user {name}")
        return found

    def look_up(self, name: str) -> User | None:
        return self._state.users.get(name)

    def scram(self, name: str) -> list[ScramCredential]:
        """Raises BrokerError(RESOURCE_NOT_FOUND) where there is none."""
        found = self._state.users.get(name)
        if found is None or not found.scram:
            raise BrokerError(Fault.RESOURCE_NOT_FOUND, f"user {name} has no credential")
        return found.scram

    def is_disabled(self, principal: Principal) -> bool:
        found = self._state.users.get(principal.name) if principal.kind == USER else None
        return found is not None and found.disabled

    def lets_in(self, principal: Principal) -> bool:
        """Whether a credential of any kind may: one that is disabled may not, nor the broker's own, whose names anybody
        may have at an authority or an identity provider."""
        return principal not in principals.OWN and not self.is_disabled(principal)

    def is_admin(self, principal: Principal) -> bool:
        """Whether it is an administrator, who is a super user. One that is disabled is none."""
        found = self._state.users.get(principal.name) if principal.kind == USER else None
        return found is not None and found.admin and not found.disabled

    def credentials(self, name: str) -> dict[Mechanism, Found]:
        """What a login is verified with, by mechanism."""
        user = self._state.users.get(name)
        if user is None:
            return {}
        principal = principals.user(name)
        return {
            BY_NUMBER[each.mechanism]: Found(
                Credential(each.salt, each.stored_key, each.server_key, each.iterations),
                principal,
                self.lets_in(principal),
            )
            for each in user.scram
        }

    def secret(self, name: str) -> str | None:
        """Of RocketMQ's signatures; None where the user has none, is disabled, or it cannot be opened. Raises
        BrokerError where the node's key cannot be had."""
        user = self._state.users.get(name)
        if user is None or not user.sealed or not self.lets_in(principals.user(name)):
            return None
        return self._open(user)

    def unknown_key(self) -> bytes:
        """Which names without a credential are answered with (`scram.unknown_credential`)."""
        try:
            return self._key.of("unknown users")
        except BrokerError:  # a full disk is to keep nobody out
            self._makeshift = self._makeshift or self._random_bytes(32)
            return self._makeshift

    # -- changing ------------------------------------------------------------------------------------------------------
    # All return the log position to wait for, and raise BrokerError with nothing changed.

    def create(
        self, name: str, credentials: Sequence[Upsertion] = (), *, admin: bool = False, secret: str | None = None
    ) -> int:
        if name in self._state.users:
            raise BrokerError(Fault.DUPLICATE_RESOURCE, f"there is a user {name} already")
        _check_name(name)
        scram = _all_made(name, credentials)
        sealed = b"" if secret is None else self._seal(name, secret)
        return self._put(User(name, scram, False, admin, sealed), Change.CREATED)

    def set_passwords(self, name: str, credentials: Sequence[Upsertion]) -> int:
        """In place of all SCRAM credentials that the user has."""
        return self._put(replace(self.find(name), scram=_all_made(name, credentials)), Change.CREDENTIALS)

    def set_flags(self, name: str, *, disabled: bool | None = None, admin: bool | None = None) -> int:
        """None stays as it is."""
        user = self.find(name)
        changed = replace(
            user,
            disabled=user.disabled if disabled is None else disabled,
            admin=user.admin if admin is None else admin,
        )
        position = self._appender.append_control(UsersChanged([changed], []))
        if changed.disabled != user.disabled:
            self.tell(name, Change.DISABLED if changed.disabled else Change.ENABLED)
        if changed.admin != user.admin:
            self.tell(name, Change.ADMIN)
        return position

    def set_secret(self, name: str, secret: str | None) -> int:
        """None: the user is to have none."""
        sealed = b"" if secret is None else self._seal(name, secret)
        return self._put(replace(self.find(name), sealed=sealed), Change.CREDENTIALS)

    def delete(self, name: str) -> int:
        """The user, and its delegation tokens."""
        self.find(name)
        owner = str(principals.user(name))
        tokens = [each.id for each in self._state.tokens.values() if each.owner == owner]
        if tokens:  # first: a token must not outlive its owner
            self._appender.append_control(TokensChanged([], tokens))
        position = self._appender.append_control(UsersChanged([], [name]))
        self.tell(name, Change.DELETED)
        return position

    def alter(self, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]) -> dict[str, BrokerError | None]:
        """What has become of each user that is named."""
        return finish(self.alter_slices(deletions, upsertions))

    def alter_slices(
        self, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
    ) -> Pauses[dict[str, BrokerError | None]]:
        """Delete and set SCRAM credentials, of each user one at most. A user that does not exist is created."""
        deleted: dict[str, Deletion] = {}
        upserted: dict[str, Upsertion] = {}
        errors: dict[str, BrokerError] = {}
        for at, deletion in enumerate(deletions):
            if not at % EVERY:
                yield
            if deletion.name in errors:
                continue
            if deleted.pop(deletion.name, None) is not None:
                errors[deletion.name] = _twice()
                continue
            try:
                self._check_deletion(deletion)
            except BrokerError as error:
                errors[deletion.name] = error
            else:
                deleted[deletion.name] = deletion
        for at, upsertion in enumerate(upsertions):
            if not at % EVERY:
                yield
            if upsertion.name in errors:
                continue
            if deleted.pop(upsertion.name, None) or upserted.pop(upsertion.name, None):
                errors[upsertion.name] = _twice()
                continue
            try:
                _check_upsertion(upsertion)
            except BrokerError as error:
                errors[upsertion.name] = error
            else:
                upserted[upsertion.name] = upsertion
        yield from self._alter(list(deleted.values()), list(upserted.values()), errors)
        return {**dict.fromkeys((*deleted, *upserted)), **errors}

    def _alter(
        self, deletions: list[Deletion], upsertions: list[Upsertion], errors: dict[str, BrokerError]
    ) -> Pauses[None]:
        changes: list[Deletion | Upsertion] = [*deletions, *upsertions]
        for first in range(0, len(changes), AT_ONCE):
            part = changes[first : first + AT_ONCE]
            users = [self._changed(each) for each in part]
            try:
                self._appender.append_control(UsersChanged(users, []))
            except BrokerError as error:
                errors.update(dict.fromkeys((each.name for each in changes[first:]), error))
                return
            for each in part:
                self.tell(each.name, Change.CREDENTIALS)
            yield

    def _changed(self, change: Deletion | Upsertion) -> User:
        """The user as it is to be. Others may have had their turn since the change was checked."""
        user = self._state.users.get(change.name) or User(change.name)
        scram = [each for each in user.scram if each.mechanism != change.mechanism]
        if isinstance(change, Upsertion):
            scram = sorted((*scram, _made(change)), key=lambda each: each.mechanism)
        return replace(user, scram=scram)

    def _check_deletion(self, deletion: Deletion) -> None:
        _check_name(deletion.name)
        _check_mechanism(deletion.mechanism)
        user = self._state.users.get(deletion.name)
        if user is None or all(each.mechanism != deletion.mechanism for each in user.scram):
            raise BrokerError(
                Fault.RESOURCE_NOT_FOUND,
                f"user {deletion.name} has no credential for {BY_NUMBER[deletion.mechanism].name}",
            )

    # -- the rest ------------------------------------------------------------------------------------------------------

    def _put(self, user: User, change: Change) -> int:
        position = self._appender.append_control(UsersChanged([user], []))
        self.tell(user.name, change)
        return position

    def tell(self, name: str, change: Change) -> None:
        """Something has become of a user: here, or in another process that shares the users."""
        for listener in self.on_change:
            listener(name, change)

    def _seal(self, name: str, secret: str) -> bytes:
        if not 0 < len(secret) <= _LONGEST_SECRET:
            raise BrokerError(Fault.UNACCEPTABLE_CREDENTIAL, "the secret is empty or too long")
        nonce = self._random_bytes(sealing.NONCE_BYTES)
        try:
            return sealing.seal(self._key.of(_SEALING), name, secret, nonce)
        except sealing.MissingExtraError as error:
            raise BrokerError(Fault.SECURITY_DISABLED, str(error)) from error

    def _open(self, user: User) -> str | None:
        if user.sealed in self._secrets:
            return self._secrets[user.sealed]
        try:
            secret: str | None = sealing.unseal(self._key.of(_SEALING), user.name, user.sealed)
        except (AuthenticationError, sealing.MissingExtraError):
            secret = None
        if len(self._secrets) >= len(self._state.users):  # of secrets that were replaced
            self._secrets.clear()
        self._secrets[user.sealed] = secret
        return secret

    def _warnings(self) -> list[str]:
        lost = [user.name for user in self._sealed() if self._open(user) is None]
        warnings = [_lost_secrets(lost)] if lost else []
        exposed = self._exposed() if self._state.users else None
        if exposed is not None:
            warnings.append(
                f"others may read {exposed}, and there are users, whose credentials the data directory holds: "
                "chmod -R go-rwx it"
            )
        return warnings

    def _sealed(self) -> Iterable[User]:
        return [user for user in self._state.users.values() if user.sealed]


def _lost_secrets(names: list[str]) -> str:
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return (
        f"the RocketMQ secrets of {shown} cannot be opened: node.key is another one, or cryptography is not installed "
        "(pip install 'halfmoon[auth]'); set them anew by `halfmoon user secret`"
    )


def _twice() -> BrokerError:
    return BrokerError(Fault.DUPLICATE_RESOURCE, "a user credential cannot be altered twice in the same request")


def _made(upsertion: Upsertion) -> ScramCredential:
    mechanism = BY_NUMBER[upsertion.mechanism]
    made = credential_of(mechanism, upsertion.salted_password, upsertion.salt, upsertion.iterations)
    return ScramCredential(mechanism.number, made.salt, made.stored_key, made.server_key, made.iterations)


def _all_made(name: str, credentials: Sequence[Upsertion]) -> list[ScramCredential]:
    kept: dict[int, ScramCredential] = {}
    for each in credentials:
        _check_upsertion(each)
        if each.name != name or each.mechanism in kept:
            raise BrokerError(Fault.DUPLICATE_RESOURCE, "one credential of the user for each mechanism")
        kept[each.mechanism] = _made(each)
    return [kept[mechanism] for mechanism in sorted(kept)]


def _check_name(name: str) -> None:
    if not name:
        raise BrokerError(Fault.UNACCEPTABLE_CREDENTIAL, "the user's name must not be empty")
    if len(name.encode()) > LONGEST_NAME or "\0" in name:
        raise BrokerError(
            Fault.UNACCEPTABLE_CREDENTIAL, f"a user's name has at most {LONGEST_NAME} bytes, and none of them is NUL"
        )
    if principals.user(name) in principals.OWN:
        raise BrokerError(Fault.UNACCEPTABLE_CREDENTIAL, f"{name} is one of the broker's own names")


def _check_mechanism(number: int) -> None:
    if number not in BY_NUMBER:
        raise BrokerError(Fault.UNSUPPORTED_SASL_MECHANISM, f"unknown SCRAM mechanism {number}")


def _check_upsertion(upsertion: Upsertion) -> None:
    _check_name(upsertion.name)
    _check_mechanism(upsertion.mechanism)
    if not MIN_ITERATIONS <= upsertion.iterations <= MAX_ITERATIONS:
        raise BrokerError(
            Fault.UNACCEPTABLE_CREDENTIAL,
            f"too {'few' if upsertion.iterations < MIN_ITERATIONS else 'many'} iterations: {MIN_ITERATIONS} to "
            f"{MAX_ITERATIONS} are allowed",
        )
    if not 0 < len(upsertion.salt) <= _LONGEST_SALT:
        raise BrokerError(Fault.UNACCEPTABLE_CREDENTIAL, f"a salt has 1 to {_LONGEST_SALT} bytes")
    if not 0 < len(upsertion.salted_password) <= _LONGEST_SALT:
        raise BrokerError(Fault.UNACCEPTABLE_CREDENTIAL, f"a salted password has 1 to {_LONGEST_SALT} bytes")
