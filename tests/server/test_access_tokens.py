"""When an identity provider is asked for its keys, in virtual time, and what becomes of those that were there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halfmoon.auth.errors import AuthenticationError
from halfmoon.auth.oauth import FETCH_PAUSE_MS, Bearer, UnknownKeyError
from halfmoon.auth.principals import Principal, user
from halfmoon.config.security_settings import OauthSettings
from halfmoon.errors import StartError
from halfmoon.server.access_tokens import GIVEN_UP_S, LOOK_S, REFRESH_S, STALE_MS, AccessTokens, access_tokens
from tests.adapters.rig import FakeLoop
from tests.auth.test_oauth import EXPECTED, OTHER_RSA, RSA, jwk, token
from tests.core.bench import VirtualClock


class Loop(FakeLoop):
    def call_soon_threadsafe(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)


def document(*keys: Any) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


OLD, NEW = document(jwk(RSA, "r")), document(jwk(OTHER_RSA, "new"))


class Rig:
    """Threads run when the test says so."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.loop = Loop(self.clock)
        self.disabled: set[Principal] = set()
        self.answer: bytes | Exception = OLD
        self.threads: list[Callable[[], None]] = []
        self.asked_ms: list[int] = []
        self.tokens = AccessTokens(
            EXPECTED, "https://idp.example/jwks", self._read, self.loop, self.clock,
            lambda principal: principal not in self.disabled, run=self._run,
        )  # fmt: skip

    def _read(self) -> bytes:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def _run(self, work: Callable[[], None]) -> Callable[[], bool]:
        self.asked_ms.append(self.clock.mono_ms())
        self.threads.append(work)
        return lambda: work in self.threads

    def answers(self) -> None:
        while self.threads:
            self.threads[0]()
            self.threads.pop(0)
        self.loop.run()

    def passes(self, seconds: float, *, answers: bool = True) -> None:
        for _ in range(round(seconds)):
            self.clock.now_ms += 1_000
            self.loop.run_later()
            if answers:
                self.answers()

    def log_in(self, kid: str = "r", **claims: Any) -> Principal:
        now_s = self.clock.wall_ms() // 1000
        said = {"iat": now_s, "exp": now_s + 60, **claims}
        given = token(RSA if kid == "r" else OTHER_RSA, kid=kid, **said)
        return self.tokens.log_in(Bearer(given, "", {})).principal

    def counts(self) -> dict[str, float]:
        found: dict[str, float] = {}
        self.tokens.metrics(lambda name, value, result: found.__setitem__(result, value))
        return found


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.tokens.fetch()
    made.answers()
    return made


def test_keys_are_asked_for_at_the_start_and_again(rig: Rig) -> None:
    assert rig.log_in() == user("alice")
    begun_ms = rig.asked_ms[0]
    rig.passes(2 * REFRESH_S + 1)
    assert [at_ms - begun_ms for at_ms in rig.asked_ms] == [0, 300_000, 600_000]
    assert rig.counts() == {"ok": 3, "failed": 0}


@pytest.mark.parametrize("answer", [OSError("refused"), b"", b"{}", b" " * 1_000_000, NEW[:-5], ZeroDivisionError()])
def test_keys_stay_while_the_provider_is_away(rig: Rig, answer: bytes | Exception) -> None:
    rig.answer = answer
    rig.passes(REFRESH_S + 3 * LOOK_S)
    assert rig.log_in() == user("alice")
    assert rig.counts() == {"ok": 1, "failed": 4}
    rig.answer = NEW
    rig.passes(LOOK_S)
    assert rig.log_in("new") == user("alice")
    with pytest.raises(UnknownKeyError):
        rig.log_in()


def test_a_warning_comes_when_they_are_old(rig: Rig) -> None:
    rig.answer = OSError("connection refused")
    rig.passes(STALE_MS / 1000 - 1)
    assert rig.tokens.warnings() == []
    rig.passes(2)
    (warning,) = rig.tokens.warnings()
    assert "30 minutes old: https://idp.example/jwks: connection refused" in warning
    rig.answer = OLD
    rig.passes(LOOK_S)
    assert rig.tokens.warnings() == []


def test_without_any_keys_it_comes_at_once() -> None:
    rig = Rig()
    rig.answer = OSError("no such host")
    rig.tokens.fetch()
    assert rig.tokens.warnings() == []
    rig.answers()
    (warning,) = rig.tokens.warnings()
    assert "no access token can be verified" in warning
    assert "no such host" in warning


def test_a_hundred_unknown_keys_ask_once_in_ten_seconds(rig: Rig) -> None:
    begun_ms = rig.clock.mono_ms()
    for second in range(25):
        for number in range(100):
            with pytest.raises(UnknownKeyError):
                rig.tokens.log_in(Bearer(token(kid=f"k{second}-{number}", iat=1, exp=2), "", {}))
            rig.tokens.fetches_keys()
            rig.answers()
        rig.passes(1)
    assert [at_ms - begun_ms for at_ms in rig.asked_ms[1:]] == [0, FETCH_PAUSE_MS, 2 * FETCH_PAUSE_MS]


