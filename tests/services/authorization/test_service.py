"""Who is asked, in which order, and how long an answer is kept."""

from __future__ import annotations

import msgspec
import pytest

from halfmoon.schema.control import AclRule, AclsChanged
from halfmoon.services.acls.state import AclsState
from halfmoon.services.authorization import service
from halfmoon.services.authorization.decisions import BY_RULE, NO_RULE, SUPER_USER, Decision
from halfmoon.services.authorization.service import ANY_NAME, Authorization, Authorizer

HOST = "10.1.2.3"
ALICE = "User:alice"
TOPIC, LITERAL, READ, DENY, ALLOW = 2, 3, 3, 2, 3


def rule(name: str = "t", permission: int = ALLOW, operation: int = READ) -> AclRule:
    return AclRule(TOPIC, name, LITERAL, ALICE, "*", operation, permission)


class World:
    def __init__(self, *plugins: Authorizer) -> None:
        self.acls = AclsState()
        self.supers = {"User:root"}
        self.now_ms = 0
        self.failed: list[tuple[str, Exception]] = []
        self.service = Authorization(
            self.acls, lambda principal: principal in self.supers, lambda topic: 999 * (topic == "internal"),
            plugins=plugins, failed=lambda plugin, error: self.failed.append((plugin, error)),
            mono_ms=lambda: self.now_ms,
        )  # fmt: skip

    def change(self, *added: AclRule, removed: tuple[AclRule, ...] = ()) -> None:
        self.acls.apply(AclsChanged(list(added), list(removed)))

    def reads(self, name: str | None = "t", principal: str = ALICE) -> bool:
        return self.service.allows(principal, HOST, "read", "topic", name)


class Plugin:
    """Says what it is told, and counts."""

    def __init__(self, answer: bool | Exception | None = None) -> None:
        self.answer = answer
        self.asked = 0

    def __call__(self, principal: str, host: str, operation: str, kind: str, name: str | None) -> bool | None:
        assert (principal, host, operation, kind) == (ALICE, HOST, "read", "topic")
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_nothing_is_allowed_but_to_super_users_and_by_rules() -> None:
    world = World()
    assert not world.reads()
    assert world.reads(principal="User:root")
    assert world.reads("internal", principal="User:root")
    world.change(rule(), rule("*"))
    assert world.reads()
    assert not world.reads("internal")
    world.change(rule(permission=DENY))
    assert not world.reads()
    world.change(removed=(rule(permission=DENY),))
    assert world.reads()


def test_why() -> None:
    world = World()
    assert world.service.decide("User:root", HOST, "read", "topic", "t") == Decision(True, SUPER_USER)
    assert world.service.decide(ALICE, HOST, "read", "topic", "t") == Decision(False, NO_RULE)
    world.change(rule())
    assert world.service.decide(ALICE, HOST, "read", "topic", "t") == Decision(True, BY_RULE, rule())


def test_on_any_topic() -> None:
    world = World()
    assert not world.reads(ANY_NAME)
    world.change(rule("deep"))
    assert world.reads(ANY_NAME)
    assert world.reads(ANY_NAME, "User:root")


def test_a_snapshot_that_is_restored_counts_at_once() -> None:
    """Recovery of a broker: the section becomes another, and a connection's answers do not outlive that."""
    saving = AclsState()
    saving.apply(AclsChanged([rule("b")], []))
    world = World()
    world.change(rule("a"))
    asker = world.service.asker(ALICE, HOST)
    assert asker["read", "topic", "a"]
    world.acls.restore("acls", msgspec.Raw(msgspec.msgpack.encode(saving.save("acls"))))
    assert not asker["read", "topic", "a"]
    assert asker["read", "topic", "b"]


def test_rules_that_were_there_before_the_service() -> None:
    acls = AclsState()
    acls.apply(AclsChanged([rule()], []))
    made = Authorization(acls, lambda principal: False)
    assert made.allows(ALICE, HOST, "read", "topic", "t")


def test_an_answer_is_kept_until_something_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.change(rule())
    assert world.reads()
    asker = world.service.asker(ALICE, HOST)
    assert dict(asker) == {("read", "topic", "t"): True}
    worked_out = world.service.answer
    monkeypatch.setattr(world.service, "answer", None)
    assert world.reads()
    monkeypatch.setattr(world.service, "answer", worked_out)
    world.change(rule("other"))
    assert not asker
    assert asker["read", "topic", "t"]
    assert not asker["read", "topic", "u"]
    world.supers.add(ALICE)
    assert not asker["read", "topic", "u"]
    world.service.forget()
    assert asker["read", "topic", "u"]


def test_a_connection_keeps_its_asker_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "ASKERS", 2)
    world = World()
    world.change(rule())
    kept = world.service.asker(ALICE, HOST)
    assert kept["read", "topic", "t"]
    for number in range(5):
        world.service.asker(f"User:{number}", HOST)
    assert world.service.asker(ALICE, HOST) is not kept
    world.change(rule(permission=DENY))
    assert not kept["read", "topic", "t"]


def test_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "ASKER_ANSWERS", 10)
    monkeypatch.setattr(service, "KEPT_ANSWERS", 25)
    world = World()
    asker = world.service.asker(ALICE, HOST)
    most = 0
    for number in range(100):
        assert not asker["read", "topic", str(number)]
        most = max(most, len(asker))
    assert most == 10
    askers = [world.service.asker(f"User:{number}", HOST) for number in range(100)]
    for each in askers:
        assert not each["read", "topic", "t"]
        assert sum(map(len, [asker, *askers])) <= 25
    assert not asker["read", "group", "g" * 256]
    assert ("read", "group", "g" * 256) not in asker


