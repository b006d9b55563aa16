"""How a client of a listener with SASL shows who it is, and shows it again before its session ends.

    ApiVersions, once or not at all → SaslHandshake → SaslAuthenticate, as often as the mechanism needs → let in

Nothing else is handled before, and no large request is received. A handshake of version 0 is followed by tokens without
a request around them. Who is not let in is answered late, and closed: guessing takes its time.

States and answers: SaslServerAuthenticator of Apache Kafka 4.3 (KIP-43, KIP-152, KIP-255, KIP-368). Otherwise than
there, one constant text says that somebody was not let in, whatever the reason; the log has it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from halfmoon.adapters.kafka import protocol
from halfmoon.adapters.kafka.errors import code
from halfmoon.adapters.kafka.registry import Deferred
from halfmoon.auth.errors import AuthenticationError
from halfmoon.auth.exchange import Later
from halfmoon.auth.principals import USER
from halfmoon.errors import Fault

if TYPE_CHECKING:
    from halfmoon.auth.exchange import Exchange
    from halfmoon.auth.scram import Login
    from halfmoon.core.clock import Clock

logger = logging.getLogger("halfmoon.auth")

API_VERSIONS, HANDSHAKE, AUTHENTICATE = 18, 17, 36
FAILED_MS = 100
"""Who is not let in hears of it after so long (Kafka: connection.failed.authentication.delay.ms), and up to as much
more by chance."""
REAUTHENTICATION_MS = 1_000
"""Nobody authenticates again sooner after the last time (Kafka: ChannelBuilder, KIP-368)."""
MOST_VERIFIED = 64
"""Passwords that wait for a thread or are looked at in one, of all clients of a listener. Each takes milliseconds, and
what the broker reads and writes waits for the same threads."""
LONGEST_REQUEST = 64 << 10
LONGEST_WITH_TOKEN = 512 << 10
"""Where access tokens are taken (Kafka: sasl.server.max.receive.size)."""


class Sasl(Struct):
    """What all connections of a listener share."""

    mechanisms: Sequence[str]
    """Those that it offers."""
    begin: Callable[[str], Exchange]
    """A new exchange of one of them."""
    clock: Clock
    jitter: Callable[[], float]
    """From 0 to 1."""
    reauthenticate_ms: int | None = None
    """How long a session lasts; None: as long as its credential."""
    counted: Callable[[str, str], None] = lambda mechanism, result: None
    """Called with the mechanism, and `ok` or `failed`."""
    verified: int = 0
    """Passwords that are being looked at, or wait for it."""

    @property
    def longest_request(self) -> int:
        return LONGEST_WITH_TOKEN if "OAUTHBEARER" in self.mechanisms else LONGEST_REQUEST


class Client(Protocol):
    """The connection, as it is told what has become of its client."""

    peer: str

    def in_thread(self, work: Callable[[], object], then: Callable[[object, BaseException | None], None]) -> None: ...

    def let_in(self, login: Login, mechanism: str) -> None:
        """It has shown who it is."""
        ...

    def not_let_in(self, mechanism: str, reason: str, claimed: str = "") -> None:
        """It has not; `claimed`: the principal that it said to be."""
        ...

    def close_later(self, delay_ms: float, first: Callable[[], object], reason: str) -> None:
        """Handle nothing more of it; after the delay do this, and close."""
        ...

    def go_on(self) -> None:
        """What it has sent meanwhile may be handled."""
        ...


class State(Enum):
    VERSIONS = auto()
    """It may ask for versions, or begin."""
    HANDSHAKE = auto()
    """It must begin."""
    TOKENS = auto()
    """Its tokens come in SaslAuthenticate, …"""
    RAW = auto()
    """… or as they are."""
    IN = auto()
    """It is let in."""
    FAILED = auto()


Done = Callable[[bytes | None], None]
"""Called with the answer to a token, or None where it is not let in."""


class Authenticating:
    """One client's."""

    def __init__(self, sasl: Sasl, client: Client) -> None:
        self._sasl = sasl
        self._client = client
        self.state = State.VERSIONS
        self.busy = False
        """A token is being looked at in a thread, or waits for it: nothing else of the client is handled meanwhile."""
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._login: Login | None = None
        """Who it is, once that is known: it must stay so."""
        self._ended_mono_ms = 0
        """When it authenticated last."""
        self._session_ms = 0
        """How long its session lasts from then on; 0: for ever."""
        self.expires_mono_ms: int | None = None
        """When its session ends, monotonic."""

    @property
    def mechanisms(self) -> list[str]:
        return list(self._sasl.mechanisms)

    @property
    def is_blocked(self) -> bool:
        """Whether nothing of the client may be handled now."""
        return self.busy or self.state is State.FAILED

    # What of a client's requests may be handled now.

    def refusal(self, key: int) -> str:
        """Why a request of this API must not be handled now; empty: it may."""
        state = self.state
        if state is State.IN:
            expires_ms = self.expires_mono_ms
            is_over = expires_ms is not None and self._sasl.clock.mono_ms() > expires_ms
            if is_over and key not in (HANDSHAKE, AUTHENTICATE):
                return "its session has expired, and it did not authenticate again"
            return ""
        if key == HANDSHAKE and state in (State.VERSIONS, State.HANDSHAKE):
            return ""
        if key == API_VERSIONS and state is State.VERSIONS:
            return ""
        if key == AUTHENTICATE and state is State.TOKENS:
            return ""
        # It goes on (aiokafka) though it was told that it is refused, where it should have sent one more token.
        return self.unfinished() or f"API {key} while it has to authenticate"

    def unfinished(self) -> str:
        """Called where the client does not finish what it began. Why it was not let in, where an answer has told it so;
        else empty."""
        refused = "" if self._exchange is None else self._exchange.refused
        if not refused:
            return ""
        self._failed(self._mechanism, refused)
        self._exchange = None
        return f"authentication failed: {refused}"

    def told_versions(self) -> None:
        """It was answered which APIs there are."""
        if self.state is State.VERSIONS:
            self.state = State.HANDSHAKE

    # Requests.

    def handshake(self, version: int, mechanism: str) -> object:
        """The answer to SaslHandshake."""
        sasl = self._sasl
        if self.state is State.IN and not self._may_begin_again():
            return protocol.SaslHandshakeResponse(error_code=code(Fault.ILLEGAL_SASL_STATE), mechanisms=self.mechanisms)
        if mechanism not in sasl.mechanisms:
            answer = protocol.SaslHandshakeResponse(
                error_code=code(Fault.UNSUPPORTED_SASL_MECHANISM), mechanisms=self.mechanisms
            )
            deferred = Deferred()
            self._turn_away(mechanism, "the mechanism is not offered", lambda: deferred.complete(answer))
            return deferred
        # One that comes with another mechanism than before fails with its first token, as in Kafka.
        same = self._login is None or mechanism == self._mechanism
        self._exchange = sasl.begin(mechanism) if same else None
        self._mechanism = mechanism
        self.state = State.TOKENS if version else State.RAW
        return protocol.SaslHandshakeResponse(error_code=0, mechanisms=self.mechanisms)

    def _may_begin_again(self) -> bool:
        return (
            self.expires_mono_ms is not None and self._sasl.clock.mono_ms() - self._ended_mono_ms >= REAUTHENTICATION_MS
        )

    def authenticate(self, token: bytes) -> object:
        """The answer to SaslAuthenticate."""
        if self.state is not State.TOKENS:
            return protocol.SaslAuthenticateResponse(
                error_code=code(Fault.ILLEGAL_SASL_STATE), error_message="SaslHandshake comes first"
            )
        deferred = Deferred()

        def done(answer: bytes | None) -> None:
            if answer is None:
                message = f"authentication failed with SASL mechanism {self._mechanism}"
                deferred.complete(
                    protocol.SaslAuthenticateResponse(
                        error_code=code(Fault.SASL_AUTHENTICATION_FAILED), error_message=message
                    )
                )
            else:
                session_ms = self._session_ms if self.state is State.IN else 0
                deferred.complete(protocol.SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=session_ms))

        self.step(token, done)
        return deferred

    def step(self, token: bytes, done: Done) -> None:
        """Look at a token; `done` is called now or later."""
        exchange = self._exchange
        if exchange is None:
            self._turn_away(self._mechanism, "it changed its mechanism", lambda: done(None))
            return
        try:
            answer = exchange.step(token)
        except AuthenticationError as error:
            self._turn_away(self._mechanism, str(error), lambda: done(None))
            return
        if isinstance(answer, bytes):
            self._stepped(exchange, answer, done)
            return
        if isinstance(answer, Later):
            self.busy = True
            looks = answer.answer
            answer.wait(lambda: self._in_thread(exchange, looks, done))
            return
        sasl = self._sasl
        if sasl.verified >= MOST_VERIFIED:  # no word about its password: to clients that would be final
            self._close(lambda: None, "too many others authenticate just now")
            return
        self._in_thread(exchange, answer, done)

    def _in_thread(self, exchange: Exchange, looks: Callable[[], bytes], done: Done) -> None:
        sasl = self._sasl
        self.busy = True
        sasl.verified += 1

        def looked(result: object, error: BaseException | None) -> None:
            self.busy = False
            sasl.verified -= 1
            if isinstance(result, bytes):
                self._stepped(exchange, result, done)
                self._client.go_on()
            elif isinstance(error, ConnectionError):
                pass  # it is gone
            else:
                if not isinstance(error, AuthenticationError):
                    logger.error("event=authentication_failed peer=%s", self._client.peer, exc_info=error)
                self._turn_away(self._mechanism, str(error), lambda: done(None))

        self._client.in_thread(looks, looked)

    def _stepped(self, exchange: Exchange, answer: bytes, done: Done) -> None:
        login = exchange.login
        if login is None:
            done(answer)
            return
        if self._login is not None and login.principal != self._login.principal:
            reason = f"it was {self._login.principal}, and authenticated again as {login.principal}"
            self._turn_away(self._mechanism, reason, lambda: done(None))
            return
        self._login = login
        self._exchange = None
        self.state = State.IN
        sasl = self._sasl
        self._ended_mono_ms = sasl.clock.mono_ms()
        self._session_ms = self._lifetime_ms(login)
        self.expires_mono_ms = self._ended_mono_ms + self._session_ms if self._session_ms else None
        sasl.counted(self._mechanism, "ok")
        self._client.let_in(login, self._mechanism)
        done(answer)

    def _lifetime_ms(self, login: Login) -> int:
        """How long the session lasts from now on; 0: for ever."""
        most_ms, expires_ms = self._sasl.reauthenticate_ms, login.expires_ms
        if expires_ms is None:
            return most_ms or 0
        left_ms = max(expires_ms - self._sasl.clock.wall_ms(), 1)
        return min(left_ms, most_ms) if most_ms else left_ms

    def _turn_away(self, mechanism: str, reason: str, answer: Callable[[], object]) -> None:
        self._failed(mechanism, reason)
        self._close(answer, f"authentication failed: {reason}")

    def _failed(self, mechanism: str, reason: str) -> None:
        self._sasl.counted(mechanism if mechanism in self._sasl.mechanisms else "other", "failed")
        claimed = "" if self._exchange is None else self._exchange.claimed
        self._client.not_let_in(mechanism, reason, claimed and f"{USER}:{claimed}")

    def _close(self, first: Callable[[], object], reason: str) -> None:
        self.state = State.FAILED
        self._exchange = None
        self._client.close_later(FAILED_MS * (1 + self._sasl.jitter()), first, reason)
