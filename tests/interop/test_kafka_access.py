"""What every API answers to a user who lacks a right: Kafka's own answers are the table in tests/adapters/kafka.

HALFMOON_TEST_ACCESS=HOST:PORT,USER,PASSWORD asks another broker, as that super user, in place of a Kafka of its own
HALFMOON_TEST_WRITE=1 writes the table
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.interop.access.kafka_broker import PASSWORD, USER, KafkaBroker
from tests.interop.access.table import STORED, ask, differences, written
from tests.interop.access.world import World


@pytest.mark.interop
@pytest.mark.timeout(900)
def test_what_is_answered_to_whom(tmp_path: Path) -> None:
    given = os.environ.get("HALFMOON_TEST_ACCESS")
    broker = None if given else KafkaBroker(tmp_path / "kafka")
    try:
        world = World(*given.split(",")) if given else World(broker.bootstrap, USER, PASSWORD)
        found = ask(world)
        world.close()
    finally:
        if broker is not None:
            broker.stop()
    if os.environ.get("HALFMOON_TEST_WRITE"):
        STORED.write_text(written(found))
    assert differences(json.loads(written(found)), json.loads(STORED.read_text())) == []
