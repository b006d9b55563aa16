"""Client quotas: which may be set, which one holds for whom, and that they are there after a restart."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest

from halfmoon.config.settings import load_settings
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.quotas.rates import Rate
from halfmoon.services.quotas.service import (
    ANONYMOUS,
    CLIENT_ID,
    CONNECTIONS,
    CONSUMED,
    IP,
    MUTATIONS,
    PRODUCED,
    REQUEST_TIME,
    USER,
    Alteration,
    ThrottledError,
)
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.adapters.rig import BrokerRig
from tests.core.bench import VirtualClock


@pytest.fixture
def rig() -> BrokerRig:
    return BrokerRig()


def put(broker: BareNode, value: float | None, key: str = PRODUCED, **entity: str | None) -> int | None:
    parts = [(kind.replace("_", "-"), name) for kind, name in entity.items()]
    return broker.quotas.alter(Alteration(parts, [(key, value)]))


ORDER: list[dict[str, str | None]] = [
    {USER: ANONYMOUS, CLIENT_ID: "c"},
    {USER: ANONYMOUS, CLIENT_ID: None},
    {USER: ANONYMOUS},
    {USER: None, CLIENT_ID: "c"},
    {USER: None, CLIENT_ID: None},
    {USER: None},
    {CLIENT_ID: "c"},
    {CLIENT_ID: None},
]
"""Each holds where those before it are not set (Kafka's ClientQuotaManager)."""


def test_the_most_specific_quota_holds(rig: BrokerRig) -> None:
    quotas = rig.broker.quotas
    assert not quotas.enabled
    assert quotas.limit(PRODUCED, "c") is None
    for rank in reversed(range(len(ORDER))):
        quotas.alter(Alteration(list(ORDER[rank].items()), [(PRODUCED, 100.0 + rank)]))
        found = quotas.limit(PRODUCED, "c")
        assert found is not None
        assert found[0] == 100 + rank
    for rank in range(len(ORDER)):
        quotas.alter(Alteration(list(ORDER[rank].items()), [(PRODUCED, None)]))
        found = quotas.limit(PRODUCED, "c")
        assert (found and found[0]) == (101 + rank if rank + 1 < len(ORDER) else None)
    assert quotas.enabled, "as in Kafka, once there were quotas it is looked for them until the next start"


def test_keys_are_looked_up_apart(rig: BrokerRig) -> None:
    put(rig.broker, 10, CONSUMED, user=ANONYMOUS, client_id="c")
    put(rig.broker, 20, PRODUCED, client_id="c")
    assert rig.broker.quotas.limit(CONSUMED, "c") == (10, (ANONYMOUS, "c"))
    assert rig.broker.quotas.limit(PRODUCED, "c") == (20, (None, "c"))
    assert rig.broker.quotas.limit(REQUEST_TIME, "c") is None


@pytest.mark.parametrize(
    ("entity", "shared"),
    [
        ({"user": ANONYMOUS}, True),
        ({"user": None}, True),
        ({"client_id": None}, False),
        ({"user": None, "client_id": None}, False),
        ({"user": ANONYMOUS, "client_id": None}, False),
    ],
)
def test_only_what_is_a_users_is_shared_by_its_clients(
    rig: BrokerRig, entity: dict[str, str | None], shared: bool
) -> None:
    put(rig.broker, 1_000, **entity)
    quotas = rig.broker.quotas
    assert quotas.record(PRODUCED, "a", 10_000) == 0
    assert (quotas.record(PRODUCED, "b", 10_000) > 0) == shared


def test_a_client_without_a_name_has_what_its_user_has(rig: BrokerRig) -> None:
    put(rig.broker, 5, client_id=None)
    assert rig.broker.quotas.limit(PRODUCED, "") is None
    put(rig.broker, 6, user=None)
    found = rig.broker.quotas.limit(PRODUCED, "")
    assert found is not None
    assert found[0] == 6


@pytest.mark.parametrize(
    ("entity", "key", "value", "says"),
    [
        ([], PRODUCED, 1.0, "empty"),
        ([(USER, "a"), (USER, "b")], PRODUCED, 1.0, "more than once"),
        ([("group", "a")], PRODUCED, 1.0, "group"),
        ([(USER, "")], PRODUCED, 1.0, "empty user"),
        ([(IP, "10.0.0.1"), (USER, "a")], CONNECTIONS, 1.0, "combined"),
        ([(IP, "example.test")], CONNECTIONS, 1.0, "example.test"),
        ([(IP, "10.0.0.1")], PRODUCED, 1.0, PRODUCED),
        ([(USER, "a")], CONNECTIONS, 1.0, CONNECTIONS),
        ([(USER, "a")], "no_such_key", 1.0, "no_such_key"),
        ([(USER, "a")], PRODUCED, 0.0, "greater than 0"),
        ([(USER, "a")], PRODUCED, float("nan"), "greater than 0"),
        ([(USER, "a")], PRODUCED, 1.5, "fractional"),
        ([(USER, "a")], CONSUMED, 1e19, "too large"),
        ([(USER, "a")], REQUEST_TIME, float("inf"), "finite"),
        ([(USER, "a")], MUTATIONS, float("inf"), "finite"),
        ([(IP, None)], CONNECTIONS, 3e9, "too large"),
    ],
)
def test_what_cannot_be_set(
    rig: BrokerRig, entity: list[tuple[str, str | None]], key: str, value: float, says: str
) -> None:
    with pytest.raises(BrokerError, match=says) as caught:
        rig.broker.quotas.alter(Alteration(entity, [(key, value)]))
    assert caught.value.fault is Fault.INVALID_REQUEST
    assert rig.broker.state.quotas.quotas == {}


def test_a_key_that_is_named_twice(rig: BrokerRig) -> None:
    with pytest.raises(BrokerError, match="more than once"):
        rig.broker.quotas.alter(Alteration([(USER, "a")], [(PRODUCED, 1), (PRODUCED, None)]))


def test_validate_only_and_what_changes_nothing(rig: BrokerRig) -> None:
    alteration = Alteration([(CLIENT_ID, "c")], [(PRODUCED, 5)])
    assert rig.broker.quotas.alter(alteration, validate_only=True) is None
    assert rig.broker.state.quotas.quotas == {}
    assert rig.broker.quotas.alter(alteration) is not None
    assert rig.broker.quotas.alter(alteration) is None
    assert put(rig.broker, None, CONSUMED, client_id="c") is None


@pytest.mark.parametrize("value", [5e-324, 1e-320, 1e-9])
def test_however_little_is_allowed_a_wait_can_be_told(rig: BrokerRig, value: float) -> None:
    put(rig.broker, value, REQUEST_TIME, user=None)
    put(rig.broker, value, MUTATIONS, user=None)
    quotas = rig.broker.quotas
    assert quotas.record(REQUEST_TIME, "c", 10) == 1_000
    assert quotas.mutate("c", 1, strict=False) == 2**31 - 1
    with pytest.raises(ThrottledError) as caught:
        quotas.mutate("c", 1, strict=True)
    assert caught.value.wait_ms == 2**31 - 1


def test_the_time_of_requests_is_waited_for_one_window_at_most(rig: BrokerRig) -> None:
    put(rig.broker, 1, REQUEST_TIME, client_id="c")
    assert rig.broker.quotas.record(REQUEST_TIME, "c", 10) == 0
    assert rig.broker.quotas.record(REQUEST_TIME, "c", 10_000) == 1_000


def test_changes_of_topics(rig: BrokerRig) -> None:
    put(rig.broker, 1, MUTATIONS, client_id="c")
    quotas = rig.broker.quotas
    assert quotas.mutate("c", 30, strict=True) == 0  # 11 tokens were there, one was enough
    with pytest.raises(ThrottledError) as caught:
        quotas.mutate("c", 1, strict=True)
    assert caught.value.wait_ms == 19_000
    assert quotas.mutate("c", 1, strict=False) == 20_000
    assert quotas.mutate("other", 30, strict=True) == 0
    rig.clock.now_ms += 20_000
    assert quotas.mutate("c", 1, strict=True) == 0


def test_connections_by_address(rig: BrokerRig) -> None:
    put(rig.broker, 2, CONNECTIONS, ip=None)
    put(rig.broker, 1, CONNECTIONS, ip="10.0.0.1")
    quotas = rig.broker.quotas
    assert (quotas.enabled, quotas.connections_limited) == (False, True)
    assert [quotas.connect("10.0.0.1") for _ in range(11)][-2:] == [0, 1_000]
    assert [quotas.connect("10.0.0.2") for _ in range(21)][-2:] == [0, 500]


def test_an_address_is_one_however_it_is_written(rig: BrokerRig) -> None:
    """Peers that reach a socket of IPv6 by IPv4 count as what they are (`tcp.connection.plain_host`)."""
    put(rig.broker, 1, CONNECTIONS, ip="::ffff:10.0.0.1")
    put(rig.broker, 1, CONNECTIONS, ip="0:0::1")
    assert [rig.broker.quotas.connect("10.0.0.1") for _ in range(11)][-1] == 1_000
    assert [rig.broker.quotas.connect("::1") for _ in range(11)][-1] == 1_000


def test_who_was_not_heard_of_for_long_makes_room(rig: BrokerRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfmoon.services.quotas.service.MOST_METERS", 100)
    put(rig.broker, 1, client_id=None)
    quotas = rig.broker.quotas
    quotas.record(PRODUCED, "always there", 100_000)
    for number in range(500):
        quotas.record(PRODUCED, f"client-{number}", 100)
        assert quotas.record(PRODUCED, "always there", 0) > 0, "its usage is not forgotten"
    assert len(quotas._rates) == 100
    rig.clock.now_ms += 3_600_000
    for _ in range(3):
        quotas.record(PRODUCED, "client-new", 100)
    assert len(quotas._rates) == 1


def test_one_more_client_takes_no_longer_when_there_are_many(rig: BrokerRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many were forgotten meanwhile, a few go at a time."""
    monkeypatch.setattr("halfmoon.services.quotas.service.MOST_METERS", 5_000)
    put(rig.broker, 1, client_id=None)
    quotas = rig.broker.quotas
    for number in range(5_000):
        quotas.record(PRODUCED, f"client-{number}", 100)
    rig.clock.now_ms += 3_600_000
    looked: list[int] = []
    monkeypatch.setattr(Rate, "idle_since_ms", lambda rate: looked.append(1) or 0)
    quotas.record(PRODUCED, "client-new", 100)
    assert len(looked) <= 101


def test_a_meter_takes_little_memory(rig: BrokerRig) -> None:
    put(rig.broker, 1, client_id=None)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(1_000):
        rig.broker.quotas.record(PRODUCED, f"client-{number}", 100)
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert taken < 700 * 1_000


def _broker(fs: FaultyFileSystem, off: tuple[str, ...] = ()) -> BareNode:
    settings = load_settings(None, {}, {"log.segment_bytes": "1MiB", "log.low_disk_bytes": 0})
    broker = BareNode(fs, settings, VirtualClock(), random.Random(2).randbytes, off=off)
    broker.open()
    return broker


@pytest.mark.parametrize("end", ["close", "kill", "power loss"])
def test_they_are_there_after_a_restart(end: str) -> None:
    fs = FaultyFileSystem(random.Random(1))
    broker = _broker(fs)
    put(broker, 1_000, user=None)
    put(broker, 2_000, CONSUMED, user=None)
    put(broker, 5, CONNECTIONS, ip="::1")
    put(broker, 7, client_id="gone")
    put(broker, None, client_id="gone")
    broker.flush()
    expected: dict[Any, Any] = {
        ((USER, None),): {PRODUCED: 1000, CONSUMED: 2000},
        ((IP, "::1"),): {CONNECTIONS: 5},
    }
    assert broker.state.quotas.quotas == expected
    if end == "close":
        broker.close()
    else:
        fs = fs.kill() if end == "kill" else fs.power_loss()
    again = _broker(fs)
    assert again.state.quotas.quotas == expected
    assert again.quotas.enabled
    assert again.quotas.connections_limited
    assert again.quotas.limit(CONSUMED, "x") == (2000, (ANONYMOUS, None))


@pytest.mark.parametrize("end", ["close", "kill", "power loss"])
def test_they_outlast_starts_without_the_service(end: str) -> None:
    fs = FaultyFileSystem(random.Random(1))
    broker = _broker(fs)
    put(broker, 1_000, user=None)
    put(broker, 5, CONNECTIONS, ip="::1")
    broker.flush()
    expected = dict(broker.state.quotas.quotas)
    for off in (("quotas",), ("quotas",), ()):
        if end == "close":
            broker.close()
        else:
            fs = fs.kill() if end == "kill" else fs.power_loss()
        broker = _broker(fs, off)
        assert broker.state.quotas.quotas == expected
        assert broker.quotas.enabled == broker.quotas.connections_limited == (not off)
    assert broker.quotas.limit(PRODUCED, "x") == (1000, (ANONYMOUS, None))
