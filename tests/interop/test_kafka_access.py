"""What every API answers to a user who lacks a right: Kafka's own answers are the table in tests/adapters/kafka.

HALFMOON_TEST_ACCESS=HOST:PORT,USER,PASSWORD asks another broker, as that super user, in place of a Kafka of its own
HALFMOON_TEST_WRITE=1 writes the table
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.interop.access.cases import CASES, NOT_ASKED
from tests.interop.access.kafka_broker import PASSWORD, USER, KafkaBroker
from tests.interop.access.table import STORED, ask, differences, title, written
from tests.interop.access.world import World

KAFKAS_APIS = Path(__file__).parents[1] / "golden" / "kafka-4.3.1-apis.tsv"


def test_each_api_of_kafka_is_asked() -> None:
    """It needs no Kafka, so it runs with the others."""
    offered = {int(line.split("\t")[0]) for line in KAFKAS_APIS.read_text().splitlines()}
    asked = {case.key for case in CASES}
    assert offered - asked - NOT_ASKED.keys() == set()
    assert asked & NOT_ASKED.keys() == set()
    table = json.loads(STORED.read_text())
    assert {title(case): [name for name, _ in case.situations()] for case in CASES} == {
        name: list(answers) for name, answers in table.items()
    }


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
