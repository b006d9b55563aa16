"""What Kafka says of its configurations is what tests/config compares ours with."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.interop.java_programs import jars, source

STORED = Path(__file__).parents[1] / "config" / "kafka_configs.json"


@pytest.mark.interop
def test_the_stored_table_is_kafkas() -> None:
    said = subprocess.run(
        ["java", "-cp", f"{jars('kafka')}/*", source("kafka", "Configs.java")], check=True, capture_output=True
    )
    assert json.loads(said.stdout) == json.loads(STORED.read_text())
