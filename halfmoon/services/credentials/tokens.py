"""Delegation tokens (KIP-48): making, renewing and expiring them, and what they log in with.

Who may ask for them is the adapter's to say: nobody who has not authenticated, or has by a token. Rules:
DelegationTokenControlManager, DelegationTokenManager. Otherwise than there a token that has expired is refused at once,
and one whose owner is disabled too; it is removed when its time is over.
"""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Callable, Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace

from halfmoon.auth.delegation import token_credential, token_hmac
from halfmoon.auth.principals import USER, Principal, parse
from halfmoon.auth.scram import Credential, Found, Mechanism
from halfmoon.core.append_types import ControlLog
from halfmoon.core.clock import Clock
from halfmoon.core.features import Feature
from halfmoon.core.timers import Timers
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.control import DelegationToken, TokensChanged
from halfmoon.services.credentials.node_key import NodeKey
from halfmoon.services.credentials.state import CredentialsState
from halfmoon.uuids import new_uuid

_FOREVER = 2**63 - 1
MOST_OF_OWNER = 1_000
"""Whoever has authenticated makes tokens without a right to anything."""
MOST_RENEWERS = 1_000
LONGEST_RENEWERS = 20_000
"""Characters of their names together."""
_LONGEST_SWEEP = 1_000
"""Tokens that are removed by one record."""
_MOST_CREDENTIALS = 10_000


class TokenLimits(Struct, frozen=True):
    """Kafka's delegation.token.max.lifetime.ms and delegation.token.expiry.time.ms."""

    enabled: bool = True
    lifetime_ms: int = 7 * 24 * 3_600_000
    renew_ms: int = 24 * 3_600_000


class Token(Struct, frozen=True):
    """A token, and its HMAC, which whoever has it may log in with."""

    said: DelegationToken
    hmac: bytes

    def __repr__(self) -> str:
        return f"Token({self.said!r}, …)"


