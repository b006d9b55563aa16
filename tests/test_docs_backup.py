"""docs/backup.md: its commands do what it says, while a broker runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from confluent_kafka import Producer

from halfmoon.testing import Broker
from tests.crash.load import QUICK

PAGE = (Path(__file__).parents[1] / "docs" / "backup.md").read_text(encoding="utf-8")


def test_its_commands(tmp_path: Path) -> None:
    (block,) = re.findall(r"<!-- test: run -->\n```sh\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "var/lib").mkdir(parents=True)
    script = tmp_path / "halfmoon"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m halfmoon "$@"\n')
    script.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with Broker(data_dir=str(tmp_path / "var/lib/halfmoon")) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **QUICK})
        for number in range(7):
            producer.produce("orders", b"%d" % number)
        assert producer.flush(20) == 0
        commands = re.sub(r" /(var|backup)/", rf" {tmp_path}/\1/", block)
        done = subprocess.run(
            ["/bin/sh", "-e", "-c", commands], env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert re.findall(r"^(topics|records) +(\d+)$", done.stdout, re.MULTILINE) == [
            ("topics", "1"), ("records", "7"), ("records", "7"), ("records", "7"),
        ]  # fmt: skip
        assert done.stdout.count("\nwhole\n") == 3
