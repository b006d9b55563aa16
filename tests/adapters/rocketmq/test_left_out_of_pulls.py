"""What a plugin leaves out of what RocketMQ's consumers get (hook `halfmoon_fetch`)."""

from __future__ import annotations

from rocketmq_rig import Rig

from halfmoon.remoting.codes import Code
from halfmoon.services.common.leaving_out import FetchFilter, LeavingOut

HIDDEN: set[bytes] = set()


def rig_that_hides(*hidden: bytes) -> Rig:
    """What has the property HIDDEN, as long as its body is among these."""
    HIDDEN.clear()
    HIDDEN.update(hidden)
    rig = Rig()
    rig.topic("orders")
    hiding = FetchFilter("hiding", ("HIDDEN",), lambda topic, record: record.value not in HIDDEN)
    rig.broker.services.add(LeavingOut([hiding], lambda name: None))
    client = rig.client()
    for body in (b"a", b"b", b"c", b"d"):
        client.produce("orders", body, HIDDEN="yes")
    client.produce("orders", b"e")
    return rig


def test_offsets_stay() -> None:
    rig = rig_that_hides(b"a", b"c", b"e")
    client = rig.client()
    assert [(each.body, each.queue_offset) for each in client.read("orders")] == [(b"b", 1), (b"d", 3), (b"e", 4)]
    assert client.pull("orders").fields["nextBeginOffset"] == "5"


def test_it_is_asked_anew_each_time() -> None:
    rig = rig_that_hides()
    client = rig.client()
    assert [each.body for each in client.read("orders", maxMsgNums=1)] == [b"a"]
    HIDDEN.update((b"b", b"c"))
    assert [each.body for each in client.read("orders", 1, maxMsgNums=1)] == [b"d"], (
        "the window is kept, its answer not"
    )
    HIDDEN.clear()
    assert [each.body for each in client.read("orders", 1, maxMsgNums=2)] == [b"b", b"c"]


def test_where_all_is_left_out_the_client_goes_on_behind_it() -> None:
    rig = rig_that_hides(b"a", b"b", b"c", b"d", b"e")
    rig.client().produce("orders", b"f", HIDDEN="yes")
    HIDDEN.add(b"f")
    answer = rig.client().pull("orders", 5)
    assert (answer.code, answer.fields["nextBeginOffset"]) == (Code.PULL_RETRY_IMMEDIATELY, "6")
