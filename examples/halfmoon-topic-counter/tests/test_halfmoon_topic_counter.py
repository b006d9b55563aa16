from __future__ import annotations

import json

import halfmoon_topic_counter as plugin

from halfmoon.plugin import Batch, PluginContext
from halfmoon.testing import Broker


class Host:
    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def count(self, plugin: str, name: str, amount: int) -> None:
        self.counts[name] = self.counts.get(name, 0) + amount


def test_a_broker_takes_the_plugin() -> None:
    with Broker(plugins=[plugin]) as broker:
        assert "halfmoon_dispatch" in broker.app.plugins.infos[-1].hooks


def test_it_goes_on_where_its_state_ends() -> None:
    host = Host()
    (dispatcher,) = plugin.halfmoon_dispatch(PluginContext("topic_counter", host=host))
    dispatcher.restore(json.dumps({"orders": 5}).encode())
    batch = Batch("orders", 0, 5, 8, 3, 0, 0, memoryview(b""))
    dispatcher.on_batches([batch, Batch("hidden", 0, 0, 1, 1, 0, 0, memoryview(b""), internal=True)])
    assert host.counts == {"orders": 8}
    assert json.loads(dispatcher.checkpoint()) == {"orders": 8}
