"""Who verifies access tokens: the identity provider's keys, and when they are asked for.

Keys come from a file or from the provider, always by a thread of their own, at most one at a time:

    at the start · every five minutes (a file: every half minute, and at SIGHUP) · half a minute after a failure
    for a token of an unknown key, at most once in ten seconds

A provider that does not answer is given up after some seconds, and keys that were there stay. Nobody waits for it but
clients whose token is of an unknown key.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from halfmoon.auth.errors import AuthenticationError
from halfmoon.auth.oauth import MOST_KEYS_BYTES, Bearer, Expected, KeySet, RefusedTokenError, authenticate
from halfmoon.auth.principals import Principal
from halfmoon.auth.scram import Login
from halfmoon.errors import StartError

if TYPE_CHECKING:
    from halfmoon.config.security_settings import OauthSettings
    from halfmoon.core.clock import Clock

logger = logging.getLogger("halfmoon.auth")

REFRESH_S = 300.0
LOOK_S = 30.0
"""Between two looks at a file, and after a failure."""
GIVEN_UP_S = 8.0
"""Then a fetch has failed, whatever its thread does. The request itself has less, but no time for a name's look-up."""
STALE_MS = 1_800_000
"""Keys of so long ago are worth a warning: those that the provider has withdrawn are still good here."""

Run = Callable[[Callable[[], None]], Callable[[], bool]]
"""Runs this in a thread; what it returns says whether that is still at it."""


class Loop(Protocol):
    """What is used of the event loop."""

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Timer: ...
    def call_soon_threadsafe(self, callback: Callable[[], object], /) -> object: ...


class Timer(Protocol):
    def cancel(self) -> object: ...


class AccessTokens:
    """All but `log_in` is for the loop's thread."""

    def __init__(
        self,
        expected: Expected,
        source: str,
        read: Callable[[], bytes],
        loop: Loop,
        clock: Clock,
        lets_in: Callable[[Principal], bool],
        *,
        refresh_s: float = REFRESH_S,
        run: Run | None = None,
    ) -> None:
        """`source`: the provider's address or the file, for people. `read`: gets its key set, in a thread; any
        exception is a failure. `lets_in`: whether a user is let in of whom the provider says who it is."""
        self._expected = expected
        self._source = source
        self._read = read
        self._loop = loop
        self._clock = clock
        self._lets_in = lets_in
        self._refresh_s = refresh_s
        self._run = run or _in_thread
        self._keys = KeySet()
        self._is_at_it: Callable[[], bool] = lambda: False
        """Whether the last fetch's thread is."""
        self._fetch = 0
        """The number of the fetch that is waited for; 0: of none."""
        self._fetches = 0
        self._waiting: list[Callable[[], None]] = []
        self._given_up: Timer | None = None
        self._next: Timer | None = None
        self._is_stopped = False
        self._problem = ""
        """Of the last fetch."""
        self._good_mono_ms = clock.mono_ms()
        """When keys came last, or when it was begun."""
        self.results: Counter[str] = Counter({"ok": 0, "failed": 0})

    # What logs in.

    def log_in(self, asked: Bearer) -> Login:
        """Who the token is of. From any thread. Raises AuthenticationError, UnknownKeyError."""
        login = authenticate(asked, self._keys, self._expected, self._clock.wall_ms() / 1000)
        if not self._lets_in(login.principal):
            raise RefusedTokenError(f"OAUTHBEARER: {login.principal} is not let in by a token")
        return login

    def fetches_keys(self) -> bool:
        """As Verifier says it."""
        if not self._fetch and self._keys.may_fetch(self._clock.mono_ms()):
            self.fetch()
        return bool(self._fetch)

    def when_fetched(self, then: Callable[[], None]) -> None:
        """As Verifier says it."""
        if self._fetch:
            self._waiting.append(then)
        else:
            then()

    # Keys.

    def load(self) -> None:
        """Get keys at once, before the loop matters: for a file. Raises StartError."""
        try:
            self._keys.replace(self._read())
        except (AuthenticationError, OSError) as error:
            raise StartError(f"security.oauth: {self._source}: {_said(error)}") from error
        self._next = self._loop.call_later(self._refresh_s, self.fetch)

    def fetch(self) -> None:
        """Ask for keys, unless that is under way."""
        if self._fetch or self._is_stopped:
            return
        self._cancel()
        self._fetches += 1
        self._fetch = number = self._fetches
        if self._is_at_it():
            self._ended(number, None, "the last request has not ended yet")
            return
        self._given_up = self._loop.call_later(
            GIVEN_UP_S, lambda: self._ended(number, None, f"no answer within {GIVEN_UP_S:g} s")
        )
        self._is_at_it = self._run(partial(self._get, number))

    def stop(self) -> None:
        self._is_stopped = True
        self._cancel()
        self._fetch = 0
        self._go_on()

    def _cancel(self) -> None:
        for timer in (self._given_up, self._next):
            if timer is not None:
                timer.cancel()
        self._given_up = self._next = None

    def _get(self, number: int) -> None:
        """In a thread."""
        found: KeySet | None = None
        problem = ""
        try:
            keys = KeySet()
            keys.replace(self._read())
            found = keys
        except Exception as error:  # whatever a provider answers must not end the thread without a word
            problem = _said(error)
        try:
            self._loop.call_soon_threadsafe(partial(self._ended, number, found, problem))
        except RuntimeError:
            pass  # the loop is gone

    def _ended(self, number: int, keys: KeySet | None, problem: str) -> None:
        if number != self._fetch or self._is_stopped:
            return  # it was given up
        self._cancel()
        self._fetch = 0
        if keys is not None:
            self._keys.take(keys)
            self._good_mono_ms = self._clock.mono_ms()
            self.results["ok"] += 1
        else:
            self.results["failed"] += 1
        if problem and problem != self._problem:
            logger.error("event=oauth_keys_failed source=%s error=%s", self._source, problem)
        elif not problem and (self._problem or self.results["ok"] == 1):
            logger.info("event=oauth_keys_loaded source=%s keys=%d", self._source, len(self._keys))
        self._problem = problem
        self._next = self._loop.call_later(LOOK_S if problem else self._refresh_s, self.fetch)
        self._go_on()

    def _go_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()

    # What is told of them.

    def warnings(self) -> list[str]:
        """A sentence each."""
        if not self._problem:
            return []
        age_ms = self._clock.mono_ms() - self._good_mono_ms
        if not len(self._keys):
            return [f"no access token can be verified: {self._source}: {self._problem}"]
        if age_ms < STALE_MS and self._refresh_s > LOOK_S:
            return []  # it may come back
        return [f"keys for access tokens are {age_ms // 60_000} minutes old: {self._source}: {self._problem}"]

    def metrics(self, put: Callable[..., None]) -> None:
        """`put(name, value, *labels)`."""
        for result, count in self.results.items():
            put("halfmoon_oauth_key_fetches_total", count, result)


