"""What plugins say of requests (`halfmoon_authorize`) is kept as long as they allow."""

from __future__ import annotations

import pytest

from halfmoon.plugin import PluginContext, hookimpl
from tests.security.acting import User
from tests.security.conftest import Secure

TOPIC = 29


class Verdicts:
    """Lets nobody write to `secret`, and counts how often it is asked."""

    api_version = 1

    def __init__(self, lifetime_ms: int | None) -> None:
        self.lifetime_ms = lifetime_ms
        self.asked = 0
        self.verdict: bool | None = False
        self.ctx: PluginContext

    @hookimpl
    def halfmoon_started(self, ctx: PluginContext) -> None:
        self.ctx = ctx
        if self.lifetime_ms is not None:
            ctx.cache_verdicts(self.lifetime_ms)

    @hookimpl
    def halfmoon_authorize(self, operation: str, resource: str) -> bool | None:
        if (operation, resource) != ("write", "secret"):
            return None
        self.asked += 1
        return self.verdict


def test_a_verdict_is_kept_until_the_plugin_has_it_forgotten(secured: Secure) -> None:
    plugin = Verdicts(3_600_000)
    found = secured(plugins=[plugin], security={"super_users": ["User:root"]})
    root = User(found, "root")
    assert root.create("secret") == 0
    assert [root.produce("secret") for _ in range(3)] == [TOPIC] * 3
    assert plugin.asked == 1
    plugin.verdict = None
    assert root.produce("secret") == TOPIC
    found.in_loop(plugin.ctx.invalidate_verdicts)
    assert [root.produce("secret") for _ in range(2)] == [0, 0]
    assert plugin.asked == 2
    found.in_loop(lambda: plugin.ctx.cache_verdicts(0))
    assert [root.produce("secret") for _ in range(3)] == [0] * 3
    assert plugin.asked == 5  # audit is told of refusals only, and has not asked
    root.connection.close()


def test_by_default_it_is_asked_each_time(secured: Secure) -> None:
    plugin = Verdicts(None)
    found = secured(plugins=[plugin], security={"audit": {"topic": False}})
    alice = User(found, "alice")
    assert [alice.produce("secret") for _ in range(3)] == [TOPIC] * 3
    assert plugin.asked == 3
    alice.connection.close()
    with pytest.raises(ValueError, match="-1 ms"):
        found.in_loop(lambda: plugin.ctx.cache_verdicts(-1))


def test_without_access_rules_nothing_is_kept(secured: Secure) -> None:
    plugin = Verdicts(3_600_000)
    found = secured(plugins=[plugin], security={"authorizer": "none", "audit": {"topic": False}})
    alice = User(found, "alice")
    assert [alice.produce("secret") for _ in range(3)] == [TOPIC] * 3
    assert plugin.asked == 3
    found.in_loop(plugin.ctx.invalidate_verdicts)
    alice.connection.close()
