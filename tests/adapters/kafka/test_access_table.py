"""Every API answers to users who lack a right as Kafka does (docs/decisions/0141), but for what has a reason in a list.

`HALFMOON_TEST_WRITE=1` writes the list, and leaves the reasons to you.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.interop.access.cases import CASES, NOT_ASKED
from tests.interop.access.halfmoon import LEFT_OUT
from tests.interop.access.table import STORED, ask, differences, title, written
from tests.interop.access.world import World
from tests.security.authority import Authority
from tests.security.conftest import Secured

KAFKAS_APIS = Path(__file__).parents[2] / "golden" / "kafka-4.3.1-apis.tsv"
OURS = STORED.with_name("kafka_access_ours.json")
"""Where Halfmoon answers otherwise, and why."""
NOT_OFFERED = {"10 FindCoordinator v6, of share partitions", "22 InitProducerId v6, in two phases"}


def test_each_api_of_kafka_is_asked() -> None:
    offered = {int(line.split("\t")[0]) for line in KAFKAS_APIS.read_text().splitlines()}
    asked = {case.key for case in CASES}
    assert offered - asked - NOT_ASKED.keys() == set()
    assert asked & NOT_ASKED.keys() == set()
    table = json.loads(STORED.read_text())
    assert {title(case): [name for name, _ in case.situations()] for case in CASES} == {
        name: list(answers) for name, answers in table.items()
    }


def test_halfmoon_answers_alike(tmp_path: Path) -> None:
    super_users = {"super_users": ["User:admin"]}
    secured = Secured(Authority(tmp_path), tls=False, sasl=["SCRAM-SHA-256"], security=super_users)
    with secured.broker as broker:
        secured.user("admin", "secret")
        world = World(broker.bootstrap_servers, "admin", "secret")
        asked = [case for case in CASES if case.key not in LEFT_OUT and title(case) not in NOT_OFFERED]
        found = json.loads(written(ask(world, asked)))
        world.close()
    kafka, ours = json.loads(STORED.read_text()), json.loads(OURS.read_text())
    if os.environ.get("HALFMOON_TEST_WRITE"):
        others = {
            name: {who: answer for who, answer in answers.items() if answer != kafka[name][who]}
            for name, answers in found.items()
        }
        ours = {
            name: {"why": ours.get(name, {}).get("why", "?")} | answers for name, answers in others.items() if answers
        }
        OURS.write_text(written(ours))
    expected = {
        name: answers | {who: answer for who, answer in ours.get(name, {}).items() if who != "why"}
        for name, answers in kafka.items()
        if name in found
    }
    assert differences(found, expected) == []
    assert all(each["why"] != "?" for each in ours.values())
