"""`python -m tests.interop.access HOST:PORT USER PASSWORD [KEY …]` asks a broker as that super user, and prints how it
differs from the stored table; `python -m tests.interop.access kafka` keeps a Kafka running until Enter."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from tests.interop.access.cases import CASES
from tests.interop.access.kafka_broker import PASSWORD, USER, KafkaBroker
from tests.interop.access.table import STORED, ask, differences
from tests.interop.access.world import World

if sys.argv[1:] == ["kafka"]:
    broker = KafkaBroker(Path(tempfile.mkdtemp()))
    print(broker.bootstrap, USER, PASSWORD, flush=True)
    try:
        sys.stdin.readline()
    finally:
        broker.stop()
else:
    bootstrap, user, password, *keys = sys.argv[1:]
    world = World(bootstrap, user, password)
    try:
        found = ask(world, [case for case in CASES if not keys or str(case.key) in keys])
    finally:
        world.close()
    print(*differences(found, json.loads(STORED.read_text())), sep="\n")