def access_tokens(oauth: OauthSettings, loop: Loop, clock: Clock, lets_in: Callable[[Principal], bool]) -> AccessTokens:
    """As the settings say it, and begun. Raises StartError."""
    expected = Expected(oauth.issuer or "", oauth.audience, oauth.algorithms, oauth.sub_claim)
    expected.check()
    if oauth.jwks_file is not None:
        file = Path(oauth.jwks_file)
        found = AccessTokens(
            expected, oauth.jwks_file, partial(_read_file, file), loop, clock, lets_in, refresh_s=LOOK_S
        )
        found.load()
        return found
    url = oauth.jwks_url
    assert url is not None
    from halfmoon import https  # few need it

    if oauth.ca is not None and not Path(oauth.ca).is_file():
        raise StartError(f"security.oauth.ca: there is no file {oauth.ca}")
    found = AccessTokens(
        expected, url, partial(https.request, url, ca=oauth.ca, most_bytes=MOST_KEYS_BYTES), loop, clock, lets_in
    )
    found.fetch()
    return found


def _read_file(file: Path) -> bytes:
    """Raises OSError."""
    with file.open("rb") as opened:
        return opened.read(MOST_KEYS_BYTES + 1)


def _in_thread(work: Callable[[], None]) -> Callable[[], bool]:
    # A daemon of its own, not one of a pool: a name's look-up may take as long as it likes, and nobody waits for it,
    # not even the process's end.
    thread = threading.Thread(target=work, name="halfmoon-oauth", daemon=True)
    thread.start()
    return thread.is_alive


def _said(error: Exception) -> str:
    said = (isinstance(error, OSError) and error.strerror) or str(error)
    return " ".join((said or type(error).__name__).split())
