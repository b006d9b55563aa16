"""What the broker loads: none of kafka-python, and no definition of a message before somebody sends one."""

from __future__ import annotations

import subprocess
import sys


def run(code: str) -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_the_broker_loads_nothing_of_kafka_python_and_works_beside_its_clients() -> None:
    run(
        "import sys\n"
        "import halfmoon.adapters.kafka.server, halfmoon.server.app\n"
        "from halfmoon.adapters.kafka.api import registered\n"
        "assert len(registered()) > 50\n"
        "assert not [name for name in sys.modules if name == 'kafka' or name.startswith('kafka.')]\n"
        "from kafka import KafkaConsumer\n"
        "from kafka.admin import KafkaAdminClient\n"
    )


def test_definitions_are_read_when_they_are_used() -> None:
    run(
        "import halfmoon.server.app\n"
        "from halfmoon.kafka_wire.messages import REQUESTS, RESPONSES\n"
        "from halfmoon.adapters.kafka.api import registered\n"
        "registered()\n"
        "read = [kind for kinds in (REQUESTS, RESPONSES) for kind in kinds.values() if 'fields' in vars(kind)]\n"
        "assert not read, read\n"
        "REQUESTS[12].decode(memoryview(bytes(100)), 0)\n"
        "assert 'fields' in vars(REQUESTS[12]) and 'fields' not in vars(RESPONSES[12])\n"
    )
