"""What administrators store in the name server: what is kept, also over a restart, and the limits."""

from __future__ import annotations

import pytest

from halfmoon.config.settings import load_settings
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.configs import name_server
from halfmoon.services.configs.name_server import MOST_CHARACTERS, NameServerConfigs
from halfmoon.testing.node import BareNode
from tests.adapters.rig import BrokerRig


@pytest.fixture
def rig() -> BrokerRig:
    return BrokerRig()


@pytest.fixture
def configs(rig: BrokerRig) -> NameServerConfigs:
    return rig.broker.services.get(NameServerConfigs)


def test_values_by_namespace_and_key(configs: NameServerConfigs) -> None:
    configs.put("a", "k", "1")
    configs.put("a", "l", "2")
    configs.put("b", "k", "3")
    assert (configs.values("a"), configs.values("b"), configs.values("c")) == ({"k": "1", "l": "2"}, {"k": "3"}, {})
    configs.delete("a", "k")
    configs.delete("b", "k")
    assert (configs.values("a"), configs.values("b")) == ({"l": "2"}, {})


def test_what_is_so_already_writes_nothing(configs: NameServerConfigs) -> None:
    assert configs.put("a", "k", "1") is not None
    assert configs.put("a", "k", "1") is None
    assert configs.delete("a", "l") is None
    assert configs.delete("b", "k") is None


def test_they_are_there_after_a_restart(rig: BrokerRig, configs: NameServerConfigs) -> None:
    configs.put("ORDER_TOPIC_CONFIG", "orders", "halfmoon:8")
    rig.turn()
    rig.broker.close()
    broker = BareNode(
        rig.fs, load_settings(None, {}, {"log.segment_bytes": "8MiB", "log.low_disk_bytes": 0}), rig.clock, bytes
    )
    broker.open()
    assert broker.services.get(NameServerConfigs).values("ORDER_TOPIC_CONFIG") == {"orders": "halfmoon:8"}
    broker.close()


@pytest.mark.parametrize("place", range(3))
def test_what_is_too_long(configs: NameServerConfigs, place: int) -> None:
    said = ["n", "k", "v"]
    said[place] = "x" * (MOST_CHARACTERS + 1)
    with pytest.raises(BrokerError, match="at most 4096") as caught:
        configs.put(*said)
    assert caught.value.fault is Fault.INVALID_REQUEST


def test_how_many_there_may_be(configs: NameServerConfigs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_server, "MOST_NAMESPACES", 2)
    monkeypatch.setattr(name_server, "MOST_KEYS", 2)
    for namespace in "ab":
        for key in "kl":
            configs.put(namespace, key, "1")
    for namespace, key in (("c", "k"), ("a", "m")):
        with pytest.raises(BrokerError, match="may") as caught:
            configs.put(namespace, key, "1")
        assert caught.value.fault is Fault.INVALID_REQUEST
    configs.put("a", "k", "2")
    configs.delete("a", "l")
    configs.put("a", "m", "1")
    assert configs.values("a") == {"k": "2", "m": "1"}