class DelegationTokens:
    """All tokens of a node. `state` has what the log says of them."""

    def __init__(
        self,
        state: CredentialsState,
        appender: ControlLog,
        clock: Clock,
        timers: Timers,
        key: NodeKey,
        random_bytes: Callable[[int], bytes],
        is_disabled: Callable[[Principal], bool],
        limits: TokenLimits,
        logger: logging.Logger,
    ) -> None:
        self._state = state
        self._appender = appender
        self._clock = clock
        self._timers = timers
        self._key = key
        self._random_bytes = random_bytes
        self._is_disabled = is_disabled
        self.limits = limits
        self._logger = logger
        self._next_ms = _FOREVER
        """No token expires before; Unix ms."""
        self._ids: dict[bytes, str] = {}
        """By HMAC; also of tokens that are gone."""
        self._credentials: dict[tuple[str, str], Credential] = {}
        """Of tokens that have logged in, by mechanism and id."""
        self.on_removed: list[Callable[[str], None]] = []
        """Told the id of a token that is gone. Must not raise."""
        timers.add(self)

    # -- for those who have authenticated ------------------------------------------------------------------------------
    # The changes return the log position to wait for last. All raise BrokerError.

    def feature(self) -> Feature:
        return Feature("delegation tokens", restore=self.restore)

    def create(
        self, owner: Principal, requester: Principal, renewers: Sequence[Principal], lifetime_ms: int
    ) -> tuple[Token, int]:
        """`lifetime_ms`: not above 0 is as long as is allowed."""
        self._check_enabled()
        if len(renewers) > MOST_RENEWERS:
            raise BrokerError(Fault.INVALID_REQUEST, f"more than {MOST_RENEWERS} renewers")
        if sum(len(each.name) for each in renewers) > LONGEST_RENEWERS:
            raise BrokerError(
                Fault.INVALID_REQUEST, f"names of renewers of more than {LONGEST_RENEWERS} characters together"
            )
        for each in renewers:
            if each.kind != USER:
                raise BrokerError(Fault.INVALID_PRINCIPAL_TYPE, f"a renewer of type {each.kind}")
        if self._state.owned[str(owner)] >= MOST_OF_OWNER:
            raise BrokerError(Fault.POLICY_VIOLATION, f"{owner} has {MOST_OF_OWNER} tokens already")
        limits, now_ms = self.limits, self._clock.wall_ms()
        max_ms = _sum(now_ms, min(limits.lifetime_ms, lifetime_ms) if lifetime_ms > 0 else limits.lifetime_ms)
        made = DelegationToken(
            new_uuid(self._random_bytes),
            str(owner),
            str(requester),
            list(map(str, renewers)),
            now_ms,
            max_ms,
            min(max_ms, _sum(now_ms, limits.renew_ms)),
        )
        token = self._with_hmac(made)
        position = self._put(made)
        self._ids[token.hmac] = made.id
        return token, position

    def renew(self, hmac: bytes, asker: Principal, period_ms: int) -> tuple[int, int]:
        """When it expires now, Unix ms. `period_ms`: not above 0 is as long as is allowed."""
        token = self._found(hmac)
        self._check_alive(token)
        _check_renewer(token, asker)
        period_ms = min(self.limits.renew_ms, period_ms) if period_ms > 0 else self.limits.renew_ms
        return self._expire_at(token, _sum(self._clock.wall_ms(), period_ms))

    def set_expiry(self, hmac: bytes, asker: Principal, period_ms: int) -> tuple[int, int]:
        """When it expires now, Unix ms. `period_ms`: below 0 removes it at once."""
        token = self._found(hmac)
        _check_renewer(token, asker)
        now_ms = self._clock.wall_ms()
        if period_ms < 0:
            return now_ms, self._remove([token.id])
        self._check_alive(token)
        return self._expire_at(token, _sum(now_ms, period_ms))

    def describe(
        self, asker: Principal, owners: Collection[Principal] | None, may: Callable[[DelegationToken], bool]
    ) -> list[Token]:
        """Those of the `owners` (None: of all), as far as the asker owns or renews them, or `may` see them."""
        self._check_enabled()
        wanted = None if owners is None else set(map(str, owners))
        mine = str(asker)
        return [
            self._with_hmac(each)
            for each in self._state.tokens.values()
            if (wanted is None or not wanted.isdisjoint((each.owner, *each.renewers)))
            and (mine == each.owner or mine in each.renewers or may(each))
        ]

    def ids(self) -> set[str]:
        """Of all of them."""
        return set(self._state.tokens)

    # -- for logging in ------------------------------------------------------------------------------------------------

    def find(self, mechanism: Mechanism, token: str) -> Found | None:
        """The first time of a token this takes milliseconds. Raises BrokerError where the node's key cannot be had."""
        said = self._state.tokens.get(token)
        if said is None or not self.limits.enabled:
            return None
        key = mechanism.name, token
        credential = self._credentials.get(key)
        if credential is None:
            if len(self._credentials) >= _MOST_CREDENTIALS:
                self._credentials.clear()
            credential = self._credentials[key] = token_credential(mechanism, self._secret(), token)
        owner = parse(said.owner)
        return Found(credential, owner, self._is_alive(said) and not self._is_disabled(owner), said.expires_ms)

    # -- time ----------------------------------------------------------------------------------------------------------

    def restore(self) -> None:
        self._next_ms = min((each.expires_ms for each in self._state.tokens.values()), default=_FOREVER)

    def next_deadline(self) -> int | None:
        if self._next_ms == _FOREVER:
            return None
        return max(0, self._next_ms + 1 - self._clock.wall_ms()) + self._clock.mono_ms()

    def expire(self, mono_ms: int) -> None:
        """Remove tokens whose time is over. Raises BrokerError."""
        if self._clock.wall_ms() <= self._next_ms:
            return
        gone = [each.id for each in self._state.tokens.values() if not self._is_alive(each)]
        for first in range(0, len(gone), _LONGEST_SWEEP):
            part = gone[first : first + _LONGEST_SWEEP]
            self._logger.info("event=delegation_tokens_expired count=%d", len(part))
            self._remove(part)
        self.restore()

    # -- the rest ------------------------------------------------------------------------------------------------------

    def _secret(self) -> bytes:
        return self._key.of("delegation tokens")

    def _with_hmac(self, token: DelegationToken) -> Token:
        return Token(token, token_hmac(self._secret(), token.id))

    def id_of(self, hmac: bytes) -> str:
        """Empty where there is no such token."""
        try:
            return self._found(hmac).id
        except BrokerError:
            return ""

    def _found(self, hmac: bytes) -> DelegationToken:
        self._check_enabled()
        tokens = self._state.tokens
        if len(self._ids) < len(tokens):  # as after a start
            secret = self._secret()
            self._ids = {token_hmac(secret, each): each for each in tokens}
        found = tokens.get(self._ids.get(hmac, ""))
        if found is None:
            raise BrokerError(Fault.DELEGATION_TOKEN_NOT_FOUND)
        return found

    def _check_enabled(self) -> None:
        if not self.limits.enabled:
            raise BrokerError(Fault.DELEGATION_TOKEN_AUTH_DISABLED)

    def _is_alive(self, token: DelegationToken) -> bool:
        return self._clock.wall_ms() <= min(token.max_ms, token.expires_ms)

    def _check_alive(self, token: DelegationToken) -> None:
        if not self._is_alive(token):
            raise BrokerError(Fault.DELEGATION_TOKEN_EXPIRED)

    def _expire_at(self, token: DelegationToken, time_ms: int) -> tuple[int, int]:
        changed = replace(token, expires_ms=min(token.max_ms, time_ms))
        return changed.expires_ms, self._put(changed)

    def _put(self, token: DelegationToken) -> int:
        position = self._appender.append_control(TokensChanged([token], []))
        if token.expires_ms < self._next_ms:
            self._next_ms = token.expires_ms
            self._timers.arm(max(0, token.expires_ms + 1 - self._clock.wall_ms()) + self._clock.mono_ms())
        return position

    def _remove(self, ids: list[str]) -> int:
        position = self._appender.append_control(TokensChanged([], ids))
        self._removed(ids)
        return position

    def _removed(self, ids: list[str]) -> None:
        self._ids = {hmac: each for hmac, each in self._ids.items() if each in self._state.tokens}
        for each in ids:
            for told in self.on_removed:
                told(each)

    def changed_elsewhere(self, removed: list[str]) -> None:
        """Another process that shares the tokens has changed some, and removed these."""
        self._removed(removed)
        self.restore()
        deadline_ms = self.next_deadline()
        if deadline_ms is not None:
            self._timers.arm(deadline_ms)


def password(token: Token) -> str:
    """What a client logs in with, the token's id being its name."""
    return b64encode(token.hmac).decode()


def _check_renewer(token: DelegationToken, asker: Principal) -> None:
    if str(asker) != token.owner and str(asker) not in token.renewers:
        raise BrokerError(Fault.DELEGATION_TOKEN_OWNER_MISMATCH)


def _sum(now_ms: int, duration_ms: int) -> int:
    return min(_FOREVER, now_ms + duration_ms)
