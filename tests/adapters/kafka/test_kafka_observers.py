"""What observers hear of share groups (hook `halfmoon_observers`)."""

from __future__ import annotations

from share_rig import ACCEPT, RELEASE, Member, cold_rig, produce

from halfmoon.hooks.errors import PluginErrors
from halfmoon.hooks.types import Observer
from halfmoon.server.observing import Observing
from tests.adapters.heard import Heard

REJECT = 3


def test_a_share_group() -> None:
    rig = cold_rig()
    rig.start_plugins()
    heard = Heard(rig)
    produce(rig, 6)
    assert heard.take() == {("produced", "t", 0): 6}
    member = Member(rig, "m")
    assert member.fetch() == [(0, 5, 1)]
    assert heard.take() == {("fetched", "t", 0): 1}
    member.acknowledge(0, 1, ACCEPT)
    assert heard.take() == {("acknowledged", "g", "t", 0): 2}
    member.acknowledge(2, 3, RELEASE)
    assert heard.take() == {("redelivered", "g", "t", 0): 2}
    assert member.acknowledge(0, 1, ACCEPT).responses[0].partitions[0].error_code == 0
    assert heard.take() == {}, "what was acknowledged before is not counted again"
    member.acknowledge(4, 4, REJECT)
    rig.turns()
    assert heard.take() == {("dead_lettered", "g", "t", 0): 1}
    rig.pass_time(60_000)
    rig.broker.shares.expire(rig.clock.now_ms)
    assert heard.take() == {("redelivered", "g", "t", 0): 1}, "its lock was over"


def test_acknowledgements_in_a_fetch() -> None:
    rig = cold_rig()
    heard = Heard(rig)
    produce(rig, 2)
    member = Member(rig, "m")
    member.fetch()
    heard.take()
    member.fetch((0, 0, ACCEPT), (1, 1, RELEASE))
    assert heard.take() == {
        ("acknowledged", "g", "t", 0): 1, ("redelivered", "g", "t", 0): 1, ("fetched", "t", 0): 1,
    }  # fmt: skip


def test_one_that_raises_is_called_no_more_and_counted() -> None:
    rig = cold_rig()
    heard = Heard(rig)

    def fails(group: str, topic: str, partition: int, messages: int) -> None:
        raise RuntimeError("no luck")

    Observing(rig.broker, [Observer("heard", on_acknowledged=fails)], heard.errors)
    produce(rig, 2)
    member = Member(rig, "m")
    member.fetch()
    for offset in (0, 1):
        assert member.acknowledge(offset, offset, ACCEPT).error_code == 0
    assert heard.errors.counts == {("ears", "halfmoon_observers"): 1}


def test_nobody_listens() -> None:
    rig = cold_rig()
    append = rig.broker.kernel.append
    Observing(rig.broker, [Observer("deaf")], PluginErrors({}))
    assert rig.broker.kernel.append == append
    assert rig.broker.kernel.on_fetched == ()
    assert rig.broker.shares.delivery.events.acknowledged == ()