@pytest.mark.parametrize("answer", [True, False])
def test_what_a_plugin_says_is_final(answer: bool) -> None:
    first, second = Plugin(answer), Plugin(not answer)
    world = World(Authorizer("a", first), Authorizer("b", second))
    world.change(rule(permission=DENY if answer else ALLOW))
    assert world.reads() is answer
    assert world.reads() is answer
    assert (first.asked, second.asked) == (2, 0), "it gave no lifetime"
    assert world.service.decide(ALICE, HOST, "read", "topic", "t") == Decision(answer, "plugin a")


def test_a_plugin_without_opinion_asks_on() -> None:
    first, second = Plugin(), Plugin()
    world = World(Authorizer("a", first), Authorizer("b", second))
    world.change(rule())
    assert [world.reads(), world.reads(), world.reads("u")] == [True, True, False]
    assert (first.asked, second.asked) == (3, 3)
    second.answer = False
    assert not world.reads()
    assert world.service.decide(ALICE, HOST, "read", "topic", "t") == Decision(False, "plugin b")


def test_a_plugin_that_fails_denies() -> None:
    error = RuntimeError("no")
    broken = Plugin(error)
    world = World(Authorizer("a", broken, lifetime_ms=1_000), Authorizer("b", Plugin(True)))
    world.change(rule())
    assert not world.reads()
    assert world.failed == [("a", error)]
    assert world.service.decide(ALICE, HOST, "read", "topic", "t") == Decision(False, "plugin a failed")
    broken.answer = None
    assert world.reads(), "a failure is not kept"


def test_a_plugins_answer_is_kept_for_its_lifetime() -> None:
    first, second = Plugin(), Plugin(True)
    world = World(Authorizer("a", first, lifetime_ms=2_000), Authorizer("b", second, lifetime_ms=1_000))
    assert [world.reads(), world.reads()] == [True, True]
    assert (first.asked, second.asked) == (1, 1)
    second.answer = False
    world.now_ms = 999
    assert world.reads()
    world.now_ms = 1_000
    assert not world.reads()
    second.answer = True
    world.service.forget()  # invalidate()
    assert world.reads()
    second.answer = None
    world.service.forget()
    assert not world.reads()
    world.change(rule())
    assert world.reads(), "rules have changed, and plugins have no opinion"
    asked = second.asked
    assert world.reads()
    assert second.asked == asked


def test_one_plugin_without_a_lifetime_is_asked_each_time() -> None:
    first, second = Plugin(), Plugin()
    world = World(Authorizer("a", first, lifetime_ms=2_000), Authorizer("b", second))
    for _ in range(3):
        assert not world.reads()
    assert second.asked == 3


def test_an_unknown_operation_is_a_mistake_of_ours() -> None:
    with pytest.raises(KeyError):
        World().service.allows(ALICE, HOST, "raed", "topic", "t")
    with pytest.raises(KeyError):
        World().service.allows(ALICE, HOST, "read", "tpoic", "t")


def test_a_plugin_names_a_lifetime_later() -> None:
    first, second = Plugin(), Plugin(True)
    world = World(Authorizer("first", first, 1_000), Authorizer("second", second))
    for _ in range(2):
        assert world.reads()
    assert (first.asked, second.asked) == (2, 2)  # as short as the shortest
    world.service.keep("second", 500)
    for _ in range(2):
        assert world.reads()
    assert (first.asked, second.asked) == (3, 3)
    world.now_ms = 500
    assert world.reads()
    assert second.asked == 4
    second.answer = False
    assert world.reads()
    world.service.keep("second", 0)
    assert not world.reads()


def test_what_is_allowed_is_counted_when_it_is_worked_out() -> None:
    world = World()
    world.change(rule())
    for _ in range(3):
        assert world.reads()
        assert not world.reads("other")
    assert world.service.allowances == 1
    world.change(rule("more"))
    assert world.reads()
    assert world.service.allowances == 2


def test_why_is_of_the_rules_that_are_there_now() -> None:
    world = World()
    world.change(rule())
    assert world.reads()
    assert world.service.decide(ALICE, HOST, "read", "topic", "t") == Decision(True, BY_RULE, rule())
    denies = rule(permission=DENY)
    world.change(denies)
    assert world.service.decide(ALICE, HOST, "read", "topic", "t") == Decision(False, BY_RULE, denies)


def test_why_may_be_what_plugins_have_said() -> None:
    plugin = Plugin(False)
    world = World(Authorizer("strict", plugin, 1_000))
    refused = Decision(False, "plugin strict")
    assert not world.reads()
    assert world.service.decide(ALICE, HOST, "read", "topic", "t", anew=False) == refused
    assert plugin.asked == 1
    plugin.answer = True
    assert world.service.decide(ALICE, HOST, "read", "topic", "t", anew=False) == refused
    assert world.service.decide(ALICE, HOST, "read", "topic", "t") == Decision(True, "plugin strict")
    world.now_ms = 1_000
    assert world.service.decide(ALICE, HOST, "read", "topic", "t", anew=False) == Decision(True, "plugin strict")
