"""halfmoon.demo.secure without Spark: users with their rules and nothing beyond them, over two runs on the same data.
tests/spark/test_demo.py has the whole run."""

from __future__ import annotations

from pathlib import Path

import pytest

from halfmoon.demo import secure
from halfmoon.demo.broker import broker
from halfmoon.demo.source import FLIGHTS_TOPIC
from halfmoon.demo.state import DataDir
from halfmoon.pipeline.admin import Admin
from halfmoon.pipeline.errors import PipelineError
from halfmoon.pipeline.sending import Sender
from halfmoon.securing import read


def test_two_runs_on_the_same_data(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    passwords = []
    for run in range(2):
        prepared = secure.prepare(data)
        with broker(
            data.broker, data.log("broker"), config=prepared.config, environment=prepared.environment
        ) as running:
            producer, reader = secure.set_up(prepared, running.address)
            assert Admin(producer).ensure_topic(FLIGHTS_TOPIC, 1) == 1
            with Sender(producer, FLIGHTS_TOPIC) as sender:
                sender.send(b"flight", None, 0, 1, ())
            assert secure.denied(reader) == "TOPIC_AUTHORIZATION_FAILED"
            assert Admin(reader).ends(FLIGHTS_TOPIC) == {0: run + 1}
            with pytest.raises(PipelineError, match="is not allowed to create"):
                Admin(reader).create_topic("flights.more", 1)
            with pytest.raises(PipelineError, match="is not allowed to create"):
                Admin(producer).create_topic("others", 1)
        passwords.append({path.stem: read(path, pytest.fail).password for path in prepared.folder.glob("*.properties")})
    first, second = passwords
    assert first.keys() == {"admin", "flights-producer", "spark-reader"}
    assert [name for name in first if first[name] == second[name]] == ["admin"]