def test_who_waits_is_told_when_keys_have_come(rig: Rig) -> None:
    rig.answer = NEW
    told: list[int] = []
    assert rig.tokens.fetches_keys()
    rig.tokens.when_fetched(lambda: told.append(1))
    assert rig.tokens.fetches_keys(), "another one waits for the same"
    rig.tokens.when_fetched(lambda: told.append(2))
    assert told == []
    rig.answers()
    assert told == [1, 2]
    assert rig.log_in("new") == user("alice")
    assert not rig.tokens.fetches_keys(), "it is too soon to ask again"


def test_a_provider_that_hangs_is_given_up(rig: Rig) -> None:
    told: list[int] = []
    assert rig.tokens.fetches_keys()
    rig.tokens.when_fetched(lambda: told.append(1))
    rig.passes(GIVEN_UP_S - 1, answers=False)
    assert told == []
    assert rig.log_in() == user("alice"), "nobody else waits"
    rig.passes(1, answers=False)
    assert told == [1]
    assert rig.counts() == {"ok": 1, "failed": 1}
    rig.passes(10 * LOOK_S, answers=False)
    assert len(rig.threads) == 1, "never more than one thread waits for it"
    rig.answer = NEW
    rig.answers()
    assert rig.log_in() == user("alice"), "what comes too late is not taken"
    rig.passes(LOOK_S)
    assert rig.log_in("new") == user("alice")


def test_who_waits_when_the_broker_stops_goes_on(rig: Rig) -> None:
    told: list[int] = []
    assert rig.tokens.fetches_keys()
    rig.tokens.when_fetched(lambda: told.append(1))
    rig.tokens.stop()
    assert told == [1]
    rig.answers()
    assert rig.loop.later == []
    assert not rig.tokens.fetches_keys()


def test_who_is_not_let_in_by_a_token(rig: Rig) -> None:
    rig.disabled.add(user("bob"))
    with pytest.raises(AuthenticationError, match="not let in by a token"):
        rig.log_in(sub="bob")
    assert rig.log_in(sub="carol") == user("carol")


# -- a file ------------------------------------------------------------------------------------------------------------


def of_file(path: Path, loop: Loop, clock: VirtualClock) -> AccessTokens:
    settings = OauthSettings(jwks_file=str(path), issuer=EXPECTED.issuer, audience=["kafka"])
    return access_tokens(settings, loop, clock, lambda principal: True)


def test_a_file_is_read_at_once_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfmoon.server.access_tokens._in_thread", lambda work: (work(), lambda: False)[1])
    clock = VirtualClock()
    loop = Loop(clock)
    file = tmp_path / "jwks.json"
    file.write_bytes(OLD)
    tokens = of_file(file, loop, clock)
    now_s = clock.wall_ms() // 1000

    def log_in(key: Any, kid: str) -> Principal:
        return tokens.log_in(Bearer(token(key, kid=kid, iat=now_s, exp=now_s + 600), "", {})).principal

    def look() -> list[str]:
        clock.now_ms += round(LOOK_S * 1000)
        loop.run_later()
        loop.run()
        return tokens.warnings()

    assert log_in(RSA, "r") == user("alice")
    file.write_bytes(NEW[:20])
    (warning,) = look()
    assert str(file) in warning
    assert log_in(RSA, "r") == user("alice")
    file.write_bytes(NEW)
    assert look() == []
    assert log_in(OTHER_RSA, "new") == user("alice")
    file.unlink()
    (warning,) = look()
    assert "No such file" in warning


@pytest.mark.parametrize("content", [None, b"", b"{}", b" " * 70_000])
def test_a_file_that_is_no_key_set_stops_the_start(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "jwks.json"
    if content is not None:
        file.write_bytes(content)
    clock = VirtualClock()
    with pytest.raises(StartError, match=r"security\.oauth: .*jwks\.json"):
        of_file(file, Loop(clock), clock)


def test_the_extra_is_named_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jwt", None)
    clock = VirtualClock()
    with pytest.raises(StartError, match=r"halfmoon\[auth\]"):
        of_file(tmp_path / "jwks.json", Loop(clock), clock)


def test_authorities_that_are_not_there_stop_the_start(tmp_path: Path) -> None:
    settings = OauthSettings(
        jwks_url="https://idp.example/jwks", ca=str(tmp_path / "ca.pem"), issuer="i", audience=["a"]
    )
    clock = VirtualClock()
    with pytest.raises(StartError, match=r"ca\.pem"):
        access_tokens(settings, Loop(clock), clock, lambda principal: False)
