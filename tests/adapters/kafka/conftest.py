"""What most tests of APIs begin with. Another `rig`, or the `broker` of the client, is each module's own."""

from __future__ import annotations

import pytest
from fake_admin_broker import Client, FakeAdminBroker
from kafka_rig import Rig


@pytest.fixture
def client(broker: FakeAdminBroker) -> Client:
    return Client(broker)


@pytest.fixture
def rig() -> Rig:
    return Rig()
