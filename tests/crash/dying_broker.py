"""dying_disk.py as a process, and what is stored there in the end."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from tests.crash.dying_disk import PARTITIONS, TOPIC
from tests.crash.load import QUICK
from tests.crash.serving import free_port

ROOT = Path(__file__).parents[2]
LIVES = 5


@contextmanager
def dying_broker(seed: int, lives: int = LIVES, flush: str = "sync") -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Its address, and the program."""
    port = free_port()
    command = [sys.executable, "-m", "tests.crash.dying_disk", str(port), str(seed), str(lives), flush]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        try:
            yield f"127.0.0.1:{port}", program
        finally:
            program.kill()


def until(program: subprocess.Popen[str], line: str) -> None:
    assert program.stdout is not None
    for found in program.stdout:
        if found.strip() == line:
            return
    raise AssertionError(f"it ended before it was {line}")


def when_well(program: subprocess.Popen[str]) -> threading.Event:
    well = threading.Event()
    threading.Thread(target=lambda: (until(program, "well"), well.set()), daemon=True).start()
    return well


def check_once(found: list[bytes], number: int) -> None:
    assert sorted(found, key=int) == [b"%d" % each for each in range(number)], "lost, or stored twice"


def stored(servers: str) -> list[bytes]:
    """All values there are."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False, **QUICK})
    found: list[bytes] = []
    for index in range(PARTITIONS):
        place = TopicPartition(TOPIC, index, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=20)
        consumer.assign([place])
        position = 0
        while position < end:
            for message in consumer.consume(1_000, 1):
                assert message.error() is None, message.error()
                found.append(message.value())
                position = message.offset() + 1
    consumer.close()
    return found
