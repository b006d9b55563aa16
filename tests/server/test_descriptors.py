"""Connections are held against the file descriptors that there are."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from halfmoon.server.descriptors import connections_that_fit

LIMIT = 480
IDLE = 500


def test_more_connections_than_descriptors_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="halfmoon.server"):
        assert connections_that_fit(1 << 20, 10_000) == 10_000
        assert not caplog.records
        fit = connections_that_fit(1_024, 10_000)
    assert 0 < fit <= 1_024 - 1_024 // 8
    (record,) = caplog.records
    assert "raise it" in record.getMessage()
    assert f"accepted_connections={fit} " in record.getMessage()


def test_idle_connections_do_not_stop_writes(tmp_path: Path) -> None:
    """With a new segment for every second batch, while clients have all the descriptors that they are given."""
    command = (
        f"ulimit -n {LIMIT}; exec {sys.executable} -m halfmoon serve --kafka 127.0.0.1:0 --data-dir {tmp_path / 'data'}"
    )
    environment = {"PATH": "/usr/bin:/bin", "HALFMOON_LOG_SEGMENT_BYTES": "64KiB", "HALFMOON_LOG_LOW_DISK_BYTES": "0"}
    with (tmp_path / "log").open("wb") as log:
        broker = subprocess.Popen(
            ["/bin/sh", "-c", command], env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        )
    idle: list[socket.socket] = []
    try:
        assert broker.stdout is not None
        address = broker.stdout.readline().split()[1].removeprefix("kafka=")
        host, _, port = address.rpartition(":")
        failed: list[object] = []
        producer = Producer({"bootstrap.servers": address, "linger.ms": 0, "message.timeout.ms": 60_000})

        def produce(count: int) -> None:
            for _ in range(count):
                producer.produce("t", b"x" * 40_000, on_delivery=lambda error, _: failed.append(error))
                producer.flush()

        produce(4)
        for _ in range(IDLE):
            idle.append(socket.create_connection((host, int(port))))
        produce(10)
        assert failed == [None] * 14
        assert "few_descriptors" in (tmp_path / "log").read_text()
    finally:
        for each in idle:
            each.close()
        broker.terminate()
        broker.communicate()
