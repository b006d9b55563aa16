"""What the tests of the engine begin with; those that want another World, or another broker, make their own."""

from __future__ import annotations

import pytest

from tests.client.fake_broker import FakeBroker
from tests.client.world import Client, World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def broker(world: World) -> FakeBroker:
    return FakeBroker(world)


@pytest.fixture
def client(world: World) -> Client:
    """The first of the world's clients: 10.0.0.1@c1."""
    return world.client()
